"""Counts names that do not state what they hold: pronouns, determiners, adverbs, prepositions, participles and verbs.

    python -m tests.naming bert_core/run viz_app/cli

prints each rejected name below the given files and folders as `file:line name`, and the number of them.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PRONOUNS_AND_DETERMINERS = """
    any anybody anything both each either enough every everybody everything few her hers him his it its itself
    least less many me mine more most much neither nobody none nothing one ones other others ours own rest same several
    some somebody something such that theirs them these they thing things this those two way ways what which whichever
    who whoever whom whose yours
"""
ADVERBS = """
    abreast again ahead alike alone already also always anew apart aside away elsewhere else ever everywhere far here
    how instead likely likeliest likewise meanwhile mostly near never now often once only otherwise so somewhere still
    then there therefore thus together too twice when whence where why yet
"""
PREPOSITIONS = """
    about above across against along alongside among amongst around at behind below beneath beside besides between
    beyond by during except for from in inside into of on onto outside over per since through throughout to toward
    towards under until unto upon via with within without worth
"""
# Participles of everyday verbs. Those that name the result of an operation (`masked`, `pooled`, `normed`, `removed`,
# `expected`, `missing`, `allowed`) state what they hold, and are accepted.
PARTICIPLES = """
    answered arrived asked became been began begun believed brought called came carried chosen doing done doubted drawn
    entering felt found given going gone got had having heard held kept known lacking lasting leaving let listed looked
    made meant met named needed offered opened parted pressed put said saw saying seen sent shown sought spoken standing
    stated staying stood taken telling thought told took touched tried typed understood unsaid used wanted was went were
    written
"""
VERBS = """
    asks begins belongs brings chooses comes continues did differs does follows gets gives goes has holds knows lets
    looks makes puts says seems sees stands stays takes tells wants
"""
# Names of functions in the imperative, but of no value.
VERBS_OF_FUNCTIONS = "ask choose do get give leave make read say see send take tell"

REJECTED = frozenset(" ".join((PRONOUNS_AND_DETERMINERS, ADVERBS, PREPOSITIONS, PARTICIPLES, VERBS)).split())
REJECTED_VALUES = REJECTED | frozenset(VERBS_OF_FUNCTIONS.split())


class Binding(NamedTuple):
    """A name that a source text binds; `is_function` for functions and methods."""

    line: int
    name: str
    is_function: bool = False


def bindings(source: str) -> Iterator[Binding]:
    """Every binding of a source text, each counted where it occurs, in no particular order.

    Counted are assigned names (also in loops, `with`, comprehensions, `:=`, `except ... as`, patterns of `match`,
    fields of dataclasses), parameters (also of lambdas), functions, methods and classes, and attributes assigned on
    `self`. Imported names are not counted: they are bound where they are defined.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield Binding(node.lineno, name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield Binding(node.lineno, name)
            case ast.arg(arg=name):
                yield Binding(node.lineno, name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Binding(node.lineno, name, is_function=True)
            case ast.ClassDef(name=name):
                yield Binding(node.lineno, name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield Binding(node.lineno, name)
            case ast.MatchMapping(rest=str(name)):
                yield Binding(node.lineno, name)


def is_rejected(binding: Binding) -> bool:
    """Whether all words of a name are rejected, or the first is `of`: `found`, `_Kept`, `goes_on`, `of_layer`."""
    words = binding.name.lower().strip("_").split("_")
    rejected = REJECTED if binding.is_function else REJECTED_VALUES
    return words[0] == "of" or all(word in rejected for word in words)


def rejected_names(path: Path) -> Iterator[tuple[Path, Binding]]:
    """The rejected bindings of a file, or of all Python files below a folder, in the order of files and lines."""
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for binding in sorted(bindings(file.read_text(encoding="utf-8"))):
            if is_rejected(binding):
                yield file, binding


def summary(rejected: Sequence[tuple[Path, Binding]], most_common: int = 20) -> str:
    """The files and the names with the most rejected bindings, with their counts."""
    files = Counter(str(file) for file, _ in rejected)
    names = Counter(binding.name for _, binding in rejected)
    return "\n".join(
        [
            f"{len(rejected)} rejected names; `python -m tests.naming PATH` lists them with their lines",
            "  files: " + ", ".join(f"{file} {count}" for file, count in files.most_common(most_common)),
            "  names: " + ", ".join(f"{name} {count}" for name, count in names.most_common(most_common)),
        ]
    )


def main(paths: Sequence[str]) -> None:
    """Print each rejected binding as `file:line name`, and the summary."""
    rejected = [entry for path in paths for entry in rejected_names(Path(path))]
    for file, binding in rejected:
        print(f"{file}:{binding.line} {binding.name}")
    print(summary(rejected))


if __name__ == "__main__":
    main(sys.argv[1:])
