"""Common behaviour of all records: they and their arrays are read-only, and they are compared by value.

Names of axes in all docstrings: batch, layer, head, query, key, seq, hidden, vocab. In cross-attention, the query is a
word of the caption and the key a patch of the image. Rows are queries and columns are keys. Layers and heads count from
zero. A depth is 0 for the embeddings and n + 1 for the output of layer n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

Class = TypeVar("Class")


def compared_by_value(kind: type[Class]) -> type[Class]:
    """Add `==` and `hash` to a frozen dataclass or named tuple that has arrays (class decorator).

    Two records are equal if they have the same class and all their values are equal. Arrays are equal if shape, dtype
    and all entries are equal. NaN equals NaN, because pruned heads are NaN. The generated `==` would raise for arrays.
    The hash does not depend on the entries of arrays, so it is fast, and equal records have equal hashes.
    """

    def values(record: Any) -> tuple[Any, ...]:
        if isinstance(record, tuple):
            return tuple(record)
        return tuple(getattr(record, entry.name) for entry in fields(record))

    def equal(self: object, second: object) -> bool:
        return self is second or (type(self) is type(second) and _equal(values(self), values(second)))

    def unequal(self: object, second: object) -> bool:  # replaces the method of tuple
        return not equal(self, second)

    def hashed(self: object) -> int:
        return hash((type(self), _hashable(values(self))))

    for name, method in (("__eq__", equal), ("__ne__", unequal), ("__hash__", hashed)):
        setattr(kind, name, method)
    return kind


def _equal(first: object, second: object) -> bool:
    """Return whether two values of a field are equal. NaN is equal to NaN."""
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
    """Return the part of a value of a field that is hashed, which is the same for equal values."""
    if isinstance(value, np.ndarray):
        return value.shape
    if isinstance(value, Mapping):
        return frozenset(value)
    if isinstance(value, tuple | list):
        return tuple(map(_hashable, value))
    return None if isinstance(value, float | np.floating) and math.isnan(value) else value


def make_read_only(record: object) -> None:
    """Make every array of a record read-only."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
