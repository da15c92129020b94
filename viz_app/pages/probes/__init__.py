"""The page Probes: what a linear probe predicts from the hidden states, and what the model predicts without it."""

from bert_core.studies.settings import ProbeSettings
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, number, parse_index, toggle
from viz_app.texts import page_texts

LABEL_NAMES = {
    "upos": "part of speech",
    "relation": "relation to its head",
    "subject": "number of the subject",
    "number": "number",
}
# Found by a search through short sentences of bert-agreement; a test asks the model again.
EXAMPLE = Example(
    "The pilots were tired.",
    masked=(2,),
    target="3:were",
    contrast="was",
    remark="**Choose the label *number*, and erase it:** at the embeddings the model then says “was” for “were”. With "
    "as many random directions erased it stays with “were”, and with the same label erased after L1 too.",
)

label: Param[str] = Param(
    "label",
    "",
    widget="selectbox",
    label="Label",
    arguments={"width": 240, "format_func": lambda name: LABEL_NAMES.get(name, name)},
)
seeds = number(
    "seeds",
    "Seeds",
    "Each splits the sentences anew into those that the probe learns from and those that it is asked about, and draws "
    "other random labels.",
    settings=ProbeSettings,
    maximum=10,
    width=130,
)
erase = toggle(
    "erase",
    "Then erase it",
    "Takes the label out of the states with the smallest change after which its words have the same mean whatever "
    "their label (LEACE, Belrose 2023), tries a new probe, and asks the model for hidden words.",
)
erased_at: Param[int] = Param(
    "erased_at", 0, parse_index, widget="selectbox", label="Erased at", arguments={"width": 240}
)

TEXTS = page_texts("probes")
PAGE = Page(
    TEXTS,
    ":material/colorize:",
    group="Explain",
    params=(label, seeds, erase, erased_at),
    example=EXAMPLE,
)
