"""Linear probes: how well a label can be predicted from hidden states, with control tasks and code lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from bert_core.records import ProbePoint
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.refused import (
    Refused,
    check_finite,
    require_float,
    require_instances,
    require_int,
    require_sequence,
    short_repr,
    validate_arrays,
)

# Ends of the blocks of the online code as shares of the words: Voita & Titov 2020, section 2.2.2.
ONLINE_SHARES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
PENALTY = 10.0  # suits some hundred states of a base model: lower values overfit, higher ones underfit small samples
MAX_STEPS = 1000
MAX_CLASSES = 10_000


@compared_by_value
@dataclass(frozen=True)
class Probe:
    """Multinomial logistic regression. The logits of a state are the state times `weights`, plus `bias`.

    weights: (hidden, label). bias: (label,).
    """

    weights: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    def log_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Compute the log-probability of every label, (word, label), in nats. states: (word, hidden)."""
        logits = states @ self.weights + self.bias
        log_probabilities: np.ndarray = logits - logsumexp(logits, axis=1, keepdims=True)
        return log_probabilities

    def accuracy(self, states: np.ndarray, labels: np.ndarray) -> float:
        """Compute the share of words (word, hidden) whose most probable label equals that in labels (word,)."""
        return float((self.log_probabilities(states).argmax(1) == labels).mean())


@validate_arrays(states="word hidden", labels="word")
def fit_probe(
    states: np.ndarray, labels: np.ndarray, classes: int, *, penalty: float = PENALTY, tolerance: float = 1e-6
) -> Probe:
    """Fit a linear probe, a multinomial logistic regression with an L2 penalty, that predicts labels from states.

    states: (word, hidden).
    labels: (word,), integers from zero.
    classes: number of labels. A label without words gets a small probability.
    penalty: half of it times the sum of the squared weights (of states scaled to mean 0 and variance 1) and squared
        biases is added to the summed loss in nats.
    tolerance: the optimisation ends when a step gains less than this share of the loss.
    Raises Refused if a label is not an integer from 0 to classes - 1, or a state is not finite.

    >>> import numpy as np
    >>> import bert_core
    >>> labels = np.arange(200) % 2
    >>> states = np.random.default_rng(0).normal(size=(200, 8)) + labels[:, None]
    >>> probe = bert_core.fit_probe(states[:100], labels[:100], classes=2)
    >>> probe.weights.shape, probe.accuracy(states[100:], labels[100:]) > 0.8
    ((8, 2), True)
    """
    classes, penalty = require_int("classes", classes, 1, MAX_CLASSES), require_float("penalty", penalty, 1e-6)
    tolerance = require_float("tolerance", tolerance, 0)
    numbers = check_labels(labels, classes)
    check_finite("states", states)
    mean, size = states.mean(0), states.std(0)
    size[size == 0] = 1
    # Preconditioning: along the principal axes, and scaled by the variance of each label, the curvature of the loss is
    # similar in all directions. L-BFGS then needs a tenth of the steps and finds the same minimum.
    scaled = np.concatenate([(states - mean) / size, np.ones_like(states[:, :1])], axis=1)
    lengths, axes = np.linalg.eigh((scaled.T @ scaled).astype(np.float64))
    rotated = scaled @ axes.astype(states.dtype)
    frequencies = np.bincount(numbers, minlength=classes) / len(numbers)
    variances = np.maximum(frequencies * (1 - frequencies), 1 / len(numbers))
    curvature = np.maximum(lengths, 0)[:, None] * variances + penalty
    scale = 1 / np.sqrt(curvature)
    rows = np.arange(len(numbers))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(scale.shape) * scale
        logits = rotated @ weights.astype(states.dtype)
        logits -= logits.max(1, keepdims=True)
        label_logits = logits[rows, numbers]
        np.exp(logits, out=logits)
        totals = logits.sum(1, keepdims=True)
        logits /= totals
        logits[rows, numbers] -= 1
        gradient = (rotated.T @ logits) + penalty * weights
        value = (np.log(totals[:, 0]) - label_logits).sum(dtype=np.float64) + penalty / 2 * (weights**2).sum()
        return value / len(numbers), (gradient * scale).ravel() / len(numbers)

    result = minimize(
        loss, np.zeros(scale.size), jac=True, method="L-BFGS-B",
        options={"maxiter": MAX_STEPS, "maxcor": 20, "ftol": tolerance, "gtol": 0},
    )  # fmt: skip
    weights = axes @ (result.x.reshape(scale.shape) * scale)
    unscaled = weights[:-1] / size[:, None]
    return Probe(unscaled, weights[-1] - mean @ unscaled)


@validate_arrays(labels="word", types="word")
def control_labels(labels: np.ndarray, types: np.ndarray, seed: int = 0) -> np.ndarray:
    """Draw a random label for each word type, with the frequencies of the given labels (control task).

    Hidden states contain no information about these labels except the word type. A probe that predicts them has
    memorised the word types.

    labels: (word,), integers from zero.
    types: (word,), any number for each word type.
    seed: random seed.
    Returns (word,). Words of the same type have the same label.
    Raises Refused if a label is not an integer from zero.
    Source: Hewitt & Liang 2019, section 2 (arXiv:1909.03368).
    """
    numbers, type_numbers = check_labels(labels), np.unique(types, return_inverse=True)[1]
    frequencies = np.bincount(numbers) / len(numbers)
    generator = np.random.default_rng(require_int("seed", seed))
    type_labels = generator.choice(len(frequencies), type_numbers.max() + 1, p=frequencies)
    word_labels: np.ndarray = type_labels[type_numbers]
    return word_labels


@validate_arrays(labels="word", types="word")
def lookup(labels: np.ndarray, types: np.ndarray, train_count: int) -> tuple[float, float]:
    """Compute the accuracy of two baselines that do not use hidden states: majority class and lookup by word type.

    labels: (word,), integers from zero.
    types: (word,), any number for each word type.
    train_count: the first `train_count` words determine the frequencies, the others are predicted. A word type without
        training words gets the majority class.
    Returns the accuracy of the majority class and that of the most frequent label of each word type, 0 to 1.
    Raises Refused if a label is not an integer from zero, or no word is left to predict.
    """
    numbers, type_numbers = check_labels(labels), np.unique(types, return_inverse=True)[1]
    train_count = require_int("train_count", train_count, 1, len(numbers) - 1)
    table = np.zeros((type_numbers.max() + 1, numbers.max() + 1))
    np.add.at(table, (type_numbers[:train_count], numbers[:train_count]), 1)
    frequencies = table.sum(0)
    table += frequencies / (2 * frequencies.sum())  # decides for types without labels or with equally frequent ones
    test_labels = numbers[train_count:]
    predictions = table.argmax(1)[type_numbers[train_count:]]
    return float((test_labels == frequencies.argmax()).mean()), float((predictions == test_labels).mean())


@validate_arrays(states="word hidden", labels="word")
def code_lengths(
    states: np.ndarray, labels: np.ndarray, classes: int, ends: Sequence[int], *, penalty: float = PENALTY
) -> tuple[float, float]:
    """Compute the online code length of the labels given the hidden states, and the uniform code length.

    The first block is encoded with uniform probabilities, each later one with a probe trained on all previous blocks.
    The code length therefore includes the cost of learning the probe.

    states: (word, hidden), in the order of transmission.
    labels: (word,), integers from zero. classes: number of labels.
    ends: ends of the blocks, rising, up to the number of words.
    penalty: L2 penalty of the probes, as in `fit_probe`.
    Returns both code lengths in bits.
    Raises Refused if the labels, states or ends are not valid.
    Source: Voita & Titov 2020, section 2.2.2 (arXiv:2003.12298).
    """
    numbers, classes = check_labels(labels, classes), require_int("classes", classes, 1, MAX_CLASSES)
    stops = [require_int("an end", end, 1, len(numbers)) for end in require_sequence("ends", ends, "whole numbers")]
    if not stops or stops != sorted(set(stops)) or stops[-1] != len(numbers):
        raise Refused(f"the ends are {short_repr(stops)}: they must rise up to {len(numbers)}, the number of words")
    uniform = len(numbers) * np.log2(classes)
    bits = stops[0] * np.log2(classes)
    for start, stop in pairwise(stops):
        probe = fit_probe(states[:start], numbers[:start], classes, penalty=penalty)
        log_probabilities = probe.log_probabilities(states[start:stop])
        bits -= log_probabilities[np.arange(stop - start), numbers[start:stop]].sum(dtype=np.float64) / np.log(2)
    return float(bits), float(uniform)


class ProbeDepth(NamedTuple):
    """Summary over the seeds of all probes at one depth.

    depth: 0 for the embeddings, n + 1 for the output of layer n.
    seeds: number of seeds.
    figures: name of a number of `ProbePoint` -> (mean, minimum, maximum). NaN if it was not computed.
    """

    depth: int
    seeds: int
    figures: dict[str, tuple[float, float, float]]


FIGURES = (
    *("accuracy", "majority", "lookup", "control", "selectivity", "compression", "control_compression", "bits"),
    *("control_bits", "uniform_bits", "erased", "rank", "loss", "loss_erased", "loss_random", "guessed"),
    *("guessed_erased", "guessed_random"),
)


def probe_depths(points: Iterable[ProbePoint]) -> list[ProbeDepth]:
    """Summarise probes by depth, the lowest depth first. Raises Refused if an item is not a `ProbePoint`."""
    by_depth: dict[int, list[ProbePoint]] = {}
    for point in require_instances("points", points, ProbePoint):
        by_depth.setdefault(point.depth, []).append(point)
    summaries = []
    for depth, depth_points in sorted(by_depth.items()):
        columns = {name: np.array([getattr(point, name) for point in depth_points]) for name in FIGURES}
        figures = {name: (float(v.mean()), float(v.min()), float(v.max())) for name, v in columns.items()}
        summaries.append(ProbeDepth(depth, len(depth_points), figures))
    return summaries


def check_labels(labels: np.ndarray, classes: int = MAX_CLASSES) -> np.ndarray:
    """Return the labels as integers. Raises Refused unless all are integers from 0 to classes - 1."""
    if not ((labels >= 0) & (labels == np.floor(labels)) & (labels < classes)).all():
        raise Refused(f"labels is {short_repr(labels)}: they must be whole numbers from 0 to {classes - 1:,}")
    return labels.astype(np.int64)
