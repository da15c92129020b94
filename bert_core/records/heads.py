"""What is known of the heads of a model: each left out, in which order they go, their vectors, tables of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.targets import Target
from bert_core.refused import Refused, short_repr
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.tokenizer import Encoding


@compared_by_value
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
        make_read_only(self)

    @property
    def effect(self) -> np.ndarray | None:
        """Change of the target (layer, head) when the head goes: negative where the head spoke for it; or None."""
        if self.values is None or self.base_value is None:
            return None
        change: np.ndarray = self.values - np.float32(self.base_value)
        return change


@dataclass(frozen=True)
class PruningPlan:
    """An order in which the heads of one model go, or its neurons, or its layers.

    model: its name. layers, heads, neurons: its sizes; neurons are 0 where the plan is not of them. method: how the
    order was found. what: "heads", "neurons" or "layers".
    order: (layer, head), (layer, neuron) or (layer,), the first to go first. found_on: the texts that it was found on,
    in words; "" if not said.
    Raises Refused for what does not exist, or stands there twice.
    """

    model: str
    layers: int
    heads: int
    method: str
    order: tuple[tuple[int, ...], ...]
    found_on: str = ""
    what: str = "heads"
    neurons: int = 0

    def __post_init__(self) -> None:
        sizes = {"heads": (self.layers, self.heads), "neurons": (self.layers, self.neurons), "layers": (self.layers,)}
        if self.what not in sizes:
            raise Refused(f"the plan is of {short_repr(self.what)}: one of {', '.join(sizes)}")
        size = sizes[self.what]
        seen: set[tuple[int, ...]] = set()
        for part in self.order:
            if len(part) != len(size) or not all(0 <= one < most for one, most in zip(part, size, strict=True)):
                raise Refused(
                    f"the plan names {self._named(part)}: its model has {' x '.join(map(str, size))} {self.what}"
                )
            if part in seen:
                raise Refused(f"the plan names {self._named(part)} twice")
            seen.add(part)

    def _named(self, part: tuple[int, ...]) -> str:
        return " ".join(f"{letter}{one}" for letter, one in zip(("L", self.what[0].upper()), part, strict=False))

    def first(self, share: float) -> tuple[tuple[int, ...], ...]:
        """What goes first, a share of all in the order. Raises Refused for a share that is not 0 to 1."""
        if not 0 <= share <= 1:
            raise Refused(f"a share of {share:g}: it is between 0 and 1")
        return self.order[: round(share * len(self.order))]

    def check(self, model: str, layers: int, heads: int, neurons: int = 0) -> None:
        """Raise Refused unless the plan was made for a model of this name and these sizes.

        neurons: those of a layer, for a plan of neurons.
        """
        if (Path(model).name, layers, heads) != (Path(self.model).name, self.layers, self.heads):
            raise Refused(
                f"the plan is for {Path(self.model).name} ({self.layers} layers of {self.heads} heads), but the model "
                f"here is {Path(model).name} ({layers} layers of {heads} heads)"
            )
        if self.what == "neurons" and neurons != self.neurons:
            raise Refused(f"the plan is for layers of {self.neurons} neurons, but the model here has {neurons} in each")

    def to_json(self) -> str:
        """The text of a plan file."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return json.dumps(values) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PruningPlan:
        """The plan that the text of a plan file holds. Raises Refused if it holds none."""
        try:
            if not isinstance(text, str | bytes):
                raise TypeError
            values = json.loads(text)
            sizes = {name: values[name] for name in ("layers", "heads")} | {"neurons": values.get("neurons", 0)}
            what = str(values.get("what", "heads"))  # older plans, which are of heads, do not say it
            order = tuple(tuple(part) for part in values["order"])
            if what == "heads":
                order = tuple((layer, head) for layer, head in order)
            if not all(type(number) is int for number in (*sizes.values(), *chain(*order))):
                raise TypeError
            model, method, found_on = str(values["model"]), str(values["method"]), str(values.get("found_on", ""))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Refused(
                "this is not a pruning plan: a plan has model, layers, heads, method, and an order of [layer, head]"
            ) from error
        return cls(model, **sizes, method=method, order=order, found_on=found_on, what=what)


@dataclass(frozen=True)
class CurvePoint:
    """What is left of a model when the first heads, neurons or layers of an order are gone.

    order: its name. removed: how many went. loss: nats, masked words and next sentences together.
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


@compared_by_value
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
        make_read_only(self)

    @property
    def scores(self) -> np.ndarray:
        """What the softmax takes (query, key): the dot product over the root of the head size, and the distances."""
        scores: np.ndarray = self.queries @ self.keys.T / np.sqrt(self.queries.shape[1], dtype=np.float32)
        if self.distances is not None:
            scores = scores + self.distances
        return np.where(np.tril(np.ones(scores.shape, bool)), scores, -np.inf) if self.causal else scores

    def products(self, query: int) -> np.ndarray:
        """One query's vector times every key's, number by number (key, head size); a row's sum is the dot product.

        Raises Refused for a query that does not exist.
        """
        if query not in range(len(self.queries)):
            raise Refused(f"query {query} does not exist: this text has queries 0 to {len(self.queries) - 1}")
        products: np.ndarray = self.queries[query] * self.keys
        return products

    @property
    def attention(self) -> np.ndarray:
        """The softmax of the scores (query, key): the head's attention, each row sums to 1."""
        scores = self.scores
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        attention: np.ndarray = shares / shares.sum(-1, keepdims=True)
        return attention


@compared_by_value
@dataclass(frozen=True)
class HeadTable:
    """What is known of every head of a model over many texts.

    model: its name. texts, tokens: how many were read. loss: mean over the texts of their loss with all heads, in what
        `FILE_QUESTIONS` says; None where it was not asked for. loss_of: the question, of `FILE_QUESTIONS`. method: what
        took the place of a head's output in `loss_change`, one of those of `run.ablation`. weights: the fingerprint of
        the model; empty for a table of version 0.2, which did not keep it.
    figures: by name (layer, head), each a mean over the texts; NaN for a head that the model does not have.
    """

    model: str
    texts: int
    tokens: int
    figures: Mapping[str, np.ndarray] = field(repr=False)
    loss: float | None = None
    loss_of: str = "words"
    method: str = "zero"
    weights: str = ""

    def __post_init__(self) -> None:
        for values in self.figures.values():
            values.flags.writeable = False
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    @property
    def loss_text(self) -> str:
        """The loss with what it is counted by, as "4.076 nats a hidden piece"; empty where it was not asked for."""
        return "" if self.loss is None else f"{self.loss:.3f} {FILE_QUESTIONS[self.loss_of].loss}"

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads in each."""
        layers, heads = next(iter(self.figures.values())).shape
        return layers, heads

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(values.nbytes for values in self.figures.values())
