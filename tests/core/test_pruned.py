"""Heads taken out for good, in place: the output is that of the same heads switched off, and numbers stay."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from bert_core import BertForPreTraining
from bert_core.attention import find_pruneable_heads_and_indices
from bert_core.recording import record
from tests.core.test_decoder import decoder_config, encoder_config, ids_of, made, states_of
from tests.near import assert_near

CASES = {
    "one head": {0: [1]},
    "several": {0: [0, 3], 1: [2]},
    "a whole layer": {1: [0, 1, 2, 3]},
    "all but one": {0: [0, 1, 2, 3], 1: [0, 1, 3]},
}


def gates_of(heads: dict[int, list[int]]) -> torch.Tensor:
    gates = torch.ones(2, 4)
    for layer, some in heads.items():
        gates[layer, some] = 0
    return gates


@pytest.mark.parametrize("kind", ["absolute", "relative_key_query", "relative_bias", "disentangled"])
@pytest.mark.parametrize("heads", CASES.values(), ids=CASES.keys())
def test_pruned_is_masked(heads: dict[int, list[int]], kind: str) -> None:
    """A model without some heads gives, within 1e-5, what it gave with them switched off; watched or not."""
    model = made(BertForPreTraining, encoder_config(type_vocab_size=2, position_embedding_type=kind))
    pruned = copy.deepcopy(model)
    pruned.bert._prune_heads(heads)
    mask = torch.ones(2, 9)
    mask[1, 6:] = 0
    masked = model(ids_of(9), attention_mask=mask, head_mask=gates_of(heads))
    for output, expected in zip(pruned(ids_of(9), attention_mask=mask), masked, strict=True):
        assert_near(output, expected)
    with record() as recording:
        watched = pruned(ids_of(9), attention_mask=mask)
    assert_near(watched[0], masked[0])
    for layer in (0, 1):
        assert recording.attention[layer].shape == (2, 4 - len(heads.get(layer, [])), 9, 9)
    assert sum(p.numel() for p in pruned.parameters()) < sum(p.numel() for p in model.parameters())


def test_numbers_stay_after_pruning() -> None:
    """Pruned once and again, a head mask still counts the heads as at first, and no head is taken out twice."""
    model = made(BertForPreTraining, encoder_config())
    pruned = copy.deepcopy(model)
    for some in ([1], [1, 3], []):
        pruned.bert.encoder.layer[0].attention.prune_heads(some)
    attention = pruned.bert.encoder.layer[0].attention
    assert attention.self.heads == (0, 2) and attention.pruned_heads == {1, 3}
    assert attention.self.query.weight.shape == (16, 32) and attention.output.dense.weight.shape == (32, 16)
    gates = gates_of({0: [1, 2, 3]})
    assert_near(pruned(ids_of(9), head_mask=gates)[0], model(ids_of(9), head_mask=gates)[0])


def test_a_pruned_decoder_keeps_its_cache() -> None:
    """The cache of a decoder whose layers have different numbers of heads goes on as the whole sequence does."""
    from bert_core import BertLMHeadModel

    model = made(BertLMHeadModel, decoder_config())
    model.bert._prune_heads({0: [2], 1: [0, 1]})
    given: dict[str, Any] = {"encoder_hidden_states": states_of()}
    whole = model(ids_of(6), **given).logits
    past = model(ids_of(6)[:, :4], **given).past_key_values
    assert_near(model(ids_of(6)[:, 4:], past_key_values=past, **given).logits, whole[:, 4:])


def test_the_rows_that_stay_worked_by_hand() -> None:
    """Of heads 0, 1, 3, 4 of two rows each (2 is gone), dropping 1 and 2 takes rows 2 and 3 away, and only head 1."""
    found, rows = find_pruneable_heads_and_indices([1, 2], 4, 2, {2})
    assert found == {1} and rows.tolist() == [0, 1, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("heads", "sentence"),
    [
        ({0: [0], 1: [4]}, "head 4 does not exist in layer 1: this model has heads 0 to 3 (2 pruned)"),
        ({0: [0], 1: [0.5]}, "head 0.5 does not exist in layer 1: this model has heads 0 to 3 (2 pruned)"),
        ({0: [0], 2: [0]}, "layer 2 does not exist: this model has layers 0 to 1"),
    ],
)
def test_an_unknown_head_prunes_nothing(heads: dict[int, list[int]], sentence: str) -> None:
    """One clear sentence, and the heads named before the wrong one are still there."""
    model = made(BertForPreTraining, encoder_config()).bert
    model._prune_heads({1: [2]})
    with pytest.raises(ValueError) as caught:
        model._prune_heads(heads)
    assert str(caught.value) == sentence
    assert model.encoder.layer[0].attention.pruned_heads == set()
