"""Which heads can go: what a model gets right of some examples, the order to take heads out in, and what that gives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import nan

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.modeling import IGNORED_LABEL
from bert_core.pruning import pruned
from bert_core.record import Batch, CurvePoint, PruningPlan
from bert_core.recording import record
from bert_core.run.ablation import clean_pass, without_each
from bert_core.run.capture import gate_tensor
from bert_core.tokenizer import MASK, Encoding

METHODS = ("importance", "ablation", "iterative", "random")
RE_ESTIMATED = 0.1  # share of the heads that go before the iterative order looks again
BATCHES = (1, 8, 32)
HIDDEN_APART = 8  # every how many pieces of a text are hidden together: about as many as in pre-training

Head = tuple[int, int]
Report = Callable[[float], None]


def _silent(share: float) -> None:
    """Nobody wants to know."""


# ---------------------------------------------------------------------------- examples, and what is right of them


@dataclass(frozen=True)
class Score:
    """How well a model does. loss: nats; mlm, nsp: shares; each NaN where nothing was asked."""

    loss: float
    mlm: float
    nsp: float


def examples_of(loaded: LoadedModel, encoding: Encoding) -> tuple[Batch, ...]:
    """A text as examples: every piece is hidden once, an eighth of them at a time; and does B follow A? (taken as yes).

    What is a [MASK] already has no answer and stays hidden.
    """
    places = [p for p, special in enumerate(encoding.special) if not special and encoding.tokens[p] != MASK]
    parts = [part for first in range(HIDDEN_APART) if (part := places[first::HIDDEN_APART])]
    rows = len(parts) + (encoding.pair is not None)
    if not rows:
        return ()
    ids = np.tile(np.array(encoding.input_ids), (rows, 1))
    labels = np.full_like(ids, IGNORED_LABEL)
    for row, part in enumerate(parts):
        labels[row, part] = ids[row, part]
        ids[row, part] = loaded.tokenizer.id_of(MASK)
    follows = np.full(rows, IGNORED_LABEL)
    if encoding.pair is not None:  # asked of the text as it is, in the last row
        follows[-1] = 0
    segments = np.tile(np.array(encoding.token_type_ids), (rows, 1))
    return (Batch(ids, segments, np.ones_like(ids), labels, follows),)


@torch.no_grad()
def score(
    loaded: LoadedModel, batches: Sequence[Batch], *, head_mask: np.ndarray | None = None, report: Report = _silent
) -> Score:
    """What a model gets right of some examples, with some heads off.

    head_mask: as for `capture`. The loss is that of pre-training: of the hidden pieces, plus of the next sentences.
    Raises ValueError where nothing can be asked.
    """
    gates = gate_tensor(loaded, head_mask)
    tally = _Tally()
    for number, batch in enumerate(batches):
        tally.add(*_answers(loaded, _tensors(loaded, batch), gates))
        report((number + 1) / len(batches))
    return tally.score(loaded)


class _Tally:
    """Sums over examples."""

    def __init__(self) -> None:
        self.loss, self.right, self.asked = [0.0, 0.0], [0, 0], [0, 0]

    def add(self, *answers: tuple[Tensor, Tensor]) -> None:
        """answers: logits (asked, choice) and the right ones (asked,), of pieces, then of next sentences."""
        for kind, (logits, right) in enumerate(answers):
            self.loss[kind] += F.cross_entropy(logits, right, reduction="sum").item()
            self.right[kind] += int((logits.argmax(-1) == right).sum())
            self.asked[kind] += len(right)

    def score(self, loaded: LoadedModel) -> Score:
        if not any(self.asked):
            raise ValueError(
                f"{loaded.name} cannot be asked anything of these examples: it has no trained head for them"
            )
        loss = sum(part / of for part, of in zip(self.loss, self.asked, strict=True) if of)
        return Score(loss, *(right / of if of else nan for right, of in zip(self.right, self.asked, strict=True)))


def _tensors(loaded: LoadedModel, batch: Batch) -> dict[str, Tensor]:
    """The arrays of a batch on the model's device; answers that it has no trained head for are left out."""
    found = {
        name: torch.from_numpy(np.ascontiguousarray(value)).to(loaded.device) for name, value in vars(batch).items()
    }
    if not loaded.has_mlm:
        found["labels"] = torch.full_like(found["labels"], IGNORED_LABEL)
    if not loaded.has_nsp:
        found["next_sentence_label"] = torch.full_like(found["next_sentence_label"], IGNORED_LABEL)
    return found


def _forward(loaded: LoadedModel, batch: Mapping[str, Tensor], gates: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The last layer (batch, seq, hidden), and [CLS] pooled (batch, hidden)."""
    padded = bool((batch["attention_mask"] == 0).any())
    outputs = loaded.model.bert(
        batch["input_ids"],
        token_type_ids=batch["token_type_ids"] if loaded.config.type_vocab_size else None,
        attention_mask=batch["attention_mask"] if padded else None,
        head_mask=gates,
    )
    return outputs.last_hidden_state, outputs.pooler_output


def _answers(
    loaded: LoadedModel, batch: Mapping[str, Tensor], gates: Tensor | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Logits and right answers of the hidden pieces, in the order of rows, and of the next sentences."""
    states, pooled = _forward(loaded, batch, gates)
    labels, follows = batch["labels"], batch["next_sentence_label"]
    hidden, told = labels != IGNORED_LABEL, follows != IGNORED_LABEL
    heads = loaded.model.cls
    pieces = heads.predictions(states[hidden]).float()
    sentences = heads.seq_relationship(pooled[told]).float() if pooled is not None else states.new_empty(0, 2)
    return (pieces, labels[hidden]), (sentences, follows[told])


# ---------------------------------------------------------------------------- the worth of each head


def loss_importance(loaded: LoadedModel, batches: Sequence[Batch], *, report: Report = _silent) -> np.ndarray:
    """How fast the loss of an example moves with each head's gate, in size, mean over the examples; (layer, head).

    NaN for a head that was pruned. An example's loss: the mean over its hidden pieces, plus that of its next sentence.
    Source: Michel 2019, equation 2 (arXiv:1905.10650).
    """
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    total, examples = np.zeros((layers, heads)), 0
    if not _existing(loaded).any():
        return np.full((layers, heads), nan)
    for number, batch in enumerate(batches):
        tensors = _tensors(loaded, batch)
        rows = len(batch.input_ids)
        # On a CPU the way back through fused attention costs more than that through the maps, so they are watched.
        watched = record() if loaded.device.type == "cpu" else nullcontext()
        with torch.enable_grad(), watched:
            gates = torch.ones(layers, rows, heads, device=loaded.device, requires_grad=True)
            (pieces, labels), (sentences, follows) = _answers(loaded, tensors, gates)
            owners = (tensors["labels"] != IGNORED_LABEL).nonzero()[:, 0]
            counts = torch.bincount(owners, minlength=rows)
            of_pieces = F.cross_entropy(pieces, labels, reduction="none") / counts[owners]
            loss = of_pieces.sum() + F.cross_entropy(sentences, follows, reduction="sum")
            (slopes,) = torch.autograd.grad(loss, gates)
        # Examples do not meet, so the slope of the sum at an example's own gates is that of its own loss.
        total += slopes.abs().sum(1).double().cpu().numpy()
        examples += rows
        report((number + 1) / len(batches))
    found: np.ndarray = np.where(_existing(loaded), total / max(examples, 1), nan)
    return found


@torch.no_grad()
def loss_without_each(loaded: LoadedModel, batches: Sequence[Batch], *, report: Report = _silent) -> np.ndarray:
    """The loss without each head in turn, exactly; (layer, head), NaN for a head that was pruned."""
    bert, existing = loaded.model.bert, _existing(loaded)
    heads: list[Head] = [(int(layer), int(head)) for layer, head in np.argwhere(existing)]
    tallies = {head: _Tally() for head in heads}
    for number, batch in enumerate(batches):
        tensors = _tensors(loaded, batch)
        labels, follows = tensors["labels"], tensors["next_sentence_label"]
        positions = _asked_positions(labels)
        rows = torch.arange(len(labels), device=labels.device)[:, None]
        asked = labels[rows, positions]
        hidden, told = asked != IGNORED_LABEL, follows != IGNORED_LABEL
        segments = tensors["token_type_ids"] if loaded.config.type_vocab_size else None
        entering = bert.embeddings(tensors["input_ids"], token_type_ids=segments)
        mask = tensors["attention_mask"]
        additive = bert.get_extended_attention_mask(mask, (mask.shape[0], mask.shape[1])) if (mask == 0).any() else None
        clean = clean_pass(bert, entering, additive, None, positions)
        done = 0
        for some, states in without_each(bert, clean, heads, additive, None, positions):
            for head, one in zip(some, states, strict=True):  # one: (batch, some, hidden)
                pieces = loaded.model.cls.predictions(one[hidden]).float()
                pooled = one.new_empty(len(one), 0) if bert.pooler is None else bert.pooler(one)
                sentences = (
                    loaded.model.cls.seq_relationship(pooled[told]).float() if told.any() else one.new_empty(0, 2)
                )
                tallies[head].add((pieces, asked[hidden]), (sentences, follows[told]))
            done += len(some)
            report((number + done / len(heads)) / len(batches))
    found = np.full(existing.shape, nan)
    for head, tally in tallies.items():
        found[head] = tally.score(loaded).loss
    return found


def _asked_positions(labels: Tensor) -> Tensor:
    """[CLS], then the labelled positions of each row, rows filled up with [CLS]: (batch, some)."""
    hidden = labels != IGNORED_LABEL
    most = int(hidden.sum(1).max()) if len(labels) else 0
    order = hidden.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    places = torch.where(hidden.gather(1, order), order, 0)
    return torch.cat([places.new_zeros(len(labels), 1), places], dim=1)


def _existing(loaded: LoadedModel) -> np.ndarray:
    """Whether the model has each head, (layer, head)."""
    config = loaded.config
    there = np.ones((config.num_hidden_layers, config.num_attention_heads), bool)
    for layer, heads in config.pruned_heads.items():
        there[layer, list(heads)] = False
    return there


# ---------------------------------------------------------------------------- orders and curves


def propose_plan(
    loaded: LoadedModel, batches: Sequence[Batch], method: str, *, seed: int = 0, report: Report = _silent
) -> PruningPlan:
    """An order in which the heads of a model may go, the one that seems to matter least first.

    method: "importance", by the size of the loss's slope; "ablation", by the loss without each head alone; "iterative",
        by importance, estimated anew whenever a tenth of the heads has gone; "random".
    seed: of a random order. report: told the share that is done; may raise to stop.
    Raises ValueError for an unknown method, or examples of which nothing can be asked.
    Source: Michel 2019, sections 3 and 4 (arXiv:1905.10650).
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: one of {', '.join(METHODS)}")
    config, existing = loaded.config, _existing(loaded)
    name = method
    if method == "random":
        worth = np.where(existing, np.random.default_rng(seed).random(existing.shape), nan)
        order, name = _rising(worth), f"random {seed}"
    elif method == "importance":
        order = _rising(loss_importance(loaded, batches, report=report))
    elif method == "ablation":
        order = _rising(loss_without_each(loaded, batches, report=report))
    else:
        order, step = [], max(1, round(RE_ESTIMATED * existing.sum()))
        looks = range(0, int(existing.sum()), step)
        left = loaded
        for number in range(len(looks)):

            def tell(share: float, number: int = number) -> None:
                report((number + share) / len(looks))

            worth = loss_importance(left, batches, report=tell)
            going = _rising(worth)[:step]
            order += going
            left = pruned(left, going)
    return PruningPlan(loaded.name, config.num_hidden_layers, config.num_attention_heads, name, tuple(order))


def _rising(worth: np.ndarray) -> list[Head]:
    """The heads by a figure (layer, head), the smallest first; what is NaN left out."""
    order = [(int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(worth))]
    return sorted(order, key=lambda head: float(worth[head]))


def curve_points(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    orders: Mapping[str, Sequence[Head]],
    removed: Sequence[int],
    *,
    known: Collection[CurvePoint] = (),
    report: Report = _silent,
) -> Iterator[CurvePoint]:
    """What is left of a model along some orders, each point from a model that was really pruned.

    orders: by name, the first head to go first. removed: how many heads are gone at each point.
    known: points of before, which are not computed again. report: told the share that is done; may raise to stop.
    Yields point after point, so that whoever stops has all those before.
    """
    there = {(point.order, point.removed) for point in known}
    wanted = [(name, count) for name in orders for count in removed if (name, count) not in there]
    before, left = None, loaded
    if wanted:
        score(loaded, batches[:1])  # the first pass of a process is slow, and no point should pay for it
    for number, (name, count) in enumerate(wanted):
        # A model of the same order is pruned on; another order starts from the whole model.
        left = pruned(left if name == before else loaded, orders[name][:count])
        before = name

        def tell(share: float, number: int = number) -> None:
            report((number + share) / len(wanted))

        yield point_of(left, batches, name, count, report=tell)


def point_of(
    left: LoadedModel, batches: Sequence[Batch], order: str, removed: int, *, report: Report = _silent
) -> CurvePoint:
    """One point of a curve: a model that has lost so many heads of an order is asked, and timed."""
    start = time.perf_counter()
    found = score(left, batches, report=report)
    seconds = time.perf_counter() - start
    tokens = sum(int(batch.attention_mask.sum()) for batch in batches)
    return CurvePoint(
        order=order, removed=removed, loss=found.loss, mlm=found.mlm, nsp=found.nsp,
        parameters=sum(parameter.numel() for parameter in left.model.parameters()),
        tokens_per_second=tokens / seconds,
    )  # fmt: skip


# ---------------------------------------------------------------------------- what pruning saves


@dataclass(frozen=True)
class Cost:
    """What a model takes. what: "full", "masked" or "pruned". nbytes: of its parameters.

    seconds: texts in a batch -> one pass of the encoder, median.
    """

    what: str
    parameters: int
    nbytes: int
    seconds: Mapping[int, float]


@torch.no_grad()
def pruning_costs(
    loaded: LoadedModel,
    heads: Collection[Head],
    encoding: Encoding,
    *,
    batches: Sequence[int] = BATCHES,
    repeats: int = 5,
    report: Report = _silent,
) -> tuple[Cost, Cost, Cost]:
    """Size and measured speed of a model: as it is, with some heads switched off, and without them.

    The three take turns, so that whatever else the machine does meets them alike. report: as for `curve_points`.
    """
    smaller = pruned(loaded, heads)
    gates = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32)
    for head in heads:
        gates[head] = 0
    mask = torch.tensor(gates, device=loaded.device)
    sides: dict[str, tuple[LoadedModel, Tensor | None]] = {
        "full": (loaded, None), "masked": (loaded, mask), "pruned": (smaller, None),
    }  # fmt: skip
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
    seconds: dict[str, dict[int, list[float]]] = {name: {size: [] for size in batches} for name in sides}
    for number, size in enumerate(batches):
        texts = ids.expand(size, -1).contiguous()
        for repeat in range(repeats + 1):
            for name, (model, gated) in sides.items():
                taken = _seconds_of(model, texts, gated)
                if repeat:  # the first round warms up
                    seconds[name][size].append(taken)
            report((number + (repeat + 1) / (repeats + 1)) / len(batches))
    full, masked, left = (
        Cost(
            name,
            sum(parameter.numel() for parameter in model.model.parameters()),
            model.nbytes,
            {size: statistics.median(times) for size, times in seconds[name].items()},
        )
        for name, (model, _) in sides.items()
    )
    return full, masked, left


def _seconds_of(loaded: LoadedModel, ids: Tensor, gates: Tensor | None) -> float:
    start = time.perf_counter()
    loaded.model.bert(ids, head_mask=gates)
    if loaded.device.type == "cuda":
        torch.cuda.synchronize(loaded.device)
    return time.perf_counter() - start
