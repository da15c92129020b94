"""Effects of pruning heads, neurons or layers: loss and accuracy on examples, size and speed."""

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
from bert_core.deprecation import renamed_fields, renamed_parameters
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
MAX_TEXTS = 4096  # in a batch that is timed
MAX_REPEATS = 10_000

# ---------------------------------------------------------------------------- loss and accuracy on examples


@dataclass(frozen=True)
class Score:
    """Loss and accuracies of a model on examples.

    loss: nats. mlm, nsp: shares of correct predictions of masked tokens and of next sentences, 0 to 1; NaN without
        such examples.
    """

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
    """Compute the loss and the accuracies of a model on examples.

    head_mask: as for `capture`. report: see `Progress`.
    The loss is that of pre-training: the mean over masked tokens plus the mean over next-sentence examples.
    Raises Refused if the model has no trained head for any of the examples.
    """
    gates = gate_tensor(loaded, head_mask)
    losses, kinds, right = [np.empty(0)], [np.empty(0, int)], np.zeros(len(LOSS_HEADS))
    for number, batch in enumerate(batches):
        examples = ExampleBatch(loaded, batch)
        answers = examples.answers(examples.states(gates))
        answer_losses, *counts = to_cpu(
            [examples.losses(answers), *((logits.argmax(-1) == labels).sum() for logits, labels in answers)]
        )
        losses.append(as_array(answer_losses))
        kinds.append(examples.kinds)
        right += [int(count) for count in counts]
        report((number + 1) / len(batches))
    loss = mean_loss(loaded, np.concatenate(losses), np.concatenate(kinds))
    answer_counts = np.bincount(np.concatenate(kinds), minlength=len(LOSS_HEADS))
    mlm, nsp, _ = (
        float(number_right / total) if total else nan for number_right, total in zip(right, answer_counts, strict=True)
    )
    return Score(float(loss), mlm, nsp)


def mean_loss(loaded: LoadedModel, losses: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Average the losses of each kind of answer and add the averages of the kinds.

    losses: (..., answer). kinds: (answer,), as in `ExampleBatch`. Returns (...).
    Raises Refused if there is no answer.
    """
    if not len(kinds):
        raise Refused(f"{loaded.name} cannot be tested on these examples: it has no trained head for them")
    means = [losses[..., kinds == kind].mean(-1, dtype=np.float64) for kind in np.unique(kinds)]
    total: np.ndarray = np.sum(means, axis=0)
    return total


# ---------------------------------------------------------------------------- curves


@renamed_parameters(what="part_kind", known="previous_points")
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
    """Prune a model along several orders and measure it after each step.

    batches: examples on which the pruned models are tested.
    orders: for each name, the heads (layer, head), neurons (layer, neuron) or layers in the order of their removal.
    removed: the numbers of removed parts at which the model is measured.
    part_kind: what the orders hold, one of `PRUNABLE_PARTS`: "heads", "neurons" or "layers".
    previous_points: points of an earlier run, which are not computed again. report: see `Progress`.
    Yields each point as soon as it is measured. Every point comes from a model that was really pruned.
    Raises Refused for a part that does not exist, and as `score`.
    """
    batches, previous_points = (
        require_instances("batches", batches, Batch),
        require_instances("previous_points", previous_points, CurvePoint),
    )
    removed = [
        require_int("a number of removed heads", count)
        for count in require_sequence("removed", removed, "whole numbers")
    ]
    if not isinstance(orders, Mapping):
        raise Refused(f"orders is {short_repr(orders)}: it must map each name to a list of {part_kind}")
    if part_kind != "layers":
        orders = {name: head_pairs(parts, part_kind.removesuffix("s")) for name, parts in orders.items()}
    measured = {(point.order, point.removed) for point in previous_points}
    missing = [(name, count) for name in orders for count in removed if (name, count) not in measured]
    previous_order, pruned_model = None, loaded
    if missing:
        score(loaded, batches[:1])  # warms up, since the first pass of a process is slow
    for number, (name, count) in enumerate(missing):
        # Within one order, the model of the previous point is pruned further.
        pruned_model = prune_parts(pruned_model if name == previous_order else loaded, part_kind, orders[name][:count])
        previous_order = name
        yield measure_curve_point(
            pruned_model, batches, name, count, report=progress_of_part(report, number, len(missing))
        )


def measure_curve_point(
    pruned_model: LoadedModel, batches: Sequence[Batch], order: str, removed: int, *, report: Progress = ignore_progress
) -> CurvePoint:
    """Test and time a pruned model.

    pruned_model: the model without the first `removed` parts of the order. batches: the examples.
    """
    start = time.perf_counter()
    measured = score(pruned_model, batches, report=report)
    seconds = time.perf_counter() - start
    tokens = sum(int(batch.attention_mask.sum()) for batch in batches)
    return CurvePoint(
        order=order, removed=removed, loss=measured.loss, mlm=measured.mlm, nsp=measured.nsp,
        parameters=sum(parameter.numel() for parameter in pruned_model.model.parameters()),
        tokens_per_second=tokens / seconds,
    )  # fmt: skip


# ---------------------------------------------------------------------------- what pruning saves


@renamed_fields(what="variant")
@dataclass(frozen=True)
class Cost:
    """Size and speed of a variant of a model.

    variant: "full", "masked" (heads switched off by a head mask) or "pruned".
    parameters: number of parameters. nbytes: their bytes.
    seconds: for each number of texts in a batch, the median seconds of one pass of the encoder.
    """

    variant: str
    parameters: int
    nbytes: int
    seconds: Mapping[int, float]


@renamed_parameters(what="part_kind")
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
    """Measure the size and the speed of a model: unmodified, with heads switched off by a head mask, and pruned.

    heads: the heads (layer, head), or neurons (layer, neuron) or layers, as `part_kind` says. Only heads have a masked
        variant.
    encoding: the text, of which the batches hold copies.
    batches: the batch sizes to measure. repeats: timed passes of each variant, after one pass that warms up.
    The variants take turns, so that other work on the machine affects all of them. report: see `Progress`.
    Raises Refused for a part that does not exist, or for a number below 1.
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
            for name, (model, gates) in sides.items():
                pass_seconds = _seconds_of(model, texts, gates)
                if repeat:  # round 0 warms up
                    seconds[name][size].append(pass_seconds)
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
    """Time one pass of the encoder, in seconds."""
    synchronize(loaded.device)
    start = time.perf_counter()
    loaded.model.bert(ids, head_mask=gates)
    synchronize(loaded.device)
    return time.perf_counter() - start
