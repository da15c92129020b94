"""The page Neurons: the neurons active in a text, what they promote, and what the answer rests on."""

from __future__ import annotations

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_pair, select, write_pair
from viz_app.texts import page_texts

# Found by a search through short sentences with a pronoun in the gap; a test asks the model again.
NEURON = (3, 146)  # selected at first in the example
EXAMPLE = Example(
    "She gave the book to her brother.",
    masked=(5,),
    target="6:her",
    remark="**Look at L3 neuron 146:** it fires at “she” and hardly anywhere else, makes “herself” and names of women "
    "likelier there, and is one of the five of 9,216 neurons that speak most for “her” in the gap. **And at L0 neuron "
    "856:** it adds more to [CLS] than any other neuron of its layer, in this text and in every other, so it says "
    "nothing of this one.",
)


def parse_factor(value: str) -> float:
    """Return the factor by which a neuron is scaled. Raises Refused for anything but -100 to 100."""
    try:
        factor = float(value)
    except ValueError:
        factor = float("nan")
    if not -100 <= factor <= 100:
        raise Refused("-100 to 100")
    return factor


ranked = select(
    "ranked",
    {"added": "What it adds", "fires": "How strongly it fires"},
    "Rank by",
    "How far a neuron moves the state of its token: how strongly it fires, times the length of its vector. Or how "
    "strongly it fires alone.",
)
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
    "Times",
    "What the neuron is multiplied by at every token: 0 switches it off, 2 doubles it.",
    arguments={"min_value": -100.0, "max_value": 100.0, "step": 0.5, "format": "%g", "width": 130},
)

TEXTS = page_texts("neurons")
PAGE = Page(
    TEXTS,
    ":material/bubble_chart:",
    group="Explain",
    params=(ranked, neuron_cell, neuron, times),
    example=EXAMPLE,
)
