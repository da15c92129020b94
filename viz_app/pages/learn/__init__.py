"""The page Learn: all lessons, and the progress in each."""

from viz_app.shell.params import Page

PAGE = Page(
    "learn",
    "Learn",
    ":material/school:",
    group="Learn",
    asks="What do you expect, and what is true? Lessons of a few minutes.",
    text=False,
    models=False,
)
