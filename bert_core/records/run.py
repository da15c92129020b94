"""Results of a forward and backward pass over one text, and of a caption of an image: maps, gradients, predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from bert_core.deprecation import RenamedAttribute
from bert_core.edits import Edit
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.refused import Refused
from bert_core.tokenizer import SPECIAL_TOKENS, Encoding

MAPS = ("attention", "gradient", "product", "brought")  # "brought" is value-weighted attention
CROSS_MAPS = MAPS  # of a decoder with cross-attention to an image


@compared_by_value
@dataclass(frozen=True)
class MaskPrediction(Tabular):
    """Prediction of the MLM head at one position.

    top: the most probable tokens as (token_id, probability), the most probable first.
    probabilities: (vocab,) float32. They sum to 1.
    """

    TABLES: ClassVar[Tables] = (("token_id", {"probability": "probabilities"}),)

    position: int
    top: tuple[tuple[int, float], ...]
    probabilities: np.ndarray = field(repr=False)

    def rank_of(self, token_id: int) -> int:
        """Return the rank of a token in the vocabulary, 1 for the most probable."""
        return int((self.probabilities > self.probabilities[token_id]).sum()) + 1


@compared_by_value
@dataclass(frozen=True)
class ClassPrediction(Tabular):
    """Prediction of a text classifier.

    labels: names of the classes.
    logits: (label,) float32.
    probabilities: (label,) float32, or None for a regression model.
    exclusive: whether the probabilities sum to 1 (one class for each text). Otherwise each class is independent.
    """

    TABLES: ClassVar[Tables] = (("label", {"logit": "logits", "probability": "probabilities"}),)

    labels: tuple[str, ...]
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray | None = field(repr=False)
    exclusive: bool = True

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        return {axis: self.labels} if axis == "label" else super()._axis_columns(axis, size, axes)

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers of the classes, the most probable first."""
        return tuple(np.argsort(-self.logits, kind="stable").tolist())


@compared_by_value
@dataclass(frozen=True)
class TagPrediction(Tabular):
    """Prediction of a token classifier for every token, including special tokens.

    labels: names of the tags.
    logits, probabilities: (token, label) float32. The probabilities of each token sum to 1.
    """

    TABLES: ClassVar[Tables] = (("position label", {"logit": "logits", "probability": "probabilities"}),)

    labels: tuple[str, ...]
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        return {axis: self.labels} if axis == "label" else super()._axis_columns(axis, size, axes)

    def order_at(self, position: int) -> tuple[int, ...]:
        """Return the numbers of the tags of one token, the most probable first."""
        return tuple(np.argsort(-self.logits[position], kind="stable").tolist())


@dataclass(frozen=True)
class Span(Tabular):
    """One answer of extractive question answering.

    first, last: positions of its first and last token. Both are 0 for no answer.
    start, end: range of its characters in the context.
    text: original text of the answer.
    score: sum of its start and end logit, by which answers are ranked.
    probability: start probability times end probability, each over the tokens of the context and no answer.
    """

    first: int
    last: int
    start: int
    end: int
    text: str
    score: float
    probability: float


@compared_by_value
@dataclass(frozen=True)
class SpanPrediction(Tabular):
    """Prediction of a question answering head for every token of a question and its context.

    `analysis.spans` computes answers from it.

    start_logits, end_logits: (token,) float32.
    start, end: (token,) float32, probabilities over the tokens of the context and the first token, which stands for no
        answer. Each sums to 1.
    """

    TABLES: ClassVar[Tables] = (
        ("position", {"start_logit": "start_logits", "end_logit": "end_logits", "start": "start", "end": "end"}),
    )

    start_logits: np.ndarray = field(repr=False)
    end_logits: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    end: np.ndarray = field(repr=False)


@compared_by_value
@dataclass(frozen=True)
class ChoicePrediction(Tabular):
    """Prediction of a multiple-choice model for the answer options of one question.

    Each option is encoded together with the question as a pair of texts.

    logits: (choice,) float32.
    probabilities: (choice,) float32 over these options. They sum to 1.
    """

    TABLES: ClassVar[Tables] = (("choice", {"logit": "logits", "probability": "probabilities"}),)

    question: str
    choices: tuple[str, ...]
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        return {"choice": range(size), "text": self.choices}

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers of the answer options, the most probable first."""
        return tuple(np.argsort(-self.logits, kind="stable").tolist())


@compared_by_value
@dataclass(frozen=True)
class ModelRun(Tabular):
    """Results of one forward pass over one text, and of one backward pass if there is a target.

    attention: (layer, head, query, key), attention probabilities after the softmax, before dropout and head mask. Each
        row sums to 1, or to less after an attention knockout without renormalisation.
    gradient: (layer, head, query, key), gradient of the target with respect to each probability. None without a target.
    gate_gradient: (layer, head), gradient of the target with respect to each head gate. None without a target.
    A pruned head is NaN in these three arrays.
    layers: numbers of the layers that the layer axis of the maps and norms has; None for all. `gate_gradient` and
        `head_mask` always have all layers.
    token_range: (start, stop), the positions that the query and key axes of the maps and norms have; None for all. The
        rows of such a block do not sum to 1.
    head_mask: (layer, head), 1 for active heads and 0 for ablated ones.
    predictions: predictions of the MLM head at the requested positions.
    nsp: probability that B follows A. None for a single text or a model without NSP head.
    target_value: value of the target. None without a target.
    classes, tags: predictions of the text classifier and of the token classifier. None for a model without one.
    edits: modifications of the model during the pass.
    norms: (layer, head, key), norm of the value vector of each key after the output matrix of the head, |f(x)|, with a
        head gate of 1. None unless requested.
    spans: prediction of the question answering head. None for a single text or a model without one.
    replaced: (seq,), probability that each token was replaced. None for a model without replaced-token detection.
    choice: logit of the second text as the answer to the first, comparable with those of other answer options. None for
        a single text or a model without a multiple-choice head.
    others: predictions of task heads that were added with `register_head`, by the name of the head. Each is an array
        or a dataclass of arrays.
    windows: for each layer the largest distance between a query and a key; None for any distance (a global layer).
        Pairs further apart are 0 in all maps. Empty: any distance in all layers.
    """

    TABLES: ClassVar[Tables] = (
        (
            "layer head query key",
            {
                "attention": "attention", "gradient": "gradient", "product": ("gradient", "attention"),
                "norm": ("attention", "_gated_norms"),
            },
        ),
        ("layer head", {"head_mask": "head_mask", "gate_gradient": "gate_gradient"}),
        ("layer head key", {"value_norm": "norms"}),
        ("position", {"replaced": "replaced"}),
    )  # fmt: skip

    encoding: Encoding
    attention: np.ndarray
    head_mask: np.ndarray
    predictions: tuple[MaskPrediction, ...] = ()
    nsp: float | None = None
    target: Target | None = None
    target_value: float | None = None
    gradient: np.ndarray | None = None
    gate_gradient: np.ndarray | None = None
    classes: ClassPrediction | None = None
    edits: tuple[Edit, ...] = ()
    norms: np.ndarray | None = None
    tags: TagPrediction | None = None
    spans: SpanPrediction | None = None
    replaced: np.ndarray | None = None
    choice: float | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    token_range: tuple[int, int] | None = None
    windows: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        for array in self._arrays():
            array.flags.writeable = False

    def _numbers(self, axis: str, size: int, axes: Sequence[str]) -> Sequence[int]:
        if axis == "layer" and "key" in axes and self.layers is not None:
            return self.layers
        if axis in ("query", "key") and self.token_range is not None:
            return range(*self.token_range)
        return super()._numbers(axis, size, axes)

    def _arrays(self) -> Iterator[np.ndarray]:
        """Yield all arrays of the run and of its predictions."""
        yield from (value for value in self.others.values() if isinstance(value, np.ndarray))
        added_predictions = (value for value in self.others.values() if is_dataclass(value))
        for part in (self, *self.predictions, self.classes, self.tags, self.spans, *added_predictions):
            values = () if part is None else (getattr(part, entry.name) for entry in fields(part))
            yield from (value for value in values if isinstance(value, np.ndarray))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays in bytes."""
        return sum(array.nbytes for array in self._arrays())

    @property
    def product(self) -> np.ndarray | None:
        """Gradient x attention (layer, head, query, key), signed. None without a target."""
        return None if self.gradient is None else self.gradient * self.attention

    @property
    def value_weighted(self) -> np.ndarray | None:
        """Norm of value-weighted attention, |a f(x)|, (layer, head, query, key). None without norms.

        The unit is that of the hidden states. An ablated head is 0. Rows do not sum to 1.
        Source: Kobayashi 2020, section 3 (arXiv:2004.10102).
        """
        return None if self._gated_norms is None else self.attention * self._gated_norms

    @property
    def _gated_norms(self) -> np.ndarray | None:
        """Norm of the value vector of each key times the gate of its head, (layer, head, 1, key), or None."""
        if self.norms is None:
            return None
        gates = self.head_mask if self.layers is None else self.head_mask[list(self.layers)]
        gated_norms: np.ndarray = (self.norms * gates[..., None])[..., None, :]
        return gated_norms

    @property
    def existing_heads(self) -> np.ndarray:
        """Whether the model has each head, (layer, head) boolean, False for a pruned head."""
        # Only a head that is NaN at its first place needs the full test.
        exists: np.ndarray = ~np.isnan(self.attention[:, :, 0, 0])
        for layer, head in np.argwhere(~exists):
            exists[layer, head] = not np.isnan(self.attention[layer, head]).all()
        return exists

    def select_map(self, kind: str) -> np.ndarray:
        """Return the maps of one kind, (layer, head, query, key).

        kind: "attention", "gradient", "product" (gradient x attention) or "brought" (norm of value-weighted attention).
        Raises Refused if the kind is unknown, or the gradient or the norms were not computed.
        """
        if kind not in MAPS:
            raise Refused(f"the kind of map {kind!r} is unknown: it must be one of {', '.join(MAPS)}")
        values: np.ndarray | None = getattr(self, "value_weighted" if kind == "brought" else kind)
        if values is None and kind == "brought":
            raise Refused("value-weighted attention was not computed: it needs a capture with norms=True")
        if values is None:
            raise Refused(f"the {kind} was not computed: it needs a capture with a target")
        return values

    def prediction_at(self, position: int) -> MaskPrediction | None:
        """Return the prediction at a position, or None if it was not requested."""
        return next((p for p in self.predictions if p.position == position), None)

    there = RenamedAttribute("existing_heads")
    shown = RenamedAttribute("select_map")
    brought = RenamedAttribute("value_weighted")


@compared_by_value
@dataclass(frozen=True)
class DecoderRun(Tabular):
    """A caption of an image, with the cross-attention of the decoder for each word.

    image: (size, size, 3) uint8, the input of the model.
    grid: number of rows and columns of patches.
    words: in the order of generation. The last is [SEP], unless the maximum length was reached.
    probabilities: (word,), probability of each word when it was generated.
    alternatives: the most probable words at each step with their probabilities, the most probable first.
    cross_attention: (word, layer, head, patch), attention probabilities after the softmax for the query that predicted
        the word. They sum to 1 over the patches, which are in row-major order.
    cross_gradient: (word, layer, head, patch), gradient of the log-probability of the word (nats) with respect to each
        probability.
    cross_norms: (layer, head, patch), norm of the value vector of each patch after the output matrix of the head.
    """

    image: np.ndarray
    grid: tuple[int, int]
    words: tuple[str, ...]
    probabilities: np.ndarray
    alternatives: tuple[tuple[tuple[str, float], ...], ...]
    cross_attention: np.ndarray
    cross_gradient: np.ndarray
    cross_norms: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    def _tables(self) -> Tables:
        return (
            (
                "word layer head patch",
                {
                    "attention": "cross_attention", "gradient": "cross_gradient",
                    "product": ("cross_attention", "cross_gradient"), "norm": ("cross_attention", "cross_norms"),
                },
            ),
            ("word", {"probability": "probabilities"}),
            ("layer head patch", {"value_norm": "cross_norms"}),
            ("row column channel", {"value": "image"}),
        )  # fmt: skip

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        if axis == "word":
            return {"word_position": range(size), "word": self.words}
        return super()._axis_columns(axis, size, axes)

    @property
    def sentence(self) -> str:
        """The caption without special tokens."""
        return " ".join(word for word in self.words if word not in SPECIAL_TOKENS)

    def select_map(self, kind: str) -> np.ndarray:
        """Return the maps of one kind, (word, layer, head, patch).

        kind: "attention", "gradient", "product" (gradient x attention) or "brought" (norm of value-weighted attention).
        Raises Refused if the kind is unknown.
        """
        if kind not in CROSS_MAPS:
            raise Refused(f"the kind of map {kind!r} is unknown: it must be one of {', '.join(CROSS_MAPS)}")
        if kind == "product":
            product: np.ndarray = self.cross_attention * self.cross_gradient
            return product
        if kind == "brought":
            value_weighted: np.ndarray = self.cross_attention * self.cross_norms
            return value_weighted
        return self.cross_attention if kind == "attention" else self.cross_gradient

    shown = RenamedAttribute("select_map")
