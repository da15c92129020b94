"""docs/contributing/add-a-page.md: what it says to write is a page that opens, with its choice in the address."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import test_architecture

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "contributing" / "add-a-page.md").read_text(encoding="utf-8")
# A file is named, then what stands in it or changes in it: one block, or several changes.
STEPS = [
    (name, kind, text)
    for name, blocks in re.findall(r"^`([\w./]+)`:\n((?:\n```\w+\n.*?\n```\n)+)", GUIDE, re.DOTALL | re.MULTILINE)
    for kind, text in re.findall(r"```(\w+)\n(.*?\n)```", blocks, re.DOTALL)
]
VISIT = """
from tests.visit import settled, visited, words

app = settled(visited("reach", text="She opened the door.", reach="range"))
assert not app.exception and not app.error
assert app.title[0].value == "Attention distance"
assert app.session_state.reach == "range" and app.query_params["reach"] == "range"
assert "How to read this" in words(app) and "How it can mislead" in words(app)
(figure,) = app.get("plotly_chart")
for name in ("mean of the heads", "nearest head", "farthest head"):
    assert name in figure.proto.spec, name
plain = settled(visited("reach", text="She opened the door."))
assert plain.session_state.reach == "mean" and "reach" not in plain.query_params
assert not settled(visited("predict")).exception
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app with what the guide adds to it."""
    folder = tmp_path_factory.mktemp("app")
    shutil.copy(ROOT / "streamlit_app.py", folder)
    for name in ("viz_app", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "screenshots", "api"))
    for name, kind, text in STEPS:
        file = folder / name
        if kind == "diff":
            lines = text.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
            whole = file.read_text(encoding="utf-8")
            assert whole.count(old) == 1, f"{name} has no such lines any more:\n{old}"
            file.write_text(whole.replace(old, new), encoding="utf-8")
        elif not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_page_of_the_guide_opens_and_its_choice_is_in_the_address(copy: Path) -> None:
    """In a copy of the app with the files of the guide the page draws what it promises, and links hold its choice."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", VISIT], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_the_page_of_the_guide_imports_what_pages_may_import(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file imports only what the row of all pages lists, so that the page needs no row of its own."""
    monkeypatch.setattr(test_architecture, "ROOT", copy)
    for file in (copy / "viz_app" / "pages" / "reach").glob("*.py"):
        module = ".".join(file.relative_to(copy).with_suffix("").parts).removesuffix(".__init__")
        assert test_architecture.disallowed_imports(module, file.read_text(encoding="utf-8")) == set(), file.name


def test_the_guide_is_short_and_names_eight_concepts() -> None:
    """At most 60 lines; the concepts that it lists at its start are eight, and it explains each of them."""
    assert len(GUIDE.splitlines()) <= 60
    listed = re.search(r"eight concepts: (.*?) and a figure\.", GUIDE)
    assert listed is not None
    concepts = re.findall(r"`(\w+)`", listed[1])
    assert len(concepts) == 7  # and the figure
    for concept in concepts:
        assert GUIDE.count(concept) > 1, concept


def test_the_guide_adds_every_kind_of_file() -> None:
    """The texts, the declaration, what draws the page, and its place in the navigation."""
    assert [name for name, _, _ in STEPS] == [
        "viz_app/texts/en/reach.toml",
        "viz_app/pages/reach/__init__.py", "viz_app/pages/reach/page.py", "viz_app/pages/__init__.py",
    ]  # fmt: skip
