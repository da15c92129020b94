"""The page Predict: the prediction of every trained task head for the text."""

from viz_app.shell.params import Page, Param, toggle
from viz_app.texts import page_texts

calibrated = toggle("calibrated", "Calibrated confidence", default=True)
choices: Param[str] = Param(
    "choices",
    "",
    widget="text_area",
    label="Choices, one per line",
    step=True,
    text_name="text",
    free=True,
    arguments={"height": "content", "placeholder": "Possible answers to the question in A"},
)

TEXTS = page_texts("predict")
PAGE = Page(
    TEXTS,
    ":material/edit_note:",
    group="Look",
    params=(calibrated, choices),
)
