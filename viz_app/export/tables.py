"""Numbers as CSV files for spreadsheets and as NPZ files for NumPy."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_core.csv_cells import safe_cell
from bert_core.records import HeadVectors
from bert_core.refused import Refused
from viz_app.maps import COLUMNS, ShownMaps

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_CSV_LINES = 4_000_000  # 12 heads of 512 tokens; more than any spreadsheet opens


def tidy_csv(tables: Mapping[str, np.ndarray], row_labels: Sequence[str]) -> bytes:
    """Return tables (row, column) as one CSV in UTF-8 with a line for each number: name, row, label, column, value.

    Values are in full precision. A label that a spreadsheet would take for a formula gets an apostrophe in front.
    Raises ValueError if a table has another number of rows than there are labels.
    """
    safe = [safe_cell(label) for label in row_labels]
    for name, table in tables.items():
        if len(table) != len(safe):
            raise ValueError(f"{name} has {len(table)} rows for {len(safe)} labels: one for each")
    return _csv(
        ["name", "row", "label", "column", "value"],
        (
            [name, row, label, column, value]
            for name, table in tables.items()
            for row, (label, values) in enumerate(zip(safe, table, strict=True))
            for column, value in enumerate(values)
        ),
    )


def maps_csv(maps: ShownMaps, heads: Iterable[tuple[int, int]] | None = None) -> bytes:
    """Return the maps of some heads (layer, head), or of all, as a CSV in UTF-8 with a line for each number.

    Columns: layer, head, query_position, query, key_position, key, and the quantity, in full precision. For a map of
    several heads, `heads` describes it in place of layer and head. If the model was edited, `edits` describes the edits
    in every line. heads: with the index of the layer in the values.
    Raises Refused for a head that does not exist, or more than four million lines.
    """
    layers, count = maps.values.shape[:2]
    selected = [(layer, head) for layer in range(layers) for head in range(count)] if heads is None else list(heads)
    lines = len(selected) * len(maps.queries) * len(maps.keys)
    if lines > MAX_CSV_LINES:
        raise Refused(
            f"a CSV of {len(selected)} heads would have {lines:,} lines, and at most {MAX_CSV_LINES:,} are written: "
            "choose fewer heads, or NPZ"
        )
    if heads is not None:
        for layer, head in selected:
            maps.check(layer, [head])
    numbers = range(layers) if maps.layers is None else maps.layers
    queries = [(token.position, safe_cell(token.text)) for token in maps.queries]
    keys = [(token.position, safe_cell(token.text)) for token in maps.keys]
    edits = [safe_cell("; ".join(maps.edits))] if maps.edits else []
    names = ["heads"] if maps.combined_name else ["layer", "head"]
    return _csv(
        [
            *names,
            "query_position",
            "query",
            "key_position",
            "key",
            COLUMNS.get(maps.quantity, maps.quantity),
            *["edits"] * len(edits),
        ],
        (
            [*([maps.combined_name] if maps.combined_name else [numbers[layer], head]), *query, *key, value, *edits]
            for layer, head in selected
            for query, row in zip(queries, maps.values[layer, head], strict=True)
            for key, value in zip(keys, row, strict=True)
        ),
    )


def maps_npz(maps: ShownMaps) -> bytes:
    """Return all maps with the tokens of their rows and columns, as an NPZ that `numpy.load` reads without pickle.

    Arrays: attention, gradient, product or norm (layer, head, query, key) float32; queries, keys; query_positions,
    key_positions; off (number of heads that are off, 2). A map of several heads has shape (query, key), and `heads`
    describes it. `layers` has the numbers of the layers if there are only some, and `edits` describes the edits of the
    model, if there are any. With local layers, `windows` has for each layer of the maps the largest distance between a
    query and a key, or -1 for any distance.
    """
    arrays = {
        COLUMNS.get(maps.quantity, maps.quantity): maps.values[0, 0] if maps.combined_name else maps.values,
        "query_positions": np.array([token.position for token in maps.queries]),
        "key_positions": np.array([token.position for token in maps.keys]),
    }
    if maps.layers is not None:
        arrays["layers"] = np.array(maps.layers)
    texts = {"queries": [token.text for token in maps.queries], "keys": [token.text for token in maps.keys]}
    if maps.edits:
        texts["edits"] = list(maps.edits)
    if maps.combined_name:
        return npz(arrays, **texts, heads=[maps.combined_name])
    if any(window is not None for window in maps.windows):
        arrays["windows"] = np.array([-1 if window is None else window for window in maps.windows])
    return npz(arrays | {"off": np.array(maps.off, int).reshape(-1, 2)}, **texts)


def neuron_csv(vectors: HeadVectors, query: int) -> bytes:
    """Return the computation of the attention of one query, as a CSV in UTF-8 with a line for each key and dimension.

    Columns: query_position, query, key_position, key, dimension, q, k, product (q x k), and for the pair of tokens the
    score (input of the softmax) and softmax, in full precision. With rotary positions, q and k are after the rotation,
    and the score outside the window of a local layer is -inf. Raises Refused for a query that does not exist.
    """
    products = vectors.products(query)
    tokens = [safe_cell(token) for token in vectors.encoding.tokens]
    scores, shares = vectors.scores[query], vectors.attention[query]
    return _csv(
        ["query_position", "query", "key_position", "key", "dimension", "q", "k", "product", "score", "softmax"],
        (
            [query, tokens[query], key, tokens[key], i, q, k, product, scores[key], shares[key]]
            for key, row in enumerate(products)
            for i, (q, k, product) in enumerate(zip(vectors.queries[query], vectors.keys[key], row, strict=True))
        ),
    )


def neuron_npz(vectors: HeadVectors) -> bytes:
    """Return the vectors and scores of a head for all queries, as an NPZ that `numpy.load` reads without pickle.

    Arrays: q (query, head size), k (key, head size), scores and softmax (query, key), distances (query, key) if the
    model has relative positions; tokens, layer, head. The products are q[query] * k.
    """
    arrays = {"q": vectors.queries, "k": vectors.keys, "scores": vectors.scores, "softmax": vectors.attention}
    arrays |= {"layer": np.array(vectors.layer), "head": np.array(vectors.head)}
    if vectors.distances is not None:
        arrays["distances"] = vectors.distances
    return npz(arrays, tokens=vectors.encoding.tokens)


def terms_csv(vectors: HeadVectors, query: int | None = None) -> bytes:
    """Return the terms of the scores of one query, or of all, as a CSV in UTF-8 with a line for each query and key.

    Columns: query_position, query, key_position, key, each term of `HeadVectors.addends`, score (their sum, the input
    of the softmax), attention, in full precision. Raises Refused for a query that does not exist.
    """
    return table_csv(vectors.table() if query is None else vectors.table(query=query))


def terms_npz(vectors: HeadVectors) -> bytes:
    """Return the terms of the scores of a head for all queries, as an NPZ that `numpy.load` reads without pickle.

    Arrays (query, key): each term of `HeadVectors.addends`, scores and attention; tokens, layer, head.
    """
    arrays = {**vectors.addends, "scores": vectors.scores, "attention": vectors.attention}
    arrays |= {"layer": np.array(vectors.layer), "head": np.array(vectors.head)}
    return npz(arrays, tokens=vectors.encoding.tokens)


def labelled_csv(columns: Mapping[str, Iterable[object]]) -> bytes:
    """Return columns of one length, by name, as a CSV in UTF-8; a text that is a formula gets an apostrophe in front.

    Raises ValueError for columns of different lengths.
    """
    rows = zip(*columns.values(), strict=True)
    return _csv(list(columns), ([safe_cell(cell) for cell in row] for row in rows))


def table_csv(table: DataFrame) -> bytes:
    """Return the table of a record as a CSV like `labelled_csv`, with numbers in full precision."""
    return labelled_csv({name: table[name].to_numpy() for name in table.columns})


def npz(arrays: Mapping[str, np.ndarray], **texts: Sequence[str]) -> bytes:
    """Return named arrays and texts as a compressed NPZ that `numpy.load` reads without pickle."""
    out = io.BytesIO()
    np.savez_compressed(out, **arrays, **{name: np.array(list(words)) for name, words in texts.items()})  # type: ignore[arg-type]
    return out.getvalue()


def _csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(names)
    # str() of a NumPy number is the shortest text that reads back as the same float32.
    writer.writerows(rows)
    # A lone half of a surrogate pair has no bytes in UTF-8.
    return out.getvalue().encode("utf-8", "replace")
