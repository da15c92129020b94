"""The one error whose sentence is meant for the person who asked, and the checks of what a caller gives."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:  # NumPy is imported where there is an array: a command that only helps or refuses does without
    import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Instance = TypeVar("Instance")

MAX_SEED = 2**63 - 1  # that torch.Generator takes
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60


class Refused(ValueError):
    """What was asked for cannot be: one sentence that says what was given and what is allowed.

    Whoever shows errors to people shows this one as it is; any other exception is a bug.
    """


def short_repr(value: object) -> str:
    """What was given, on one line of a sentence: as Python writes it, cut where it is long."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes
        return f"a {type(value).__name__} too long to show"


def require_int(name: str, value: object, least: int | None = 0, most: int | None = None) -> int:
    """A whole number that was given, NumPy's too, as an int.

    Raises Refused for anything else, and for one below `least` or above `most`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # an array of several, or of other numbers
        number = None
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        allowed = "" if least is None else f" of at least {least}" if most is None else f" from {least:,} to {most:,}"
        raise Refused(f"{name} is {short_repr(value)}: it must be a whole number{allowed}")
    return number


def require_float(name: str, value: object, least: float = -math.inf, most: float = math.inf) -> float:
    """A real number that was given, NumPy's too, as a float.

    Raises Refused for anything else, NaN, and for one below `least` or above `most`.
    """
    one = _alone(value)
    try:
        found = float(one) if isinstance(one, Real) and not isinstance(one, bool) else math.nan
    except OverflowError:
        found = math.nan
    if not least <= found <= most:
        bounds = ((least, -math.inf, "of at least"), (most, math.inf, "of at most"))
        allowed = " and ".join(f"{words} {bound:g}" for bound, none, words in bounds if bound != none)
        raise Refused(f"{name} is {short_repr(value)}: it must be a number{allowed and ' ' + allowed}")
    return found


def _alone(value: Any) -> object:
    """What is one number or switch of NumPy's, or an array of no axes, as Python's; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def require_sequence(name: str, values: object, of: str) -> tuple[Any, ...]:
    """What a list, an array or anything else that can be gone through holds; `of` says what it should hold.

    Raises Refused for what holds nothing, and for a text, of which nobody means the letters.
    """
    return tuple(iterate_items(name, values, of))


def iterate_items(name: str, values: object, of: str) -> Iterator[Any]:
    """As `several`, for what may be too much to hold at once."""
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError
        return iter(typing.cast("Iterable[Any]", values))
    except TypeError as error:
        raise Refused(f"{name} is {short_repr(values)}: it must be a list of {of}") from error


def require_instances(name: str, values: object, kind: type[Instance]) -> tuple[Instance, ...]:
    """What a list holds, each of one class. Raises Refused for anything else."""
    given = require_sequence(name, values, kind.__name__)
    for one in given:
        if not isinstance(one, kind):
            raise Refused(f"one of {name} is {short_repr(one)}: it must be of type {kind.__name__}")
    return given


def require_array(
    name: str, value: object, axes: str, sizes: dict[str, tuple[str, object]] | None = None
) -> np.ndarray:
    """What NumPy makes an array of real numbers of, lists too, with these axes, as "layer head query key".

    "..." in front stands for any others. float32 and float64 stay as they are, other numbers become float64.
    sizes: of the axes that are known already, by name, each with the array that it was seen in; these are added.
    Raises Refused for anything else, an axis without an entry, and two axes of one name that differ in size.
    """
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):  # NumPy would take what stands under its mask
        raise Refused(f"{name} is a masked array: fill in what is masked, as with NaN; it must be {_in_brackets(axes)}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise Refused(f"{name} is {short_repr(value)}: it must be an array of numbers, {_in_brackets(axes)}") from error
    if array.dtype.kind not in "fiu" or not array.ndim:
        given = f"of {array.dtype}" if isinstance(value, np.ndarray) and array.ndim else short_repr(value)
        raise Refused(f"{name} is {given}: it must be an array of real numbers, {_in_brackets(axes)}")
    _fit(name, array.shape, axes, {} if sizes is None else sizes)
    if array.dtype in (np.float32, np.float64):
        return array
    with np.errstate(over="ignore"):  # of a wider type, what is too large becomes infinite
        return array.astype(np.float64)


def check_finite(name: str, array: np.ndarray) -> None:
    """Raise Refused for an array with NaN or an infinite number."""
    import numpy as np

    if not np.isfinite(array).all():
        raise Refused(f"{name} holds {array[~np.isfinite(array)][0]:g}: every number must be finite")


def _in_brackets(axes: str) -> str:
    words = axes.split()
    return f"({', '.join(words)}{',' * (len(words) == 1)})"


def _fit(name: str, shape: tuple[int, ...], axes: str, sizes: dict[str, tuple[str, object]]) -> None:
    """Raise Refused unless a shape has these axes, none empty, of the sizes that are known; add its own to these."""
    words, wanted = axes.split(), _in_brackets(axes)
    front = words[0] == "..."
    cut = len(shape) - len(words) + front
    if cut < 0 or (cut and not front):
        raise Refused(f"{name} is {shape}: it must be {wanted}")
    if 0 in shape:
        raise Refused(f"{name} is {shape}: it must be {wanted}, none of them empty")
    parts: tuple[object, ...] = (shape[:cut], *shape[cut:]) if front else shape
    for word, size in zip(words, parts, strict=True):
        where, known = sizes.setdefault(word, (name, size))
        if size != known:
            other = f"and {word} is {known} in {where}" if where != name else f"each {word} of one size"
            raise Refused(f"{name} is {shape}: it must be {wanted}, {other}")


def validate_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same function, whose arguments are held against its signature first: the door of what callers ask directly.

    Where the signature names classes alone, another argument is Refused by name; NumPy's numbers and switches become
    Python's, and where it names a Path, texts become paths. Lists and arrays are left to the function.
    """
    return validate_arrays()(function)


def validate_arrays(**axes: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """As `checked`, for functions of arrays: each is held against its axes, and against the others' of the same names.

    axes: of each array, as attention="layer head query key", as `real_array` reads them; of what has a length, as an
    Encoding, the axis that it counts. None is let through where the signature has it.
    NaN and infinite numbers are let through, and NumPy warns of none: what comes of them says so itself.
    """

    def door(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)

        @functools.cache
        def hints() -> dict[str, Any]:
            return typing.get_type_hints(function)

        @functools.cache
        def doors() -> dict[str, tuple[type, ...]]:
            kinds = {name: _kinds(hints()[name]) for name in signature.parameters if name in hints()}
            return {name: classes for name, classes in kinds.items() if classes}

        @functools.wraps(function)
        def asked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments
            for name, classes in doors().items():
                if name in given:
                    given[name] = _taken(name, given[name], classes)
            if not axes:
                return function(*bound.args, **bound.kwargs)
            import numpy as np

            sizes: dict[str, tuple[str, object]] = {}
            for name, words in axes.items():
                if name in doors():
                    _fit(name, (len(given[name]),), words, sizes)
                elif given.get(name) is not None or types.NoneType not in typing.get_args(hints()[name]):
                    given[name] = require_array(name, given[name], words, sizes)
            with np.errstate(all="ignore"):
                return function(*bound.args, **bound.kwargs)

        return asked

    return door


def _kinds(hint: Any) -> tuple[type, ...]:
    """The classes that a signature names, one or several; none where it names anything that is more than its class."""
    several_kinds = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = [os.PathLike if typing.get_origin(one) is os.PathLike else one
             for one in (typing.get_args(hint) if several_kinds else (hint,))]  # fmt: skip
    plain = all(isinstance(one, type) and typing.get_origin(one) is None for one in kinds)
    return tuple(kinds) if plain and not any(one is object or one.__module__ == "numpy" for one in kinds) else ()


def _taken(name: str, value: object, classes: tuple[type, ...]) -> object:
    if isinstance(value, classes) and not isinstance(value, bool | float):
        return value
    if bool in classes and isinstance(switch := _alone(value), bool):
        return switch
    if Path in classes and isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
        return Path(value)
    if float in classes:
        return require_float(name, value)
    if int in classes:
        return require_int(name, value, least=None)
    wanted = " or ".join("nothing" if one is types.NoneType else one.__name__ for one in classes)
    raise Refused(f"{name} is {short_repr(value)}: it must be of type {wanted}")
