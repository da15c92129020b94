"""The page Profiles: what each head, token or neuron does over a whole corpus, beside what chance would give."""

from __future__ import annotations

from bert_core.refused import Refused
from bert_core.studies.profiles import TENTHS
from viz_app.shell.params import Page, Param, parse_int, parse_pair, select, toggle, write_pair

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
    question="What does a head, a token or a neuron do over a whole corpus?",
    subtitle=None,
    params=(
        select("about", PROFILES, step=True),
        select("counted", COUNTED, step=True),
        Param("piece", "", step=True),
        Param("firing", None, parse_pair, write_pair, step=True),  # layer and neuron
        select("asked_of", QUESTIONS),
        toggle("whole"),
        Param("tenth", TENTHS, parse_tenth, step=True),
        toggle("hidden"),
    ),
    text=False,
)
