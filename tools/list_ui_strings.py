"""List every text that the app shows, with its place: `python -m tools.list_ui_strings`.

The texts are the values of the TOML files of pages, lessons and languages, and the string literals of the Python and
JavaScript files that draw. Docstrings, keys, styles and formulas are left out; braces are filled in later.
`tools/lint_prose.py` checks them.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
APP = ROOT / "viz_app"
# Modules of the library whose texts the pages show.
LIBRARY = ("bert_core/target_kinds.py", "bert_core/task_heads.py", "bert_core/methods")
_PROSE = re.compile(r"[A-Za-z“][\w’'-]*[,:;]? +[A-Za-z“{]")
_NO_PROSE = re.compile(
    r"^\s*[<#.@]|[{};]\s*$|^:material|^[\w./-]+$|://|\\frac|\\text|^--|px\b|rgba?\(|viz_app\.|bert_core\."
    r"|^\s*(?:\w+ \w+, ){3}"  # a list of pairs
)
_JAVASCRIPT_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')


class UiString(NamedTuple):
    """A text of the app. file: relative to the repository. line: in the file, from 1; 0 if unknown."""

    file: str
    line: int
    text: str


def ui_strings(root: Path = ROOT) -> Iterator[UiString]:
    """Yield the texts of the app, file by file."""
    app = root / "viz_app"
    for path in sorted(app.rglob("*.toml")):
        if path.name != "theme.toml":
            source = path.read_text("utf-8")
            for text in _toml_texts(tomllib.loads(source)):
                yield UiString(str(path.relative_to(root)), line_of(text, source), text)
    modules = [
        path for name in LIBRARY for path in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    for path in sorted([*app.rglob("*.py"), *modules]):
        yield from _python_texts(path, root)
    for path in sorted(app.rglob("*.js")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not line.lstrip().startswith(("//", "*", "/*", "import")):
                for match in _JAVASCRIPT_TEXT.finditer(line):
                    if is_prose(text := match[1] or match[2] or ""):
                        yield UiString(str(path.relative_to(root)), number, text)


def is_prose(text: str) -> bool:
    """Return whether a text consists of words for a reader."""
    return bool(_PROSE.search(text)) and not _NO_PROSE.search(text)


def _toml_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _toml_texts(part)


def line_of(text: str, source: str) -> int:
    """Return the first line with the beginning of a text; 0 if it is written with escapes."""
    start = text.lstrip("\n").partition("\n")[0][:40]
    return next((number for number, line in enumerate(source.splitlines(), 1) if start in line), 0)


def _python_texts(path: Path, root: Path) -> Iterator[UiString]:
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    inside: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in docstrings or id(node) in inside:
            continue
        text: str | None = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
        if isinstance(node, ast.expr) and text is not None and is_prose(text):
            yield UiString(str(path.relative_to(root)), node.lineno, text)


if __name__ == "__main__":
    for string in ui_strings():
        print(f"{string.file}:{string.line}: {' '.join(string.text.split())}")
