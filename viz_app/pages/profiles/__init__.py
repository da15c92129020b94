"""The page Profiles: what a head, a token or a neuron does over a corpus, compared with chance."""

from __future__ import annotations

from bert_core.studies.profiles import TENTHS
from viz_app.shell.params import Page, Param, number, parse_index, parse_pair, select, toggle, write_pair
from viz_app.texts import page_texts

ASPECTS = ("offset", "kind", "likeness", "sort", "place", "relation", "upos")  # of the figure

TEXTS = page_texts("profiles")
FIRST_HEAD = (3, 8)  # of headlight-mini, until one is selected: it attends to dependents of the word

profile_of = select("profile_of", **TEXTS.control("profile_of"), step=True, old_name="about")
counted = select("counted", **TEXTS.control("counted"), step=True)
piece: Param[str] = Param("piece", "", widget="selectbox", label="Token", step=True)
firing: Param[tuple[int, int] | None] = Param(  # layer and neuron
    "firing", None, parse_pair, write_pair, "selectbox", "Neuron", step=True
)
aspect = select("aspect", ASPECTS, "Property", old_name="asked_of", widget="selectbox", label_visibility="collapsed")
whole = toggle("whole", **TEXTS.control("whole"))
tenth: Param[int] = Param(  # 1: the weakest
    "tenth",
    TENTHS,
    number("tenth", minimum=1, maximum=TENTHS).parse,
    widget="segmented_control",
    label="Tenth",
    step=True,
    arguments={"options": range(1, TENTHS + 1), "required": True, "label_visibility": "collapsed"},
)
hidden = toggle("hidden", **TEXTS.control("hidden"))
# Of the queries and keys in one plane: the line of the file whose points are marked, from 1; 0 for none.
plane_text: Param[int] = Param("plane_text", 0, parse_index, str, "selectbox", **TEXTS.control("plane_text"), step=True)
plane_colour = select("plane_colour", **TEXTS.control("plane_colour"))

PAGE = Page(
    TEXTS,
    ":material/fingerprint:",
    group="Corpus",
    params=(profile_of, counted, piece, firing, aspect, whole, tenth, hidden, plane_text, plane_colour),
    text=False,
)
