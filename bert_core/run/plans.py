"""Which heads, neurons or layers can go: the worth of each, and the order to take them out in."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from bert_core.analysis.heads import layer_normalised
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
RANDOM_ORDERS = 5  # make the band that the other orders stand beside
REESTIMATION_SHARE = 0.1  # share of the heads that go before the iterative order looks again


def loss_importance(
    loaded: LoadedModel, batches: Sequence[Batch], *, part_kind: str = "heads", report: Progress = ignore_progress
) -> np.ndarray:
    """How fast the loss of an example moves with each head's gate, in size, mean over the examples; (layer, head).

    what: "heads", or "neurons": (layer, neuron). NaN for what was pruned.
    An example's loss: the mean over its hidden pieces, plus that of its next sentence.
    Source: Michel 2019, equation 2 (arXiv:1905.10650).
    """
    total, examples = np.where(existing_parts(loaded, part_kind), 0.0, nan), 0
    for number, batch in enumerate(batches):
        of_heads = part_kind == "heads"
        slopes = (
            batch_gate_gradients(ExampleBatch(loaded, batch))[1] if of_heads else neuron_gate_gradients(loaded, batch)
        )
        total += np.abs(slopes).sum(0)
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
    """The loss without each head in turn, exactly; (layer, head), NaN for a head that was pruned.

    replacement: what takes the place of a head's output; None: zeros.
    """
    losses, kinds = [], []
    for number, batch in enumerate(batches):
        asked = ExampleBatch(loaded, batch)
        losses.append(
            as_array(
                answer_losses_without_heads(asked, replacement, report=progress_of_part(report, number, len(batches)))[
                    1
                ]
            )
        )
        kinds.append(asked.kinds)
    return mean_loss(loaded, np.concatenate(losses, axis=-1), np.concatenate(kinds))


def loss_without_layers(
    loaded: LoadedModel, batches: Sequence[Batch], *, report: Progress = ignore_progress
) -> np.ndarray:
    """The loss without each layer in turn, exactly; (layer,), NaN for one that was taken out."""
    there = existing_parts(loaded, "layers")
    found = np.full(there.shape, nan)
    for number, layer in enumerate(np.flatnonzero(there)):
        left = pruned(loaded, layers=[int(layer)])
        found[layer] = score(left, batches, report=progress_of_part(report, number, int(there.sum()))).loss
    return found


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
    """An order in which heads, neurons or layers of a model may go, the one that seems to matter least first.

    method: "importance", by the size of the loss's slope; "importance-in-layer", by the same over its length in each
        layer; "ablation", by the loss without each alone; "ablation-mean" and "ablation-resample", by the loss
        when that of the reference texts stands in for it, as for `Replacement`; "iterative", by importance, estimated
        anew whenever a tenth has gone, of layers by ablation, anew after each; "random". `ORDERS_OF` has those of
        "heads", "neurons" and "layers", one of which is `what`.
    seed: of a random order. report: as for `Progress`.
    Raises Refused for an unknown method, one without its reference, or examples of which nothing can be asked.
    Source: Michel 2019, sections 3 and 4 (arXiv:1905.10650).
    """
    check_orders(part_kind, [method], "method")
    batches = require_instances("batches", batches, Batch)
    if method != "random" and not batches:
        raise Refused(f"there are no examples: an order by {method} is found on some")
    config, existing = loaded.config, existing_parts(loaded, part_kind)
    name = method
    if method == "random":
        worth = np.where(existing, np.random.default_rng(seed).random(existing.shape), nan)
        order, name = _rising(worth), f"random {seed}"
    elif method == "iterative":
        order = _looking_again(loaded, batches, part_kind, report)
    elif method == "importance":
        order = _rising(loss_importance(loaded, batches, part_kind=part_kind, report=report))
    elif method == "importance-in-layer":
        order = _rising(layer_normalised(loss_importance(loaded, batches, part_kind=part_kind, report=report)))
    elif part_kind == "layers":
        order = _rising(loss_without_layers(loaded, batches, report=report))
    else:
        replacement = Replacement(loaded, method.removeprefix("ablation").removeprefix("-") or "zero", reference)
        order = _rising(loss_without_heads(loaded, batches, replacement, report=report))
    return PruningPlan(
        loaded.name, config.num_hidden_layers, config.num_attention_heads, name, tuple(order), what=part_kind,
        neurons=config.intermediate_size if part_kind == "neurons" else 0,
    )  # fmt: skip


def check_orders(part_kind: str, methods: Sequence[str], label: str = "order") -> None:
    """Raise Refused for an unknown method, by the name that it is called, or for what is no key of `ORDERS_OF`."""
    if not isinstance(part_kind, str) or part_kind not in ORDERS_BY_PART:
        raise Refused(f"what {short_repr(part_kind)} is unknown: one of {', '.join(ORDERS_BY_PART)}")
    for method in methods:
        if method not in ORDERS_BY_PART[part_kind]:
            of_what = "" if part_kind == "heads" else f" for {part_kind}"
            raise Refused(f"{label} {method!r} is unknown{of_what}: one of {', '.join(ORDERS_BY_PART[part_kind])}")


def _looking_again(loaded: LoadedModel, batches: Sequence[Batch], what: str, report: Progress) -> list[tuple[int, ...]]:
    """The order when worth is found anew as parts go."""
    count = int(existing_parts(loaded, what).sum())
    step = 1 if what == "layers" else max(1, round(REESTIMATION_SHARE * count))
    looks, left = range(0, count, step), loaded
    order: list[tuple[int, ...]] = []
    for number in range(len(looks)):
        told = progress_of_part(report, number, len(looks))
        if what == "layers":
            worth = loss_without_layers(left, batches, report=told)
        else:
            worth = loss_importance(left, batches, part_kind=what, report=told)
        going = _rising(worth)[:step]
        order += going
        left = prune_parts(left, what, going)
    return order


def _rising(worth: np.ndarray) -> list[tuple[int, ...]]:
    """The places of an array by its figures, the smallest first; what is NaN left out."""
    order = [tuple(map(int, place)) for place in np.argwhere(~np.isnan(worth))]
    return sorted(order, key=lambda place: float(worth[place]))
