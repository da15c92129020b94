"""The page Predict: the prediction of every trained task head for the text."""

from viz_app.shell.params import Page, Param, toggle

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

PAGE = Page(
    "predict",
    "Predict",
    ":material/edit_note:",
    group="See",
    question="What belongs in the gap, and does B follow A?",
    subtitle=None,  # the heading depends on the task heads of the model
    params=(calibrated, choices),
)
