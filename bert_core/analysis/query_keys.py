"""Queries and keys of an attention head in one plane, and how well distances there represent dot products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from bert_core.records.base import compared_by_value
from bert_core.refused import MAX_SEED, Refused, check_finite, require_int, validate_arrays

MIN_TEXT_TOKENS = 3  # with fewer keys, a rank correlation says nothing
NEIGHBOURS = 10  # nearest points of a point in the plane, for the trustworthiness
SHUFFLES = 20
ROTATIONS = 20  # a plane above all of them occurs by chance in 1 of 21 heads without a relation


@compared_by_value
class AlignedVectors(NamedTuple):
    """Queries and keys that overlap and give the same attention as the original ones.

    queries, keys: (token, head size) float64. scale, shift: as in `align_queries_keys`.
    """

    queries: np.ndarray
    keys: np.ndarray
    scale: float
    shift: np.ndarray


@compared_by_value
class PlaneFit(NamedTuple):
    """Queries and keys in a plane with its measures; the fields are those of `QueryKeyPlane`."""

    queries: np.ndarray
    keys: np.ndarray
    scale: float
    shift: np.ndarray
    explained_variance: float
    correlation: float
    shuffled_queries: np.ndarray
    shuffled_keys: np.ndarray
    rotated: np.ndarray
    trustworthiness: float
    shuffled_trustworthiness: np.ndarray


@validate_arrays(queries="token dimension", keys="token dimension")
def align_queries_keys(queries: np.ndarray, keys: np.ndarray) -> AlignedVectors:
    """Scale queries and keys to the same spread, and shift the keys to the mean of the queries.

    The attention is unchanged. Queries are multiplied by a number and keys divided by it, so dot products stay equal.
    A vector that is added to all keys adds the same number to all scores of a query, which the softmax cancels.

    queries, keys: (token, head size).
    Returns the aligned vectors.
    Raises Refused if a number is not finite.
    Source: Yeh 2023, AttentionViz (arXiv:2305.03210).

    >>> import bert_core
    >>> aligned = bert_core.align_queries_keys([[0, 0], [4, 0]], [[5, 5], [5, 6]])
    >>> aligned.scale, aligned.queries.tolist(), aligned.keys.tolist()
    (0.5, [[0.0, 0.0], [2.0, 0.0]], [[1.0, -1.0], [1.0, 1.0]])
    """
    check_finite("queries", queries)
    check_finite("keys", keys)
    queries, keys = queries.astype(np.float64), keys.astype(np.float64)
    query_spread, key_spread = np.linalg.norm(queries - queries.mean(0)), np.linalg.norm(keys - keys.mean(0))
    scale = float(np.sqrt(key_spread / query_spread)) if query_spread > 0 and key_spread > 0 else 1.0
    queries, keys = queries * scale, keys / scale
    shift = queries.mean(0) - keys.mean(0)
    return AlignedVectors(queries, keys + shift, scale, shift)


@validate_arrays(
    queries="token dimension", keys="token dimension", texts="token", query_points="token axis", key_points="token axis"
)
def distance_correlation(
    queries: np.ndarray, keys: np.ndarray, texts: np.ndarray, query_points: np.ndarray, key_points: np.ndarray
) -> float:
    """Compute how well distances of points represent the order of the dot products of queries and keys.

    This is the mean over the queries of the Spearman correlation of the dot products with the keys of the same text and
    the negative distances to their points. A query whose dot products or distances are all equal counts as 0. A shift
    of all keys does not change the correlation, because it does not change the order of the keys of a query.

    queries, keys: (token, head size). texts: (token,) number of the text of each token.
    query_points, key_points: (token, 2).
    Returns a number from -1 to 1.
    Raises Refused if a text has fewer than three tokens.
    Source: Yeh 2023, AttentionViz (arXiv:2305.03210), there over the pairs of all queries together.

    >>> from bert_core.analysis.query_keys import distance_correlation
    >>> points = [[3, 0], [2, 0], [0, 1]]
    >>> round(distance_correlation([[1], [1], [1]], [[1], [2], [3]], [0, 0, 0], [[0, 0]] * 3, points), 9)
    1.0
    """
    pairs = _ranked_pairs(queries, keys, texts, query_points, key_points)
    return _mean_product(pairs, lambda distances: distances)


@validate_arrays(vectors="point dimension", points="point axis")
def trustworthiness(vectors: np.ndarray, points: np.ndarray, *, neighbours: int = NEIGHBOURS) -> float:
    """Compute the share of neighbourhoods in a plane that also exist among the original vectors.

    A point that is near another one in the plane but not among the vectors reduces it by its rank there.

    vectors: (point, dimension). points: (point, 2).
    neighbours: number of nearest points that form a neighbourhood.
    Returns a number from 0 to 1. For random points the expected value is about 0.5.
    Raises Refused unless `neighbours` is below half of the number of points.
    Source: Venna 2001, Neighborhood Preservation in Nonlinear Projection Methods (doi:10.1007/3-540-44668-0_68).

    >>> from bert_core.analysis.query_keys import trustworthiness
    >>> trustworthiness([[0, 0, 0], [1, 0, 0], [3, 0, 0], [7, 0, 0]], [[0, 0], [1, 0], [3, 0], [7, 0]], neighbours=1)
    1.0
    """
    neighbours = require_int("neighbours", neighbours, 1)
    _check_neighbours(len(points), neighbours)
    return _trust(_sorted_distances(vectors), _nearest(points, neighbours), np.arange(len(points)))


@validate_arrays(queries="token dimension", keys="token dimension", texts="token")
def query_key_plane(
    queries: np.ndarray,
    keys: np.ndarray,
    texts: np.ndarray,
    *,
    shuffles: int = SHUFFLES,
    rotations: int = ROTATIONS,
    seed: int = 0,
) -> PlaneFit:
    """Project the queries and keys of a head onto one plane, and measure how well it represents their dot products.

    Queries and keys are aligned as by `align_queries_keys`. The plane has their first two principal components. The
    measures are `distance_correlation`, and `trustworthiness` of all points together. They are compared with shuffled
    points. Shuffled queries keep whether a key has large dot products with all queries; shuffled keys do not.

    Principal components represent some of the dot products of any two clouds of vectors, also of unrelated ones. The
    correlation is therefore compared also with planes that are fitted to rotated queries: their deviations from their
    mean are multiplied by a random orthogonal matrix. This keeps the variances of queries and of keys and the keys that
    are popular with all queries, and no other relation between queries and keys. With a head size of two, every plane
    is exact, and so is that of rotated queries.

    queries, keys: (token, head size). texts: (token,) number of the text of each token.
    shuffles: number of permutations. rotations: number of rotations; with 20, an unrelated correlation is above all of
        them with a probability of 1/21. seed: random seed of both.
    Returns the points and measures.
    Raises Refused if a number is not finite, and if a text has fewer than three tokens.
    Source: Yeh 2023, AttentionViz (arXiv:2305.03210).

    >>> import bert_core
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> directions = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 8))
    >>> fit = bert_core.query_key_plane(directions, directions, np.repeat([0, 1, 2], 20))
    >>> bool(fit.correlation > fit.shuffled_queries.max()), bool(fit.correlation > fit.rotated.max())
    (True, True)
    """
    shuffles = require_int("shuffles", shuffles, 1, 10_000)
    rotations = require_int("rotations", rotations, 1, 10_000)
    rng = np.random.default_rng(require_int("seed", seed, 0, MAX_SEED))
    aligned = align_queries_keys(queries, keys)
    vectors = np.concatenate([aligned.queries, aligned.keys])  # (2 * token, head size)
    points, variance = _principal_points(vectors)
    query_points, key_points = points[: len(queries)], points[len(queries) :]
    pairs = _ranked_pairs(aligned.queries, aligned.keys, texts, query_points, key_points)
    neighbours = min(NEIGHBOURS, (len(points) - 1) // 2)
    distances, nearest = _sorted_distances(vectors), _nearest(points, neighbours)
    return PlaneFit(
        query_points,
        key_points,
        aligned.scale,
        aligned.shift,
        variance,
        _mean_product(pairs, lambda distances: distances),
        np.array([_mean_product(pairs, rng.permutation) for _ in range(shuffles)]),
        np.array([_mean_product(pairs, lambda values: rng.permutation(values, axis=1)) for _ in range(shuffles)]),
        np.array([_rotated_correlation(aligned, texts, rng) for _ in range(rotations)]),
        _trust(distances, nearest, np.arange(len(points))),
        np.array([_trust(distances, nearest, rng.permutation(len(points))) for _ in range(shuffles)]),
    )


def _rotated_correlation(aligned: AlignedVectors, texts: np.ndarray, rng: np.random.Generator) -> float:
    """Return the correlation of a plane that is fitted to queries rotated at random about their mean, and to keys."""
    mean = aligned.queries.mean(0)
    queries = (aligned.queries - mean) @ _random_rotation(len(mean), rng) + mean
    points, _ = _principal_points(np.concatenate([queries, aligned.keys]))
    return distance_correlation(queries, aligned.keys, texts, points[: len(queries)], points[len(queries) :])


def _random_rotation(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random orthogonal matrix, (size, size), uniformly distributed (Mezzadri 2007, math-ph/0609050)."""
    axes, triangle = np.linalg.qr(rng.standard_normal((size, size)))
    rotation: np.ndarray = axes * np.sign(np.diag(triangle))
    return rotation


def _principal_points(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Return vectors projected onto their first two principal components, and the share of the variance there."""
    centred = vectors - vectors.mean(0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1].T[:2]  # largest variance first
    # The sign of an axis is arbitrary: its largest component is positive.
    axes = axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(1)[:, None], 1))
    points = np.zeros((len(vectors), 2))
    points[:, : len(axes)] = centred @ axes.T
    total = (centred**2).sum()
    return points, float((points**2).sum() / total) if total > 0 else 0.0


def _ranked_pairs(
    queries: np.ndarray, keys: np.ndarray, texts: np.ndarray, query_points: np.ndarray, key_points: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the standardised ranks of dot products and of negative distances, (query, key) each, for each text."""
    pairs = []
    for text in np.unique(texts):
        rows = np.flatnonzero(texts == text)
        if len(rows) < MIN_TEXT_TOKENS:
            raise Refused(f"text {text:g} has {len(rows)} tokens: each text needs at least {MIN_TEXT_TOKENS}")
        scores = queries[rows].astype(np.float64) @ keys[rows].astype(np.float64).T
        pairs.append((_ranked(scores), _ranked(-cdist(query_points[rows], key_points[rows]))))
    return pairs


def _ranked(values: np.ndarray) -> np.ndarray:
    """Return the ranks in each row with mean 0 and length 1; all 0 for equal values."""
    ranks = rankdata(values, axis=1)
    ranks -= ranks.mean(1, keepdims=True)
    lengths = np.linalg.norm(ranks, axis=1, keepdims=True)
    ranked: np.ndarray = ranks / np.where(lengths > 0, lengths, 1)
    return ranked


def _mean_product(pairs: list[tuple[np.ndarray, np.ndarray]], rearrange: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the mean correlation over all queries, after the ranks of the distances of each text are rearranged."""
    total = sum(float((scores * rearrange(distances)).sum()) for scores, distances in pairs)
    return total / sum(len(scores) for scores, _ in pairs)


def _check_neighbours(points: int, neighbours: int) -> None:
    if 2 * neighbours >= points:
        raise Refused(f"neighbours is {neighbours}: it must be below half of the {points} points")


def _sorted_distances(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of all pairs of vectors, (point, point), and the same with each row sorted."""
    distances = cdist(vectors, vectors)
    np.fill_diagonal(distances, -1)  # a vector is not its own neighbour: rank 0
    return distances, np.sort(distances, axis=1)


def _nearest(points: np.ndarray, neighbours: int) -> np.ndarray:
    """Return the nearest other points of each point, (point, neighbour)."""
    distances = cdist(points, points)
    np.fill_diagonal(distances, np.inf)
    nearest: np.ndarray = distances.argpartition(neighbours - 1, axis=1)[:, :neighbours]
    return nearest


def _trust(distances: tuple[np.ndarray, np.ndarray], nearest: np.ndarray, order: np.ndarray) -> float:
    """Return the trustworthiness of a plane in which vector `order[i]` is at point i.

    distances: of `_sorted_distances`. nearest: (point, neighbour). order: (point,).
    """
    count, neighbours = nearest.shape
    values = distances[0][order[:, None], order[nearest]]
    ranks = [np.searchsorted(distances[1][row], row_values) for row, row_values in zip(order, values, strict=True)]
    excess = float(np.maximum(np.stack(ranks) - neighbours, 0).sum())
    return float(1 - 2 * excess / (count * neighbours * (2 * count - 3 * neighbours - 1)))
