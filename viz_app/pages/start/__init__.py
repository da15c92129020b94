"""The page Start: what this is, and where to begin."""

from viz_app.shell.params import Page

PAGE = Page(
    "start",
    "Start",
    ":material/flashlight_on:",
    group="",
    question="Where do I begin?",
    subtitle=None,
    text=False,
    models=False,
)
