"""bert_core/analysis/rotation.py, and the walk through a pre-norm model: each value follows from those before it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bert_core
from bert_core import LoadedModel
from bert_core.analysis.rotation import rotary_frequencies, rotate_by_position, scores_by_distance
from bert_core.analysis.walks import weighted_values
from bert_core.attention import RotaryPositions
from bert_core.refused import Refused
from bert_core.run.vectors import head_vectors
from bert_core.run.walk import walk
from tests.families import save_family
from tests.near import apart, assert_near

TEXT, PAIR = "The old man [MASK] along the river with his dog.", "Jeden Morgen bringt er Brot."
LOCAL, GLOBAL, LAST = 1, 0, 2  # of the three layers, the second and the third are local


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return bert_core.load(save_family("modernbert", tmp_path_factory.mktemp("rotary") / "words"), device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: LoadedModel) -> bert_core.Encoding:
    return loaded.tokenizer.encode(TEXT, PAIR)


def normed(norm: torch.nn.Module, states: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(norm(torch.tensor(states)))


@pytest.mark.parametrize("gates", [None, np.array([[1, 0.5, 0, 1]] * 3)])
@pytest.mark.parametrize("pads", [0, 3])
@pytest.mark.parametrize("layer", [GLOBAL, LOCAL, LAST])
def test_every_value_follows_from_those_before(
    layer: int, pads: int, gates: np.ndarray | None, loaded: LoadedModel, encoding: bert_core.Encoding
) -> None:
    """From the norm before attention to the state after the layer, by the weights of the model and by definition."""
    seen = walk(loaded, encoding, layer, pads=pads, head_mask=gates)
    of, block = seen.layer_value, loaded.model.bert.encoder.layer[layer]
    attention, length, size = block.attention.self, len(encoding) + pads, 8
    weight = {name: array.detach().numpy() for name, array in block.named_parameters()}
    assert_near(seen.values["embeddings.word"], seen.values["embeddings.sum"])
    assert not {"embeddings.position", "embeddings.token_type", f"layer.{layer}.attention_normed"} & set(seen.values)
    attention_input = seen.layer_input
    if layer:
        assert_near(of("attention_input"), normed(block.attention.input_norm, seen.layer_input))
        attention_input = of("attention_input")
    else:
        assert "layer.0.attention_input" not in seen.values
    for name in ("query", "key", "value"):
        vectors = attention_input @ weight[f"attention.self.{name}.weight"].T
        assert_near(of(name), vectors.reshape(length, 4, size).swapaxes(0, 1))
    base = attention.query_rotation.base
    assert base == (160_000 if layer == GLOBAL else 10_000)
    for name in ("query", "key"):
        assert_near(of(f"rotated_{name}"), rotate_by_position(of(name), np.arange(length), base))
    assert apart(of("rotated_query"), of("query")) > 0.1
    assert_near(of("scores"), of("rotated_query") @ of("rotated_key").swapaxes(1, 2) / np.sqrt(size))
    distances = abs(np.arange(length)[:, None] - np.arange(length))
    expected_mask = np.where((distances > 4) & (layer != GLOBAL), -np.inf, 0) - 1e4 * (
        np.arange(length) >= length - pads
    )
    assert np.array_equal(of("mask"), expected_mask)
    assert_near(np.exp(of("masked_scores")), np.exp(of("scores") + of("mask")))
    assert_near(of("probabilities"), torch.tensor(of("scores") + of("mask")).softmax(-1).numpy())
    factors = np.ones(4) if gates is None else gates[layer]
    assert_near(of("context"), of("probabilities") @ of("value") * factors[:, None, None])
    assert_near(weighted_values(seen, head=3, query=4).sum(0), of("context")[3, 4])
    merged = of("context").swapaxes(0, 1).reshape(length, -1)
    assert_near(of("attention_output"), merged @ weight["attention.output.dense.weight"].T)
    assert_near(of("attention_sum"), of("attention_output") + seen.layer_input)
    assert_near(of("intermediate_input"), normed(block.intermediate.input_norm, of("attention_sum")))
    assert_near(of("intermediate_dense"), of("intermediate_input") @ weight["intermediate.dense.weight"].T)
    assert_near(of("intermediate_activated"), F.gelu(torch.tensor(of("intermediate_dense"))))
    assert_near(of("intermediate_gate"), of("intermediate_input") @ weight["intermediate.gate.weight"].T)
    assert_near(of("intermediate"), of("intermediate_activated") * of("intermediate_gate"))
    assert_near(of("output_dense"), of("intermediate") @ weight["output.dense.weight"].T)
    output_sum = of("output_dense") + of("attention_sum")
    if layer == LAST:
        assert_near(of("output_sum"), output_sum)
        output_sum = normed(block.output.LayerNorm, of("output_sum"))
    else:
        assert f"layer.{layer}.output_sum" not in seen.values
    assert_near(of("output"), output_sum)
    assert_near(of("output"), seen.values["hidden_states"][layer + 1])


def test_the_last_values_are_the_output_of_the_model(loaded: LoadedModel, encoding: bert_core.Encoding) -> None:
    (position,) = encoding.mask_positions
    seen = walk(loaded, encoding, LAST, position=position)
    with torch.no_grad():
        outputs = loaded.model.bert(torch.tensor([encoding.input_ids]), output_hidden_states=True)
        logits = loaded.model.cls.predictions(outputs.last_hidden_state)[0, position]
    assert_near(seen.layer_value("output"), outputs.last_hidden_state[0])
    assert_near(seen.values["hidden_states"], torch.stack(outputs.hidden_states)[:, 0])
    assert_near(seen.values["final.sum"], seen.layer_value("output_sum"))
    assert_near(walk(loaded, encoding, GLOBAL).values["final.normed"], outputs.last_hidden_state[0])
    assert_near(seen.values["mlm_logits"], logits)
    assert "pooler" not in seen.values


def test_the_order_of_the_values_is_that_of_the_computation(loaded: LoadedModel, encoding: bert_core.Encoding) -> None:
    """Norms stand before the parts that read them."""
    names = [name.removeprefix("layer.2.") for name in walk(loaded, encoding, LAST).values if name.startswith("layer.")]
    assert names == [
        "attention_input", "query", "key", "value", "rotated_query", "rotated_key", "scores", "mask", "masked_scores",
        "probabilities", "context", "attention_output", "attention_sum", "intermediate_input", "intermediate_dense",
        "intermediate_activated", "intermediate_gate", "intermediate", "output_dense", "output_sum", "output",
    ]  # fmt: skip


def test_every_layer_of_a_pre_norm_model_is_told(loaded: LoadedModel, encoding: bert_core.Encoding) -> None:
    told: list[str] = []
    walk(loaded, encoding, 1, report=lambda done, what="": told.append(what))
    assert told == ["1 of 3 layers", "2 of 3 layers", "3 of 3 layers"]


def test_pruned_parts_are_nan_in_both_inputs(loaded: LoadedModel, encoding: bert_core.Encoding) -> None:
    smaller = bert_core.pruned(loaded, [(1, 2)], neurons=[(1, 7)])
    seen = walk(smaller, encoding, LOCAL)
    for name in ("query", "rotated_query", "rotated_key", "scores", "context"):
        assert np.isnan(seen.layer_value(name)[2]).all() and np.isfinite(seen.layer_value(name)[3]).all(), name
    for name in ("intermediate_dense", "intermediate_activated", "intermediate_gate", "intermediate"):
        assert np.isnan(seen.layer_value(name)[:, 7]).all() and np.isfinite(seen.layer_value(name)[:, 8]).all(), name


@pytest.mark.parametrize("base", [20.0, 10_000.0])
def test_vectors_are_rotated_as_the_model_rotates_them(base: float) -> None:
    vectors = np.random.default_rng(0).normal(size=(70, 16)).astype(np.float32)
    module = RotaryPositions(base, 16, 100)
    assert_near(rotate_by_position(vectors, np.arange(70), base), module(torch.tensor(vectors)[None])[0])
    assert_near(rotate_by_position(rotate_by_position(vectors, np.arange(70), base), -np.arange(70), base), vectors)
    # The pair (2, 10) alone, by complex numbers: its angle is position times frequency.
    pair = vectors[:, 2] + 1j * vectors[:, 10]
    turned = pair * np.exp(1j * np.arange(70) * rotary_frequencies(16, base)[2])
    rotated = rotate_by_position(vectors, np.arange(70), base)
    assert_near(rotated[:, [2, 10]], np.stack([turned.real, turned.imag], -1))


def test_the_score_by_distance_is_that_of_rotated_vectors() -> None:
    """At any two positions with this distance, by direct rotation of both vectors."""
    query, key = np.random.default_rng(1).normal(size=(2, 8))
    distances = np.arange(-60, 61)
    found = scores_by_distance(query, key, 50.0, distances)
    for start in (60, 500):
        rotated_query = rotate_by_position(query[None], np.array([start]), 50.0)[0]
        rotated_keys = rotate_by_position(np.tile(key, (121, 1)), start + distances, 50.0)
        assert_near(found, rotated_keys @ rotated_query / np.sqrt(8), 1e-9)
    assert_near(found[60], query @ key / np.sqrt(8), 1e-12)
    assert apart(found, found[::-1]) > 0.1, "the sign of the distance does not count: it would go unnoticed"


@pytest.mark.parametrize("layer", [GLOBAL, LOCAL])
def test_the_score_at_the_true_distance_is_that_of_the_model(
    layer: int, loaded: LoadedModel, encoding: bert_core.Encoding
) -> None:
    vectors, seen = head_vectors(loaded, encoding, layer, 3), walk(loaded, encoding, layer)
    assert vectors.rotary_base is not None and vectors.window == (None if layer == GLOBAL else 4)
    assert_near(vectors.queries, seen.layer_value("rotated_query")[3])
    queries, keys = (seen.layer_value(name)[3] for name in ("query", "key"))
    places, scores = np.arange(len(encoding)), seen.layer_value("scores")[3]
    for query in (0, 5, len(encoding) - 1):
        for key in (0, 3, len(encoding) - 1):
            found = scores_by_distance(queries[query], keys[key], vectors.rotary_base, places - query)
            assert_near(found[key], scores[query, key], of=float(abs(scores).max()))


def test_a_rotation_that_cannot_be_is_refused() -> None:
    with pytest.raises(Refused, match="head_size is 0"):
        rotary_frequencies(0, 10.0)
    for size, base in ((7, 10.0), (8, 0.0), (8, -1.0)):
        with pytest.raises(Refused, match="an even size and a positive base"):
            rotary_frequencies(size, base)
    with pytest.raises(Refused, match="key"):
        scores_by_distance(np.ones(4), np.ones(6), 10.0, np.arange(3))
