"""The page Attribution: which words a prediction depends on, and which heads and MLPs contribute to it."""

import json

from bert_core.loading import ASSETS
from bert_core.refused import Refused
from bert_core.run.decomposition import GRAPH_METHODS
from viz_app.shell.examples import Example
from viz_app.shell.params import Page, Param, number, parse_index, parse_option, select, toggle
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
GRAPH_THRESHOLDS = ("0.5", "1", "1.5", "2", "3", "4", "5", "6", "8", "10", "12", "15", "20", "25", "30", "40", "50")


def parse_edge(value: str) -> tuple[int, int, int]:
    """Return layer, query and key of an edge. Raises Refused for anything else."""
    parts = tuple(map(parse_index, value.split(".")))
    if len(parts) != 3:
        raise Refused("write an edge as layer.query.key, such as 3.4.2")
    return parts[0], parts[1], parts[2]


graph_method = select("graph_method", GRAPH_METHODS, widget="selectbox", width=220, **TEXTS.control("graph_method"))
graph_window = select("graph_window", ("16", "32", "64", "128"), default="32", **TEXTS.control("graph_window"))
graph_threshold: Param[str | None] = Param(
    "graph_threshold", None, lambda value: parse_option(value, GRAPH_THRESHOLDS), str
)
graph_edge: Param[tuple[int, int, int] | None] = Param(
    "graph_edge", None, parse_edge, lambda edge: ".".join(map(str, edge)), text_name="text", step=True
)
# Without a place in the address: shows the threshold, which is automatic until it is moved.
graph_step = select("graph_step", GRAPH_THRESHOLDS, default="5", widget="select_slider", **TEXTS.control("graph_step"))
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
    params=(attributed, method, measure, score_side, graph_method, graph_window, graph_threshold, graph_edge),
    example=EXAMPLE,
)
