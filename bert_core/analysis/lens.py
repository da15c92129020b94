"""Analysis of layers: the depth at which a prediction settles, hidden states in a plane, and similarities of states."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from bert_core.deprecation import renamed_fields
from bert_core.progress import Progress, ignore_progress
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, check_finite, require_int, validate_arrays

MAX_SEED = 2**32 - 1  # largest seed that umap-learn accepts
MAX_NEIGHBOURS = 15  # number of neighbours that UMAP keeps close to each token


@validate_arrays(ranks="depth seq")
def settled_depth(ranks: np.ndarray) -> np.ndarray:
    """Return the depth from which the top prediction of the last depth stays the top prediction.

    ranks: (depth, seq), rank at each depth of the token that is first at the last depth.
    Returns (seq,) integers.
    Raises Refused if a rank at the last depth is not 1.
    """
    if (ranks[-1] != 1).any():
        raise Refused(
            f"a rank at the last depth is {ranks[-1].max():g}: these must be ranks of the token that is first there"
        )
    not_first = ranks != 1
    last = len(ranks) - 1 - not_first[::-1].argmax(0)
    settled: np.ndarray = np.where(not_first.any(0), last + 1, 0)
    return settled


@renamed_fields(shown="explained_variance")
@compared_by_value
class Plane(NamedTuple):
    """Projection of the hidden states of each depth onto a plane.

    points: (depth, seq, 2).
    explained_variance: (depth,), share of the variance that the two axes explain, 0 to 1.
    """

    points: np.ndarray
    explained_variance: np.ndarray


@validate_arrays(states="depth seq hidden")
def states_in_plane(states: np.ndarray) -> Plane:
    """Project the states of each depth onto their first two principal components.

    Each depth is centred and divided by its root mean squared norm, because norms grow with depth. The plane of each
    depth is rotated or mirrored to match the previous depth, so that a token can be followed from depth to depth.

    states: (depth, seq, hidden).
    Raises Refused if there are fewer than two positions, or a number is not finite.
    Source: Pearson 1901. The rotation is orthogonal Procrustes (Schoenemann 1966).
    """
    depths, length, _ = states.shape
    if length < 2:
        raise Refused(f"the number of positions is {length}: a projection needs at least two")
    check_finite("states", states)
    centred = states.astype(np.float64) - states.mean(1, keepdims=True, dtype=np.float64)
    size = np.sqrt((centred**2).sum(-1).mean(-1))
    points = np.zeros((depths, length, 2))
    for depth in np.nonzero(size > 0)[0]:
        scaled = centred[depth] / size[depth]
        axes = np.linalg.svd(scaled, full_matrices=False)[2][:2]  # (2, hidden), or (1, hidden) if hidden is 1
        points[depth, :, : len(axes)] = scaled @ axes.T
        if depth:
            left, _, right = np.linalg.svd(points[depth].T @ points[depth - 1])
            points[depth] = points[depth] @ (left @ right)
    return Plane(points.astype(np.float32), (points**2).sum(-1).mean(-1).astype(np.float32))


@validate_arrays(states="depth seq hidden")
def neighbours_in_plane(states: np.ndarray, *, seed: int = 0, report: Progress = ignore_progress) -> np.ndarray:
    """Lay out the states of each depth in a plane with UMAP, using the cosine distance.

    The layout of each depth starts from that of the previous depth, so that a token can be followed from depth to
    depth. The first depth starts from its principal components. Each layout is centred and has a mean squared norm of
    1. All layouts are rotated so that the first axis has the largest variance.

    states: (depth, seq, hidden).
    seed: random seed.
    report: called with the progress (`Progress`).
    Returns (depth, seq, 2) float32.
    Raises Refused if there are fewer than four positions, a number is not finite, or the seed is above 2**32 - 1.
    Raises ModuleNotFoundError if umap-learn is not installed.
    Source: McInnes et al. 2018 (arXiv:1802.03426).
    """
    depths, length, _ = states.shape
    seed = require_int("seed", seed, 0, MAX_SEED)
    if length < 4:
        raise Refused(f"the text has {length} tokens: a layout by neighbours needs at least four")
    check_finite("states", states)
    # Imported here because it is an optional dependency and compiles code when it is first imported.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # about the optional TensorFlow support
        from umap import UMAP

    # UMAP divides by the spread of the initial positions on each axis, which must not be 0.
    jitter = 1e-4 * np.random.default_rng(seed).standard_normal((length, 2))
    previous = states_in_plane(states[:1]).points[0]
    points = np.empty((depths, length, 2), np.float32)
    for depth, depth_states in enumerate(states):
        neighbours = min(MAX_NEIGHBOURS, length - 1)
        umap = UMAP(n_neighbors=neighbours, metric="cosine", init=previous + jitter, random_state=seed, n_jobs=1)
        layout = umap.fit_transform(depth_states)
        layout = layout - layout.mean(0)
        previous = points[depth] = layout / max(np.sqrt((layout**2).sum(-1).mean()), 1e-12)
        report((depth + 1) / depths)
    # One rotation for all depths: the first axis has the largest variance.
    rotated: np.ndarray = points @ np.linalg.svd(points.reshape(-1, 2), full_matrices=False)[2].T
    return rotated


@validate_arrays(vectors="depth occurrence hidden")
def cosine_similarities(vectors: np.ndarray) -> np.ndarray:
    """Compute the cosine similarity of each pair of vectors at each depth.

    vectors: (depth, occurrence, hidden).
    Returns (depth, occurrence, occurrence), -1 to 1, with 1 on the diagonal. A zero vector has similarity 0 to all.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    similarity: np.ndarray = np.clip(unit @ unit.swapaxes(-1, -2), -1, 1)
    return similarity


@validate_arrays(vectors="depth vector hidden")
def mean_similarity(vectors: np.ndarray) -> np.ndarray:
    """Compute the mean cosine similarity of two different vectors at each depth, a measure of anisotropy.

    vectors: (depth, vector, hidden), at least two vectors.
    Returns (depth,), -1 to 1.
    Raises Refused if there are fewer than two vectors.
    Source: Ethayarajh 2019, section 3.3 (arXiv:1909.00512).
    """
    count = vectors.shape[1]
    if count < 2:
        raise Refused(f"the number of vectors is {count}: a similarity needs at least two")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    # The squared norm of the sum is the sum over all pairs. Subtract the pairs of a vector with itself.
    pair_sum = (unit.sum(1) ** 2).sum(-1) - (unit**2).sum((-1, -2))
    mean: np.ndarray = pair_sum / (count * (count - 1))
    return mean
