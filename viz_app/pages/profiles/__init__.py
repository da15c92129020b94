"""The page Profiles: what each head, token or neuron does over a whole corpus, beside what chance would give."""

from __future__ import annotations

from bert_core.refused import Refused
from bert_core.studies.profiles import TENTHS
from viz_app.shell.params import Page, Param, flag_param, parse_int, parse_pair, select_param, write_pair

PROFILES = ("head", "token", "neuron")
COUNTED = ("model", "file", "corpus")  # over which corpus: the one that comes with the model, or another
QUESTIONS = ("offset", "kind", "likeness", "sort", "place", "relation", "upos")
FIRST_HEAD = (3, 8)  # that is shown before one is chosen: where it is active it looks at what depends on the word


def parse_tenth(value: str) -> int:
    """A tenth, from 1, the weakest. Raises Refused for any other number."""
    if not 1 <= (tenth := parse_int(value)) <= TENTHS:
        raise Refused(f"1 to {TENTHS}")
    return tenth


PAGE = Page(
    "profiles",
    "Profiles",
    ":material/fingerprint:",
    group="Study",
    asks="What does a head, a token or a neuron do over a whole corpus?",
    choices={
        "about": select_param(*PROFILES, step=True),
        "counted": select_param(*COUNTED, step=True),
        "piece": Param("", step=True),
        "firing": Param(None, parse_pair, write_pair, step=True),  # layer and neuron
        "asked_of": select_param(*QUESTIONS),
        "whole": flag_param(),
        "tenth": Param(TENTHS, parse_tenth, step=True),
        "hidden": flag_param(),
    },
    text=False,
)
