"""Every name of the founding documents is there and shown by a test, or its absence has a reason."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "contributing" / "founding.md").read_text(encoding="utf-8")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| Name |", "| --- |"))
]


@cache
def functions_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def resolve(dotted: str) -> Any:
    """The object of a dotted name: the longest importable part, then attributes or fields."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            fields = {f.name for f in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
            found = name if name in fields else getattr(found, name)
        return found
    raise AssertionError(f"{dotted} cannot be imported")


@pytest.mark.parametrize(("name", "here", "shown"), [(*r, "")[:3] for r in ROWS], ids=[row[0] for row in ROWS])
def test_every_name_has_its_place_and_its_test(name: str, here: str, shown: str) -> None:
    """The name resolves and a test of it exists; or one line says why it has no place here."""
    where = re.match(r"`([\w.]+)`", here)
    if where is None:
        assert re.match(r"none: .{20,}", here), f"{name}: neither a place nor a reason"
    else:
        assert resolve(where.group(1)) is not None
        assert shown, f"{name}: no test shows it"
    if shown := shown.strip("|` "):
        file, test = shown.split("::")
        assert test in functions_in(file), f"{name}: {shown} does not exist"


def test_the_table_is_read() -> None:
    """The page holds some eighty rows: were its form to change, the test above would be empty."""
    assert len(ROWS) > 70 and len({row[0] for row in ROWS}) > 70
