"""BertViz's own views of the maps that were captured here, for those who know them.

BertViz writes what it is given into a script, as it is. So it is never given a reader's text: it sees numbered
placeholders, and what they stand for is written in afterwards, with every sign escaped that could end a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from bert_core.refused import Refused
from viz_app.maps import ShownMaps

View = Literal["head", "model"]
VIEWS: tuple[View, ...] = get_args(View)
DIGITS = 4  # after the point; BertViz itself writes up to twenty
BYTES_A_NUMBER = 8  # of these digits, with what stands between them
# What a browser still opens: BertViz draws every number of the model view, and of a layer of the head view, as a line.
MOST_BYTES = 40_000_000
MOST_LINES = 600_000
CDN = "https://cdnjs.cloudflare.com"
WHAT_IT_IS = (
    "BertViz draws these pages, not Headlight: every value is a line, its numbers are rounded to four digits, and it "
    f"loads three scripts from {CDN.removeprefix('https://')} when it is opened."
)

_PLACEHOLDER = "headlight_token_"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' {cdn};
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<title>BertViz: {kind} view</title>
</head>
<body style="background: #fff; color: #000; font-family: sans-serif">
<p>{what} Layers and heads count from zero.</p>
<p id="unreachable" role="alert" hidden><b>Nothing is drawn: {host} cannot be reached, and BertViz needs three scripts
from there. Connect to a network and open this page again, or export Headlight's own page, which needs none.</b></p>
<script>
{{
  const say = () => {{ document.getElementById("unreachable").hidden = Boolean(document.querySelector("svg")); }};
  addEventListener("error", (event) => {{ if (event.target instanceof HTMLScriptElement) say(); }}, true);
  setTimeout(say, 20000);
}}
</script>
{view}
</body>
</html>
"""


def estimate(tokens: int, heads: int, layers: int, kind: View) -> tuple[int, int]:
    """About how many bytes BertViz's page of so many layers has, and how many lines it draws at once."""
    numbers = heads * tokens**2
    return BYTES_A_NUMBER * numbers * layers, numbers * (layers if kind == "model" else 1)


def layers_that_fit(tokens: int, heads: int, layers: int, kind: View, first: int = 0) -> list[int]:
    """As many layers, from `first` on and then from the start, as a browser can open in this view; maybe none."""
    order = [*range(first, layers), *range(first)]
    fit = [count for count in range(layers + 1) if _fits(*estimate(tokens, heads, count, kind))]
    return sorted(order[: max(fit, default=0)])


def bertviz_page(shown: ShownMaps, kind: View = "model", layers: Sequence[int] | None = None) -> str:
    """BertViz's head view or model view of some layers, or of all, as a page; no text in it can run.

    A value that is no number, and a head that does not exist, are drawn as zero: BertViz knows neither.
    Raises Refused for values with a sign, which BertViz cannot draw, for queries that are not the keys, for layers
    that do not exist, and for more than a browser can open, with what would fit; ModuleNotFoundError without BertViz.
    """
    if kind not in VIEWS:
        raise Refused(f"a view {kind!r} is unknown: BertViz has 'head' and 'model' here")
    if shown.what != "attention":
        raise Refused(f"BertViz draws attention only: {shown.unit} is no share from 0 to 1")
    if shown.queries != shown.keys:
        raise Refused("BertViz draws whole maps: choose the whole text, not one part of it")
    chosen = list(range(len(shown.values))) if layers is None else sorted(set(layers))
    if not chosen:
        raise Refused("there is no layer to draw: choose at least one")
    for layer in chosen:
        shown.check(layer)
    tokens, heads = len(shown.keys), shown.values.shape[1]
    size, lines = estimate(tokens, heads, len(chosen), kind)
    if not _fits(size, lines):
        fit = layers_that_fit(tokens, heads, len(shown.values), kind, chosen[0])
        way = f"choose at most {len(fit)}, as {_listed(fit)}" if fit else "choose a shorter text, or the head view"
        raise Refused(
            f"BertViz's {kind} view of {len(chosen)} layers would be about {size / 1e6:,.0f} MB with {lines:,} lines "
            f"at once, more than a browser can draw: {way}"
        )
    view = _rendered(shown, kind, chosen)
    return _PAGE.format(cdn=CDN, host=CDN.removeprefix("https://"), kind=kind, what=WHAT_IT_IS, view=view)


def escaped(text: str) -> str:
    """A text as JSON that can stand in any script: ASCII, and no sign that HTML would read."""
    return json.dumps(text).translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"})


def _fits(size: int, lines: int) -> bool:
    return size <= MOST_BYTES and lines <= MOST_LINES


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(f"L{layer}" for layer in layers)


def _rendered(shown: ShownMaps, kind: View, layers: list[int]) -> str:
    try:
        import bertviz
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("BertViz is not installed: pip install 'headlight[bertviz]'") from error
    import torch

    # Layers that are left out are there by their number alone: the page then names each layer as we do.
    maps = [
        torch.from_numpy(_rounded(one) if layer in layers else np.zeros_like(one))[None]
        for layer, one in enumerate(shown.values)
    ]
    tokens = [f"{_PLACEHOLDER}{place}_" for place in range(len(shown.queries))]
    draw = bertviz.head_view if kind == "head" else bertviz.model_view
    options = {} if kind == "head" else {"display_mode": "light"}
    # Its filters for two sentences would write every number twice.
    page = draw(maps, tokens, include_layers=layers, html_action="return", prettify_tokens=False, **options)
    texts = [escaped(token.text) for token in shown.queries]
    # The whole of its data stands a second time in a comment.
    html = re.sub(r"; // HACK: .*", ";", page.data)
    return re.sub(rf'"{_PLACEHOLDER}(\d+)_"', lambda found: texts[int(found[1])], html)


def _rounded(maps: np.ndarray) -> np.ndarray:
    """In float64, which has a short text for every rounded number."""
    rounded: np.ndarray = np.round(np.nan_to_num(maps.astype(np.float64), posinf=0, neginf=0), DIGITS)
    return rounded
