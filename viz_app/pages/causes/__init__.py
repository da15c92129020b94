"""The page Causes: which activations of one text, patched into another, change its answer."""

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_int, parse_pair, select, toggle, write_pair
from viz_app.texts import page_texts

PARTS = {
    "state": "The state of a token",
    "attention": "What attention adds",
    "feed_forward": "What the feed-forward network adds",
    "head": "What a head brings",
    "pattern": "Where a head looks",
    "query": "A head's queries",
    "key": "A head's keys",
    "value": "A head's values",
}
# Found by a search through short sentences in which one word decides another; a test asks the model again.
EXAMPLE = Example(
    "The man lost his hat.",
    masked=(3,),
    target="4:her",
    contrast="his",
    remark="**Look at the row of “man”:** at whatever depth the state of “woman” is put there, the answer follows, up "
    "to the last layer, which brings it to the gap. Carry over *heads*, and one of 72 does most of that: L5 H8.",
)
SOURCE = "The woman lost his hat."  # the source of the example


def parse_noise(value: str) -> float:
    """Return the size of noise. Raises Refused for anything but 0.1 to 10."""
    try:
        size = float(value)
    except ValueError:
        size = 0.0
    if not 0.1 <= size <= 10:
        raise Refused("0.1 to 10")
    return size


origin = select(
    "origin",
    {"text": "Another text", "noise": "This text with noise", "mean": "The mean of other texts"},
    "Source",
    widget="selectbox",
    width=240,
)
source: Param[str] = Param(
    "source",
    "",
    widget="text_input",
    label="Other text",
    step=True,
    arguments={"placeholder": "Type a text that differs in a word or two", "width": 400},
)
noise: Param[float] = Param(
    "noise",
    3.0,
    parse_noise,
    "{:g}".format,
    "number_input",
    "Size of the noise",
    "In standard deviations of the model's word embeddings. 3 is usual (Meng 2022).",
    arguments={"min_value": 0.1, "max_value": 10.0, "step": 0.5, "format": "%g", "width": 170},
)
patched = select("patched", PARTS, "Carry over", widget="selectbox", width=290, old_name="carried")
direction = select(
    "direction",
    {"into": "Source into text", "out": "Text into source"},
    "Way",
    "Put what was right into what was wrong, and you see what is enough for the answer; the other way round, what it "
    "needs. The two often differ.",
    old_name="way",
)
estimated = toggle(
    "estimated",
    "Estimate beside it",
    "All patches at once from one pass there and back, right for small changes only (attribution patching): does the "
    "cheap estimate tell the truth here?",
)
centre: Param[int | None] = Param(  # position in a long text
    "around", None, parse_int, widget="selectbox", label="Tokens around", arguments={"width": 170}
)
place: Param[tuple[int, int] | None] = Param("place", None, parse_pair, write_pair, step=True)  # row, column of the map

TEXTS = page_texts("causes")
PAGE = Page(
    TEXTS,
    ":material/conversion_path:",
    group="Intervene",
    params=(source, origin, noise, patched, direction, estimated, centre, place),
    example=EXAMPLE,
)
