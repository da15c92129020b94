"""Figures for papers of the terms of attention scores: bars for one query, or the maps of all queries."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bert_core.records import HeadVectors
from viz_app.export.drawing import (
    LONGEST_LABEL,
    MATRIX_MARGIN,
    draw_cells,
    empty_figure,
    inches,
    largest_of,
    plain_axes,
    token_fonts,
    write_below,
)
from viz_app.export.pictures import VECTOR_CELLS
from viz_app.figures.score_terms import SCORE, drawn_keys
from viz_app.figures.style import HEAD_COLOURS, one_line, page, two_digits

HATCHES = ("", "////", "....")  # of the bars, so that terms can be told apart without colour
BAR_HEIGHT, KEY_GAP = 0.085, 0.09  # inches
BARS_WIDTH, MAP_SIDE, MAP_GAP = 3.4, 3.0, 0.25  # inches


def terms_picture(vectors: HeadVectors, query: int | None = None) -> Figure:
    """Draw the terms of the scores of a head: of one query as bars for each key, or of all as maps on one scale.

    Of a long text, the bars are those of the keys with the highest scores, as the caption states.
    Raises Refused for a query that does not exist.
    """
    if query is None:
        return _maps_picture(vectors)
    vectors.products(query)
    return _bars_picture(vectors, query)


def _bars_picture(vectors: HeadVectors, query: int) -> Figure:
    colours, labels, scores = page(), vectors.encoding.labels, vectors.scores[query]
    keys, terms = drawn_keys(scores), vectors.addends
    row = BAR_HEIGHT * len(terms) + KEY_GAP
    figure, axes = empty_figure(BARS_WIDTH, row * max(len(keys), 2))
    places, handles = np.arange(len(keys)) * row, list[Any]()
    for number, (name, values) in enumerate(terms.items()):
        colour = HEAD_COLOURS[number]
        fill: dict[str, Any] = {"edgecolor": colour, "linewidth": 0.5, "hatch": HATCHES[number]}
        fill["facecolor"] = colours.background if HATCHES[number] else colour
        offset = (number - (len(terms) - 1) / 2) * BAR_HEIGHT
        handles.append(axes.barh(places + offset, values[query, keys], height=BAR_HEIGHT, label=name, **fill))
    half = (row - KEY_GAP) / 2 + 0.02
    ends = places - half, places + half
    handles.append(axes.vlines(scores[keys], *ends, color=colours.text, linewidth=1.6, label=SCORE))
    axes.axvline(0, color=colours.faint, linewidth=0.8)
    axes.set_ylim(row * (max(len(keys), 1) - 0.5), -row / 2)
    names = [f"{one_line(labels[key], LONGEST_LABEL)} ({key})" for key in keys]
    axes.set_yticks(places, labels=names, parse_math=False)
    for text in axes.get_yticklabels():
        text.set(fontsize=9, fontfamily=token_fonts())
    score_style: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "fontsize": 8.5, "color": colours.text}
    for place, score in zip(places, scores[keys].tolist(), strict=True):
        axes.annotate(f"{score:.2f}".replace("-", "−"), (1.03, place), va="center", **score_style)
    plain_axes(axes, colours, f"part of the score; the number at the right is the {SCORE}")
    legend: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "fontsize": 8.5}
    axes.legend(handles=handles, frameon=False, labelcolor=colours.text, **legend)
    rows_of_legend = (len(terms) + 2) // 2
    title_style: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 11}
    title = (
        f"L{vectors.layer} H{vectors.head}: terms of the scores of “{one_line(labels[query], LONGEST_LABEL)}” ({query})"
    )
    axes.annotate(title, (0, 1), (0, 16 * rows_of_legend + 8), color=colours.text, parse_math=False, **title_style)
    if len(keys) < np.isfinite(scores).sum():
        write_below(axes, f"The {len(keys)} keys with the highest scores of {len(scores)}", colours, 34)
    return figure


def _maps_picture(vectors: HeadVectors) -> Figure:
    colours, labels, scores = page(), vectors.encoding.labels, vectors.scores
    maps = {**vectors.addends, SCORE: scores}
    limit = largest_of(*(np.where(np.isfinite(scores), values, 0) for values in maps.values()))
    cell = min(0.22, max(MAP_SIDE / len(labels), 0.011))
    side = cell * len(labels)
    width = MATRIX_MARGIN + len(maps) * (side + MAP_GAP)
    figure, whole = empty_figure(width, side + MATRIX_MARGIN + 0.5)
    figure.delaxes(whole)
    for number, (name, values) in enumerate(maps.items()):
        place = inches(figure, MATRIX_MARGIN + number * (side + MAP_GAP), MATRIX_MARGIN, side, side)
        axes = figure.add_axes(place, facecolor=colours.background)
        row_labels = () if number else labels
        mesh = draw_cells(
            axes, np.where(np.isfinite(scores), values, np.nan), row_labels, labels, signed=True, cell=cell, limit=limit
        )
        mesh.set_rasterized(values.size > VECTOR_CELLS)
        axes.set_title(name, loc="left", fontsize=9.5, color=colours.text)
        axes.set_xlabel("key (to)", color=colours.faint, fontsize=9)
        if not number:
            axes.set_ylabel("query (from)", color=colours.faint, fontsize=9)
    caption = (
        f"L{vectors.layer} H{vectors.head}: terms of the scores, on one scale from −{two_digits(limit)} (blue) to "
        f"{two_digits(limit)} (orange)"
    )
    figure.text(MATRIX_MARGIN / width, 1, caption, fontsize=10, color=colours.text, va="top")
    return figure
