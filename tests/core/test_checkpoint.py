"""bert_core/checkpoint.py and loading.py: files to models and back, in every spelling, and what is refused."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import huggingface_hub.constants
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from torch import Tensor

import bert_core
from bert_core import (
    BertConfig,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertModel,
    CheckpointError,
    LoadReport,
    best_device,
    bundled_models,
    checkpoint,
    loading,
)
from bert_core.pooling import SENTENCE_CONFIG_FILES
from bert_core.tokenizer import TOKENIZER_FILES

Weights = dict[str, Tensor]


@pytest.fixture
def weights(tiny_model_folder: Path) -> Weights:
    """The tensors of the tiny checkpoint, by today's names."""
    return load_file(tiny_model_folder / "model.safetensors")


@pytest.fixture
def write(tiny_model_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """A new checkpoint folder with the tiny tokenizer, these weights and this change to the configuration."""

    def written(weights: Weights | None, *, old: bool = False, **config: Any) -> Path:
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        values = json.loads((tiny_model_folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**values, **config}), encoding="utf-8")
        for name in ("vocab.txt", "tokenizer_config.json"):
            (folder / name).write_bytes((tiny_model_folder / name).read_bytes())
        if weights is not None and old:
            torch.save(weights, folder / "pytorch_model.bin")
        elif weights is not None:
            save_file(weights, folder / "model.safetensors")
        return folder

    return written


def assert_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Every parameter has the same bits."""
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.fixture
def original(tiny_model_folder: Path) -> BertForPreTraining:
    return BertForPreTraining.from_pretrained(tiny_model_folder)


# ---------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("kind", [BertModel, BertForPreTraining, BertForMaskedLM, BertForNextSentencePrediction])
def test_what_is_saved_comes_back_bit_by_bit(kind: type[Any], tiny_config: BertConfig, tmp_path: Path) -> None:
    """Configuration and weights are the same after saving and loading, with nothing missing and nothing left over."""
    torch.manual_seed(6)
    model = kind(tiny_config.replace(extra={"model_type": "bert", "note": "kept"}))
    model.save_pretrained(tmp_path / "saved")
    again = kind.from_pretrained(tmp_path / "saved")
    assert_equal_weights(model, again)
    assert again.config == model.config
    assert (again.load_report.missing, again.load_report.unexpected) == ((), ())
    assert not again.training
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["config.json", "model.safetensors"]


def test_names_in_the_file_are_the_published_ones(weights: Weights) -> None:
    """A file holds each parameter once, below `bert.` and `cls.`, under the name that published files use."""
    names = set(weights)
    assert {name.split(".")[0] for name in names} == {"bert", "cls"}
    assert {
        "bert.embeddings.LayerNorm.weight",
        "bert.encoder.layer.0.attention.self.query.weight",
        "bert.encoder.layer.1.output.dense.bias",
        "bert.pooler.dense.weight",
        "cls.predictions.bias",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight",
    } <= names
    assert "cls.predictions.decoder.weight" not in names


def test_half_precision_files_load_as_full(
    original: BertForPreTraining, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Weights written as float16 come back as float32, rounded to float16."""
    checkpoint.write_tensors(original.state_dict(), original.config, tmp_path / "half", torch.float16)
    assert {t.dtype for t in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.float16}
    again = BertForPreTraining.from_pretrained(tmp_path / "half")
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, original.state_dict()[name].half().float())


def test_empty_weights_are_kept_and_tied_ones_written_once(original: BertForPreTraining, tmp_path: Path) -> None:
    """Tensors without elements share an address and no numbers; two names of one table share both."""
    table = torch.randn(3, 2)
    tensors = {"one": torch.zeros(0, 4), "other": torch.zeros(0, 4), "table": table, "twin": table}
    checkpoint.write_tensors(tensors, original.config, tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in written.items()} == {
        "one": (0, 4),
        "other": (0, 4),
        "table": (3, 2),
    }


def test_a_configuration_that_no_file_can_hold_stops_a_save(tiny_config: BertConfig, tmp_path: Path) -> None:
    """A model with a callable activation is refused before any file is written."""
    model = BertModel(tiny_config.replace(hidden_act=torch.relu))
    with pytest.raises(ValueError, match="hidden_act is a callable, which a file cannot hold"):
        model.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_files(
    original: BertForPreTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When writing stops half-way, the folder holds the whole old checkpoint and nothing else."""
    original.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(tensors: Weights, path: str, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint, "save_file", fails)
    with pytest.raises(OSError, match="no space left"):
        original.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# ---------------------------------------------------------------------------- spellings


def test_old_files_load(original: BertForPreTraining, weights: Weights, write: Callable[..., Path]) -> None:
    """A pytorch_model.bin loads as the safetensors file does."""
    assert_equal_weights(BertForPreTraining.from_pretrained(write(weights, old=True)), original)


def test_safetensors_come_first(original: BertForPreTraining, weights: Weights, write: Callable[..., Path]) -> None:
    """Where both files are there, the .bin is not even opened."""
    folder = write(weights)
    (folder / "pytorch_model.bin").write_bytes(b"broken")
    assert_equal_weights(BertForPreTraining.from_pretrained(folder), original)


def as_first_released(weights: Weights) -> Weights:
    """Layer norms with gamma and beta."""
    old = {}
    for name, tensor in weights.items():
        if "LayerNorm" in name:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[name] = tensor
    return old


SPELLINGS: dict[str, Callable[[Weights], Weights]] = {
    "gamma and beta": as_first_released,
    "position_ids": lambda w: {**w, "bert.embeddings.position_ids": torch.arange(512)[None]},
    "decoder as well": lambda w: {
        **w,
        "cls.predictions.decoder.weight": w["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": w["cls.predictions.bias"].clone(),
    },
    "decoder's bias only": lambda w: {
        **{name: tensor for name, tensor in w.items() if name != "cls.predictions.bias"},
        "cls.predictions.decoder.bias": w["cls.predictions.bias"],
    },
    "trained in parallel": lambda w: {f"module.{name}": tensor for name, tensor in w.items()},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("old", [False, True], ids=["safetensors", "bin"])
def test_every_spelling_of_the_past_loads_whole(
    spelling: str, old: bool, original: BertForPreTraining, weights: Weights, write: Callable[..., Path]
) -> None:
    """The weights are the same, and nothing is reported missing or unexpected."""
    loaded = BertForPreTraining.from_pretrained(write(SPELLINGS[spelling](weights), old=old))
    assert_equal_weights(loaded, original)
    assert (loaded.load_report.missing, loaded.load_report.unexpected) == ((), ())


def test_a_bare_encoder_loads(original: BertForPreTraining, weights: Weights, write: Callable[..., Path]) -> None:
    """A file without the `bert.` prefix, and so without heads, fills the encoder; the heads are reported missing."""
    bare = {n.removeprefix("bert."): t for n, t in as_first_released(weights).items() if n.startswith("bert.")}
    folder = write(bare)
    model = BertModel.from_pretrained(folder)
    assert_equal_weights(model, original.bert)
    assert model.load_report.missing == ()
    whole = BertForPreTraining.from_pretrained(folder)
    assert_equal_weights(whole.bert, original.bert)
    assert whole.load_report.lacks("cls.predictions.")
    assert whole.load_report.lacks("cls.seq_relationship.")
    assert all(name.startswith("cls.") for name in whole.load_report.missing)


def test_a_decoder_that_is_not_tied_must_be_there(
    original: BertForPreTraining, weights: Weights, write: Callable[..., Path]
) -> None:
    """Where the configuration does not tie, the embedding table does not stand in for a missing decoder."""
    untied = BertForPreTraining.from_pretrained(write(weights, tie_word_embeddings=False))
    assert untied.load_report.missing == ("cls.predictions.decoder.weight",)
    assert untied.load_report.lacks("cls.predictions.")


def test_tied_names_with_different_numbers_are_refused(weights: Weights, write: Callable[..., Path]) -> None:
    """Two numbers for one weight: the file and its configuration contradict each other."""
    folder = write({**weights, "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"] + 1})
    with pytest.raises(CheckpointError, match=r"decoder.weight and bert.embeddings.word_embeddings.weight differ in"):
        BertForPreTraining.from_pretrained(folder)


# ---------------------------------------------------------------------------- what is missing, what is left over


@pytest.mark.parametrize(
    ("part", "has_mlm", "has_nsp"),
    [
        ("cls.predictions.", False, True),
        ("cls.predictions.transform.dense.bias", False, True),
        ("cls.seq_relationship.", True, False),
        ("bert.pooler.", True, False),
        ("cls.", False, False),
    ],
)
def test_a_missing_head_is_reported(
    part: str, has_mlm: bool, has_nsp: bool, weights: Weights, write: Callable[..., Path]
) -> None:
    """The model loads, names what it lacks, and says which prediction means nothing."""
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(part)}
    loaded = bert_core.load(str(write(kept)), device="cpu")
    lost = set(weights) - set(kept)
    assert lost <= set(loaded.report.missing)
    assert (loaded.has_mlm, loaded.has_nsp) == (has_mlm, has_nsp)
    assert loaded.report.lacks(part)
    assert not loaded.report.lacks("bert.encoder.")


def test_a_whole_checkpoint_has_both_heads(tiny_model_folder: Path) -> None:
    """load() gives a frozen model in evaluation mode with its tokenizer, and nothing missing."""
    loaded = bert_core.load(str(tiny_model_folder), device="cpu")
    assert loaded.has_mlm and loaded.has_nsp
    assert loaded.report == LoadReport(str(tiny_model_folder), (), ())
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert len(loaded.tokenizer) == loaded.config.vocab_size
    assert {parameter.device for parameter in loaded.model.parameters()} == {loaded.device} == {torch.device("cpu")}


def test_a_model_without_segments_has_no_next_sentence(weights: Weights, write: Callable[..., Path]) -> None:
    """Where both texts look alike to the model, its NSP head is not offered."""
    kept = {name: tensor for name, tensor in weights.items() if "token_type" not in name}
    loaded = bert_core.load(str(write(kept, type_vocab_size=0)), device="cpu")
    assert not loaded.report.lacks("cls.seq_relationship.")
    assert not loaded.has_nsp


def test_what_has_no_place_is_reported(weights: Weights, write: Callable[..., Path]) -> None:
    """Entries that the model does not know are named, in the order of the file, and change nothing."""
    folder = write({**weights, "classifier.weight": torch.zeros(2, 2), "bert.encoder.layer.9.x": torch.zeros(1)})
    report = BertForPreTraining.from_pretrained(folder).load_report
    assert set(report.unexpected) == {"classifier.weight", "bert.encoder.layer.9.x"}
    assert report.missing == ()


def test_an_encoder_with_a_hole_is_refused(weights: Weights, write: Callable[..., Path]) -> None:
    """Without one of the encoder's own weights there is no BERT: the sentence counts and names them."""
    del weights["bert.encoder.layer.1.attention.self.key.weight"]
    with pytest.raises(
        CheckpointError,
        match=r"is not a complete BERT: 1 of \d+ weights are missing, first bert.encoder.layer.1.attention.self",
    ):
        BertForPreTraining.from_pretrained(write(weights))


def test_a_wrong_shape_is_refused(weights: Weights, write: Callable[..., Path]) -> None:
    """A weight of another size than the configuration says is named with both sizes."""
    weights["bert.pooler.dense.weight"] = torch.zeros(32, 31)
    with pytest.raises(
        CheckpointError,
        match=r"bert.pooler.dense.weight in .* has shape \(32, 31\): the configuration requires \(32, 32\)",
    ):
        BertForPreTraining.from_pretrained(write(weights))


# ---------------------------------------------------------------------------- hostile and broken files


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_code_in_a_file_never_runs(form: str, tmp_path: Path, weights: Weights, write: Callable[..., Path]) -> None:
    """A .bin that would run code when unpickled is refused before it does, whole zip or bare pickle."""
    marker = tmp_path / "it ran"
    hostile = {**weights, "bert.trap": Trap(marker)}
    folder = write(None)
    path = folder / "pytorch_model.bin"
    if form == "torch":
        torch.save(hostile, path)
        torch.load(path, weights_only=False)
    else:
        path.write_bytes(pickle.dumps({"bert.trap": Trap(marker)}))
        pickle.loads(path.read_bytes())
    assert marker.exists(), "the trap must work, or nothing is tested"
    marker.unlink()
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is damaged, or contains more than tensors \(code"):
        bert_core.load(str(folder), device="cpu")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("content", [b"", b"not weights", b"\x00" * 64, b"PK\x03\x04 broken zip", b"\xff" * 200])
def test_a_broken_weights_file_is_one_clear_error(name: str, content: bytes, write: Callable[..., Path]) -> None:
    """Whatever is in it, a file that holds no weights is a CheckpointError that names it, on one line."""
    folder = write(None)
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=re.escape(str(folder / name))) as caught:
        bert_core.load(str(folder), device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_half_a_file_is_one_clear_error(name: str, weights: Weights, write: Callable[..., Path]) -> None:
    """A download that stopped half-way is named."""
    folder = write(weights, old=name.endswith(".bin"))
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=re.escape(str(folder / name))):
        bert_core.load(str(folder), device="cpu")


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(3), {"a": 1}, {3: torch.zeros(1)}, {"model": {}}])
def test_a_bin_of_something_else_is_refused(content: object, write: Callable[..., Path]) -> None:
    """A file that loads but is no mapping of names to tensors says so."""
    folder = write(None)
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="does not contain named tensors"):
        bert_core.load(str(folder), device="cpu")


def test_a_folder_without_weights(write: Callable[..., Path]) -> None:
    """A folder with a configuration alone says which files it looked for."""
    with pytest.raises(CheckpointError, match=r"has no weights: neither model.safetensors nor pytorch_model.bin"):
        bert_core.load(str(write(None)), device="cpu")


@pytest.mark.parametrize("kind", ["gpt2", "<b>" + "x" * 500])
def test_a_foreign_model_is_refused(kind: str, weights: Weights, write: Callable[..., Path]) -> None:
    """Another architecture is named, shortened, and not loaded as if it were a BERT."""
    with pytest.raises(
        CheckpointError, match=r"holds a model of type .*: only 'bert', .* and 'blip' can be loaded"
    ) as caught:
        bert_core.load(str(write(weights, model_type=kind)), device="cpu")
    assert kind[:40] in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"hidden_size": 100, "num_attention_heads": 12}', '{"vocab_size": "many"}', "[" * 100_000],
    ids=["half", "list", "impossible", "words", "deep"],
)
def test_a_broken_configuration_is_refused(content: str, weights: Weights, write: Callable[..., Path]) -> None:
    """A config.json that is broken or impossible is a CheckpointError that names it."""
    folder = write(weights)
    (folder / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=re.escape(f"{folder / 'config.json'} is not a configuration of BERT: ")):
        bert_core.load(str(folder), device="cpu")


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    """An empty folder, and a path that is no folder, say what a checkpoint is."""
    with pytest.raises(
        CheckpointError, match=r"has no config.json: a checkpoint is a folder with config.json and model"
    ):
        bert_core.load(str(tmp_path), device="cpu")
    with pytest.raises(CheckpointError, match=r"is not a folder: a checkpoint is a folder with config.json and model"):
        BertModel.from_pretrained(tmp_path / "nothing")


def test_a_folder_without_a_tokenizer(weights: Weights, write: Callable[..., Path]) -> None:
    """Weights alone are not enough to read a text."""
    folder = write(weights)
    (folder / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer: neither tokenizer.json nor vocab.txt"):
        bert_core.load(str(folder), device="cpu")


def test_a_tokenizer_of_another_model_is_refused(weights: Weights, write: Callable[..., Path]) -> None:
    """One word too many in the vocabulary is a CheckpointError with both sizes."""
    folder = write(weights)
    with (folder / "vocab.txt").open("a", encoding="utf-8") as vocabulary:
        vocabulary.write("dinosaur\n")
    size = len(weights["cls.predictions.bias"])
    with pytest.raises(CheckpointError, match=f"the tokenizer has {size + 1} tokens but the model {size}: they do not"):
        bert_core.load(str(folder), device="cpu")


# ---------------------------------------------------------------------------- names, hub, devices


def test_a_bundled_model_is_found_by_name(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders with a configuration among the assets are bundled, and load by name alone."""
    (tmp_path / "tiny").symlink_to(tiny_model_folder)
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(loading, "ASSETS", tmp_path)
    assert bundled_models() == ("tiny",)
    assert bert_core.load("tiny", device="cpu").name == "tiny"
    monkeypatch.setattr(loading, "ASSETS", tmp_path / "nothing")
    assert bundled_models() == ()


def test_the_default_model_is_bundled() -> None:
    """load() without a name gives a bundled model with both heads trained."""
    loaded = bert_core.load(device="cpu")
    assert loaded.name in bundled_models()
    assert loaded.has_mlm and loaded.has_nsp
    assert (loaded.report.missing, loaded.report.unexpected) == ((), ())


@pytest.fixture
def bundled_tiny(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `tiny` is bundled."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "tiny").symlink_to(tiny_model_folder)
    monkeypatch.setattr(loading, "ASSETS", assets)


def test_the_hub_without_a_network(bundled_tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hub's own client offline and nothing cached, one sentence says so and names what is bundled."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CheckpointError) as caught:
        bert_core.load("bert-base-uncased", device="cpu")
    assert str(caught.value) == (
        "'bert-base-uncased' cannot be downloaded from the hub without a network: choose a bundled model (tiny)"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            LocalEntryNotFoundError("long technical text"),
            "'some/model' cannot be downloaded from the hub without a network: choose a bundled model (tiny)",
        ),
        (
            RepositoryNotFoundError("long technical text", response=Mock()),
            "'some/model' could not be downloaded from the hub (RepositoryNotFoundError): "
            "check the name and the network, or choose a bundled model (tiny)",
        ),
        (
            OSError("disk full"),
            "'some/model' could not be downloaded from the hub (OSError): "
            "check the name and the network, or choose a bundled model (tiny)",
        ),
        (
            RuntimeError("connection lost half-way"),
            "'some/model' could not be downloaded from the hub (RuntimeError): "
            "check the name and the network, or choose a bundled model (tiny)",
        ),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    bundled_tiny: None, error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No network, an unknown model, a full disk and a lost connection end in one sentence that names what is there."""

    def refuses(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuses)
    with pytest.raises(CheckpointError) as caught:
        bert_core.load("some/model", device="cpu")
    assert str(caught.value) == sentence


def test_a_model_from_the_hub_loads(
    tiny_model_folder: Path, bundled_tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the files of a BERT are asked for, and what comes is loaded like any folder."""
    asked: list[Any] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, set(allow_patterns)))
        return str(tiny_model_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert bert_core.load("some/model", device="cpu").has_mlm
    expected = {"config.json", "model.safetensors", "pytorch_model.bin", "tuned_lens.safetensors"}
    expected |= {"modules.json", "config_sentence_transformers.json", *SENTENCE_CONFIG_FILES, *TOKENIZER_FILES}
    assert asked == [("some/model", expected | {f"[0-9]_*/{name}" for name in expected})]


@pytest.mark.parametrize("name", ["./nothing", "/nothing", "~/nothing", "a/b/c", "", "  "])
def test_a_path_is_never_asked_of_the_hub(bundled_tiny: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a path, and is no folder, ends at home."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(
        CheckpointError, match=r"there is no model .*: it must be a folder, a \.zip file or a bundled model \(tiny\)"
    ):
        bert_core.load(name, device="cpu")


def test_the_bundled_captioner_is_no_model_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is known, and the hub is not asked for it."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(
        CheckpointError, match=r"headlight-shapes is a captioner: load it with bert_core.load_captioner"
    ):
        bert_core.load("headlight-shapes", device="cpu")


def test_the_hub_can_be_closed(bundled_tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With allow_hub=False a hub id is a name like any other."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(
        CheckpointError, match=r"there is no model 'some/model': it must be a folder, a \.zip file or a bundled model"
    ):
        bert_core.load("some/model", device="cpu", allow_hub=False)


@pytest.mark.parametrize("name", ["bad name!", "x" * 5000, "nul\x00byte", "--x"])
def test_a_name_that_cannot_be_one(bundled_tiny: None, name: str) -> None:
    """A name that no hub would take is refused without asking one."""
    with pytest.raises(CheckpointError, match=r"it must be a folder, a bundled model \(tiny\) or a hub id$"):
        bert_core.load(name, device="cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
@pytest.mark.parametrize("name", [None, "auto"])
def test_the_best_device_there_is(
    cuda: bool, mps: bool, expected: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA, then MPS, then the CPU; a name overrides the choice."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 * cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert best_device(name) == torch.device(expected)
    assert best_device("cpu") == torch.device("cpu")


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent, too highly numbered or unknown device is refused with what there is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert best_device("cuda:1") == torch.device("cuda:1")
    for name in ("cuda:2", "mps", "meta"):
        with pytest.raises(ValueError, match=f"^device '{name}' is not available: this machine has cuda, cpu$"):
            best_device(name)
    for name in ("gpu", "", "cuda:x"):
        with pytest.raises(ValueError, match=f"^device '{name}' is unknown: it must be one of auto, cuda, mps, cpu$"):
            best_device(name)


def test_loading_warns_of_nothing(tiny_model_folder: Path) -> None:
    """An ordinary load is silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bert_core.load(str(tiny_model_folder), device="cpu")
