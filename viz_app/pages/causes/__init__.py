"""The page Causes: what carries an answer from one text to another."""

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_int, select, toggle

CARRIED = ("state", "attention", "feed_forward", "head", "pattern", "query", "key", "value")
ORIGINS = ("text", "noise", "mean")
WAYS = ("into", "out")
# Found by a search through short sentences in which one word decides another; a test asks the model again.
EXAMPLE = Example(
    "The man lost his hat.",
    masked=(3,),
    target="4:her",
    contrast="his",
    remark="**Look at the row of “man”:** at whatever depth the state of “woman” is put there, the answer follows, up "
    "to the last layer, which brings it to the gap. Carry over *heads*, and one of 72 does most of that: L5 H8.",
)
SOURCE = "The woman lost his hat."  # a text to read beside the example


def parse_place(value: str) -> tuple[int, ...]:
    """Where in the picture, as row and column: 2.5. Raises Refused for anything else."""
    numbers = tuple(parse_int(part) for part in value.split("."))
    if len(numbers) != 2 or min(numbers) < 0:
        raise Refused("two numbers from 0, such as 2.5")
    return numbers


def parse_noise(value: str) -> float:
    """The size of noise. Raises Refused for anything but 0.1 to 10."""
    try:
        size = float(value)
    except ValueError:
        size = 0.0
    if not 0.1 <= size <= 10:
        raise Refused("0.1 to 10")
    return size


def write_place(place: tuple[int, ...]) -> str:
    """What `parse_place` reads."""
    return ".".join(map(str, place))


PAGE = Page(
    "causes",
    "Causes",
    ":material/conversion_path:",
    group="Explain",
    question="Which part of the model carries the difference between two texts?",
    subtitle=None,
    params=(
        Param("source", "", step=True),
        select("origin", ORIGINS),
        Param("noise", 3.0, parse_noise, "{:g}".format),  # in standard deviations of the word embeddings
        select("carried", CARRIED),
        select("way", WAYS),
        toggle("estimated"),  # whether the estimate stands beside what was found
        Param("around", None, parse_int),  # the token of a long text around which it is drawn
        Param("place", None, parse_place, write_place, step=True),  # layer or depth, and token or head
    ),
    example=EXAMPLE,
)
