"""Checkpoints made to take memory, time or the program itself: each ends in one sentence, or loads rightly."""

from __future__ import annotations

import copy
import json
import math
import pickle
import shutil
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import bert_core
from bert_core import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    CheckpointError,
    LoadedModel,
    Refused,
    Tokenizer,
    calibration,
    checkpoint,
    load_captioner,
    loading,
    numpy_bert,
    tokenizer,
    vision,
)
from tests.near import assert_near

WORDS = "bert.embeddings.word_embeddings.weight"
QUERY = "bert.encoder.layer.0.attention.self.query.weight"
HUGE = 10**9
ODD: dict[str, Any] = {
    "null": None, "true": True, "a list": [[1, 2]], "an object": {"a": 1}, "text": "x", "nothing": "", "huge": 10**12,
    "beyond": 10**400, "negative": -1, "half": 0.5, "NaN": math.nan, "infinite": math.inf, "deep": [[[[[[[[]]]]]]]],
}  # fmt: skip


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint, to be made hostile."""
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "hostile"))


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No parameter is given memory."""
    monkeypatch.setattr(checkpoint, "allocate", lambda *_: pytest.fail("memory was asked for"))
    monkeypatch.setattr(vision, "allocate", lambda *_: pytest.fail("memory was asked for"))


def change(file: Path, **values: Any) -> None:
    """Change keys of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def as_bin(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Put a `pytorch_model.bin` of changed weights in the place of the safetensors file."""
    weights: dict[str, Any] = dict(load_file(folder / "model.safetensors"))
    change(weights)
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def refusal(load: Callable[[], object]) -> str:
    """The one sentence in which a load ends."""
    with pytest.raises(CheckpointError) as caught:
        load()
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 700, sentence
    return sentence


def loaded_or_refused(load: Callable[[], Any]) -> Any:
    """What was loaded, or None where it was refused in one sentence; anything else that is raised is a failure."""
    try:
        return load()
    except Refused as error:
        sentence = str(error)
    assert "\n" not in sentence and len(sentence) < 700, sentence
    return None


# ---------------------------------------------------------------------------- sizes that the file does not have


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            {"vocab_size": HUGE},
            r"word_embeddings.weight in .* has shape \(\d+, 32\): the configuration requires \(1000",
        ),
        ({"hidden_size": HUGE, "num_attention_heads": HUGE}, r"configuration requires \(\d+, 1000000000\)"),
        (
            {"num_hidden_layers": 1_000_000},
            "has 1,000,000 layers and its weights 2: the weights must contain all layers, at most 1,000",
        ),
        (
            {"intermediate_size": HUGE},
            r"intermediate.dense.weight in .* has shape \(64, 32\): .* \(1000000000, 32\)",
        ),
        ({"max_position_embeddings": HUGE}, r"position_embeddings.weight .* has shape \(512, 32\)"),
        ({"type_vocab_size": HUGE}, r"token_type_embeddings.weight .* has shape \(2, 32\)"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000: it must be at most 2,147,483,647"),
        ({"position_embedding_type": "relative_key", "max_position_embeddings": HUGE}, "is not a complete BERT"),
        ({"is_decoder": True, "add_cross_attention": True, "encoder_width": HUGE}, "is a decoder"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_sizes_beyond_the_file_take_no_memory(sizes: dict[str, Any], words: str, folder: Path, no_memory: None) -> None:
    """A configuration is held against the weights before any of its sizes is allocated."""
    change(folder / "config.json", **sizes)
    with pytest.raises(CheckpointError, match=words):
        bert_core.load(str(folder), device="cpu")


@pytest.mark.parametrize("sizes", [{"num_hidden_layers": 10**6}, {"num_attention_heads": 32, "hidden_size": 10**8}])
def test_what_python_would_build_is_held_first(
    sizes: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers and heads take time in Python, so no model is begun."""
    change(folder / "config.json", **sizes)
    monkeypatch.setattr(BertModel, "__init__", lambda *_: pytest.fail("a model was begun"))
    assert (
        "the configuration requires" in (sentence := refusal(lambda: bert_core.load(str(folder))))
        or "layers" in sentence
    )
    refusal(lambda: BertForPreTraining.from_pretrained(folder))


def test_the_numpy_model_is_held_too(folder: Path) -> None:
    """More layers than weights are refused by the NumPy model, before it names the weights of each."""
    change(folder / "config.json", num_hidden_layers=HUGE)
    with pytest.raises(
        Refused,
        match=r"^the configuration has 1,000,000,000 layers, and the checkpoint \d+ weights: "
        r"it is not a complete BERT$",
    ):
        numpy_bert.BertForPretraining.from_pretrained(folder)


def test_layers_of_nothing_are_not_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can name as many layers as it likes: beyond a thousand no model is begun."""
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "bert.encoder.layer.5000.x": torch.zeros(1)}, folder / "model.safetensors")
    change(folder / "config.json", num_hidden_layers=5001)
    monkeypatch.setattr(BertModel, "__init__", lambda *_: pytest.fail("a model was begun"))
    assert "has 5,001 layers and its weights 5,001" in refusal(lambda: bert_core.load(str(folder)))


def test_a_decoder_and_its_encoder_are_held_too(tmp_path: Path, folder: Path, no_memory: None) -> None:
    """load_decoder takes no memory for a width, or for layers, that its file does not have."""
    change(folder / "config.json", is_decoder=True, num_hidden_layers=10**6)
    assert "has 1,000,000 layers" in refusal(lambda: bert_core.load_decoder(str(folder)))
    change(folder / "config.json", num_hidden_layers=2, intermediate_size=HUGE)
    assert "intermediate.dense.weight" in refusal(lambda: bert_core.load_decoder(str(folder)))


@pytest.mark.parametrize("count", [10**8, 10**5])
def test_classes_are_held_against_the_classifier(count: int, tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """A hundred million classes are refused unnamed; fewer, when the file's classifier has three."""
    folder = Path(shutil.copytree(tiny_classifier_folder, tmp_path / "classes"))
    change(folder / "config.json", id2label=None, num_labels=count)
    sentence = refusal(lambda: bert_core.load(str(folder)))
    assert "num_labels is 100000000: it must be a whole number from 1 to 1,000,000" in sentence or (
        "classifier.weight in" in sentence and "(100000, 32)" in sentence
    )


def test_what_is_missing_is_no_larger_than_what_is_there(
    folder: Path, no_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without its heads may leave out small ones, and beyond that no more than it holds."""
    monkeypatch.setattr(checkpoint, "MISSING_NUMBERS_ALLOWED", 0)
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if name.startswith("bert.embeddings.")}
    kept["bert.embeddings.position_embeddings.weight"] = torch.zeros(1, 32)
    save_file(kept, folder / "model.safetensors")
    change(folder / "config.json", num_hidden_layers=0, max_position_embeddings=1, tie_word_embeddings=False)
    sentence = refusal(lambda: BertForPreTraining.from_pretrained(folder))
    assert "the missing parts may not be larger than the rest" in sentence


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            {"image_size": 10**9, "patch_size": 10**8},
            "image_size is 1000000000: it must be a whole number from 1 to 4,096",
        ),
        ({"image_size": 4096, "patch_size": 1}, "configuration requires"),
        ({"vision": {"num_hidden_layers": 10**6}}, "has 1,000,000 layers and its weights 2"),
        ({"text": {"num_hidden_layers": 10**6}}, "has 1,000,000 layers and its weights 2"),
        ({"text": {"intermediate_size": HUGE}}, "configuration requires"),
        ({"vision": {"max_position_embeddings": HUGE}}, "configuration requires"),
        ({"vision": []}, r"vision is \[\]: it must be an object"),
    ],
)
def test_a_captioner_is_held_too(sizes: dict[str, Any], words: str, tmp_path: Path, no_memory: None) -> None:
    """Both halves of a captioner, and its picture, are held against its file."""
    folder = Path(shutil.copytree(loading.ASSETS / "headlight-shapes", tmp_path / "captioner"))
    values = json.loads((folder / "captioner.json").read_text(encoding="utf-8"))
    for name, value in sizes.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    (folder / "captioner.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(CheckpointError, match=words):
        load_captioner(str(folder), device="cpu")


# ---------------------------------------------------------------------------- tensors that are no weights


def quantized(tensor: Tensor) -> Tensor:
    return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


KINDS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "sparse": (lambda t: t.to_sparse(), "a tensor of layout sparse_coo"),
    "meta": (lambda t: t.to("meta"), "a tensor without numbers"),
    "quantized": (quantized, "a tensor of qint8"),
    "complex": (lambda t: t.to(torch.complex64), "a tensor of complex64"),
    "whole": (lambda t: t.to(torch.int32), "a tensor of int32"),
    "bool": (lambda t: t > 0, "a tensor of bool"),
    "float8": (lambda t: t.to(torch.float8_e4m3fn), "a tensor of float8_e4m3fn"),
    "repeated": (lambda t: torch.zeros(1).expand(t.shape), "bytes: a file must contain every number of a weight"),
}


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [WORDS, QUERY])
def test_a_tensor_of_another_kind_is_named(kind: str, name: str, folder: Path, no_memory: None) -> None:
    """Weights are dense tensors of floats: any other is refused with its name and kind."""
    make, words = KINDS[kind]
    as_bin(folder, lambda weights: weights.update({name: make(weights[name])}))
    sentence = refusal(lambda: bert_core.load(str(folder), device="cpu"))
    assert name in sentence and words in sentence


def test_weights_that_share_their_numbers_are_refused(folder: Path, no_memory: None) -> None:
    """A small file cannot make a large model by naming the same numbers for every weight."""

    def share(weights: dict[str, Any]) -> None:
        block = torch.zeros(max(tensor.numel() for tensor in weights.values()))
        weights.update({name: block[: t.numel()].view(t.shape) for name, t in weights.items()})

    as_bin(folder, share)
    assert "each weight must have its own" in refusal(lambda: bert_core.load(str(folder), device="cpu"))


class Reduced:
    """Pickled as a call of what torch's reader takes as safe."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("call", [Reduced(bytearray, 10**11), Reduced(Counter, "abc"), Reduced(torch.Tensor, 10**11)])
@pytest.mark.parametrize("form", ["torch", "old torch", "pickle"])
def test_a_pickle_names_tensors_alone(call: Reduced, form: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could make objects of any size is refused by its name, before torch reads the file."""
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    if form == "pickle":
        path.write_bytes(pickle.dumps({"x": call}, protocol=2))
    else:
        torch.save({"x": call}, path, _use_new_zipfile_serialization=form == "torch")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch read the file"))
    assert "contains more than tensors (code in a file is never run): it names" in refusal(
        lambda: bert_core.load(str(folder))
    )


DEEP = b")" + b"\x85" * 1_000_000
DOUBLED = b")q\x00" + b"".join(b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(60))


@pytest.mark.parametrize("key", [DEEP, DOUBLED], ids=["deep", "doubled"])
@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_key_that_has_no_hash_in_time_is_refused(key: bytes, form: str, folder: Path) -> None:
    """A tuple of tuples, a million deep or doubled sixty times, would take the program's stack, or for ever."""
    as_bin(folder, lambda weights: weights.clear())
    path, content = folder / "pytorch_model.bin", b"\x80\x02}" + key + b"K\x01s."
    if form == "pickle":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, old in entries.items():
                archive.writestr(name, content if name.endswith("data.pkl") else old)
    assert "it has a tuple of more than 1,000 parts" in refusal(lambda: bert_core.load(folder))


def test_a_packed_bin_is_refused(folder: Path) -> None:
    """torch packs nothing: a .bin that unpacks to more than it has is a bomb."""
    as_bin(folder, lambda weights: weights.update({WORDS: torch.zeros(1000, 1000)}))
    path, packed = folder / "pytorch_model.bin", folder / "packed"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    packed.replace(path)
    assert "a file of weights must be uncompressed" in refusal(lambda: bert_core.load(str(folder)))


def test_old_bins_still_load(folder: Path, tiny_loaded: LoadedModel) -> None:
    """A .bin of torch before 1.6, and one whose decoder shares the word table's numbers, load as they did."""

    def tie(weights: dict[str, Any]) -> None:
        weights["cls.predictions.decoder.weight"] = weights[WORDS]
        weights[QUERY] = torch.nn.Parameter(weights[QUERY])

    as_bin(folder, tie)
    torch.save(torch.load(folder / "pytorch_model.bin"), folder / "old", _use_new_zipfile_serialization=False)
    for name in ("pytorch_model.bin", "old"):
        (folder / name).replace(folder / "pytorch_model.bin")
        again = bert_core.load(str(folder), device="cpu")
        assert torch.equal(again.model.state_dict()[QUERY], tiny_loaded.model.state_dict()[QUERY])
        assert again.report.missing == again.report.unexpected == ()


@pytest.mark.parametrize("header", [2**63, 10**8 + 1, 40])
def test_a_header_that_lies_is_refused(header: int, folder: Path) -> None:
    """The length of a safetensors header is not believed."""
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", header) + path.read_bytes()[8:])
    assert str(path) in refusal(lambda: bert_core.load(str(folder)))


# ---------------------------------------------------------------------------- wrong values in every field


@pytest.mark.parametrize("odd", ODD)
def test_every_field_of_a_configuration_takes_any_value(odd: str, folder: Path, tiny_loaded: LoadedModel) -> None:
    """A model that works, or one sentence: never Python's or torch's own words."""
    whole = (folder / "config.json").read_text(encoding="utf-8")
    others = ("num_labels", "id2label", "problem_type", "architectures", "model_type", "text_config", "vision_config")
    text = tiny_loaded.tokenizer.encode("the cat sat.")
    for name in (*json.loads(whole), *others):
        for kind in ("bert", "blip"):
            values = {**json.loads(whole), "model_type": kind, name: ODD[odd]}
            (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
            found = loaded_or_refused(lambda: bert_core.load(folder, device="cpu"))
            if found is not None:
                run = bert_core.capture(found, text)
                assert_near(run.attention.sum(-1), 1.0, 1e-4, what=f"{name} is {odd}")
            loaded_or_refused(lambda: bert_core.load_decoder(folder, device="cpu"))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "tokenizer.json", "captioner.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"\xff\xfe",
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"NaN",
        b"1" * 5000,
        b'{"a":1' + b"0" * 5000,
    ],
    ids=["lists", "objects", "bytes", "empty", "null", "list", "text", "NaN", "number", "digits"],
)
def test_json_that_is_no_object_is_refused(file: str, content: bytes, folder: Path) -> None:
    """Deep, broken or other JSON is one sentence in every file."""
    (folder / file).write_bytes(content)
    if file == "captioner.json":
        refusal(lambda: load_captioner(folder))
    else:
        assert file.split("_")[0] in refusal(lambda: bert_core.load(folder, device="cpu"))


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_json_file_is_read_up_to_a_size(file: str, folder: Path) -> None:
    """A configuration or tokenizer larger than any that is published is not read."""
    with (folder / file).open("wb") as written:
        written.truncate(70_000_000)
    assert "has 70,000,000 bytes: at most 64,000,000 are read" in refusal(lambda: bert_core.load(folder))


@pytest.mark.parametrize("odd", ODD)
def test_a_temperature_of_any_kind(odd: str, folder: Path) -> None:
    """The temperature beside the weights is a number above 0, or the file is refused."""
    loaded = bert_core.load(folder, device="cpu")
    (folder / "calibration.json").write_text(json.dumps({"temperature": ODD[odd], "weights": "x"}), encoding="utf-8")
    loaded_or_refused(lambda: calibration.read_temperature(loaded))


# ---------------------------------------------------------------------------- tokenizers


@pytest.fixture
def parts(tiny_loaded: LoadedModel, tmp_path: Path) -> dict[str, Any]:
    """The content of the tiny model's tokenizer.json."""
    tiny_loaded.tokenizer.save(tmp_path)
    values: dict[str, Any] = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    return values


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of the vocabulary the first piece alone."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(inside)[: 1 if at[-1:] == ("vocab",) else None]:
        yield from places(inner, (*at, key))


@pytest.mark.parametrize("odd", ["null", "a list", "an object", "text", "huge", "negative", "half"])
def test_every_field_of_a_tokenizer_takes_any_value(odd: str, parts: dict[str, Any], tmp_path: Path) -> None:
    """A tokenizer that reads texts, or one sentence."""
    for place in list(places(parts))[1:]:
        values = copy.deepcopy(parts)
        inner: Any = values
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = ODD[odd]
        (tmp_path / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
        found = loaded_or_refused(lambda: Tokenizer.from_folder(tmp_path))
        if found is not None:
            encoding = found.encode("the cat \x00 sat zzz [MASK].", "on a mat")
            assert max(encoding.input_ids) < len(found), place
            found.decode(encoding.input_ids)


RUNAWAY = {"Regex": "(a+)+$"}
PARTS: dict[str, dict[str, Any]] = {
    "a runaway normalizer": {"normalizer": {"type": "Replace", "pattern": RUNAWAY, "content": "b"}},
    "one in a sequence": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": RUNAWAY, "content": "b"}]}
    },
    "a runaway split": {
        "pre_tokenizer": {"type": "Split", "pattern": RUNAWAY, "behavior": "Isolated", "invert": False}
    },
    "one deep in sequences": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": RUNAWAY, "behavior": "Removed", "invert": False}]}
            ],
        }
    },
    "a runaway decoder": {"decoder": {"type": "Replace", "pattern": RUNAWAY, "content": "b"}},
    "a binary table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "other models": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
    "a model of lists": {"model": {"type": "Unigram", "unk_id": 0, "vocab": []}},
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_no_pattern_of_a_file_is_run(
    part: str, parts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer.json is held to the parts of word pieces before the library reads it."""
    (tmp_path / "tokenizer.json").write_text(json.dumps({**parts, **PARTS[part]}), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer.tokenizers, "Tokenizer", None)
        with pytest.raises(Refused, match=r"the tokenizer files in .* are broken: its \w+ is .*: (one of|it must be) "):
            Tokenizer.from_folder(tmp_path)


def test_a_panic_is_one_sentence(folder: Path, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library stops in a way that no `except Exception` sees, it is a refusal; an interrupt stays one."""

    class PanicException(BaseException):
        pass

    (folder / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
    for error, seen in ((PanicException("index out of bounds"), Refused), (KeyboardInterrupt(), KeyboardInterrupt)):
        monkeypatch.setattr(Tokenizer, "__init__", lambda *_, error=error: (_ for _ in ()).throw(error))
        with pytest.raises(seen):
            Tokenizer.from_folder(folder)


@pytest.mark.parametrize("name", ["headlight-mini", "headlight-shapes"])
def test_the_bundled_tokenizers_are_taken(name: str) -> None:
    """What Headlight brings along is what it takes."""
    assert len(Tokenizer.from_folder(loading.ASSETS / name)) > 5


SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (SPECIAL.encode() + b"\xff\xfe\n", "is no text in UTF-8"),
        (SPECIAL.encode() + b"cat\ncat\n", "has 7 lines and 6 pieces: each piece must occur once"),
        (SPECIAL.encode() + b"a\n" * 2_000_000, "has 2,000,005 lines: at most 1,000,000 are read"),
        (b"", r"the vocabulary has no \[PAD\]"),
        (b"\x00" * 100, r"the vocabulary has no \[PAD\]"),
        (b"x" * 70_000_000, "has 70,000,000 bytes: at most 64,000,000 are read"),
    ],
    ids=["bytes", "twice", "lines", "empty", "NUL", "long"],
)
def test_a_vocabulary_that_is_none(content: bytes, words: str, folder: Path) -> None:
    """A vocab.txt has each piece once, in UTF-8, and not more than any vocabulary has."""
    (folder / "vocab.txt").write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        bert_core.load(folder, device="cpu")


def test_an_odd_piece_is_a_piece(tmp_path: Path) -> None:
    """A line of a million characters, or of NULs, is a piece that no text has, and texts are read."""
    (tmp_path / "vocab.txt").write_text(SPECIAL + "x" * 1_000_000 + "\n\x00\x00\ncat\n", encoding="utf-8")
    found = Tokenizer.from_folder(tmp_path)
    assert len(found) == 8
    assert found.encode("cat " + "x" * 1000).tokens == ("[CLS]", "cat", "[UNK]", "[SEP]")


# ---------------------------------------------------------------------------- .zip files


def packed(folder: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """The folder's files in one .zip."""
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
    return path


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tuned_lens.safetensors", bytes(30_000_000))


def twice(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", "{}")


def encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def rare(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("tuned_lens.safetensors", b"x" * 1000)


def many(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(12_000):
            archive.writestr(f"{number:040}", b"")


def lying(path: Path) -> None:
    """An entry says that it is small, and is not."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tuned_lens.safetensors", bytes(30_000_000))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 1000)
    path.write_bytes(content)


ZIPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "bomb": (bomb, r"unpacks from \d+,\d+ to 30,\d+,\d+ bytes: a checkpoint may unpack to at most 20 times"),
    "twice": (twice, "contains config.json more than once"),
    "encrypted": (encrypted, "is encrypted: files must not be encrypted"),
    "rare": (rare, "has an unsupported compression method"),
    "many": (many, "its directory has more than 1,000,000 bytes"),
    "lying": (lying, "is not a complete .zip file"),
}


@pytest.mark.parametrize("kind", ZIPS)
def test_a_hostile_zip_unpacks_nothing(kind: str, folder: Path, no_memory: None) -> None:
    """Bombs, and files that are there twice, encrypted or by the thousand, are refused by their table of contents."""
    make, words = ZIPS[kind]
    path = packed(folder)
    make(path)
    with pytest.raises(CheckpointError, match=words):
        bert_core.load(path, device="cpu")


def test_an_honest_zip_loads(folder: Path, tiny_loaded: LoadedModel) -> None:
    """Packed or stored, the model is the same."""
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        again = bert_core.load(packed(folder, method), device="cpu")
        assert torch.equal(again.model.state_dict()[QUERY], tiny_loaded.model.state_dict()[QUERY])


# ---------------------------------------------------------------------------- what is drawn, and what is not


def test_only_what_the_file_lacks_is_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a whole file is drawn; of one without its NSP head that head alone, as wide as it always was."""
    drawn: list[str] = []
    own = BertForPreTraining._init_weights

    def noted(self: Any, module: torch.nn.Module) -> None:
        if not next(module.parameters(recurse=False), torch.empty(0)).is_meta:
            drawn.append(type(module).__name__)
        own(self, module)

    monkeypatch.setattr(bert_core.BertPreTrainedModel, "_init_weights", noted)
    bert_core.load(folder, device="cpu")
    assert not drawn
    weights = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in weights.items() if "seq_relationship" not in n}, folder / "model.safetensors")
    torch.manual_seed(3)
    model = BertForPreTraining.from_pretrained(folder)
    assert drawn == ["Linear"]
    head = model.cls.seq_relationship
    assert head.bias.abs().max() == 0 and 0.15 < head.weight.std() < 0.6  # initializer_range is 0.3
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.bias is model.cls.predictions.decoder.bias


def test_a_classifier_without_its_weights_is_drawn(folder: Path) -> None:
    """A classifier over an encoder that came from a file is drawn, and its encoder is the file's."""
    classifier = BertForSequenceClassification.from_pretrained(folder)
    assert classifier.load_report.missing == ("classifier.weight", "classifier.bias")
    assert classifier.classifier.weight.abs().max() > 0 and classifier.classifier.bias.abs().max() == 0
    assert not any(parameter.is_meta for parameter in classifier.parameters())
