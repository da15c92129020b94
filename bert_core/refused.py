"""`Refused`, the error whose message is shown to users, and functions that validate arguments."""

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

if TYPE_CHECKING:  # functions import NumPy when they need it, so that commands without arrays start fast
    import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Instance = TypeVar("Instance")

MAX_SEED = 2**63 - 1  # the largest seed of torch.Generator
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxlevel, _SHORT_REPR.maxstring, _SHORT_REPR.maxother = 2, 60, 60


class Refused(ValueError):
    """Invalid input or an impossible request.

    The message is one sentence that says what was given and what is allowed. A user interface shows it unchanged, and
    treats any other exception as a bug.
    """


def short_repr(value: object) -> str:
    """Return the `repr` of a value on one line, shortened if it is long, for use in a message."""
    try:
        return " ".join(_SHORT_REPR.repr(value).split())
    except (ValueError, RecursionError):  # more digits than Python converts to text, or too many nested levels
        return f"a {type(value).__name__} too long to show"


def require_int(name: str, value: object, minimum: int | None = 0, maximum: int | None = None) -> int:
    """Return an integer argument as an int; NumPy integers are accepted.

    name: what messages call the argument.
    minimum, maximum: inclusive bounds; None means no bound.
    Raises Refused if the value is not an integer, or is out of bounds.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # arrays with several elements or with another number type
        number = None
    if number is None or (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        allowed = (
            ""
            if minimum is None
            else f" of at least {minimum}"
            if maximum is None
            else f" from {minimum:,} to {maximum:,}"
        )
        raise Refused(f"{name} is {short_repr(value)}: it must be a whole number{allowed}")
    return number


def require_float(name: str, value: object, minimum: float = -math.inf, maximum: float = math.inf) -> float:
    """Return a real number as a float; NumPy numbers are accepted.

    name: what messages call the argument.
    minimum, maximum: inclusive bounds.
    Raises Refused if the value is not a real number, is NaN, or is out of bounds.
    """
    scalar = _unwrap_scalar(value)
    try:
        number = float(scalar) if isinstance(scalar, Real) and not isinstance(scalar, bool) else math.nan
    except OverflowError:
        number = math.nan
    if not minimum <= number <= maximum:
        bounds = ((minimum, -math.inf, "of at least"), (maximum, math.inf, "of at most"))
        allowed = " and ".join(f"{words} {bound:g}" for bound, unbounded, words in bounds if bound != unbounded)
        raise Refused(f"{name} is {short_repr(value)}: it must be a number{allowed and ' ' + allowed}")
    return number


def _unwrap_scalar(value: Any) -> object:
    """Return the Python number or bool of a NumPy scalar or an array without axes; return other values unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def require_sequence(name: str, values: object, contents: str) -> tuple[Any, ...]:
    """Return the items of a list, array or other iterable as a tuple.

    name: what messages call the argument. contents: the expected items, in the plural, for the message.
    Raises Refused if the value is not iterable, or is a mapping or a text, whose characters are never meant.
    """
    return tuple(iterate_items(name, values, contents))


def iterate_items(name: str, values: object, contents: str) -> Iterator[Any]:
    """Return an iterator over the items that `require_sequence` would return, for inputs too large for memory."""
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError
        return iter(typing.cast("Iterable[Any]", values))
    except TypeError as error:
        raise Refused(f"{name} is {short_repr(values)}: it must be a list of {contents}") from error


def require_instances(name: str, values: object, kind: type[Instance]) -> tuple[Instance, ...]:
    """Return the items of an iterable, all of them instances of one class.

    Raises Refused if the value is not iterable, or an item is not an instance of `kind`.
    """
    items = require_sequence(name, values, kind.__name__)
    for item in items:
        if not isinstance(item, kind):
            raise Refused(f"one of {name} is {short_repr(item)}: it must be of type {kind.__name__}")
    return items


def require_array(
    name: str, value: object, axes: str, sizes: dict[str, tuple[str, object]] | None = None
) -> np.ndarray:
    """Return an array of real numbers, converted from lists if necessary.

    name: what messages call the argument.
    axes: names of the expected axes, such as "layer head query key". A leading "..." stands for any further axes.
    sizes: known sizes of axes by name, each with the name of the array that has it. The function adds new axes to it.
    Returns float32 and float64 arrays unchanged, and arrays of other number types as float64.
    Raises Refused if the value is no array of real numbers, has other axes or an empty axis, or if two axes with one
    name differ in size.
    """
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):  # np.asarray would return the values below the mask
        raise Refused(
            f"{name} is a masked array: it must be {_format_axes(axes)} without a mask, so fill masked entries, "
            "for example with NaN"
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise Refused(f"{name} is {short_repr(value)}: it must be an array of numbers, {_format_axes(axes)}") from error
    if array.dtype.kind not in "fiu" or not array.ndim:
        description = f"of {array.dtype}" if isinstance(value, np.ndarray) and array.ndim else short_repr(value)
        raise Refused(f"{name} is {description}: it must be an array of real numbers, {_format_axes(axes)}")
    _check_axes(name, array.shape, axes, {} if sizes is None else sizes)
    if array.dtype in (np.float32, np.float64):
        return array
    with np.errstate(over="ignore"):  # numbers of a wider type that float64 cannot hold become infinite
        return array.astype(np.float64)


def check_finite(name: str, array: np.ndarray) -> None:
    """Raise Refused if an array contains NaN or an infinite number."""
    import numpy as np

    if not np.isfinite(array).all():
        raise Refused(f"{name} holds {array[~np.isfinite(array)][0]:g}: every number must be finite")


def _format_axes(axes: str) -> str:
    """Return axis names in the notation of a tuple: "layer head" becomes "(layer, head)"."""
    words = axes.split()
    return f"({', '.join(words)}{',' * (len(words) == 1)})"


def _check_axes(name: str, shape: tuple[int, ...], axes: str, sizes: dict[str, tuple[str, object]]) -> None:
    """Raise Refused unless a shape has the given axes with their known sizes, none empty; add new sizes to `sizes`."""
    words, expected = axes.split(), _format_axes(axes)
    has_further_axes = words[0] == "..."
    further_count = len(shape) - len(words) + has_further_axes
    if further_count < 0 or (further_count and not has_further_axes):
        raise Refused(f"{name} is {shape}: it must be {expected}")
    if 0 in shape:
        raise Refused(f"{name} is {shape}: it must be {expected}, none of them empty")
    parts: tuple[object, ...] = (shape[:further_count], *shape[further_count:]) if has_further_axes else shape
    for word, size in zip(words, parts, strict=True):
        array_name, known_size = sizes.setdefault(word, (name, size))
        if size != known_size:
            reason = f"and {word} is {known_size} in {array_name}" if array_name != name else f"each {word} of one size"
            raise Refused(f"{name} is {shape}: it must be {expected}, {reason}")


def validate_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a public function so that it checks its arguments against the type hints of its signature.

    Arguments whose hint consists of plain classes must be instances of them. NumPy numbers and bools are converted to
    those of Python, and texts to paths where the hint has Path. The function itself has to check lists and arrays.
    The decorated function raises Refused, with the name of the parameter, for an argument of another type.
    """
    return validate_arrays()(function)


def validate_arrays(**axes: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator like `validate_arguments` that also checks the shapes of arrays.

    axes: parameter name -> axis names, such as attention="layer head query key", as in `require_array`. For an argument
        with a length, such as an Encoding, the one axis is its length. Axes with one name must have one size.
    None is accepted where the type hint allows it. NaN and infinite numbers are accepted, and NumPy's warnings about
    floating-point errors are off inside the function, whose result shows them.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)

        @functools.cache
        def hints() -> dict[str, Any]:
            return typing.get_type_hints(function)

        @functools.cache
        def checked_classes() -> dict[str, tuple[type, ...]]:
            kinds = {name: _classes_of_hint(hints()[name]) for name in signature.parameters if name in hints()}
            return {name: classes for name, classes in kinds.items() if classes}

        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            bound = signature.bind(*args, **kwargs)
            arguments = bound.arguments
            for name, classes in checked_classes().items():
                if name in arguments:
                    arguments[name] = convert_argument(name, arguments[name], classes)
            if not axes:
                return function(*bound.args, **bound.kwargs)
            import numpy as np

            sizes: dict[str, tuple[str, object]] = {}
            for name, words in axes.items():
                if name in checked_classes():
                    _check_axes(name, (len(arguments[name]),), words, sizes)
                elif arguments.get(name) is not None or types.NoneType not in typing.get_args(hints()[name]):
                    arguments[name] = require_array(name, arguments[name], words, sizes)
            with np.errstate(all="ignore"):
                return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def _classes_of_hint(hint: Any) -> tuple[type, ...]:
    """Return the classes in a type hint, or () if `isinstance` with them would not decide whether a value fits."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = [
        os.PathLike if typing.get_origin(member) is os.PathLike else member
        for member in (typing.get_args(hint) if is_union else (hint,))
    ]
    plain = all(isinstance(kind, type) and typing.get_origin(kind) is None for kind in kinds)
    undecided = any(kind in (object, Any) or kind.__module__ == "numpy" for kind in kinds)
    return tuple(kinds) if plain and not undecided else ()


def convert_argument(name: str, value: object, classes: tuple[type, ...]) -> object:
    """Return an argument as an instance of one of the classes, or raise Refused."""
    if isinstance(value, classes) and not isinstance(value, bool | float):
        return value
    if bool in classes and isinstance(switch := _unwrap_scalar(value), bool):
        return switch
    if Path in classes and isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
        return Path(value)
    if float in classes:
        return require_float(name, value)
    if int in classes:
        return require_int(name, value, minimum=None)
    expected = " or ".join("nothing" if kind is types.NoneType else kind.__name__ for kind in classes)
    raise Refused(f"{name} is {short_repr(value)}: it must be of type {expected}")
