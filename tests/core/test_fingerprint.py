"""bert_core/fingerprint.py: equal for the same model however it was opened, another for any change of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bert_core import AttentionKnockout, BertConfig, LoadedModel, Pooling, edited, load, pruned, save
from bert_core import fingerprint as module
from bert_core.fingerprint import IGNORED_SETTINGS, fingerprint
from tests.families import FAMILIES, save_family

WEIGHTS = "model.safetensors"
# Of each setting of a tiny BERT another value that its weights allow.
OTHER_VALUES: Mapping[str, Any] = {
    "hidden_act": "relu", "layer_norm_eps": 1e-5, "pad_token_id": 1, "num_attention_heads": 2, "pooler_act": "relu",
}  # fmt: skip
# Of the others one that is possible.
OF_SHAPES: Mapping[str, Any] = {
    "vocab_size": 99, "hidden_size": 24, "num_hidden_layers": 4, "intermediate_size": 9, "max_position_embeddings": 8,
    "type_vocab_size": 1, "position_embedding_type": "relative_key", "embedding_size": 12, "num_hidden_groups": 1,
    "tie_word_embeddings": False, "pruned_heads": {0: [1]}, "pruned_neurons": {1: [2]}, "pruned_layers": [1],
}  # fmt: skip


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    """The bundled model."""
    return load("headlight-mini", device="cpu")


def changed(folder: Path, destination: Path, name: str, change: Callable[[dict[str, Any]], object]) -> LoadedModel:
    """The model of a folder after a change in one of its JSON files."""
    shutil.copytree(folder, destination)
    values = json.loads((folder / name).read_text(encoding="utf-8"))
    change(values)
    (destination / name).write_text(json.dumps(values), encoding="utf-8")
    return load(destination, device="cpu")


def stored_as(folder: Path, destination: Path, dtype: torch.dtype) -> Path:
    """A copy of a checkpoint folder whose tensors have another number type."""
    shutil.copytree(folder, destination)
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, destination / WEIGHTS, metadata={"format": "pt"})
    return destination


# ---------------------------------------------------------------------------- the same model


def check_saved_again(folder: Path, tmp_path: Path) -> None:
    """The fingerprint of a folder is that of what `save` makes of its model, as a folder, a .zip, and once more."""
    loaded = load(folder, device="cpu")
    expected = fingerprint(loaded)
    assert fingerprint(load(folder, device="cpu")) == expected
    for destination in (tmp_path / "again", tmp_path / "again.zip"):
        again = load(save(loaded, destination), device="cpu")
        assert fingerprint(again) == expected
    assert fingerprint(load(save(again, tmp_path / "third"), device="cpu")) == expected


@pytest.mark.parametrize("head", ["model", "tagger", "reader", "chooser", "classifier"])
def test_a_model_that_is_saved_unchanged_keeps_its_fingerprint(
    head: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With every kind of head, as a folder and as a .zip."""
    check_saved_again(request.getfixturevalue(f"tiny_{head}_folder"), tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_another_family_keeps_it_too(family: str, tmp_path: Path) -> None:
    """Whatever names its files have, and however its tokenizer is written."""
    check_saved_again(save_family(family, tmp_path / "published", cased=family == "bertweet"), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_keeps_it_too(tiny_model_folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    """`save` writes the number type of the file, so that the file is as small as before."""
    folder = stored_as(tiny_model_folder, tmp_path / "half", dtype)
    check_saved_again(folder, tmp_path)
    assert {tensor.dtype for tensor in load_file(tmp_path / "again" / WEIGHTS).values()} == {dtype}


def test_the_bundled_model_keeps_it_too(mini: LoadedModel, tmp_path: Path) -> None:
    """Which is stored as float16."""
    again = load(save(mini, tmp_path / "mini"), device="cpu")
    assert fingerprint(again) == fingerprint(mini)
    assert (tmp_path / "mini" / WEIGHTS).stat().st_size < 1.01 * (Path(mini.report.source) / WEIGHTS).stat().st_size


def test_how_a_file_is_written_is_not_in_it(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Weights in a .bin file, settings that only training reads, and the version of the program that wrote it."""
    expected = fingerprint(load(tiny_model_folder, device="cpu"))
    folder = tmp_path / "bin"
    shutil.copytree(tiny_model_folder, folder)
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    assert fingerprint(load(folder, device="cpu")) == expected
    other = {"hidden_dropout_prob": 0.3, "transformers_version": "5.0", "use_cache": False}
    assert fingerprint(changed(tiny_model_folder, tmp_path / "other", "config.json", lambda v: v.update(other))) == (
        expected
    )


# ---------------------------------------------------------------------------- another model


def test_every_tensor_is_in_it(tiny_classifier_folder: Path) -> None:
    """One number of any tensor makes another fingerprint, and the number as it was the first one."""
    loaded = load(tiny_classifier_folder, device="cpu")
    first = fingerprint(loaded)
    tensors = loaded.trained_parameters
    assert len(tensors) > 40 and "classifier.weight" in tensors
    for name, tensor in tensors.items():
        with torch.no_grad():
            kept = tensor.flatten()[-1].clone()
            tensor.view(-1)[-1] += 1
            assert fingerprint(loaded) != first, name
            tensor.view(-1)[-1] = kept
            assert fingerprint(loaded) == first, name


def test_every_setting_that_is_computed_with_is_in_it(tiny_model_folder: Path, tmp_path: Path) -> None:
    """And each that is not is named, so that a new one is not forgotten."""
    first = fingerprint(load(tiny_model_folder, device="cpu"))
    for name, value in OTHER_VALUES.items():
        other = changed(tiny_model_folder, tmp_path / name, "config.json", lambda v, n=name, w=value: v.update({n: w}))
        assert fingerprint(other) != first, name
    names = {field.name for field in dataclasses.fields(BertConfig)} - {"extra"}
    assert names == IGNORED_SETTINGS | OTHER_VALUES.keys() | OF_SHAPES.keys()
    default = module.fingerprinted_settings(BertConfig(), ())
    for name, value in {**OTHER_VALUES, **OF_SHAPES}.items():
        assert module.fingerprinted_settings(BertConfig(**{name: value}), ()) != default, name
    assert module.fingerprinted_settings(BertConfig(hidden_act=torch.nn.functional.silu), ()) != default


def test_the_names_of_classes_are_in_it(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """A classifier whose classes have other names answers otherwise."""
    first = fingerprint(load(tiny_classifier_folder, device="cpu"))
    other = changed(
        tiny_classifier_folder,
        tmp_path / "other",
        "config.json",
        lambda values: values["id2label"].update({"0": "cat"}),
    )
    assert fingerprint(other) != first


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_number_type_of_the_file_is_in_it(tiny_model_folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    """Also where another type holds exactly the same numbers."""
    narrow = stored_as(tiny_model_folder, tmp_path / "narrow", dtype)
    wide = stored_as(narrow, tmp_path / "wide", torch.float32)
    first, other = (load(folder, device="cpu") for folder in (narrow, wide))
    assert all(torch.equal(value, other.trained_parameters[name]) for name, value in first.trained_parameters.items())
    assert fingerprint(first) != fingerprint(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["model"]["vocab"].update({"cat": values["model"]["vocab"]["dog"],
                                                        "dog": values["model"]["vocab"]["cat"]}),
        lambda values: values["normalizer"].update(lowercase=False),
        lambda values: values["normalizer"].update(handle_chinese_chars=False),
        lambda values: values["added_tokens"][-1].update(lstrip=True),
        lambda values: values["post_processor"].update(
            type="TemplateProcessing", special_tokens={}, single=[{"Sequence": {"id": "A", "type_id": 0}}],
            pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        ),
    ],
    ids=["vocabulary", "lower case", "Chinese characters", "added token", "special tokens around texts"],
)  # fmt: skip
def test_the_tokenizer_is_in_it(
    tiny_loaded: LoadedModel, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """Its pieces, how it normalises texts, its special tokens and where they stand."""
    folder = save(tiny_loaded, tmp_path / "model")
    other = changed(folder, tmp_path / "other", "tokenizer.json", change)
    assert fingerprint(other) != fingerprint(tiny_loaded)


def test_the_pooling_of_a_sentence_encoder_is_in_it(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """How it makes one vector of a text, and how much of the text it reads; its folder keeps the fingerprint."""
    poolings = [None, Pooling(), Pooling("cls"), Pooling(normalize=True), Pooling(max_length=40)]
    models = [dataclasses.replace(tiny_loaded, pooling=pooling) for pooling in poolings]
    assert len({fingerprint(loaded) for loaded in models}) == len(models)
    for number, loaded in enumerate(models):
        check_saved_again(save(loaded, tmp_path / f"first-{number}"), tmp_path / str(number))
        assert fingerprint(load(tmp_path / f"first-{number}", device="cpu")) == fingerprint(loaded)


def test_which_head_a_tensor_belongs_to_is_in_it(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """A classifier of texts and one of tokens may have the same tensors under the same names, and the same classes."""
    of_texts, of_tokens = (
        changed(tiny_classifier_folder, tmp_path / name, "config.json", lambda v, n=name: v.update(architectures=[n]))
        for name in ("BertForSequenceClassification", "BertForTokenClassification")
    )
    assert (
        of_texts.has_classifier
        and of_tokens.has_tagger
        and of_texts.trained_parameters.keys() == of_tokens.trained_parameters.keys()
    )
    assert fingerprint(of_texts) != fingerprint(of_tokens)


# ---------------------------------------------------------------------------- models that exist only in memory


def test_a_pruned_model_has_one_of_its_own_which_its_file_keeps(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Another for each part that is gone; a model without a part is no other for having been in memory."""
    smaller = [pruned(tiny_loaded, [(0, 1)]), pruned(tiny_loaded, neurons=[(1, 3)]), pruned(tiny_loaded, layers=[0]),
               pruned(tiny_loaded, [(0, head) for head in range(4)])]  # fmt: skip
    prints = [fingerprint(loaded) for loaded in smaller]
    assert len({*prints, fingerprint(tiny_loaded)}) == 5
    for number, loaded in enumerate(smaller):
        again = load(save(loaded, tmp_path / str(number)), device="cpu")
        assert fingerprint(again) == prints[number]


def test_an_edited_model_has_that_of_its_weights(tiny_loaded: LoadedModel) -> None:
    """Edits change what is computed for a text, and no weights."""
    assert fingerprint(edited(tiny_loaded, [AttentionKnockout(queries=(1,), keys=(2,))])) == fingerprint(tiny_loaded)


def test_a_model_that_is_trained_gets_another(tiny_model_folder: Path, tmp_path: Path) -> None:
    """After each step of an optimizer, and its file keeps it; one in half precision is then saved in float32."""
    loaded = load(stored_as(tiny_model_folder, tmp_path / "half", torch.float16), device="cpu")
    loaded.model.requires_grad_(True)
    optimizer = torch.optim.AdamW(loaded.model.parameters(), lr=1e-3)
    seen = {fingerprint(loaded)}
    for _ in range(2):
        optimizer.zero_grad()
        loaded.model(torch.tensor([[2, 7, 3]]))[0].square().mean().backward()
        optimizer.step()
        seen.add(fingerprint(loaded))
    assert len(seen) == 3
    loaded.model.requires_grad_(False)
    again = load(save(loaded, tmp_path / "trained"), device="cpu")
    assert fingerprint(again) == fingerprint(loaded)
    assert {tensor.dtype for tensor in load_file(tmp_path / "trained" / WEIGHTS).values()} == {torch.float32}


def test_numbers_are_read_once(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before somebody asks, each tensor once, and not again for an edited model, which shares them."""
    read: list[int] = []
    digest = module.tensor_digest
    monkeypatch.setattr(module, "tensor_digest", lambda tensor, dtype: read.append(id(tensor)) or digest(tensor, dtype))
    loaded = load(tiny_model_folder, device="cpu")
    assert not read
    first = fingerprint(loaded)
    assert len(read) == len(set(read)) == len(loaded.trained_parameters)
    other = edited(loaded, [AttentionKnockout(queries=(1,), keys=(2,))])
    assert fingerprint(loaded) == fingerprint(other) == first and len(read) == len(loaded.trained_parameters)
