"""Analysis of the intermediate values of a forward pass (`Walk`): comparison of two walks, and derived values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.deprecation import renamed_fields, renamed_parameters
from bert_core.records import Walk
from bert_core.refused import Refused, require_int, validate_arguments


@renamed_fields(reach="scale")
class Difference(NamedTuple):
    """Difference of two walks in one value.

    name: name of the value. largest: largest absolute difference. scale: largest absolute number of the value.
    """

    name: str
    largest: float
    scale: float

    @property
    def share(self) -> float:
        """Difference relative to the scale of the value. One unit in the last place of float32 is about 1e-7."""
        return self.largest / self.scale if self.scale else float(self.largest > 0)


@renamed_parameters(one="first", other="second")
@validate_arguments
def differences(first: Walk, second: Walk) -> tuple[Difference, ...]:
    """Compute the difference of two walks in every value, in the order of computation.

    Raises Refused if the walks differ in text, layer, position or model size.
    """
    if (first.tokens, first.layer, first.position) != (second.tokens, second.layer, second.position):
        raise Refused("the walks differ in text, layer or position: two walks must agree in these to be compared")
    if _shapes(first) != _shapes(second):
        raise Refused("the walks have values of different shapes: two walks must be of one model to be compared")
    return tuple(
        Difference(name, _largest(value - second.values[name]), _largest(value)) for name, value in first.values.items()
    )


def _shapes(walk: Walk) -> dict[str, tuple[int, ...]]:
    """Return the shape of every value."""
    return {name: value.shape for name, value in walk.values.items()}


def _largest(values: np.ndarray) -> float:
    """Return the largest absolute number, without the NaN values of pruned heads."""
    return float(np.abs(values[~np.isnan(values)]).max(initial=0))


@validate_arguments
def weighted_values(walk: Walk, head: int, query: int) -> np.ndarray:
    """Compute the contribution of each key to one query of a head: attention probability times value vector.

    Returns (key, head size). The sum over keys is the context vector of the head at the query, before the head gate.
    Raises Refused if the head or the query does not exist.
    """
    probabilities = walk.layer_value("probabilities")
    head = require_int("head", head, 0, len(probabilities) - 1)
    query = require_int("query", query, 0, probabilities.shape[1] - 1)
    weighted: np.ndarray = probabilities[head, query][:, None] * walk.layer_value("value")[head]
    return weighted


@validate_arguments
def most_likely_tokens(walk: Walk, count: int) -> tuple[tuple[int, float], ...]:
    """Return the most probable tokens of the MLM head at the position of the walk as (token_id, probability).

    count: maximum number of tokens.
    Raises Refused if the model has no trained MLM head.
    """
    count = require_int("count", count)
    if "mlm_logits" not in walk.values:
        raise Refused("the walk is through a model without a trained MLM head: predicted tokens need this head")
    probabilities = softmax(walk.values["mlm_logits"])
    best = np.argsort(-probabilities, kind="stable")[:count]
    return tuple((int(token), float(probabilities[token])) for token in best)


def next_sentence_probability(walk: Walk) -> float:
    """Return the probability that sentence B follows sentence A (NSP)."""
    return float(softmax(walk.values["nsp_logits"])[0])


def replaced_probabilities(walk: Walk) -> np.ndarray:
    """Return the probability that each token was replaced (replaced-token detection), (seq,), padding included."""
    probabilities: np.ndarray = 1 / (1 + np.exp(-walk.values["replaced_logits"].astype(np.float64)))
    return probabilities


@validate_arguments
def step_angles(walk: Walk) -> np.ndarray:
    """Compute the cosine similarity of the hidden state of each token before and after each layer.

    Returns (layer, seq), -1 to 1. It is NaN if either state is zero.
    """
    states = walk.values["hidden_states"].astype(np.float64)
    lengths = np.linalg.norm(states, axis=-1)
    with np.errstate(invalid="ignore"):
        cosines: np.ndarray = (states[1:] * states[:-1]).sum(-1) / (lengths[1:] * lengths[:-1])
    return cosines


def softmax(logits: np.ndarray) -> np.ndarray:
    """Compute the softmax over the last axis in float64."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    probabilities: np.ndarray = exponentials / exponentials.sum(-1, keepdims=True)
    return probabilities
