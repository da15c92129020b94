"""The page Predict: what belongs in the gap, and does B follow A."""

from viz_app.shell.params import Page, Param, flag_param

PAGE = Page(
    "predict",
    "Predict",
    ":material/edit_note:",
    group="See",
    asks="What belongs in the gap, and does B follow A?",
    choices={"calibrated": flag_param(first=True), "choices": Param("", step=True, about="text", free=True)},
)
