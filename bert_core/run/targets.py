"""Values and probabilities of targets, and the positions of the last layer that they need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.editing import unedited
from bert_core.loading import LoadedModel
from bert_core.records import Target
from bert_core.refused import Refused, require_sequence, short_repr
from bert_core.run.inputs import check_position, check_text, gate_tensor, id_tensor, segment_tensor
from bert_core.run.own_targets import function_values
from bert_core.task_heads import TASK_HEADS, as_wide_floats, head_of
from bert_core.tokenizer import Encoding


def prediction_positions(
    loaded: LoadedModel, encoding: Encoding, target: Target | None, positions: Sequence[int] | None
) -> tuple[tuple[int, ...], list[int]]:
    """Return the positions at which the MLM head predicts tokens, and those at which the last layer is needed.

    positions: where the MLM head predicts; None: at every [MASK]. A model without a trained MLM head predicts nowhere.
    The last layer is needed at the first token, at these positions, where the target is read, and where the trained
    heads that predict something for the text read it.
    Raises Refused for a target without a trained head, or for a position that does not exist.
    """
    check_target(loaded, check_text(loaded, encoding), target)
    requested = (
        encoding.mask_positions if positions is None else require_sequence("positions", positions, "whole numbers")
    )
    positions = tuple(check_position(encoding, position) for position in requested)
    if not loaded.has_head("words"):
        positions = ()
    needed = {0, *positions, *(() if target is None else target_rows(loaded, encoding, target))}
    for head in TASK_HEADS.values():
        if head.gives_predictions and head.applies(loaded, encoding):
            needed.update(head.prediction_positions(loaded, encoding))
    return positions, sorted(needed)


def check_target(loaded: LoadedModel, encoding: Encoding, target: Target | None) -> None:
    """Raise Refused unless a model can compute a target for a text; None is always allowed."""
    if target is None:
        return
    if not isinstance(target, Target):
        raise Refused(f"the target is {short_repr(target)}: it must be a Target, for example from `word_target`")
    if target.other is not None:
        check_text(unedited(loaded), target.other)
    head_of(target).check(loaded, encoding, target)
    for position in target.rows:
        check_position(encoding, position)
    last = loaded.config.vocab_size - 1
    for token in (*(token for _, token in target.target_pieces), target.against):
        if token is not None and not 0 <= token <= last:
            raise Refused(f"token {token} does not exist: the vocabulary has 0 to {last}")


def target_rows(loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
    """Return the positions of the last layer that `target_values` needs."""
    return head_of(target).target_rows(loaded, encoding, target)


def rows_follow_text(loaded: LoadedModel, target: Target) -> bool:
    """Return whether `target_rows` of any text follow from this text alone, not from positions that the target has."""
    return head_of(target).pooling(loaded) is not None or (target.function is not None and not target.positions)


def target_values(loaded: LoadedModel, encoding: Encoding, target: Target, rows: Tensor) -> Tensor:
    """Compute the value of a target for copies of a text, (copies,), with a graph if the rows have one.

    rows: (copies, row, hidden), the output of the last layer at `target_rows`.
    Raises Refused for a custom target as `function_values`.
    """
    if target.function is not None:
        return function_values(loaded, encoding, target, rows)
    return head_of(target).value(loaded, target, rows, reference_vector(loaded, target))


def rows_of_probability(loaded: LoadedModel, encoding: Encoding, target: Target) -> tuple[int, ...]:
    """Return the positions of the last layer that `target_probabilities` needs."""
    return head_of(target).rows_of_probability(loaded, encoding, target)


def target_probabilities(loaded: LoadedModel, encoding: Encoding, target: Target, rows: Tensor) -> Tensor:
    """Compute the probability of a target for copies of a text, (copies,).

    The probability of several word pieces is their product, and that of a loss is their geometric mean. The probability
    of an answer span is the product of those of its first and its last token. For a contrast it is the probability of
    the first word among the two. Targets without a probability give their value: cosines, single answer options,
    regression and custom targets.
    rows: (copies, row, hidden), the output of the last layer at `rows_of_probability`.
    """
    if target.function is not None:
        return function_values(loaded, encoding, target, rows)
    return head_of(target).probability(loaded, target, rows, reference_vector(loaded, target))


@torch.no_grad()
def reference_vector(loaded: LoadedModel, target: Target) -> Tensor | None:
    """Compute the sentence vector (1, hidden) of a target's second text; None if the target has none.

    The unedited model computes it with all heads on. It takes one more pass for each batch of copies, because a cached
    vector would be wrong once the weights change.
    """
    if target.other is None:
        return None
    unedited_model = unedited(loaded)
    states = as_wide_floats(pooling_states(unedited_model, target.other))
    return unedited_model.effective_pooling.pool(states)[None]


def pooling_states(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None = None) -> Tensor:
    """Compute the states of the last layer that are pooled to the sentence vector of a text, (row, hidden)."""
    rows = torch.tensor(
        [loaded.effective_pooling.pooled_positions(len(check_text(loaded, encoding)))], device=loaded.device
    )
    outputs = loaded.model.bert(
        id_tensor(loaded, encoding), token_type_ids=segment_tensor(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask), positions=rows,
    )  # fmt: skip
    states: Tensor = outputs.last_hidden_state[0]
    return states
