"""bert_core/positions.py: the schemes by hand, in both libraries, and the buckets of transformers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from bert_core import BertConfig, BertModel, BertSelfAttention
from bert_core.positions import (
    POSITION_SCHEMES,
    Disentangled,
    DistanceScores,
    Heads,
    RelativeBias,
    select_heads,
    used_rows,
)
from bert_core.refused import Refused
from tests.near import assert_near

LONGEST, HEADS, SIZE = 60, 3, 4
UNPROJECTED = ["relative_key", "relative_key_query", "relative_bias"]
assert {name for name, scheme in POSITION_SCHEMES.items() if scheme.distances} == {*UNPROJECTED, "disentangled"}


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


def terms_of(
    kind: str, query: np.ndarray, key: np.ndarray, table: np.ndarray, heads: Heads, library: Any, available: int = HEADS
) -> Any:
    """The terms of a scheme that projects no rows, by name, in NumPy or in PyTorch."""
    scheme, places = scheme_of(kind), np.arange(LONGEST)
    rows, row_of_distance = used_rows(scheme, LONGEST, LONGEST)
    index = row_of_distance[places[:, None] - places + LONGEST - 1][None, None]
    used = library(table[rows])
    of_heads = select_heads(used.T[:, None], range(available), heads) if kind == "relative_bias" else used[None, None]
    take = np.take_along_axis if library is np.asarray else torch.take_along_dim
    return scheme.terms(library(query), library(key), [of_heads] * len(scheme.addends), library(index), take)


@pytest.mark.parametrize("kind", UNPROJECTED)
def test_both_libraries_add_what_the_formula_says(kind: str) -> None:
    """Every score of every head, in NumPy and in PyTorch, equals the formula computed score by score."""
    query, key, table = drawn(kind)
    expected = by_hand(kind, query, key, table)
    for library in (np.asarray, torch.from_numpy):
        terms = terms_of(kind, query, key, table, range(HEADS), library)
        assert_near(sum(terms.values()) + 0 * library(expected), expected, 1e-12)


@pytest.mark.parametrize("kind", UNPROJECTED)
@pytest.mark.parametrize("some", [(0, 2), (1,)])
def test_heads_are_called_by_their_numbers(kind: str, some: tuple[int, ...]) -> None:
    """After pruning, and where each row of a batch has a head of its own, each head gets what it got among all."""
    query, key, table = drawn(kind)
    expected = by_hand(kind, query, key, table)
    for library in (np.asarray, torch.from_numpy):
        found = sum(terms_of(kind, query[:, some], key[:, some], table, some, library).values())
        assert_near(found + 0 * library(expected[:, some]), expected[:, some], 1e-12)
        each = [[some[0]], [some[-1]]]
        taken = np.stack([expected[row, head] for row, head in enumerate(each)])
        own, other = (np.stack([part[row, head] for row, head in enumerate(each)]) for part in (query, key))
        assert_near(sum(terms_of(kind, own, other, table, each, library).values()), taken, 1e-12)


def test_the_buckets_of_a_bias_are_those_of_transformers() -> None:
    """For every distance up to 1,000 in both directions, also at the boundaries of the logarithmic buckets."""
    distances = torch.arange(-1000, 1001)
    expected = MPNetEncoder.relative_position_bucket(-distances)  # there it is the key's position minus the query's
    assert np.array_equal(RelativeBias().rows(distances.numpy(), 512), expected.numpy())
    assert set(expected.tolist()) == set(range(32)) - {16}, "distance 0 is not behind the query"


# Buckets, maximum distance plus 1, maximum length: those of DeBERTa-v3, and others.
BUCKETS = [(256, 512, 512), (256, 0, 512), (32, 128, 512), (8, 0, 40), (256, 512, 24), (0, 0, 512), (0, 20, 60)]


@pytest.mark.parametrize(("buckets", "furthest", "longest"), BUCKETS)
def test_the_logarithmic_buckets_are_those_of_transformers(buckets: int, furthest: int, longest: int) -> None:
    """Every distance has the row that transformers gathers, near and far, and those of one sign have one half."""
    sequence = torch.zeros(1, longest, 1)
    span = buckets or furthest or longest
    found = build_relative_position(sequence, sequence, buckets or -1, furthest or longest)[0]
    expected = (found + span).clamp(0, 2 * span - 1).numpy()
    scheme, places = Disentangled(buckets, furthest), np.arange(longest)
    rows = scheme.rows(places[:, None] - places, longest)
    assert np.array_equal(rows, expected)
    assert scheme.table_shape(longest, 3, 4) == (2 * span, 12) and (rows[np.triu_indices(longest, 1)] < span).all()
    if longest == 512 and buckets == 256:
        assert rows[511, 0] == 511 and len(set(rows[300:, 0])) < 130, "far distances share rows"


SETTINGS = {"position_buckets": 256, "max_relative_positions": -1, "pos_att_type": "p2c|c2p", "share_att_key": True,
            "norm_rel_ebd": "layer_norm"}  # fmt: skip


def test_settings_of_files_are_read() -> None:
    """As published, as lists, and without a term; the number under the root counts the terms."""
    assert Disentangled().configured(SETTINGS) == Disentangled()
    one = Disentangled().configured({"pos_att_type": ["c2p"], "share_att_key": False, "norm_rel_ebd": "none"})
    assert one.root_terms == 2 and one.own_projections == ("pos_key_proj",) and one.norm is None
    assert Disentangled().root_terms == 3 and not Disentangled().own_projections


@pytest.mark.parametrize(
    ("name", "value"),
    [("position_buckets", 7), ("position_buckets", 2), ("position_buckets", "256"), ("max_relative_positions", 2**30),
     ("pos_att_type", "p2p"), ("pos_att_type", None), ("pos_att_type", []), ("pos_att_type", 3),
     ("share_att_key", "yes"), ("norm_rel_ebd", "rms"), ("norm_rel_ebd", None)],
)  # fmt: skip
def test_settings_that_are_not_supported_are_one_sentence(name: str, value: object) -> None:
    """Each is refused with its name."""
    with pytest.raises(Refused, match=rf"^{name} is [^\n]*$"):
        BertConfig(position_embedding_type="disentangled", extra={**SETTINGS, name: value})


@pytest.mark.parametrize("kind", UNPROJECTED)
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
        zeros = torch.zeros_like(expected)  # a bias is the same for all texts, and has one row for the batch
        assert_near(attention.position_scores(query, key, LONGEST, None, heads) + zeros, expected, 1e-12)
        last = attention.position_scores(query[:, :, 50:], key, 10, None, heads)
        assert_near(last + zeros[:, :, 50:], expected[:, :, 50:], 1e-12)
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
