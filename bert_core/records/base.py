"""What all records share: their arrays are read-only, and so are they; they are compared by value.

Axis words, here and everywhere: batch layer head query key seq hidden vocab; for a sentence about a picture, word and
patch, the query and the key of its cross-attention. Rows are queries, columns keys.
Layers and heads are counted from zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

Class = TypeVar("Class")


def compared_by_value(kind: type[Class]) -> type[Class]:
    """Class decorator: `==` and `hash` of a frozen dataclass or named tuple that holds arrays.

    Two records are equal if they are of one class and all their values are equal: arrays in shape, number type and
    every entry, with NaN equal to NaN (a pruned head is NaN). The generated `==` would raise for arrays of several
    entries. The hash is that of everything but the entries of arrays, so it is quick, and equal records share it.
    """

    def values(record: Any) -> tuple[Any, ...]:
        return (
            tuple(record) if isinstance(record, tuple) else tuple(getattr(record, one.name) for one in fields(record))
        )

    def equal(self: object, other: object) -> bool:
        return self is other or (type(self) is type(other) and _equal(values(self), values(other)))

    def unequal(self: object, other: object) -> bool:  # a tuple has its own
        return not equal(self, other)

    def hashed(self: object) -> int:
        return hash((type(self), _hashable(values(self))))

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", hashed)):
        setattr(kind, name, method)
    return kind


def _equal(first: object, second: object) -> bool:
    """Whether two values of a field are equal; NaN is equal to NaN."""
    if first is second:
        return True
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.dtype == second.dtype):
            return False
        return bool(np.array_equal(first, second, equal_nan=first.dtype.kind in "fc"))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_equal(value, second[key]) for key, value in first.items())
    if isinstance(first, tuple | list) and type(first) is type(second):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, float | np.floating) and isinstance(second, float | np.floating) and math.isnan(first):
        return math.isnan(second)
    return bool(first == second)


def _hashable(value: object) -> object:
    """What is hashed of a value of a field: nothing that differs between values that are equal."""
    if isinstance(value, np.ndarray):
        return value.shape
    if isinstance(value, Mapping):
        return frozenset(value)
    if isinstance(value, tuple | list):
        return tuple(map(_hashable, value))
    return None if isinstance(value, float | np.floating) and math.isnan(value) else value


def make_read_only(record: object) -> None:
    """Make every array of a record refuse to be written."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
