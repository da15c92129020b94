"""bert_core/run/decomposition.py: the quick sums beside the whole tensor of query x key x hidden, and completeness."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bert_core
from bert_core import Encoding, LoadedModel, Target, capture
from bert_core.analysis.attribution import effective_attention, norm_rollout
from bert_core.modeling import BertForPreTraining
from bert_core.run import decomposition, memory
from bert_core.run.decomposition import alti, attention_norms, decompx, globenc, head_values, residual_norms
from tests.core.test_perturbation import example, target_of
from tests.near import assert_near

GATES = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]], np.float32)
BOTH = pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
ASKED_KINDS = ("mlm", "contrast", "nsp", "class")


@pytest.fixture(scope="module")
def tiny(tiny_classifier_folder: Path) -> LoadedModel:
    """The tiny model with all its heads, and biases and layer norms that are not those of a model at its birth."""
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    generator = torch.Generator().manual_seed(3)
    for name, weight in loaded.model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name:
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return loaded


@dataclasses.dataclass
class Naive:
    """One layer, head by head and vector by vector.

    vectors: (head, query, key, hidden), attention x f(x), without residual. states: (seq, hidden), what enters.
    summed, normed, second: (seq, hidden), before and after the first layer norm, and before the second.
    """

    layer: torch.nn.Module
    vectors: Tensor
    states: Tensor
    summed: Tensor
    normed: Tensor
    second: Tensor


def naive_layers(loaded: LoadedModel, encoding: Encoding, gates: np.ndarray | None) -> list[Naive]:
    """Every layer of an ordinary forward pass, with the whole tensor."""
    bert, size = loaded.model.bert, loaded.config.attention_head_size
    more = {} if gates is None else {"head_mask": torch.from_numpy(gates)}
    outputs = bert(
        torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]),
        output_hidden_states=True, output_attentions=True, **more,
    )  # fmt: skip
    found = []
    for number, layer in enumerate(bert.encoder.layer):
        states, heads = outputs.hidden_states[number][0], []
        value, dense = layer.attention.self.value, layer.attention.output.dense
        for head in range(loaded.config.num_attention_heads):
            rows = slice(head * size, (head + 1) * size)
            brought = (states @ value.weight[rows].T + value.bias[rows]) @ dense.weight[:, rows].T
            weights = outputs.attentions[number][0, head] * (1 if gates is None else gates[number, head])
            heads.append(weights[:, :, None] * brought[None])
        vectors = torch.stack(heads)
        summed = vectors.sum((0, 2)) + dense.bias + states
        normed = layer.attention.output.LayerNorm(summed)
        second = layer.output.dense(layer.intermediate(normed)) + normed
        assert_near(layer.output.LayerNorm(second), outputs.hidden_states[number + 1][0])
        found.append(Naive(layer, vectors, states, summed, normed, second))
    return found


def with_residual(one: Naive) -> Tensor:
    """(query, key, hidden), the residual connection on the diagonal."""
    return one.vectors.sum(0) + torch.diag_embed(one.states.T).permute(1, 2, 0)


def through(norm: torch.nn.LayerNorm, vectors: Tensor, summed: Tensor) -> Tensor:
    """Vectors (query, key, hidden) through a layer norm over their sum (query, hidden), its bias left out."""
    spread = (summed.var(-1, unbiased=False) + norm.eps).sqrt()
    return (vectors - vectors.mean(-1, keepdim=True)) / spread[:, None, None] * norm.weight


@BOTH
def test_norms_of_attention_are_those_of_the_whole_tensor(tiny: LoadedModel, gates: np.ndarray | None) -> None:
    """Per head and summed over heads; the sum is never longer than its parts together."""
    encoding = example(tiny)
    found, naive = attention_norms(tiny, encoding, head_mask=gates), naive_layers(tiny, encoding, gates)
    assert_near(found.maps, torch.stack([one.vectors.sum(0).norm(dim=-1) for one in naive]), 2e-5)
    assert found.heads is not None and not found.residual and found.mixing is None
    assert_near(found.heads, torch.stack([one.vectors.norm(dim=-1) for one in naive]), 2e-5)
    assert (found.maps <= found.heads.sum(1) + 1e-5).all()


@BOTH
def test_norms_with_residual_are_those_of_the_whole_tensor(tiny: LoadedModel, gates: np.ndarray | None) -> None:
    """Through residual and layer norm, with the share that comes from others."""
    encoding = example(tiny)
    found, naive = residual_norms(tiny, encoding, head_mask=gates), naive_layers(tiny, encoding, gates)
    vectors = [through(one.layer.attention.output.LayerNorm, with_residual(one), one.summed) for one in naive]
    assert_near(found.maps, torch.stack([one.norm(dim=-1) for one in vectors]), 2e-5)
    ratios = []
    for one in vectors:
        own = one.diagonal(dim1=0, dim2=1).T
        others, stays = (one.sum(1) - own).norm(dim=-1), own.norm(dim=-1)
        ratios.append(others / (others + stays))
    assert found.mixing is not None and found.residual
    assert_near(found.mixing, torch.stack(ratios), 2e-5)
    assert (found.mixing > 0).all() and (found.mixing < 1).all()


@BOTH
def test_globenc_is_that_of_the_whole_tensor(tiny: LoadedModel, gates: np.ndarray | None) -> None:
    """Through both layer norms; rolled out, rows sum to 1."""
    encoding = example(tiny)
    found, naive = globenc(tiny, encoding, head_mask=gates), naive_layers(tiny, encoding, gates)
    expected = []
    for one in naive:
        first = through(one.layer.attention.output.LayerNorm, with_residual(one), one.summed)
        expected.append(through(one.layer.output.LayerNorm, first, one.second).norm(dim=-1))
    assert_near(found.maps, torch.stack(expected), 2e-5)
    np.testing.assert_allclose(norm_rollout(found.maps, residual=False).sum(-1), 1)


@BOTH
@pytest.mark.parametrize("at_once", [1, 2**28])
def test_alti_is_that_of_the_whole_tensor(
    tiny: LoadedModel, gates: np.ndarray | None, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1 distances to the output of the layer norm, in any number of queries at once; rows sum to 1."""
    monkeypatch.setattr(decomposition, "BYTES_AT_ONCE", at_once)
    encoding = example(tiny)
    found, naive = alti(tiny, encoding, head_mask=gates), naive_layers(tiny, encoding, gates)
    expected = []
    for one in naive:
        vectors = through(one.layer.attention.output.LayerNorm, with_residual(one), one.summed)
        whole = one.normed[:, None]
        nearer = (whole.norm(p=1, dim=-1) - (whole - vectors).norm(p=1, dim=-1)).clamp(min=0)
        expected.append(nearer / nearer.sum(-1, keepdim=True))
    assert_near(found.maps, torch.stack(expected), 2e-5)
    assert_near(found.maps.sum(-1), 1)
    assert_near(norm_rollout(found.maps, residual=False)[-1], found.maps[1] @ found.maps[0])


def test_alti_of_a_wide_layer_is_that_of_double_precision(tiny: LoadedModel) -> None:
    """Each token of a wide layer changes the norm of the sum by little, and the scores keep their digits."""
    torch.manual_seed(0)
    config = dataclasses.replace(
        tiny.config,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=768,
        num_hidden_layers=1,
        initializer_range=0.02,
    )
    wide = dataclasses.replace(tiny, model=BertForPreTraining(config).eval().requires_grad_(False))
    double = dataclasses.replace(wide, model=copy.deepcopy(wide.model).double())
    encoding = tiny.tokenizer.encode("the cat sat on the mat " * 20)
    assert_near(alti(wide, encoding).maps, alti(double, encoding).maps, 1e-6)


def test_heads_that_were_pruned_bring_nothing(tiny: LoadedModel) -> None:
    """The maps of a smaller model are those of the whole one with these heads switched off."""
    encoding, gates = example(tiny), np.ones((2, 4), np.float32)
    gates[0, [0, 2]] = gates[1, 3] = 0
    pruned = dataclasses.replace(tiny, model=copy.deepcopy(tiny.model))
    pruned.model.bert._prune_heads({0: [0, 2], 1: [3]})
    for method in (attention_norms, residual_norms, globenc, alti):
        one, other = method(pruned, encoding), method(tiny, encoding, head_mask=gates)
        assert_near(one.maps, other.maps)
    one, other = attention_norms(pruned, encoding), attention_norms(tiny, encoding, head_mask=gates)
    assert one.heads is not None and other.heads is not None
    assert_near(one.heads, other.heads)
    target = Target("nsp")
    assert_near(decompx(pruned, encoding, target).scores, decompx(tiny, encoding, target, head_mask=gates).scores, 1e-3)


def test_values_make_attention_effective(tiny: LoadedModel) -> None:
    """Effective attention times the values is attention times the values, and differs where keys outnumber the head."""
    encoding = example(tiny)
    values, attention = head_values(tiny, encoding), capture(tiny, encoding).attention
    assert values.shape == (2, 4, 16, 8)
    effective = effective_attention(attention, values)
    assert_near(effective @ values, attention @ values)
    assert np.abs(effective - attention).max() > 0.05
    short = tiny.tokenizer.encode("the cat sat")
    same = effective_attention(capture(tiny, short).attention, head_values(tiny, short))
    assert_near(same, capture(tiny, short).attention)


@BOTH
@pytest.mark.parametrize("kind", ASKED_KINDS)
def test_decompx_is_complete(tiny: LoadedModel, kind: str, gates: np.ndarray | None) -> None:
    """The tokens' parts sum to the logit of an ordinary forward pass, for every target."""
    encoding = example(tiny)
    target = target_of(kind, tiny, encoding)
    found = decompx(tiny, encoding, target, head_mask=gates)
    inputs = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    more = {} if gates is None else {"head_mask": torch.from_numpy(gates)}
    outputs = tiny.model(inputs[0], token_type_ids=inputs[1], **more)
    nsp, pieces = outputs.seq_relationship_logits[0], outputs.prediction_logits[0, target.rows[0]]
    expected = {
        "mlm": pieces[target.token_id], "contrast": pieces[target.token_id] - pieces[target.against or 0],
        "nsp": nsp[0] - nsp[1],
        "class": tiny.task_models["classifier"](inputs[0], token_type_ids=inputs[1], **more).logits[0, 2],
    }[kind].item()  # fmt: skip
    assert found.gap is not None and found.signed
    size = float(np.abs(found.scores).sum())
    assert_near(found.target_value, expected, of=size)
    assert_near(found.scores.sum(), expected, of=size)
    assert_near(found.gap, 0, of=size)


@pytest.mark.parametrize("kind", ASKED_KINDS[:3])
def test_decompx_of_the_bundled_model_is_complete(kind: str) -> None:
    """Through six layers and either head, within 1e-4 of the parts' size."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encoding = example(loaded)
    found = decompx(loaded, encoding, target_of(kind, loaded, encoding))
    assert found.gap is not None
    assert_near(found.gap, 0, 1e-4, of=np.abs(found.scores).sum())


@pytest.mark.parametrize("kind", ["mlm", "nsp"])
def test_without_biases_decompx_is_the_frozen_network(tiny: LoadedModel, kind: str) -> None:
    """Input x gradient of the same network with maps, spreads and slopes held fast, which is linear in its input."""
    unbiased = dataclasses.replace(tiny, model=copy.deepcopy(tiny.model))
    for name, weight in unbiased.model.named_parameters():
        if name.endswith("bias") and "embeddings" not in name:
            weight.zero_()
    encoding = example(unbiased)
    target = target_of(kind, unbiased, encoding)
    naive = naive_layers(unbiased, encoding, None)
    maps = torch.from_numpy(capture(unbiased, encoding).attention.copy())
    start = naive[0].states.clone().requires_grad_()

    def norm(module: torch.nn.LayerNorm, states: Tensor) -> Tensor:
        spread = (states.detach().var(-1, unbiased=False, keepdim=True) + module.eps).sqrt()
        return (states - states.mean(-1, keepdim=True)) / spread * module.weight

    def held(activation: object, states: Tensor) -> Tensor:
        return states * (activation(states) / states).detach()  # type: ignore[operator]

    states = start
    for number, one in enumerate(naive):
        attention, length = one.layer.attention, len(encoding)
        values = attention.self.value(states).view(length, 4, 8)
        context = torch.einsum("hqk,khd->qhd", maps[number], values).flatten(1)
        states = norm(attention.output.LayerNorm, attention.output.dense(context) + states)
        inner = one.layer.output.dense(held(F.gelu, one.layer.intermediate.dense(states)))
        states = norm(one.layer.output.LayerNorm, inner + states)
    heads, row = unbiased.model.cls, states[target.rows[0]]
    if kind == "nsp":
        logits = heads.seq_relationship(held(torch.tanh, unbiased.model.bert.pooler.dense(row)))
        value = logits[0] - logits[1]
    else:
        transform = heads.predictions.transform
        value = heads.predictions.decoder(norm(transform.LayerNorm, held(F.gelu, transform.dense(row))))[
            target.token_id
        ]
    (gradient,) = torch.autograd.grad(value, start)
    expected = (gradient * start).sum(-1).detach().numpy()
    found = decompx(unbiased, encoding, target)
    assert_near(found.scores, expected)


def test_decompx_a_query_at_a_time_is_the_same(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many positions go through the feed-forward network together changes nothing."""
    encoding = example(tiny)
    together = decompx(tiny, encoding, Target("nsp")).scores
    monkeypatch.setattr(decomposition, "BYTES_AT_ONCE", 1)
    assert_near(decompx(tiny, encoding, Target("nsp")).scores, together)


def test_activations_at_zero_have_their_limit() -> None:
    """GELU halves, tanh leaves as it is, and elsewhere the slope is act(x) / x."""
    states = torch.tensor([0.0, 2.0, -1.0])
    for activation, limit in ((F.gelu, 0.5), (torch.tanh, 1.0), (F.silu, 0.5)):
        slope = decomposition.activation_factor(activation, states)
        assert_near(slope, [limit, activation(states)[1] / 2, -activation(states)[2]])


def test_what_does_not_fit_is_refused_first(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the figure and a cheaper method; the system's own figure is a number of bytes."""
    encoding = example(tiny)
    free = memory.free_bytes(torch.device("cpu"))
    assert free is None or free > 2**20
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**10)
    with pytest.raises(ValueError) as caught:
        decompx(tiny, encoding, Target("nsp"))
    assert str(caught.value) == (
        "DecompX on 16 tokens needs 0.1 MiB of memory, but only 0.0 MiB are free: shorten the text, or use "
        "integrated gradients"
    )
    with pytest.raises(ValueError, match=r"^class 7 does not exist"):
        decompx(tiny, encoding, Target("class", label=7))
