"""What one text did to a model, and what a model makes of a picture: maps, gradients and predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from bert_core.edits import Edit
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.targets import Target
from bert_core.refused import Refused
from bert_core.tokenizer import SPECIAL_TOKENS, Encoding

MAPS = ("attention", "gradient", "product", "brought")
CROSS_MAPS = MAPS  # of a decoder that looks at a picture


@compared_by_value
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


@compared_by_value
@dataclass(frozen=True)
class ClassPrediction:
    """What a classifier says of the whole text.

    labels: names of the classes. logits: (label,) float32.
    probabilities: (label,) float32; None where the outputs are numbers and not classes.
    exclusive: whether the text has one class, so that the probabilities share 1; else each class is by itself.
    """

    labels: tuple[str, ...]
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray | None = field(repr=False)
    exclusive: bool = True

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers of the classes, the likeliest first."""
        return tuple(np.argsort(-self.logits, kind="stable").tolist())


@compared_by_value
@dataclass(frozen=True)
class TagPrediction:
    """What a tagger says of every token, the added special ones too.

    labels: names of the tags. logits, probabilities: (token, label) float32; those of a token share 1.
    """

    labels: tuple[str, ...]
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)

    def order_at(self, position: int) -> tuple[int, ...]:
        """Numbers of the tags of one token, the likeliest first."""
        return tuple(np.argsort(-self.logits[position], kind="stable").tolist())


@dataclass(frozen=True)
class Span:
    """One answer of a reader: where it stands in the context, and how it does.

    first, last: its tokens; both 0 where the answer is that there is none. start, end: its characters in the context.
    text: as it was typed. score: the sum of its two logits, by which answers are ranked. probability: that of its first
    token times that of its last, each among all places of the context and no answer.
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
class SpanPrediction:
    """What a reader says of every token of a question and its context, as the first and the last of the answer.

    start_logits, end_logits: (token,) float32. start, end: (token,) float32, probabilities among the tokens of the
    context and the first of all, which stands for no answer; each sums to 1. `analysis.spans` makes answers of them.
    """

    start_logits: np.ndarray = field(repr=False)
    end_logits: np.ndarray = field(repr=False)
    start: np.ndarray = field(repr=False)
    end: np.ndarray = field(repr=False)


@compared_by_value
@dataclass(frozen=True)
class ChoicePrediction:
    """What a chooser says of some answers to one question, each read with it as a pair of its own.

    logits: (choice,) float32. probabilities: (choice,) float32, among these choices: they share 1.
    """

    question: str
    choices: tuple[str, ...]
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def order(self) -> tuple[int, ...]:
        """Numbers of the choices, the likeliest first."""
        return tuple(np.argsort(-self.logits, kind="stable").tolist())


@compared_by_value
@dataclass(frozen=True)
class ModelRun:
    """All that was seen of one text in one forward pass, and one backward pass if there was a target.

    attention: (layer, head, query, key), probabilities after the softmax, before dropout and head mask;
        each row sums to 1, or to less where arrows were cut and it was not renormalised.
    gradient: the same shape: change of the target for a change of each probability; None without a target.
    gate_gradient: (layer, head), dTarget/d(gate of the head); None without a target.
    A head that was pruned is NaN in all three.
    predictions: one entry for each position that was asked for.
    nsp: probability that B follows A; None for a single text or a model without that head.
    classes, tags: what the classifier of texts, and of tokens, says; None for a model without one.
    spans: where the answer to a question stands in its context; None for a single text or a model without a reader.
    replaced: (seq,), probability that each token was put in the place of another; None for a model without that head.
    choice: logit of the second text as an answer to the first, to be held against those of other choices; None for a
        single text or a model that was not trained to choose.
    others: predictions of task heads that `register_head` added, by the name of the head: arrays, or dataclasses of
        arrays.
    head_mask: (layer, head), 1 on, 0 off.
    target_value: the value of the target; None without one.
    edits: what was changed in the model while it ran.
    norms: (layer, head, key), how long the vector is that a head with its gate at 1 brings from a key that it gives all
        its attention: the value through the head's output map, |f(x)|. None unless it was asked for.
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
    classes: ClassPrediction | None = None
    edits: tuple[Edit, ...] = ()
    norms: np.ndarray | None = None
    tags: TagPrediction | None = None
    spans: SpanPrediction | None = None
    replaced: np.ndarray | None = None
    choice: float | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in self._arrays():
            array.flags.writeable = False

    def _arrays(self) -> Iterator[np.ndarray]:
        yield from (value for value in self.others.values() if isinstance(value, np.ndarray))
        others = (value for value in self.others.values() if is_dataclass(value))
        for part in (self, *self.predictions, self.classes, self.tags, self.spans, *others):
            values = () if part is None else (getattr(part, entry.name) for entry in fields(part))
            yield from (value for value in values if isinstance(value, np.ndarray))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in self._arrays())

    @property
    def product(self) -> np.ndarray | None:
        """Gradient x attention (layer, head, query, key), signed; None without a target."""
        return None if self.gradient is None else self.gradient * self.attention

    @property
    def value_weighted(self) -> np.ndarray | None:
        """Attention weighted by how long a vector it brings, |a f(x)| (layer, head, query, key); None without norms.

        In the unit of the states; 0 for a head that is off. Rows sum to any length.
        Source: Kobayashi 2020, section 3 (arXiv:2004.10102).
        """
        return None if self.norms is None else self.attention * (self.norms * self.head_mask[..., None])[..., None, :]

    @property
    def existing_heads(self) -> np.ndarray:
        """Whether the model has each head (layer, head); False for one that was pruned."""
        # A head with a hole in its first place is there; only few need the longer look.
        found: np.ndarray = ~np.isnan(self.attention[:, :, 0, 0])
        for layer, head in np.argwhere(~found):
            found[layer, head] = not np.isnan(self.attention[layer, head]).all()
        return found

    def select_map(self, what: str) -> np.ndarray:
        """The maps by name: "attention", "gradient", "product" or "brought" (layer, head, query, key).

        Raises Refused for another name, or for a gradient or norms that were not captured.
        """
        if what not in MAPS:
            raise Refused(f"{what!r} is unknown: one of {', '.join(MAPS)}")
        values: np.ndarray | None = getattr(
            self, "value_weighted" if what == "brought" else what
        )  # the last two are computed for whoever asks for them
        if values is None and what == "brought":
            raise Refused("what is brought was not computed: capture with norms=True")
        if values is None:
            raise Refused(f"the {what} was not computed: it needs something to explain")
        return values

    def prediction_at(self, position: int) -> MaskPrediction | None:
        """The prediction for a position, if that position was asked for."""
        return next((p for p in self.predictions if p.position == position), None)


@compared_by_value
@dataclass(frozen=True)
class DecoderRun:
    """One sentence about one picture, and where the decoder looked for each word.

    image: uint8 (size, size, 3), as the model saw it. grid: rows and columns of its patches.
    words: in the order they were chosen; the last is [SEP], unless there was no room for it.
    probabilities: (word,), of each when it was chosen. alternatives: for each the likeliest words, best first.
    cross_attention: (word, layer, head, patch), probabilities after the softmax in the row that predicted the word;
        over the patches, row after row of the picture, they sum to 1.
    cross_gradient: the same shape: change of the word's log-probability (nats) for a change of each probability.
    cross_norms: (layer, head, patch), how long the vector is that a head brings from a patch that it gives all its
        attention, the patch's value through the head's output map.
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

    @property
    def sentence(self) -> str:
        """The words that are to be read."""
        return " ".join(word for word in self.words if word not in SPECIAL_TOKENS)

    def select_map(self, what: str) -> np.ndarray:
        """The maps by name: "attention", "gradient", "product" or "brought" (word, layer, head, patch).

        Raises Refused for another name.
        """
        if what not in CROSS_MAPS:
            raise Refused(f"{what!r} is unknown: one of {', '.join(CROSS_MAPS)}")
        if what == "product":
            product: np.ndarray = self.cross_attention * self.cross_gradient
            return product
        if what == "brought":
            brought: np.ndarray = self.cross_attention * self.cross_norms
            return brought
        return self.cross_attention if what == "attention" else self.cross_gradient
