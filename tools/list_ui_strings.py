"""List every text that the app shows, with its place: `python -m tools.list_ui_strings [--long] [--dialect]`.

The texts are the values of the TOML files of pages, lessons and languages, and the string literals of the Python and
JavaScript files that draw. Docstrings, keys, styles and formulas are left out; braces are filled in later.
"""

from __future__ import annotations

import argparse
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
MAX_WORDS = 30  # of a sentence
_PROSE = re.compile(r"[A-Za-z“][\w’'-]*[,:;]? +[A-Za-z“{]")
_NO_PROSE = re.compile(
    r"^\s*[<#.@]|[{};]\s*$|^:material|^[\w./-]+$|://|\\frac|\\text|^--|px\b|rgba?\(|viz_app\.|bert_core\."
)
_JAVASCRIPT_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+|: (?=\*\*)|(?<=:\*\*)\s")
# Words of the private dialect that the glossary of the field replaces; see docs/contributing/architecture.md, "Words".
DIALECT = re.compile(
    r"\b(looks? at whom|what it brings|is brought|length brought|hidden (?:word|piece)s?|likelier|unlikelier|likeliest"
    r"|commonest|alike(?!:)|of one's own|counts from 0|in the place of|speaks? for|owed to|beside chance"
    r"|as it was loaded|strangers|there and back|put in by|take it along|goes on)\b",
    re.IGNORECASE,
)


class UiString(NamedTuple):
    """A text of the app. file: relative to the repository. line: in the file, from 1; 0 if unknown."""

    file: str
    line: int
    text: str

    def sentences(self) -> list[str]:
        """Return its sentences, without the marks of Markdown."""
        plain = self.text.replace("**", "").replace("`", "")
        return [sentence for sentence in _SENTENCE_END.split(plain) if sentence.strip()]


def ui_strings(root: Path = ROOT) -> Iterator[UiString]:
    """Yield the texts of the app, file by file."""
    app = root / "viz_app"
    for path in sorted(app.rglob("*.toml")):
        if path.name != "theme.toml":
            for text in _toml_texts(tomllib.loads(path.read_text("utf-8"))):
                yield UiString(str(path.relative_to(root)), 0, text)
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


def main() -> None:
    """Print the texts, one a line."""
    parser = argparse.ArgumentParser(description="List the texts of the app.")
    parser.add_argument("--long", action="store_true", help=f"only sentences of more than {MAX_WORDS} words")
    parser.add_argument("--dialect", action="store_true", help="only texts with a word that has a standard term")
    options = parser.parse_args()
    for string in ui_strings():
        texts = [string.text]
        if options.long:
            texts = [sentence for sentence in string.sentences() if len(sentence.split()) > MAX_WORDS]
        if options.dialect:
            texts = [text for text in texts if DIALECT.search(text)]
        for text in texts:
            print(f"{string.file}:{string.line}: {' '.join(text.split())}")


if __name__ == "__main__":
    main()
