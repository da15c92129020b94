"""ALBERT: layers that share weights, each with maps, gates and gradients of its own; two texts in order or swapped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import bert_core
from bert_core import BertConfig, BertForPreTraining, LoadedModel, Target
from bert_core.checkpoint import CheckpointError
from bert_core.numpy_bert import BertForPretraining
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture
from bert_core.run.walk import walk
from tests.families import save_family
from tests.near import assert_near

TOLERANCE = 1e-4
TEXT, PAIR = "The old man [MASK] along the river with his dog.", "He sat down in the sun."
SIZES = {"num_hidden_layers": 4}


@pytest.fixture(scope="module", params=[1, 2, 4], ids="{} groups".format)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shared") / "albert"
    return save_family("albert", place, "ForPreTraining", num_hidden_groups=request.param, **SIZES)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


def reference_of(folder: Path) -> Any:
    return transformers.AlbertForPreTraining.from_pretrained(folder, attn_implementation="eager").eval()


def inputs_of(encoding: bert_core.Encoding) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.tensor([encoding.input_ids]),
        "token_type_ids": torch.tensor([encoding.token_type_ids]),
    }


def test_order_maps_and_the_gradients_of_shared_weights_are_those_of_transformers(
    folder: Path, loaded: LoadedModel
) -> None:
    """Whatever the groups: the order of two texts, every map, its gradient, and what a shared weight gets of all."""
    assert loaded.has_mlm and loaded.has_nsp and loaded.config.family.predicts_order and not loaded.report.unexpected
    encoding, reference = loaded.tokenizer.encode(TEXT, PAIR), reference_of(folder)
    theirs = reference(**inputs_of(encoding), output_attentions=True)
    run = capture(loaded, encoding, target=Target("nsp"))
    assert run.nsp is not None and run.gradient is not None
    assert_near(run.nsp, theirs.sop_logits.softmax(-1)[0, 0], TOLERANCE)
    asked = theirs.sop_logits[0, 0] - theirs.sop_logits[0, 1]
    gradients = torch.autograd.grad(asked, theirs.attentions, retain_graph=True)
    for layer, (map_, gradient) in enumerate(zip(theirs.attentions, gradients, strict=True)):
        assert_near(run.attention[layer], map_[0], TOLERANCE)
        assert_near(run.gradient[layer], gradient[0], TOLERANCE, of=float(gradients[0].abs().max()))
    ours = BertForPreTraining.from_pretrained(folder)
    logits = ours(**inputs_of(encoding)).seq_relationship_logits[0]
    (logits[0] - logits[1]).backward()
    asked.backward()
    of_ours = ours.bert.encoder.layer[0].attention.self.value.weight.grad
    of_theirs = reference.albert.encoder.albert_layer_groups[0].albert_layers[0].attention.value.weight.grad
    assert_near(of_ours, of_theirs, TOLERANCE)


def test_shared_weights_are_there_once(folder: Path, loaded: LoadedModel) -> None:
    """Bytes and parameters count them once, and layers of a group hold the same numbers, also on a copy."""
    assert loaded.nbytes == sum(parameter.nbytes for parameter in reference_of(folder).parameters())
    together = loaded.config.layers_per_group
    layers: Any = loaded.model.bert.encoder.layer
    for number, layer in enumerate(layers):
        weight = layer.intermediate.dense.weight
        assert (weight is layers[0].intermediate.dense.weight) == (number < together)


@pytest.mark.parametrize("layer", range(4))
def test_both_walks_see_each_layer(layer: int, folder: Path, loaded: LoadedModel) -> None:
    """What is heard in the torch model is of the layer that is asked for, as the NumPy twin computes it."""
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    by_torch, by_numpy = (walk(loaded, encoding, layer, pads=2, engine=engine) for engine in ("torch", "numpy"))
    assert by_torch.values.keys() == by_numpy.values.keys() and "nsp_logits" in by_torch.values
    for name, value in by_torch.values.items():
        of = 1e4 if "mask" in name else max(float(np.abs(value).max()), 1e-3)
        assert_near(by_numpy.values[name], value, TOLERANCE, of=of, what=name)
    found = BertForPretraining.from_pretrained(folder).forward(
        np.array([encoding.input_ids]), token_type_ids=np.array([encoding.token_type_ids])
    )
    assert_near(found["nsp_logits"], reference_of(folder)(**inputs_of(encoding)).sop_logits, TOLERANCE)


def test_a_head_is_switched_off_cut_and_pruned_in_one_layer_alone(
    folder: Path, loaded: LoadedModel, tmp_path: Path
) -> None:
    """A gate, ablation and pruning agree on each layer; a pruned model's layers have their own weights, also saved."""
    encoding = loaded.tokenizer.encode(TEXT)
    target = Target("mlm", encoding.mask_positions[0], 20)
    without = ablate_heads(loaded, encoding, target=target).values
    assert without is not None and len({float(value) for value in without[:, 2]}) == 4
    smaller = bert_core.pruned(loaded, [(2, 1)])
    off = np.ones((4, 4), np.float32)
    off[2, 1] = 0
    gated = capture(loaded, encoding, target=target, head_mask=off)
    assert_near(capture(smaller, encoding, target=target).attention[3], gated.attention[3], TOLERANCE)
    assert loaded.model.bert.encoder.layer[2].attention.self.num_attention_heads == 4
    assert smaller.config.layers_per_group == 1
    assert smaller.nbytes > loaded.nbytes or loaded.config.layers_per_group == 1
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    assert again.config.pruned_heads == {2: (1,)} and again.nbytes == smaller.nbytes
    assert_near(capture(again, encoding).attention[3], gated.attention[3], TOLERANCE)
    whole = bert_core.save(bert_core.zero_filled(smaller), tmp_path / "whole")
    assert json.loads((whole / "config.json").read_text())["num_hidden_groups"] == 4
    theirs = reference_of(whole)(**inputs_of(encoding), output_attentions=True)
    assert_near(theirs.attentions[3][0], gated.attention[3], TOLERANCE)


def test_what_is_saved_shares_as_before(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """transformers reads the saved model with nothing missing, and the file is no larger than the one before."""
    saved = bert_core.save(loaded, tmp_path / "saved")
    theirs, info = transformers.AlbertForPreTraining.from_pretrained(
        saved, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    inputs = inputs_of(loaded.tokenizer.encode(TEXT, PAIR))
    for after, before in zip(theirs.eval()(**inputs)[:2], reference_of(folder)(**inputs)[:2], strict=True):
        assert torch.equal(after, before)
    sizes = [sum(t.nbytes for t in load_file(one / "model.safetensors").values()) for one in (saved, folder)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inner_group_num": 2}, "inner_group_num is 2: only models with 1 are supported"),
        ({"num_hidden_groups": 3}, "num_hidden_layers 4 is not a multiple of num_hidden_groups 3"),
        ({"num_hidden_groups": 0}, "num_hidden_groups is 0: it must be"),
        ({"num_hidden_layers": 1001, "num_hidden_groups": 1}, "has 1,001 layers"),
        (
            {"pruned_heads": {"0": [1]}, "num_hidden_groups": 1},
            "layers that share their weights cannot have pruned heads",
        ),
    ],
)
def test_sizes_that_cannot_be_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    """One sentence says which size it is."""
    folder = save_family("albert", tmp_path / "albert", "ForPreTraining", **SIZES)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(CheckpointError, match=words):
        bert_core.load(folder, device="cpu")


def test_a_map_between_equal_widths_is_refused(tmp_path: Path) -> None:
    """It would be left out of the model without a word."""
    folder = save_family("albert", tmp_path / "albert", "ForPreTraining", embedding_size=32)
    with pytest.raises(CheckpointError, match="embedding_size and hidden_size are both 32"):
        bert_core.load(folder, device="cpu")


def test_two_names_of_shared_weights_must_agree(tmp_path: Path) -> None:
    """A file that gives both layers of a group, with other numbers, is refused."""
    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
        num_hidden_groups=1,
    )  # fmt: skip
    BertForPreTraining(config).save_pretrained(tmp_path)
    assert BertForPreTraining.from_pretrained(tmp_path).config.layers_per_group == 2
    weights = load_file(tmp_path / "model.safetensors")
    name = "bert.encoder.layer.{}.output.dense.weight"
    # Of files the numbers are those of groups, so that layer 1 is none that this model has.
    save_file({**weights, name.format(1): weights[name.format(0)] + 1}, tmp_path / "model.safetensors")
    report = BertForPreTraining.from_pretrained(tmp_path).load_report
    assert report.unexpected == (name.format(2),)
