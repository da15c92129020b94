"""The page Probing: what a linear probe predicts from the hidden states, and what the model predicts without it."""

from bert_core.studies.settings import ProbeSettings
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, number, parse_index, toggle
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
erase = toggle("erase", **TEXTS.control("erase"))
erased_at: Param[int] = Param(
    "erased_at", 0, parse_index, widget="selectbox", **TEXTS.control("erased_at"), arguments={"width": 240}
)

PAGE = Page(
    TEXTS,
    ":material/colorize:",
    group="Explain",
    params=(label, seeds, erase, erased_at),
    example=EXAMPLE,
)
