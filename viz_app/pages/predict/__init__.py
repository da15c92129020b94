"""The page Predict: what belongs in the gap, and does B follow A."""

from viz_app.shell.params import Page, Param, toggle

PAGE = Page(
    "predict",
    "Predict",
    ":material/edit_note:",
    group="See",
    question="What belongs in the gap, and does B follow A?",
    subtitle=None,
    params=(
        toggle("calibrated", default=True),
        Param("choices", "", step=True, text_name="text", free=True),
    ),
)
