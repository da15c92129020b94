"""The page MLP neurons: the neurons active in a text, what they promote, and which a prediction depends on."""

from __future__ import annotations

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_pair, select, write_pair
from viz_app.texts import page_texts

TEXTS = page_texts("neurons")
# Found by a search through short sentences with a masked pronoun; a test asks the model again.
NEURON = (3, 146)  # selected at first in the example
EXAMPLE = Example("She gave the book to her brother.", masked=(5,), target="6:her", remark=TEXTS["remark"])


def parse_factor(value: str) -> float:
    """Return the factor by which a neuron is scaled. Raises Refused for anything but -100 to 100."""
    try:
        factor = float(value)
    except ValueError:
        factor = float("nan")
    if not -100 <= factor <= 100:
        raise Refused("-100 to 100")
    return factor


ranked = select("ranked", **TEXTS.control("ranked"))
neuron_cell: Param[tuple[int, int] | None] = Param(  # layer and token
    "neuron_cell", None, parse_pair, write_pair, step=True, old_name="fired"
)
neuron: Param[tuple[int, int] | None] = Param("neuron", None, parse_pair, write_pair, step=True)  # layer and neuron
times: Param[float] = Param(
    "times",
    0.0,
    parse_factor,
    "{:g}".format,
    "number_input",
    **TEXTS.control("times"),
    arguments={"min_value": -100.0, "max_value": 100.0, "step": 0.5, "format": "%g", "width": 130},
)

PAGE = Page(
    TEXTS,
    ":material/bubble_chart:",
    group="Explain",
    params=(ranked, neuron_cell, neuron, times),
    example=EXAMPLE,
)
