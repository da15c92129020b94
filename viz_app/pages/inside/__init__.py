"""The page Step by step: the stages of a forward pass, each as a formula and with its numbers."""

from viz_app.pages.inside.stages import STAGES
from viz_app.shell.params import Page, Param, parse_int, select, toggle
from viz_app.texts import page_texts

PADS = 3
ENGINE_NAMES = {"torch": "PyTorch", "numpy": "NumPy"}

stage = select("stage", STAGES, step=True)
token: Param[int | None] = Param("token", None, parse_int)  # None: the first that is masked
engine = select(
    "engine",
    ENGINE_NAMES,
    "Engine",
    "The model written twice. How far the two differ stands at the last stage.",
)
pads = toggle("pads", f"Add {PADS} [PAD] tokens to the text")
# Without a place in the address: the parameters `head` of all pages and `token` contain them.
selected_layer: Param[int] = Param("inside_layer", 0, widget="selectbox", label="Layer", arguments={"width": 100})
selected_head: Param[int] = Param("inside_head", 0, widget="selectbox", label="Head", arguments={"width": 100})
selected_token: Param[int] = Param(
    "inside_token",
    0,
    widget="selectbox",
    label="Token",
    help="The token that looks (query), and where the model predicts",
    arguments={"width": 170},
)

TEXTS = page_texts("inside")
PAGE = Page(
    TEXTS,
    ":material/conveyor_belt:",
    group="Look",
    params=(stage, token, engine, pads),
)
