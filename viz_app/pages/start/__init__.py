"""The page Start: what this is, and where to begin."""

from viz_app.shell.params import Page
from viz_app.texts import page_texts

TEXTS = page_texts("start")
PAGE = Page(
    TEXTS,
    ":material/flashlight_on:",
    group="",
    text=False,
    models=False,
)
