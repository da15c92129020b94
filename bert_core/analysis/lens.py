"""What the layers say, in arrays: when a word is settled, states in the plane, and how alike one word's states are."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from bert_core.progress import Progress, ignore_progress
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, check_finite, require_int, validate_arrays

MAX_SEED = 2**32 - 1  # that umap-learn takes
MAX_NEIGHBOURS = 15  # of a token, that a layout by neighbours keeps near it


@validate_arrays(ranks="depth seq")
def settled_depth(ranks: np.ndarray) -> np.ndarray:
    """From which depth on the last depth's first piece stays the first.

    ranks: (depth, seq), of that piece; 1 at the last depth. Returns (seq,) integers.
    Raises Refused if a rank at the last depth is not 1.
    """
    if (ranks[-1] != 1).any():
        raise Refused("at the last depth its own first piece has rank 1: these are ranks of another piece")
    not_first = ranks != 1
    last = len(ranks) - 1 - not_first[::-1].argmax(0)
    settled: np.ndarray = np.where(not_first.any(0), last + 1, 0)
    return settled


@compared_by_value
class Plane(NamedTuple):
    """Points (depth, seq, 2), and for each depth which share of its variance the two axes show (depth,), 0 to 1."""

    points: np.ndarray
    explained_variance: np.ndarray


@validate_arrays(states="depth seq hidden")
def states_in_plane(states: np.ndarray) -> Plane:
    """The states of every depth on the two axes of their own largest variance.

    states: (depth, seq, hidden). Each depth is centred, and divided by the root of its mean squared length, since
    states grow with depth; its plane is turned, and mirrored if need be, to lie as near as it can to the one before,
    so that a token can be followed from picture to picture.
    Raises Refused for fewer than two positions, or a number that is not finite.
    Source: Pearson 1901; the turning: Schoenemann 1966 (orthogonal Procrustes).
    """
    depths, length, _ = states.shape
    if length < 2:
        raise Refused(f"{length} position: a map needs at least two")
    check_finite("states", states)
    centred = states.astype(np.float64) - states.mean(1, keepdims=True, dtype=np.float64)
    size = np.sqrt((centred**2).sum(-1).mean(-1))
    points = np.zeros((depths, length, 2))
    for depth in np.nonzero(size > 0)[0]:
        scaled = centred[depth] / size[depth]
        axes = np.linalg.svd(scaled, full_matrices=False)[2][:2]  # (2 or, in one dimension, 1, hidden)
        points[depth, :, : len(axes)] = scaled @ axes.T
        if depth:
            one, _, other = np.linalg.svd(points[depth].T @ points[depth - 1])
            points[depth] = points[depth] @ (one @ other)
    return Plane(points.astype(np.float32), (points**2).sum(-1).mean(-1).astype(np.float32))


@validate_arrays(states="depth seq hidden")
def neighbours_in_plane(states: np.ndarray, *, seed: int = 0, report: Progress = ignore_progress) -> np.ndarray:
    """The states of every depth laid out so that near ones stay near: UMAP, by the angle between states.

    states: (depth, seq, hidden). Each depth begins where the one before it came to rest, so that a token can be
    followed; the first begins on its principal axes. Each is centred, its mean squared distance from there 1; over all
    of them the first axis is the longer.
    seed: of its random choices. report: as for `Progress`.
    Returns (depth, seq, 2) float32. Raises Refused for fewer than four positions, a number that is not finite, or a
    seed above 2**32 - 1; ModuleNotFoundError where umap-learn is not installed.
    Source: McInnes et al. 2018 (arXiv:1802.03426).
    """
    depths, length, _ = states.shape
    seed = require_int("seed", seed, 0, MAX_SEED)
    if length < 4:
        raise Refused(f"the text has {length} tokens: a layout by neighbours needs at least four")
    check_finite("states", states)
    # Imported here: it is an extra, and compiles itself when it is first used.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # of what it could do besides with tensorflow
        from umap import UMAP

    # A start without any spread on an axis would be divided by it.
    jitter = 1e-4 * np.random.default_rng(seed).standard_normal((length, 2))
    before = states_in_plane(states[:1]).points[0]
    points = np.empty((depths, length, 2), np.float32)
    for depth, one in enumerate(states):
        neighbours = min(MAX_NEIGHBOURS, length - 1)
        layout = UMAP(n_neighbors=neighbours, metric="cosine", init=before + jitter, random_state=seed, n_jobs=1)
        laid_out = layout.fit_transform(one)
        laid_out = laid_out - laid_out.mean(0)
        before = points[depth] = laid_out / max(np.sqrt((laid_out**2).sum(-1).mean()), 1e-12)
        report((depth + 1) / depths)
    # All depths turned alike: the first axis is the longer one.
    turned: np.ndarray = points @ np.linalg.svd(points.reshape(-1, 2), full_matrices=False)[2].T
    return turned


@validate_arrays(vectors="depth occurrence hidden")
def cosine_similarities(vectors: np.ndarray) -> np.ndarray:
    """How alike the directions of some states are, depth by depth, from -1 to 1.

    vectors: (depth, occurrence, hidden). Returns (depth, occurrence, occurrence), 1 on the diagonal; a vector of
    length 0 is like nothing, 0.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    similarity: np.ndarray = np.clip(unit @ unit.swapaxes(-1, -2), -1, 1)
    return similarity


@validate_arrays(vectors="depth some hidden")
def mean_similarity(vectors: np.ndarray) -> np.ndarray:
    """Mean cosine of two different vectors, depth by depth: what two states have in common whatever they stand for.

    vectors: (depth, some, hidden), at least two. Returns (depth,). Raises Refused for fewer.
    Source: Ethayarajh 2019, section 3.3 (arXiv:1909.00512).
    """
    count = vectors.shape[1]
    if count < 2:
        raise Refused(f"there is {count} vector: it takes two to be alike")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    # The sum over all pairs is the squared length of the sum; the pairs of a vector with itself go.
    together = (unit.sum(1) ** 2).sum(-1) - (unit**2).sum((-1, -2))
    mean: np.ndarray = together / (count * (count - 1))
    return mean
