"""Folders of sentence-transformers: they load, and their vectors are those that its own program computes."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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
    """A folder as sentence-transformers writes it today, written without it."""
    shutil.copytree(encoder, folder)
    _changed(folder, "tokenizer_config.json", lambda values: values.update(model_max_length=limit))
    types = ["base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling"]
    types += ["base.modules.normalize.Normalize"] * normal
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind.rpartition('.')[2]}" if number else "",
            "type": f"sentence_transformers.{kind}",
        }
        for number, kind in enumerate(types)
    ]
    config = json.loads((folder / "config.json").read_text())
    hidden_size = config["dim" if config["model_type"] == "distilbert" else "hidden_size"]
    pooling = {"embedding_dimension": hidden_size, "pooling_mode": mode, "include_prompt": True}
    output = "sentence_embedding"
    files: dict[str, object] = {
        "modules.json": modules,
        "sentence_bert_config.json": {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            "module_output_name": "token_embeddings",
        },
        "config_sentence_transformers.json": {
            "__version__": {},
            "default_prompt_name": None,
            "model_type": "SentenceTransformer",
            "prompts": {"document": "", "query": ""},
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": pooling,
    }
    if normal:
        files["2_Normalize/config.json"] = {"module_input_name": output, "module_output_name": output}
    for name, values in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(values))
    return folder


def folder_of_the_reference(
    encoder: Path, folder: Path, mode: str = "mean", *, normal: bool = True, limit: int = 40
) -> Path:
    """The same folder, written by sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

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
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(list(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet"])
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_vectors_are_those_of_sentence_transformers(
    encoders: dict[str, Path], tmp_path: Path, family: str, mode: str
) -> None:
    """In each mode, of each family, texts cut where its file says; and again from what we write."""
    folder = folder_of_the_reference(encoders[family], tmp_path / "sentences", mode, normal=mode != "max")
    loaded = bert_core.load(folder, device="cpu")
    assert loaded.pooling == Pools(mode, normalize=mode != "max", max_length=40)
    expected = theirs(folder)
    assert_near(vectors(loaded), expected)
    written = bert_core.save(loaded, tmp_path / "written")
    assert_near(theirs(written), expected)
    again = bert_core.load(written, device="cpu")
    assert again.pooling == loaded.pooling
    assert np.array_equal(vectors(again), vectors(loaded))


@pytest.mark.slow
@pytest.mark.parametrize("normal", [True, False])
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet"])
def test_the_folders_of_these_tests_are_those_that_sentence_transformers_writes(
    encoders: dict[str, Path], tmp_path: Path, family: str, normal: bool
) -> None:
    """The same modules and settings beside the encoder, except versions; the same length; and it reads ours."""
    ours = sentences_folder(encoders[family], tmp_path / "ours", normal=normal)
    reference = folder_of_the_reference(encoders[family], tmp_path / "reference", normal=normal)
    own_files = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
    own_files |= {f"{file.parent.name}/config.json" for file in reference.glob("*_*/config.json")}
    for name in own_files:
        written, expected = (json.loads((folder / name).read_text()) for folder in (ours, reference))
        if name == "config_sentence_transformers.json":
            expected["__version__"] = {}
        assert written == expected, name
    lengths = [
        json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] for folder in (ours, reference)
    ]
    assert lengths == [40, 40]
    assert_near(theirs(ours), theirs(reference))


def test_the_older_layout_loads(encoders: dict[str, Path], tmp_path: Path) -> None:
    """Weights in 0_Transformer are found, and their vectors are the same."""
    expected = vectors(bert_core.load(sentences_folder(encoders["bert"], tmp_path / "today"), device="cpu"))
    loaded = bert_core.load(older(sentences_folder(encoders["bert"], tmp_path / "sentences")), device="cpu")
    assert loaded.pooling == Pools("mean", normalize=True, max_length=40)
    assert np.array_equal(vectors(loaded), expected)


@pytest.mark.slow
def test_vectors_of_the_older_layout_are_those_of_sentence_transformers(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    """It reads the older layout as we do."""
    folder = older(folder_of_the_reference(encoders["bert"], tmp_path / "sentences"))
    assert_near(vectors(bert_core.load(folder, device="cpu")), theirs(folder))


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
    """A pruned model keeps how it pools, and its vectors."""
    loaded = bert_core.load(sentences_folder(encoders["bert"], tmp_path / "sentences"), device="cpu")
    pruned = bert_core.pruned(loaded, [(0, 1), (1, 0), (1, 3)])
    again = bert_core.load(bert_core.save(pruned, tmp_path / "pruned"), device="cpu")
    assert again.pooling == loaded.pooling
    assert np.array_equal(vectors(again), vectors(pruned))


@pytest.mark.slow
def test_sentence_transformers_reads_a_pruned_one(encoders: dict[str, Path], tmp_path: Path) -> None:
    """With zeros in the places of its heads."""
    loaded = bert_core.load(sentences_folder(encoders["bert"], tmp_path / "sentences"), device="cpu")
    pruned = bert_core.pruned(loaded, [(0, 1), (1, 0), (1, 3)])
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


def in_lower_case(tmp_path: Path) -> Path:
    """A folder of a vocabulary with capitals that asks for lower case."""
    folder = tmp_path / "cased"
    save_family("distilbert", folder, cased=True)
    sentences = sentences_folder(folder, tmp_path / "sentences")
    _changed(sentences, "sentence_bert_config.json", lambda values: values.update(do_lower_case=True))
    return sentences


def test_lower_case_where_the_file_says_so(tmp_path: Path) -> None:
    """A vocabulary with capitals reads in lower case if the file asks for it; so does what we write."""
    loaded = bert_core.load(in_lower_case(tmp_path), device="cpu")
    for reader in (loaded, bert_core.load(bert_core.save(loaded, tmp_path / "written"), device="cpu")):
        assert read_sentence(reader, "A King").tokens == read_sentence(reader, "a king").tokens


@pytest.mark.slow
def test_lower_case_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    """Its vectors are ours, of such a folder and of what we write."""
    sentences = in_lower_case(tmp_path)
    loaded = bert_core.load(sentences, device="cpu")
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
        r"names the folder '9_Pooling' of the pooling: it has no config\.json$",
    ),
    "an encoder that is missing": (
        "modules.json", lambda m: m[0].update(path="0_Elsewhere"),
        r"names the folder '0_Elsewhere' of the encoder: it has no config\.json$",
    ),
    "a path that leads out": (
        "modules.json", lambda m: m[1].update(path="../1_Pooling"), r"names the folder '\.\./1_Pooling': it must be",
    ),
    "a path from the root": (
        "modules.json", lambda m: m[0].update(path="/etc"), r"names the folder '/etc': it must be inside",
    ),
    "a path of Windows": (
        "modules.json", lambda m: m[0].update(path="C:\\x"), r"names the folder .*: it must be inside",
    ),
    "a module that is not read": (
        "modules.json", lambda m: m.insert(2, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}),
        r"names Transformer, Pooling, Dense, Normalize: it must name one of .*. Remove the file to read the encoder",
    ),
    "another's code": (
        "modules.json", lambda m: m[0].update(type="custom_st.Transformer"), r"names custom_st\.Transformer, Pooling",
    ),
    "a module without a type": ("modules.json", lambda m: m[0].pop("type"), r"it must have a type and a path$"),
    "two ways at once": (
        "1_Pooling/config.json", lambda c: c.update(pooling_mode=["cls", "mean"]), r"pooling mode \['cls', 'mean'\]",
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
        r"prepends 'query: ' to every text",
    ),
    "an architecture that is not read": (
        "config.json", lambda c: c.update(model_type="nomic_bert"), r"type 'nomic_bert', which rotates queries",
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
