"""Measures and points of planes of queries and keys as tables, and in words."""

from __future__ import annotations

from collections.abc import Sequence

from bert_core.records import QueryKeyPlane
from viz_app.export.tables import npz, table_csv

POINT_KINDS = ("csv", "npz")


def plane_columns(planes: Sequence[QueryKeyPlane]) -> dict[str, list[object]]:
    """Return the measures of planes as columns of a table, with one row for each head."""
    return {
        "layer": [plane.layer for plane in planes],
        "head": [plane.head for plane in planes],
        "tokens": [len(plane.labels) for plane in planes],
        "correlation": [plane.correlation for plane in planes],
        "shuffled_correlation": [plane.largest_shuffled_correlation for plane in planes],
        "rotated_correlation": [plane.largest_rotated_correlation for plane in planes],
        "trustworthiness": [plane.trustworthiness for plane in planes],
        "shuffled_trustworthiness": [float(plane.shuffled_trustworthiness.max()) for plane in planes],
        "explained_variance": [plane.explained_variance for plane in planes],
        "scale": [plane.scale for plane in planes],
        "better": [plane.is_better_than_chance for plane in planes],
    }


def points_file(plane: QueryKeyPlane, kind: str) -> bytes:
    """Return the points of a plane as a file. kind: one of `POINT_KINDS`."""
    if kind == "csv":
        return table_csv(plane.table())
    names = ("texts", "positions", "queries", "keys", "shift")
    return npz({name: getattr(plane, name) for name in names}, labels=plane.labels)


def measures_in_words(plane: QueryKeyPlane) -> str:
    """Return a sentence with the correlation and trustworthiness of a plane, of shuffled points and of rotations."""
    shuffled = plane.largest_shuffled_correlation, float(plane.shuffled_trustworthiness.max())
    count = len(plane.shuffled_keys)
    return (
        f"correlation of dot product and nearness {plane.correlation:z.2f} (at most {shuffled[0]:z.2f} with {count} "
        f"shuffles of queries or keys, {plane.largest_rotated_correlation:z.2f} with {len(plane.rotated)} rotations of "
        f"the queries), trustworthiness {plane.trustworthiness:.2f} (at most {shuffled[1]:.2f} with "
        "shuffled points)"
    )


def plane_snippet(plane: QueryKeyPlane, model: str, file: str) -> str:
    """Return Python code that makes a plane. file: name of the file with the texts."""
    return (
        "from pathlib import Path\n\n"
        "import bert_core\n\n"
        f"loaded = bert_core.load({model!r})\n"
        f"(plane,) = bert_core.query_keys_file(Path({file!r}), loaded, [({plane.layer}, {plane.head})])\n"
        "print(plane.correlation, plane.trustworthiness, plane.is_better_than_chance)\n"
        "print(plane.table())\n"
    )
