"""Which heads can go: the worth of each, and the order to take them out in."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from bert_core.analysis.heads import layer_normalised
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, silent, within
from bert_core.pruning import pruned
from bert_core.records import Batch, PruningPlan
from bert_core.refused import Refused, checked, each
from bert_core.run.ablation import Head, Replacement
from bert_core.run.arrays import as_array
from bert_core.run.costs import mean_loss
from bert_core.run.losses import AskedBatch, answers_without_each, heads_there, losses_and_slopes
from bert_core.tokenizer import Encoding

ORDERS = (
    "importance", "importance-in-layer", "ablation", "ablation-mean", "ablation-resample", "iterative", "random"
)  # fmt: skip
RANDOM_ORDERS = 5  # make the band that the other orders stand beside
RE_ESTIMATED = 0.1  # share of the heads that go before the iterative order looks again


def loss_importance(loaded: LoadedModel, batches: Sequence[Batch], *, report: Progress = silent) -> np.ndarray:
    """How fast the loss of an example moves with each head's gate, in size, mean over the examples; (layer, head).

    NaN for a head that was pruned. An example's loss: the mean over its hidden pieces, plus that of its next sentence.
    Source: Michel 2019, equation 2 (arXiv:1905.10650).
    """
    total, examples = np.where(heads_there(loaded), 0.0, nan), 0
    for number, batch in enumerate(batches):
        total += np.abs(losses_and_slopes(AskedBatch(loaded, batch))[1]).sum(0)
        examples += len(batch.input_ids)
        report((number + 1) / len(batches))
    mean: np.ndarray = total / max(examples, 1)
    return mean


def loss_without_each(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    replacement: Replacement | None = None,
    *,
    report: Progress = silent,
) -> np.ndarray:
    """The loss without each head in turn, exactly; (layer, head), NaN for a head that was pruned.

    replacement: what takes the place of a head's output; None: zeros.
    """
    losses, kinds = [], []
    for number, batch in enumerate(batches):
        asked = AskedBatch(loaded, batch)
        losses.append(
            as_array(answers_without_each(asked, replacement, report=within(report, number, len(batches)))[1])
        )
        kinds.append(asked.kinds)
    return mean_loss(loaded, np.concatenate(losses, axis=-1), np.concatenate(kinds))


@checked
def propose_plan(
    loaded: LoadedModel,
    batches: Sequence[Batch],
    method: str,
    *,
    seed: int = 0,
    reference: Sequence[Encoding] = (),
    report: Progress = silent,
) -> PruningPlan:
    """An order in which the heads of a model may go, the one that seems to matter least first.

    method: "importance", by the size of the loss's slope; "importance-in-layer", by the same over its length in each
        layer; "ablation", by the loss without each head alone; "ablation-mean" and "ablation-resample", by the loss
        when that of the reference texts stands in for it, as for `Replacement`; "iterative", by importance, estimated
        anew whenever a tenth of the heads has gone; "random".
    seed: of a random order. report: as for `Progress`.
    Raises Refused for an unknown method, one without its reference, or examples of which nothing can be asked.
    Source: Michel 2019, sections 3 and 4 (arXiv:1905.10650).
    """
    if method not in ORDERS:
        raise Refused(f"method {method!r} is unknown: one of {', '.join(ORDERS)}")
    batches = each("batches", batches, Batch)
    if method != "random" and not batches:
        raise Refused(f"there are no examples: an order by {method} is found on some")
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
            worth = loss_importance(left, batches, report=within(report, number, len(looks)))
            going = _rising(worth)[:step]
            order += going
            left = pruned(left, going)
    return PruningPlan(loaded.name, config.num_hidden_layers, config.num_attention_heads, name, tuple(order))


def _rising(worth: np.ndarray) -> list[Head]:
    """The heads by a figure (layer, head), the smallest first; what is NaN left out."""
    order = [(int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(worth))]
    return sorted(order, key=lambda head: float(worth[head]))
