"""The page Compare: what is different."""

from viz_app.maps import CHANGES
from viz_app.shell.choices import Choice, Page, choice_of
from viz_app.shell.models import models_on_offer, parse_model

COMPARE_VIEWS = ("heads", "curves", "matrix")
AGAINST = ("masked", "text", "model", "heads")
OTHER = "She closed the window and sat down."  # a text to compare one's own with

PAGE = Page(
    "compare",
    "Compare",
    ":material/difference:",
    group="Change",
    asks="What is different with another text, another model, or without some heads?",
    choices={
        "differs": choice_of(*CHANGES),
        "against": choice_of(*AGAINST),
        "compare_view": choice_of(*COMPARE_VIEWS, first="curves"),
        "other": Choice("", step=True),
        "other_model": Choice(lambda: models_on_offer()[-1], parse_model),
    },
)
