"""The page Forward pass: one figure of the whole pass, and each of its stages with its formula and numbers."""

from viz_app.pages.inside.designs import ALL_STAGES
from viz_app.pages.inside.stages import TEXTS
from viz_app.shell.params import Page, Param, parse_int, select, toggle

PADS = 3

stage = select(
    "stage",
    {name: part.title for name, part in ALL_STAGES.items()},
    "Stage",
    step=True,
    widget="selectbox",
)
token: Param[int | None] = Param("token", None, parse_int)  # None: the first that is masked
engine = select("engine", **TEXTS.control("engine"))
pads = toggle("pads", **TEXTS.control("pads"))
# Without a place in the address: the parameters `head` of all pages and `token` contain them.
selected_layer: Param[int] = Param("inside_layer", 0, widget="selectbox", **TEXTS.control("inside_layer"))
selected_head: Param[int] = Param("inside_head", 0, widget="selectbox", **TEXTS.control("inside_head"))
selected_token: Param[int] = Param("inside_token", 0, widget="selectbox", **TEXTS.control("inside_token"))

PAGE = Page(
    TEXTS,
    ":material/conveyor_belt:",
    group="Look",
    params=(stage, token, engine, pads),
)
