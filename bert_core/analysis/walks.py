"""Two walks through one model beside each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.records import Walk
from bert_core.refused import Refused, require_int, validate_arguments


class Difference(NamedTuple):
    """How far two walks are apart in the value of one name, and the size of the largest number that stands there."""

    name: str
    largest: float
    scale: float

    @property
    def share(self) -> float:
        """The difference on the value's own scale: 1e-7 is one unit in the last place of float32's largest number."""
        return self.largest / self.scale if self.scale else float(self.largest > 0)


@validate_arguments
def differences(one: Walk, other: Walk) -> tuple[Difference, ...]:
    """Of every value, in the order of computation.

    Raises Refused unless both walked the same text through the same layer of one model.
    """
    if (one.tokens, one.layer, one.position) != (other.tokens, other.layer, other.position):
        raise Refused("two walks can be compared if they are of one text, one layer and one position")
    if _shapes(one) != _shapes(other):
        raise Refused("two walks can be compared if they are through one model: these have values of other sizes")
    return tuple(
        Difference(name, _largest(value - other.values[name]), _largest(value)) for name, value in one.values.items()
    )


def _shapes(walk: Walk) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in walk.values.items()}


def _largest(values: np.ndarray) -> float:
    """The largest size of a number; a pruned head, which is NaN, has none."""
    return float(np.abs(values[~np.isnan(values)]).max(initial=0))


@validate_arguments
def weighted_values(walk: Walk, head: int, query: int) -> np.ndarray:
    """What each key gives to one query in one head: its probability times its value, (key, head size).

    Their sum is the head's context at that query, before the head's gate.
    Raises Refused for a head or a query that does not exist.
    """
    probabilities = walk.layer_value("probabilities")
    head = require_int("head", head, 0, len(probabilities) - 1)
    query = require_int("query", query, 0, probabilities.shape[1] - 1)
    weighted: np.ndarray = probabilities[head, query][:, None] * walk.layer_value("value")[head]
    return weighted


@validate_arguments
def most_likely_tokens(walk: Walk, count: int) -> tuple[tuple[int, float], ...]:
    """The pieces that the masked-word head puts first at the walk's position, as (token_id, probability).

    count: how many at most. Raises Refused for a model without that head.
    """
    count = require_int("count", count)
    if "mlm_logits" not in walk.values:
        raise Refused("the walk is through a model without a trained masked-word head: it puts no piece first")
    probabilities = softmax(walk.values["mlm_logits"])
    best = np.argsort(-probabilities, kind="stable")[:count]
    return tuple((int(token), float(probabilities[token])) for token in best)


def next_sentence_probability(walk: Walk) -> float:
    """The probability that B follows A."""
    return float(softmax(walk.values["nsp_logits"])[0])


def replaced_probabilities(walk: Walk) -> np.ndarray:
    """The probability that each token was put in the place of another, (seq,); those of padding too."""
    shares: np.ndarray = 1 / (1 + np.exp(-walk.values["replaced_logits"].astype(np.float64)))
    return shares


@validate_arguments
def step_angles(walk: Walk) -> np.ndarray:
    """How far each layer turns each token's vector: the cosine of before and after, (layer, seq).

    NaN where a vector has no length.
    """
    states = walk.values["hidden_states"].astype(np.float64)
    lengths = np.linalg.norm(states, axis=-1)
    with np.errstate(invalid="ignore"):
        cosines: np.ndarray = (states[1:] * states[:-1]).sum(-1) / (lengths[1:] * lengths[:-1])
    return cosines


def softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis: positive, and sums to 1."""
    raised = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    shares: np.ndarray = raised / raised.sum(-1, keepdims=True)
    return shares
