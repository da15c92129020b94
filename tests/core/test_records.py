"""bert_core/records/base.py: records that hold arrays are compared by value, and never raise."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytest
import torch

import bert_core
from bert_core import LoadedModel, capture
from bert_core.edits import ActivationPatch, AddedVector


def fields_of(kind: type) -> dict[str, str]:
    """The fields of a dataclass or a named tuple, each with its annotation."""
    if dataclasses.is_dataclass(kind):
        return {field.name: str(field.type) for field in dataclasses.fields(kind)}
    return {name: str(kind.__annotations__[name]) for name in cast("Any", kind)._fields}


def holds_arrays(annotation: str) -> bool:
    return "ndarray" in annotation and "Callable" not in annotation


def record_classes() -> Iterator[type]:
    """Every frozen dataclass and named tuple of the library that holds arrays and no tensors, and all public ones.

    But ActivationPatch and AddedVector, which define themselves what is compared.
    """
    for module in pkgutil.walk_packages(bert_core.__path__, "bert_core."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            if not inspect.isclass(kind) or kind.__module__ != module.name:
                continue
            frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
            if not (frozen or hasattr(kind, "_fields")):
                continue
            annotations = fields_of(kind).values()
            arrays, tensors = any(map(holds_arrays, annotations)), any("Tensor" in one for one in annotations)
            if (
                kind not in (ActivationPatch, AddedVector)
                and (arrays or name in bert_core.__all__ or "bert_core.records" in module.name)
                and not tensors
            ):
                yield kind


CLASSES = sorted(record_classes(), key=lambda kind: f"{kind.__module__}.{kind.__name__}")
WITH_ARRAYS = [kind for kind in CLASSES if any(map(holds_arrays, fields_of(kind).values()))]


def values_of(kind: type) -> dict[str, Any]:
    """A value for each field, new at each call: arrays with a NaN, mappings of arrays, and plain values."""
    values: dict[str, Any] = {}
    for name, annotation in fields_of(kind).items():
        array = np.array([[0.5, np.nan], [2.0, 3.0]], np.float32)
        if not holds_arrays(annotation):
            values[name] = float("nan") if annotation.strip("')").endswith("float") else f"{name} of it"
        elif "Mapping" in annotation or "dict[" in annotation:
            values[name] = MappingProxyType({"a": array, "b": array + 1})
        else:
            values[name] = array
    return values


def made(kind: type, values: dict[str, Any]) -> Any:
    """An instance with these values, whatever the class would say of them."""
    if hasattr(kind, "_fields"):
        return kind(**values)
    instance = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def test_the_table_has_the_records() -> None:
    """What is walked through is there: runs, named tuples of arrays, and classes without an array."""
    names = {kind.__name__ for kind in CLASSES}
    assert {"ModelRun", "MaskPrediction", "HeadTable", "Walk", "Batch", "Sinks", "Faithfulness", "Target"} <= names
    assert len(WITH_ARRAYS) > 50


@pytest.mark.parametrize("kind", WITH_ARRAYS)
def test_equal_values_make_equal_records_of_one_hash(kind: type) -> None:
    """Two records of copies of the same values are equal, NaN at the same places too, and have one hash."""
    first, second = made(kind, values_of(kind)), made(kind, values_of(kind))
    assert (first == second) is True and (first != second) is False
    assert hash(first) == hash(second) and len({first, second}) == 1


@pytest.mark.parametrize("kind", WITH_ARRAYS)
def test_a_difference_in_any_array_makes_records_differ(kind: type) -> None:
    """One other number, shape, number type, key of a mapping, or no array at all: never equal, never raising."""
    record = made(kind, values_of(kind))
    for name in (name for name, annotation in fields_of(kind).items() if holds_arrays(annotation)):
        changed = []
        value = values_of(kind)[name]
        for other in (lambda a: a + np.float32([[0, 0], [0, 1]]), lambda a: a[:1], lambda a: a.astype(np.float64),
                      lambda a: a.T, lambda a: np.zeros((2, 0), np.float32), lambda a: a.astype(str),
                      lambda a: np.nan_to_num(a)):  # fmt: skip
            changed.append({**value, "b": other(value["b"])} if isinstance(value, MappingProxyType) else other(value))
        changed += [None, {}, {"a": 1, "c": 2}, (), "text", 0.5]
        for different in changed:
            unlike = made(kind, {**values_of(kind), name: different})
            assert (record == unlike) is False and (unlike == record) is False
            assert (record != unlike) is True


@pytest.mark.parametrize("kind", CLASSES)
def test_a_record_is_equal_to_itself_and_to_no_other_object(kind: type) -> None:
    """Comparison gives True or False for every public record; another class with the same values is not equal."""
    record = made(kind, values_of(kind))
    assert (record == record) is True
    assert [record == other for other in (None, 1, "text", object(), np.zeros(2).tolist())] == [False] * 5
    if not hasattr(kind, "_fields"):
        assert (record == made(type("Derived", (kind,), {}), values_of(kind))) is False


def test_runs_are_compared_by_what_was_seen(tiny_loaded: LoadedModel) -> None:
    """The same text twice gives equal runs; another text of as many tokens, another target or head mask do not."""
    encodings = [tiny_loaded.tokenizer.encode(text) for text in ("the cat sat", "the dog sat", "the cat sat")]
    one, other, again = (capture(tiny_loaded, encoding, norms=True) for encoding in encodings)
    assert one.attention.shape == other.attention.shape
    assert one == again and hash(one) == hash(again)
    assert one != other
    without = bert_core.head_mask_without(tiny_loaded.config, [(0, 0)])
    assert one != capture(tiny_loaded, encodings[0], norms=True, head_mask=without)
    assert one != capture(tiny_loaded, encodings[0])
    assert {one: "kept"}[again] == "kept"


def test_outputs_of_a_model_are_compared_by_identity(tiny_loaded: LoadedModel) -> None:
    """Outputs that hold tensors are equal to themselves alone."""
    ids = tiny_loaded.tokenizer.encode("the cat sat").input_ids
    first, second = (tiny_loaded.model.bert(torch.tensor([ids])) for _ in range(2))
    assert (first == first) is True and (first == second) is False
    assert len({first, second}) == 2
