"""The shape contract between running a model and looking at what it did: frozen, read-only records.

Axis words, here and everywhere: batch layer head query key seq hidden vocab; for a sentence about a picture, word and
patch, the query and the key of its cross-attention. Rows are queries, columns keys.
Layers and heads are counted from zero.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bert_core.tokenizer import SPECIAL_TOKENS, Encoding


def _read_only(record: object) -> None:
    """Make every array of a record refuse to be written."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


@dataclass(frozen=True)
class Target:
    """The one number a gradient explains; what speaks for the answer makes it larger.

    kind: "mlm", the log-probability (nats) of the piece `token_id` at `position`;
    "contrast", by how much its logit there is above that of the piece `against`;
    "joint", the log-probability of several `pieces` together, each at its own mask: the sum of theirs;
    "loss", minus the masked-word loss over `pieces`: the mean of their log-probabilities;
    "nsp", logit(B follows A) - logit(B does not); or
    "class", the logit of the class with the number `label`.
    pieces: (position, token_id) of each.
    """

    kind: str
    position: int | None = None
    token_id: int | None = None
    label: int | None = None
    against: int | None = None
    pieces: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        kinds = ("mlm", "contrast", "joint", "loss", "nsp", "class")
        if self.kind not in kinds:
            raise ValueError(f"target kind {self.kind!r} is unknown: one of {', '.join(kinds)}")
        if self.kind == "mlm" and (self.position is None or self.token_id is None):
            raise ValueError("an 'mlm' target needs a position and a token_id")
        if self.kind == "contrast" and None in (self.position, self.token_id, self.against):
            raise ValueError("a 'contrast' target needs a position, a token_id and the one it stands against")
        if self.kind == "class" and self.label is None:
            raise ValueError("a 'class' target needs a label")
        if self.kind in ("joint", "loss") and not self.pieces:
            raise ValueError(f"a {self.kind!r} target needs the pieces that it asks for")
        if len({position for position, _ in self.pieces}) < len(self.pieces):
            raise ValueError(f"a {self.kind!r} target asks for two pieces at one position")

    @property
    def rows(self) -> tuple[int, ...]:
        """The positions of the last layer that it is read from: its own, or [CLS] for the text as a whole."""
        return tuple(position for position, _ in self.asked) or (0,)

    @property
    def asked(self) -> tuple[tuple[int, int], ...]:
        """The pieces that are asked for, as (position, token_id); none where the text as a whole is."""
        if self.position is None or self.token_id is None:
            return self.pieces
        return ((self.position, self.token_id),)

    def removable(self, encoding: Encoding) -> tuple[int, ...]:
        """Positions that can be taken out of a text while the question stays: no [CLS] or [SEP], and not its own."""
        return tuple(i for i, special in enumerate(encoding.special) if not special and i not in self.rows)


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


@dataclass(frozen=True)
class ModelRun:
    """All that was seen of one text in one forward pass, and one backward pass if there was a target.

    attention: (layer, head, query, key), probabilities after the softmax, before dropout and head mask;
        each row sums to 1.
    gradient: the same shape: change of the target for a change of each probability; None without a target.
    gate_gradient: (layer, head), dTarget/d(gate of the head); None without a target.
    A head that was pruned is NaN in all three.
    predictions: one entry for each position that was asked for.
    nsp: probability that B follows A; None for a single text or a model without that head.
    classes: what the classifier says; None for a model without one.
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
    classes: ClassPrediction | None = None

    def __post_init__(self) -> None:
        for array in self._arrays():
            array.flags.writeable = False

    def _arrays(self) -> Iterator[np.ndarray]:
        for part in (self, *self.predictions, self.classes):
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
    def there(self) -> np.ndarray:
        """Whether the model has each head (layer, head); False for one that was pruned."""
        # A head with a hole in its first place is there; only few need the longer look.
        found: np.ndarray = ~np.isnan(self.attention[:, :, 0, 0])
        for layer, head in np.argwhere(~found):
            found[layer, head] = not np.isnan(self.attention[layer, head]).all()
        return found

    def shown(self, what: str) -> np.ndarray:
        """The maps by name: "attention", "gradient" or "product" (layer, head, query, key).

        Raises ValueError for another name, or for a gradient that was not captured.
        """
        maps = {"attention": self.attention, "gradient": self.gradient, "product": self.product}
        if what not in maps:
            raise ValueError(f"{what!r} is unknown: one of {', '.join(maps)}")
        values = maps[what]
        if values is None:
            raise ValueError(f"the {what} was not computed: it needs something to explain")
        return values

    def prediction_at(self, position: int) -> MaskPrediction | None:
        """The prediction for a position, if that position was asked for."""
        return next((p for p in self.predictions if p.position == position), None)


@dataclass(frozen=True)
class HeadSweep:
    """What a model says of a text with each of its heads taken out in turn.

    method: what took the place of the head's output: "zero", "mean" or "resample".
    head_mask: (layer, head), what was switched off to begin with.
    base_value, values: the target with all heads, and (layer, head) without each; None without a target.
    base_nsp, nsp: the same for the probability that B follows A; None for a single text or a model without that head.
    positions: where pieces were predicted.
    divergence: (layer, head), KL of the predictions from those with all heads, nats, mean over the positions; or None.
    flips: (layer, head), share of the positions where another piece is then the first; or None.
    A head that the model does not have any more is NaN in all of them.
    """

    encoding: Encoding
    method: str
    head_mask: np.ndarray
    target: Target | None = None
    base_value: float | None = None
    values: np.ndarray | None = None
    base_nsp: float | None = None
    nsp: np.ndarray | None = None
    positions: tuple[int, ...] = ()
    divergence: np.ndarray | None = None
    flips: np.ndarray | None = None

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def effect(self) -> np.ndarray | None:
        """Change of the target (layer, head) when the head goes: negative where the head spoke for it; or None."""
        if self.values is None or self.base_value is None:
            return None
        change: np.ndarray = self.values - np.float32(self.base_value)
        return change


@dataclass(frozen=True)
class Batch:
    """Examples of one length with their answers; (batch, seq) each, but for next_sentence_label (batch,).

    attention_mask: 1 for a token, 0 for padding.
    labels: the hidden piece where one is to be predicted, -100 elsewhere.
    next_sentence_label: 0 if B follows A, 1 if not, -100 where nobody asks.
    position_ids, starts: only of rows that hold several examples side by side, else None. Then attention_mask is
        (batch, query, key), 1 within an example; starts is (example, 2), row and place of each [CLS], and
        next_sentence_label (example,).
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    attention_mask: np.ndarray
    labels: np.ndarray
    next_sentence_label: np.ndarray
    position_ids: np.ndarray | None = None
    starts: np.ndarray | None = None


@dataclass(frozen=True)
class PruningPlan:
    """An order in which the heads of one model go.

    model: its name. layers, heads: its sizes. method: how the order was found.
    order: (layer, head), the first to go first. found_on: the texts that it was found on, in words; "" if not said.
    Raises ValueError for a head that does not exist, or stands there twice.
    """

    model: str
    layers: int
    heads: int
    method: str
    order: tuple[tuple[int, int], ...]
    found_on: str = ""

    def __post_init__(self) -> None:
        seen: set[tuple[int, int]] = set()
        for layer, head in self.order:
            if not (0 <= layer < self.layers and 0 <= head < self.heads):
                raise ValueError(f"the plan names L{layer} H{head}: its model has {self.layers} x {self.heads} heads")
            if (layer, head) in seen:
                raise ValueError(f"the plan names L{layer} H{head} twice")
            seen.add((layer, head))

    def first(self, share: float) -> tuple[tuple[int, int], ...]:
        """The heads that go first, a share of all in the order. Raises ValueError for a share that is not 0 to 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"a share of {share:g}: it is between 0 and 1")
        return self.order[: round(share * len(self.order))]

    def check(self, model: str, layers: int, heads: int) -> None:
        """Raise ValueError unless the plan was made for a model of this name and these sizes."""
        if (Path(model).name, layers, heads) != (Path(self.model).name, self.layers, self.heads):
            raise ValueError(
                f"the plan is for {Path(self.model).name} ({self.layers} layers of {self.heads} heads), but the model "
                f"here is {Path(model).name} ({layers} layers of {heads} heads)"
            )

    def to_json(self) -> str:
        """The text of a plan file."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return json.dumps(values) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PruningPlan:
        """The plan in a plan file. Raises ValueError if it holds none."""
        try:
            values = json.loads(text)
            sizes = {name: values[name] for name in ("layers", "heads")}
            order = tuple((layer, head) for layer, head in values["order"])
            if not all(type(number) is int for number in (*sizes.values(), *chain(*order))):
                raise TypeError
            model, method, found_on = str(values["model"]), str(values["method"]), str(values.get("found_on", ""))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                "this is not a pruning plan: a plan has model, layers, heads, method, and an order of [layer, head]"
            ) from error
        return cls(model, **sizes, method=method, order=order, found_on=found_on)


@dataclass(frozen=True)
class CurvePoint:
    """What is left of a model when the first heads of an order are gone.

    order: its name. removed: how many heads went. loss: nats, masked words and next sentences together.
    mlm, nsp: share of hidden pieces, and of next sentences, that it gets right; NaN where none was asked.
    parameters: how many are left. tokens_per_second: while it was asked.
    """

    order: str
    removed: int
    loss: float
    mlm: float
    nsp: float
    parameters: int
    tokens_per_second: float


@dataclass(frozen=True)
class Walk:
    """The values on the way of one text through a model, seen in full in one layer.

    engine: "torch" or "numpy". tokens: the pieces that were read, those of the padding included.
    position: where the masked-word head was asked.
    values: by name, in the order of computation, without a batch axis; `layer.N` is the layer that was seen.
        embeddings.word, .token_type, .position, .sum, .output: (seq, hidden); the two in the middle only where the
            model has such a table.
        layer.N.query, .key, .value, .context: (head, seq, head size); the context after the gate of its head.
        layer.N.mask: (query, key), added to the scores. layer.N.scores, .masked_scores, .probabilities:
            (head, query, key).
        layer.N.attention_output, .attention_sum, .attention_normed: (seq, hidden).
        layer.N.intermediate_dense, .intermediate: (seq, intermediate), before and after the activation.
        layer.N.output_dense, .output_sum, .output: (seq, hidden).
        hidden_states: (layer + 1, seq, hidden), what enters each layer, and what leaves the last.
        pooler_dense, pooler: (hidden,). mlm.dense, .activated, .transform: (hidden,). mlm_logits: (vocab,).
        nsp_logits: (2,), index 0 means that B follows A. Each only where its head was trained.
        A head that was pruned is NaN in all that has heads.
    """

    engine: str
    encoding: Encoding
    tokens: tuple[str, ...]
    layer: int
    position: int
    values: Mapping[str, np.ndarray] = field(repr=False)

    def __post_init__(self) -> None:
        for value in self.values.values():
            value.flags.writeable = False
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(value.nbytes for value in self.values.values())

    def of_layer(self, name: str) -> np.ndarray:
        """A value of the layer that was seen: `of_layer("query")` is `values["layer.N.query"]`."""
        return self.values[f"layer.{self.layer}.{name}"]

    @property
    def entering(self) -> np.ndarray:
        """What enters the layer that was seen (seq, hidden)."""
        entering: np.ndarray = self.values["hidden_states"][self.layer]
        return entering


@dataclass(frozen=True)
class HeadVectors:
    """What one head makes its attention from, for one text.

    queries: (query, head size). keys: (key, head size), float32.
    distances: (query, key), what relative positions add to each scaled product; None for a model without them.
    causal: whether a query sees only what stands before it.
    """

    encoding: Encoding
    layer: int
    head: int
    queries: np.ndarray = field(repr=False)
    keys: np.ndarray = field(repr=False)
    distances: np.ndarray | None = field(default=None, repr=False)
    causal: bool = False

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def scores(self) -> np.ndarray:
        """What the softmax takes (query, key): the dot product over the root of the head size, and the distances."""
        scores: np.ndarray = self.queries @ self.keys.T / np.sqrt(self.queries.shape[1], dtype=np.float32)
        if self.distances is not None:
            scores = scores + self.distances
        return np.where(np.tril(np.ones(scores.shape, bool)), scores, -np.inf) if self.causal else scores

    def products(self, query: int) -> np.ndarray:
        """One query's vector times every key's, number by number (key, head size); a row's sum is the dot product.

        Raises ValueError for a query that does not exist.
        """
        if query not in range(len(self.queries)):
            raise ValueError(f"query {query} does not exist: this text has queries 0 to {len(self.queries) - 1}")
        products: np.ndarray = self.queries[query] * self.keys
        return products

    @property
    def attention(self) -> np.ndarray:
        """The softmax of the scores (query, key): the head's attention, each row sums to 1."""
        scores = self.scores
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        attention: np.ndarray = shares / shares.sum(-1, keepdims=True)
        return attention


@dataclass(frozen=True)
class Attribution:
    """What one method gives each token for one target.

    method: its name. scores: (seq,) float32.
    target_value: the value of the target (for DecompX, of a word's logit).
    signed: whether a negative score speaks against the target; else it only has no part in it.
    baseline: what the tokens were compared with, "pad", "mask" or "zero", and its target value; None without one.
    complete: whether the scores should sum to the target's way from the baseline, or to its value if there is none.
    """

    encoding: Encoding
    target: Target
    method: str
    scores: np.ndarray = field(repr=False)
    target_value: float
    signed: bool
    baseline: str | None = None
    baseline_value: float | None = None
    complete: bool = False

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def gap(self) -> float | None:
        """By how much the scores miss what they should sum to; None where they need not sum to anything."""
        if not self.complete:
            return None
        return float(self.scores.sum(dtype=np.float64)) - (self.target_value - (self.baseline_value or 0.0))


@dataclass(frozen=True)
class TokenMaps:
    """What each position gives to each other, layer by layer, by a method that needs the weights.

    method: its name. maps: (layer, query, key) float32, never negative; rows are as the method leaves them.
    residual: whether the residual connection is in the maps.
    heads: (layer, head, query, key), the same for each head; or None.
    mixing: (layer, query), which share of a position comes from others, 0 to 1; or None.
    """

    encoding: Encoding
    method: str
    maps: np.ndarray = field(repr=False)
    residual: bool
    heads: np.ndarray | None = field(default=None, repr=False)
    mixing: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _read_only(self)


@dataclass(frozen=True)
class LayerStates:
    """The state of every position between the layers.

    states: (depth, seq, hidden) float32; depth 0 is the embeddings, depth n + 1 what leaves layer n.
    """

    encoding: Encoding
    states: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def nbytes(self) -> int:
        """Memory of the array."""
        return self.states.nbytes


@dataclass(frozen=True)
class LensRun:
    """What the masked-word head reads out of every layer at every position.

    Depth 0 is the embeddings, depth n + 1 what leaves layer n; the last depth is the model's own prediction.
    lens: "logit", the states as they are; "tuned", each brought to the last depth by its layer's translator.
    positions: (place,) where it was read, in rising order.
    followed: (place,) the piece that is followed at each of them.
    top: (depth, place, some) int32, the likeliest pieces, best first. probabilities: the same shape, theirs.
    final_rank, final_probability: (depth, place), of the piece that the last depth puts first; rank 1 is the likeliest.
    followed_rank, followed_probability: the same of the followed piece.
    divergence: (depth, place), KL of the last depth's distribution from this depth's, nats, never negative.
    entropy: (depth, place), nats: 0 where one piece is certain.
    """

    encoding: Encoding
    lens: str
    positions: tuple[int, ...]
    followed: tuple[int, ...]
    top: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    final_rank: np.ndarray = field(repr=False)
    final_probability: np.ndarray = field(repr=False)
    followed_rank: np.ndarray = field(repr=False)
    followed_probability: np.ndarray = field(repr=False)
    divergence: np.ndarray = field(repr=False)
    entropy: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def final(self) -> np.ndarray:
        """(place,) the piece that the last depth puts first."""
        first: np.ndarray = self.top[-1, :, 0]
        return first


@dataclass(frozen=True)
class SentenceScore:
    """How likely each piece of a text is, given the rest of it.

    variant: "original", all other pieces are seen; or "within word", not the later ones of its own word.
    log_probabilities: (seq,) float32, nats; NaN at the added [CLS] and [SEP].
    """

    encoding: Encoding
    variant: str
    log_probabilities: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood, nats."""
        return float(np.nansum(self.log_probabilities, dtype=np.float64))

    @property
    def perplexity(self) -> float:
        """The pseudo-perplexity, exp(-mean): 1 for a text whose every piece is certain."""
        return float(np.exp(-np.nanmean(self.log_probabilities, dtype=np.float64)))


@dataclass(frozen=True)
class PairScore:
    """Two sentences that are compared, as one row of a table.

    row: its number. sentences: as they were given. first, second: None where there is a problem.
    problem: why the pair could not be scored; None if it was.
    """

    row: int
    sentences: tuple[str, str]
    first: SentenceScore | None = None
    second: SentenceScore | None = None
    problem: str | None = None

    @property
    def both(self) -> tuple[SentenceScore, SentenceScore]:
        """The two scores. Raises ValueError, with the problem, where there are none."""
        if self.first is None or self.second is None:
            raise ValueError(self.problem or "the pair was not scored")
        return self.first, self.second

    @property
    def difference(self) -> float:
        """By how many nats the first is likelier. Raises ValueError as `both`."""
        first, second = self.both
        return first.total - second.total

    @property
    def believed(self) -> str | None:
        """Which is likelier: "first", "second", or "neither" where both are alike; None where there is a problem."""
        if self.problem is not None:
            return None
        difference = self.difference
        return "neither" if difference == 0 else "first" if difference > 0 else "second"


@dataclass(frozen=True)
class DecoderRun:
    """One sentence about one picture, and where the decoder looked for each word.

    image: uint8 (size, size, 3), as the model saw it. grid: rows and columns of its patches.
    words: in the order they were chosen; the last is [SEP], unless there was no room for it.
    probabilities: (word,), of each when it was chosen. alternatives: for each the likeliest words, best first.
    cross_attention: (word, layer, head, patch), probabilities after the softmax in the row that predicted the word;
        over the patches, row after row of the picture, they sum to 1.
    cross_gradient: the same shape: change of the word's log-probability (nats) for a change of each probability.
    """

    image: np.ndarray
    grid: tuple[int, int]
    words: tuple[str, ...]
    probabilities: np.ndarray
    alternatives: tuple[tuple[tuple[str, float], ...], ...]
    cross_attention: np.ndarray
    cross_gradient: np.ndarray

    def __post_init__(self) -> None:
        _read_only(self)

    @property
    def sentence(self) -> str:
        """The words that are to be read."""
        return " ".join(word for word in self.words if word not in SPECIAL_TOKENS)

    def shown(self, what: str) -> np.ndarray:
        """The maps by name: "attention", "gradient" or "product" (word, layer, head, patch), signed.

        Raises ValueError for another name.
        """
        maps = {"attention": self.cross_attention, "gradient": self.cross_gradient}
        if what == "product":
            product: np.ndarray = self.cross_attention * self.cross_gradient
            return product
        if what not in maps:
            raise ValueError(f"{what!r} is unknown: one of {', '.join(maps)}, product")
        return maps[what]


# What the loss of a text may be of -> what its nats are counted by.
LOSSES: Mapping[str, str] = MappingProxyType({
    "words": "a hidden piece", "word": "a piece of the word", "class": "a class to tell", "next": "a pair to tell",
})  # fmt: skip


@dataclass(frozen=True)
class HeadTable:
    """What is known of every head of a model over many texts.

    model: its name. texts, tokens: how many were read. loss: mean over the texts of their loss with all heads, nats;
        None where it was not asked for. loss_of: what was asked of each, one of `LOSSES`. method: what took the place
        of a head's output in `loss_change`, one of those of `run.ablation`.
    figures: by name (layer, head), each a mean over the texts; NaN for a head that the model does not have.
    """

    model: str
    texts: int
    tokens: int
    figures: Mapping[str, np.ndarray] = field(repr=False)
    loss: float | None = None
    loss_of: str = "words"
    method: str = "zero"

    def __post_init__(self) -> None:
        for values in self.figures.values():
            values.flags.writeable = False
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    @property
    def loss_in_words(self) -> str:
        """The loss with what it is counted by, as "4.076 nats a hidden piece"; empty where it was not asked for."""
        return "" if self.loss is None else f"{self.loss:.3f} nats {LOSSES[self.loss_of]}"

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads in each."""
        layers, heads = next(iter(self.figures.values())).shape
        return layers, heads

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(values.nbytes for values in self.figures.values())
