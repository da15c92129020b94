"""The page Activation patching: which activations of one text, patched into another, change its prediction."""

from bert_core.refused import Refused
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, parse_int, parse_pair, select, toggle, write_pair
from viz_app.texts import page_texts

TEXTS = page_texts("causes")
PARTS = TEXTS.control("patched")["options"]
# Found by a search through short sentences in which one word decides another; a test asks the model again.
EXAMPLE = Example("The man lost his hat.", masked=(3,), target="4:her", contrast="his", remark=TEXTS["remark"])
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


origin = select("origin", **TEXTS.control("origin"), widget="selectbox", width=300)
source: Param[str] = Param(
    "source",
    "",
    widget="text_input",
    **TEXTS.control("source"),
    step=True,
    arguments={"placeholder": TEXTS["hint"], "width": 470},
)
noise: Param[float] = Param(
    "noise",
    3.0,
    parse_noise,
    "{:g}".format,
    "number_input",
    **TEXTS.control("noise"),
    arguments={"min_value": 0.1, "max_value": 10.0, "step": 0.5, "format": "%g", "width": 190},
)
patched = select("patched", **TEXTS.control("patched"), widget="selectbox", width=270, old_name="carried")
direction = select("direction", **TEXTS.control("direction"), old_name="way")
estimated = toggle("estimated", **TEXTS.control("estimated"))
centre: Param[int | None] = Param(  # position in a long text
    "around", None, parse_int, widget="selectbox", **TEXTS.control("around"), arguments={"width": 300}
)
place: Param[tuple[int, int] | None] = Param("place", None, parse_pair, write_pair, step=True)  # row, column of the map

PAGE = Page(
    TEXTS,
    ":material/conversion_path:",
    group="Intervene",
    params=(source, origin, noise, patched, direction, estimated, centre, place),
    example=EXAMPLE,
)
