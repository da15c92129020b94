"""The page Prune: which heads, neurons or layers can be removed, and in which order."""

from dataclasses import replace

from bert_core.pruning import PRUNABLE_PARTS
from bert_core.run.plans import ORDERS_BY_PART
from viz_app.shell.params import Page, Param, number, select, toggle
from viz_app.texts import page_texts

# By kind of part, without the random orders, which are the band around the selected one.
ORDERS = {kind: tuple(name for name in orders if name != "random") for kind, orders in ORDERS_BY_PART.items()}
FIGURES = {
    "loss": "Loss",
    "mlm": "Hidden pieces",
    "nsp": "Pairs",
    "parameters": "Parameters",
    "tokens_per_second": "Speed",
}

parts = select("parts", PRUNABLE_PARTS, "What goes", format_func=str.capitalize)
order = select("order", ORDERS["heads"], "Order", widget="selectbox", width=255)
pruned_percent = replace(
    number("pruned_percent", default=30, minimum=0, maximum=100, format="%d%%", width=170),
    widget="slider",
    old_name="going",
)
figure = select("figure", FIGURES, "Figure", label_visibility="collapsed")
# Without a place in the address.
sensitivity: Param[float] = Param(
    "lab_below",
    0.01,
    widget="number_input",
    label="Sensitivity below",
    arguments={"min_value": 0.0, "step": 0.01, "format": "%.3g", "width": 170},
)
full_shape = toggle("full_shape", "Full shape, with zeros")
folder: Param[str] = Param(
    "lab_place",
    "",
    widget="text_input",
    label="Or write it to a folder",
    arguments={"placeholder": "models/pruned", "width": 260},
)

TEXTS = page_texts("prune")
PAGE = Page(
    TEXTS,
    ":material/content_cut:",
    group="Train",
    params=(parts, order, pruned_percent, figure),
    switches=True,
)
