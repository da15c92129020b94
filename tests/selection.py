"""Which cases of a parametrised test `make test` runs; `make test-all` runs the others too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def mark_cases(cases: Iterable[Any], mark: pytest.MarkDecorator, marked: Callable[..., bool]) -> list[Any]:
    """Parameters of a test, of which those for which `marked` is true carry a mark.

    cases: for a test with several parameters a tuple each. marked: called with the parameters of a case.
    """
    parameters = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*values, marks=mark if marked(*values) else ()) for values in parameters]


def covering_array(columns: dict[Any, set[Any]], rows: Iterable[Any]) -> set[tuple[Any, Any]]:
    """(row, column) pairs such that every row meets every property that some column has, by greedy choice.

    columns: the properties of each column. Where columns bring equally much, the choice moves on from row to row, so
    that different rows use different columns.
    """
    pairs: set[tuple[Any, Any]] = set()
    uses = dict.fromkeys(columns, 0)
    properties = set().union(*columns.values())
    for row in rows:
        missing = set(properties)
        while missing:
            best = max(columns, key=lambda column: (len(columns[column] & missing), -uses[column]))
            pairs.add((row, best))
            uses[best] += 1
            missing -= columns[best]
    return pairs
