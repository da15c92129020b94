"""The similarity of two texts, split into the contributions of pairs of tokens, as a table and as a figure."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from bert_core.records import Similarity
from viz_app.export.drawing import MATRIX_MARGIN, draw_matrix
from viz_app.export.tables import table_csv
from viz_app.figures.style import page, two_digits


def parts_csv(similarity: Similarity) -> bytes:
    """Return a CSV in UTF-8 with a line for each pair of tokens and its contribution; they sum to the cosine."""
    return table_csv(similarity.table())


def parts_picture(similarity: Similarity) -> Figure:
    """Draw the contribution of each pair of tokens to the cosine, A in rows and B in columns; orange is positive."""
    colours, labels = page(), (similarity.first.labels, similarity.second.labels)
    figure, axes, _, _, limit = draw_matrix(similarity.parts, *labels, signed=True, top=MATRIX_MARGIN, min_cell=0.02)
    axes.tick_params(bottom=False, labelbottom=False, labeltop=True)
    style: dict[str, Any] = {"color": colours.faint, "fontsize": 9}
    axes.set_ylabel("A", **style)
    cosine = two_digits(similarity.cosine)
    axes.set_xlabel(
        f"B: the parts sum to the cosine, {cosine}; the darkest is ±{two_digits(limit)}", loc="left", **style
    )
    return figure
