"""The shape contract between running a model and looking at what it did: frozen, read-only records.

Axis words, here and everywhere: batch layer head query key seq hidden vocab. Rows are queries, columns keys.
Layers and heads are counted from zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from bert_core.tokenizer import Encoding


@dataclass(frozen=True)
class Target:
    """The one number a gradient explains.

    kind: "mlm", the log-probability (nats) of the piece `token_id` at `position`; or
    "nsp", logit(B follows A) - logit(B does not).
    """

    kind: str
    position: int | None = None
    token_id: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("mlm", "nsp"):
            raise ValueError(f"target kind {self.kind!r} is unknown: 'mlm' or 'nsp'")
        if self.kind == "mlm" and (self.position is None or self.token_id is None):
            raise ValueError("an 'mlm' target needs a position and a token_id")


@dataclass(frozen=True)
class MaskPrediction:
    """What the model puts at one position.

    top: the likeliest pieces as (token_id, probability), best first.
    probabilities: (vocab,) float32, sums to 1.
    """

    position: int
    top: tuple[tuple[int, float], ...]
    probabilities: np.ndarray = field(repr=False)

    def rank_of(self, token_id: int) -> int:
        """Place of a piece among all pieces: 1 is the likeliest."""
        return int((self.probabilities > self.probabilities[token_id]).sum()) + 1


@dataclass(frozen=True)
class ModelRun:
    """All that was seen of one text in one forward pass, and one backward pass if there was a target.

    attention: (layer, head, query, key), probabilities after the softmax, before dropout and head mask;
        each row sums to 1.
    gradient: the same shape: change of the target for a change of each probability; None without a target.
    gate_gradient: (layer, head), dTarget/d(gate of the head); None without a target.
    predictions: one entry for each position that was asked for.
    nsp: probability that B follows A; None for a single text or a model without that head.
    head_mask: (layer, head), 1 on, 0 off.
    target_value: the value of the target; None without one.
    """

    encoding: Encoding
    attention: np.ndarray
    head_mask: np.ndarray
    predictions: tuple[MaskPrediction, ...] = ()
    nsp: float | None = None
    target: Target | None = None
    target_value: float | None = None
    gradient: np.ndarray | None = None
    gate_gradient: np.ndarray | None = None

    def __post_init__(self) -> None:
        for entry in fields(self):
            if isinstance(value := getattr(self, entry.name), np.ndarray):
                value.flags.writeable = False
        for prediction in self.predictions:
            prediction.probabilities.flags.writeable = False

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        own = (getattr(self, entry.name) for entry in fields(self))
        return sum(value.nbytes for value in own if isinstance(value, np.ndarray)) + sum(
            prediction.probabilities.nbytes for prediction in self.predictions
        )

    @property
    def product(self) -> np.ndarray | None:
        """Gradient x attention (layer, head, query, key), signed; None without a target."""
        return None if self.gradient is None else self.gradient * self.attention

    def shown(self, what: str) -> np.ndarray:
        """The maps by name: "attention", "gradient" or "product" (layer, head, query, key).

        Raises ValueError for another name, or for a gradient that was not captured.
        """
        maps = {"attention": self.attention, "gradient": self.gradient, "product": self.product}
        if what not in maps:
            raise ValueError(f"{what!r} is unknown: one of {', '.join(maps)}")
        values = maps[what]
        if values is None:
            raise ValueError(f"the {what} was not captured: it needs a target")
        return values

    def prediction_at(self, position: int) -> MaskPrediction | None:
        """The prediction for a position, if that position was asked for."""
        return next((p for p in self.predictions if p.position == position), None)
