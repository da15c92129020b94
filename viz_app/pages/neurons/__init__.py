"""The page Neurons: which feed-forward neurons fire in a text, what they say, and what rests on them."""

from __future__ import annotations

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_pair, select, write_pair

RANKED = ("added", "fires")
# Found by a search through short sentences with a pronoun in the gap; a test asks the model again.
NEURON = (3, 146)  # to look at first in the example
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
    """What a neuron is multiplied by. Raises Refused for anything but -100 to 100."""
    try:
        factor = float(value)
    except ValueError:
        factor = float("nan")
    if not -100 <= factor <= 100:
        raise Refused("-100 to 100")
    return factor


PAGE = Page(
    "neurons",
    "Neurons",
    ":material/bubble_chart:",
    group="Explain",
    question="Which feed-forward neurons fire, and what do they say?",
    subtitle=None,
    params=(
        select("ranked", RANKED),
        Param("fired", None, parse_pair, write_pair, step=True),  # layer and token
        Param("neuron", None, parse_pair, write_pair, step=True),  # layer and neuron
        Param("times", 0.0, parse_factor, "{:g}".format),
    ),
    example=EXAMPLE,
)
