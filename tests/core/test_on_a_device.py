"""bert_core on a GPU: every public path gives the numbers of the CPU, on an emulated device and on a real one."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import bert_core
from tests import device_paths
from tests.emulated_device import unavailable
from tests.families import save_family

ROOT = Path(__file__).parents[2]
# How often a path may wait for the device: for one text, for one batch of texts, and for a text by greedy decoding.
BOUNDS = {
    **dict.fromkeys((name for name in device_paths.PATHS if name.startswith("capture")), 2),
    "capture_with_edits": 4,  # two texts
    "captures_with_gradients": 4,  # the value of a function is checked for each of two texts
    "word_states_of_texts": 1,
    "attention_maps_of_texts": 1,
    "states_of_texts": 3,  # depths
    "logit_lens": 6,  # two for each of three depths
    "greedy_decoding": 4,  # of 24 tokens: one for every 8, and one for the prompt
}
STEPS_BETWEEN_READINGS = 10  # of training
MODELS = ("LoadedModel", "LoadedDecoder", "LoadedCaptioner", "BertLMHeadModel", "Model")
# What a device refuses, and the error of torch for it.
REFUSALS = {
    "a + torch.ones(3)": "Expected all tensors to be on the same device",
    "torch.ones(2, 3) @ a": "Expected all tensors to be on the same device",
    "torch.ones(3).add_(a)": "Expected all tensors to be on the same device",
    "torch.ones(3)[a.long()]": "indices should be either on cpu",
    "torch.nn.functional.embedding(torch.tensor([0]), a[:, None])": "Expected all tensors to be on the same device",
    "torch.cat([a, torch.ones(3)])": "Expected all tensors to be on the same device",
    "torch.where(torch.ones(3) > 0, a, a)": "Expected all tensors to be on the same device",
    "torch.randn(3, device=kind, generator=torch.Generator())": "device type for generator",
    "a.numpy()": "can't convert",
    "numpy.asarray(a)": "can't convert",
}
ONLY = {
    "cuda": {"torch.ones(2, 2, device=kind).long() @ torch.ones(2, 2, device=kind).long()": "not implemented for"},
    "mps": {"a.double()": "doesn't support float64", "torch.ones(3).double().to(kind)": "doesn't support float64"},
}
# What a device does as the CPU does it; each line is true.
ANSWERS = (
    "a.device == torch.device(kind, 0)",
    "(a + torch.tensor(2.0)).tolist() == [3.0, 3.0, 3.0]",
    "a[torch.tensor([1, 0])].cpu().tolist() == [1.0, 1.0]",
    "torch.zeros(3).copy_(a).tolist() == [1.0, 1.0, 1.0]",
    "torch.autograd.grad((b * b).sum(), b)[0].tolist() == [2.0, 2.0, 2.0]",
    "a.cpu().double().dtype == torch.float64",
)
EVALUATE = """
import json, sys
import numpy
import torch
from tests import emulated_device
kind, lines = sys.argv[1], json.loads(sys.argv[2])
emulated_device.install(kind)
a = torch.ones(3, device=kind)
b = torch.ones(3, device=kind, requires_grad=True)
answers = {}
for line in lines:
    try:
        answers[line] = repr(eval(line))
    except (RuntimeError, TypeError) as error:
        answers[line] = str(error)
print(json.dumps(answers))
emulated_device.leave()
"""


def run(*arguments: str) -> str:
    """What a new Python process, in which the emulator may change torch, prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def model_folders(
    tiny_model_folder: Path,
    tiny_classifier_folder: Path,
    tiny_tagger_folder: Path,
    tiny_reader_folder: Path,
    tiny_chooser_folder: Path,
    tmp_path: Path,
) -> Path:
    """The file that names the checkpoint folders."""
    save_family("modernbert", tmp_path / "pre_norm")
    folders = {
        "tiny": tiny_model_folder,
        "pre_norm": tmp_path / "pre_norm",
        "classifier": tiny_classifier_folder,
        "tagger": tiny_tagger_folder,
        "reader": tiny_reader_folder,
        "chooser": tiny_chooser_folder,
    }
    path = tmp_path / "folders.json"
    path.write_text(json.dumps({name: str(folder) for name, folder in folders.items()}), encoding="utf-8")
    return path


def outcomes(kind: str, folders: Path, *more: str) -> dict[str, dict[str, Any]]:
    """What every path gave in a process of its own."""
    report = folders.with_name("report.json")
    run("-m", "tests.device_paths", kind, str(folders), str(report), *more)
    return json.loads(report.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def failures(of_paths: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The paths that raised an error, or whose numbers are not those of the CPU."""
    return {
        name: outcome
        for name, outcome in of_paths.items()
        if "error" in outcome or not outcome["difference"] <= device_paths.TOLERANCE
    }


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_the_emulator_behaves_as_a_device(kind: str) -> None:
    """It refuses what the device refuses, with the error of torch, and computes the rest."""
    refused = REFUSALS | ONLY[kind]
    answers = json.loads(run("-c", EVALUATE, kind, json.dumps([*refused, *ANSWERS])))
    assert [line for line, message in refused.items() if message not in answers[line]] == []
    assert [line for line in ANSWERS if answers[line] != "True"] == []


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_every_path_on_an_emulated_device(kind: str, model_folders: Path) -> None:
    """On a device that refuses what CUDA or MPS refuses each path gives the numbers of the CPU, and seldom waits."""
    of_paths = outcomes(kind, model_folders, "--emulated")
    assert of_paths.keys() == device_paths.PATHS.keys()
    assert failures(of_paths) == {}
    counts = {name: sum(outcome["synchronisations"].values()) for name, outcome in of_paths.items()}
    assert {name: counts[name] for name, bound in BOUNDS.items() if not 0 < counts[name] <= bound} == {}
    for loop in ("pretrain", "tune_lens"):
        more = counts[f"{loop}_60_steps"] - counts[f"{loop}_20_steps"]
        assert 0 < more <= (60 - 20) / STEPS_BETWEEN_READINGS, loop


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_every_path_on_the_device_of_this_machine(kind: str, model_folders: Path) -> None:
    """On a GPU that is there each path gives the numbers of the CPU."""
    if not {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}[kind]():
        pytest.skip(f"this machine has no {kind} device")
    assert failures(outcomes(kind, model_folders)) == {}


def test_every_public_function_with_a_model_has_a_path() -> None:
    """Each public function that takes a model or a device is called by a path."""
    takes_model = set()
    for name in bert_core.__all__:
        function = getattr(bert_core, name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            words = {word for parameter in parameters for word in str(parameter.annotation).replace("|", " ").split()}
            if words & set(MODELS) or any(parameter.name == "device" for parameter in parameters):
                takes_model.add(name)
    tree = ast.parse(Path(device_paths.__file__).read_text(encoding="utf-8"))
    called = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bert_core"
    }
    assert len(takes_model) > 50 and takes_model - called == set()
