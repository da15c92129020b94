"""The page Predict: what belongs in the gap, and does B follow A."""

from viz_app.shell.choices import Choice, Page, flag

PAGE = Page(
    "predict",
    "Predict",
    ":material/edit_note:",
    group="See",
    asks="What belongs in the gap, and does B follow A?",
    choices={"calibrated": flag(first=True), "choices": Choice("", step=True, about="text", free=True)},
)
