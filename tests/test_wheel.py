"""What `pip install` gives, of the wheel, the sdist and a checkout that can be edited (`-e`), far from the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import bert_core

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("bert_core", "viz_app")
SDIST_FILES = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "MANIFEST.in")
SOURCES = (*PACKAGES, "streamlit_app.py", "pyproject.toml", *SDIST_FILES)
# Files of a checkout that no distribution may contain.
UNWANTED = (
    "tests/test_a.py",
    "tests/data/a.txt",
    "build/lib/a.py",
    "dist/a.whl",
    "runs/model/config.json",
    ".venv/a.py",
)
MAX_BYTES = 100_000_000  # of a file on the package index

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--isolated"]
OFFLINE = ["--no-index", "--no-deps", "--quiet"]

USER_SCRIPT = """
from __future__ import annotations

import bert_core
import torch
from bert_core import Encoding, HeadSweep, LoadedModel, ModelRun, Refused, Target, capture, load, record, word_target
from viz_app.export.pictures import picture_of
from viz_app.maps import Combination, MapView
from viz_app.notebook import AttentionDisplay, view, view_maps


def strongest_head(run: ModelRun, layer: int) -> int:
    return int(run.attention[layer].max(axis=(1, 2)).argmax())


loaded: LoadedModel = load("headlight-mini", device="cpu")
encoding: Encoding = loaded.tokenizer.encode("She opened the [MASK].", "The room was dark.")
target: Target = word_target(loaded.tokenizer, encoding, "door")
run: ModelRun = capture(loaded, encoding, target=target, norms=True)
head: int = strongest_head(run, 2)
words: list[str] = [loaded.tokenizer.token_of(piece) for piece, _ in run.predictions[0].top]
gates = bert_core.head_mask_without(loaded.config, [(2, 1)])
runs: list[ModelRun] = bert_core.captures(loaded, [encoding], head_mask=gates)
sweep: HeadSweep = bert_core.ablate_heads(loaded, encoding, target=target)
scores = bert_core.token_scores(loaded, encoding, target, [bert_core.METHODS[0].name], run=run)
rollout = bert_core.attention_rollout(run.attention)
cut = capture(bert_core.edited(loaded, [bert_core.AttentionKnockout(keys=(1,), layers=(2,))]), encoding)
with record([2]) as recording:
    loaded.model.bert(torch.tensor([encoding.input_ids]))
display: AttentionDisplay = view(run, "product", layer=2, heads=(head,), theme="dark")
view_maps(run.attention, encoding.tokens, encoding.tokens, layer=2)
view_maps(tuple(recording.attention.values()), encoding.tokens, encoding.tokens)
picture: bytes = picture_of(run, MapView(layer=2, heads=(1, 5), combination=Combination("average")), "svg")
try:
    view(run, layer=9)
except Refused as error:
    print(error, len(words), scores.shape, rollout.shape, len(picture) > 0, len([*runs, cut]), sweep)
"""
WRONG_SCRIPT = """
import bert_core
from viz_app.notebook import view

bert_core.capture(1, 2, nonsense=3)
bert_core.capture_all
view(run=1)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what an installation is built from."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copyfile(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network from a copy of the sources."""
    work = tmp_path_factory.mktemp("wheel")
    _run([*PIP, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", work, sources], work)
    (wheel,) = work.glob(f"headlight-{bert_core.__version__}-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """An otherwise empty folder with the wheel in it."""
    folder = wheel.parent / "installed"
    _run([*PIP, "install", *OFFLINE, "--target", folder, wheel], wheel.parent)
    return folder


@pytest.fixture(scope="module")
def distributions(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that is built from it, of sources among what a checkout also has."""
    checkout = tmp_path_factory.mktemp("checkout") / "headlight"
    shutil.copytree(sources, checkout)
    for name in UNWANTED:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    folder = tmp_path_factory.mktemp("distributions")
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout], folder)
    return folder


@pytest.fixture(scope="module")
def environment(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with an editable installation; other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    packages = Path(_run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    # Only the folders: .pth files in them, as that of the checkout's own installation, are not read.
    (packages / "packages_of_the_tests.pth").write_text(
        "\n".join({sysconfig.get_path(n) for n in ("purelib", "platlib")})
    )
    _run([*PIP, "--python", python, "install", *OFFLINE, "--no-build-isolation", "-e", sources], folder)
    return python


def _package_files() -> set[Path]:
    """All files of the packages in the checkout, by their paths in it."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    names = (path.relative_to(ROOT) for path in paths)
    return {name for name in names if not any(part == "__pycache__" or part.startswith(".") for part in name.parts)}


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
    ours = _package_files()
    assert {path for path in ours if not (installed / path).is_file()} == set()
    assert any(path.suffix == ".js" for path in ours)
    assert (installed / "streamlit_app.py").is_file()
    assert not (installed / "tools").exists()


def test_the_sdist_has_the_sources_and_nothing_else(distributions: Path) -> None:
    """All files of the packages and those about the project, under one folder; no tests and no outputs of a build."""
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name for entry in sdist.getmembers() if entry.isfile() for _, _, name in [entry.name.partition("/")]}
    assert {*SDIST_FILES, "pyproject.toml", "streamlit_app.py", "PKG-INFO"} <= names
    others = {name for name in names if name.partition("/")[0] not in (*PACKAGES, "headlight.egg-info")}
    assert others - {*SDIST_FILES, "pyproject.toml", "streamlit_app.py", "PKG-INFO", "setup.cfg"} == set()
    assert {name for name in names if name.startswith(PACKAGES)} >= set(map(str, _package_files()))
    assert path.stat().st_size < MAX_BYTES


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(distributions: Path, wheel: Path) -> None:
    """The same files with the same contents; the metadata is valid, and has the version and the addresses."""
    (from_sdist,) = distributions.glob("*.whl")
    assert from_sdist.name == wheel.name and from_sdist.stat().st_size < MAX_BYTES
    with zipfile.ZipFile(from_sdist) as one, zipfile.ZipFile(wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
        sums = ({entry.filename: entry.CRC for entry in archive.infolist()} for archive in (one, other))
        assert next(sums) == next(sums)
        (name,) = (name for name in one.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(one.read(name), validate=True)
    assert (metadata.name, str(metadata.version)) == ("headlight", bert_core.__version__)
    assert metadata.description_content_type == "text/markdown" and metadata.description
    assert metadata.project_urls and metadata.project_urls.keys() >= {"Homepage", "Documentation", "Changelog"}
    assert metadata.license_expression == "Apache-2.0"


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


def test_a_script_passes_mypy_strict_with_an_editable_installation(
    environment: Path, sources: Path, tmp_path: Path
) -> None:
    """mypy finds both packages and their types from another folder, and the same script runs there."""
    (tmp_path / "script.py").write_text(USER_SCRIPT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG_SCRIPT, encoding="utf-8")
    clean = {"PYTHONPATH": "", "MYPYPATH": ""}  # the checkout is not on the path
    where = "import bert_core, viz_app; print(bert_core.__file__, viz_app.__file__)"
    assert [Path(file).parents[1] for file in _run([environment, "-c", where], tmp_path, **clean).split()] == [
        sources
    ] * 2
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--python-executable", environment]
    assert _run([*mypy, "script.py"], tmp_path, **clean) == "Success: no issues found in 1 source file\n"
    assert _run([environment, "script.py"], tmp_path, **clean).startswith("layer 9 does not exist")
    wrong = subprocess.run(
        [*map(str, mypy), "wrong.py"], cwd=tmp_path, env={**os.environ, **clean}, capture_output=True, text=True
    )
    assert re.findall(r"wrong.py:(\d+): error: .*\[(.*)\]", wrong.stdout) == [
        ("5", "call-arg"), ("5", "arg-type"), ("5", "arg-type"), ("6", "attr-defined"), ("7", "arg-type"),
    ]  # fmt: skip
