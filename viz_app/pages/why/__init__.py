"""The page Attribution: which words a prediction depends on, and which heads and MLPs contribute to it."""

import json

from bert_core.loading import ASSETS
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, number, select, toggle
from viz_app.texts import page_texts

TEXTS = page_texts("why")
# What the bundled model does here was looked up by masking each word in turn; a test does it again.
EXAMPLE = Example("He drank a cup of tea with milk.", masked=(5,), target="6:tea", remark=TEXTS["remark"])

# Methods, best first, by how often the subject of a masked verb has the largest score with headlight-mini.
RANKED_METHODS: tuple[str, ...] = tuple(
    json.loads((ASSETS / "headlight-mini" / "method_ranks.json").read_text(encoding="utf-8"))
)
NUMBERED_METHODS = {name: f"{rank}. {name}" for rank, name in enumerate(RANKED_METHODS, 1)}

attributed = select("attributed", **TEXTS.control("attributed"), label_visibility="collapsed")
method = select(
    "method",
    NUMBERED_METHODS,
    default="DecompX",
    widget="selectbox",
    width=240,
    **TEXTS.control("method"),
)
measure = select("measure", **TEXTS.control("measure"), label_visibility="collapsed")
score_side = select("score_side", **TEXTS.control("score_side"))
# Of all pages: has its place in the address from `viz_app.shell.selection`.
words = toggle("words", **TEXTS.control("words"))
# Without a place in the address: what they choose from is a file.
totals_answer: Param[str] = Param(
    "totals_answer", "", widget="selectbox", **TEXTS.control("totals_answer"), arguments={"width": 260}
)
totals_method: Param[str] = Param(
    "totals_method", "", widget="selectbox", **TEXTS.control("totals_method"), arguments={"width": 260}
)
totals_least = number("totals_least", **TEXTS.control("totals_least"), default=3, minimum=1, maximum=100, width=140)

PAGE = Page(
    TEXTS,
    ":material/psychology_alt:",
    group="Explain",
    params=(attributed, method, measure, score_side),
    example=EXAMPLE,
)
