"""The page Probes: what can be read off the states, and what the model says without it."""

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_int, toggle

MOST_SEEDS = 10
# Found by a search through short sentences of bert-agreement; a test asks the model again.
EXAMPLE = Example(
    "The pilots were tired.",
    masked=(2,),
    target="3:were",
    contrast="was",
    remark="**Choose the label *number*, and erase it:** at the embeddings the model then says “was” for “were”. With "
    "as many random directions erased it stays with “were”, and with the same label erased after L1 too.",
)


def parse_seeds(value: str) -> int:
    """How many seeds. Raises Refused for anything but 1 to 10."""
    if not 1 <= (seeds := parse_int(value)) <= MOST_SEEDS:
        raise Refused(f"1 to {MOST_SEEDS}")
    return seeds


def parse_depth(value: str) -> int:
    """A depth. Raises Refused for a number below 0."""
    if (depth := parse_int(value)) < 0:
        raise Refused("depths count from 0, the embeddings")
    return depth


PAGE = Page(
    "probes",
    "Probes",
    ":material/colorize:",
    group="Study",
    question="What can be read off the states, and does the model use it?",
    params=(
        Param("label", ""),
        Param("seeds", 3, parse_seeds),
        toggle("erase"),
        Param("erased_at", 0, parse_depth),
    ),
    example=EXAMPLE,
)
