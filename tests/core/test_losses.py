"""Many texts at once: what they give together is what each gives alone."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import LoadedModel, LoadReport, Target, capture
from bert_core.run.losses import (
    TextExample,
    attention_maps,
    batch_by_length,
    gate_gradients,
    losses_without_heads,
    mask_pieces,
)
from bert_core.tokenizer import MASK, Encoding
from tests.near import assert_near

TEXTS = ("the cat sat on the mat.", "a dog ran", "she opened the old door and saw the river", "it was blue", "no")


def encodings(loaded: LoadedModel) -> list[Encoding]:
    return [loaded.tokenizer.encode(text) for text in TEXTS]


def hidden(loaded: LoadedModel, share: float = 0.3) -> list[TextExample]:
    """The texts with some pieces hidden, of different numbers."""
    rng = np.random.default_rng(5)
    return [mask_pieces(loaded.tokenizer, encoding, rng, share=share) for encoding in encodings(loaded)]


def pruned(loaded: LoadedModel) -> LoadedModel:
    """The same model without L0 H1 and L1 H3."""
    model = copy.deepcopy(loaded.model)
    model.bert._prune_heads({0: [1], 1: [3]})
    return dataclasses.replace(loaded, model=model)


def test_hiding_pieces(tiny_loaded: LoadedModel) -> None:
    """The share of the typed pieces, at least one, is behind [MASK], with what stood there; the rest is as it was."""
    encoding = tiny_loaded.tokenizer.encode("a cat and a dog sat on the old mat", "it was new")
    for share, count in ((0.15, 2), (0.01, 1), (0.5, 6)):
        text = mask_pieces(tiny_loaded.tokenizer, encoding, np.random.default_rng(0), share=share)
        assert len(text.positions) == count and text.encoding.mask_positions == text.positions
        assert not any(encoding.special[position] for position in text.positions)
        for position, answer in zip(text.positions, text.answers, strict=True):
            assert encoding.input_ids[position] == answer and text.encoding.tokens[position] == MASK
        there = set(range(len(encoding))) - set(text.positions)
        assert all(text.encoding.input_ids[n] == encoding.input_ids[n] for n in there)
    again = mask_pieces(tiny_loaded.tokenizer, encoding, np.random.default_rng(0), share=0.5)
    assert again == text
    typed = tiny_loaded.tokenizer.encode("the [MASK] cat")
    text = mask_pieces(tiny_loaded.tokenizer, typed, np.random.default_rng(0), share=1)
    assert text.positions == (1, 3)  # what a [MASK] hides nobody knows


def test_maps_are_those_of_each_text_alone(tiny_loaded: LoadedModel) -> None:
    """Padding and company change no map; every text comes once."""
    texts = encodings(tiny_loaded)
    seen = dict(attention_maps(tiny_loaded, texts))
    assert sorted(seen) == list(range(len(texts)))
    for number, encoding in enumerate(texts):
        assert_near(seen[number], capture(tiny_loaded, encoding).attention)


def test_slopes_are_those_of_each_text_alone(tiny_loaded: LoadedModel) -> None:
    """The loss of a text and the gradient of its gates are minus the mean of those of its hidden pieces, by capture."""
    texts = hidden(tiny_loaded)
    losses, slopes = gate_gradients(tiny_loaded, texts)
    for number, text in enumerate(texts):
        runs = [
            capture(tiny_loaded, text.encoding, target=Target("mlm", position, answer))
            for position, answer in zip(text.positions, text.answers, strict=True)
        ]
        assert_near(losses[number], -np.mean([run.target_value for run in runs]))
        expected = -np.mean([run.gate_gradient for run in runs], axis=0)
        assert_near(slopes[number], expected)


def test_slopes_are_what_transformers_own_maps_give(tiny_loaded: LoadedModel) -> None:
    """Map times its gradient, summed over queries and keys, from transformers' attentions and its own loss."""
    config = transformers.BertConfig(**{
        name: getattr(tiny_loaded.config, name)
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    })  # fmt: skip
    peer = transformers.BertForPreTraining._from_config(config, attn_implementation="eager").eval()
    peer.load_state_dict(tiny_loaded.model.state_dict())
    texts = hidden(tiny_loaded)
    losses, slopes = gate_gradients(tiny_loaded, texts)
    for number, text in enumerate(texts):
        output = peer(torch.tensor([text.encoding.input_ids]), output_attentions=True)
        rows = output.prediction_logits[0, list(text.positions)]
        loss = torch.nn.functional.cross_entropy(rows, torch.tensor(text.answers))
        gradients = torch.autograd.grad(loss, output.attentions)
        expected = torch.stack([(a * g).sum((0, 2, 3)) for a, g in zip(output.attentions, gradients, strict=True)])
        assert_near(losses[number], loss.item())
        assert_near(slopes[number], expected.detach())


@pytest.mark.parametrize("batch_tokens", [1, 60, 4096])
def test_removal_is_a_closed_gate(tiny_loaded: LoadedModel, batch_tokens: int) -> None:
    """Within 1e-5, the loss without each head is that of one text with one gate at zero, in any batches."""
    texts = hidden(tiny_loaded)
    whole, without = losses_without_heads(tiny_loaded, texts, batch_tokens=batch_tokens)
    assert np.allclose(whole, gate_gradients(tiny_loaded, texts)[0], rtol=1e-5)
    for number in (0, 2, 4):
        text = texts[number]
        for layer, head in np.ndindex(2, 4):
            gates = np.ones((2, 4))
            gates[layer, head] = 0
            run = capture(tiny_loaded, text.encoding, head_mask=gates)
            expected = -np.mean([
                np.log(run.prediction_at(position).probabilities[answer])
                for position, answer in zip(text.positions, text.answers, strict=True)
            ])  # fmt: skip
            assert_near(without[number, layer, head], expected)


def test_a_head_that_is_gone_is_nan(tiny_loaded: LoadedModel) -> None:
    """In maps, slopes and removals the pruned heads are NaN, and the others are there."""
    smaller, gone = pruned(tiny_loaded), np.zeros((2, 4), bool)
    gone[0, 1] = gone[1, 3] = True
    texts = hidden(smaller)
    for _, maps in attention_maps(smaller, [text.encoding for text in texts]):
        assert (np.isnan(maps).all((-1, -2)) == gone).all() and not np.isnan(maps[~gone]).any()
    for figures in (gate_gradients(smaller, texts)[1], losses_without_heads(smaller, texts)[1]):
        assert (np.isnan(figures) == gone).all()


def test_texts_of_like_length_travel_together() -> None:
    """Every text once, short ones first, and never more than fit, but for one that fits nowhere."""
    texts = ["x" * n for n in (5, 1, 9, 2, 2, 30)]
    groups = list(batch_by_length(texts, lambda tokens: 10 // tokens))
    assert groups == [[1, 3, 4], [0], [2], [5]]


def test_a_model_without_a_word_head_has_no_loss(tiny_loaded: LoadedModel) -> None:
    """It is said, and not made up from random weights."""
    headless = dataclasses.replace(tiny_loaded, report=_without_words(tiny_loaded))
    for ask in (gate_gradients, losses_without_heads):
        with pytest.raises(ValueError, match="has no trained masked-word head: the loss cannot be computed"):
            ask(headless, hidden(tiny_loaded))


def _without_words(loaded: LoadedModel) -> LoadReport:
    return dataclasses.replace(loaded.report, missing=("cls.predictions.bias",))


def test_a_model_without_any_head_still_has_a_loss(tiny_loaded: LoadedModel) -> None:
    """Its slopes and removals are all NaN, and both ways find the same loss."""
    bare = bert_core.pruned(tiny_loaded, [(layer, head) for layer in range(2) for head in range(4)])
    texts = hidden(bare)
    losses, slopes = gate_gradients(bare, texts)
    whole, without = losses_without_heads(bare, texts)
    assert np.allclose(losses, whole, rtol=1e-5) and np.isfinite(losses).all()
    assert np.isnan(slopes).all() and np.isnan(without).all()
    assert all(np.isnan(maps).all() for _, maps in attention_maps(bare, [text.encoding for text in texts]))
