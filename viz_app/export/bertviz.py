"""BertViz's head, model and neuron views of captured attention, as one HTML page.

BertViz copies its input into a script without escaping it. It therefore gets numbered placeholders for the tokens,
which are replaced afterwards by the tokens with every character escaped that could end a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from bert_core.records import HeadVectors
from bert_core.refused import Refused
from viz_app.export.markup import render
from viz_app.maps import ShownMaps, check_all_layers

View = Literal["head", "model", "neuron"]
VIEWS: tuple[View, ...] = get_args(View)
DIGITS = 4  # decimals of a value; BertViz itself writes up to twenty
BYTES_A_NUMBER = 8  # with the separators
# Limits of what a browser can open. BertViz draws one line for each attention weight of the model view, of one layer in
# the head view, and of one head in the neuron view.
MAX_BYTES = 40_000_000
MAX_LINES = 600_000
CDN = "https://cdnjs.cloudflare.com"
NOTE = (
    "BertViz draws these pages, not Headlight: every value is a line, its numbers are rounded to four digits, and it "
    f"loads three scripts from {CDN.removeprefix('https://')} when it is opened."
)

RELATIVE_POSITIONS = (
    "this model adds relative positions to the scores, which BertViz's neuron view does not show: use the neuron view "
    "of Headlight"
)
LOCAL_LAYERS = (
    "this text is longer than the window of the local layers, which BertViz's neuron view does not show: use the "
    "neuron view of Headlight"
)
_PLACEHOLDER = "headlight_token_"


def estimate(tokens: int, heads: int, layers: int, kind: View, head_size: int = 0) -> tuple[int, int]:
    """Estimate the size of a page of BertViz in bytes, and the number of lines that it draws at once.

    head_size: length of the query and key vectors, which only the neuron view contains.
    """
    weights = heads * tokens**2
    numbers = weights + (2 * heads * tokens * head_size if kind == "neuron" else 0)
    lines = {"model": weights * layers, "head": weights, "neuron": tokens**2}[kind]
    return BYTES_A_NUMBER * numbers * layers, lines


def check_neuron_view_size(size: int) -> None:
    """Raise Refused if a browser cannot open a neuron view of this many bytes."""
    if size > MAX_BYTES:
        raise Refused(
            f"BertViz's neuron view would be about {size / 1e6:,.0f} MB, and a browser can open "
            f"{MAX_BYTES / 1e6:.0f} MB: choose a shorter text, or the neuron view of Headlight"
        )


def layers_that_fit(tokens: int, heads: int, layers: int, kind: View, first: int = 0) -> list[int]:
    """Return as many layers, from `first` on and then from the start, as a browser can open in this view."""
    order = [*range(first, layers), *range(first)]
    fit = [count for count in range(layers + 1) if _fits(*estimate(tokens, heads, count, kind))]
    return sorted(order[: max(fit, default=0)])


def bertviz_page(
    maps: ShownMaps,
    kind: View = "model",
    layers: Sequence[int] | None = None,
    vectors: Sequence[HeadVectors] = (),
) -> str:
    """Return the HTML page of BertViz's head, model or neuron view; no text in it can run as a script.

    layers: the layers of the head or model view; None for all. The neuron view always has all layers.
    vectors: for the neuron view, the query and key vectors of the heads on the same text (`all_head_vectors`).
    Values that are not numbers and heads that do not exist are drawn as zero, because BertViz has no sign for them.
    Raises Refused for values other than attention, for maps of some layers, for queries that differ from the keys, for
    layers that do not exist, for vectors that are missing or include relative positions, and for pages that a browser
    cannot open, with what would fit. Raises ModuleNotFoundError if BertViz is not installed.
    """
    if kind not in VIEWS:
        raise Refused(f"the view {kind!r} is unknown: BertViz has the views {', '.join(VIEWS)}")
    if maps.quantity != "attention":
        raise Refused(f"BertViz draws attention only: {maps.unit} is no share from 0 to 1")
    if maps.queries != maps.keys:
        raise Refused("BertViz draws whole maps: choose the whole text, not one part of it")
    check_all_layers(maps.layers, "BertViz's page")
    layer_indices = list(range(len(maps.values))) if layers is None else sorted(set(layers))
    if not layer_indices:
        raise Refused("there is no layer to draw: choose at least one")
    for layer in layer_indices:
        maps.check(layer)
    tokens, heads = len(maps.keys), maps.values.shape[1]
    if kind == "neuron":
        _check_vectors(maps, vectors)
        if layers is not None and len(layer_indices) < len(maps.values):
            raise Refused("the neuron view of BertViz has all layers: give no layers")
    size, lines = estimate(tokens, heads, len(layer_indices), kind, vectors[0].queries.shape[1] if vectors else 0)
    if kind == "neuron":
        check_neuron_view_size(size)
    if not _fits(size, lines):
        fit = layers_that_fit(tokens, heads, len(maps.values), kind, layer_indices[0])
        advice = (
            f"choose at most {len(fit)}, as {', '.join(f'L{layer}' for layer in fit)}"
            if fit
            else "choose a shorter text, or the head view"
        )
        raise Refused(
            f"BertViz's {kind} view of {len(layer_indices)} layers would be about {size / 1e6:,.0f} MB with {lines:,} "
            f"lines at once, more than a browser can draw: {advice}"
        )
    try:
        view = _neuron_view(maps, vectors) if kind == "neuron" else _attention_view(maps, kind, layer_indices)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "bertviz":
            raise
        raise ModuleNotFoundError("BertViz is not installed: pip install bertviz") from error
    return render("export/bertviz.html", cdn=CDN, host=CDN.removeprefix("https://"), kind=kind, note=NOTE, view=view)


def escaped(text: str) -> str:
    """Return a text as a JSON string that is safe in an inline script: ASCII, without characters of HTML syntax."""
    return json.dumps(text).translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"})


def _fits(size: int, lines: int) -> bool:
    return size <= MAX_BYTES and lines <= MAX_LINES


def _check_vectors(maps: ShownMaps, vectors: Sequence[HeadVectors]) -> None:
    """Raise Refused unless the vectors are those of all existing heads and determine the attention."""
    heads = {(vector.layer, vector.head) for vector in vectors}
    missing = [f"L{layer} H{head}" for layer, head in np.argwhere(maps.existing_heads) if (layer, head) not in heads]
    if missing:
        raise Refused(
            f"the neuron view needs the query and key vectors of {', '.join(missing[:3])}: give those of all heads"
        )
    if any(len(vector.queries) != len(maps.keys) for vector in vectors):
        raise Refused(f"the vectors are not those of this text of {len(maps.keys)} tokens")
    if any(vector.distances is not None for vector in vectors):
        raise Refused(RELATIVE_POSITIONS)
    if any(vector.window is not None and vector.window < len(maps.keys) - 1 for vector in vectors):
        raise Refused(LOCAL_LAYERS)


class _RecordedModel:
    """The model that BertViz calls: it returns the recorded attention, queries and keys of every layer.

    It is also BertViz's tokenizer, for a text of placeholders.
    """

    cls_token = sep_token = ""  # the placeholders include the special tokens

    def __init__(self, maps: ShownMaps, vectors: Sequence[HeadVectors]) -> None:
        import torch

        size = vectors[0].queries.shape
        parts = {name: np.zeros((*maps.values.shape[:2], *size)) for name in ("queries", "keys")}
        for vector in vectors:
            parts["queries"][vector.layer, vector.head] = _rounded(vector.queries)
            parts["keys"][vector.layer, vector.head] = _rounded(vector.keys)
        parts["attn"] = _rounded(maps.values)
        self._layers = [
            {name: torch.from_numpy(values[layer])[None] for name, values in parts.items()}
            for layer in range(len(maps.values))
        ]

    def eval(self) -> None:
        """Do nothing: the values are recorded."""

    def __call__(self, *inputs: object) -> tuple[list[dict[str, Any]]]:
        return (self._layers,)

    def tokenize(self, text: str) -> list[str]:
        """Split the placeholders, which are separated by spaces."""
        return text.split()

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the positions of the tokens, which the recorded model ignores."""
        return list(range(len(tokens)))


def _neuron_view(maps: ShownMaps, vectors: Sequence[HeadVectors]) -> str:
    from bertviz import neuron_view

    recorded, tokens = _RecordedModel(maps, vectors), _placeholders(maps)
    # Of BertViz's model types, only gpt2 adds no special tokens. It also hides later keys, as in a decoder.
    options = {"display_mode": "light", "layer": vectors[0].layer, "head": vectors[0].head, "html_action": "return"}
    page = neuron_view.show(recorded, "gpt2", recorded, " ".join(tokens), **options)
    data, count = re.subn('"bidirectional": false', f'"bidirectional": {json.dumps(not vectors[0].causal)}', page.data)
    if count != 1:
        raise RuntimeError("this version of BertViz writes its neuron view in another form")
    return _insert_texts(data, maps)


def _placeholders(maps: ShownMaps) -> list[str]:
    return [f"{_PLACEHOLDER}{position}_" for position in range(len(maps.queries))]


def _insert_texts(html: str, maps: ShownMaps) -> str:
    """Replace the placeholders of a page by the escaped tokens."""
    texts = [escaped(token.text) for token in maps.queries]
    return re.sub(rf'"{_PLACEHOLDER}(\d+)_"', lambda match: texts[int(match[1])], html)


def _attention_view(maps: ShownMaps, kind: View, layers: list[int]) -> str:
    import bertviz
    import torch

    # Layers that are left out are zero maps, so that BertViz numbers the layers as Headlight does.
    tensors = [
        torch.from_numpy(_rounded(layer_maps) if layer in layers else np.zeros_like(layer_maps))[None]
        for layer, layer_maps in enumerate(maps.values)
    ]
    draw = bertviz.head_view if kind == "head" else bertviz.model_view
    options = {} if kind == "head" else {"display_mode": "light"}
    # BertViz's filters for two sentences would write every number twice; they are not used.
    page = draw(
        tensors, _placeholders(maps), include_layers=layers, html_action="return", prettify_tokens=False, **options
    )
    # A comment repeats all data.
    return _insert_texts(re.sub(r"; // HACK: .*", ";", page.data), maps)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return the values as float64, in which every rounded number has a short decimal form."""
    rounded: np.ndarray = np.round(np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0), DIGITS)
    return rounded
