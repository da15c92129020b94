"""The page Learn: all lessons, and what was done of each."""

from viz_app.shell.choices import Page

PAGE = Page("learn", "Learn", ":material/school:", text=False, models=False)
