"""bert_core/analysis/flow.py: rollout and flow, against hand-worked maps and networkx."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

from bert_core.analysis import flow
from bert_core.analysis.flow import attention_flow, attention_rollout, layer_mixing, product_of_layers
from tests.near import assert_near


def some_attention(layers: int, length: int, seed: int = 0, peak: float = 2.0) -> np.ndarray:
    """(layer, 3 heads, query, key), rows sum to 1; the larger the peak, the nearer each row is to one key."""
    scores = peak * np.random.default_rng(seed).normal(size=(layers, 3, length, length))
    weights = np.exp(scores)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def flow_by_networkx(attention: np.ndarray) -> np.ndarray:
    """Maximum flow between every pair, in the graph drawn pipe by pipe."""
    mixing = layer_mixing(attention)
    graph = networkx.DiGraph()
    for (layer, query, key), capacity in np.ndenumerate(mixing):
        graph.add_edge((layer + 1, query), (layer, key), capacity=capacity)
    layers, length, _ = mixing.shape
    pairs = np.ndindex(length, length)
    flows = [networkx.maximum_flow_value(graph, (layers, query), (0, key)) for query, key in pairs]
    return np.reshape(flows, (length, length))


def test_rollout_of_two_tokens_worked_by_hand() -> None:
    """Two layers, one head: half attention, half residual, multiplied from the top."""
    attention = np.array([[[[0.5, 0.5], [0, 1]]], [[[1, 0], [0.5, 0.5]]]], np.float32)
    first, second = np.array([[0.75, 0.25], [0, 1]]), np.array([[1, 0], [0.25, 0.75]])
    np.testing.assert_allclose(attention_rollout(attention), [first, second @ first])


def test_rows_of_the_rollout_sum_to_one() -> None:
    """After every layer, and the first layer is its own mixing."""
    attention = some_attention(5, 7)
    rollout = attention_rollout(attention)
    np.testing.assert_allclose(rollout.sum(-1), 1)
    np.testing.assert_allclose(rollout[0], layer_mixing(attention)[0])
    np.testing.assert_allclose(rollout[-1], np.linalg.multi_dot(layer_mixing(attention)[::-1]))


def test_a_head_that_attends_to_itself_alone_mixes_nothing() -> None:
    """Identity in, identity out, for rollout and for flow."""
    attention = np.broadcast_to(np.eye(4), (3, 2, 4, 4))
    np.testing.assert_allclose(attention_rollout(attention)[-1], np.eye(4))
    np.testing.assert_allclose(attention_flow(attention), np.eye(4))
    np.testing.assert_allclose(product_of_layers(attention[:, 0])[-1], np.eye(4))


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("peak", [0.5, 6.0])
def test_flow_is_that_of_networkx(layers: int, peak: float) -> None:
    """Between every pair of six positions, in flat maps and in peaked ones."""
    attention = some_attention(layers, 6, seed=layers, peak=peak)
    expected = flow_by_networkx(attention)
    found = attention_flow(attention, normalise=False)
    assert_near(found, expected, 1e-7)
    assert_near(attention_flow(attention), expected / expected.sum(-1, keepdims=True), 1e-7)


@pytest.mark.parametrize(("widest", "at_once"), [(1, 1), (2, 700), (4, 10**6), (50, 700)])
def test_flow_is_the_same_however_it_is_solved(widest: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through few of the pipes first or all at once, one graph to a call or many: networkx's largest flow."""
    monkeypatch.setattr(flow, "_MIN_EDGES", widest)
    monkeypatch.setattr(flow, "_EDGES_PER_CALL", at_once)
    for layers, peak in ((2, 4.0), (3, 4.0), (6, 1.0)):
        attention = some_attention(layers, 9, peak=peak)
        expected = flow_by_networkx(attention)
        assert_near(attention_flow(attention, normalise=False), expected, 1e-7)


def test_flow_through_closed_pipes() -> None:
    """Keys with no attention at all, as behind a mask, are pipes of width nothing."""
    attention = some_attention(3, 6)
    attention[..., 4:] = 0
    attention /= attention.sum(-1, keepdims=True)
    assert_near(attention_flow(attention, normalise=False), flow_by_networkx(attention), 1e-7)


def test_a_flow_is_at_most_its_cuts() -> None:
    """Never above 1, never above what enters the input position, never below the rollout; rows sum to 1."""
    attention = some_attention(4, 8)
    found = attention_flow(attention, normalise=False)
    enters = layer_mixing(attention)[0].sum(0)
    assert (found <= np.minimum(1, enters) + 1e-7).all()
    assert (found >= attention_rollout(attention)[-1] - 1e-7).all()
    np.testing.assert_allclose(attention_flow(attention).sum(-1), 1)


def test_one_row_of_the_flow_is_that_row() -> None:
    """Asking for some positions gives their rows, in the order asked for."""
    attention = some_attention(3, 5)
    np.testing.assert_array_equal(attention_flow(attention, [3, 0]), attention_flow(attention)[[3, 0]])


def test_maps_that_are_no_probabilities_are_refused() -> None:
    """A head that is off, a map that is not square, and a position that is not there, each in one sentence."""
    attention = some_attention(2, 4)
    with pytest.raises(ValueError, match=r"^position 4 does not exist: the positions are 0 to 3$"):
        attention_flow(attention, [4])
    with pytest.raises(
        ValueError, match=r"^attention is \(2, 3, 4, 3\): it must be \(layer, head, seq, seq\), each seq of one size$"
    ):
        attention_rollout(attention[..., :3])
    attention[1, 2] = 0
    with pytest.raises(ValueError, match=r"^a row of attention sums to 0: every row must sum to 1$"):
        attention_rollout(attention)
