"""The page Compare: what is different."""

from viz_app.maps import CHANGES
from viz_app.shell.models import models_on_offer, parse_model
from viz_app.shell.params import Page, Param, select_param

COMPARE_VIEWS = ("heads", "curves", "matrix")
COMPARISONS = ("masked", "text", "model", "heads")
EXAMPLE_TEXT = "She closed the window and sat down."  # a text to compare with

PAGE = Page(
    "compare",
    "Compare",
    ":material/difference:",
    group="Change",
    asks="What is different with another text, another model, or without some heads?",
    choices={
        "differs": select_param(*CHANGES),
        "against": select_param(*COMPARISONS),
        "compare_view": select_param(*COMPARE_VIEWS, first="curves"),
        "other": Param("", step=True),
        "other_model": Param(lambda: models_on_offer()[-1], parse_model),
    },
)
