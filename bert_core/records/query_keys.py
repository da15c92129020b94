"""Queries and keys of an attention head over several texts, projected onto one plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular


@compared_by_value
@dataclass(frozen=True, kw_only=True)
class QueryKeyPlane(Tabular):
    """The queries and keys of one attention head for the tokens of several texts, in one plane.

    labels: (token,) the tokens. texts, positions: (token,) integers, the number of the text of each token and its
        position there. The number is an index of the encodings, or of a file the number of the line from 0; in a table
        the number of the row.
    queries, keys: (token, 2), points of the plane.
    scale, shift: each query is multiplied by `scale`; each key is divided by it, and `shift`, (head size,), is added.
    explained_variance: share of the variance that the plane explains, 0 to 1.
    correlation: mean over the queries of the rank correlation of the dot products with the keys of the same text and
        the negative distances to them in the plane, -1 to 1.
    shuffled_queries, shuffled_keys: (shuffle,), the correlation with the points of queries, or keys, of each text
        permuted.
    rotated: (rotation,), the correlation of planes that are fitted to randomly rotated queries and the same keys.
    trustworthiness: share of neighbourhoods in the plane that also exist in the head, 0 to 1.
    shuffled_trustworthiness: (shuffle,), the same with all points permuted.
    """

    layer: int
    head: int
    labels: tuple[str, ...] = field(repr=False)
    texts: np.ndarray = field(repr=False)
    positions: np.ndarray = field(repr=False)
    queries: np.ndarray = field(repr=False)
    keys: np.ndarray = field(repr=False)
    scale: float
    shift: np.ndarray = field(repr=False)
    explained_variance: float
    correlation: float
    shuffled_queries: np.ndarray = field(repr=False)
    shuffled_keys: np.ndarray = field(repr=False)
    rotated: np.ndarray = field(repr=False)
    trustworthiness: float
    shuffled_trustworthiness: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def largest_shuffled_correlation(self) -> float:
        """The largest correlation with shuffled queries or keys."""
        return float(max(self.shuffled_queries.max(), self.shuffled_keys.max()))

    @property
    def largest_rotated_correlation(self) -> float:
        """The largest correlation of planes that are fitted to rotated queries."""
        return float(self.rotated.max())

    @property
    def is_better_than_chance(self) -> bool:
        """Whether the correlation is larger than any shuffled or rotated one, and the trustworthiness than shuffled."""
        largest = max(self.largest_shuffled_correlation, self.largest_rotated_correlation)
        return self.correlation > largest and self.trustworthiness > float(self.shuffled_trustworthiness.max())

    def _tables(self) -> Tables:
        points = {"query_x": self.queries[:, 0], "query_y": self.queries[:, 1]}
        points |= {"key_x": self.keys[:, 0], "key_y": self.keys[:, 1]}
        shuffled = ("shuffled_queries", "shuffled_keys", "shuffled_trustworthiness")
        return (
            ("token", points),
            ("shuffle", {name: name for name in shuffled}),
            ("rotation", {"rotated": "rotated"}),
            ("dimension", {"shift": "shift"}),
        )

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        if axis != "token":
            return super()._axis_columns(axis, size, axes)
        return {"token": range(size), "label": self.labels, "text": self.texts, "position": self.positions}
