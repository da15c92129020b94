"""Folders of sentence-transformers: their vectors are those that its own program computes, there and back."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

import bert_core
from bert_core import CheckpointError, Refused
from bert_core.pooling import POOLING_MODES
from bert_core.pooling import Pooling as Pools
from bert_core.run.similarity import read_sentence, sentence_vector
from tests.families import save_family
from tests.near import assert_near

TEXTS = (
    "The cat sat on the mat.", "A king!", "Le chat dort.", "it was said that she opened the door of the old house " * 9,
)  # fmt: skip


@pytest.fixture(scope="session")
def encoders(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An encoder of each family that transformers wrote."""
    folder = tmp_path_factory.mktemp("encoders")
    loaded = bert_core.load(tiny_model_folder, device="cpu")
    bert_core.save(loaded, folder / "bert")
    for family in ("distilbert", "roberta", "mpnet"):
        save_family(family, folder / family)
    return {family: folder / family for family in ("bert", "distilbert", "roberta", "mpnet")}


def sentences_folder(encoder: Path, folder: Path, mode: str = "mean", *, normal: bool = True, limit: int = 40) -> Path:
    """What sentence-transformers writes today."""
    reader = Transformer(str(encoder), max_seq_length=limit)
    pooling = Pooling(reader.get_embedding_dimension(), pooling_mode=mode)
    SentenceTransformer(modules=[reader, pooling, *[Normalize()] * normal], device="cpu").save(str(folder))
    return folder


def older(folder: Path) -> Path:
    """The same as it was written in 2019: the encoder in a folder of its own."""
    modules = json.loads((folder / "modules.json").read_text())
    place = folder / "0_Transformer"
    place.mkdir()
    for file in [file for file in folder.iterdir() if file.is_file() and file.name != "modules.json"]:
        if file.name != "config_sentence_transformers.json":
            file.rename(place / file.name)
    modules[0]["path"] = place.name
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def vectors(loaded: bert_core.LoadedModel) -> np.ndarray:
    return np.stack([sentence_vector(loaded, read_sentence(loaded, text)) for text in TEXTS])


def theirs(folder: Path) -> Any:
    return SentenceTransformer(str(folder), device="cpu").encode(list(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet"])
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_vectors_are_those_of_sentence_transformers(
    encoders: dict[str, Path], tmp_path: Path, family: str, mode: str
) -> None:
    """In each mode, of each family, texts cut where its file says; and again from what we write."""
    folder = sentences_folder(encoders[family], tmp_path / "sentences", mode, normal=mode != "max")
    loaded = bert_core.load(folder, device="cpu")
    assert loaded.pooling == Pools(mode, normalize=mode != "max", max_length=40)
    expected = theirs(folder)
    assert_near(vectors(loaded), expected)
    written = bert_core.save(loaded, tmp_path / "written")
    assert_near(theirs(written), expected)
    again = bert_core.load(written, device="cpu")
    assert again.pooling == loaded.pooling
    assert np.array_equal(vectors(again), vectors(loaded))


def test_the_older_layout_loads(encoders: dict[str, Path], tmp_path: Path) -> None:
    """Weights in 0_Transformer are found, and their vectors are the same."""
    folder = older(sentences_folder(encoders["bert"], tmp_path / "sentences"))
    loaded = bert_core.load(folder, device="cpu")
    assert loaded.pooling == Pools("mean", normalize=True, max_length=40)
    assert_near(vectors(loaded), theirs(folder))


@pytest.mark.parametrize("layout", ["today", "older", "written"])
def test_one_in_a_zip_loads(encoders: dict[str, Path], tmp_path: Path, layout: str) -> None:
    """From one .zip, of today's and the older layout, and one that we write."""
    folder = sentences_folder(encoders["mpnet"], tmp_path / "sentences", "weightedmean")
    expected = vectors(bert_core.load(folder, device="cpu"))
    path = tmp_path / "packed.zip"
    if layout == "written":
        bert_core.save(bert_core.load(folder, device="cpu"), path)
    else:
        folder = older(folder) if layout == "older" else folder
        with zipfile.ZipFile(path, "w") as archive:
            for file in folder.rglob("*"):
                archive.write(file, file.relative_to(folder).as_posix())
    loaded = bert_core.load(path, device="cpu")
    assert loaded.pooling is not None
    assert np.array_equal(vectors(loaded), expected)


def test_one_from_the_hub_asks_for_the_files_of_its_modules(
    encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is read of it is fetched, folders of modules with it, and it loads."""
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    folder = older(sentences_folder(encoders["bert"], tmp_path / "sentences"))
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")

    def download(name: str, allow_patterns: list[str]) -> str:
        place = tmp_path / "cache"
        files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
        for file in filter_repo_objects(files, allow_patterns=allow_patterns):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / file, place / file)
        return str(place)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    loaded = bert_core.load("someone/sentences", device="cpu")
    assert loaded.pooling == Pools("mean", normalize=True, max_length=40)
    assert not (tmp_path / "cache" / "onnx").exists()


def test_a_pruned_one_is_written_and_read_again(encoders: dict[str, Path], tmp_path: Path) -> None:
    """A pruned model keeps how it pools; with zeros in the places of its heads sentence-transformers reads it too."""
    loaded = bert_core.load(sentences_folder(encoders["bert"], tmp_path / "sentences"), device="cpu")
    pruned = bert_core.pruned(loaded, [(0, 1), (1, 0), (1, 3)])
    again = bert_core.load(bert_core.save(pruned, tmp_path / "pruned"), device="cpu")
    assert again.pooling == loaded.pooling
    assert np.array_equal(vectors(again), vectors(pruned))
    whole = bert_core.save(bert_core.zero_filled(pruned), tmp_path / "whole")
    assert_near(theirs(whole), vectors(pruned))


def test_equal_states_pool_to_that_state() -> None:
    """Of equal states the mean, the largest and the weighted mean are that state; the root of their count is kept."""
    states = torch.full((300, 4), 2.5, dtype=torch.float64)
    for mode in ("mean", "max", "weightedmean"):
        pools = Pools(mode)
        assert torch.allclose(pools.pool(states[list(pools.pooled_positions(300))]), states[0])
    assert torch.allclose(Pools("mean_sqrt_len_tokens").pool(states), states[0] * 300**0.5)
    assert Pools("lasttoken").pooled_positions(7) == (6,) and Pools("cls").pooled_positions(7) == (0,)


def test_lower_case_where_the_file_says_so(encoders: dict[str, Path], tmp_path: Path) -> None:
    """A vocabulary with capitals reads in lower case if the file asks for it; so does what we write."""
    folder = tmp_path / "cased"
    save_family("distilbert", folder, cased=True)
    sentences = sentences_folder(folder, tmp_path / "sentences")
    limits = sentences / "sentence_bert_config.json"
    limits.write_text(json.dumps(json.loads(limits.read_text()) | {"do_lower_case": True}))
    loaded = bert_core.load(sentences, device="cpu")
    assert read_sentence(loaded, "A King").tokens == read_sentence(loaded, "a king").tokens
    assert_near(vectors(loaded), theirs(sentences))
    assert_near(theirs(bert_core.save(loaded, tmp_path / "written")), vectors(loaded))


def _changed(folder: Path, file: str, change: Any) -> None:
    path = folder / file
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


BROKEN: dict[str, tuple[str, Any, str]] = {
    "a folder that is missing": (
        "modules.json", lambda m: m[1].update(path="9_Pooling"),
        r"names the folder '9_Pooling' for the pooling: it has no config\.json$",
    ),
    "an encoder that is missing": (
        "modules.json", lambda m: m[0].update(path="0_Elsewhere"),
        r"names the folder '0_Elsewhere' for the encoder: it has no config\.json$",
    ),
    "a path that leads out": (
        "modules.json", lambda m: m[1].update(path="../1_Pooling"), r"names the folder '\.\./1_Pooling': it must be",
    ),
    "a path from the root": (
        "modules.json", lambda m: m[0].update(path="/etc"), r"names the folder '/etc': it must be one inside",
    ),
    "a path of Windows": (
        "modules.json", lambda m: m[0].update(path="C:\\x"), r"names the folder .*: it must be one inside",
    ),
    "a module that is not read": (
        "modules.json", lambda m: m.insert(2, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}),
        r"names Transformer, Pooling, Dense, Normalize: what is read is one of .*; without that file the encoder",
    ),
    "another's code": (
        "modules.json", lambda m: m[0].update(type="custom_st.Transformer"), r"names custom_st\.Transformer, Pooling",
    ),
    "a module without a type": ("modules.json", lambda m: m[0].pop("type"), r"it must have a type and a path$"),
    "two ways at once": (
        "1_Pooling/config.json", lambda c: c.update(pooling_mode=["cls", "mean"]), r"pools by \['cls', 'mean'\]",
    ),
    "an unknown way": (
        "1_Pooling/config.json", lambda c: c.update(pooling_mode="median"), r"the pooling mode is 'median': it must",
    ),
    "a length that is none": (
        "sentence_bert_config.json", lambda c: c.update(max_seq_length="long"), r"max_seq_length is 'long'",
    ),
    "a prompt before every text": (
        "config_sentence_transformers.json",
        lambda c: c.update(prompts={"query": "query: "}, default_prompt_name="query"),
        r"puts 'query: ' before every text",
    ),
    "an architecture that is not read": (
        "config.json", lambda c: c.update(model_type="modernbert"), r"type 'modernbert', which normalises the input",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_read_is_one_sentence(encoders: dict[str, Path], tmp_path: Path, what: str) -> None:
    """Modules that are missing, unknown or outside are refused, and nothing is run."""
    folder = sentences_folder(encoders["bert"], tmp_path / "sentences")
    file, change, said = BROKEN[what]
    _changed(folder, file, change)
    with pytest.raises(CheckpointError, match=said):
        bert_core.load(folder, device="cpu")


@pytest.mark.parametrize("content", ["{", "{}", "7", "[1]", "[" * 100_000])
def test_a_broken_list_of_modules_is_refused(encoders: dict[str, Path], tmp_path: Path, content: str) -> None:
    """Whatever stands in modules.json, the answer is one sentence."""
    folder = sentences_folder(encoders["bert"], tmp_path / "sentences")
    (folder / "modules.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"modules\.json"):
        bert_core.load(folder, device="cpu")


def test_a_zip_cannot_lead_out_of_its_folder(encoders: dict[str, Path], tmp_path: Path) -> None:
    """Of a .zip only its top and folders of modules are unpacked."""
    folder = sentences_folder(encoders["bert"], tmp_path / "sentences")
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder).as_posix())
        archive.writestr("../config.json", "{}")
        archive.writestr("0_a/../../config.json", "{}")
    assert bert_core.load(path, device="cpu").pooling is not None
    assert not (tmp_path.parent / "config.json").exists()


def test_a_model_without_such_a_file_pools_by_the_mean(tiny_loaded: bert_core.LoadedModel) -> None:
    """The mean of all states, which its file does not say; and an unknown way is refused."""
    assert tiny_loaded.pooling is None and tiny_loaded.effective_pooling == Pools("mean")
    with pytest.raises(Refused, match="the pooling mode is 'median'"):
        Pools("median")
