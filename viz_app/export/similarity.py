"""How alike two texts are, part by part, as numbers and as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bert_core.records import Similarity
from viz_app.export.drawing import colour_map, empty_figure, largest_of, token_fonts
from viz_app.export.tables import labelled_csv
from viz_app.figures.style import DIVERGING, one_line, page, two_digits

LONGEST_LABEL = 18


def parts_csv(similarity: Similarity) -> bytes:
    """Every pair of tokens with what it adds to the cosine, a line each, as a CSV in UTF-8; they sum to the cosine."""
    labels_a, labels_b = similarity.first.labels, similarity.second.labels
    places = list(np.ndindex(similarity.parts.shape))
    return labelled_csv({
        "a_position": [row for row, _ in places], "a_token": [labels_a[row] for row, _ in places],
        "b_position": [column for _, column in places], "b_token": [labels_b[column] for _, column in places],
        "part": [*similarity.parts.flat],
    })  # fmt: skip


def parts_picture(similarity: Similarity) -> Figure:
    """What each pair of tokens adds to the cosine: rows are tokens of A, columns of B; orange adds, blue takes away."""
    values, colours = similarity.parts, page()
    rows, columns = values.shape
    cell, margin = min(0.34, max(5.2 / max(rows, columns), 0.02)), 1.3
    figure, axes = empty_figure(columns * cell + margin, rows * cell + margin)
    axes.set_position((margin / figure.get_figwidth(), 0,
                       columns * cell / figure.get_figwidth(), rows * cell / figure.get_figheight()))  # fmt: skip
    limit = largest_of(values)
    edges: dict[str, Any] = {"edgecolors": colours.background, "linewidth": 0.5} if cell > 0.12 else {}
    axes.pcolormesh(
        np.arange(columns + 1), np.arange(rows + 1), values, cmap=colour_map(DIVERGING), vmin=-limit, vmax=limit,
        **edges,
    )  # fmt: skip
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    size = min(9.0, max(cell * 72 * 0.62, 5.0))
    for axis, labels, turn in ((axes.xaxis, similarity.second.labels, 90), (axes.yaxis, similarity.first.labels, 0)):
        stride = max(1, int(np.ceil(size * 1.15 / (cell * 72))))
        places = np.arange(0, len(labels), stride)
        names = [one_line(labels[place], LONGEST_LABEL) for place in places]
        axis.set_ticks(places + 0.5, labels=names, parse_math=False)
        for text in axis.get_ticklabels():
            text.set(rotation=turn, fontsize=size, fontfamily=token_fonts(), color=colours.text)
    axes.tick_params(length=0, pad=3, bottom=False, labelbottom=False, labeltop=True)
    axes.set_ylabel("A", color=colours.faint, fontsize=9)
    axes.set_xlabel(
        f"B: the parts sum to the cosine, {two_digits(similarity.cosine)}; the darkest is ±{two_digits(limit)}",
        color=colours.faint, fontsize=9, loc="left",
    )  # fmt: skip
    for spine in axes.spines.values():
        spine.set_color(colours.line)
    return figure
