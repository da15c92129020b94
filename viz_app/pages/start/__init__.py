"""The page Start: what this is, and where to begin."""

from viz_app.shell.params import Page

PAGE = Page("start", "Start", ":material/flashlight_on:", group="", asks="Where do I begin?", text=False, models=False)
