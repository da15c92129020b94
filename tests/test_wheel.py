"""What `pip install` of the built wheel gives, far from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bert_core

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("bert_core", "viz_app")
SOURCES = (*PACKAGES, "streamlit_app.py", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An otherwise empty folder with the wheel in it, built without a network from a copy of the sources."""
    work = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, work / "source" / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copyfile(source, work / "source" / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--isolated"]
    offline = ["--no-index", "--no-deps", "--quiet"]
    _run([*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", work, work / "source"], work)
    (wheel,) = work.glob(f"headlight-{bert_core.__version__}-*.whl")
    _run([*pip, "install", *offline, "--target", work / "installed", wheel], work)
    return work / "installed"


def _run(command: list[object], folder: Path, **environment: str) -> str:
    """Output of a command, run in a folder from which the checkout cannot be seen."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_wheel_holds_every_file_of_the_packages(installed: Path) -> None:
    """Modules, pages, component assets, theme and bundled model: what the checkout has, the wheel has."""
    ours = {
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and not any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    assert {path for path in ours if not (installed / path).is_file()} == set()
    assert any(path.suffix == ".js" for path in ours)
    assert (installed / "streamlit_app.py").is_file()


def test_the_installed_library_loads_the_bundled_model_and_predicts(installed: Path, tmp_path: Path) -> None:
    """Outside the checkout, with its own files only, the default model guesses a word and judges a pair."""
    code = """
import json, sys
from importlib.util import find_spec
import bert_core, numpy as np
loaded = bert_core.load(device="cpu")
run = bert_core.capture(loaded, loaded.tokenizer.encode("She opened the [MASK].", "The room was dark."))
captioner = bert_core.load_captioner(device="cpu")
side = captioner.config.image_size
print(json.dumps({
    "caption": captioner.caption(np.zeros((side, side, 3), np.uint8)),
    "files": [find_spec(name).origin for name in ("bert_core", "viz_app", "streamlit_app")],
    "heads": [loaded.has_mlm, loaded.has_nsp],
    "total": float(run.predictions[0].probabilities.sum()),
    "compiler": "torch._dynamo" in sys.modules,
    "nsp": run.nsp,
}))
"""
    found = json.loads(_run([sys.executable, "-c", code], tmp_path, PYTHONPATH=str(installed)))
    assert all(Path(file).is_relative_to(installed) for file in found["files"])
    assert found["heads"] == [True, True]
    assert not found["compiler"], "torch's compiler takes a second to import, and nothing here needs it"
    assert isinstance(found["caption"], str)
    assert found["total"] == pytest.approx(1, abs=1e-4)
    assert 0 < found["nsp"] < 1


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    """`headlight` is on the path of an install: it explains `app`, lists the bundled model and predicts with it."""
    headlight, where = installed / "bin" / "headlight", str(installed)
    assert "--models" in _run([headlight, "app", "--help"], tmp_path, PYTHONPATH=where)
    assert _run([headlight, "models"], tmp_path, PYTHONPATH=where).startswith("headlight-mini  6 layers x 12 heads")
    predicted = _run([headlight, "predict", "She opened the [MASK]."], tmp_path, PYTHONPATH=where)
    assert len(predicted.splitlines()) == 6
