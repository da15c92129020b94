"""The recorded points of blocks: those of every family, and of a block with its norms and its network elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bert_core
from bert_core import BertConfig, LoadedModel
from bert_core.attention import BertAttention
from bert_core.modeling import BertLayer, Block, BlockActivations
from bert_core.recording import record
from tests.families import FAMILIES, save_family
from tests.near import assert_near


class GatedBlock(Block):
    """Norms before each part, none after, and a gated network: what ModernBERT has."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.norms = nn.ModuleList(nn.LayerNorm(config.hidden_size) for _ in range(2))
        self.inner = nn.Linear(config.hidden_size, 2 * config.intermediate_size)
        self.outer = nn.Linear(config.intermediate_size, config.hidden_size)

    def attention_input(self, states: Tensor) -> Tensor:
        normed: Tensor = self.norms[0](states)
        return normed

    def attention_update(self, context: Tensor) -> Tensor:
        update: Tensor = self.attention.output.dense(context)
        return update

    def after_attention(self, update: Tensor, states: Tensor) -> Tensor:
        return states + update

    def neurons(self, after_attention: Tensor) -> Tensor:
        activated, gate = self.inner(self.norms[1](after_attention)).chunk(2, dim=-1)
        return nn.functional.gelu(activated) * gate

    def feed_forward_update(self, neurons: Tensor) -> Tensor:
        update: Tensor = self.outer(neurons)
        return update

    def output_states(self, update: Tensor, after_attention: Tensor) -> Tensor:
        return after_attention + update

    def forward(self, states: Tensor) -> Tensor:
        """Written out once more, without the steps."""
        attended = states + self.attention.output.dense(self.attention.self(self.norms[0](states)).context)
        activated, gate = self.inner(self.norms[1](attended)).chunk(2, dim=-1)
        left: Tensor = attended + self.outer(nn.functional.gelu(activated) * gate)
        return left


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("blocks") / request.param
    return bert_core.load(save_family(request.param, folder), device="cpu")


def check_contributions(block: Block, points: BlockActivations, gates: Tensor | None = None) -> None:
    """What heads add from every key, with the bias that belongs to none, is what attention adds; lengths too."""
    summed = torch.einsum("bhqk,bhkd->bqd", points.attention_map, points.head_outputs)
    context = points.states.new_zeros(*points.states.shape[:2], block.attention.output.dense.in_features)
    update = summed + block.attention_update(context)
    assert_near(block.after_attention(update, points.states), points.after_attention)
    one = points.attention_map[0, 1, 2, 3] * points.head_outputs[0, 1, 3]
    assert_near(points.contribution_norms[0, 1, 2, 3], one.norm(), of=float(points.contribution_norms.max()))


@torch.no_grad()
@pytest.mark.parametrize("gated", [False, True])
def test_every_family_has_the_points_of_its_pass(loaded: LoadedModel, gated: bool) -> None:
    """The steps of each block, one after the other, are its forward pass: states, map, what each head adds; beside
    padding, gates and pruned heads too.
    """
    model = (bert_core.pruned(loaded, [(1, 0)]) if gated else loaded).model.bert
    ids, mask = torch.randint(5, 300, (2, 12), generator=torch.Generator().manual_seed(0)), torch.ones(2, 12)
    mask[1, 8:] = 0
    gates = model.get_head_mask(torch.tensor([1.0, 0.5, 0.0, 1.0]), 2) if gated else None
    states = model.embeddings(ids)
    additive = model.get_extended_attention_mask(mask, (2, 12))
    for number, block in enumerate(model.encoder.layer):
        assert isinstance(block, BertLayer)
        gate = None if gates is None else gates[number]
        points = block.compute_activations(states, additive, gate)
        with record() as recording:
            left = block(states, additive, gate).hidden_states
        assert points.states is states and torch.equal(points.output, left)
        assert torch.equal(points.attention_map, recording.attention[number])
        assert torch.equal(points.neurons, block.intermediate(points.after_attention))
        check_contributions(block, points, gate)
        states = left


@torch.no_grad()
def test_a_block_with_norms_before_has_the_same_points() -> None:
    """A second kind of block, with norms before its parts and a gated network, gives the points of its own pass."""
    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_attention_heads=4, intermediate_size=24)
    block, states = GatedBlock(config).eval(), torch.randn(2, 7, 16)
    points = block.compute_activations(states)
    assert_near(points.output, block(states))
    assert points.neurons.shape == (2, 7, 24)
    check_contributions(block, points)


def test_every_attention_module_of_every_family_keeps_its_map_and_gradient(loaded: LoadedModel) -> None:
    """With save_attention each module keeps the map of the last pass and its gradient, which can be set by hand too."""
    model = loaded.model.bert
    embeddings = model.embeddings.word_embeddings(torch.arange(5, 15)[None]).detach().requires_grad_()
    for attention in model.attention_modules:
        assert attention.get_attention_map() is None and attention.get_attn_gradients() is None
        attention.save_attention = True
    try:
        model(inputs_embeds=embeddings).last_hidden_state.square().sum().backward()
        for attention in model.attention_modules:
            map_, gradient = attention.get_attention_map(), attention.get_attn_gradients()
            assert map_ is not None and gradient is not None and map_.shape == gradient.shape == (1, 4, 10, 10)
            assert_near(map_.sum(-1), torch.ones(1, 4, 10))
            assert gradient.abs().max() > 0
            attention.save_attention_map(map_[:, :1])
            assert attention.get_attention_map() is not map_ and attention.get_attn_gradients() is None
            attention.save_attn_gradients(gradient[:, :1])
            kept = attention.get_attn_gradients()
            assert kept is not None and kept.shape == (1, 1, 10, 10)
    finally:
        for attention in model.attention_modules:
            attention.save_attention, attention._attention_map, attention._attn_gradients = False, None, None
