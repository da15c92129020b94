"""Help of the commands: commands and options in groups, readable types, and an example.

The group of a command or an option is its `rich_help_panel`, which typer itself uses only for rich output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand, TyperGroup

INPUT, SETTINGS, OUTPUT, MODEL, RUN = "Input", "Settings", "Output", "Model and device", "Run"
LAST_GROUPS = (OUTPUT, MODEL, RUN, "General")
MAX_NAME = 30  # characters of a name with its help on the same line

Groups = Mapping[str, list[tuple[str, str]]]  # heading -> names with their help


class Command(TyperCommand):
    """A command whose options are listed in groups, and whose epilog is an example."""

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        for parameter in self.params:
            parameter.metavar = _metavar(parameter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the line on usage: options, those that are required, and arguments."""
        options = [f"{entry.opts[0]} {entry.metavar}" for entry in self.params if entry.required and _is_option(entry)]
        names = ((entry, _argument_name(entry)) for entry in self.params if _is_listed_argument(entry))
        return ["[OPTIONS]", *options, *(name if entry.required else f"[{name}]" for entry, name in names)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of options."""
        _write_groups(option_groups(self, ctx), formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example as it is typed, without line breaks."""
        if self.epilog:
            with formatter.section("Example"):
                formatter.write(f"  {self.epilog}\n")


class Group(TyperGroup):
    """A command with subcommands, which are listed in groups with the first line of their help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of commands, and the options."""
        groups = {
            heading: [(name, summary(command)) for name, command in commands.items()]
            for heading, commands in command_groups(self).items()
        }
        _write_groups({**groups, **option_groups(self, ctx)}, formatter)


def summary(command: Any) -> str:
    """Return the first line of the help of a command."""
    return str(command.help).partition("\n")[0]


def command_groups(group: TyperGroup) -> Mapping[str, Mapping[str, Any]]:
    """Return the commands that are not hidden by their names, in groups."""
    groups: dict[str, dict[str, Any]] = {}
    for name, command in dict[str, Any](group.commands).items():
        if not command.hidden:
            groups.setdefault(command.rich_help_panel or "Commands", {})[name] = command
    return groups


def option_groups(command: Any, ctx: Any) -> Groups:
    """Return the arguments and options of a command in groups."""
    groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], INPUT: []}
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is None:
            continue
        name, text = record
        if not _is_option(parameter):
            heading, name = "Arguments", _argument_name(parameter)
        elif isinstance(command, TyperGroup) or parameter.opts == ["--help"]:
            heading = "General"
        else:
            heading = parameter.rich_help_panel or SETTINGS
        groups.setdefault(heading, []).append((name, _limits_in_words(text)))
    headings = [*(heading for heading in groups if heading not in LAST_GROUPS), *LAST_GROUPS]
    return {heading: groups[heading] for heading in headings if groups.get(heading)}


def _is_option(parameter: Any) -> bool:
    """Return whether a parameter is an option, and no argument."""
    return bool(parameter.param_type_name == "option")


def _is_listed_argument(parameter: Any) -> bool:
    """Return whether a parameter is an argument that the help lists."""
    return not (_is_option(parameter) or parameter.hidden)


def _argument_name(parameter: Any) -> str:
    """Return the name of an argument, with dots if it can be repeated."""
    return f"{parameter.metavar}{'...' if parameter.nargs != 1 else ''}"


def _metavar(parameter: Any) -> str:
    """Return the word for the value of a parameter: the declared one, its choices, its type, or its name."""
    kind = parameter.type_descriptor
    if parameter.metavar:
        return str(parameter.metavar)
    if kind.choices:
        return "|".join(map(str, kind.choices))
    if kind.is_path:
        return "FILE" if kind.parameter_info.file_okay else "FOLDER"
    if kind.annotation in (int, float, list[int]):
        return "N"
    return str(parameter.opts[0]).lstrip("-").replace("-", "_").upper()


def _limits_in_words(text: str) -> str:
    """Return the help of an option with its limits in words, such as "1 to 5" for "1<=x<=5"."""
    text = re.sub(r"(\S+)<=x<=", r"\1 to ", text)
    return text.replace("x>=", "at least ").replace("x<=", "at most ")


def _write_groups(groups: Groups, formatter: Any) -> None:
    """Write groups below their headings, in columns of the same width."""
    names = [name for rows in groups.values() for name, _ in rows]
    width = max(len(name) for name in names if len(name) <= MAX_NAME)
    for heading, rows in groups.items():
        with formatter.section(heading):
            formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=width)
