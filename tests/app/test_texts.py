"""The static texts of the app: the same keys in every language, all of them looked up, and none before it is drawn."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from bert_core.target_kinds import TARGET_KINDS
from bert_core.task_heads import NO_ANSWER, TASK_HEADS, TaskHead
from tests.app.test_languages import OTHERS, figures, texts
from viz_app.lessons.checks.second_course import LONG_SENTENCE
from viz_app.pages import PAGES
from viz_app.texts import PageTexts, Phrase, page_texts

APP = Path(__file__).parents[2] / "viz_app"
TEXTS = APP / "texts"
THE_SAME = {"Text", "Start", "Attribution", "Probing", "Pruning"}  # words that German has too
# The shared files and pages of which every text is in every language; of other pages, title and line are.
WHOLE = ("frame", "edits", "find", "start", "learn", "glossary", "lesson", "checks", "class")
# Of the browser edition, texts of these pages are in English only, as they are in the app.
SITE, ENGLISH_PAGES = "site", ("attention.", "heads.", "why.")
NAMED = {"title", "line"}


def texts_by_key(tag: str, name: str) -> dict[str, str]:
    """Every text of a file of static texts, by its key."""
    return {at[1:]: text for at, _, text in texts(tomllib.loads((TEXTS / tag / f"{name}.toml").read_text("utf-8")))}


@pytest.mark.parametrize("tag", OTHERS)
def test_static_texts_are_in_every_language(tag: str) -> None:
    """Whole files have all keys, and every page its title and line; no key is left over."""
    assert {file.stem for file in (TEXTS / tag).iterdir()} == {*WHOLE, SITE, *(page.path for page in PAGES)}
    assert {file.stem for file in (TEXTS / "en").iterdir()} == {*WHOLE, SITE, *(page.path for page in PAGES)}
    for name in (file.stem for file in (TEXTS / tag).iterdir()):
        ours, theirs = texts_by_key("en", name), texts_by_key(tag, name)
        if name == SITE:
            assert theirs.keys() == {key for key in ours if not key.startswith(ENGLISH_PAGES)}
        else:
            assert theirs.keys() == (ours.keys() if name in WHOLE else NAMED), name
            assert page_texts(name).in_language(tag).is_translated == (name in WHOLE), name
        for key, other in theirs.items():
            at, english = f"{name}: {key}", ours[key]
            assert figures(other) == figures(english), at
            assert other and (other != english or other in THE_SAME), at
            assert "“" not in re.sub("„[^„“]*“", "", other), at
            assert other.startswith(" ") == english.startswith(" "), at


def test_a_text_without_a_translation_is_in_english() -> None:
    """A key of a table, a whole table and a file that the other language does not have; English has every text."""
    here = page_texts("attention").in_language("de")
    assert here["title"] == "Aufmerksamkeit" and here["grid"] == page_texts("attention")["grid"]
    assert here.options("views.gradient") == page_texts("attention").options("views.gradient")
    assert page_texts("lesson").in_language("de").options("marks")["true"] == "wahr"
    assert PageTexts("reach", {"title": "Reach"}, tag="de")["title"] == "Reach"
    assert page_texts("frame").get("targets.unknown", "a default") == "a default"
    for key in ("unknown", "views.unknown", "unknown.title"):
        with pytest.raises(KeyError):
            here[key]


def looked_up(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The variable and the pattern of the key of each lookup in a module: `TEXTS["key"]`, or by a method of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            source, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr not in ("options", "get", "control"):
                continue
            source, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Phrase" and len(node.args) == 2:
            source, key = node.args
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CHECK_CALLS:
            prefix, at = CHECK_CALLS[ast.unparse(node.func)]
            yield from (("checks", prefix + pattern) for pattern in key_patterns(node.args[at]))
            continue
        else:
            continue
        if isinstance(source, ast.Call) and ast.unparse(source.func).endswith(".in_language"):
            assert isinstance(source.func, ast.Attribute)
            source = source.func.value
        if isinstance(source, ast.Name) and (source.id.endswith("TEXTS") or source.id == "texts"):
            yield from ((source.id.upper(), pattern) for pattern in key_patterns(key))


# Functions that look a text of the checks up -> the start of its key, and which argument names it.
CHECK_CALLS = {"phrase": ("", 0), "Unsuitable": ("unsuitable.", 0), "check_length": ("unsuitable.", 1)}


def key_patterns(key: ast.expr) -> Iterator[str]:
    """The regular expressions of the keys that an expression can name: a constant, an f-string, or one of two."""
    if isinstance(key, ast.IfExp):
        yield from (*key_patterns(key.body), *key_patterns(key.orelse))
    elif isinstance(key, ast.JoinedStr):
        yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else "[^.]+" for part in key.values)
    elif isinstance(key, ast.Constant):
        yield re.escape(key.value)


def files_of(tree: ast.Module) -> dict[str, str]:
    """The name of each variable of a module that is the texts of a file -> the name of the file."""
    found = {"checks": "checks"}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("viz_app.pages."):
            found |= {alias.name: (node.module or "").split(".")[2] for alias in node.names if alias.name == "TEXTS"}
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name | ast.Tuple):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for name, value in zip(names, values, strict=False):
                if isinstance(value, ast.Call) and ast.unparse(value.func) == "page_texts":
                    assert isinstance(name, ast.Name)
                    found[name.id] = ast.literal_eval(value.args[0])
    return found


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Every module of the app."""
    for file in sorted(APP.rglob("*.py")):
        yield file, ast.parse(file.read_text("utf-8"))


def test_every_text_is_looked_up_and_every_lookup_has_its_text() -> None:
    """Of the whole files: a key that the code names is in the file, and a key of the file is named by the code."""
    used: dict[str, set[str]] = {name: set() for name in WHOLE}
    for file, tree in modules():
        names = files_of(tree)
        for variable, pattern in looked_up(tree):
            name = names.get(variable, "")
            if name in WHOLE:
                keys = texts_by_key("en", name).keys()
                tables = {key.rpartition(".")[0] for key in keys} - {""}
                found = {key for key in keys if re.fullmatch(f"({pattern})([.].*)?", key)}
                assert found or any(re.fullmatch(pattern, table) for table in tables), f"{file.name}: {name} {pattern}"
                used[name] |= found
    for name, keys in used.items():
        unused = texts_by_key("en", name).keys() - keys - NAMED - (CONSTANT_KEYS if name == "checks" else set())
        assert not unused, name


CONSTANT_KEYS = {f"unsuitable.{LONG_SENTENCE}"}  # of a constant with the name of the key


def test_no_text_is_looked_up_when_a_module_is_imported() -> None:
    """It would stay in the language of the first reader: no text of a whole file, and no title of a page."""
    for file, tree in modules():
        names = files_of(tree)
        functions = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for inner in ast.walk(node)
        }
        outside = ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef)], [])
        for node in ast.walk(outside):
            if id(node) not in functions and isinstance(node, ast.Subscript | ast.Call):
                is_english = "in_language(ENGLISH)" in ast.unparse(node) or "hrase(" in ast.unparse(node)
                for variable, pattern in looked_up(ast.Expr(node)):
                    fixed = is_english or (names.get(variable, "") not in WHOLE and pattern not in NAMED)
                    assert fixed, f"{file.name}:{node.lineno}"


def test_texts_that_the_library_has_too_are_the_same() -> None:
    """A registered head has the texts of the library alone; those of the library's own heads are translated by key."""
    ours = page_texts("frame")
    assert ours.options("targets") == {name: kind.title for name, kind in TARGET_KINDS.items()} | {
        "no_answer": NO_ANSWER
    }
    for head in TASK_HEADS.values():
        key = "pair" if head.pair_advice == TaskHead.pair_advice else head.name
        assert ours[f"advice.{key}"] == head.pair_advice


def test_a_phrase_is_english_and_is_translated_where_it_is_shown() -> None:
    """Also a copy of it."""
    phrase = deepcopy(Phrase(page_texts("checks"), "no_head"))
    assert (phrase, phrase.translated(), phrase.translated("de")) == ("no head", "no head", "kein Kopf")
