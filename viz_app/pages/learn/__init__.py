"""The page Learn: all lessons, and the progress in each."""

from viz_app.shell.params import Page

PAGE = Page(
    "learn",
    "Learn",
    ":material/school:",
    group="Learn",
    question="What do you expect, and what is true? Lessons of a few minutes.",
    subtitle=None,
    text=False,
    models=False,
)
