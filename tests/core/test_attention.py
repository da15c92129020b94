"""bert_core/attention.py: the maps, their gradients, the gates of the heads, and the two paths that must agree."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core import BertConfig, BertForPreTraining, BertSelfAttention
from bert_core.attention import MASKED_SCORE
from bert_core.recording import record
from tests.near import assert_near


@pytest.fixture
def model(tiny_config: BertConfig) -> BertForPreTraining:
    """A model of one's own, in evaluation mode."""
    torch.manual_seed(1)
    return BertForPreTraining(tiny_config).eval()


def some_ids(batch: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(5, 90, (batch, length), generator=torch.Generator().manual_seed(seed))


def largest(tensor: Tensor) -> float:
    return float(tensor.detach().abs().max())


# ---------------------------------------------------------------------------- by hand


def hand_made() -> BertSelfAttention:
    """One head on the tokens (1, 0) and (0, 1): rows (1/4, 3/4) and (4/5, 1/5), values (8, 0) and (0, 20)."""
    attention = BertSelfAttention(BertConfig(hidden_size=2, num_attention_heads=1)).eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        attention.query.weight.copy_(math.sqrt(2) * torch.tensor([[0.0, math.log(4)], [math.log(3), 0.0]]))
        attention.key.weight.copy_(torch.eye(2))
        attention.value.weight.copy_(torch.diag(torch.tensor([8.0, 20.0])))
    return attention


@pytest.mark.parametrize("watched", [True, False])
def test_two_tokens_worked_by_hand(watched: bool) -> None:
    """Softmax of (0, ln 3) is (1/4, 3/4), so the first context is (2, 15); the second is (32/5, 4), on both paths."""
    context, probabilities, _ = hand_made()(torch.eye(2)[None], output_attentions=watched)
    assert_near(context[0], torch.tensor([[2.0, 15.0], [6.4, 4.0]]))
    if watched:
        assert_near(probabilities[0, 0], torch.tensor([[0.25, 0.75], [0.8, 0.2]]))
    else:
        assert probabilities is None


def test_the_gradient_worked_by_hand() -> None:
    """For the sum of all contexts, the gradient of a probability is the sum of its key's value: 8 and 20."""
    attention = hand_made()
    attention.save_attention = True
    context = attention(torch.eye(2)[None]).context
    context.sum().backward()
    gradient = attention.get_attn_gradients()
    assert gradient is not None
    assert_near(gradient[0, 0], torch.tensor([[8.0, 20.0], [8.0, 20.0]]))


def test_a_masked_key_gets_nothing() -> None:
    """With the second key masked, each row is exactly (1, 0)."""
    mask = torch.tensor([0.0, MASKED_SCORE])[None, None, None]
    context, probabilities, _ = hand_made()(torch.eye(2)[None], mask, output_attentions=True)
    assert torch.equal(probabilities[0, 0], torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert_near(context[0], torch.tensor([[8.0, 0.0], [8.0, 0.0]]))


# ---------------------------------------------------------------------------- two paths


def padding_mask() -> Tensor:
    mask = torch.ones(2, 9)
    mask[1, 5:] = 0
    return mask


def square_mask() -> Tensor:
    mask = (torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(4)) < 0.6).float()
    return mask.maximum(torch.eye(9))


@pytest.mark.parametrize("mask", [None, padding_mask(), square_mask()], ids=["none", "padding", "square"])
@pytest.mark.parametrize("head_mask", [None, torch.tensor([1.0, 0.0, 0.5, 1.0])], ids=["all heads", "gates"])
def test_fused_and_explicit_attention_agree(
    model: BertForPreTraining, mask: Tensor | None, head_mask: Tensor | None
) -> None:
    """A watched model gives the hidden states of an unwatched one, to rounding."""
    arguments: dict[str, Any] = {"attention_mask": mask, "head_mask": head_mask}
    unwatched = model.bert(some_ids(), **arguments).last_hidden_state
    with record():
        watched = model.bert(some_ids(), **arguments).last_hidden_state
    assert_near(unwatched, watched)


def test_a_row_without_keys_looks_at_the_content_on_both_paths(model: BertForPreTraining) -> None:
    """Where every key is masked, -10000 everywhere leaves the softmax of the scores: as if nothing were masked."""
    attention = model.attention_modules[0]
    hidden_states = model.bert.embeddings(some_ids())
    masked = torch.zeros(2, 1, 9, 9)
    masked[0, 0, 3] = masked[1, 0, :] = MASKED_SCORE
    free_context, free_map, _ = attention(hidden_states, output_attentions=True)
    for watched in (True, False):
        context, probabilities, _ = attention(hidden_states, masked, output_attentions=watched)
        # Adding -10000 rounds the scores to about 1/1000.
        assert_near(context, free_context, 5e-3)
        if watched:
            assert_near(probabilities, free_map, 5e-3, of=1)


def test_a_text_of_padding_only_stays_finite(model: BertForPreTraining) -> None:
    """An example whose keys are all masked gives the same numbers on both paths, none of them NaN."""
    mask = torch.ones(2, 9)
    mask[1] = 0
    unwatched = model.bert(some_ids(), attention_mask=mask).last_hidden_state
    with record():
        watched = model.bert(some_ids(), attention_mask=mask).last_hidden_state
    assert torch.isfinite(unwatched).all()
    assert_near(unwatched[0], watched[0])
    assert_near(unwatched[1], watched[1], 2e-2)


@pytest.mark.parametrize(("layers", "fused"), [(None, 0), ({0}, 1), ({0, 1}, 0), (set(), 2)])
def test_only_watched_layers_build_their_map(
    model: BertForPreTraining, monkeypatch: pytest.MonkeyPatch, layers: set[int] | None, fused: int
) -> None:
    """A layer that nobody watches runs fused attention; a watched one does not."""
    calls = []
    original = F.scaled_dot_product_attention

    def counted(*arguments: Any, **named: Any) -> Tensor:
        calls.append(1)
        return original(*arguments, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    with record(layers):
        model.bert(some_ids())
    assert len(calls) == fused
    calls.clear()
    model.bert(some_ids())
    assert len(calls) == 2


# ---------------------------------------------------------------------------- what a map is


def test_a_map_is_taken_before_dropout(tiny_config: BertConfig) -> None:
    """In training mode with heavy dropout each saved row still sums to 1, while the output is another one each time."""
    torch.manual_seed(2)
    model = BertForPreTraining(tiny_config.replace(attention_probs_dropout_prob=0.6, hidden_dropout_prob=0.0)).train()
    outputs = []
    for _ in range(2):
        with record() as recording:
            outputs.append(model.bert(some_ids(), output_attentions=True))
        for layer, one in enumerate(outputs[-1].attentions):
            assert_near(one.sum(-1), 1)
            assert one is recording.attention[layer]
    assert torch.equal(outputs[0].attentions[0], outputs[1].attentions[0])
    assert not torch.allclose(outputs[0].last_hidden_state, outputs[1].last_hidden_state, atol=0.1)


def test_a_map_is_taken_before_the_head_mask(model: BertForPreTraining) -> None:
    """Switching the first layer's heads off leaves its maps as they were, and changes what comes after."""
    gates = torch.ones(2, 4)
    gates[0, :3] = 0
    on = model.bert(some_ids(), output_attentions=True)
    off = model.bert(some_ids(), output_attentions=True, head_mask=gates)
    assert torch.equal(on.attentions[0], off.attentions[0])
    assert not torch.allclose(on.attentions[1], off.attentions[1], atol=1e-3)


def test_the_gradient_of_a_gate_is_that_of_the_product_before_it(tiny_config: BertConfig) -> None:
    """For gates 0, 1/2 and 1, for each example and head, with P = gate * A:

    sum(A * dL/dA) = gate * dL/dgate, and dL/dgate = sum(A * dL/dP).
    """
    torch.manual_seed(3)
    model = BertForPreTraining(tiny_config).double().eval()
    gates = torch.tensor([[[0, 0.5, 1, 0.5], [1, 0, 0.5, 1]], [[0.5, 1, 0, 0], [1, 1, 0.5, 0]]]).double()
    gates.requires_grad_()
    contexts, values = [], []
    for attention in model.attention_modules:
        attention.value.register_forward_hook(lambda _, __, output: values.append(output.detach()))
    for layer in model.bert.encoder.layer:
        layer.attention.output.register_forward_pre_hook(lambda _, inputs: contexts.append(inputs[0]))
    with record() as recording:
        outputs = model.bert(some_ids(), head_mask=gates)
        loss = model.cls.predictions(outputs.last_hidden_state).log_softmax(-1)[:, 4, 17].sum()
        gate_gradients, *context_gradients = torch.autograd.grad(loss, [gates, *contexts], retain_graph=True)
        loss.backward()

    def by_head(tensor: Tensor) -> Tensor:
        return tensor.unflatten(-1, (4, 8)).transpose(1, 2)

    for layer in range(2):
        attention, gradient = recording.attention[layer].detach(), recording.gradients[layer]
        before_gate = (attention * gradient).sum((2, 3))
        product_gradient = by_head(context_gradients[layer]) @ by_head(values[layer]).transpose(-1, -2)
        assert_near(before_gate, (gates * gate_gradients)[layer], 1e-9)
        assert_near((attention * product_gradient).sum((2, 3)), gate_gradients[layer], 1e-9)
        assert largest(gate_gradients[layer][gates[layer] == 0]) > 1e-3


# ---------------------------------------------------------------------------- head masks


def test_a_head_mask_of_each_shape_means_the_same(model: BertForPreTraining) -> None:
    """Per head, per layer and head, or per layer, example and head: equal gates give equal outputs."""
    per_head = torch.tensor([1.0, 0.0, 0.5, 1.0])
    outputs = [
        model.bert(some_ids(), head_mask=mask).last_hidden_state
        for mask in (per_head, per_head.expand(2, 4), per_head.expand(2, 2, 4), per_head.double())
    ]
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])
    assert not torch.allclose(outputs[0], model.bert(some_ids()).last_hidden_state, atol=1e-2)


def test_each_example_has_its_own_gates(model: BertForPreTraining) -> None:
    """In a batch with different gates, each example is as it is alone with its own."""
    gates = torch.tensor([[[1.0, 0, 1, 1], [0, 1, 0.5, 1]], [[0, 0, 1, 1], [1, 1, 1, 0]]])
    together = model.bert(some_ids(), head_mask=gates).last_hidden_state
    for example in range(2):
        alone = model.bert(some_ids()[example : example + 1], head_mask=gates[:, example]).last_hidden_state
        assert_near(together[example], alone[0])


@pytest.mark.parametrize("shape", [(), (3,), (5,), (3, 4), (2, 5), (4, 2), (2, 3, 4), (2, 1, 4), (2, 2, 4, 1)])
def test_a_head_mask_of_another_shape_is_one_clear_error(model: BertForPreTraining, shape: tuple[int, ...]) -> None:
    """The sentence says what was given and the three shapes that fit this input."""
    with pytest.raises(ValueError) as caught:
        model.bert(some_ids(), head_mask=torch.ones(shape))
    assert str(caught.value) == f"head_mask has shape {shape}: for this input it must be (4,), (2, 4) or (2, 2, 4)"


# ---------------------------------------------------------------------------- the module's own door


def test_modules_keep_maps_and_gradients_when_told_to(model: BertForPreTraining) -> None:
    """With save_attention on every layer, its map and its gradient are those of a recording."""
    labels = some_ids(seed=9)
    with record() as recording:
        model(some_ids(), labels=labels).loss.backward()
    for layer in model.bert.encoder.layer:
        layer.attention.self.save_attention = True
    model(some_ids(), labels=labels).loss.backward()
    for number, layer in enumerate(model.bert.encoder.layer):
        module = layer.attention.self
        assert torch.equal(module.get_attention_map(), recording.attention[number])
        assert torch.equal(module.get_attn_gradients(), recording.gradients[number])
        assert largest(module.get_attn_gradients()) > 0


def test_nothing_is_kept_unless_asked(model: BertForPreTraining) -> None:
    """Without save_attention, a forward and a backward pass leave nothing in the modules."""
    model(some_ids(), labels=some_ids()).loss.backward()
    assert all(m.get_attention_map() is None and m.get_attn_gradients() is None for m in model.attention_modules)


def test_a_new_map_forgets_the_old_gradient(model: BertForPreTraining) -> None:
    """A gradient never stands beside the map of another text."""
    module = model.attention_modules[0]
    module.save_attention = True
    model(some_ids(), labels=some_ids()).loss.backward()
    assert module.get_attn_gradients() is not None
    with torch.no_grad():
        model(some_ids(seed=8))
    assert module.get_attn_gradients() is None
    assert module.get_attention_map() is not None


def test_a_recording_takes_what_the_module_would_have_kept(model: BertForPreTraining) -> None:
    """Inside a recording the shared module keeps nothing, whatever its switch says."""
    for module in model.attention_modules:
        module.save_attention = True
    with record() as recording:
        model.bert(some_ids())
    assert set(recording.attention) == {0, 1}
    assert all(module.get_attention_map() is None for module in model.attention_modules)


def test_values_can_be_saved_by_hand(model: BertForPreTraining) -> None:
    """save_attention_map and save_attn_gradients put in what the getters give back."""
    module = model.attention_modules[1]
    one, other = torch.rand(1, 4, 3, 3), torch.rand(1, 4, 3, 3)
    module.save_attention_map(one)
    module.save_attn_gradients(other)
    assert module.get_attention_map() is one
    assert module.get_attn_gradients() is other
