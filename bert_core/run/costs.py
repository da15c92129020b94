"""What the going of heads, neurons or layers costs and saves: what is right of some examples, size, speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.config import head_pairs
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part
from bert_core.pruning import Part, prune_parts
from bert_core.records import Batch, CurvePoint
from bert_core.refused import Refused, require_instances, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.ablation import Head
from bert_core.run.arrays import as_array, to_cpu
from bert_core.run.inputs import gate_tensor, head_mask_without, id_tensor
from bert_core.run.losses import LOSS_HEADS, ExampleBatch
from bert_core.run.timing import synchronize
from bert_core.tokenizer import Encoding

BATCHES = (1, 8, 32)
MAX_TEXTS = 4096  # of a batch that is timed
MAX_REPEATS = 10_000

# ---------------------------------------------------------------------------- what is right of some examples


@dataclass(frozen=True)
class Score:
    """How well a model does. loss: nats; mlm, nsp: shares; each NaN where nothing was asked."""

    loss: float
    mlm: float
    nsp: float


@torch.no_grad()
def score(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    *,
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> Score:
    """What a model gets right of some examples, with some heads off.

    head_mask: as for `capture`. The loss is that of pre-training: of the hidden pieces, plus of the next sentences.
    Raises Refused where nothing can be asked.
    """
    gates = gate_tensor(loaded, head_mask)
    losses, kinds, right = [np.empty(0)], [np.empty(0, int)], np.zeros(len(LOSS_HEADS))
    for number, batch in enumerate(batches):
        asked = ExampleBatch(loaded, batch)
        answers = asked.answers(asked.states(gates))
        of_answers, *counts = to_cpu(
            [asked.losses(answers), *((logits.argmax(-1) == wanted).sum() for logits, wanted in answers)]
        )
        losses.append(as_array(of_answers))
        kinds.append(asked.kinds)
        right += [int(count) for count in counts]
        report((number + 1) / len(batches))
    loss = mean_loss(loaded, np.concatenate(losses), np.concatenate(kinds))
    asked_of = np.bincount(np.concatenate(kinds), minlength=len(LOSS_HEADS))
    mlm, nsp, _ = (float(share / of) if of else nan for share, of in zip(right, asked_of, strict=True))
    return Score(float(loss), mlm, nsp)


def mean_loss(loaded: LoadedModel, losses: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """The mean loss of an answer of each kind, the kinds added: losses (..., answer) to (...).

    kinds: (answer,), as `AskedBatch` has them. Raises Refused where nothing was asked.
    """
    if not len(kinds):
        raise Refused(f"{loaded.name} cannot be tested on these examples: it has no trained output for them")
    means = [losses[..., kinds == kind].mean(-1, dtype=np.float64) for kind in np.unique(kinds)]
    total: np.ndarray = np.sum(means, axis=0)
    return total


# ---------------------------------------------------------------------------- curves


@validate_arguments
def curve_points(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    orders: Mapping[str, Sequence[Part]],
    removed: Sequence[int],
    *,
    part_kind: str = "heads",
    previous_points: Collection[CurvePoint] = (),
    report: Progress = ignore_progress,
) -> Iterator[CurvePoint]:
    """What is left of a model along some orders, each point from a model that was really pruned.

    orders: by name, the first to go first: heads, or `what` of `PARTS`. removed: how many are gone at each point.
    known: points of before, which are not computed again. report: as for `Progress`.
    Yields point after point, so that whoever stops has all those before.
    Raises Refused for a head that does not exist, or examples of which nothing can be asked.
    """
    batches, previous_points = (
        require_instances("batches", batches, Batch),
        require_instances("known", previous_points, CurvePoint),
    )
    removed = [
        require_int("a number of removed heads", count)
        for count in require_sequence("removed", removed, "whole numbers")
    ]
    if not isinstance(orders, Mapping):
        raise Refused(f"orders is {short_repr(orders)}: it must give each name a list of {part_kind}")
    if part_kind != "layers":
        orders = {name: head_pairs(parts, part_kind.removesuffix("s")) for name, parts in orders.items()}
    there = {(point.order, point.removed) for point in previous_points}
    wanted = [(name, count) for name in orders for count in removed if (name, count) not in there]
    before, left = None, loaded
    if wanted:
        score(loaded, batches[:1])  # the first pass of a process is slow, and no point should pay for it
    for number, (name, count) in enumerate(wanted):
        # A model of the same order is pruned on; another order starts from the whole model.
        left = prune_parts(left if name == before else loaded, part_kind, orders[name][:count])
        before = name
        yield measure_curve_point(left, batches, name, count, report=progress_of_part(report, number, len(wanted)))


def measure_curve_point(
    left: LoadedModel, batches: Sequence[Batch], order: str, removed: int, *, report: Progress = ignore_progress
) -> CurvePoint:
    """One point of a curve: test and time a model that has lost the first `removed` heads of an order."""
    start = time.perf_counter()
    measured = score(left, batches, report=report)
    seconds = time.perf_counter() - start
    tokens = sum(int(batch.attention_mask.sum()) for batch in batches)
    return CurvePoint(
        order=order, removed=removed, loss=measured.loss, mlm=measured.mlm, nsp=measured.nsp,
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


@validate_arguments
@torch.no_grad()
def pruning_costs(
    loaded: LoadedModel,
    heads: Collection[Part],
    encoding: Encoding,
    *,
    part_kind: str = "heads",
    batches: Sequence[int] = BATCHES,
    repeats: int = 5,
    report: Progress = ignore_progress,
) -> tuple[Cost, ...]:
    """Size and measured speed of a model: as it is, with some heads switched off, and without them.

    heads: or neurons or layers, as `what` says; these are not switched off, only taken out.
    batches: how many texts are read at once, each in turn. repeats: how often, besides a first time that warms up.
    They take turns, so that whatever else the machine does meets them alike. report: as for `Progress`.
    Raises Refused for a head that does not exist, or numbers that are not from 1.
    """
    batches = [
        require_int("a batch", size, 1, MAX_TEXTS) for size in require_sequence("batches", batches, "whole numbers")
    ]
    repeats = require_int("repeats", repeats, 1, MAX_REPEATS)
    sides: dict[str, tuple[LoadedModel, Tensor | None]] = {"full": (loaded, None)}
    if part_kind == "heads":
        pairs = head_pairs(cast("Collection[Head]", heads))
        heads = pairs
        sides["masked"] = loaded, torch.tensor(head_mask_without(loaded.config, pairs), device=loaded.device)
    sides["pruned"] = prune_parts(loaded, part_kind, heads), None
    ids = id_tensor(loaded, encoding)
    seconds: dict[str, dict[int, list[float]]] = {name: {size: [] for size in batches} for name in sides}
    for number, size in enumerate(batches):
        texts = ids.expand(size, -1).contiguous()
        for repeat in range(repeats + 1):
            for name, (model, gated) in sides.items():
                taken = _seconds_of(model, texts, gated)
                if repeat:  # the first round warms up
                    seconds[name][size].append(taken)
            report((number + (repeat + 1) / (repeats + 1)) / len(batches))
    return tuple(
        Cost(
            name,
            sum(parameter.numel() for parameter in model.model.parameters()),
            model.nbytes,
            {size: statistics.median(times) for size, times in seconds[name].items()},
        )
        for name, (model, _) in sides.items()
    )


def _seconds_of(loaded: LoadedModel, ids: Tensor, gates: Tensor | None) -> float:
    synchronize(loaded.device)
    start = time.perf_counter()
    loaded.model.bert(ids, head_mask=gates)
    synchronize(loaded.device)
    return time.perf_counter() - start
