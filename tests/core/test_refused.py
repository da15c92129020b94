"""The decorators that check arguments, with every kind of wrong value; and that every public function has one."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bert_core
from bert_core import Encoding, Refused
from bert_core.deprecation import renamed_parameters
from bert_core.refused import _classes_of_hint, validate_arguments, validate_arrays

ODD: tuple[Any, ...] = (
    None, -1, 10**9, 10**30, math.nan, math.inf, 0.5, "x", "", b"x", True, [], [[]], [None], ["x"], [-1], [10**9],
    [0.5], [True], {}, {"a": 1}, object(), np.int64(1), np.array([1, 2]), np.array([0.5]), np.zeros((3, 3)),
    np.full((2, 4), math.nan), np.array("x"), torch.zeros(2, 4), Path("nothing"), range(2), {1}, len, [(0, 0)],
    [(9, 9)], [("a", "b")], [(0,)], [(0.0, 1)], [[0, 1, 2]],
)  # fmt: skip
"""Values that a caller may pass by mistake."""


def is_integer(value: Any) -> bool:
    return type(value) in (int, np.int64)


def is_number(value: Any) -> bool:
    return type(value) in (int, float, np.int64) and not math.isnan(value)


def is_text(value: Any) -> bool:
    return type(value) is str


def is_path(value: Any) -> bool:
    return isinstance(value, str | Path)


def unless_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


# Annotation -> which values it allows, and what a value becomes.
ANNOTATIONS: dict[Any, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    int: (is_integer, int),
    float: (is_number, float),
    bool: (lambda value: value is True, bool),
    str: (is_text, str),
    Path: (is_path, Path),
    Encoding: (lambda value: False, Encoding),
    int | None: (lambda value: value is None or is_integer(value), unless_none(int)),
    float | None: (lambda value: value is None or is_number(value), unless_none(float)),
    str | Path: (is_path, lambda value: value),
}


def annotated(annotation: Any) -> Callable[[Any], Any]:
    """A function with one argument of this annotation, which returns what it receives."""

    def function(argument: Any) -> Any:
        return argument

    function.__annotations__ = {"argument": annotation}
    return validate_arguments(function)


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_a_value_is_converted_or_refused_by_the_name_of_its_argument(annotation: Any) -> None:
    """Allowed values arrive as Python's own types; any other value is one line that names the argument."""
    allowed, convert = ANNOTATIONS[annotation]
    function = annotated(annotation)
    for value in ODD:
        if allowed(value):
            result, expected = function(value), convert(value)
            assert type(result) is type(expected) and result == expected, value
        else:
            with pytest.raises(Refused, match=r"^argument is ") as error:
                function(value)
            assert "\n" not in str(error.value) and len(str(error.value)) < 300, value


def test_numpy_booleans_are_booleans_and_no_numbers() -> None:
    """A switch from an array is one; where a number is expected, it is refused as True is."""
    assert annotated(bool)(np.False_) is False and annotated(bool)(np.array(True)) is True
    for annotation in (int, float):
        with pytest.raises(Refused, match=r"^argument is "):
            annotated(annotation)(np.True_)


@validate_arrays(figures="layer head", weights="head")
def arrays(figures: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    return figures, weights


def test_an_array_has_the_declared_axes_or_is_refused() -> None:
    """Two axes, none of them empty, of real numbers: lists become float64, and float32 stays as it is."""
    for value in ODD:
        try:
            shape = np.asarray(value).shape if not isinstance(value, np.ma.MaskedArray) else ()
            real = np.asarray(value).dtype.kind in "fiu"
        except ValueError:
            shape, real = (), False
        if len(shape) == 2 and 0 not in shape and real:
            result, _ = arrays(value)
            assert result.shape == shape and result.dtype in (np.float32, np.float64), value
        else:
            with pytest.raises(Refused, match=r"^figures is ") as error:
                arrays(value)
            assert "\n" not in str(error.value) and "(layer, head)" in str(error.value), value


def test_axes_of_one_name_have_one_size() -> None:
    """The second array is compared with the first; None is allowed where the annotation allows it."""
    figures = np.zeros((2, 3))
    assert arrays(figures, None)[1] is None and arrays(figures, [1, 2, 3])[1].shape == (3,)
    with pytest.raises(Refused, match=r"^weights is \(2,\): it must be \(head,\), and head is 3 in figures"):
        arrays(figures, [1, 2])


def test_every_public_function_checks_its_arguments() -> None:
    """A decorator checks every argument whose annotation is a class; a function without one takes lists and arrays
    alone, which it checks itself (`test_odd_inputs`).
    """
    functions = {name: getattr(bert_core, name) for name in bert_core.__all__}
    functions = {name: function for name, function in functions.items() if inspect.isfunction(function)}
    renamed_in = renamed_parameters.__code__.co_filename  # functions that also take old parameter names
    current = {
        name: function.__wrapped__ if function.__code__.co_filename == renamed_in else function
        for name, function in functions.items()
    }
    decorated = {
        name
        for name, function in current.items()
        if function.__code__.co_filename == validate_arguments.__code__.co_filename
    }
    assert len(decorated) > 150
    for name in functions.keys() - decorated:
        hints = typing.get_type_hints(functions[name])
        checkable = [
            argument for argument in inspect.signature(functions[name]).parameters if _classes_of_hint(hints[argument])
        ]
        assert checkable == [], (name, checkable)
