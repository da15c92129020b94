"""The one error whose sentence is meant for the person who asked, and the checks of what a caller gives."""

from __future__ import annotations

import functools
import inspect
import operator
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60


class Refused(ValueError):
    """What was asked for cannot be: one sentence that says what was given and what is allowed.

    Whoever shows errors to people shows this one as it is; any other exception is a bug.
    """


def shown(value: object) -> str:
    """What was given, on one line of a sentence: as Python writes it, cut where it is long."""
    try:
        return " ".join(_SHORT.repr(value).split())
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes
        return f"a {type(value).__name__} too long to show"


def whole(name: str, value: object, least: int | None = 0, most: int | None = None) -> int:
    """A whole number that was given, NumPy's too, as an int.

    Raises Refused for anything else, and for one below `least` or above `most`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # an array of several, or of other numbers
        number = None
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        allowed = "" if least is None else f" of at least {least}" if most is None else f" from {least:,} to {most:,}"
        raise Refused(f"{name} is {shown(value)}: it must be a whole number{allowed}")
    return number


def several(name: str, values: object, of: str) -> tuple[Any, ...]:
    """What a list, an array or anything else that can be gone through holds; `of` says what it should hold.

    Raises Refused for what holds nothing, and for a text, of which nobody means the letters.
    """
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError
        return tuple(typing.cast("Iterable[Any]", values))
    except TypeError as error:
        raise Refused(f"{name} is {shown(values)}: it must be a list of {of}") from error


def checked(function: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """The same function, whose arguments are held against its signature first: the door of what callers ask directly.

    Where the signature names classes alone, another argument is Refused by name; NumPy's whole numbers become ints,
    and where it names a Path, texts become paths. Lists, arrays, floats and switches are left to the function.
    """
    signature = inspect.signature(function)

    @functools.cache
    def doors() -> dict[str, tuple[type, ...]]:
        hints = typing.get_type_hints(function)
        kinds = {name: _kinds(hints[name]) for name in signature.parameters if name in hints}
        return {name: classes for name, classes in kinds.items() if classes}

    @functools.wraps(function)
    def asked(*args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        bound = signature.bind(*args, **kwargs)
        for name, classes in doors().items():
            if name in bound.arguments:
                bound.arguments[name] = _taken(name, bound.arguments[name], classes)
        return function(*bound.args, **bound.kwargs)

    return asked


def _kinds(hint: Any) -> tuple[type, ...]:
    """The classes that a signature names, one or several; none where it names anything that is more than its class."""
    several_kinds = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = [os.PathLike if typing.get_origin(one) is os.PathLike else one
             for one in (typing.get_args(hint) if several_kinds else (hint,))]  # fmt: skip
    plain = all(isinstance(one, type) and typing.get_origin(one) is None for one in kinds)
    left = (bool, float, object) if plain else ()
    return tuple(kinds) if plain and not any(one in left or one.__module__ == "numpy" for one in kinds) else ()


def _taken(name: str, value: object, classes: tuple[type, ...]) -> object:
    if isinstance(value, classes) and not isinstance(value, bool):
        return value
    if Path in classes and isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
        return Path(value)
    if int in classes:
        return whole(name, value, least=None)
    wanted = " or ".join("nothing" if one is types.NoneType else one.__name__ for one in classes)
    raise Refused(f"{name} is {shown(value)}: it must be of type {wanted}")
