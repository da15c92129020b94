"""Direct contributions of components to a logit or to an attention score, as numbers, files and a figure."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bert_core.records import Contribution, DirectContributions, DirectLogit, DirectScore
from bert_core.refused import Refused
from viz_app.export import DIRECT_KINDS, PICTURES
from viz_app.export.drawing import MATRIX_MARGIN, draw_matrix, picture_bytes
from viz_app.export.tables import labelled_csv, npz
from viz_app.figures.style import page, two_digits

# What the contributions to a target sum to, by its kind; of all others it is a logit.
QUANTITIES = {"contrast": "difference of the two logits", "joint": "sum of the logits", "loss": "mean of the logits"}
MLP = "MLP"  # label of the column of the feed-forward networks


def quantity(direct: DirectContributions) -> str:
    """Return what the contributions sum to."""
    return QUANTITIES.get(direct.target.kind, "logit") if isinstance(direct, DirectLogit) else "score"


def component_map(direct: DirectContributions) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the contributions of heads and feed-forward networks (layer, head + 1), and the labels of both axes."""
    layers, heads = direct.heads.shape
    values = np.concatenate([direct.heads, direct.feed_forward[:, None]], axis=1)
    return values, [f"L{layer}" for layer in range(layers)], [*(f"H{head}" for head in range(heads)), MLP]


def direct_file(direct: DirectContributions, kind: str) -> bytes:
    """Return direct contributions as a file of one of `DIRECT_KINDS`.

    CSV has a line for each component. NPZ has the arrays of the record. JSON has the rows, and what they belong to. A
    picture has the heads and feed-forward networks by layer. Raises Refused for another kind.
    """
    if kind not in DIRECT_KINDS:
        raise Refused(f"a file of kind {kind!r} is unknown: one of {', '.join(DIRECT_KINDS)}")
    rows = direct.rows()
    if kind in PICTURES:
        return picture_bytes(direct_picture(direct), kind)
    if kind == "csv":
        columns = dict(zip(Contribution._fields, zip(*rows, strict=True), strict=True))
        return labelled_csv({name: ["" if cell is None else cell for cell in cells] for name, cells in columns.items()})
    if kind == "npz":
        arrays = {"heads": direct.heads, "feed_forward": direct.feed_forward}
        numbers = {"embedding": direct.embedding, "value": direct.value, "biases": [*direct.biases.values()]}
        arrays |= {name: np.array(number) for name, number in numbers.items()}
        return npz(arrays, bias_names=[*direct.biases], tokens=direct.encoding.tokens)
    document: dict[str, Any] = {"tokens": direct.encoding.tokens, quantity(direct).replace(" ", "_"): direct.value}
    if isinstance(direct, DirectScore):
        document |= {name: getattr(direct, name) for name in ("receiver", "query", "key", "side")}
    document["components"] = [row._asdict() for row in rows]
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")


def direct_picture(direct: DirectContributions) -> Figure:
    """Draw the contributions of heads and feed-forward networks by layer; orange is positive.

    Raises Refused for a score of the first layer, before which there is neither.
    """
    values, rows, columns = component_map(direct)
    if not rows:
        raise Refused("before layer 0 there are no heads and no feed-forward networks to draw: choose CSV")
    colours = page()
    figure, axes, _, _, limit = draw_matrix(values, rows, columns, signed=True, top=MATRIX_MARGIN, min_cell=0.02)
    axes.tick_params(bottom=False, labelbottom=False, labeltop=True)
    remainder = two_digits(direct.value - float(np.nansum(values)))
    total = f"{quantity(direct)} {two_digits(direct.value)}"
    axes.set_xlabel(
        f"{total}\nembedding and biases {remainder}; the darkest is ±{two_digits(limit)}",
        loc="left", color=colours.faint, fontsize=9,
    )  # fmt: skip
    return figure
