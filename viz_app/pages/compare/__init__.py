"""The page Compare: the change of attention with another text, another model, or without some heads."""

from viz_app.maps import CHANGES, UNITS
from viz_app.shell.heads import VIEWS
from viz_app.shell.model_names import models_on_offer, parse_model, shown_name
from viz_app.shell.params import Page, Param, select
from viz_app.texts import page_texts

compared_with = select(
    "against",
    {"masked": "Hidden words", "text": "Another text", "model": "Another model", "heads": "Heads off"},
    "Compare with",
)
view = select("compare_view", {name: VIEWS[name] for name in ("heads", "curves", "matrix")}, "View", default="curves")
quantity = select("differs", {name: UNITS[name].capitalize() for name in CHANGES}, "Show")
other_text: Param[str] = Param(
    "other",
    "",
    widget="text_input",
    label="Other text",
    step=True,
    arguments={"placeholder": "Type another sentence", "width": 420},
)
other_model: Param[str] = Param(
    "other_model",
    lambda: models_on_offer()[-1],
    parse_model,
    widget="selectbox",
    label="Other model",
    arguments={"format_func": shown_name, "width": 300},
)

TEXTS = page_texts("compare")
PAGE = Page(
    TEXTS,
    ":material/difference:",
    group="Intervene",
    params=(quantity, compared_with, view, other_text, other_model),
)
