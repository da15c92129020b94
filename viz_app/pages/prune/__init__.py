"""The page Prune: which heads, neurons or layers can go."""

from bert_core.pruning import PRUNABLE_PARTS
from bert_core.refused import Refused
from bert_core.run import plans
from viz_app.shell.params import Page, Param, parse_int, select

# Random is the band that the others stand beside.
OFFERED = {what: tuple(name for name in orders if name != "random") for what, orders in plans.ORDERS_BY_PART.items()}
OFFERED_ORDERS = OFFERED["heads"]  # which has all of them
FIGURES = ("loss", "mlm", "nsp", "parameters", "tokens_per_second")


def parse_percent(value: str) -> int:
    """A whole number of percent. Raises Refused for anything else."""
    percent = parse_int(value)
    if not 0 <= percent <= 100:
        raise Refused("0 to 100")
    return percent


PAGE = Page(
    "prune",
    "Prune",
    ":material/content_cut:",
    group="Change",
    question="How many heads can go before it gets worse?",
    subtitle=None,
    params=(
        select("parts", PRUNABLE_PARTS),
        select("order", OFFERED_ORDERS),
        Param("going", 30, parse_percent),
        select("figure", FIGURES),
    ),
    switches=True,
)
