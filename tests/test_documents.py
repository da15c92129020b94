"""The documents and their site: examples run, links lead somewhere, and every public name has a docstring there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image

import bert_core
from viz_app.pages import PAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# The other documents with examples are run where what they promise is checked, in tests/core and tests/app.
ELSEWHERE = {
    "docs/contributing/add-a-page.md", "docs/reference/decoder.md", "docs/reference/methods.md",
    "docs/reference/numpy.md", "docs/how-to/direct-logit-attribution.md", "docs/how-to/probe.md",
    "docs/how-to/onnx.md", "docs/how-to/prune.md",
}  # fmt: skip
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*sorted(DOCS.rglob("*.md")), ROOT / "README.md")
    if "site" not in path.parts
}
EXAMPLES = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in DOCUMENTS.items()}


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.fetched: list[str] = []  # with the page
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                (self.fetched if tag in ("script", "link", "img") else self.addresses).append(value)


def sphinx(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Sphinx on the documents; a link to a missing file or heading is an error, as is a document without a link."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", DOCS, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_links_and_headings_exist(tmp_path: Path) -> None:
    """Between all documents, and from the index to each of them."""
    done = sphinx("-b", "dummy", ROOT, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_wrong_link_is_noticed(tmp_path: Path) -> None:
    """To a missing file, to a missing heading, and a document that the index does not name."""
    (tmp_path / "docs" / "how-to").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text("# Index\n\n## Guides\n\n[A](how-to/a.md)\n")
    (tmp_path / "docs" / "how-to" / "a.md").write_text("# A\n\n[file](none.md) [heading](#none) [good](#a)\n")
    (tmp_path / "docs" / "how-to" / "b.md").write_text("# B\n")
    done = sphinx("-b", "dummy", "-d", tmp_path / "trees", tmp_path, tmp_path / "out")
    assert done.returncode == 1
    faults = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(faults) == 3, done.stderr
    assert all(any(part in line for line in faults) for part in ("none.md", "'none'", "b.md"))


def test_every_document_starts_with_its_purpose() -> None:
    """A title, then a paragraph: no heading, table, list, picture or code comes first."""
    for name, text in DOCUMENTS.items():
        if name == "README.md":  # which starts with a picture
            continue
        title, _, rest = text.partition("\n")
        assert title.startswith("# "), name
        assert re.match(r"\n[\w*`]", rest), name


def test_readme_is_short_and_its_pictures_exist() -> None:
    """At most 160 lines; each picture is in the repository, and the animation has less than 1.5 MB and repeats."""
    readme = DOCUMENTS["README.md"]
    assert len(readme.splitlines()) <= 160
    pictures = [ROOT / name for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", readme)]
    assert pictures and all(path.is_file() for path in pictures)
    with Image.open(pictures[0]) as animation:
        assert getattr(animation, "n_frames", 1) > 10 and animation.info["loop"] == 0
    assert pictures[0].stat().st_size < 1_500_000


def test_the_reference_names_every_page() -> None:
    """With title and address, in the order and the groups of the navigation."""
    entries = re.findall(r"^(?:## (.+)|\*\*(.+?)\*\* \(`/(.+?)`\))", DOCUMENTS["docs/reference/pages.md"], re.MULTILINE)
    group, pages = "", []
    for heading, title, path in entries:
        group = heading or group
        if title:
            pages.append((group, title, path))
    assert pages == [(page.group, page.title, page.path) for page in PAGES]


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    """All that it shows under "On the command line", in an empty folder."""
    section = DOCUMENTS["README.md"].partition("## On the command line")[2].partition("```\n")[2].partition("```")[0]
    commands = section.splitlines()
    assert len(commands) == 4
    for command in commands:
        arguments = [sys.executable, "-m", "viz_app.cli", *shlex.split(command)[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command
    assert (tmp_path / "head.svg").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, blocks in EXAMPLES.items() if blocks and name not in ELSEWHERE])
def test_the_examples_of_a_document_run_as_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom in one session, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in EXAMPLES[name]:
        exec(compile(block, name, "exec", dont_inherit=True), names)


def test_every_document_with_examples_is_run() -> None:
    """Those left to another test exist, have examples, and are read by a test of tests/core or tests/app."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py"))
    assert all(EXAMPLES[name] and f'"{name.rpartition("/")[2]}"' in tests for name in ELSEWHERE)


@pytest.mark.slow
def test_the_site_opens_from_disk(tmp_path: Path) -> None:
    """`make docs` writes every document and the docstring of every public name.

    Each link leads to a file and an anchor of the site, and nothing is fetched from another address.
    """
    command = [sys.executable, DOCS / "build.py", tmp_path / "site"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path: Links(path) for path in (tmp_path / "site").rglob("*.html")}
    assert {tmp_path / "site" / Path(name).with_suffix(".html") for name in DOCUMENTS} <= pages.keys()
    library = tmp_path / "site" / "docs" / "reference" / "python" / "bert_core.html"
    assert [name for name in bert_core.__all__ if name not in pages[library].anchors] == []
    text = library.read_text(encoding="utf-8")
    assert "<p>Raises Refused if there is no mask" in text, "a paragraph of word_target"
    assert '<span class="go">comprehensiveness: 0.67</span>' in text, "a line of the example of faithfulness"
    faults = []
    for path, links in pages.items():
        assert [address for address in links.fetched if urlsplit(address).netloc] == [], path.name
        for address in [*links.addresses, *links.fetched]:
            parts = urlsplit(address)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme or parts.netloc:
                continue
            anchors = pages[target].anchors if target in pages else {""}
            if library.parent in path.parents and parts.fragment.startswith("_"):
                continue  # pdoc names private base classes by a link, and leaves them out
            if not target.is_file() or unquote(parts.fragment) not in {"", *anchors}:
                faults.append(f"{path.relative_to(tmp_path)}: {address}")
    assert not faults, "\n".join(faults)
