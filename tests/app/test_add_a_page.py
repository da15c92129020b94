"""docs/add_a_page.md: what it says to write is a page that opens, with its choice in the address."""

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
GUIDE = (ROOT / "docs" / "add_a_page.md").read_text(encoding="utf-8")
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
assert app.header[0].value == "How far does each layer look?"
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


def test_the_rows_of_the_guide_let_the_page_import_what_it_imports(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of the page imports only what the row of the test lists, and the row of the document is the same."""
    rows = {name: text for name, _, text in STEPS if name in ("docs/architecture.md", "tests/test_architecture.py")}
    ((package, allowed),) = eval(f"{{{rows['tests/test_architecture.py']}}}").items()
    monkeypatch.setitem(test_architecture.MAY_IMPORT, package, allowed)
    monkeypatch.setattr(test_architecture, "ROOT", copy)
    for file in (copy / "viz_app" / "pages" / "reach").glob("*.py"):
        module = ".".join(file.relative_to(copy).with_suffix("").parts).removesuffix(".__init__")
        assert test_architecture.disallowed_imports(module, file.read_text(encoding="utf-8")) == set(), file.name
    assert test_architecture.parse_table(rows["docs/architecture.md"]) == {package: allowed}


def test_the_guide_adds_every_kind_of_file() -> None:
    """The declaration, its place in the navigation, a companion, what draws it, and both rows."""
    assert [name for name, _, _ in STEPS] == [
        "viz_app/pages/reach/__init__.py", "viz_app/pages/__init__.py", "viz_app/pages/__init__.py",
        "viz_app/pages/reach/distances.py", "viz_app/pages/reach/page.py", "docs/architecture.md",
        "tests/test_architecture.py",
    ]  # fmt: skip
