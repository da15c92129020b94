"""Pruning plans: importance scores of heads, neurons or layers, and the order in which to remove them."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from bert_core.analysis.heads import layer_normalised
from bert_core.deprecation import renamed_parameters
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part
from bert_core.pruning import prune_parts, pruned
from bert_core.records import Batch, PruningPlan
from bert_core.refused import Refused, require_instances, short_repr, validate_arguments
from bert_core.run.ablation import Replacement
from bert_core.run.arrays import as_array
from bert_core.run.costs import mean_loss, score
from bert_core.run.losses import (
    ExampleBatch,
    answer_losses_without_heads,
    batch_gate_gradients,
    existing_parts,
    neuron_gate_gradients,
)
from bert_core.tokenizer import Encoding

ORDERS = (
    "importance", "importance-in-layer", "ablation", "ablation-mean", "ablation-resample", "iterative", "random"
)  # fmt: skip
ORDERS_BY_PART = {
    "heads": ORDERS,
    "neurons": ("importance", "importance-in-layer", "iterative", "random"),
    "layers": ("ablation", "iterative", "random"),
}
RANDOM_ORDERS = 5  # random orders whose range is the baseline for the other orders
REESTIMATION_SHARE = 0.1  # share of the parts that the iterative order removes before it estimates importance again


def loss_importance(
    loaded: LoadedModel, batches: Sequence[Batch], *, part_kind: str = "heads", report: Progress = ignore_progress
) -> np.ndarray:
    """Compute gradient importance: the mean absolute gradient of the loss with respect to each head or neuron gate.

    part_kind: "heads" or "neurons". report: see `Progress`.
    The loss of an example is the mean over its masked tokens plus the next-sentence loss.
    Returns (layer, head) or (layer, neuron), at least 0; NaN for pruned parts.
    Source: Michel 2019, equation 2 (arXiv:1905.10650).
    """
    total, examples = np.where(existing_parts(loaded, part_kind), 0.0, nan), 0
    for number, batch in enumerate(batches):
        is_heads = part_kind == "heads"
        gradients = (
            batch_gate_gradients(ExampleBatch(loaded, batch))[1] if is_heads else neuron_gate_gradients(loaded, batch)
        )
        total += np.abs(gradients).sum(0)
        examples += len(batch.input_ids)
        report((number + 1) / len(batches))
    mean: np.ndarray = total / max(examples, 1)
    return mean


def loss_without_heads(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    replacement: Replacement | None = None,
    *,
    report: Progress = ignore_progress,
) -> np.ndarray:
    """Compute the exact loss on examples with each head ablated in turn, (layer, head); NaN for pruned heads.

    replacement: what replaces the output of a head; None: zeros. report: see `Progress`.
    """
    losses, kinds = [], []
    for number, batch in enumerate(batches):
        examples = ExampleBatch(loaded, batch)
        losses.append(
            as_array(
                answer_losses_without_heads(
                    examples, replacement, report=progress_of_part(report, number, len(batches))
                )[1]
            )
        )
        kinds.append(examples.kinds)
    return mean_loss(loaded, np.concatenate(losses, axis=-1), np.concatenate(kinds))


def loss_without_layers(
    loaded: LoadedModel, batches: Sequence[Batch], *, report: Progress = ignore_progress
) -> np.ndarray:
    """Compute the exact loss on examples without each layer in turn, (layer,); NaN for removed layers."""
    exists = existing_parts(loaded, "layers")
    losses = np.full(exists.shape, nan)
    for number, layer in enumerate(np.flatnonzero(exists)):
        pruned_model = pruned(loaded, layers=[int(layer)])
        losses[layer] = score(pruned_model, batches, report=progress_of_part(report, number, int(exists.sum()))).loss
    return losses


@renamed_parameters(what="part_kind")
@validate_arguments
def propose_plan(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    method: str,
    *,
    part_kind: str = "heads",
    seed: int = 0,
    reference: Sequence[Encoding] = (),
    report: Progress = ignore_progress,
) -> PruningPlan:
    """Propose an order in which to prune heads, neurons or layers of a model, the least important first.

    batches: examples on which importance is estimated; a random order needs none.
    method: how parts are ranked.
        "importance": by gradient importance, see `loss_importance`.
        "importance-in-layer": by gradient importance divided by its norm over the layer.
        "ablation": by the loss without each part.
        "ablation-mean", "ablation-resample": by the loss with the output of each head replaced, see `Replacement`.
        "iterative": by gradient importance, estimated again whenever a tenth of the parts is removed. Layers are
        ranked by ablation instead, again after each removal.
        "random": at random.
    part_kind: "heads", "neurons" or "layers"; `ORDERS_BY_PART` lists the methods of each.
    seed: of a random order. reference: texts for "ablation-mean" and "ablation-resample". report: see `Progress`.
    Raises Refused for an unknown method or kind of part, for missing examples or reference texts, and as `score`.
    Source: Michel 2019, sections 3 and 4 (arXiv:1905.10650).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> plan = bert_core.propose_plan(loaded, [], "random", seed=0)
    >>> len(plan.order), len(plan.first(0.25))
    (72, 18)
    """
    check_orders(part_kind, [method], "method")
    batches = require_instances("batches", batches, Batch)
    if method != "random" and not batches:
        raise Refused(f"there are no examples: method {method!r} needs at least one batch of examples")
    config, existing = loaded.config, existing_parts(loaded, part_kind)
    name = method
    if method == "random":
        importance = np.where(existing, np.random.default_rng(seed).random(existing.shape), nan)
        order, name = _sort_parts(importance), f"random {seed}"
    elif method == "iterative":
        order = _iterative_order(loaded, batches, part_kind, report)
    elif method == "importance":
        order = _sort_parts(loss_importance(loaded, batches, part_kind=part_kind, report=report))
    elif method == "importance-in-layer":
        order = _sort_parts(layer_normalised(loss_importance(loaded, batches, part_kind=part_kind, report=report)))
    elif part_kind == "layers":
        order = _sort_parts(loss_without_layers(loaded, batches, report=report))
    else:
        replacement = Replacement(loaded, method.removeprefix("ablation").removeprefix("-") or "zero", reference)
        order = _sort_parts(loss_without_heads(loaded, batches, replacement, report=report))
    return PruningPlan(
        loaded.name, config.num_hidden_layers, config.num_attention_heads, name, tuple(order), what=part_kind,
        neurons=config.intermediate_size if part_kind == "neurons" else 0,
    )  # fmt: skip


def check_orders(part_kind: str, methods: Sequence[str], label: str = "order") -> None:
    """Raise Refused for an unknown kind of part, or for a method that `ORDERS_BY_PART` does not list for it.

    label: what the message calls a method.
    """
    if not isinstance(part_kind, str) or part_kind not in ORDERS_BY_PART:
        raise Refused(f"the kind of part {short_repr(part_kind)} is unknown: one of {', '.join(ORDERS_BY_PART)}")
    for method in methods:
        if method not in ORDERS_BY_PART[part_kind]:
            suffix = "" if part_kind == "heads" else f" for {part_kind}"
            raise Refused(f"{label} {method!r} is unknown{suffix}: one of {', '.join(ORDERS_BY_PART[part_kind])}")


def _iterative_order(
    loaded: LoadedModel, batches: Sequence[Batch], part_kind: str, report: Progress
) -> list[tuple[int, ...]]:
    """Rank parts by importance that is estimated again while parts are removed."""
    count = int(existing_parts(loaded, part_kind).sum())
    step = 1 if part_kind == "layers" else max(1, round(REESTIMATION_SHARE * count))
    estimates, pruned_model = range(0, count, step), loaded
    order: list[tuple[int, ...]] = []
    for number in range(len(estimates)):
        part_report = progress_of_part(report, number, len(estimates))
        if part_kind == "layers":
            importance = loss_without_layers(pruned_model, batches, report=part_report)
        else:
            importance = loss_importance(pruned_model, batches, part_kind=part_kind, report=part_report)
        removed = _sort_parts(importance)[:step]
        order += removed
        pruned_model = prune_parts(pruned_model, part_kind, removed)
    return order


def _sort_parts(importance: np.ndarray) -> list[tuple[int, ...]]:
    """Return the indices of an array in ascending order of its values, without NaN."""
    order = [tuple(map(int, index)) for index in np.argwhere(~np.isnan(importance))]
    return sorted(order, key=lambda index: float(importance[index]))
