"""`python -m viz_app.cli`, the `headlight` command of a checkout."""

from viz_app.cli import main

main()
