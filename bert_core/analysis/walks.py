"""Two walks through one model beside each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.records import Walk


class Difference(NamedTuple):
    """How far two walks are apart in the value of one name, and the size of the largest number that stands there."""

    name: str
    largest: float
    reach: float

    @property
    def share(self) -> float:
        """The difference on the value's own scale: 1e-7 is one unit in the last place of float32's largest number."""
        return self.largest / self.reach if self.reach else float(self.largest > 0)


def differences(one: Walk, other: Walk) -> tuple[Difference, ...]:
    """Of every value, in the order of computation.

    Raises ValueError unless both walked the same text through the same layer.
    """
    if (one.tokens, one.layer, one.position) != (other.tokens, other.layer, other.position):
        raise ValueError("two walks can be compared if they are of one text, one layer and one position")
    return tuple(
        Difference(name, _largest(value - other.values[name]), _largest(value)) for name, value in one.values.items()
    )


def _largest(values: np.ndarray) -> float:
    """The largest size of a number; a pruned head, which is NaN, has none."""
    return float(np.abs(values[~np.isnan(values)]).max(initial=0))


def weighted_values(walk: Walk, head: int, query: int) -> np.ndarray:
    """What each key gives to one query in one head: its probability times its value, (key, head size).

    Their sum is the head's context at that query, before the head's gate.
    """
    weighted: np.ndarray = walk.of_layer("probabilities")[head, query][:, None] * walk.of_layer("value")[head]
    return weighted


def likeliest(walk: Walk, count: int) -> tuple[tuple[int, float], ...]:
    """The pieces that the masked-word head puts first at the walk's position, as (token_id, probability)."""
    probabilities = softmax(walk.values["mlm_logits"])
    best = np.argsort(-probabilities, kind="stable")[:count]
    return tuple((int(token), float(probabilities[token])) for token in best)


def follows(walk: Walk) -> float:
    """The probability that B follows A."""
    return float(softmax(walk.values["nsp_logits"])[0])


def step_angles(walk: Walk) -> np.ndarray:
    """How far each layer turns each token's vector: the cosine of before and after, (layer, seq)."""
    states = walk.values["hidden_states"].astype(np.float64)
    lengths = np.linalg.norm(states, axis=-1)
    cosines: np.ndarray = (states[1:] * states[:-1]).sum(-1) / (lengths[1:] * lengths[:-1])
    return cosines


def softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis: positive, and sums to 1."""
    raised = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    shares: np.ndarray = raised / raised.sum(-1, keepdims=True)
    return shares
