"""A target as a number with a graph and as a probability, and the positions of the last layer that it needs."""

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
from bert_core.task_heads import TASK_HEADS, as_wide_floats, head_of
from bert_core.tokenizer import Encoding


def prediction_positions(
    loaded: LoadedModel, encoding: Encoding, target: Target | None, positions: Sequence[int] | None
) -> tuple[tuple[int, ...], list[int]]:
    """Positions at which pieces are predicted, and positions of the last layer that all trained heads need for a text.

    positions: None means every [MASK]; without a trained masked-word head there are none.
    Raises Refused for a target that the model has no trained head for, or a position that does not exist.
    """
    check_target(loaded, check_text(loaded, encoding), target)
    given = encoding.mask_positions if positions is None else require_sequence("positions", positions, "whole numbers")
    positions = tuple(check_position(encoding, position) for position in given)
    if not loaded.has_head("words"):
        positions = ()
    if any(head.every_token and head.applies(loaded, encoding) for head in TASK_HEADS.values()):
        return positions, list(range(len(encoding)))
    return positions, sorted({0, *positions, *(() if target is None else target.rows)})


def check_target(loaded: LoadedModel, encoding: Encoding, target: Target | None) -> None:
    """Raise Refused unless this model can compute this target on this text."""
    if target is None:
        return
    if not isinstance(target, Target):
        raise Refused(f"the target is {short_repr(target)}: it must be a Target, as `word_target` makes it")
    if target.other is not None:
        check_text(unedited(loaded), target.other)
    head_of(target).check(loaded, encoding, target)
    for position in target.rows:
        check_position(encoding, position)
    last = loaded.config.vocab_size - 1
    for token in (*(token for _, token in target.target_pieces), target.against):
        if token is not None and not 0 <= token <= last:
            raise Refused(f"token {token} does not exist: the vocabulary has 0 to {last}")


def target_values(loaded: LoadedModel, target: Target, rows: Tensor) -> Tensor:
    """The value of a target for copies of a text, (copies,), with a graph if the rows have one.

    rows: (copies, row, hidden), the last layer at `target.rows`.
    """
    return head_of(target).value(loaded, target, rows, reference_vector(loaded, target))


def rows_of_probability(encoding: Encoding, target: Target) -> tuple[int, ...]:
    """Positions of the last layer that `target_probabilities` reads."""
    return head_of(target).rows_of_probability(encoding, target)


def target_probabilities(loaded: LoadedModel, target: Target, rows: Tensor) -> Tensor:
    """The probability of a target for copies of a text, (copies,): of the word; of it and not the other; and so on.

    Of several pieces it is the product of theirs, and of a loss their geometric mean; of an answer the product of its
    first token's and its last one's. Where there is no probability, as of a cosine, of one choice without the others,
    or of a number that a classifier gives, it is the value itself.
    rows: (copies, row, hidden), at `rows_of_probability`.
    """
    return head_of(target).probability(loaded, target, rows, reference_vector(loaded, target))


@torch.no_grad()
def reference_vector(loaded: LoadedModel, target: Target) -> Tensor | None:
    """The vector (1, hidden) of the other text of a target; None if it has none.

    It is that of the model as it was loaded: all heads on, no edits. One more pass for each batch of copies; nothing is
    kept, so that weights may change.
    """
    if target.other is None:
        return None
    plain = unedited(loaded)
    return plain.effective_pooling.pool(as_wide_floats(pooling_states(plain, target.other)))[None]


def pooling_states(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None = None) -> Tensor:
    """The states of the last layer that make a text's vector, (row, hidden)."""
    rows = torch.tensor(
        [loaded.effective_pooling.pooled_positions(len(check_text(loaded, encoding)))], device=loaded.device
    )
    outputs = loaded.model.bert(
        id_tensor(loaded, encoding), token_type_ids=segment_tensor(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask), positions=rows,
    )  # fmt: skip
    states: Tensor = outputs.last_hidden_state[0]
    return states
