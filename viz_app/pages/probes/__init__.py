"""The page Probing: what a linear probe predicts from the hidden states, and what the model predicts without it.

A direction between two values of the label can be added to the hidden states of the text, too.
"""

from dataclasses import replace

from bert_core.studies.settings import ProbeSettings
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, number, parse_index, parse_option, select
from viz_app.texts import page_texts

TEXTS = page_texts("probes")
LABEL_NAMES = TEXTS.options("labels")
# Found by a search through short sentences of bert-agreement; a test asks the model again.
EXAMPLE = Example(
    "The pilots were tired.",
    masked=(2,),
    target="3:were",
    contrast="was",
    remark="**Choose the label *grammatical number* and erase it:** at the embeddings the model then predicts “was” "
    "instead of “were”. With as many random directions erased it still predicts “were”, and with the label erased "
    "after L1 as well.",
)

label: Param[str] = Param(
    "label",
    "",  # the first label of the file
    widget="selectbox",
    **TEXTS.control("label"),
    arguments={"width": 290, "format_func": lambda name: LABEL_NAMES.get(name, name)},
)
seeds = number("seeds", **TEXTS.control("seeds"), settings=ProbeSettings, maximum=10, width=130)
ERASE_OF_0_3 = {"0": "probe", "1": "erase"}  # values of the toggle "erase" in addresses of version 0.3
_VIEWS = TEXTS.control("probes_view")["options"]
probes_view = replace(
    select("probes_view", **TEXTS.control("probes_view"), old_name="erase"),
    parse=lambda value: parse_option(ERASE_OF_0_3.get(value, value), tuple(_VIEWS)),
)
erased_at: Param[int] = Param(
    "erased_at", 0, parse_index, widget="selectbox", **TEXTS.control("erased_at"), arguments={"width": 240}
)
FACTORS = (-4.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 4.0)


def parse_factor(value: str) -> float:
    """Return a factor of the steering vector. Raises Refused for one that is not among `FACTORS`."""
    names = {f"{factor:g}": factor for factor in FACTORS}
    return names[parse_option(value, names)]


steer_depth: Param[int] = Param(
    "steer_depth", 4, parse_index, widget="selectbox", **TEXTS.control("steer_depth"), arguments={"width": 170}
)
steer_factor: Param[float] = Param(
    "steer_factor",
    1.0,
    parse_factor,
    lambda factor: f"{factor:g}",
    widget="select_slider",
    **TEXTS.control("steer_factor"),
    arguments={"options": FACTORS, "format_func": lambda factor: f"{factor:g}"},
)
steer_direction = select("steer_direction", **TEXTS.control("steer_direction"))
steer_from: Param[str] = Param("steer_from", "", widget="selectbox", **TEXTS.control("steer_from"))
steer_to: Param[str] = Param("steer_to", "", widget="selectbox", **TEXTS.control("steer_to"))

PAGE = Page(
    TEXTS,
    ":material/colorize:",
    group="Explain",
    params=(label, seeds, probes_view, erased_at, steer_depth, steer_factor, steer_direction, steer_from, steer_to),
    example=EXAMPLE,
)
