"""Pictures for a paper, drawn without a browser: heads as curves or a matrix, all heads, vectors, captions, scores.

Each function gives a matplotlib Figure in the colours of the app; `drawing.picture_bytes` writes it as PNG, SVG or
PDF. Texts are drawn as they are: no dollar sign starts a formula, and in an SVG they stay text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path

from bert_core.records import DecoderRun, HeadVectors, ModelRun
from bert_core.refused import Refused
from viz_app.export.captions import caption_maps
from viz_app.export.drawing import (
    LONGEST_LABEL,
    LONGEST_TITLE,
    colour_map,
    empty_figure,
    largest_of,
    picture_bytes,
    plain_axes,
    token_fonts,
    token_label,
    write_below,
)
from viz_app.figures.images import faint
from viz_app.figures.style import DIVERGING, HEAD_COLOURS, SENTENCE_TINTS, SEQUENTIAL, Page, one_line, page, two_digits
from viz_app.figures.thumbnails import blocks, common_limit, thumbnails
from viz_app.maps import MapView, ShownMaps
from viz_app.tokens import Token

MAX_CURVES = 6000  # in one picture; more paint a wall, and a file that no program opens
GRID_CELLS = 56  # rows and columns of a small map
MAX_KEYS = 40  # of the neuron view
VECTOR_CELLS = 96 * 96  # a matrix of no more is drawn as shapes
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))


def picture_of(run: ModelRun, view: MapView, kind: str) -> bytes:
    """What a view shows of a run as a picture: its heads as curves, the first of them as a matrix, or all heads.

    Several heads as one map are drawn as that map. Raises Refused as `MapView.of` and `picture_bytes` do.
    """
    return picture_bytes(maps_picture(view.of(run), view), kind)


def maps_picture(maps: ShownMaps, view: MapView) -> Figure:
    """What a view shows of maps; raises ValueError for a head that does not exist."""
    layer, heads = view.drawn
    if not heads:
        return grid_picture(maps)
    if view.mode == "matrix":
        return matrix_picture(maps, layer, heads[0])
    return curves_picture(maps, layer, heads, kept=view.kept)


def matrix_picture(maps: ShownMaps, layer: int, head: int) -> Figure:
    """One head as a matrix: rows are queries, columns keys; what is no number is crossed out.

    Raises Refused for a head that does not exist.
    """
    maps.check(layer, [head])
    values, colours = maps.values[layer, head], page()
    rows, columns = values.shape
    cell = min(0.34, max(5.2 / max(rows, columns), 0.011))
    margin, bar = 1.3, 0.5
    figure, axes = empty_figure(columns * cell + margin, rows * cell + margin + bar)
    axes.set_position((margin / figure.get_figwidth(), margin / figure.get_figheight(),
                       columns * cell / figure.get_figwidth(), rows * cell / figure.get_figheight()))  # fmt: skip
    limit = float(np.abs(values[np.isfinite(values)]).max(initial=0)) or 1.0
    edges: dict[str, Any] = {"edgecolors": colours.background, "linewidth": 0.5} if cell > 0.12 else {}
    mesh = axes.pcolormesh(
        np.arange(columns + 1), np.arange(rows + 1), np.ma.masked_invalid(values),
        cmap=colour_map(DIVERGING if maps.signed else SEQUENTIAL), vmin=-limit if maps.signed else 0,
        vmax=limit,
        rasterized=values.size > VECTOR_CELLS, **edges,
    )  # fmt: skip
    holes = np.argwhere(~np.isfinite(values))
    if len(holes):
        axes.plot(holes[:, 1] + 0.5, holes[:, 0] + 0.5, "x", color="#c0392b", markersize=max(cell * 36, 1), mew=0.8)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    size = min(9.0, max(cell * 72 * 0.62, 5.0))
    for axis, tokens, turn in ((axes.xaxis, maps.keys, 90), (axes.yaxis, maps.queries, 0)):
        stride = max(1, int(np.ceil(size * 1.15 / (cell * 72))))
        places = np.arange(0, len(tokens), stride)
        axis.set_ticks(places + 0.5, labels=[token_label(tokens[i]) for i in places], parse_math=False)
        for text in axis.get_ticklabels():
            text.set(rotation=turn, fontsize=size, fontfamily=token_fonts())
            text.set_color(colours.text)
    axes.tick_params(length=0, pad=3)
    axes.set_xlabel("\n".join(["key: who is looked at", *maps.notes]), color=colours.faint, fontsize=9)
    axes.set_ylabel("query: who looks", color=colours.faint, fontsize=9)
    for spine in axes.spines.values():
        spine.set_color(colours.line)
    width = min(1.6, columns * cell) / figure.get_figwidth()
    scale = figure.add_axes((axes.get_position().x0, axes.get_position().y1 + 0.08 / figure.get_figheight(), width,
                             0.1 / figure.get_figheight()))  # fmt: skip
    legend = figure.colorbar(mesh, cax=scale, orientation="horizontal", ticks=[-limit, 0, limit][not maps.signed :])
    legend.ax.set_xticklabels(([f"−{two_digits(limit)}"] if maps.signed else []) + ["0", two_digits(limit)])
    legend.ax.tick_params(length=0, labelsize=8, colors=colours.faint, bottom=False, labelbottom=False, labeltop=True)
    legend.outline.set_visible(False)
    state = ", switched off" if (layer, head) in maps.off else ""
    title = f"{one_line(maps.title(layer, head), LONGEST_TITLE)}: {maps.unit}{state}"
    axes.set_title(title, loc="left", fontsize=11, color=colours.text, pad=30)
    return figure


def curves_picture(maps: ShownMaps, layer: int, heads: Sequence[int], *, kept: float = 0.7) -> Figure:
    """Some heads of a layer as curves from who looks, on the left, to who is looked at, on the right.

    kept: of each row the strongest curves that hold this share of it are drawn, above 0 to 1.
    Raises Refused for no head, or one that does not exist.
    """
    maps.check(layer, heads)
    if not heads:
        raise Refused("there is no head to draw: choose at least one")
    colours, longest = page(), max(len(maps.queries), len(maps.keys))
    row = min(0.23, max(11 / longest, 0.075))
    height = longest * row
    figure, axes = empty_figure(2.4, height)
    axes.set_position((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(longest, 0))
    axes.axis("off")
    size = min(10.0, row * 72 * 0.66)
    for side, tokens, x in (("right", maps.queries, -0.03), ("left", maps.keys, 1.03)):
        for place, token in enumerate(tokens):
            tint = SENTENCE_TINTS[token.side].colours()[0] if token.side else "none"
            axes.text(
                x, place + 0.5, token_label(token), ha=side, va="center_baseline", fontsize=size, parse_math=False,
                color=colours.text if token.side else colours.faint,
                fontfamily=token_fonts(),
                bbox={"boxstyle": "round,pad=0.16", "facecolor": tint, "edgecolor": "none"},
            )  # fmt: skip
    edges_of_heads = [_strongest_edges(maps.values[layer, head], kept) for head in heads]
    largest = max((float(np.abs(edges[0][2])) for edges in edges_of_heads if edges), default=1.0) or 1.0
    total = sum(len(edges) for edges in edges_of_heads)
    room = max(MAX_CURVES // len(heads), 1)
    for head, edges in zip(heads, edges_of_heads, strict=True):
        off = (layer, head) in maps.off
        style = DASHES[(head + head // 12) % 4] if len(heads) > 1 and len(edges) < 1500 else "-"
        colour = None if maps.signed else _head_colour(maps, head)
        _draw_curves(axes, _limit_edges(edges, room), largest, colour, off=off, style=style)
    caption = f"strongest {kept:.0%} of each row: {total:,} of {len(heads) * maps.values[layer, 0].size:,} edges"
    left_out = sum(max(len(edges) - room, 0) for edges in edges_of_heads)
    if left_out:
        caption += f", the weakest {left_out:,} of them not drawn"
    holes = int((~np.isfinite(maps.values[layer, list(heads)])).sum())
    if holes:
        caption += f"; {holes:,} values are no numbers"
    caption = "\n".join([caption, *maps.notes])
    offset = row * 72
    names = [maps.title(layer, head) + (" (off)" if (layer, head) in maps.off else "") for head in heads]
    _headings(figure, axes, names, heads, maps, caption, offset, colours)
    return figure


def grid_picture(maps: ShownMaps) -> Figure:
    """Every head of every layer as a small map, each scaled to its own maximum, changes all alike; layer 0 on top."""
    colours = page()
    layers, heads = maps.values.shape[:2]
    reduced = blocks(maps.values, GRID_CELLS, signed=maps.signed)
    limit = common_limit(reduced) if maps.is_change else None
    small = thumbnails(reduced, GRID_CELLS, signed=maps.signed, limit=limit)
    figure, axes = empty_figure(0.52 * heads, 0.52 * layers)
    axes.set_position((0, 0, 1, 1))
    table = colour_map(DIVERGING if maps.signed else SEQUENTIAL)
    for layer in range(layers):
        pruned = maps.pruned(layer)
        for head in range(heads):
            box = (head + 0.05, head + 0.95, layer + 0.95, layer + 0.05)
            if head not in pruned:
                faint = 0.35 if (layer, head) in maps.off else 1
                axes.imshow(small[layer, head], cmap=table, vmin=0, vmax=255, extent=box, interpolation="nearest",
                            aspect="auto", alpha=faint)  # fmt: skip
            frame = Path([(box[0], box[2]), (box[1], box[2]), (box[1], box[3]), (box[0], box[3]), (box[0], box[2])])
            axes.add_collection(PathCollection(
                [frame], facecolors="none", edgecolors=colours.line, linewidths=0.6,
                linestyles=":" if head in pruned else "-",
            ))  # fmt: skip
    axes.set(xlim=(0, heads), ylim=(layers, 0))
    axes.set_xticks(np.arange(heads) + 0.5, labels=[f"H{head}" for head in range(heads)])
    axes.set_yticks(np.arange(layers) + 0.5, labels=[f"L{layer}" for layer in range(layers)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8, colors=colours.faint)
    scale = (
        "each map has its own colour scale" if limit is None else f"all on one scale that ends at ±{two_digits(limit)}"
    )
    caption = "\n".join([f"{maps.unit}, {scale}; rows are queries", *maps.notes])
    write_below(axes, caption, colours, 5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def neuron_picture(vectors: HeadVectors, query: int) -> Figure:
    """How one query of a head comes to its attention: its vector, every key's, their product, the score, the softmax.

    Of a long text the forty keys with the most attention are drawn, in the order of the text, and it is said.
    Raises Refused for a query that does not exist.
    """
    products, colours, encoding = vectors.products(query), page(), vectors.encoding
    scores, shares = vectors.scores[query], vectors.attention[query]
    keys = np.sort(np.argsort(-shares, kind="stable")[:MAX_KEYS])
    size, row, strip, gap = products.shape[1], 0.22, 2.6, 0.14
    distances = None if vectors.distances is None else vectors.distances[query]
    numbers = [scores] if distances is None else [scores - distances, distances, scores]
    heads = [f"q·k/√{size}"] if distances is None else [f"q·k/√{size}", "distance", "score"]
    places = 2 * (strip + gap) + 0.62 * len(numbers)  # where the bars begin
    width, height = places + gap + 1.3, row * len(keys)
    figure, axes = empty_figure(width, height)
    axes.set_position((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(len(keys), 0))
    axes.axis("off")
    limit = largest_of(vectors.queries, vectors.keys)
    product_limit = largest_of(products)
    pad = 0.1  # of a row, above and below a vector
    for left, values, largest in ((0.0, vectors.keys[keys], limit), (strip + gap, products[keys], product_limit)):
        _draw_vectors(axes, values, left, strip, largest, rows=[(i + pad, i + 1 - pad) for i in range(len(keys))])
    query_row = -2.3  # rows over the first
    _draw_vectors(axes, vectors.queries[query][None], 0, strip, limit, rows=[(query_row + pad, query_row + 1 - pad)])
    mono, small = token_fonts(), 8.5
    write: dict[str, Any] = {"va": "center_baseline", "parse_math": False, "fontsize": small, "clip_on": False}
    name = f"{one_line(encoding.labels[query], LONGEST_LABEL)} ({query})"
    axes.text(-0.08, query_row + 0.5, f"query {name}", ha="right", color=colours.text, fontfamily=mono, **write)
    for x, text in ((0.0, f"key k, ±{two_digits(limit)}"), (strip + gap, f"q × k, ±{two_digits(product_limit)}")):
        axes.text(x, -0.6, text, color=colours.faint, **write)
    for i, text in enumerate(heads):
        axes.text(2 * (strip + gap) + 0.62 * (i + 1) - 0.06, -0.6, text, ha="right", color=colours.faint, **write)
    axes.text(places + gap, -0.6, "softmax", color=colours.faint, **write)
    labels = [one_line(encoding.labels[key], LONGEST_LABEL) for key in keys]
    if len(keys) < len(shares):
        labels = [f"{label} ({key})" for label, key in zip(labels, keys, strict=True)]
    largest = float(shares[keys].max(initial=0)) or 1.0
    axes.barh(np.arange(len(keys)) + 0.5, 0.8 * shares[keys] / largest, left=places + gap, height=0.62,
              color=HEAD_COLOURS[vectors.head % 12])  # fmt: skip
    for i, key in enumerate(keys):
        tint = SENTENCE_TINTS[side].colours()[0] if (side := encoding.sides[key]) else "none"
        axes.text(-0.12, i + 0.5, labels[i], ha="right", fontfamily=mono,
                  color=colours.text if side else colours.faint,
                  bbox={"boxstyle": "round,pad=0.16", "facecolor": tint, "edgecolor": "none"}, **write)  # fmt: skip
        for j, column in enumerate(numbers):
            text = f"{column[key]:.2f}".replace("-", "−")
            axes.text(2 * (strip + gap) + 0.62 * (j + 1) - 0.06, i + 0.5, text, ha="right", color=colours.text, **write)
        axes.text(width, i + 0.5, f"{shares[key]:.3f}", ha="right", color=colours.text, **write)
    axes.text(0, query_row - 0.75, f"L{vectors.layer} H{vectors.head}: from vectors to attention", color=colours.text,
              **write | {"fontsize": 11})  # fmt: skip
    caption = (
        f"{size} numbers in each vector, blue below zero, orange above; the softmax is over all {len(shares)} keys"
    )
    if len(keys) < len(shares):
        share = two_digits(float(shares[keys].sum()))
        caption += f"\nDrawn with their places: the {len(keys)} keys with the most attention, together {share}"
    write_below(axes, caption, colours, 7)
    return figure


def caption_picture(run: DecoderRun, quantity: str = "attention", head: tuple[int, int] | None = None) -> Figure:
    """Where a captioner looks: the picture under one heat for each word, of one head or of all on average.

    what: "attention", "gradient", "brought" or "product", of which what is above zero is drawn. Each word is scaled to
    its own largest value, which stands beside it.
    Raises Refused for a head that does not exist, or another name.
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
        axes.set_title(one_line(word, LONGEST_LABEL), loc="left", fontsize=10, color=colours.text, pad=3,
                       parse_math=False, fontfamily=token_fonts())  # fmt: skip
        number = f"±{two_digits(limit)}" if maps.signed else two_digits(limit)
        axes.set_title(number, loc="right", fontsize=7, color=colours.faint, pad=3)
    caption = f"{maps.title(layer, head_index)}: {maps.unit}; each word is scaled to its own largest value, beside it"
    figure.text(0, -0.04 / down, caption, fontsize=8, va="top", color=colours.faint, parse_math=False)
    return figure


def _draw_vectors(
    axes: Axes, values: np.ndarray, left: float, width: float, limit: float,
    *, rows: Sequence[tuple[float, float]],
) -> None:  # fmt: skip
    """Vectors (row, number) as strips of signed colours, each between two heights."""
    table = colour_map(DIVERGING)
    for vector, (top, bottom) in zip(values, rows, strict=True):
        axes.pcolormesh(
            np.linspace(left, left + width, len(vector) + 1), [top, bottom], np.ma.masked_invalid(vector[None]),
            cmap=table, vmin=-limit, vmax=limit, clip_on=False, rasterized=False, linewidth=0,
        )  # fmt: skip
        axes.plot([left, left + width, left + width, left, left], [top, top, bottom, bottom, top],
                  color=page().line, linewidth=0.5, clip_on=False)  # fmt: skip


def bars_picture(labels: Sequence[str], shares: Sequence[float], *, unit: str) -> Figure:
    """Labels with their shares, 0 to 1, as horizontal bars in the order given, the first on top.

    Raises Refused if there is not one share for each label.
    """
    if len(labels) != len(shares) or not labels:
        raise ValueError(f"{len(labels)} labels and {len(shares)} shares: one for each, at least one")
    colours = page()
    figure, axes = empty_figure(3.4, 0.26 * len(labels))
    axes.set_position((0, 0, 1, 1))
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
    """Tokens in the order of the text, each with its signed score as a bar from zero.

    Raises Refused if there is not one score for each token.
    """
    if len(tokens) != len(scores) or not tokens:
        raise ValueError(f"{len(tokens)} tokens and {len(scores)} scores: one for each, at least one")
    colours, numbers = page(), np.asarray(scores, float)
    row = min(0.23, max(11 / len(tokens), 0.075))
    figure, axes = empty_figure(3.0, row * len(tokens))
    axes.set_position((0, 0, 1, 1))
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


def _headings(
    figure: Figure, axes: Axes, names: list[str], heads: Sequence[int], maps: ShownMaps, caption: str, offset: float,
    colours: Page,
) -> None:  # fmt: skip
    """Over the columns who looks and who is looked at, over these the heads in their colours."""
    points: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "fontsize": 8,
        "color": colours.faint,
    }
    for x, side, text in ((0.0, "right", "query: who looks"), (1.0, "left", "key: who is looked at")):
        axes.annotate(text, (x, 1), (2 if side == "left" else -2, 5), ha=side, va="bottom", **points)
    if maps.signed:
        handles = [Line2D([], [], color=_sign_colour(sign), label=text)
                   for sign, text in ((1, "above zero"), (-1, "below zero"))]  # fmt: skip
        title = f"{', '.join(names)}: {maps.unit}"
    else:
        handles = [
            Line2D([], [], color=_head_colour(maps, head), label=name, linewidth=2,
                   linestyle=DASHES[(head + head // 12) % 4] if len(heads) > 1 else "-")
            for head, name in zip(heads, names, strict=True)
        ]  # fmt: skip
        title = maps.unit
    figure.legend(
        handles=handles, title=title, title_fontsize=10, loc="lower center", frameon=False, fontsize=9,
        handlelength=1.8, ncols=min(len(handles), 4), columnspacing=1.2, labelcolor=colours.text, borderaxespad=0,
        bbox_to_anchor=(0.5, 1 + 20 / 72 / figure.get_figheight()),
    ).get_title().set_color(colours.text)  # fmt: skip
    write_below(axes, caption, colours, 6, x=0.5, ha="center")


def _strongest_edges(values: np.ndarray, kept_share: float) -> list[tuple[int, int, float]]:
    """Of each row the values of largest magnitude that hold this share of it, and those as large as the last of them.

    Returns (query, key, value), strongest first; a row of zeros has none, and any other at least its largest.
    """
    sizes = np.abs(np.nan_to_num(values, nan=0, posinf=0, neginf=0)).astype(np.float64)
    falling = np.sort(sizes)[:, ::-1]
    sums = falling.cumsum(1)
    reached = sums >= kept_share * sums[:, -1:] * (1 - 1e-9)
    thresholds = np.take_along_axis(falling, reached.argmax(1)[:, None], 1)
    queries, keys = np.nonzero((sizes >= thresholds) & (sizes > 0))
    order = np.argsort(-sizes[queries, keys], kind="stable")
    return [(int(q), int(k), float(values[q, k])) for q, k in zip(queries[order], keys[order], strict=True)]


def _limit_edges(edges: list[tuple[int, int, float]], max_count: int) -> list[tuple[int, int, float]]:
    """So many of the strongest, strongest first; what a row looks at most goes before all that it also looks at."""
    if len(edges) <= max_count:
        return edges
    largest: dict[int, int] = {}
    for place, (query, _, _) in enumerate(edges):
        largest.setdefault(query, place)
    remaining = [place for place in range(len(edges)) if largest[edges[place][0]] != place]
    return [edges[place] for place in sorted([*largest.values(), *remaining][:max_count])]


def _draw_curves(
    axes: Axes, edges: Sequence[tuple[int, int, float]], largest: float, colour: str | None, *, off: bool,
    style: object,
) -> None:  # fmt: skip
    """One curve an edge, the strongest last, so that it lies on top; without a colour, in that of its sign."""
    if not edges:
        return
    light = (0.35 if off else 1) * min(1.0, max(0.3, (500 / len(edges)) ** 0.5))
    paths, colours, widths = [], [], []
    for query, key, value in reversed(edges):
        share = min(abs(value) / largest, 1)
        start, end = (0, query + 0.5), (1, key + 0.5)
        paths.append(Path([start, (0.45, start[1]), (0.55, end[1]), end], [1, 4, 4, 4]))
        colours.append(to_rgba(colour or _sign_colour(value), (0.07 + 0.85 * share) * light))
        widths.append(0.4 + 1.9 * share)
    axes.add_collection(
        PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths, linestyles=[style])
    )


def _head_colour(maps: ShownMaps, head: int) -> str:
    """The colour of a head; that of text for several heads as one map."""
    return page().text if maps.together else HEAD_COLOURS[head % 12]


def _sign_colour(value: float) -> str:
    return DIVERGING.colours()[1 if value < 0 else 11]
