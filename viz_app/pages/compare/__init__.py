"""The page Compare: what is different."""

from viz_app.maps import CHANGES
from viz_app.shell.model_names import models_on_offer, parse_model
from viz_app.shell.params import Page, Param, select

COMPARE_VIEWS = ("heads", "curves", "matrix")
COMPARISONS = ("masked", "text", "model", "heads")
EXAMPLE_TEXT = "She closed the window and sat down."  # a text to compare with

PAGE = Page(
    "compare",
    "Compare",
    ":material/difference:",
    group="Change",
    question="What is different with another text, another model, or without some heads?",
    subtitle=None,
    params=(
        select("differs", CHANGES),
        select("against", COMPARISONS),
        select("compare_view", COMPARE_VIEWS, default="curves"),
        Param("other", "", step=True),
        Param("other_model", lambda: models_on_offer()[-1], parse_model),
    ),
)
