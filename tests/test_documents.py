"""The guides and the pages made from docstrings: their examples run, and every public name is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bert_core

ROOT = Path(__file__).parents[1]
# The other guides with examples are run where what they promise is checked, in tests/core and tests/app.
ELSEWHERE = {"add_a_page.md", "decoder.md", "methods.md", "numpy_bert.md", "probes.md", "pruning.md"}
EXAMPLES = {
    path.name: re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    for path in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md")
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, blocks in EXAMPLES.items() if blocks and name not in ELSEWHERE])
def test_the_examples_of_a_guide_run_as_they_stand(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom in one session, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in EXAMPLES[name]:
        exec(compile(block, name, "exec", dont_inherit=True), names)


def test_every_guide_with_examples_is_run() -> None:
    """Those left to another test are there, have examples, and are read by a test of tests/core or tests/app."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py"))
    assert all(EXAMPLES[name] and f'"{name}"' in tests for name in ELSEWHERE)


@pytest.mark.slow
def test_the_reference_holds_every_public_name_and_every_guide(tmp_path: Path) -> None:
    """`make docs` gives each name its place with its docstring, each guide a page, and asks no other address."""
    command = [sys.executable, str(ROOT / "docs" / "build.py"), str(tmp_path / "api")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    reference = (tmp_path / "api" / "bert_core.html").read_text(encoding="utf-8")
    assert [name for name in bert_core.__all__ if f'id="{name}"' not in reference] == []
    assert "<p>Raises Refused if there is no mask" in reference, "a paragraph of its own"  # of word_target
    assert '<span class="go">comprehensiveness: 0.67</span>' in reference, "a line of an example"  # of faithfulness
    first = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    for address in re.findall(r'href="([^"#]+)', first):
        assert (tmp_path / "api" / address).is_file(), address
    assert {f"{name.removesuffix('.md')}.html" for name in EXAMPLES} - {"README.html"} == {
        path.name for path in (tmp_path / "api" / "guides").glob("*.html")
    }
    for page in (tmp_path / "api").rglob("*.html"):
        fetched = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page.read_text(encoding="utf-8"))
        assert [address for address in fetched if address.startswith(("http", "//"))] == [], page.name
