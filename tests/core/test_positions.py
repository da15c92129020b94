"""bert_core/positions.py: the schemes by hand, in both libraries, and the buckets of transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from bert_core import BertConfig, BertModel, BertSelfAttention
from bert_core.positions import POSITION_SCHEMES, DistanceScores, RelativeBias
from bert_core.refused import Refused
from tests.near import assert_near

LONGEST, HEADS, SIZE = 60, 3, 4
KINDS = [name for name, scheme in POSITION_SCHEMES.items() if scheme.distances is not None]


def scheme_of(kind: str) -> DistanceScores:
    scheme = POSITION_SCHEMES[kind].distances
    assert scheme is not None
    return scheme


def drawn(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries and keys (batch, head, seq, size), and a table."""
    rng = np.random.default_rng(3)
    query, key = rng.normal(size=(2, 2, HEADS, LONGEST, SIZE))
    return query, key, rng.normal(size=scheme_of(kind).table_shape(LONGEST, HEADS, SIZE))


def by_hand(kind: str, query: np.ndarray, key: np.ndarray, table: np.ndarray) -> np.ndarray:
    """What distances add, score by score."""
    scores = np.empty((*query.shape[:3], key.shape[2]))
    for batch, head, i, j in np.ndindex(*scores.shape):
        if kind == "relative_bias":
            far = abs(i - j)
            bucket = far if far < 8 else min(15, 8 + math.floor(2 * math.log2(far / 8) + 1e-9))
            scores[batch, head, i, j] = table[bucket + 16 * (j > i), head]
        else:
            vector = table[i - j + LONGEST - 1]
            scores[batch, head, i, j] = query[batch, head, i] @ vector
            if kind == "relative_key_query":
                scores[batch, head, i, j] += key[batch, head, j] @ vector
    return scores


@pytest.mark.parametrize("kind", KINDS)
def test_both_libraries_add_what_the_formula_says(kind: str) -> None:
    """Every score of every head, in NumPy and in PyTorch, equals the formula computed score by score."""
    scheme, (query, key, table) = scheme_of(kind), drawn(kind)
    places = np.arange(LONGEST)
    distances = places[:, None] - places
    expected = by_hand(kind, query, key, table)
    vectors = np.broadcast_to(table[scheme.rows(distances, LONGEST)], (2, LONGEST, LONGEST, table.shape[1]))
    assert_near(scheme.scores(query, key, vectors, range(HEADS), np.einsum), expected, 1e-12)
    rows = scheme.rows(torch.from_numpy(distances), LONGEST)
    looked_up = torch.from_numpy(table)[rows].expand(2, -1, -1, -1)
    found = scheme.scores(torch.from_numpy(query), torch.from_numpy(key), looked_up, range(HEADS), torch.einsum)
    assert_near(found, expected, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("some", [(0, 2), (1,)])
def test_heads_are_called_by_their_numbers(kind: str, some: tuple[int, ...]) -> None:
    """After pruning, and where each row of a batch has a head of its own, each head gets what it got among all."""
    scheme, (query, key, table) = scheme_of(kind), drawn(kind)
    places = np.arange(LONGEST)
    rows = scheme.rows(places[:, None] - places, LONGEST)
    expected = by_hand(kind, query, key, table)
    for library, einsum in ((np.asarray, np.einsum), (torch.from_numpy, torch.einsum)):
        own, other = library(query[:, some]), library(key[:, some])
        vectors = library(np.array([table[rows]] * 2))
        assert_near(scheme.scores(own, other, vectors, some, einsum), expected[:, some], 1e-12)
        each = [[some[0]], [some[-1]]]
        taken = [expected[row, head] for row, head in enumerate(each)]
        own, other = (library(np.stack([part[row, head] for row, head in enumerate(each)])) for part in (query, key))
        assert_near(scheme.scores(own, other, vectors, each, einsum), np.stack(taken), 1e-12)


def test_the_buckets_are_those_of_transformers() -> None:
    """For every distance up to 1,000 in both directions, also at the boundaries of the logarithmic buckets."""
    distances = torch.arange(-1000, 1001)
    expected = MPNetEncoder.relative_position_bucket(-distances)  # there it is the key's position minus the query's
    assert torch.equal(RelativeBias().rows(distances, 512), expected)
    assert np.array_equal(RelativeBias().rows(distances.numpy(), 512), expected.numpy())
    assert set(expected.tolist()) == set(range(32)) - {16}, "distance 0 is not behind the query"


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_adds_what_its_scheme_says(kind: str) -> None:
    """The scores of attention are products over the root, and the distances' part, divided or not, for queries that
    follow a cache and for chosen ones too.
    """
    scheme = scheme_of(kind)
    config = BertConfig(
        hidden_size=HEADS * SIZE, num_attention_heads=HEADS, max_position_embeddings=LONGEST,
        position_embedding_type=kind,
    )  # fmt: skip
    torch.manual_seed(0)
    attention = BertSelfAttention(config).double()
    query, key, table = (torch.from_numpy(part) for part in drawn(kind))
    attention.get_submodule(scheme.table).weight.data.copy_(table)
    expected = torch.from_numpy(by_hand(kind, query.numpy(), key.numpy(), table.numpy()))
    expected = expected / math.sqrt(SIZE) if scheme.scaled else expected
    heads = attention.heads
    with torch.no_grad():
        assert_near(attention.position_scores(query, key, LONGEST, None, heads), expected, 1e-12)
        assert_near(attention.position_scores(query[:, :, 50:], key, 10, None, heads), expected[:, :, 50:], 1e-12)
        chosen = torch.tensor([[5, 0, 59], [7, 7, 1]])
        rows = torch.arange(2)[:, None], slice(None), chosen
        found = attention.position_scores(query[rows].transpose(1, 2), key, LONGEST, chosen, heads)
        assert_near(found, expected[rows].transpose(1, 2), 1e-12)
    with pytest.raises(Refused, match="the sequence has 61 tokens: this model takes at most 60"):
        attention.position_scores(query, torch.zeros(2, HEADS, 61, SIZE).double(), LONGEST, None, heads)


def test_a_model_without_distances_has_none(tiny_config: BertConfig) -> None:
    """Absolute positions have no table in any layer, and asking for what distances add is an error."""
    model = BertModel(tiny_config)
    attention = model.attention_modules[0]
    assert attention.distances is None and not any("attention.self.d" in name for name in model.state_dict())
    with pytest.raises(AttributeError, match="has no relative positions"):
        attention.position_scores(torch.zeros(1), torch.zeros(1), 1, None, (0,))


def test_one_table_serves_all_layers(tiny_config: BertConfig) -> None:
    """A bias is one parameter of the whole model, also where the first layer was taken out."""
    for gone in ((), (0,)):
        config = tiny_config.replace(num_hidden_layers=3, position_embedding_type="relative_bias", pruned_layers=gone)
        model = BertModel(config)
        tables = [name for name, _ in model.named_parameters() if "relative_attention_bias" in name]
        assert tables == [f"encoder.layer.{len(gone)}.attention.self.relative_attention_bias.weight"]
        names = [name for name in model.state_dict() if "relative_attention_bias" in name]
        assert len(names) == 3 - len(gone)
