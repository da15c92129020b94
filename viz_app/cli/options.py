"""Options of a command that are made from a settings class, which declares their defaults, limits and help texts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

import typer

from bert_core.settings import Settings, SettingsField, options_of

Command = TypeVar("Command", bound=Callable[..., Any])


def options(
    settings_class: type[Settings],
    *,
    omit: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    parameter: str = "settings",
    partial: bool = False,
) -> Callable[[Command], Command]:
    """Return a decorator that replaces a parameter of a command by an option for each `Option` of a settings class.

    omit: fields that get no option and keep their default.
    names: field -> name of its option, where it is not that of the field.
    parameter: the parameter of the command that receives the settings.
    partial: pass a function that makes the settings, `functools.partial` of the class with the values of the options,
        for settings that the command completes.
    """
    declared = {name: field for name, field in options_of(settings_class).items() if name not in omit}
    arguments = {name: (names or {}).get(name, name) for name in declared}

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**given: Any) -> Any:
            make = functools.partial(settings_class, **{name: given.pop(key) for name, key in arguments.items()})
            return command(**given, **{parameter: make if partial else make()})

        parameters: list[inspect.Parameter] = []
        for own in signature.parameters.values():
            replaced = own.name == parameter
            parameters += (
                [_option(arguments[name], field) for name, field in declared.items()] if replaced else [_keyword(own)]
            )
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {own.name: own.annotation for own in parameters}
        return run  # type: ignore[return-value]

    return decorate


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter as keyword-only, so that parameters with and without a default may stand in any order."""
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _option(name: str, field: SettingsField) -> inspect.Parameter:
    """Return the parameter of a field; a flag for a bool, which can be negated if it is on by default."""
    kind, default, option = field
    flag = f"--{name.replace('_', '-')}"
    if kind is bool and default:
        flag += f"/--no-{name.replace('_', '-')}"
    metavar = "|".join(option.choices) or None
    limits: dict[str, Any] = {"min": option.minimum, "max": option.maximum} if kind in (int, float) else {}
    annotation: Any = Annotated[kind, typer.Option(flag, help=option.help, metavar=metavar, **limits)]  # type: ignore[valid-type, unused-ignore]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
