"""Linear probes: what of a label can be read off states by a plane, and what of that the probe learned by itself."""

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

# Where the code is sent anew, as shares of the words: Voita & Titov 2020, section 2.2.2.
ONLINE_SHARES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
PENALTY = 10.0  # of some hundred states of a base model: less learns by heart, more sees less of few words
MAX_STEPS = 1000
MAX_CLASSES = 10_000


@compared_by_value
@dataclass(frozen=True)
class Probe:
    """Multinomial logistic regression: the logits of a state are the state times `weights`, plus `bias`.

    weights: (hidden, label). bias: (label,).
    """

    weights: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    def log_probabilities(self, states: np.ndarray) -> np.ndarray:
        """Of every label, (word, label), nats. states: (word, hidden)."""
        logits = states @ self.weights + self.bias
        found: np.ndarray = logits - logsumexp(logits, axis=1, keepdims=True)
        return found

    def accuracy(self, states: np.ndarray, labels: np.ndarray) -> float:
        """The share of the words (word, hidden) whose label (word,) is the likeliest."""
        return float((self.log_probabilities(states).argmax(1) == labels).mean())


@validate_arrays(states="word hidden", labels="word")
def fit_probe(
    states: np.ndarray, labels: np.ndarray, classes: int, *, penalty: float = PENALTY, tolerance: float = 1e-6
) -> Probe:
    """The linear probe that says the labels of these words best, of those with small weights.

    states: (word, hidden). labels: (word,), whole numbers from zero. classes: how many labels there are; one that no
    word has keeps a small probability.
    penalty: half of it times the sum of the squared weights, of states scaled to mean 0 and variance 1, and of the
        bias, is added to the summed loss in nats.
    tolerance: what a step has to gain, as a share of the loss of a word, or the search ends.
    Raises Refused for labels that are not 0 to classes - 1, or states that are not finite.
    """
    classes, penalty = require_int("classes", classes, 1, MAX_CLASSES), require_float("penalty", penalty, 1e-6)
    tolerance = require_float("tolerance", tolerance, 0)
    numbers = check_labels(labels, classes)
    check_finite("states", states)
    mean, size = states.mean(0), states.std(0)
    size[size == 0] = 1
    # Along the principal axes, and by how surely each label is known, the sum to be minimised is about as steep in
    # every direction, and L-BFGS needs a tenth of the steps; the minimum is the same.
    scaled = np.concatenate([(states - mean) / size, np.ones_like(states[:, :1])], axis=1)
    lengths, axes = np.linalg.eigh((scaled.T @ scaled).astype(np.float64))
    rotated = scaled @ axes.astype(states.dtype)
    often = np.bincount(numbers, minlength=classes) / len(numbers)
    steepness = np.maximum(lengths, 0)[:, None] * np.maximum(often * (1 - often), 1 / len(numbers)) + penalty
    scale = 1 / np.sqrt(steepness)
    rows = np.arange(len(numbers))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(scale.shape) * scale
        logits = rotated @ weights.astype(states.dtype)
        logits -= logits.max(1, keepdims=True)
        own = logits[rows, numbers]
        np.exp(logits, out=logits)
        summed = logits.sum(1, keepdims=True)
        logits /= summed
        logits[rows, numbers] -= 1
        slope = (rotated.T @ logits) + penalty * weights
        value = (np.log(summed[:, 0]) - own).sum(dtype=np.float64) + penalty / 2 * (weights**2).sum()
        return value / len(numbers), (slope * scale).ravel() / len(numbers)

    found = minimize(
        loss, np.zeros(scale.size), jac=True, method="L-BFGS-B",
        options={"maxiter": MAX_STEPS, "maxcor": 20, "ftol": tolerance, "gtol": 0},
    )  # fmt: skip
    weights = axes @ (found.x.reshape(scale.shape) * scale)
    inner = weights[:-1] / size[:, None]
    return Probe(inner, weights[-1] - mean @ inner)


@validate_arrays(labels="word", types="word")
def control_labels(labels: np.ndarray, types: np.ndarray, seed: int = 0) -> np.ndarray:
    """A random label for each word type, drawn as often as the labels stand in the text: nothing in a state says it.

    labels: (word,), whole numbers from zero. types: (word,), any numbers.
    Returns (word,): words of one type have one label.
    What a probe finds of these it has learned by heart, type by type.
    Source: the control task of Hewitt & Liang 2019, section 2 (arXiv:1909.03368).
    """
    numbers, of_types = check_labels(labels), np.unique(types, return_inverse=True)[1]
    often = np.bincount(numbers) / len(numbers)
    drawn = np.random.default_rng(require_int("seed", seed)).choice(len(often), of_types.max() + 1, p=often)
    found: np.ndarray = drawn[of_types]
    return found


@validate_arrays(labels="word", types="word")
def lookup(labels: np.ndarray, types: np.ndarray, learned: int) -> tuple[float, float]:
    """What is found without any state: the share of words that have the commonest label, and that of their type.

    labels: (word,), whole numbers from zero. types: (word,), any numbers.
    learned: the first so many words say what is common; the others are asked. A type that was not seen gets the
    commonest label of all.
    """
    numbers, of_types = check_labels(labels), np.unique(types, return_inverse=True)[1]
    learned = require_int("learned", learned, 1, len(numbers) - 1)
    table = np.zeros((of_types.max() + 1, numbers.max() + 1))
    np.add.at(table, (of_types[:learned], numbers[:learned]), 1)
    common = table.sum(0)
    table += common / (2 * common.sum())  # decides where a type has no label, or several as often
    asked = numbers[learned:]
    return float((asked == common.argmax()).mean()), float((table.argmax(1)[of_types[learned:]] == asked).mean())


@validate_arrays(states="word hidden", labels="word")
def code_lengths(
    states: np.ndarray, labels: np.ndarray, classes: int, ends: Sequence[int], *, penalty: float = PENALTY
) -> tuple[float, float]:
    """How many bits it takes to send the labels of words to somebody who has their states, and how many without them.

    The first part is sent with all labels as likely; each later one with a probe learned from all parts before it, so
    that what the probe needs to learn is paid for.
    states: (word, hidden), in the order in which they are sent. labels: (word,). classes: as for `fit_probe`.
    ends: of the parts, rising, up to the number of words.
    Source: the online code of Voita & Titov 2020, section 2.2.2 (arXiv:2003.12298).
    """
    numbers, classes = check_labels(labels, classes), require_int("classes", classes, 1, MAX_CLASSES)
    places = [require_int("an end", end, 1, len(numbers)) for end in require_sequence("ends", ends, "whole numbers")]
    if not places or places != sorted(set(places)) or places[-1] != len(numbers):
        raise Refused(f"the ends are {short_repr(places)}: they must rise up to {len(numbers)}, the number of words")
    uniform = len(numbers) * np.log2(classes)
    bits = places[0] * np.log2(classes)
    for before, end in pairwise(places):
        probe = fit_probe(states[:before], numbers[:before], classes, penalty=penalty)
        said = probe.log_probabilities(states[before:end])
        bits -= said[np.arange(end - before), numbers[before:end]].sum(dtype=np.float64) / np.log(2)
    return float(bits), float(uniform)


class ProbeDepth(NamedTuple):
    """The points of one depth together: the mean over the seeds, the lowest and the highest of each.

    figures: name of a figure of `ProbePoint` -> (mean, lowest, highest); NaN where it was not asked.
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
    """The points depth by depth, the lowest first."""
    by_depth: dict[int, list[ProbePoint]] = {}
    for point in require_instances("points", points, ProbePoint):
        by_depth.setdefault(point.depth, []).append(point)
    found = []
    for depth, own in sorted(by_depth.items()):
        values = {name: np.array([getattr(point, name) for point in own]) for name in FIGURES}
        figures = {name: (float(one.mean()), float(one.min()), float(one.max())) for name, one in values.items()}
        found.append(ProbeDepth(depth, len(own), figures))
    return found


def check_labels(labels: np.ndarray, classes: int = MAX_CLASSES) -> np.ndarray:
    """The labels as whole numbers. Raises Refused for others, for one below 0, or not below `classes`."""
    if not ((labels >= 0) & (labels == np.floor(labels)) & (labels < classes)).all():
        raise Refused(f"labels is {short_repr(labels)}: they must be whole numbers from 0 to {classes - 1:,}")
    return labels.astype(np.int64)
