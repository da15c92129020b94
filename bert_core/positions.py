"""Position schemes: how a model is told where its tokens stand. The same code serves PyTorch and NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

# A tensor or a NumPy array: what is used of them here has the same name and the same result in both libraries.
Array = Any
Heads = Sequence[int] | Sequence[Sequence[int]]


class DistanceScores(ABC):
    """What the distances between tokens add to the scores of self-attention, by a table that is looked up in.

    A distance is the position of the query minus that of the key.

    table: the name of the table within the attention module of a layer.
    one_table: whether all layers share one table.
    divided: whether what is added is divided by the root of the head size, as the dot products are.
    """

    table: ClassVar[str]
    shared_by_layers: ClassVar[bool] = False
    divided: ClassVar[bool] = True

    @abstractmethod
    def table_shape(self, longest: int, heads: int, head_size: int) -> tuple[int, int]:
        """(row, width) of a model for texts of at most `longest` tokens; heads: how many a layer has before pruning."""

    @abstractmethod
    def rows(self, distances: Array, longest: int) -> Array:
        """The row of the table for each distance, in the shape of the distances."""

    @abstractmethod
    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """What is added to each score, (batch, head, query, key).

        query, key: (batch, head, seq, head size). vectors: the rows of the table, (batch, query, key, width).
        heads: the number, before pruning, of each head in `query` and `key`; one list for the whole batch, or one for
            each of its rows. einsum: that of the arrays' library.
        """


class RelativeKey(DistanceScores):
    """The query's product with a vector for the distance (Shaw 2018, arXiv:1803.02155, equation 5)."""

    table = "distance_embedding"

    def table_shape(self, longest: int, heads: int, head_size: int) -> tuple[int, int]:
        """A row for each distance from -(longest - 1) to longest - 1."""
        return 2 * longest - 1, head_size

    def rows(self, distances: Array, longest: int) -> Array:
        """Distance 0 is the middle row."""
        return distances + longest - 1

    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """As declared; all heads have the same vectors."""
        return einsum("bhqd,bqkd->bhqk", query, vectors)


class RelativeKeyQuery(RelativeKey):
    """The products of query and of key with that vector (Huang 2020, arXiv:2009.13658, method 4)."""

    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """As declared; all heads have the same vectors."""
        of_queries = super().scores(query, key, vectors, heads, einsum)
        return of_queries + einsum("bhkd,bqkd->bhqk", key, vectors)


class RelativeBias(DistanceScores):
    """A number for each head and each bucket of distances (Raffel 2020, arXiv:1910.10683, section 2.1).

    Of the 32 buckets 16 are for keys before the query and 16 for those behind it. Distances below 8 have a bucket each;
    from there on a bucket ends where the next begins, at 8 * 2**(n / 2), and the last one has no end.
    MPNet has one table for all layers (Song 2020, arXiv:2004.09297).
    """

    table = "relative_attention_bias"
    shared_by_layers = True
    divided = False
    BUCKET_STARTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)  # of all buckets but the first, without signs

    def table_shape(self, longest: int, heads: int, head_size: int) -> tuple[int, int]:
        """A row for each bucket, those of keys behind the query last."""
        return 2 * (len(self.BUCKET_STARTS) + 1), heads

    def rows(self, distances: Array, longest: int) -> Array:
        """The bucket of each distance."""
        far = abs(distances)
        return sum(far >= beginning for beginning in self.BUCKET_STARTS) + (len(self.BUCKET_STARTS) + 1) * (
            distances < 0
        )

    def scores(self, query: Array, key: Array, vectors: Array, heads: Heads, einsum: Callable[..., Array]) -> Array:
        """As declared; the same for every text."""
        of_all = einsum("bqkh->bhqk", vectors)
        if heads and isinstance(heads[0], int):
            return of_all if len(heads) == vectors.shape[-1] else of_all[:, list(heads)]
        return of_all[[[row] for row in range(len(heads))], heads]


@dataclass(frozen=True)
class PositionScheme:
    """How a model is told where its tokens stand.

    adds_vectors: whether the embeddings add a vector for each position.
    distances: what distances add to the scores of self-attention; None: nothing.
    """

    adds_vectors: bool
    distances: DistanceScores | None = None


# By their names as `position_embedding_type` in a configuration.
POSITION_SCHEMES = MappingProxyType(
    {
        "absolute": PositionScheme(adds_vectors=True),
        "relative_key": PositionScheme(adds_vectors=False, distances=RelativeKey()),
        "relative_key_query": PositionScheme(adds_vectors=False, distances=RelativeKeyQuery()),
        "relative_bias": PositionScheme(adds_vectors=True, distances=RelativeBias()),
    }
)
