"""The views of the app as one HTML file that opens from disk and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from bert_core.analysis.patterns import role_figures, sort_heads, sort_layers
from bert_core.analysis.roles import describe_roles, role_ranks, role_scores, roles_of_heads
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import DecoderRun, HeadVectors, ModelRun
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.comparison import Comparison
from viz_app.components import attention_view, head_grid
from viz_app.components.attention_view.packing import deflated, strongest_edges
from viz_app.components.joining import joined
from viz_app.export.captions import NOTE, caption_maps
from viz_app.export.packing import MOST_EXACT, packed_layer
from viz_app.export.policy import hash_source
from viz_app.figures.heads import BY_ROLE, FIGURE_ORDERS, head_titles
from viz_app.figures.style import BODY_FONT, SENTENCE_TINTS, TOKEN_FONT, Look, current_look, page, use_look
from viz_app.figures.thumbnails import LARGE, blocks, common_limit, thumbnails
from viz_app.maps import UNITS, MapView, ShownMaps, renormalised_attention

Theme = Literal["light", "dark"]
# By name, an order of the heads of each layer, and one of the layers where there is one.
Sorts = dict[str, tuple[list[list[int]], list[int] | None]]
_FOLDER = Path(__file__).parent
SCRIPT = joined(_FOLDER / "page.js")
READING = "from the token that looks (query) to the token it looks at (key); each small map has its own colour scale."
NEURON = (
    "one query on the left, every key on the right. Their vectors are multiplied number by number; the sum, divided by "
    "the square root of the vector's length, is the score. The softmax of all scores is the attention."
)
NEURON_MISLEADING = (
    "a single number of a vector has no meaning by itself: rotating queries and keys together leaves every score as it "
    "is."
)
CAPTION_MISLEADING = (
    "it shows where the decoder looked for one word, not everything the word depends on: a patch's vector also knows "
    "its surroundings."
)
MISLEADING = dict.fromkeys(
    UNITS, "a gradient holds for small changes at this text: switching a head off can do something else."
) | {
    "attention": "attention shows where a head looks, not which words led to the prediction.",
    "brought": "a length has no direction: what several heads bring can cancel out, and later layers may not use it.",
}
EXACT = "Every value is exact, in float32."
STRONGEST_EXACT = "the strongest edges are exact."
THIN = (
    "Gradients are kept as the products of thin matrices and drawn in one byte each, off by at most 1/160 of the "
    f"largest magnitude in their row (≈); {STRONGEST_EXACT}"
)
PRECISION = {
    signed: f"Values are kept in one byte each, off by at most {error} in their row (≈); {STRONGEST_EXACT}"
    for signed, error in {
        False: "1/256 of the largest",
        True: "1/254 of the largest magnitude",
    }.items()
}


@dataclass(frozen=True)
class _Sheet:
    """What stands on a page.

    texts: lines of (label, parts), what was read. titles: (layer, head), what a head is like. sorts: by name, an order
    of the heads in each layer, and one of the layers. one: several heads as one map, which is opened. vectors: of the
    heads that can be seen down to their vectors, the first of which is opened. positions: the tokens selected among the
    queries. changes: the columns of a list, then its lines, each with the layer and head that it opens. limit: the
    strongest curve, for all heads; None for each its own. picture: uint8 (rows, columns, 3) whose patches are the
    keys, and the rows and columns of these.
    """

    title: str
    shown: ShownMaps
    view: MapView
    texts: Sequence[tuple[str, Sequence[str]]]
    says: str
    reading: str
    misleading: str
    titles: Sequence[Sequence[str]]
    sorts: Sorts = field(default_factory=dict)
    one: ShownMaps | None = None
    vectors: Sequence[HeadVectors] = ()
    positions: Sequence[int] = ()
    changes: tuple[Sequence[str], Sequence[tuple[int, int, Sequence[str | float]]]] | None = None
    limit: float | None = None
    picture: tuple[np.ndarray, tuple[int, int]] | None = None


def attention_page(
    run: ModelRun, view: MapView | None = None, *, theme: Theme | None = None, report: Progress = ignore_progress
) -> str:
    """A page with every layer and head of a run, opened at what a view shows, by default the first head.

    Where several heads are one map, that map is there too. A short text's values are exact, else they are in one byte
    each, or gradients in two thin matrices; the page says which.
    theme: "light" or "dark"; None follows the system. report: told how many heads are done, as for `Progress`.
    Raises Refused for a head that does not exist, a part that the text does not have, or an unknown theme.
    """
    view = view or MapView()
    apart = replace(view, together=None)
    shown = apart.of(run)
    one = None if view.together is None else view.of(run)
    sheet = _Sheet(
        "Who looks at whom?", shown, apart, _texts(run.encoding), _says(run, shown, apart), READING,
        MISLEADING[shown.what], *_titles_and_sorts(run), one,
    )  # fmt: skip
    return _written(sheet, theme, report)


def neuron_page(
    run: ModelRun,
    vectors: HeadVectors,
    query: int = 0,
    *,
    theme: Theme | None = None,
    report: Progress = ignore_progress,
) -> str:
    """The same, opened at one query of a head down to its vectors, which are exact.

    Raises Refused for a query that does not exist, vectors of another text, or an unknown theme.
    """
    vectors.products(query)
    if vectors.encoding.input_ids != run.encoding.input_ids:
        raise ValueError("the vectors are of another text than the maps")
    view = MapView(layer=vectors.layer, heads=(vectors.head,))
    shown = view.of(run)
    sheet = _Sheet(
        "Who looks at whom?", shown, view, _texts(run.encoding), _says(run, shown, view), NEURON, NEURON_MISLEADING,
        *_titles_and_sorts(run), vectors=(vectors,), positions=(query,),
    )  # fmt: skip
    return _written(sheet, theme, report)


def change_page(
    comparison: Comparison,
    view: MapView | None = None,
    *,
    theme: Theme | None = None,
    report: Progress = ignore_progress,
) -> str:
    """A page with the difference of every layer and head between two runs, and the list of the largest.

    All heads are on one scale. view: which heads are opened, and how.
    Raises Refused for a head that one of them does not have, choices that a comparison does not know, or an unknown
    theme.
    """
    view, shown = view or MapView(), comparison.shown()
    view.check_whole("a comparison", comparison.what)
    shown.check(view.layer, view.heads)
    largest = np.abs(shown.values).max((-1, -2))
    changes = comparison.largest()
    lines = comparison.listed(changes)
    layers, heads = largest.shape
    rows = [(one.layer, one.head, list(line.values())) for one, line in zip(changes, lines, strict=True)]
    between = [
        f"{comparison.unit.capitalize()} of {layers} layers × {heads} heads, {comparison.difference}",
        *comparison.said,
    ]
    sheet = _Sheet(
        "What is different?", shown, view,
        texts=[text for part in comparison.texts for text in _texts(*part)],
        says=". ".join(between) + ".",
        reading=f"{comparison.reading}; orange is more, blue is less, all heads on one scale.",
        misleading=comparison.misleading,
        titles=[
            [f"L{layer} H{head}: changes by up to {largest[layer, head]:.3f}" for head in range(heads)]
            for layer in range(layers)
        ],
        changes=(list(lines[0]) if lines else [], rows),
        limit=float(largest[largest == largest].max(initial=0)) or None,
    )  # fmt: skip
    return _written(sheet, theme, report)


def maps_page(
    shown: ShownMaps, view: MapView | None = None, *, theme: Theme | None = None, report: Progress = ignore_progress
) -> str:
    """A page with maps from anywhere, such as a decoder's from one text to another; see `maps_across`.

    Raises Refused for a head that does not exist, choices that need a run, or an unknown theme.
    """
    view = view or MapView()
    view.check_whole("a page of maps from elsewhere")
    shown.check(view.layer, view.heads)
    layers, heads, queries, keys = shown.values.shape
    sheet = _Sheet(
        "Who looks at whom?", shown, view, texts=(),
        says=f"{shown.unit.capitalize()} of {layers} layers × {heads} heads, from {queries} queries to {keys} keys.",
        reading=READING,
        misleading=MISLEADING[shown.what],
        titles=[[f"L{layer} H{head}" for head in range(heads)] for layer in range(layers)],
    )  # fmt: skip
    return _written(sheet, theme, report)


def caption_page(
    run: DecoderRun, what: str = "attention", head: tuple[int, int] | None = None, word: int = 0,
    *, theme: Theme | None = None, report: Progress = ignore_progress,
) -> str:  # fmt: skip
    """A page with where a captioner looked for each word: its picture under the heat of a word, and every head.

    what: "attention", "gradient", "brought" or "product", what of it is above zero. head: the one to open; None for
    their average. word: the one whose heat is shown first.
    Raises Refused for a word or head that does not exist, or as above.
    """
    if word not in range(len(run.words)):
        raise Refused(f"word {word} does not exist: this sentence has words 0 to {len(run.words) - 1}")
    shown = caption_maps(run, what)
    layer, number = head or (0, 0)
    shown.check(layer, [number])
    layers, heads = shown.values.shape[:2]
    view = MapView(layer=layer, heads=(number,))
    sheet = _Sheet(
        "Where does each word look?", shown, view, [("", [run.sentence])],
        says=f"{shown.unit.capitalize()} of {layers} layers × {heads} heads of the decoder, "
        f"from {len(run.words)} words to {len(shown.keys)} patches.",
        reading=f"from words to the patches of the picture, named by row and column; {NOTE}. Click a word on the left "
        "to see its row on the picture.",
        misleading=CAPTION_MISLEADING,
        titles=[[f"L{layer} H{head}" for head in range(heads)] for layer in range(layers)],
        one=caption_maps(run, what, as_one=True) if head is None else None,
        positions=(word,),
        picture=(run.image, run.grid),
    )  # fmt: skip
    return _written(sheet, theme, report)


def _written(sheet: _Sheet, theme: Theme | None, report: Progress) -> str:
    if theme not in (None, "light", "dark"):
        raise Refused(f"theme {theme!r}: 'light', 'dark' or None, as the system has it")
    shown, view = sheet.shown, sheet.view
    exact, thin = shown.values.size <= MOST_EXACT, shown.what == "gradient"
    layers, heads = shown.values.shape[:2]
    done = count(1)

    def tell() -> None:
        report_count(report, next(done), layers * heads, "heads")

    def pack(maps: np.ndarray) -> tuple[bytes, list[int]]:
        return packed_layer(maps, signed=shown.signed, exact=exact, thin=thin, report=tell)

    # zlib and linear algebra work without Python's lock. The latter's own threads would get in each other's way: with
    # them, small matrices take ten times as long.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        packed = list(pool.map(pack, shown.values))
    small = blocks(shown.values, LARGE, signed=shown.signed)
    cap = None if sheet.limit is None else common_limit(small)
    about = {
        "texts": sheet.texts,
        "says": sheet.says,
        "choice": {"layer": view.layer, "heads": view.heads or (0,), "side": "query", "positions": sheet.positions,
                   "kept": view.kept},
        "mode": view.mode,
        "notes": shown.notes,
        "name": hashlib.blake2b(np.ascontiguousarray(shown.values).data, digest_size=6).hexdigest(),
        "strongest": attention_view.STRONGEST,
        "exact": exact,
        "limit": sheet.limit,
        "cap": cap,
        "combined": attention_view.COMBINED,
        "fixed": attention_view.fixed_header(
            shown.queries, shown.keys, layers=layers, heads=heads, signed=shown.signed, unit=shown.unit,
        ),
        "layers": [_about_layer(shown, number) | {"ranks": packed[number][1]} for number in range(layers)],
        "one": None if sheet.one is None else _about_one(sheet.one),
        "vectors": [_about_vectors(one) for one in sheet.vectors],
        "changes": sheet.changes,
        "sorts": sheet.sorts,
        "picture": sheet.picture and {"size": sheet.picture[0].shape[:2], "grid": sheet.picture[1]},
    }  # fmt: skip
    grid = head_grid.grid_message(
        layers=layers,
        heads=heads,
        thumbnails=thumbnails(small, LARGE, signed=shown.signed, limit=cap),
        signed=shown.signed,
        limit=cap,
        off=shown.off,
        titles=sheet.titles,
        existing=shown.there,
    )
    data = {"shown": json.dumps(about).encode(), "grid": grid}
    data |= {f"vectors-{number}": _packed_vectors(one) for number, one in enumerate(sheet.vectors)}
    if sheet.picture is not None:
        data["pixels"] = sheet.picture[0].tobytes()
    data = {name: deflated(part) for name, part in data.items()}
    if sheet.one is not None:
        data["one"] = packed_layer(sheet.one.values[0], signed=shown.signed, exact=exact, thin=False)[0]
    data |= {f"layer-{number}": part for number, (part, _) in enumerate(packed)}
    loose = any(any(ranks) for _, ranks in packed)
    precision = EXACT if exact else THIN if loose else PRECISION[shown.signed]
    if sheet.vectors:
        precision += " Vectors are exact." * (not exact)
    return _filled(sheet, data, precision, theme)


def _texts(encoding: Encoding, label: str = "") -> list[tuple[str, list[str]]]:
    """One line: a label, and the text or the two of them."""
    return [(label, [text for text in (encoding.text, encoding.pair) if text is not None])]


def _titles_and_sorts(run: ModelRun) -> tuple[list[list[str]], Sorts]:
    """What each head is like, and the orders that follow from it."""
    attention, named = renormalised_attention(run), run.encoding.special_tokens.substitute_in
    figures = role_figures(attention, run.encoding)
    roles = roles_of_heads(role_scores(attention, run.encoding))
    sorts: Sorts = {
        named(said): (sort_heads(values).tolist(), sort_layers(values).tolist())
        for said, values in zip(FIGURE_ORDERS.values(), figures, strict=True)
    }
    sorts[BY_ROLE] = sort_heads(role_ranks(roles)).tolist(), None
    titles = head_titles(*figures, roles=describe_roles(roles), existing=run.existing_heads)
    return [[named(title) for title in row] for row in titles], sorts


def _says(run: ModelRun, shown: ShownMaps, view: MapView) -> str:
    layers, heads = shown.values.shape[:2]
    between = "words" if view.words else "pieces"
    parts = [f"{shown.unit.capitalize()} of {layers} layers × {heads} heads, between {len(shown.keys)} {between}"]
    if view.part != "all":
        parts.append(f"from {view.part}")
    if view.hide_special:
        parts.append(run.encoding.special_tokens.substitute_in("without [CLS] and [SEP]"))
    return "; ".join([", ".join(parts), *shown.notes]) + "."


def _about_layer(shown: ShownMaps, layer: int) -> dict[str, Any]:
    """What is said of a layer's heads whichever of them are drawn; the strongest edges are exact."""
    maps, pruned = shown.values[layer], shown.pruned(layer)
    return {
        "pruned": pruned,
        "off": [head for where, head in shown.off if where == layer],
        "holes": [int((~np.isfinite(values)).sum()) for values in maps],
        "strongest": [_strongest(values) for values in maps],
    }


def _about_one(one: ShownMaps) -> dict[str, Any]:
    """What the page says of one map made of several heads: its name, empty places and strongest values."""
    values = one.values[0, 0]
    return {"name": one.together, "holes": int((~np.isfinite(values)).sum()), "strongest": _strongest(values)}


def _strongest(values: np.ndarray) -> list[tuple[int, int, float]]:
    return [edge[1:] for edge in strongest_edges({0: values}, [0], attention_view.STRONGEST)]


def _about_vectors(vectors: HeadVectors) -> dict[str, Any]:
    return {
        "layer": vectors.layer,
        "head": vectors.head,
        "size": vectors.queries.shape[1],
        "distances": vectors.distances is not None,
        "causal": vectors.causal,
    }


def _packed_vectors(vectors: HeadVectors) -> bytes:
    """Queries, keys, and what distances add, as the view takes them."""
    parts = (vectors.queries, vectors.keys, vectors.distances)
    return b"".join(part.astype("<f4").tobytes() for part in parts if part is not None)


def _filled(sheet: _Sheet, data: dict[str, bytes], precision: str, theme: Theme | None) -> str:
    """The template with everything in it. What a reader typed is in `data` alone, and goes in as base64."""
    filling = {
        "hash": hash_source(SCRIPT),
        "variables": variables(theme),
        "style": _file("page.css"),
        "title": html.escape(sheet.title),
        "reading": html.escape(sheet.reading),
        "misleading": html.escape(sheet.misleading),
        "precision": precision,
        "grid-style": head_grid.STYLE,
        "grid-markup": head_grid.MARKUP,
        "view-style": attention_view.STYLE,
        "view-markup": attention_view.MARKUP,
        "data": "\n".join(
            f'<script type="text/plain" id="{name}">{base64.b64encode(part).decode()}</script>'
            for name, part in data.items()
        ),
        "script": SCRIPT,
    }
    # In one go, so that nothing that was filled in is read as a place to fill.
    return re.sub(r"\{\{([\w-]+)\}\}", lambda found: filling[found[1]], _file("page.html"))


def variables(theme: Theme | None) -> str:
    """The colours that the views read, as Streamlit names them."""

    def rule() -> str:
        colours = page()
        values = {
            "background-color": colours.background,
            "secondary-background-color": colours.raised,
            "text-color": colours.text,
            "gray-text-color": colours.faint,
            "border-color": colours.line,
            "primary-color": colours.accent,
            "font": BODY_FONT,
            "code-font": TOKEN_FONT,
        }
        tints = "".join(f"--tint-{side.lower()}: {SENTENCE_TINTS[side].colours()[0]};" for side in ("A", "B"))
        scheme = f"color-scheme: {'dark' if current_look().dark else 'light'};"
        return f":root {{{scheme}{tints}{''.join(f'--st-{name}: {value};' for name, value in values.items())}}}"

    with use_look(Look(dark=theme == "dark")):
        first = rule()
    if theme is not None:
        return first
    with use_look(Look(dark=True)):
        return f"{first}\n@media (prefers-color-scheme: dark) {{{rule()}}}"


def _file(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
