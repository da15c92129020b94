"""What every test starts from: a tiny seeded model and its vocabulary."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Read when torch and NumPy are first imported. Tiny matrices are fastest on one thread: two spend their time waiting
# for each other, and the suite runs a process a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from filelock import FileLock

import bert_core
from bert_core import BertConfig, BertForPreTraining, LoadedModel, checkpoint
from bert_core.tokenizer import SPECIAL_TOKENS

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SIGNS = ".,!?'\"-:;()"
WORDS = """
the a an cat dog mat door house city river capital king queen man woman child people sat ran went saw opened closed
is was are were has had said on in of to at by for from with and or but not he she it they his her paris france
london england red blue big small old new one two three day night ##s ##ed ##ing ##er ##ly
"""
# Each piece once ("a" is both a letter and a word); every letter is there, so that no plain English is [UNK].
VOCABULARY = tuple(
    dict.fromkeys([*SPECIAL_TOKENS, *SIGNS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS.split()])
)
TAGS = ("O", "B-PER", "I-PER", "B-**b** <i>[x](http://e.org)", "I-**b** <i>[x](http://e.org)")


RUN_FOLDER = "HEADLIGHT_TEST_RUN"  # environment variable that names the folder which all processes of a run share
APP_SERVER = "app.json"  # in that folder: address, process and log of the app server of this run


def pytest_configure(config: pytest.Config) -> None:
    """Create the folder that all processes of this run share; workers of xdist inherit the variable that names it."""
    if not hasattr(config, "workerinput"):
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="headlight-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the app server of this run, if a worker started it, and remove the shared folder."""
    if hasattr(config, "workerinput") or RUN_FOLDER not in os.environ:
        return
    folder = Path(os.environ.pop(RUN_FOLDER))
    if (folder / APP_SERVER).is_file():
        stop_server(**json.loads((folder / APP_SERVER).read_text(encoding="utf-8")))
    shutil.rmtree(folder, ignore_errors=True)


def stop_server(port: int, pid: int) -> None:
    """Terminate a server that another process started, and wait until its port is closed."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    for _ in range(300):
        with socket.socket() as client:
            if client.connect_ex(("localhost", port)):
                return
        time.sleep(0.1)


def built_once(name: str, build: Callable[[Path], object]) -> Path:
    """A folder that the first process to need it builds, and that all processes of this run read."""
    folder = Path(os.environ[RUN_FOLDER]) / name
    with FileLock(folder.with_name(f"{name}.lock")):
        if not folder.is_dir():
            unfinished = folder.with_name(f"{name}.unfinished")
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(folder)
    return folder


def exported_mini() -> Path:
    """Return the folder of the bundled model as a graph with gradients, exported once for all tests of a run."""

    def export(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the exporter of PyTorch
            bert_core.export_onnx(bert_core.load("headlight-mini", device="cpu"), folder, gradients=True)

    return built_once("mini-onnx", export)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long start first, so that no process is left alone with one: pages in a browser before all.

    Tests marked `release` are slow too.
    """
    for item in items:
        if item.get_closest_marker("release"):
            item.add_marker(pytest.mark.slow)
    order = {"browser": 0, "site": 0, "tests": 1, "app": 2, "core": 3}
    items.sort(key=lambda item: order[item.path.parent.name])


@pytest.fixture(scope="session")
def tiny_config() -> BertConfig:
    """2 layers of 4 heads of 8, up to 512 tokens."""
    return BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.3,  # peaked attention: at 0.02 every map is flat and most gradients vanish
    )


@pytest.fixture(scope="session")
def tiny_model_folder(tiny_config: BertConfig) -> Path:
    """A checkpoint folder with both heads and a tokenizer; read it, do not write to it."""

    def build(folder: Path) -> None:
        torch.manual_seed(0)
        BertForPreTraining(tiny_config).save_pretrained(folder)
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}), encoding="utf-8")

    return built_once("tiny-bert", build)


@pytest.fixture(scope="session")
def tiny_loaded(tiny_model_folder: Path) -> LoadedModel:
    """That checkpoint, loaded on the CPU."""
    return bert_core.load(str(tiny_model_folder), device="cpu")


def with_head(tiny: Path, head: dict[str, torch.Tensor], config: BertConfig, folder: Path) -> Path:
    """Write the tiny checkpoint with one head more, and its vocabulary, into a folder; returns that."""
    checkpoint.write_tensors({**checkpoint.read_weights(tiny), **head}, config, folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).write_bytes((tiny / name).read_bytes())
    return folder


def tiny_with_head(
    tiny: Path, name: str, seed: int, config: BertConfig, head: Callable[[], dict[str, torch.Tensor]]
) -> Path:
    """A folder with the tiny checkpoint and one head more, whose tensors `head` draws after the seed was set."""

    def build(folder: Path) -> None:
        torch.manual_seed(seed)
        with_head(tiny, head(), config, folder)

    return built_once(name, build)


def named(config: BertConfig, architecture: str) -> BertConfig:
    """The configuration of a checkpoint that names its architecture."""
    return config.replace(extra={**config.extra, "architectures": [architecture]})


@pytest.fixture(scope="session")
def tiny_tagger_folder(tiny_model_folder: Path) -> Path:
    """The same checkpoint with a tagger of persons and places beside its heads, in IOB2; one name is full of signs."""
    config = named(checkpoint.read_config(tiny_model_folder).with_labels(TAGS), "BertForTokenClassification")
    size, tags = config.hidden_size, len(TAGS)
    return tiny_with_head(
        tiny_model_folder, "tiny-tagger", 2, config,
        lambda: {"classifier.weight": torch.randn(tags, size), "classifier.bias": torch.zeros(tags)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_reader_folder(tiny_model_folder: Path) -> Path:
    """The same checkpoint with a reader, which finds answers, beside its heads."""
    config = named(checkpoint.read_config(tiny_model_folder), "BertForQuestionAnswering")
    return tiny_with_head(
        tiny_model_folder, "tiny-reader", 3, config,
        lambda: {"qa_outputs.weight": torch.randn(2, config.hidden_size), "qa_outputs.bias": torch.randn(2)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_chooser_folder(tiny_model_folder: Path) -> Path:
    """The same checkpoint with a chooser, which scores answers to choose from, beside its heads."""
    config = named(checkpoint.read_config(tiny_model_folder), "BertForMultipleChoice")
    return tiny_with_head(
        tiny_model_folder, "tiny-chooser", 4, config,
        lambda: {"classifier.weight": torch.randn(1, config.hidden_size), "classifier.bias": torch.randn(1)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_classifier_folder(tiny_model_folder: Path) -> Path:
    """The same checkpoint with a classifier beside its heads; one of its three classes has a name full of signs."""
    config = checkpoint.read_config(tiny_model_folder).with_labels(["pet", "ruler", "**b** <i>[x](http://e.org)"])
    return tiny_with_head(
        tiny_model_folder, "tiny-classifier", 1, config,
        lambda: {"classifier.weight": torch.randn(3, config.hidden_size), "classifier.bias": torch.randn(3)},
    )  # fmt: skip
