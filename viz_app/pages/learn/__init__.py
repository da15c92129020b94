"""The page Learn: all lessons, and the progress in each."""

from viz_app.shell.params import Page
from viz_app.texts import page_texts

TEXTS = page_texts("learn")
PAGE = Page(
    TEXTS,
    ":material/school:",
    group="Learn",
    text=False,
    models=False,
)
