"""A model that has lost neurons or whole layers: the outputs of the old one without them, everywhere, and in files."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import bert_core
from bert_core import (
    BertConfig,
    BertForPreTraining,
    BertModel,
    CheckpointError,
    LoadedModel,
    Refused,
    ScaledNeuron,
    Target,
)
from bert_core.analysis.walks import differences
from bert_core.methods import METHODS
from bert_core.pruning import prune_parts
from bert_core.run.losses import ExampleBatch, masked_examples
from bert_core.tokenizer import Encoding
from tests.near import assert_near

# Some of one layer and all of the other; every third of both.
NEURONS = {
    "a layer without any": [*((0, n) for n in (0, 1, 2, 40, 63)), *((1, n) for n in range(64))],
    "every third": [(layer, n) for layer in (0, 1) for n in range(0, 64, 3)],
}
LAYERS = {"the first": [0], "the last": [1], "the middle": [1], "two of four": [0, 2], "all": [0, 1, 2, 3]}


@pytest.fixture(scope="module")
def encoding(tiny_loaded: LoadedModel) -> Encoding:
    return tiny_loaded.tokenizer.encode("the [MASK] sat on the mat", "it was red")


@pytest.fixture(params=NEURONS.values(), ids=NEURONS.keys())
def neurons(request: pytest.FixtureRequest) -> list[tuple[int, int]]:
    chosen: list[tuple[int, int]] = request.param
    return chosen


@pytest.fixture(scope="module")
def four_layers(tiny_loaded: LoadedModel) -> LoadedModel:
    """A model of four layers with the tiny one's words."""
    torch.manual_seed(3)
    model = BertForPreTraining(tiny_loaded.config.replace(num_hidden_layers=4)).eval().requires_grad_(False)
    return replace(tiny_loaded, model=model)


@pytest.fixture(params=LAYERS.values(), ids=LAYERS.keys())
def layers(request: pytest.FixtureRequest) -> list[int]:
    chosen: list[int] = request.param
    return chosen


def target_of(loaded: LoadedModel, encoding: Encoding) -> Target:
    return Target("mlm", encoding.mask_positions[0], loaded.tokenizer.id_of("cat"))


def silenced(loaded: LoadedModel, neurons: list[tuple[int, int]]) -> LoadedModel:
    """The whole model with these neurons off."""
    return bert_core.edited(loaded, [ScaledNeuron(layer, neuron, 0) for layer, neuron in neurons])


def theirs_without(loaded: LoadedModel, layers: list[int]) -> transformers.BertForPreTraining:
    """The model of transformers with the same weights, and some layers taken out of its list."""
    config = transformers.BertConfig(**{k: v for k, v in loaded.config.to_dict().items() if "pruned" not in k})
    model = transformers.BertForPreTraining(config).eval()
    model.load_state_dict(loaded.model.state_dict(), strict=False)
    model.bert.encoder.layer = nn.ModuleList(
        layer for number, layer in enumerate(model.bert.encoder.layer) if number not in layers
    )
    return model


def with_padding(seed: int = 0) -> dict[str, torch.Tensor]:
    """Three texts of 11 tokens, one of them padded, with segments."""
    ids = torch.from_numpy(np.random.default_rng(seed).integers(5, 90, (3, 11)))
    mask = torch.ones(3, 11)
    mask[1, 7:] = 0
    return {
        "input_ids": ids, "attention_mask": mask, "token_type_ids": (torch.arange(11) > 5).long().expand(3, -1),
    }  # fmt: skip


# ---------------------------------------------------------------------------- the same outputs


@pytest.mark.parametrize("act", ["gelu", "relu", "tanh"])
def test_without_neurons_it_is_the_model_with_these_at_zero(
    tiny_loaded: LoadedModel, neurons: list[tuple[int, int]], act: str
) -> None:
    """Over pairs and padding, chunked or whole: the outputs are those of the old model with the neurons scaled to 0."""
    torch.manual_seed(0)
    model = BertForPreTraining(tiny_loaded.config.replace(hidden_act=act)).eval().requires_grad_(False)
    loaded = replace(tiny_loaded, model=model)
    expected = silenced(loaded, neurons).model(**with_padding())
    smaller = bert_core.pruned(loaded, neurons=neurons)
    for one, other in zip(smaller.model(**with_padding()), expected, strict=True):
        assert_near(one, other)
    of_first = smaller.model.bert.encoder.layer[0]
    left = 64 - sum(layer == 0 for layer, _ in neurons)
    assert of_first.intermediate.dense.weight.shape == (left, 32) and of_first.output.dense.weight.shape == (32, left)
    assert loaded.model.bert.encoder.layer[0].intermediate.dense.weight.shape == (64, 32)
    for layer in smaller.model.bert.encoder.layer:
        layer.chunk_size_feed_forward = 4
    for one, other in zip(smaller.model(**with_padding()), expected, strict=True):
        assert_near(one, other)


@pytest.mark.parametrize("kind", ["absolute", "relative_key_query", "relative_bias", "disentangled"])
def test_without_layers_it_is_the_model_of_fewer(four_layers: LoadedModel, layers: list[int], kind: str) -> None:
    """A layer that was taken out passes on its states exactly, and the rest is the model that never had it."""
    model = four_layers.model
    if kind != "absolute":
        torch.manual_seed(4)
        model = BertForPreTraining(model.config.replace(position_embedding_type=kind)).eval()
    smaller = bert_core.pruned(model, layers=layers)
    fewer = copy.deepcopy(model)
    fewer.bert.encoder.layer = nn.ModuleList(one for n, one in enumerate(fewer.bert.encoder.layer) if n not in layers)
    with torch.no_grad():
        found = smaller(**with_padding(), output_hidden_states=True, output_attentions=True)
        for name in ("prediction_logits", "seq_relationship_logits"):
            assert_near(found[name], fewer(**with_padding())[name])
    for layer in layers:
        assert torch.equal(found.hidden_states[layer + 1], found.hidden_states[layer])
        assert found.attentions[layer].shape == (3, 0, 11, 11)
    left = sum(p.numel() for p in smaller.parameters())
    assert left == sum(p.numel() for p in fewer.parameters()) < sum(p.numel() for p in model.parameters())
    assert smaller.config.pruned_layers == tuple(layers) and smaller.config.num_hidden_layers == 4


def test_without_layers_it_is_theirs_without_them(four_layers: LoadedModel) -> None:
    """transformers with the layers taken out of its list finds the same, padding and pairs included."""
    for layers in LAYERS.values():
        with torch.no_grad():
            found = bert_core.pruned(four_layers, layers=layers).model(**with_padding())
            expected = theirs_without(four_layers, layers)(**with_padding())
        assert_near(found.prediction_logits, expected.prediction_logits)
        assert_near(found.seq_relationship_logits, expected.seq_relationship_logits)


def test_heads_neurons_and_layers_go_together(four_layers: LoadedModel, encoding: Encoding) -> None:
    """In one call or one after another, in any order, the same model is left; what is gone already is passed over."""
    heads, neurons, layers = [(0, 1), (2, 3)], [(0, 5), (2, 7), (3, 1)], [2]
    once = bert_core.pruned(four_layers, heads, neurons=neurons, layers=layers)
    later = bert_core.pruned(bert_core.pruned(four_layers, layers=layers), neurons=neurons)
    later = bert_core.pruned(later, heads)
    assert once.config == later.config
    assert dict(once.config.pruned_heads) == {0: (1,), 2: (0, 1, 2, 3)}
    assert dict(once.config.pruned_neurons) == {0: (5,), 2: tuple(range(64)), 3: (1,)}
    for one, other in zip(once.model(**with_padding()), later.model(**with_padding()), strict=True):
        assert torch.equal(one, other)
    for what, parts in (("heads", heads), ("neurons", neurons), ("layers", [(2,)])):
        four_layers = prune_parts(four_layers, what, parts)
    assert four_layers.config == once.config


def test_what_never_was_is_said(tiny_loaded: LoadedModel) -> None:
    """A neuron or layer that does not exist, or is no number, gets one sentence; and so does one that is edited."""
    smaller = bert_core.pruned(tiny_loaded, neurons=[(1, 3)], layers=[0])
    for given, sentence in (
        ({"neurons": [(0, 64)]}, "neuron 64 does not exist in layer 0: this model has neurons 0 to 63"),
        ({"neurons": [(2, 0)]}, "layer 2 does not exist: this model has layers 0 to 1"),
        ({"neurons": [3]}, "a neuron is 3: it must be a list of two numbers, (layer, neuron)"),
        ({"neurons": [(0, 1.5)]}, "the number of a neuron is 1.5: it must be a whole number"),
        ({"layers": [2]}, "layer 2 does not exist: this model has layers 0 to 1"),
        ({"layers": 1}, "layers is 1: it must be a list of whole numbers"),
        ({"layers": [True]}, "a layer is True: it must be a whole number"),
    ):
        with pytest.raises(Refused) as caught:
            bert_core.pruned(tiny_loaded, **given)
        assert str(caught.value) == sentence
    for edit, sentence in (
        (ScaledNeuron(1, 3, 2.0), "neuron 3 of layer 1 was pruned: this layer still has 63 of 64"),
        (ScaledNeuron(0, 5, 2.0), "neuron 5 of layer 0 was pruned: this layer still has 0 of 64"),
    ):
        with pytest.raises(Refused) as caught:
            bert_core.edited(smaller, [edit])
        assert str(caught.value) == sentence
    with pytest.raises(Refused, match="the model is edited"):
        bert_core.pruned(bert_core.edited(tiny_loaded, [ScaledNeuron(0, 0)]), layers=[0])


def test_a_layer_with_cross_attention_stays() -> None:
    """Its layers attend to another model's states too: that one goes is refused, that neurons go is not."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=16,
        is_decoder=True, add_cross_attention=True,
    )  # fmt: skip
    model = BertModel(config).eval()
    with pytest.raises(Refused, match="a layer with cross-attention cannot be removed"):
        bert_core.pruned(model, layers=[0])
    assert bert_core.pruned(model, neurons=[(1, 4)]).config.pruned_neurons == {1: (4,)}


def test_a_decoder_without_a_layer_keeps_its_cache() -> None:
    """Its keys and values go on as the whole sequence does, also where the first layer is gone."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=16, is_decoder=True
    )
    model = bert_core.pruned(bert_core.BertLMHeadModel(config).eval(), layers=[0], neurons=[(1, 2)])
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, 50, (2, 6)))
    past = model(ids[:, :4]).past_key_values
    assert_near(model(ids[:, 4:], past_key_values=past).logits, model(ids).logits[:, 4:])


# ---------------------------------------------------------------------------- questions to it


def test_a_run_without_layers_has_gaps_where_they_were(four_layers: LoadedModel, encoding: Encoding) -> None:
    """Maps, gradients and slopes are NaN in layers that are gone, and in the others those of the shorter model."""
    smaller, target = bert_core.pruned(four_layers, layers=[0, 2]), target_of(four_layers, encoding)
    short = bert_core.zero_filled(smaller)
    assert short.config.num_hidden_layers == 2
    run, expected = (bert_core.capture(one, encoding, target=target, norms=True) for one in (smaller, short))
    assert run.existing_heads.tolist() == [[False] * 4, [True] * 4, [False] * 4, [True] * 4]
    for name in ("attention", "gradient", "gate_gradient"):
        found = getattr(run, name)
        assert np.isnan(found[[0, 2]]).all()
        assert_near(found[[1, 3]], getattr(expected, name))
    assert run.norms is not None and expected.norms is not None
    assert_near(run.norms[[1, 3]], expected.norms)
    assert_near(run.nsp, expected.nsp)


def test_ablation_patching_and_slopes_of_a_smaller_model(four_layers: LoadedModel, encoding: Encoding) -> None:
    """Without a layer and some neurons, each head's effect and each state's are those of the shorter model, at once."""
    target = target_of(four_layers, encoding)
    smaller = bert_core.pruned(four_layers, layers=[1], neurons=[(0, 2), (3, 9)])
    short = bert_core.zero_filled(smaller)
    found, expected = (bert_core.ablate_heads(one, encoding, target=target).values for one in (smaller, short))
    assert found is not None and expected is not None and np.isnan(found[1]).all()
    assert_near(found[[0, 2, 3]], expected)
    source = four_layers.tokenizer.encode("the [MASK] ran in the house", "it was big")
    for what in ("state", "attention", "feed_forward", "head", "query"):
        for ask in (bert_core.patch, bert_core.estimate_patches):
            one, other = (ask(model, source, encoding, target, part_kind=what) for model in (smaller, short))
            kept = [0, 1, 3, 4] if what == "state" else [0, 2, 3]
            assert_near(one.values[kept], other.values)
    batch = masked_examples(smaller, encoding)[0]
    one, other = (bert_core.run.losses.batch_gate_gradients(ExampleBatch(model, batch)) for model in (smaller, short))
    assert_near(one[0], other[0])
    assert_near(one[1][:, [0, 2, 3]], other[1])


def test_patched_neurons_stand_at_their_numbers(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """What each neuron that is left does, exact and estimated, is what it does where the others are at zero."""
    gone = NEURONS["every third"]
    smaller, whole = bert_core.pruned(tiny_loaded, neurons=gone), silenced(tiny_loaded, gone)
    target = target_of(tiny_loaded, encoding)
    source = tiny_loaded.tokenizer.encode("the [MASK] ran in the house", "it was big")
    there = np.ones((2, 64), bool)
    there[tuple(np.transpose(gone))] = False
    for ask in (bert_core.patch, bert_core.estimate_patches):
        found, expected = (
            ask(one, source, encoding, target, part_kind="neuron", positions=[1]) for one in (smaller, whole)
        )
        assert np.isnan(found.values[:, 1][~there]).all()
        assert_near(found.values[:, 1][there], expected.values[:, 1][there])


def test_what_is_carried_over_finds_its_neuron(four_layers: LoadedModel, encoding: Encoding) -> None:
    """Put into a smaller model, a neuron, a state and what a layer that is gone adds do what they do by patching."""
    smaller = bert_core.pruned(four_layers, neurons=[(0, 2), (0, 7)], layers=[1, 3])
    source = four_layers.tokenizer.encode("the [MASK] ran in the house", "it was big")
    target = target_of(four_layers, encoding)
    for what, layer, more in (("neuron", 0, {"neuron": 9}), ("state", 2, {}), ("state", 4, {}), ("attention", 3, {})):
        put = bert_core.make_patch(smaller, source, encoding, what, layer, position=1, **more)
        value = bert_core.capture(bert_core.edited(smaller, [put]), encoding, target=target).target_value
        patched = bert_core.patch(smaller, source, encoding, target, part_kind=what, positions=[1]).values[layer, 1]
        assert_near(value, patched[9] if what == "neuron" else patched)
    for neuron in (2, 7):
        with pytest.raises(Refused, match=f"neuron {neuron} of layer 0 was pruned: this layer still has 62 of 64"):
            bert_core.make_patch(smaller, source, encoding, "neuron", 0, position=1, neuron=neuron)


@pytest.mark.parametrize("engine", ["torch", "numpy"])
def test_a_walk_keeps_every_neuron_at_its_number(
    tiny_loaded: LoadedModel, encoding: Encoding, neurons: list[tuple[int, int]], engine: str
) -> None:
    """Both engines: neurons stand at their numbers, NaN where they are gone, and all else is as with them at zero."""
    smaller, whole = bert_core.pruned(tiny_loaded, neurons=neurons), silenced(tiny_loaded, neurons)
    for layer in (0, 1):
        found, expected = (bert_core.walk(one, encoding, layer, engine=engine) for one in (smaller, whole))
        gone = [neuron for of_layer, neuron in neurons if of_layer == layer]
        there = sorted(set(range(64)) - set(gone))
        for name in ("intermediate_dense", "intermediate"):
            assert found.layer_value(name).shape == (len(encoding), 64)
            assert np.isnan(found.layer_value(name)[:, gone]).all()
            assert_near(found.layer_value(name)[:, there], expected.layer_value(name)[:, there])
        for name in ("output_dense", "output_sum", "output"):
            assert_near(
                found.layer_value(name), expected.layer_value(name), of=np.abs(expected.layer_value("output")).max()
            )
        assert_near(found.values["mlm_logits"], expected.values["mlm_logits"])
    scaled = bert_core.edited(smaller, [ScaledNeuron(0, 41, 3.0)])
    again = bert_core.edited(tiny_loaded, [ScaledNeuron(*one) for one in neurons] + [ScaledNeuron(0, 41, 3.0)])
    found, expected = (bert_core.walk(one, encoding, 0, engine=engine) for one in (scaled, again))
    assert_near(found.values["mlm_logits"], expected.values["mlm_logits"])


def test_both_engines_walk_past_a_layer_that_is_gone(four_layers: LoadedModel, encoding: Encoding) -> None:
    """PyTorch and NumPy agree at every value, states stand at their depth; a walk through what is gone is refused."""
    smaller = bert_core.pruned(four_layers, layers=[1, 3], neurons=[(0, 4)])
    one, other = (bert_core.walk(smaller, encoding, 2, engine=engine) for engine in ("torch", "numpy"))
    assert max(difference.share for difference in differences(one, other)) <= 1e-5
    states = one.values["hidden_states"]
    assert len(states) == 5
    assert np.array_equal(states[2], states[1]) and np.array_equal(states[4], states[3])
    with pytest.raises(Refused, match="layer 1 was removed: it computes nothing"):
        bert_core.walk(smaller, encoding, 1)


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_every_method_answers_on_a_smaller_model(four_layers: LoadedModel, encoding: Encoding, method: str) -> None:
    """Without a layer and without neurons each method says what it says of the shorter model with these at zero."""
    smaller = bert_core.pruned(four_layers, layers=[1], neurons=[(0, n) for n in range(64)] + [(2, 3)])
    short, target = bert_core.zero_filled(smaller), target_of(four_layers, encoding)
    found, expected = (bert_core.token_scores(one, encoding, target, [method])[0] for one in (smaller, short))
    assert np.isfinite(found).all()
    assert_near(found, expected, 1e-4)


@pytest.mark.parametrize("measure", ["attention_norms", "residual_norms", "globenc", "alti"])
def test_a_layer_that_is_gone_brings_nothing(four_layers: LoadedModel, encoding: Encoding, measure: str) -> None:
    """By every size of what is added, it leaves each position to itself, and the other layers are as they were."""
    smaller = bert_core.pruned(four_layers, layers=[2])
    measured = getattr(bert_core.run.decomposition, measure)
    found, short = (measured(one, encoding).maps for one in (smaller, bert_core.zero_filled(smaller)))
    off_diagonal = ~np.eye(len(encoding), dtype=bool)
    assert (found[2][off_diagonal] == 0).all()
    assert_near(found[[0, 1, 3]], short)


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["smaller", "smaller.zip"])
def test_saved_and_loaded_it_is_the_same_and_small(
    four_layers: LoadedModel, encoding: Encoding, tmp_path: Path, name: str
) -> None:
    """A folder or .zip gives equal outputs, numbers and sizes back; a thousand neurons in a row are one range in it."""
    neurons = [(1, n) for n in [*range(5, 60), 2]]
    first = bert_core.pruned(four_layers, [(3, 0)], neurons=neurons, layers=[2])
    second = bert_core.load(str(bert_core.save(first, tmp_path / name)))
    assert second.report.missing == () and second.report.unexpected == ()
    assert second.config == first.config.replace(extra={"model_type": "bert"})
    for one, other in zip(second.model(**with_padding()), first.model(**with_padding()), strict=True):
        assert torch.equal(one, other)
    assert sum(p.numel() for p in second.model.parameters()) == sum(p.numel() for p in first.model.parameters())
    if name == "smaller":
        written = json.loads((tmp_path / name / "config.json").read_text(encoding="utf-8"))
        assert written["pruned_neurons"] == {"1": [2, [5, 59]], "2": [[0, 63]]}
        assert written["pruned_layers"] == [2]
    third = bert_core.pruned(second, neurons=[(1, 0)], layers=[0])
    assert third.config.pruned_layers == (0, 2) and 0 in third.config.pruned_neurons[1]


def test_the_numpy_twin_reads_its_file(four_layers: LoadedModel, encoding: Encoding, tmp_path: Path) -> None:
    """bert_core.numpy_bert loads what was saved without layers and neurons, and gives the same scores."""
    smaller = bert_core.pruned(four_layers, layers=[1], neurons=[(0, n) for n in range(0, 64, 2)])
    twin = bert_core.numpy_bert.BertForPretraining.from_pretrained(bert_core.save(smaller, tmp_path / "smaller"))
    ids = np.array([encoding.input_ids])
    found = twin.forward(ids, token_type_ids=np.array([encoding.token_type_ids]))
    expected = smaller.model(torch.from_numpy(ids), token_type_ids=torch.tensor([encoding.token_type_ids]))
    assert_near(found["mlm_logits"], expected.prediction_logits)
    assert_near(found["nsp_logits"], expected.seq_relationship_logits)


def test_transformers_reads_the_filled_model(four_layers: LoadedModel, tmp_path: Path) -> None:
    """Zeros where heads and neurons were, and fewer layers: plain transformers finds the outputs of the smaller one."""
    smaller = bert_core.pruned(four_layers, [(0, 1)], neurons=[(0, 3), *((3, n) for n in range(64))], layers=[1, 2])
    filled = bert_core.zero_filled(smaller)
    assert not (filled.config.pruned_heads or filled.config.pruned_neurons or filled.config.pruned_layers)
    theirs = transformers.BertForPreTraining.from_pretrained(bert_core.save(filled, tmp_path / "full")).eval()
    with torch.no_grad():
        found, ours = theirs(**with_padding()), smaller.model(**with_padding())
    assert_near(found.prediction_logits, ours.prediction_logits)
    assert_near(found.seq_relationship_logits, ours.seq_relationship_logits)
    with pytest.raises(Refused, match="all layers are removed, and other programs need at least one layer"):
        bert_core.zero_filled(bert_core.pruned(four_layers, layers=range(4)))


def test_a_classifier_loses_the_same(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """Both models of a fine-tuned checkpoint stand on the same smaller encoder, also out of a file."""
    loaded = bert_core.load(str(tiny_classifier_folder))
    smaller = bert_core.pruned(loaded, neurons=[(0, 1)], layers=[1])
    assert smaller.task_models["classifier"].bert is smaller.model.bert
    assert smaller.task_models["classifier"].config.pruned_layers == (1,)
    again = bert_core.load(str(bert_core.save(smaller, tmp_path / "smaller")))
    encoding = loaded.tokenizer.encode("the cat sat")
    one, other = (bert_core.capture(model, encoding).classes for model in (smaller, again))
    assert one is not None and other is not None
    assert_near(one.logits, other.logits)


def test_it_learns_what_is_left(four_layers: LoadedModel) -> None:
    """A step of training changes every weight that is left, and brings back nothing of what is gone."""
    model = bert_core.pruned(four_layers.model, neurons=[(0, 3)], layers=[2]).requires_grad_(True).train()
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    outputs = model(**with_padding(), labels=with_padding()["input_ids"], next_sentence_label=torch.tensor([0, 1, 0]))
    outputs.loss.backward()
    optimizer.step()
    unchanged = [
        name for name, tensor in model.named_parameters() if tensor.numel() and torch.equal(tensor, before[name])
    ]
    assert unchanged == []
    assert model.config.pruned_layers == (2,) and model.bert.encoder.layer[2].removed
    model.bert.encoder.gradient_checkpointing = True
    model(**with_padding(), labels=with_padding()["input_ids"]).loss.backward()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"pruned_neurons": {}}, r"intermediate\.dense\.weight in .* \(62, 32\).* for layer 0 with all its neurons"),
        ({"pruned_neurons": {"0": [3]}}, r"requires \(63, 32\) for layer 0 without 1 of its neurons"),
        ({"pruned_neurons": {"0": [64]}}, "pruned_neurons: neuron 64 does not exist in layer 0: this model has neur"),
        ({"pruned_neurons": {"0": [[60, 10**12]]}}, "pruned_neurons is .* it gives some layers a list of neurons"),
        ({"pruned_neurons": {"0": [[0, 63]] * 9}}, "it gives some layers a list of neurons"),
        ({"pruned_neurons": {"0": [[9, 3]]}}, "it gives some layers a list of neurons"),
        ({"pruned_neurons": {"0": [[1, 2, 3]]}}, "it gives some layers a list of neurons"),
        ({"pruned_neurons": {"0": ["a"]}}, "it gives some layers a list of neurons"),
        ({"pruned_neurons": {"5": [1]}}, "pruned_neurons: layer 5 does not exist"),
        ({"pruned_neurons": [3]}, r"pruned_neurons is \[3\]"),
        ({"pruned_neurons": {"0": [-1]}}, "pruned_neurons: neuron -1 does not exist"),
        ({"pruned_layers": []}, r"is not a complete BERT: \d+ of \d+ weights are missing"),
        ({"pruned_layers": [0, 1]}, r"layer\.0\..* layer 0, which is removed \(pruned_layers\)"),
        ({"pruned_layers": [2]}, "pruned_layers: layer 2 does not exist: this model has layers 0 to 1"),
        ({"pruned_layers": [-1]}, "one of pruned_layers is -1: it must be a whole number of at least 0"),
        ({"pruned_layers": "1"}, "pruned_layers is '1': it must be a list of layers"),
        ({"pruned_layers": {"1": 1}}, "pruned_layers is .*: it must be a list of layers"),
        ({"pruned_layers": [1.5]}, "one of pruned_layers is 1.5"),
        ({"pruned_layers": None, "intermediate_size": 2**31 - 1, "pruned_neurons": {"0": [[0, 2**31 - 2]]}},
         "pruned_neurons and pruned_layers are 1 layers of 2,147,483,647 neurons: too many to count"),
        ({"intermediate_size": 2**31 - 1, "pruned_neurons": {}, "pruned_layers": [1]}, "too many to count"),
        ({"intermediate_size": 2**31 - 1, "pruned_neurons": {}, "pruned_layers": []}, "missing|but the configuration"),
    ],
)  # fmt: skip
def test_what_a_file_says_is_gone_is_held_against_its_weights(
    tiny_loaded: LoadedModel, tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    """A configuration that names other neurons or layers than the weights lack, or none, gets one clear sentence."""
    folder = bert_core.save(bert_core.pruned(tiny_loaded, neurons=[(0, 1), (0, 9)], layers=[1]), tmp_path / "right")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **values}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=sentence):
        bert_core.load(str(folder))
