"""Keys of results, derived from the arguments from which they are computed."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from bert_core.loading import LoadedModel

_tokens: dict[int, tuple[weakref.ref[Any], int]] = {}  # id of an object -> the object, and a number of its own
_numbers = itertools.count()


def identity_of(value: Any) -> Hashable:
    """Return a key that is equal for equal values.

    Models and whatever has an attribute `identity` are identified by it, arrays by their content, containers by
    their elements, and records that contain arrays by being the same object.
    """
    if isinstance(value, LoadedModel):
        return value.identity
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, sha256(np.ascontiguousarray(value).data).digest()
    if isinstance(value, (list, tuple)):
        return tuple(map(identity_of, value))
    if isinstance(value, Mapping):
        return tuple((identity_of(key), identity_of(item)) for key, item in value.items())
    if (identity := getattr(value, "identity", None)) is not None:
        return identity_of(identity)
    is_record = is_dataclass(value) and not isinstance(value, type)
    if is_record and any(isinstance(getattr(value, field.name), np.ndarray) for field in fields(value)):
        return _token_of(value)  # a key must not keep the arrays in memory
    try:
        hash(value)
    except TypeError:
        return _token_of(value)
    hashable: Hashable = value
    return hashable


def _token_of(record: Any) -> Hashable:
    """Return a number that no other object gets while the record exists."""
    token = _tokens.get(id(record))
    if token is None or token[0]() is not record:
        key = id(record)
        token = _tokens[key] = weakref.ref(record, lambda _: _tokens.pop(key, None)), next(_numbers)
    return "record", token[1]
