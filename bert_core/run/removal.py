"""Which heads can go: what a model gets right of some examples, the order to take heads out in, and what that gives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
import torch
from torch import Tensor

from bert_core.analysis.heads import layer_normalised
from bert_core.loading import LoadedModel
from bert_core.modeling import IGNORED_LABEL
from bert_core.pruning import pruned
from bert_core.records import Batch, CurvePoint, PruningPlan
from bert_core.run.ablation import Head, Replacement
from bert_core.run.asked import KINDS, Asked, heads_there, losses_and_slopes, losses_of, states_without_each
from bert_core.run.capture import gate_tensor, head_mask_without
from bert_core.run.layers import as_array
from bert_core.tokenizer import MASK, Encoding

METHODS = (
    "importance", "importance-in-layer", "ablation", "ablation-mean", "ablation-resample", "iterative", "random"
)  # fmt: skip
RANDOM_ORDERS = 5  # make the band that the other orders stand beside
RE_ESTIMATED = 0.1  # share of the heads that go before the iterative order looks again
BATCHES = (1, 8, 32)
HIDDEN_APART = 8  # every how many pieces of a text are hidden together: about as many as in pre-training
TOKENS_TOGETHER = 1024  # of copies of a text that are asked at once, so that there is progress to report

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
    together = max(1, TOKENS_TOGETHER // ids.shape[1])
    parts_of = (slice(first, first + together) for first in range(0, rows, together))
    return tuple(
        Batch(ids[part], segments[part], np.ones_like(ids[part]), labels[part], follows[part]) for part in parts_of
    )


@torch.no_grad()
def score(
    loaded: LoadedModel, batches: Sequence[Batch], *, head_mask: np.ndarray | None = None, report: Report = _silent
) -> Score:
    """What a model gets right of some examples, with some heads off.

    head_mask: as for `capture`. The loss is that of pre-training: of the hidden pieces, plus of the next sentences.
    Raises ValueError where nothing can be asked.
    """
    gates = gate_tensor(loaded, head_mask)
    losses, right, asked_of = (np.zeros(len(KINDS)) for _ in range(3))
    for number, batch in enumerate(batches):
        asked = Asked(loaded, batch)
        answers = asked.answers(asked.states(gates))
        losses += _summed(answers)
        right += [int((logits.argmax(-1) == wanted).sum()) for logits, wanted in answers]
        asked_of += asked.counts
        report((number + 1) / len(batches))
    mlm, nsp, _ = (float(share / of) if of else nan for share, of in zip(right, asked_of, strict=True))
    return Score(float(_loss(loaded, losses, asked_of)), mlm, nsp)


def _summed(answers: Sequence[tuple[Tensor, Tensor]]) -> np.ndarray:
    """The losses of the answers of each kind, added: (..., kind), float64. answers: as `Asked.answers` gives them."""
    return np.stack([as_array(losses).sum(-1, dtype=np.float64) for losses in losses_of(answers)], axis=-1)


def _loss(loaded: LoadedModel, losses: np.ndarray, asked_of: np.ndarray) -> np.ndarray:
    """The mean loss of an answer of each kind, the kinds added: losses (..., kind) to (...).

    Raises ValueError where nothing was asked.
    """
    if not asked_of.any():
        raise ValueError(f"{loaded.name} cannot be tested on these examples: it has no trained output for them")
    found: np.ndarray = (losses / np.maximum(asked_of, 1)).sum(-1)
    return found


# ---------------------------------------------------------------------------- the worth of each head


def loss_importance(loaded: LoadedModel, batches: Sequence[Batch], *, report: Report = _silent) -> np.ndarray:
    """How fast the loss of an example moves with each head's gate, in size, mean over the examples; (layer, head).

    NaN for a head that was pruned. An example's loss: the mean over its hidden pieces, plus that of its next sentence.
    Source: Michel 2019, equation 2 (arXiv:1905.10650).
    """
    total, examples = np.where(heads_there(loaded), 0.0, nan), 0
    for number, batch in enumerate(batches):
        total += np.abs(losses_and_slopes(Asked(loaded, batch))[1]).sum(0)
        examples += len(batch.input_ids)
        report((number + 1) / len(batches))
    found: np.ndarray = total / max(examples, 1)
    return found


@torch.no_grad()
def loss_without_each(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    replacement: Replacement | None = None,
    *,
    report: Report = _silent,
) -> np.ndarray:
    """The loss without each head in turn, exactly; (layer, head), NaN for a head that was pruned.

    replacement: what takes the place of a head's output; None: zeros.
    """
    there = heads_there(loaded)
    losses, asked_of = np.where(there, 0.0, nan)[..., None].repeat(len(KINDS), -1), np.zeros(len(KINDS))
    for number, batch in enumerate(batches):
        asked, done = Asked(loaded, batch), 0
        asked_of += asked.counts
        for some, states in states_without_each(asked, replacement)[1]:
            layers, heads = zip(*some, strict=True)
            losses[layers, heads] += _summed(asked.answers(states))
            done += len(some)
            report((number + done / there.sum()) / len(batches))
    return _loss(loaded, losses, asked_of)


# ---------------------------------------------------------------------------- orders and curves


def propose_plan(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    method: str,
    *,
    seed: int = 0,
    reference: Sequence[Encoding] = (),
    report: Report = _silent,
) -> PruningPlan:
    """An order in which the heads of a model may go, the one that seems to matter least first.

    method: "importance", by the size of the loss's slope; "importance-in-layer", by the same over its length in each
        layer; "ablation", by the loss without each head alone; "ablation-mean" and "ablation-resample", by the loss
        when that of the reference texts stands in for it, as for `Replacement`; "iterative", by importance, estimated
        anew whenever a tenth of the heads has gone; "random".
    seed: of a random order. report: told the share that is done; may raise to stop.
    Raises ValueError for an unknown method, one without its reference, or examples of which nothing can be asked.
    Source: Michel 2019, sections 3 and 4 (arXiv:1905.10650).
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is unknown: one of {', '.join(METHODS)}")
    if method != "random" and not batches:
        raise ValueError(f"there are no examples: an order by {method} is found on some")
    config, existing = loaded.config, heads_there(loaded)
    name = method
    if method == "random":
        worth = np.where(existing, np.random.default_rng(seed).random(existing.shape), nan)
        order, name = _rising(worth), f"random {seed}"
    elif method == "importance":
        order = _rising(loss_importance(loaded, batches, report=report))
    elif method == "importance-in-layer":
        order = _rising(layer_normalised(loss_importance(loaded, batches, report=report)))
    elif method.startswith("ablation"):
        replacement = Replacement(loaded, method.removeprefix("ablation").removeprefix("-") or "zero", reference)
        order = _rising(loss_without_each(loaded, batches, replacement, report=report))
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
    mask = torch.tensor(head_mask_without(loaded.config, heads), device=loaded.device)
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
