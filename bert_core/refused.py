"""The one error whose sentence is meant for the person who asked, and what many sentences say alike."""

from __future__ import annotations

import operator
import reprlib

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


def whole(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """A whole number that was given, NumPy's too, as an int.

    Raises Refused for anything else, and for one below `least` or above `most`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        allowed = f"of at least {least}" if most is None else f"from {least:,} to {most:,}"
        raise Refused(f"{name} is {shown(value)}: it must be a whole number {allowed}")
    return number
