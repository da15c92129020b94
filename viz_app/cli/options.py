"""Options of a command that are made from a settings class, which declares their defaults, limits and help texts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Annotated, Any, TypeVar

import typer

from bert_core.settings import Settings, SettingsField, options_of

Command = TypeVar("Command", bound=Callable[..., Any])


def options(
    settings_class: type[Any],
    *,
    omit: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    helps: Mapping[str, str] | None = None,
    group: str | None = None,
    parameter: str = "settings",
    partial: bool = False,
) -> Callable[[Command], Command]:
    """Return a decorator that replaces a parameter of a command by an option for each field of a settings class.

    settings_class: `Settings`, whose fields with an `Option` become options; or a dataclass with options of typer.
    omit: fields that get no option and keep their default.
    names: field -> name of its option, where it is not that of the field.
    helps: field -> help text of an option of typer.
    group: heading of these options in the help, of those that declare none.
    parameter: the parameter of the command that receives the settings.
    partial: pass a function that makes the settings, `functools.partial` of the class with the values of the options,
        for settings that the command completes.
    """
    if issubclass(settings_class, Settings):
        declared = {
            name: _option_parameter((names or {}).get(name, name), field, group)
            for name, field in options_of(settings_class).items()
        }
    else:
        fields = inspect.signature(settings_class, eval_str=True).parameters
        declared = {name: _with_help(field, (helps or {}).get(name), group) for name, field in fields.items()}
    declared = {name: field for name, field in declared.items() if name not in omit}
    make_settings: Callable[..., Any] = settings_class

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            fields = {name: values.pop(option.name) for name, option in declared.items()}
            factory = functools.partial(make_settings, **fields)
            return command(**values, **{parameter: factory if partial else factory()})

        parameters: list[inspect.Parameter] = []
        for existing in signature.parameters.values():
            if existing.name == parameter:
                parameters += declared.values()
            else:  # keyword-only, so that parameters with and without a default may stand in any order
                parameters.append(existing.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        return run  # type: ignore[return-value]

    return decorate


def _option_parameter(name: str, field: SettingsField, group: str | None) -> inspect.Parameter:
    """Return the parameter of a field; a flag for a bool, which can be negated if it is on by default."""
    kind, default, option = field
    flag = f"--{name.replace('_', '-')}"
    if kind is bool and default:
        flag += f"/--no-{name.replace('_', '-')}"
    metavar = "|".join(option.choices) or None
    limits: dict[str, Any] = {"min": option.minimum, "max": option.maximum} if kind in (int, float) else {}
    values: dict[str, Any] = {"help": option.help, "metavar": metavar, "rich_help_panel": group, **limits}
    annotation: Any = Annotated[kind, typer.Option(flag, **values)]  # type: ignore[valid-type, unused-ignore]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_help(parameter: inspect.Parameter, help: str | None, group: str | None) -> inspect.Parameter:
    """Return a parameter with another help text, which can only be passed by name. help: None for its own.

    group: for an option that declares none.
    """
    option = copy(parameter.annotation.__metadata__[0])
    option.help = option.help if help is None else help
    option.rich_help_panel = option.rich_help_panel or group
    annotation: Any = Annotated[parameter.annotation.__origin__, option]
    return parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY)
