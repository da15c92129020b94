"""Old names of attributes and parameters, which keep working for one release with a DeprecationWarning.

`bert_core/__init__.py` does the same for old names of the package itself.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

REMOVED_IN = "0.4"  # the version that no longer has the old names
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)


def warn_of_new_name(old: str, new: str, stacklevel: int = 3) -> None:
    """Emit the DeprecationWarning for an old name, attributed to the caller of the function that calls this one."""
    message = f"{old} is now {new}; the old name will be removed in version {REMOVED_IN}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


class RenamedAttribute:
    """A descriptor that returns the attribute, property or method of the new name and warns.

    new: name of the attribute in the same class.
    """

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old, self.owner = name, owner.__name__

    def __get__(self, instance: object, owner: type) -> Any:
        warn_of_new_name(f"{self.owner}.{self.old}", f"{self.owner}.{self.new}")
        return getattr(owner if instance is None else instance, self.new)


def renamed_fields(**new_names: str) -> Callable[[Class], Class]:
    """Return a decorator for a dataclass or named tuple some of whose fields have new names.

    new_names: old name of each field -> its new name. The old names work as attributes and as keywords of the
    constructor. The decorator must be the outermost one.
    """

    def decorate(owner: Class) -> Class:
        constructor = "__new__" if issubclass(owner, tuple) else "__init__"
        setattr(owner, constructor, renamed_parameters(**new_names)(getattr(owner, constructor)))
        for old, new in new_names.items():
            attribute = RenamedAttribute(new)
            attribute.__set_name__(owner, old)
            setattr(owner, old, attribute)
        return owner

    return decorate


def accept_old_overrides(owner: type, base: type) -> None:
    """Let a subclass override attributes and methods under their old names, with a warning.

    owner: the subclass. base: the class whose `RenamedAttribute` members define old and new names. Call this function
    in `__init_subclass__` of `base`.
    """
    for old, attribute in vars(base).items():
        if isinstance(attribute, RenamedAttribute) and old in vars(owner) and attribute.new not in vars(owner):
            warn_of_new_name(f"{owner.__name__}.{old}", f"{owner.__name__}.{attribute.new}", stacklevel=4)
            setattr(owner, attribute.new, vars(owner)[old])


def renamed_parameters(**new_names: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator for a function some of whose keyword parameters have new names.

    new_names: old name of each parameter -> its new name. The decorator must be the outermost one.
    The decorated function raises TypeError if a call has both names of one parameter.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for old, new in new_names.items():
                if old in kwargs:
                    if new in kwargs:
                        raise TypeError(f"{function.__name__}() got both {new} and its old name {old}")
                    warn_of_new_name(f"the parameter {old} of {function.__name__}", new)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
