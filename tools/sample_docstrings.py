"""Prints docstrings of bert_core that are sampled from one revision, and those of the same definitions in another.

    python -m tools.sample_docstrings --revision v0.3.0 --seed 41 --count 20
    python -m tools.sample_docstrings --revision v0.3.0 --and HEAD --renames renames.json

Sampled are the functions, methods and classes that have a docstring. Without `--and`, the second docstring is that of
the working tree. `--renames` names a JSON object from old to new qualified names; an entry also applies to all that
the renamed module or class contains, and the longest one counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import random
import subprocess
import tarfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]


def docstrings(module: str, source: str) -> dict[str, str | None]:
    """Return the docstring of each function, method and class of a module, by qualified name; None where it has none.

    Of definitions with one qualified name (a property and its setter), the first that has a docstring counts.
    """
    by_name: dict[str, str | None] = {}
    for name, node in _definitions(module, ast.parse(source)):
        by_name[name] = by_name.get(name) or ast.get_docstring(node)
    return by_name


def _definitions(
    prefix: str, parent: ast.AST
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield all functions and classes below a node, with their qualified names."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{prefix}.{node.name}", node
            yield from _definitions(f"{prefix}.{node.name}", node)
        else:
            yield from _definitions(prefix, node)


def sources(revision: str | None) -> dict[str, str]:
    """Return the source text of each module of bert_core, by module name, at a git revision or in the working tree."""
    if revision is None:
        files = {file.relative_to(ROOT).as_posix(): file.read_bytes() for file in ROOT.glob("bert_core/**/*.py")}
    else:
        command = ["git", "archive", "--format=tar", revision, ":(glob)bert_core/**/*.py"]
        archive = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = [(member.name, tar.extractfile(member)) for member in tar.getmembers()]
        files = {name: content.read() for name, content in members if content is not None}
    return {
        ".".join(PurePosixPath(name).with_suffix("").parts).removesuffix(".__init__"): content.decode("utf-8")
        for name, content in files.items()
    }


def all_docstrings(revision: str | None) -> dict[str, str | None]:
    """Return the docstrings of all definitions of bert_core at a git revision, or in the working tree for None."""
    return {
        name: docstring
        for module, source in sources(revision).items()
        for name, docstring in docstrings(module, source).items()
    }


def sample(by_name: Mapping[str, str | None], count: int, seed: int) -> list[str]:
    """Return `count` names of definitions with a docstring, sampled without replacement; all where there are fewer."""
    names = sorted(name for name, docstring in by_name.items() if docstring)
    return random.Random(seed).sample(names, min(count, len(names)))


def renamed(name: str, renames: Mapping[str, str]) -> str:
    """Return the new qualified name of a definition: the longest entry that equals it or contains it is replaced."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in renames:
            return ".".join([renames[prefix], *parts[length:]])
    return name


def counterpart(name: str, by_name: Mapping[str, str | None], renames: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the qualified name and the docstring of the same definition in another revision.

    The name itself comes first, then the one that `renames` gives. The docstring is None where there is no such
    definition, and empty where the definition has none.
    """
    for candidate in (name, renamed(name, renames)):
        if candidate in by_name:
            return candidate, by_name[candidate] or ""
    return name, None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the sampled docstrings of both revisions."""
    parser = argparse.ArgumentParser(description="Sample docstrings of bert_core and compare them between revisions.")
    parser.add_argument("--revision", required=True, help="git revision from which the docstrings are sampled")
    parser.add_argument("--and", dest="second", metavar="REVISION", help="second revision (default: the working tree)")
    parser.add_argument("--renames", type=Path, help="JSON file: old qualified name -> new qualified name")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args(arguments)
    renames = json.loads(options.renames.read_text(encoding="utf-8")) if options.renames else {}
    first, second = all_docstrings(options.revision), all_docstrings(options.second)
    label = options.second or "working tree"
    for number, name in enumerate(sample(first, options.count, options.seed), start=1):
        new_name, docstring = counterpart(name, second, renames)
        print(f"{number}. {name}\n\n{textwrap.indent(first[name] or '', '    ')}\n")
        if docstring is None:
            print(f"{label}: no definition of this name\n")
        else:
            print(f"{label}: {new_name}\n\n{textwrap.indent(docstring or '(no docstring)', '    ')}\n")


if __name__ == "__main__":
    main()
