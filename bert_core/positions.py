"""Position schemes: how a model represents the positions of its tokens. The code works for PyTorch and NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

# A tensor or a NumPy array. This module uses only operations that both libraries have under one name.
Array = Any
Heads = Sequence[int] | Sequence[Sequence[int]]


class DistanceScores(ABC):
    """Terms that depend on the distance between two tokens, added to the scores of self-attention.

    The distance is the position of the query minus the position of the key. A table has the parameters.

    table: name of the table within the attention module of a layer.
    shared_by_layers: whether all layers share one table.
    scaled: whether the terms are divided by the square root of the head size, as the dot products are.
    """

    table: ClassVar[str]
    shared_by_layers: ClassVar[bool] = False
    scaled: ClassVar[bool] = True

    @abstractmethod
    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return the shape of the table, (row, width).

        max_length: maximum number of tokens. heads: number of heads in a layer before pruning.
        """

    @abstractmethod
    def rows(self, distances: Array, max_length: int) -> Array:
        """Return the row of the table for each distance, in the shape of `distances`."""

    @abstractmethod
    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """Return the term for each attention score, (batch, head, query, key).

        query, key: (batch, head, seq, head size).
        vectors: rows of the table, (batch, query, key, width).
        heads: number before pruning of each head in `query` and `key`, as one list for the batch or one for each of
            its rows.
        einsum: function of the arrays' library.
        """


class RelativeKey(DistanceScores):
    """Dot product of the query with a vector for the distance (Shaw 2018, arXiv:1803.02155, equation 5)."""

    table = "distance_embedding"

    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return (row, head size), with one row for each distance from -(max_length - 1) to max_length - 1."""
        return 2 * max_length - 1, head_size

    def rows(self, distances: Array, max_length: int) -> Array:
        """Return the row of each distance; distance 0 has the middle row."""
        return distances + max_length - 1

    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """Return the dot products, (batch, head, query, key); all heads use the same vectors."""
        return einsum("bhqd,bqkd->bhqk", query, vectors)


class RelativeKeyQuery(RelativeKey):
    """Dot products of the query and of the key with the vector (Huang 2020, arXiv:2009.13658, method 4)."""

    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """Return the sums of both dot products, (batch, head, query, key); all heads use the same vectors."""
        query_scores = super().scores(query, key, vectors, heads, einsum)
        return query_scores + einsum("bhkd,bqkd->bhqk", key, vectors)


class RelativeBias(DistanceScores):
    """A bias for each head and each bucket of distances (Raffel 2020, arXiv:1910.10683, section 2.1).

    There are 16 buckets for keys before the query and 16 for keys after it. Each distance below 8 has its own bucket.
    From 8 on, a bucket starts at each 8 * 2**(n / 2), rounded up, and the last bucket is unbounded.
    MPNet has one table for all layers (Song 2020, arXiv:2004.09297).
    """

    table = "relative_attention_bias"
    shared_by_layers = True
    scaled = False
    BUCKET_STARTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)  # absolute distances; the first bucket is 0

    def table_shape(self, max_length: int, heads: int, head_size: int) -> tuple[int, int]:
        """Return (bucket, head); the buckets of keys after the query come last."""
        return 2 * (len(self.BUCKET_STARTS) + 1), heads

    def rows(self, distances: Array, max_length: int) -> Array:
        """Return the bucket of each distance."""
        magnitudes = abs(distances)
        buckets = sum(magnitudes >= start for start in self.BUCKET_STARTS)
        return buckets + (len(self.BUCKET_STARTS) + 1) * (distances < 0)

    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """Return the biases, (batch, head, query, key); they do not depend on the text."""
        biases = einsum("bqkh->bhqk", vectors)
        if heads and isinstance(heads[0], int):
            return biases if len(heads) == vectors.shape[-1] else biases[:, list(heads)]
        return biases[[[row] for row in range(len(heads))], heads]


@dataclass(frozen=True)
class PositionScheme:
    """How a model represents the positions of its tokens.

    adds_vectors: whether the embeddings include a vector for each position.
    distances: terms that self-attention adds to its scores for distances; None for none.
    """

    adds_vectors: bool
    distances: DistanceScores | None = None


# The keys are the values of `position_embedding_type` in a configuration.
POSITION_SCHEMES = MappingProxyType(
    {
        "absolute": PositionScheme(adds_vectors=True),
        "relative_key": PositionScheme(adds_vectors=False, distances=RelativeKey()),
        "relative_key_query": PositionScheme(adds_vectors=False, distances=RelativeKeyQuery()),
        "relative_bias": PositionScheme(adds_vectors=True, distances=RelativeBias()),
    }
)
