"""Figures for papers, drawn without a browser: heads as curves or a matrix, all heads, vectors, captions, scores.

Each function returns a matplotlib Figure in the colours of the app; `drawing.picture_bytes` writes it as PNG, SVG or
PDF. Texts are drawn literally: no dollar sign starts a formula, and in an SVG they stay text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path

from bert_core.records import DecoderRun, HeadVectors, ModelRun
from bert_core.refused import Refused
from bert_core.tokenizer import Side
from viz_app.export.captions import caption_maps
from viz_app.export.drawing import (
    LONGEST_LABEL,
    LONGEST_TITLE,
    MATRIX_MARGIN,
    colour_map,
    draw_colour_bar,
    draw_matrix,
    empty_figure,
    largest_of,
    picture_bytes,
    plain_axes,
    token_fonts,
    token_label,
    write_below,
)
from viz_app.figures.images import faint
from viz_app.figures.style import DIVERGING, HEAD_COLOURS, SENTENCE_TINTS, SEQUENTIAL, one_line, page, two_digits
from viz_app.figures.thumbnails import pale_thumbnails
from viz_app.maps import MapView, ShownMaps, curve_limit
from viz_app.tokens import Token
from viz_app.windows import MAX_LINES, hatch_segments, legend

MIN_SHARE_DIVISOR = 200  # weaker edges of the selected tokens than this part of the strongest are not drawn
MAX_CURVES = 6000  # in one figure; with more, the curves cannot be told apart and the file is too large to open
GRID_CELLS = 56  # rows and columns of a small map
MAX_KEYS = 40  # of the neuron view
VECTOR_CELLS = 96 * 96  # a matrix with more cells is drawn as pixels
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))
# The neuron view, in inches: the height of a row, the width of a vector and of a number, and the gap between vectors.
ROW_HEIGHT, STRIP, NUMBER, COLUMN_GAP = 0.22, 2.6, 0.62, 0.14
Edge = tuple[int, int, float]  # query, key, value


def picture_of(run: ModelRun, view: MapView, kind: str) -> bytes:
    """Return what a view shows of a run as an image file; see `maps_picture`.

    Raises Refused as `MapView.maps` and `picture_bytes` do.
    """
    return picture_bytes(maps_picture(view.maps(run), view), kind)


def maps_picture(maps: ShownMaps, view: MapView) -> Figure:
    """Draw the heads of a view as curves, the first of them as a matrix, or all heads as small maps.

    Raises Refused for a head that does not exist.
    """
    layer, heads = view.value_indices
    if not heads:
        return grid_picture(maps)
    if view.mode == "matrix":
        return matrix_picture(maps, layer, heads[0])
    return curves_picture(maps, layer, heads, kept_share=view.kept_share, side=view.side, positions=view.positions)


def matrix_picture(maps: ShownMaps, layer: int, head: int) -> Figure:
    """Draw one head as a matrix of queries (rows) and keys (columns); values that are not finite are crossed out.

    Raises Refused for a head that does not exist.
    """
    maps.check(layer, [head])
    values, colours = maps.values[layer, head], page()
    labels = [[token.text for token in tokens] for tokens in (maps.queries, maps.keys)]
    possible, notes = maps.possible_in(layer), list(maps.notes)
    cells = values if possible is None else np.where(possible, values, np.nan)
    matrix = draw_matrix(cells, *labels, signed=maps.signed, bottom=MATRIX_MARGIN, top=0.5)
    figure, axes, mesh, cell, limit = matrix
    mesh.set_rasterized(values.size > VECTOR_CELLS)
    holes = np.argwhere(~np.isfinite(values)) + 0.5
    if len(holes):
        axes.plot(holes[:, 1], holes[:, 0], "x", color="#c0392b", markersize=max(cell * 36, 1), mew=0.8)
    if possible is not None:
        axes.add_collection(_hatching(possible, linewidth=0.5))
        notes.append(legend(maps.windows[layer]))
    axes.set_xlabel("\n".join(["key (to)", *notes]), color=colours.faint, fontsize=9)
    axes.set_ylabel("query (from)", color=colours.faint, fontsize=9)
    rows, columns = values.shape
    bottom = MATRIX_MARGIN + rows * cell + 0.08
    draw_colour_bar(figure, mesh, MATRIX_MARGIN, bottom, min(1.6, columns * cell), limit, signed=maps.signed)
    state = ", switched off" if maps.is_off(layer, head) else ""
    title = f"{one_line(maps.title(layer, head), LONGEST_TITLE)}: {maps.unit}{state}"
    axes.set_title(title, loc="left", fontsize=11, color=colours.text, pad=30)
    return figure


def curves_picture(
    maps: ShownMaps,
    layer: int,
    heads: Sequence[int],
    *,
    kept_share: float = 0.7,
    side: Literal["query", "key"] = "query",
    positions: Sequence[int] = (),
) -> Figure:
    """Draw some heads of a layer as curves from the queries, on the left, to the keys, on the right.

    kept_share: of each row the strongest curves that hold this share of it are drawn, above 0 to 1.
    side, positions: of the selected tokens, whose curves alone are drawn, whatever the share.
    Raises Refused for no head, or one that does not exist.
    """
    maps.check(layer, heads)
    if not heads:
        raise Refused("there is no head to draw: choose at least one")
    colours, longest = page(), max(len(maps.queries), len(maps.keys))
    row = min(0.23, max(11 / longest, 0.075))
    figure, axes = empty_figure(2.4, longest * row)
    axes.set(xlim=(0, 1), ylim=(longest, 0))
    axes.axis("off")
    size = min(10.0, row * 72 * 0.66)
    for alignment, tokens, x in (("right", maps.queries, -0.03), ("left", maps.keys, 1.03)):
        for place, token in enumerate(tokens):
            is_selected = token.position in positions and (alignment == "right") == (side == "query")
            token_style: dict[str, Any] = {
                "ha": alignment,
                "fontsize": size,
                "weight": "bold" if is_selected else "normal",
            }
            _write_token(axes, (x, place + 0.5), token_label(token), token.side, **token_style)
    selected = [token.position in positions for token in (maps.queries if side == "query" else maps.keys)]
    edges_of_heads = [
        _edges_of_tokens(maps.values[layer, head], np.array(selected), side)
        if any(selected)
        else _strongest_edges(maps.values[layer, head], kept_share)
        for head in heads
    ]
    largest = curve_limit(maps.values, maps.quantity)
    total = sum(len(edges) for edges in edges_of_heads)
    max_count = max(MAX_CURVES // len(heads), 1)
    for head, edges in zip(heads, edges_of_heads, strict=True):
        style = _dash(head, heads) if len(edges) < 1500 else "-"
        colour = None if maps.signed else _head_colour(maps, head)
        opacity = 0.35 if maps.is_off(layer, head) else 1
        _draw_curves(axes, _limit_edges(edges, max_count), largest, colour, style, opacity)
    scope = f"strongest {kept_share:.0%} of each row"
    if any(selected):
        scope = f"edges of the selected tokens above 1/{MIN_SHARE_DIVISOR} of the strongest"
    caption = f"{scope}: {total:,} of {len(heads) * maps.values[layer, 0].size:,} edges"
    left_out = sum(max(len(edges) - max_count, 0) for edges in edges_of_heads)
    if left_out:
        caption += f", the weakest {left_out:,} of them not drawn"
    holes = int((~np.isfinite(maps.values[layer, list(heads)])).sum())
    if holes:
        caption += f"; {holes:,} values are not numbers"
    _write_headings(figure, axes, maps, layer, heads)
    write_below(axes, "\n".join([caption, *maps.notes]), colours, 6, x=0.5, ha="center")
    return figure


def grid_picture(maps: ShownMaps) -> Figure:
    """Draw every head as a small map, layer 0 on top, all on one colour scale."""
    colours = page()
    layers, heads = maps.values.shape[:2]
    small, limit, possible = pale_thumbnails(
        maps.values, maps.key_sides, GRID_CELLS, signed=maps.signed, possible=maps.possible
    )
    figure, axes = empty_figure(0.52 * heads, 0.52 * layers)
    table = colour_map(DIVERGING if maps.signed else SEQUENTIAL)
    image: dict[str, Any] = {"cmap": table, "vmin": 0, "vmax": 255, "interpolation": "nearest", "aspect": "auto"}
    frame: dict[str, Any] = {"facecolors": "none", "edgecolors": colours.line, "linewidths": 0.6}
    for layer in range(layers):
        pruned = maps.pruned(layer)
        for head in range(heads):
            left, right, bottom, top = head + 0.05, head + 0.95, layer + 0.95, layer + 0.05
            if head not in pruned:
                opacity = 0.35 if maps.is_off(layer, head) else 1
                axes.imshow(small[layer, head], extent=(left, right, bottom, top), alpha=opacity, **image)
                if possible is not None:
                    axes.add_collection(_hatching(possible[layer], (left, top), right - left, linewidth=0.3, lines=16))
            outline = Path([(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)])
            axes.add_collection(PathCollection([outline], linestyles=":" if head in pruned else "-", **frame))
    axes.set(xlim=(0, heads), ylim=(layers, 0))
    axes.set_xticks(np.arange(heads) + 0.5, labels=[f"H{head}" for head in range(heads)])
    axes.set_yticks(np.arange(layers) + 0.5, labels=[f"L{maps.layer_number(layer)}" for layer in range(layers)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8, colors=colours.faint)
    scale = f"all on one scale that ends at {'±' if maps.signed else ''}{two_digits(limit)}"
    notes = [*maps.notes, *([] if possible is None else [legend(None)])]
    write_below(axes, "\n".join([f"{maps.unit}, {scale}; rows are queries", *notes]), colours, 5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def _hatching(
    possible: np.ndarray,
    corner: tuple[float, float] = (0, 0),
    width: float | None = None,
    *,
    linewidth: float,
    lines: int = MAX_LINES,
) -> LineCollection:
    """Return lines over what is outside the window of a map, (row, column) boolean.

    corner: of the first cell. width: of the map, which is square; None for cells of size 1. lines: as for
    `hatch_segments`.
    """
    scale = 1 if width is None else np.array([width / possible.shape[1], width / possible.shape[0]])
    segments = np.reshape(hatch_segments(possible, lines), (-1, 2, 2)) * scale + corner
    return LineCollection(list(segments), colors=page().faint, linewidths=linewidth)


def neuron_picture(vectors: HeadVectors, query: int) -> Figure:
    """Draw how one query of a head gets its attention: its vector, every key's, their product, score and softmax.

    Of a long text the 40 keys with the most attention are drawn in the order of the text, as the caption states.
    Raises Refused for a query that does not exist.
    """
    products, colours, encoding = vectors.products(query), page(), vectors.encoding
    scores, shares = vectors.scores[query], vectors.attention[query]
    keys = np.sort(np.argsort(-shares, kind="stable")[:MAX_KEYS])
    size, product_left = products.shape[1], STRIP + COLUMN_GAP
    distances = None if vectors.distances is None else vectors.distances[query]
    numbers = [scores] if distances is None else [scores - distances, distances, scores]
    product_heading = f"q·k/√{size * vectors.root_terms}"
    headings = [product_heading] if distances is None else [product_heading, "distance", "score"]
    number_ends = [2 * (STRIP + COLUMN_GAP) + NUMBER * (place + 1) - 0.06 for place in range(len(numbers))]
    bars_left = 2 * (STRIP + COLUMN_GAP) + NUMBER * len(numbers) + COLUMN_GAP
    width, height = bars_left + 1.3, ROW_HEIGHT * len(keys)
    figure, axes = empty_figure(width, height)
    axes.set(xlim=(0, width), ylim=(len(keys), 0))
    axes.axis("off")
    limit, product_limit = largest_of(vectors.queries, vectors.keys), largest_of(products)
    query_row = -2.3  # rows above the first key
    _draw_vectors(axes, vectors.keys[keys], (0, 0), limit)
    _draw_vectors(axes, products[keys], (product_left, 0), product_limit)
    _draw_vectors(axes, vectors.queries[query][None], (0, query_row), limit)
    style: dict[str, Any] = {"va": "center_baseline", "parse_math": False, "fontsize": 8.5, "clip_on": False}
    right, faint = style | {"ha": "right", "color": colours.text}, style | {"color": colours.faint}
    name = f"{one_line(encoding.labels[query], LONGEST_LABEL)} ({query})"
    axes.text(-0.08, query_row + 0.5, f"query {name}", fontfamily=token_fonts(), **right)
    axes.text(0, -0.6, f"key k, ±{two_digits(limit)}", **faint)
    axes.text(product_left, -0.6, f"q × k, ±{two_digits(product_limit)}", **faint)
    for x, heading in zip(number_ends, headings, strict=True):
        axes.text(x, -0.6, heading, **faint | {"ha": "right"})
    axes.text(bars_left, -0.6, "softmax", **faint)
    largest = float(shares[keys].max(initial=0)) or 1.0
    bar_lengths, bar_colour = 0.8 * shares[keys] / largest, HEAD_COLOURS[vectors.head % 12]
    axes.barh(np.arange(len(keys)) + 0.5, bar_lengths, left=bars_left, height=0.62, color=bar_colour)
    for row, key in enumerate(keys):
        label = one_line(encoding.labels[key], LONGEST_LABEL) + (f" ({key})" if len(keys) < len(shares) else "")
        _write_token(axes, (-0.12, row + 0.5), label, encoding.sides[key], ha="right", **style)
        for x, column in zip(number_ends, numbers, strict=True):
            axes.text(x, row + 0.5, f"{column[key]:.2f}".replace("-", "−"), **right)
        axes.text(width, row + 0.5, f"{shares[key]:.3f}", **right)
    title = f"L{vectors.layer} H{vectors.head}: from vectors to attention"
    axes.text(0, query_row - 0.75, title, color=colours.text, **style | {"fontsize": 11})
    caption = (
        f"{size} numbers in each vector, blue below zero, orange above; the softmax is over all {len(shares)} keys"
    )
    if vectors.rotary_base is not None:
        caption += f"\nAfter the rotation by position, in which dimensions i and i + {size // 2} are a pair"
    if len(keys) < len(shares):
        share = two_digits(float(shares[keys].sum()))
        caption += f"\nDrawn with their places: the {len(keys)} keys with the most attention, together {share}"
    write_below(axes, caption, colours, 7)
    return figure


def caption_picture(run: DecoderRun, quantity: str = "attention", head: tuple[int, int] | None = None) -> Figure:
    """Draw the picture of a captioner under the heat of each word, of one head or of the average of all.

    Each word is scaled to its own largest value, which is written above it.
    quantity: "attention", "gradient", "brought" or "product", of which only positive values are drawn.
    Raises Refused for a head that does not exist, or another quantity.
    """
    maps = caption_maps(run, quantity, as_one=head is None)
    layer, head_index = head or (0, 0)
    maps.check(layer, [head_index])
    values, colours = maps.values[layer, head_index], page()
    height, width = run.image.shape[:2]
    columns = min(len(run.words), 6)
    down = -(-len(run.words) // columns)
    figure, first = empty_figure(1.25 * columns, 1.45 * down)
    first.remove()
    background = faint(run.image)
    table = colour_map(DIVERGING if maps.signed else SEQUENTIAL)
    for place, word in enumerate(run.words):
        left, bottom = (place % columns) / columns, 1 - (place // columns + 1) / down
        axes = figure.add_axes((left + 0.02 / columns, bottom, 0.96 / columns, 1.2 / 1.45 / down))
        limit = largest_of(values[place])
        shares = values[place].reshape(run.grid) / limit
        heat = table((shares + 1) / 2 if maps.signed else shares)
        heat[..., 3] = 0.9 * np.abs(shares) ** 0.6
        whole = (0, width, height, 0)
        axes.imshow(background, extent=whole, interpolation="nearest")
        axes.imshow(heat, extent=whole, interpolation="nearest")
        axes.axis("off")
        title: dict[str, Any] = {"loc": "left", "fontsize": 10, "color": colours.text, "fontfamily": token_fonts()}
        axes.set_title(one_line(word, LONGEST_LABEL), pad=3, parse_math=False, **title)
        number = f"±{two_digits(limit)}" if maps.signed else two_digits(limit)
        axes.set_title(number, loc="right", fontsize=7, color=colours.faint, pad=3)
    caption = f"{maps.title(layer, head_index)}: {maps.unit}; each word is scaled to its own largest value, beside it"
    figure.text(0, -0.04 / down, caption, fontsize=8, va="top", color=colours.faint, parse_math=False)
    return figure


def _draw_vectors(axes: Axes, vectors: np.ndarray, corner: tuple[float, float], limit: float, pad: float = 0.1) -> None:
    """Draw vectors (row, number) as strips of signed colours, one below the other. corner: their left and top."""
    left, right = corner[0], corner[0] + STRIP
    style: dict[str, Any] = {"cmap": colour_map(DIVERGING), "vmin": -limit, "vmax": limit, "linewidth": 0}
    for row, vector in enumerate(vectors):
        top, bottom = corner[1] + row + pad, corner[1] + row + 1 - pad
        edges, cells = np.linspace(left, right, len(vector) + 1), np.ma.masked_invalid(vector[None])
        axes.pcolormesh(edges, [top, bottom], cells, clip_on=False, rasterized=False, **style)
        outline = [left, right, right, left, left], [top, top, bottom, bottom, top]
        axes.plot(*outline, color=page().line, linewidth=0.5, clip_on=False)


def _write_token(axes: Axes, position: tuple[float, float], label: str, side: Side | None, **style: Any) -> None:
    """Write a token on the tint of its sentence; one that belongs to no sentence is faint. position: x and y."""
    tint, colours = SENTENCE_TINTS[side].colours()[0] if side else "none", page()
    options: dict[str, Any] = {"va": "center_baseline", "parse_math": False, "fontfamily": token_fonts()} | style
    options["bbox"] = {"boxstyle": "round,pad=0.16", "facecolor": tint, "edgecolor": "none"}
    axes.text(*position, label, color=colours.text if side else colours.faint, **options)


def bars_picture(labels: Sequence[str], shares: Sequence[float], *, unit: str) -> Figure:
    """Draw shares, 0 to 1, as horizontal bars with their labels, the first on top.

    Raises ValueError if there is not one share for each label.
    """
    if len(labels) != len(shares) or not labels:
        raise ValueError(f"{len(labels)} labels and {len(shares)} shares: one for each, at least one")
    colours = page()
    figure, axes = empty_figure(3.4, 0.26 * len(labels))
    axes.barh(range(len(shares)), shares, height=0.68, color=SEQUENTIAL.colours()[7])
    axes.set(ylim=(len(labels) - 0.5, -0.5), xlim=(0, (max(shares) or 1.0) * 1.12))
    for place, share in enumerate(shares):
        axes.text(share, place, f" {two_digits(share)}", va="center_baseline", fontsize=9, color=colours.text)
    axes.set_yticks(range(len(labels)), labels=[one_line(label, LONGEST_LABEL) for label in labels], parse_math=False)
    for text in axes.get_yticklabels():
        text.set(fontsize=10, fontfamily=token_fonts())
    plain_axes(axes, colours, unit)
    return figure


def scores_picture(tokens: Sequence[Token], scores: Sequence[float], *, unit: str) -> Figure:
    """Draw the signed score of each token as a bar from zero, in the order of the text.

    Raises ValueError if there is not one score for each token.
    """
    if len(tokens) != len(scores) or not tokens:
        raise ValueError(f"{len(tokens)} tokens and {len(scores)} scores: one for each, at least one")
    colours, numbers = page(), np.asarray(scores, float)
    row = min(0.23, max(11 / len(tokens), 0.075))
    figure, axes = empty_figure(3.0, row * len(tokens))
    ends = (DIVERGING.colours()[2], DIVERGING.colours()[9])
    axes.barh(range(len(numbers)), numbers, height=0.72, color=[ends[int(number >= 0)] for number in numbers])
    axes.axvline(0, color=colours.faint, linewidth=0.8)
    axes.set_ylim(len(tokens) - 0.5, -0.5)
    axes.set_yticks(range(len(tokens)), labels=[token_label(token) for token in tokens], parse_math=False)
    for text, token in zip(axes.get_yticklabels(), tokens, strict=True):
        text.set(fontsize=min(10.0, row * 72 * 0.66), fontfamily=token_fonts())
        if token.side:
            tint = SENTENCE_TINTS[token.side].colours()[0]
            text.set_bbox({"boxstyle": "round,pad=0.14", "facecolor": tint, "edgecolor": "none"})
    plain_axes(axes, colours, unit)
    return figure


def _write_headings(figure: Figure, axes: Axes, maps: ShownMaps, layer: int, heads: Sequence[int]) -> None:
    """Write the names of both columns of a figure of curves, and above them a legend of the heads or the signs."""
    colours = page()
    style: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8}
    for x, side, text in ((0.0, "right", "query (from)"), (1.0, "left", "key (to)")):
        offset = (2 if side == "left" else -2, 5)
        axes.annotate(text, (x, 1), offset, ha=side, va="bottom", color=colours.faint, **style)
    names = [maps.title(layer, head) + (" (off)" if maps.is_off(layer, head) else "") for head in heads]
    if maps.signed:
        signs = ((1, "above zero"), (-1, "below zero"))
        handles = [Line2D([], [], color=_sign_colour(sign), label=text) for sign, text in signs]
        title = f"{', '.join(names)}: {maps.unit}"
    else:
        handles = [
            Line2D([], [], color=_head_colour(maps, head), label=name, linewidth=2, linestyle=_dash(head, heads))
            for head, name in zip(heads, names, strict=True)
        ]
        title = maps.unit
    options: dict[str, Any] = {"title": title, "title_fontsize": 10, "fontsize": 9, "frameon": False}
    options |= {"loc": "lower center", "bbox_to_anchor": (0.5, 1 + 20 / 72 / figure.get_figheight())}
    options |= {"ncols": min(len(handles), 4), "columnspacing": 1.2, "handlelength": 1.8, "borderaxespad": 0}
    figure.legend(handles=handles, labelcolor=colours.text, **options).get_title().set_color(colours.text)


def _strongest_edges(values: np.ndarray, kept_share: float) -> list[Edge]:
    """Return the largest magnitudes of each row that hold this share of its sum, with ties, in descending order.

    A row of zeros has none, and any other row at least its largest.
    """
    sizes = np.abs(np.nan_to_num(values, nan=0, posinf=0, neginf=0)).astype(np.float64)
    falling = np.sort(sizes)[:, ::-1]
    sums = falling.cumsum(1)
    reached = sums >= kept_share * sums[:, -1:] * (1 - 1e-9)
    thresholds = np.take_along_axis(falling, reached.argmax(1)[:, None], 1)
    return _edges(values, sizes, (sizes >= thresholds) & (sizes > 0))


def _edges_of_tokens(values: np.ndarray, selected: np.ndarray, side: Literal["query", "key"]) -> list[Edge]:
    """Return the edges from the selected queries or to the selected keys in descending order.

    Edges weaker than the strongest divided by `MIN_SHARE_DIVISOR` are left out. selected: bool, of the rows or the
    columns of the values.
    """
    is_selected = selected[:, None] if side == "query" else selected[None]
    sizes = np.abs(np.nan_to_num(values, nan=0, posinf=0, neginf=0)) * is_selected
    return _edges(values, sizes, sizes > sizes.max() / MIN_SHARE_DIVISOR)


def _edges(values: np.ndarray, sizes: np.ndarray, is_drawn: np.ndarray) -> list[Edge]:
    """Return the drawn edges of a map in descending order of their sizes. All arguments: (query, key)."""
    queries, keys = np.nonzero(is_drawn)
    order = np.argsort(-sizes[queries, keys], kind="stable")
    return [(int(q), int(k), float(values[q, k])) for q, k in zip(queries[order], keys[order], strict=True)]


def _limit_edges(edges: list[Edge], max_count: int) -> list[Edge]:
    """Return the strongest edges in descending order; the strongest of each row take precedence over all others."""
    if len(edges) <= max_count:
        return edges
    largest: dict[int, int] = {}
    for place, (query, _, _) in enumerate(edges):
        largest.setdefault(query, place)
    remaining = [place for place in range(len(edges)) if largest[edges[place][0]] != place]
    return [edges[place] for place in sorted([*largest.values(), *remaining][:max_count])]


def _draw_curves(
    axes: Axes,
    edges: Sequence[Edge],
    largest: float,
    colour: str | None,
    style: object,
    opacity: float,
) -> None:
    """Draw one curve per edge, the strongest on top. colour: None for that of the sign of each value."""
    if not edges:
        return
    opacity *= min(1.0, max(0.3, (500 / len(edges)) ** 0.5))
    paths, colours, widths = [], [], []
    for query, key, value in reversed(edges):
        share = min(abs(value) / largest, 1)
        start, end = (0, query + 0.5), (1, key + 0.5)
        paths.append(Path([start, (0.45, start[1]), (0.55, end[1]), end], [1, 4, 4, 4]))
        colours.append(to_rgba(colour or _sign_colour(value), (0.07 + 0.85 * share) * opacity))
        widths.append(0.4 + 1.9 * share)
    axes.add_collection(
        PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths, linestyles=[style])
    )


def _dash(head: int, heads: Sequence[int]) -> Any:
    """Return the line style of a head: dashes tell heads apart without colours, and a single head has none."""
    return DASHES[list(heads).index(head) % 4] if len(heads) > 1 else "-"


def _head_colour(maps: ShownMaps, head: int) -> str:
    """Return the colour of a head; that of text for several heads combined into one map."""
    return page().text if maps.combined_name else HEAD_COLOURS[head % 12]


def _sign_colour(value: float) -> str:
    return DIVERGING.colours()[1 if value < 0 else 11]
