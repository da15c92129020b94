"""The page Predictions: the prediction of every trained task head for the text."""

from viz_app.shell.params import Page, Param, toggle
from viz_app.texts import page_texts

TEXTS = page_texts("predict")
calibrated = toggle("calibrated", **TEXTS.control("calibrated"), default=True)
choices: Param[str] = Param(
    "choices",
    "",
    widget="text_area",
    **TEXTS.control("choices"),
    step=True,
    text_name="text",
    free=True,
    arguments={"height": "content", "placeholder": "Possible answers to the question in A"},
)

PAGE = Page(
    TEXTS,
    ":material/edit_note:",
    group="Look",
    params=(calibrated, choices),
)
