"""`Settings`, frozen dataclasses whose fields declare their default, limits and help text in one place.

The fields are validated when settings are made, and commands and pages take defaults, limits and help texts from them.
Modules that define settings import neither torch nor numpy, so that `headlight --help` starts fast.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple

from bert_core.refused import Refused, convert_argument, require_float, require_int, short_repr


@dataclass(frozen=True)
class Option:
    """Help text and allowed values of a field of `Settings`, as in `Annotated[int, Option("Number of seeds.", 1)] = 3`.

    help: a sentence that says what the value is.
    minimum, maximum: inclusive bounds of a number; None means no bound.
    choices: allowed texts; empty if any text is allowed.
    """

    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: object, kind: type) -> Any:
        """Return a value as an instance of `kind`, which is int, float, bool or str.

        name: what the message calls the value.
        Raises Refused for a value of another type, out of bounds, or that is not one of the choices.
        """
        if kind is int:
            bounds = (None if bound is None else int(bound) for bound in (self.minimum, self.maximum))
            return require_int(name, value, *bounds)
        if kind is float:
            given = {"minimum": self.minimum, "maximum": self.maximum}
            return require_float(name, value, **{key: bound for key, bound in given.items() if bound is not None})
        checked = convert_argument(name, value, (kind,))
        if self.choices and checked not in self.choices:
            raise Refused(f"{name} is {short_repr(value)}: it must be one of {', '.join(self.choices)}")
        return checked


class SettingsField(NamedTuple):
    """A field of `Settings` with an option: its type (int, float, bool or str), its default and its `Option`."""

    kind: type
    default: Any
    option: Option


@dataclass(frozen=True)
class Settings:
    """Base of frozen dataclasses whose fields are validated by their `Option`.

    A subclass that defines `__post_init__` calls that of its base first.
    Raises Refused for a value that the option of its field does not allow.
    """

    def __post_init__(self) -> None:
        for name, field in options_of(type(self)).items():
            object.__setattr__(self, name, field.option.check(name, getattr(self, name), field.kind))


def options_of(settings_class: type[Settings]) -> Mapping[str, SettingsField]:
    """Return the fields of a settings class that have an `Option`, by name, in the order of their definition."""
    hints = typing.get_type_hints(settings_class, include_extras=True)
    return {
        field.name: SettingsField(hints[field.name].__origin__, field.default, option)
        for field in fields(settings_class)
        for option in getattr(hints[field.name], "__metadata__", ())
        if isinstance(option, Option) and field.default is not MISSING
    }


def option_of(settings_class: type[Settings], name: str) -> SettingsField:
    """Return the type, default and `Option` of one field. Raises KeyError for a field without an option."""
    return options_of(settings_class)[name]
