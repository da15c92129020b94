"""The page Pruning: which heads, neurons or layers can be removed, and in which order."""

from dataclasses import replace

from bert_core.pruning import PRUNABLE_PARTS
from bert_core.run.plans import ORDERS_BY_PART
from viz_app.shell.params import Page, Param, number, select, toggle
from viz_app.texts import page_texts

TEXTS = page_texts("prune")
# By kind of part, without the random orders, which are the band around the selected one.
ORDERS = {kind: tuple(name for name in orders if name != "random") for kind, orders in ORDERS_BY_PART.items()}

parts = select(
    "parts",
    PRUNABLE_PARTS,
    **TEXTS.control("parts"),
    format_func=str.capitalize,
    label_visibility="collapsed",
)
order = select("order", ORDERS["heads"], **TEXTS.control("order"), widget="selectbox", width=275)
pruned_percent = replace(
    number("pruned_percent", **TEXTS.control("pruned_percent"), default=30, minimum=0, maximum=100, width=215),
    old_name="going",
)
figure = select("figure", **TEXTS.control("figure"))
# Without a place in the address.
sensitivity: Param[float] = Param(
    "lab_below",
    0.01,
    widget="number_input",
    **TEXTS.control("sensitivity"),
    arguments={"min_value": 0.0, "step": 0.01, "format": "%.3g", "width": 170},
)
full_shape = toggle("full_shape", **TEXTS.control("full_shape"))
folder: Param[str] = Param(
    "lab_place",
    "",
    widget="text_input",
    **TEXTS.control("folder"),
    arguments={"placeholder": "models/pruned", "width": 260},
)

PAGE = Page(
    TEXTS,
    ":material/content_cut:",
    group="Train",
    params=(parts, order, pruned_percent, figure),
    switches=True,
)
