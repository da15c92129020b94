"""Results about attention heads: ablation of each head, pruning plans and curves, vectors, and tables over texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from bert_core.deprecation import RenamedAttribute
from bert_core.positions import CONTENT, POSITION
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.refused import Refused, short_repr
from bert_core.target_kinds import CUSTOM, FILE_QUESTIONS
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class HeadSweep(Tabular):
    """Predictions for a text with each attention head ablated in turn.

    method: replacement of the head output, "zero", "mean" or "resample".
    head_mask: (layer, head), 0 for heads that were ablated in all passes.
    base_value: target with all heads. values: (layer, head), target without each head. Both are None without a target.
    base_nsp, nsp: the same for the probability that B follows A. None for a single text or a model without NSP head.
    positions: positions at which tokens were predicted.
    divergence: (layer, head), KL divergence in nats of the predictions from those with all heads, mean over the
        positions. None without predictions.
    flips: (layer, head), share of the positions whose most probable token changes, 0 to 1. None without predictions.
    A pruned head is NaN in all arrays.
    """

    TABLES: ClassVar[Tables] = (
        (
            "layer head",
            {
                "value": "values", "effect": "effect", "nsp": "nsp", "divergence": "divergence", "flips": "flips",
                "head_mask": "head_mask",
            },
        ),
    )  # fmt: skip

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
        """Change of the target by each ablation, (layer, head), negative if the head supports it. None if no target."""
        if self.values is None or self.base_value is None:
            return None
        change: np.ndarray = self.values - np.float32(self.base_value)
        return change


@dataclass(frozen=True)
class PruningPlan(Tabular):
    """Order in which the heads, neurons or layers of one model are pruned.

    model: name of the model.
    layers, heads, neurons: number of layers, and of heads and neurons in each. neurons is 0 unless the plan is of
        neurons.
    method: method that determined the order.
    order: (layer, head), (layer, neuron) or (layer,), the first to be pruned first.
    found_on: description of the texts that determined the order, or "".
    what: "heads", "neurons" or "layers".
    Raises Refused if a part does not exist or occurs twice.
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
            raise Refused(f"the plan is of {short_repr(self.what)}: it must be of one of {', '.join(sizes)}")
        size = sizes[self.what]
        parts: set[tuple[int, ...]] = set()
        for part in self.order:
            if len(part) != len(size) or not all(0 <= n < limit for n, limit in zip(part, size, strict=True)):
                raise Refused(
                    f"the plan contains {self._label(part)}: its model has {' x '.join(map(str, size))} {self.what}"
                )
            if part in parts:
                raise Refused(f"the plan contains {self._label(part)} twice: each part may occur once")
            parts.add(part)

    def _label(self, part: tuple[int, ...]) -> str:
        """Return the label of a part, as "L3 H5"."""
        return " ".join(f"{letter}{n}" for letter, n in zip(("L", self.what[0].upper()), part, strict=False))

    def first(self, share: float) -> tuple[tuple[int, ...], ...]:
        """Return the first parts of the order, up to a share of all, 0 to 1. Raises Refused for any other share."""
        if not 0 <= share <= 1:
            raise Refused(f"the share is {share:g}: it must be between 0 and 1")
        return self.order[: round(share * len(self.order))]

    def check(self, model: str, layers: int, heads: int, neurons: int = 0) -> None:
        """Check that the plan was made for a model of this name and size.

        neurons: number of neurons in each layer, for a plan of neurons.
        Raises Refused otherwise.
        """
        if (Path(model).name, layers, heads) != (Path(self.model).name, self.layers, self.heads):
            raise Refused(
                f"the plan is for {Path(self.model).name} ({self.layers} layers of {self.heads} heads), but the model "
                f"here is {Path(model).name} ({layers} layers of {heads} heads)"
            )
        if self.what == "neurons" and neurons != self.neurons:
            raise Refused(f"the plan is for layers of {self.neurons} neurons, but the model here has {neurons} in each")

    def _tables(self) -> Tables:
        names = ("layer", self.what[:-1])[: len(self.order[0]) if self.order else 1]
        order = np.array(self.order, np.int64).reshape(len(self.order), len(names))
        return (("rank", dict(zip(names, order.T, strict=True))),)

    def to_json(self) -> str:
        """Return the text of a plan file."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return json.dumps(values) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PruningPlan:
        """Read a plan from the text of a plan file. Raises Refused if it is not a plan."""
        try:
            if not isinstance(text, str | bytes):
                raise TypeError
            values = json.loads(text)
            sizes = {name: values[name] for name in ("layers", "heads")} | {"neurons": values.get("neurons", 0)}
            part_kind = str(values.get("what", "heads"))  # absent from older plans, which are of heads
            order = tuple(tuple(part) for part in values["order"])
            if part_kind == "heads":
                order = tuple((layer, head) for layer, head in order)
            if not all(type(number) is int for number in (*sizes.values(), *chain(*order))):
                raise TypeError
            model, method, texts = str(values["model"]), str(values["method"]), str(values.get("found_on", ""))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Refused(
                "this is not a pruning plan: a plan has model, layers, heads, method, and an order of [layer, head]"
            ) from error
        return cls(model, **sizes, method=method, order=order, found_on=texts, what=part_kind)


@dataclass(frozen=True)
class CurvePoint(Tabular):
    """Quality of a model after pruning the first heads, neurons or layers of an order.

    order: name of the order.
    removed: number of pruned parts.
    loss: nats, MLM and NSP together.
    mlm, nsp: accuracy of masked tokens and of NSP, 0 to 1. NaN if not computed.
    parameters: number of parameters left.
    tokens_per_second: throughput of the measurement.
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
class HeadVectors(Tabular):
    """Query and key vectors of one attention head for one text.

    queries: (query, head size) float32. keys: (key, head size) float32. With rotary positions they are rotated.
    distances: (query, key), term of relative positions in each scaled dot product. None for a model without such terms.
    causal: whether a query attends only to itself and earlier positions.
    root_terms: factor of the head size under the root by which dot products are divided.
    position_terms: the parts of `distances` by name, (query, key) each; if not given, `distances` is the only part.
    window: the largest distance between a query and a key in a local layer; None for any distance.
    rotary_base: base of the rotation, as for `rotate_by_position`. None without rotary positions.
    """

    encoding: Encoding
    layer: int
    head: int
    queries: np.ndarray = field(repr=False)
    keys: np.ndarray = field(repr=False)
    distances: np.ndarray | None = field(default=None, repr=False)
    causal: bool = False
    root_terms: int = 1
    position_terms: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    window: int | None = None
    rotary_base: float | None = None

    def __post_init__(self) -> None:
        make_read_only(self)
        if self.distances is not None and not self.position_terms:
            object.__setattr__(self, "position_terms", {POSITION: self.distances})
        for term in self.position_terms.values():
            term.flags.writeable = False

    def _tables(self) -> Tables:
        return (
            ("query key", {**self.addends, "score": "scores", "attention": "attention"}),
            ("query dimension", {"q": "queries"}),
            ("key dimension", {"k": "keys"}),
        )

    @property
    def divisor(self) -> float:
        """Number by which the dot products of queries and keys are divided in the scores."""
        return math.sqrt(self.root_terms * self.queries.shape[1])

    @property
    def addends(self) -> dict[str, np.ndarray]:
        """The terms of the scores by name, (query, key) each, already divided: they add up to `scores`.

        "content-to-content" is the dot product of the query and the key. A model with relative positions has
        "content-to-position" (the query and the vector of the distance), "position-to-content" (the key and the vector
        of the distance) or "position" (a number for the distance) as well. Masked scores are not -inf here.
        """
        return {CONTENT: self._content_scores, **self.position_terms}

    @property
    def _content_scores(self) -> np.ndarray:
        """The scaled dot products of queries and keys, (query, key)."""
        scores: np.ndarray = self.queries @ self.keys.T / np.float32(self.divisor)
        return scores

    @property
    def scores(self) -> np.ndarray:
        """Attention scores (query, key): dot products over `divisor`, plus the distances; -inf outside the window."""
        scores = self._content_scores if self.distances is None else self._content_scores + self.distances
        if self.window is not None:
            positions = np.arange(len(scores))
            scores = np.where(abs(positions[:, None] - positions) <= self.window, scores, -np.inf)
        return np.where(np.tril(np.ones(scores.shape, bool)), scores, -np.inf) if self.causal else scores

    def products(self, query: int) -> np.ndarray:
        """Return the elementwise products of one query with every key, (key, head size). Rows sum to dot products.

        Raises Refused if the query does not exist.
        """
        if query not in range(len(self.queries)):
            raise Refused(f"query {query} does not exist: the queries of this text are 0 to {len(self.queries) - 1}")
        products: np.ndarray = self.queries[query] * self.keys
        return products

    @property
    def attention(self) -> np.ndarray:
        """Attention probabilities (query, key), the softmax of the scores. Each row sums to 1."""
        scores = self.scores
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        attention: np.ndarray = shares / shares.sum(-1, keepdims=True)
        return attention


@compared_by_value
@dataclass(frozen=True)
class HeadTable(Tabular):
    """Numbers about every attention head of a model, averaged over many texts.

    model: name of the model. texts, tokens: number of texts and of tokens.
    figures: (layer, head) by name, each a mean over the texts. NaN for a pruned head.
    loss: mean loss of the texts with all heads, in the unit of the question. None if not computed.
    loss_of: the question, one of `FILE_QUESTIONS`, or "custom" for a custom target.
    method: replacement of the head output in `loss_change`, one of those of `run.ablation`.
    weights: fingerprint of the model. Empty for a table of version 0.2, which did not store it.
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

    def _tables(self) -> Tables:
        names = ("model", "texts", "tokens", "loss", "loss_of", "method", *(["weights"] if self.weights else []))
        fixed = {name: np.full(self.shape, getattr(self, name)) for name in names}
        fixed["loss"] = fixed["loss"].astype(np.float64)  # NaN for None
        return (("layer head", fixed | dict(self.figures)),)

    @property
    def loss_text(self) -> str:
        """The loss with its unit, as "4.076 nats a hidden piece", or an empty text if it was not computed."""
        if self.loss is None:
            return ""
        unit = "units of the target per text" if self.loss_of == CUSTOM else FILE_QUESTIONS[self.loss_of].loss
        return f"{self.loss:.3f} {unit}"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of layers, and of heads in each layer."""
        layers, heads = next(iter(self.figures.values())).shape
        return layers, heads

    @property
    def nbytes(self) -> int:
        """Memory of all arrays in bytes."""
        return sum(values.nbytes for values in self.figures.values())

    loss_in_words = RenamedAttribute("loss_text")
