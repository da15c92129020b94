"""The views of the app as one HTML file that opens from disk and needs no network."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypedDict, Unpack

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
from viz_app.export.markup import Theme, render, variables
from viz_app.export.packing import MAX_EXACT_VALUES, packed_layer
from viz_app.figures.heads import BY_ROLE, FIGURE_ORDERS, head_titles
from viz_app.figures.thumbnails import LARGE, pale_thumbnails
from viz_app.maps import MapView, ShownMaps, check_all_layers, curve_limit, renormalised_attention

# Name -> an order of the heads of each layer, and an order of the layers or None.
Sorts = dict[str, tuple[list[list[int]], list[int] | None]]
_FOLDER = Path(__file__).parent
SCRIPT = joined(_FOLDER / "page.js")
READING = "from the query (left, or row) to the key (right, or column); the small maps share one colour scale."
NEURON = (
    "One query on the left, every key on the right. The score is the dot product of their vectors, divided by the "
    "square root of the head size. The softmax of all scores is the attention."
)
NEURON_ROTATED = NEURON + (
    " Both vectors are shown after their rotation by position, in which dimension i and dimension i + half the head "
    "size are a pair."
)
NEURON_MISLEADING = (
    "A single dimension has no meaning by itself: rotating queries and keys together leaves every score unchanged."
)
NEURON_ROTATED_MISLEADING = "A single dimension is one half of a rotated pair: only the pair has a length and an angle."


class PageOptions(TypedDict, total=False):
    """How every page is made.

    theme: "light" or "dark"; None follows the system. report: called with the number of finished heads.
    """

    theme: Theme | None
    report: Progress


@dataclass(frozen=True)
class _Sheet:
    """The contents of a page.

    texts: lines of (label, parts), the text that the model read. misleading: None for that of the maps' quantity.
    titles: (layer, head), the title of each head; None for its number alone. sorts: by name, an order of the heads in
    each layer, and one of the layers. combined: several heads as one map, which is opened. vectors: those of the heads
    that have a neuron view; the first of them is opened. positions: the queries that are selected. changes: the columns
    of a list, then its rows, each with the layer and head that it opens. limit: the strongest curve, for all heads;
    None for each head its own. picture: uint8 (rows, columns, 3) whose patches are the keys, and the grid of patches.
    """

    maps: ShownMaps
    view: MapView
    summary: str
    title: str = "Attention"
    texts: Sequence[tuple[str, Sequence[str]]] = ()
    reading: str = READING
    misleading: str | None = None
    titles: Sequence[Sequence[str]] | None = None
    sorts: Sorts = field(default_factory=dict)
    combined: ShownMaps | None = None
    vectors: Sequence[HeadVectors] = ()
    positions: Sequence[int] = ()
    changes: tuple[Sequence[str], Sequence[tuple[int, int, Sequence[str | float]]]] | None = None
    limit: float | None = None
    picture: tuple[np.ndarray, tuple[int, int]] | None = None


def attention_page(run: ModelRun, view: MapView | None = None, **options: Unpack[PageOptions]) -> str:
    """Return a page with every layer and head of a run, opened at the heads of a view, by default the first head.

    If the view combines several heads, the page also has that map. The values of a short text are exact; those of a
    long one have one byte each, or are factored if they are gradients, and the page states the precision.
    Raises Refused for a run with some layers, a head that does not exist, a part that the text does not have, or an
    unknown theme.
    """
    check_all_layers(run.layers, "the page")
    view = view or MapView()
    combined = None if view.combination is None else view.maps(run)
    sheet = _run_sheet(run, replace(view, combination=None), combined=combined, positions=view.positions)
    limit = curve_limit(run.select_map(view.quantity), view.quantity)
    return _render(replace(sheet, limit=limit), **options)


def neuron_page(run: ModelRun, vectors: HeadVectors, query: int = 0, **options: Unpack[PageOptions]) -> str:
    """Return the page of a run, opened at the neuron view of one query of a head, whose vectors are exact.

    Raises Refused for a run with some layers, a query that does not exist or an unknown theme, and ValueError
    for vectors of another text.
    """
    check_all_layers(run.layers, "the page")
    vectors.products(query)
    if vectors.encoding.input_ids != run.encoding.input_ids:
        raise ValueError("the vectors are of another text than the maps")
    view = MapView(layer=vectors.layer, heads=(vectors.head,))
    texts = dict(zip(("reading", "misleading"), neuron_reading(vectors.rotary_base is not None), strict=True))
    return _render(_run_sheet(run, view, vectors=(vectors,), positions=(query,), **texts), **options)


def neuron_reading(rotated: bool) -> tuple[str, str]:
    """Return how to read the neuron view, and how it can mislead. rotated: whether the model has rotary positions."""
    return (NEURON_ROTATED, NEURON_ROTATED_MISLEADING) if rotated else (NEURON, NEURON_MISLEADING)


def change_page(comparison: Comparison, view: MapView | None = None, **options: Unpack[PageOptions]) -> str:
    """Return a page with the difference of every head between two runs, on one scale, and the largest changes.

    view: which heads are opened, and how. Raises Refused for a head that one of the runs does not have, for choices
    that a comparison does not support, or for an unknown theme.
    """
    view, maps = view or MapView(), comparison.difference_maps()
    view.check_whole("a comparison", comparison.quantity)
    maps.check(view.layer, view.heads)
    largest = np.abs(maps.values).max((-1, -2))
    changes = comparison.largest()
    lines = comparison.change_rows(changes)
    layers, heads = largest.shape
    rows = [(change.layer, change.head, list(line.values())) for change, line in zip(changes, lines, strict=True)]
    size = f"{comparison.unit.capitalize()} of {layers} layers × {heads} heads, {comparison.difference}"
    sheet = _Sheet(
        maps,
        view,
        ". ".join([size, *comparison.remarks]) + ".",
        title="Compare",
        texts=[text for part in comparison.texts for text in _text_lines(*part)],
        reading=f"{comparison.reading}; orange is more, blue is less, all heads on one scale.",
        misleading=comparison.misleading,
        titles=[
            [f"L{layer} H{head}: changes by up to {largest[layer, head]:.3f}" for head in range(heads)]
            for layer in range(layers)
        ],
        changes=(list(lines[0]) if lines else [], rows),
        limit=float(largest[largest == largest].max(initial=0)) or None,
    )
    return _render(sheet, **options)


def maps_page(maps: ShownMaps, view: MapView | None = None, **options: Unpack[PageOptions]) -> str:
    """Return a page with maps of any origin, such as those of a decoder's cross-attention; see `maps_across`.

    Raises Refused for maps of some layers, a head that does not exist, choices that need a run, or an unknown theme.
    """
    check_all_layers(maps.layers, "the page")
    view = view or MapView()
    view.check_whole("a page of maps from elsewhere")
    maps.check(view.layer, view.heads)
    layers, heads, queries, keys = maps.values.shape
    size = f"{layers} layers × {heads} heads, from {queries} queries to {keys} keys"
    return _render(_Sheet(maps, view, f"{maps.unit.capitalize()} of {size}."), **options)


def caption_page(
    run: DecoderRun,
    quantity: str = "attention",
    head: tuple[int, int] | None = None,
    word: int = 0,
    **options: Unpack[PageOptions],
) -> str:
    """Return a page with the cross-attention of a captioner: its picture under the heat of a word, and every head.

    quantity: "attention", "gradient", "brought" or "product", of which only positive values are shown. head: the one
    to open; None for the average of all. word: the index of the word whose heat is shown first.
    Raises Refused for a word or head that does not exist, or an unknown theme.
    """
    if word not in range(len(run.words)):
        raise Refused(f"word {word} does not exist: this sentence has words 0 to {len(run.words) - 1}")
    maps = caption_maps(run, quantity)
    layer, number = head or (0, 0)
    maps.check(layer, [number])
    layers, heads = maps.values.shape[:2]
    sheet = _Sheet(
        maps,
        MapView(layer=layer, heads=(number,)),
        f"{maps.unit.capitalize()} of {layers} layers × {heads} heads of the decoder, from {len(run.words)} words to "
        f"{len(maps.keys)} patches.",
        title="Where does each word look?",
        texts=[("", [run.sentence])],
        reading=f"from words to the patches of the picture, named by row and column; {NOTE}. Click a word on the left "
        "to see its row on the picture.",
        combined=caption_maps(run, quantity, as_one=True) if head is None else None,
        positions=(word,),
        picture=(run.image, run.grid),
    )
    return _render(sheet, **options)


def _run_sheet(run: ModelRun, view: MapView, **fields: Any) -> _Sheet:
    """Return the sheet of a run with the titles and orders of its heads. fields: more fields of the sheet."""
    maps = view.maps(run)
    titles, sorts = _titles_and_sorts(run)
    summary, texts = _summary(run, maps, view), _text_lines(run.encoding)
    return _Sheet(maps, view, summary, texts=texts, titles=titles, sorts=sorts, **fields)


def _render(sheet: _Sheet, theme: Theme | None = None, report: Progress = ignore_progress) -> str:
    if theme not in (None, "light", "dark"):
        raise Refused(f"theme {theme!r}: 'light', 'dark' or None, as the system has it")
    maps, view = sheet.maps, sheet.view
    exact, thin = maps.values.size <= MAX_EXACT_VALUES, maps.quantity == "gradient"
    layers, heads = maps.values.shape[:2]
    counter = count(1)

    def report_head() -> None:
        report_count(report, next(counter), layers * heads, "heads")

    def pack(layer_maps: np.ndarray) -> tuple[bytes, list[int]]:
        return packed_layer(layer_maps, signed=maps.signed, exact=exact, thin=thin, report=report_head)

    # zlib and linear algebra release Python's lock. The threads of the latter would compete with ours: with them, small
    # matrices take ten times as long.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        packed = list(pool.map(pack, maps.values))
    images = pale_thumbnails(maps.values, maps.key_sides, LARGE, signed=maps.signed, possible=maps.possible)
    titles = sheet.titles or [[f"L{layer} H{head}" for head in range(heads)] for layer in range(layers)]
    choice = {"layer": view.layer, "heads": view.heads or (0,), "side": view.side}
    header = attention_view.fixed_header(
        maps.queries, maps.keys, layers=layers, heads=heads, signed=maps.signed, unit=maps.unit
    )
    document = {
        "texts": sheet.texts,
        "says": sheet.summary,
        "choice": choice | {"positions": sheet.positions, "kept": view.kept_share},
        "mode": view.mode,
        "notes": maps.notes,
        "name": hashlib.blake2b(np.ascontiguousarray(maps.values).data, digest_size=6).hexdigest(),
        "strongest": attention_view.STRONGEST,
        "exact": exact,
        "limit": sheet.limit,
        "cap": images.limit if maps.is_change else None,
        "combined": attention_view.COMBINED,
        "fixed": header,
        "layers": [_layer_data(maps, number) | {"ranks": packed[number][1]} for number in range(layers)],
        "one": None if sheet.combined is None else _combined_data(sheet.combined),
        "vectors": [_vectors_data(vectors) for vectors in sheet.vectors],
        "changes": sheet.changes,
        "sorts": sheet.sorts,
        "picture": sheet.picture and {"size": sheet.picture[0].shape[:2], "grid": sheet.picture[1]},
    }
    grid = head_grid.grid_message(
        layers=layers,
        heads=heads,
        thumbnails=images.images,
        limit=images.limit or None,
        unit=maps.unit,
        signed=maps.signed,
        off=maps.off,
        titles=titles,
        existing=maps.existing_heads,
        possible=images.possible,
    )
    data = {"shown": json.dumps(document).encode(), "grid": grid}
    data |= {f"vectors-{number}": _pack_vectors(vectors) for number, vectors in enumerate(sheet.vectors)}
    if sheet.picture is not None:
        data["pixels"] = sheet.picture[0].tobytes()
    data = {name: deflated(part) for name, part in data.items()}
    if sheet.combined is not None:
        data["one"] = packed_layer(sheet.combined.values[0], signed=maps.signed, exact=exact, thin=False)[0]
    data |= {f"layer-{number}": part for number, (part, _) in enumerate(packed)}
    return render(
        "export/page.html",
        sheet=sheet,
        is_exact=exact,
        is_factored=any(any(ranks) for _, ranks in packed),
        data=data,
        style=f"{variables(theme)}\n{(_FOLDER / 'page.css').read_text('utf-8')}",
        script=SCRIPT,
        head_grid=head_grid,
        attention_view=attention_view,
    )


def _text_lines(encoding: Encoding, label: str = "") -> list[tuple[str, list[str]]]:
    """Return the line of a text or a pair: its label and its parts."""
    return [(label, [text for text in (encoding.text, encoding.pair) if text is not None])]


def _titles_and_sorts(run: ModelRun) -> tuple[list[list[str]], Sorts]:
    """Return the title of each head with its figures and role, and the orders by each figure and by role.

    The maps of a range of tokens have neither: the titles are names, and there is no order.
    """
    if run.token_range is not None:
        return [[f"L{layer} H{head}" for head in range(len(row))] for layer, row in enumerate(run.head_mask)], {}
    attention, substitute = renormalised_attention(run), run.encoding.special_tokens.substitute_in
    figures = role_figures(attention, run.encoding, windows=run.windows)
    roles = roles_of_heads(role_scores(attention, run.encoding, windows=run.windows))
    sorts: Sorts = {
        substitute(FIGURE_ORDERS[name]): (sort_heads(values).tolist(), sort_layers(values).tolist())
        for name, values in figures.sort_values.items()
    }
    sorts[BY_ROLE] = sort_heads(role_ranks(roles)).tolist(), None
    titles = head_titles(*figures, roles=describe_roles(roles), existing=run.existing_heads, windows=run.windows)
    return [[substitute(title) for title in row] for row in titles], sorts


def _summary(run: ModelRun, maps: ShownMaps, view: MapView) -> str:
    layers, heads = maps.values.shape[:2]
    unit = "words" if view.words else "pieces"
    parts = [f"{maps.unit.capitalize()} of {layers} layers × {heads} heads, between {len(maps.keys)} {unit}"]
    if run.token_range is not None:
        parts.append(f"tokens {run.token_range[0]} to {run.token_range[1] - 1} of {len(run.encoding)}")
    if view.part != "all":
        parts.append(f"from {view.part}")
    if view.hide_special:
        parts.append(run.encoding.special_tokens.substitute_in("without [CLS] and [SEP]"))
    return "; ".join([", ".join(parts), *maps.notes]) + "."


def _layer_data(maps: ShownMaps, layer: int) -> dict[str, Any]:
    """Return what the page states about each head of a layer, with the exact values of its strongest edges."""
    layer_maps, pruned = maps.values[layer], maps.pruned(layer)
    return {
        "pruned": pruned,
        "off": [head for off_layer, head in maps.off if off_layer == layer],
        "holes": [int((~np.isfinite(values)).sum()) for values in layer_maps],
        "strongest": [_strongest(values) for values in layer_maps],
        "hatching": maps.hatching(layer),
    }


def _combined_data(combined: ShownMaps) -> dict[str, Any]:
    """Return the name of the combined map, its number of non-finite values, and its strongest edges."""
    values = combined.values[0, 0]
    return {
        "name": combined.combined_name,
        "holes": int((~np.isfinite(values)).sum()),
        "strongest": _strongest(values),
        "hatching": combined.hatching(0),
    }


def _strongest(values: np.ndarray) -> list[tuple[int, int, float]]:
    return [edge[1:] for edge in strongest_edges({0: values}, [0], attention_view.STRONGEST)]


def _vectors_data(vectors: HeadVectors) -> dict[str, Any]:
    return {
        "layer": vectors.layer,
        "head": vectors.head,
        "size": vectors.queries.shape[1],
        "terms": vectors.root_terms,
        "distances": vectors.distances is not None,
        "causal": vectors.causal,
        "window": vectors.window,
        "rotated": vectors.rotary_base is not None,
    }


def _pack_vectors(vectors: HeadVectors) -> bytes:
    """Return queries, keys and distance terms as float32 bytes, as the neuron view reads them."""
    parts = (vectors.queries, vectors.keys, vectors.distances)
    return b"".join(part.astype("<f4").tobytes() for part in parts if part is not None)
