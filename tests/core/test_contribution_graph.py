"""Contribution graphs: shares that add up, products that are the rollout, and knockouts beside random edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import bert_core
from bert_core import AttentionKnockout, ContributionGraph, EdgeKnockout, LoadedModel, Refused, Target, edited
from bert_core.analysis.attribution import norm_rollout
from bert_core.analysis.flow import paths_to
from bert_core.run.decomposition import GRAPH_METHODS, alti, contribution_graph, residual_norms
from bert_core.run.knockouts import knock_out_graph_edge
from tests.core.test_decomposition import GATES, Naive, naive_layers, through, tiny, with_residual  # noqa: F401
from tests.core.test_perturbation import example, target_of
from tests.families import FAMILIES, save_family
from tests.near import assert_near

METHODS = pytest.mark.parametrize("method", GRAPH_METHODS)


def assert_consistent(graph: ContributionGraph) -> None:
    """Rows add up to 1, heads and residual to the shares, and the product of a loop over paths is the rollout."""
    layers, length, _ = graph.shares.shape
    assert (graph.shares >= 0).all() and (graph.head_shares >= 0).all() and (graph.residual >= 0).all()
    assert_near(graph.shares.sum(-1), np.ones((layers, length)))
    total = graph.head_shares.sum(1, dtype=np.float64)
    for layer in range(layers):
        total[layer] += np.diag(graph.residual[layer])
    assert_near(total, graph.shares)
    rollout = np.eye(length)
    for layer in range(layers):
        rollout = np.array([sum(graph.shares[layer, query, middle] * rollout[middle] for middle in range(length))
                            for query in range(length)])  # fmt: skip
    assert_near(norm_rollout(graph.shares, residual=False)[-1], rollout)
    for layer in range(layers):
        inputs = graph.inputs_of(layer, 1)
        assert_near(inputs.sum(0), graph.shares[layer, 1])
        assert_near(inputs[0], graph.head_shares[layer, :, 1].sum(0), 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_shares_add_up_and_their_product_is_the_rollout_in_every_family(family: str, tmp_path: Path) -> None:
    """With all methods that a family supports; the edges outside a window are 0."""
    loaded = bert_core.load(save_family(family, tmp_path), device="cpu")
    encoding = loaded.tokenizer.encode("The old man [MASK] along the river with his dog.")
    rollouts = {"ALTI": alti(loaded, encoding).maps, "norms with residual": residual_norms(loaded, encoding).maps}
    for method in GRAPH_METHODS:
        if method == "DecompX" and family == "modernbert":
            with pytest.raises(Refused, match="choose another method"):
                contribution_graph(loaded, encoding, method=method)
            continue
        graph = contribution_graph(loaded, encoding, method=method)
        assert_consistent(graph)
        if method in rollouts:
            expected = norm_rollout(rollouts[method], residual=False)
            assert_near(norm_rollout(graph.shares, residual=False), expected)
        for number, window in enumerate(loaded.config.windows if family == "modernbert" else ()):
            if window is not None:
                distance = np.abs(np.subtract.outer(range(len(encoding)), range(len(encoding))))
                assert (distance > window).any() and (graph.shares[number][distance > window] == 0).all()


@METHODS
@pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
def test_heads_divide_an_edge_by_the_norms_of_their_vectors(
    tiny: LoadedModel,  # noqa: F811
    method: str,
    gates: np.ndarray | None,
) -> None:
    """Those of the whole tensor of vectors, with the residual connection on the diagonal; of a gated head less."""
    encoding = example(tiny)
    graph = contribution_graph(tiny, encoding, method=method, head_mask=gates)
    assert_consistent(graph)
    for number, layer in enumerate(naive_layers(tiny, encoding, gates)):
        norm, count = layer.layer.attention.output.LayerNorm, len(encoding)
        parts = torch.stack([through(norm, vectors, layer.summed).norm(dim=-1) for vectors in layer.vectors])
        states = torch.diag_embed(layer.states.T).permute(1, 2, 0)
        residual = through(norm, states, layer.summed).norm(dim=-1)
        total = parts.sum(0) + residual * torch.eye(count)
        shares = torch.tensor(graph.shares[number])
        assert_near(graph.head_shares[number], parts / total * shares, 2e-5)
        assert_near(graph.residual[number], (residual / total * shares).diagonal(), 2e-5)


def test_shares_of_decompx_are_norms_of_vectors_that_sum_to_the_output(tiny: LoadedModel) -> None:  # noqa: F811
    """Each vector by itself, through every part of the layer, with the biases divided by inner products."""
    encoding = example(tiny)
    graph = contribution_graph(tiny, encoding, method="DecompX")
    for number, layer in enumerate(naive_layers(tiny, encoding, None)):
        norms = []
        for query in range(len(encoding)):
            vectors = decomposed(layer, query)
            assert_near(vectors.sum(0), layer.layer.output.LayerNorm(layer.second)[query])
            norms.append(vectors.norm(dim=-1))
        expected = torch.stack(norms)
        assert_near(graph.shares[number], expected / expected.sum(-1, keepdim=True), 2e-5)


def decomposed(naive: Naive, query: int) -> Tensor:
    """The parts (key, hidden) of the output of a layer at one position that DecompX ascribes to its inputs."""
    attention, layer = naive.layer.attention, naive.layer

    def with_bias(vectors: Tensor, bias: Tensor) -> Tensor:
        sizes = (vectors @ bias).abs()
        return vectors + (sizes / sizes.sum())[:, None] * bias

    def through_norm(norm: torch.nn.LayerNorm, vectors: Tensor, summed: Tensor) -> Tensor:
        return with_bias(through(norm, vectors[None], summed[None])[0], norm.bias)

    value_bias = attention.self.value.bias @ attention.output.dense.weight.T
    # What the bias of the values brings is part of every vector in proportion to its attention weight.
    weights = attention_weights(naive)[:, query]
    size = attention.self.attention_head_size
    biases = [
        attention.self.value.bias[head * size : (head + 1) * size]
        @ attention.output.dense.weight[:, head * size : (head + 1) * size].T
        for head in range(len(weights))
    ]
    assert_near(sum(biases), value_bias)
    vectors = naive.vectors[:, query].sum(0) - sum(
        row[:, None] * bias for row, bias in zip(weights, biases, strict=True)
    )
    vectors = with_bias(vectors, value_bias + attention.output.dense.bias)
    vectors[query] += naive.states[query]
    vectors = through_norm(attention.output.LayerNorm, vectors, naive.summed[query])
    inner = layer.intermediate.dense(naive.normed[query])
    factor = layer.intermediate.activate(inner) / inner
    neurons = with_bias(vectors @ layer.intermediate.dense.weight.T, layer.intermediate.dense.bias) * factor
    output = with_bias(neurons @ layer.output.dense.weight.T, layer.output.dense.bias) + vectors
    return through_norm(layer.output.LayerNorm, output, naive.second[query])


def attention_weights(naive: Naive) -> Tensor:
    """The probabilities (head, query, key) of a layer, from its queries and keys."""
    module = naive.layer.attention.self
    queries, keys = (module.transpose_for_scores(dense(naive.states)[None])[0] for dense in (module.query, module.key))
    weights: Tensor = (queries @ keys.transpose(-1, -2) / module.attention_head_size**0.5).softmax(-1)
    return weights


def test_pruned_heads_have_no_share(tiny: LoadedModel) -> None:  # noqa: F811
    """The shares of the others are those of a model whose head is switched off by a gate."""
    encoding, gates = example(tiny), np.ones((2, 4), np.float32)
    gates[1, 2] = 0
    pruned = contribution_graph(bert_core.pruned(tiny, [(1, 2)]), encoding)
    assert_near(pruned.head_shares, contribution_graph(tiny, encoding, head_mask=gates).head_shares)
    assert (pruned.head_shares[1, 2] == 0).all()
    assert_consistent(pruned)


def test_paths_are_the_edges_of_a_small_graph_that_reach_the_target() -> None:
    """Two tokens and two layers by hand: an edge below a node that nothing reaches is left out."""
    shares = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [1.0, 0.0]]])
    assert paths_to(shares, [0], 0.3).tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 1]]
    assert paths_to(shares, [0], 0.15).tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert paths_to(shares, [0, 1], 0.85).tolist() == [[1, 1, 0], [0, 0, 0]]
    for threshold in (0, -0.1, 1.5):
        with pytest.raises(Refused, match="the threshold of a share is"):
            paths_to(shares, [0], threshold)
    with pytest.raises(Refused, match="a position is 2: it must be a whole number from 0 to 1"):
        paths_to(shares, [2], 0.3)


@pytest.mark.parametrize("heads", [None, (1,), (0, 3)], ids=["all heads", "one head", "two heads"])
@pytest.mark.parametrize("renormalised", [True, False])
def test_knockouts_are_those_of_edited_models(
    tiny: LoadedModel,  # noqa: F811
    heads: tuple[int, ...] | None,
    renormalised: bool,
) -> None:
    """The edge and every random edge, in every layer."""
    encoding = example(tiny)
    target, graph = target_of("mlm", tiny, encoding), contribution_graph(tiny, encoding, method="norms with residual")
    query = target.rows[0]
    for layer, key in ((0, 2), (1, query), (1, 3)):
        knockout = knock_out_graph_edge(
            tiny, graph, target, layer, query, key, heads=heads, random_edges=6, tolerance=0.4,
            renormalised=renormalised,
        )  # fmt: skip
        sizes = graph.head_shares[:, slice(None) if heads is None else list(heads)].sum(1)
        assert_near(knockout.size, sizes[layer, query, key])
        assert_near(knockout.base_value, bert_core.capture(tiny, encoding, target=target).target_value)
        assert len(knockout.random_edges) == len(knockout.random_values) > 0
        edges = [(layer, query, key), *map(tuple, knockout.random_edges.tolist())]
        for edge, value in zip(edges, [knockout.value, *knockout.random_values], strict=True):
            assert abs(sizes[edge] - knockout.size) <= 0.4001 * knockout.size
            edit = AttentionKnockout((edge[1],), (edge[2],), (edge[0],), heads, renormalised)
            run = bert_core.capture(edited(tiny, [edit]), encoding, target=target)
            assert_near(value, run.target_value)


def test_random_edges_are_of_equal_size_seeded_and_of_the_same_layer_first(tiny: LoadedModel) -> None:  # noqa: F811
    """Another layer is used only when the edges of the layer are used up, and the edge itself is never among them."""
    encoding = example(tiny)
    target, graph = target_of("mlm", tiny, encoding), contribution_graph(tiny, encoding)
    edge = (0, 1, 3)
    first, all_edges, repeated, second = (
        knock_out_graph_edge(tiny, graph, target, *edge, random_edges=count, tolerance=0.3, seed=seed)
        for count, seed in ((5, 0), (500, 0), (5, 0), (5, 1))
    )
    assert first == repeated and first.random_edges.tolist() != second.random_edges.tolist()
    assert first.same_layer == 5 < all_edges.same_layer < len(all_edges.random_edges)
    layers = all_edges.random_edges[:, 0].tolist()
    assert layers == sorted(layers)  # the edge is in the first layer
    assert edge not in map(tuple, all_edges.random_edges.tolist())
    last = all_edges.random_edges[all_edges.random_edges[:, 0] == 1]
    assert set(last[:, 1]) <= set(target.rows)
    lone_knockout = knock_out_graph_edge(tiny, graph, target, *edge, random_edges=0)
    assert (
        lone_knockout.effect == first.effect
        and lone_knockout.rank == 1
        and np.isnan(lone_knockout.percentile)
        and np.isnan(lone_knockout.band).all()
    )


def test_rank_and_band_are_those_of_the_absolute_effects(tiny: LoadedModel) -> None:  # noqa: F811
    """By hand: of the effects 0.1, -0.3, 0.2 and -0.2, one is larger than -0.2 and two are equal."""
    encoding = example(tiny)
    values = 1 + np.array([0.125, -0.375, 0.25, -0.25])
    knockout = EdgeKnockout(
        encoding, target_of("mlm", tiny, encoding), 0, 1, 2, None, 0.1, 1.0, 0.75, np.zeros((4, 3), int), values
    )
    assert (knockout.effect, knockout.rank, knockout.percentile, knockout.same_layer) == (-0.25, 2, 50.0, 4)
    assert_near(knockout.band, np.quantile(knockout.random_effects, (0.025, 0.975)))


def test_impossible_edges_heads_and_methods_are_refused(tiny: LoadedModel, tmp_path: Path) -> None:  # noqa: F811
    """One sentence each; an edge outside the window of a local layer carries no attention."""
    encoding = example(tiny)
    target, graph = target_of("mlm", tiny, encoding), contribution_graph(tiny, encoding)
    with pytest.raises(Refused, match="the method of a contribution graph is 'LIME': it must be one of ALTI"):
        contribution_graph(tiny, encoding, method="LIME")
    for edge, message in (((2, 0, 0), "the layer of an edge is 2"), ((0, 99, 0), "the query of an edge is 99")):
        with pytest.raises(Refused, match=message):
            knock_out_graph_edge(tiny, graph, target, *edge)
    with pytest.raises(Refused, match="head 9 does not exist"):
        knock_out_graph_edge(tiny, graph, target, 0, 1, 2, heads=[9])
    with pytest.raises(Refused, match="must be different"):
        knock_out_graph_edge(tiny, graph, target, 0, 1, 2, heads=[1, 1])
    local = bert_core.load(save_family("modernbert", tmp_path), device="cpu")
    text = local.tokenizer.encode("The old man [MASK] along the river with his dog.")
    layer = next(number for number, window in enumerate(local.config.windows) if window is not None)
    word = Target("mlm", text.mask_positions[0], 30)
    with pytest.raises(Refused, match="the heads carry no share of the edge"):
        knock_out_graph_edge(local, contribution_graph(local, text), word, layer, 0, len(text) - 1)
