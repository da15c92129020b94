"""The page Start: what this is, and where to begin."""

from viz_app.shell.params import Page

PAGE = Page(
    "start",
    "Start",
    ":material/flashlight_on:",
    group="",
    question="What does BERT make of a sentence?",
    subtitle="Headlight shows how BERT, a language model, reads your sentence: what it predicts, where it looks, and "
    "why.",
    text=False,
    models=False,
)
