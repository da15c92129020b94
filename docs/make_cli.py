"""Write docs/reference/cli.md, the reference of the commands, from their declarations: `python docs/make_cli.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from viz_app.cli.command import app
from viz_app.cli.help import command_groups, option_groups, summary

DOCUMENT = Path(__file__).parent / "reference" / "cli.md"
OPENING = """# Command line

Find the command for a task, call it with the right options, and interpret how it ended. Each section has the usage of a
command, its options in groups, and an example. `headlight COMMAND --help` prints the same in a terminal.

- The result of a command goes to the standard output. Progress and notes go to the standard error stream.
- Without `--model`, commands use the bundled model `headlight-mini`.
- The examples with `texts.txt` need a plain text with one sentence per line. [Input files](input-files.md) describes
  all formats, and [File formats](file-formats.md) the columns of what commands write.
- A text that begins with a dash comes after `--`, behind all options: `headlight predict -- "-5 degrees is [MASK]."`
- Long commands say in their description that they can be resumed: after an interruption, run the same command again.

`python docs/make_cli.py` writes this document from the declarations of the commands.

## Exit codes

| Code | Meaning |
| --- | --- |
| 0 | The command succeeded. |
| 1 | Headlight has a bug. The message names the log file with the evidence; `headlight --debug COMMAND` prints it. |
| 2 | The input is invalid: one sentence on the standard error stream says why. |
| 130 | The command was interrupted with Ctrl-C. |

"""
FORMER = """
## Former commands

These names of version 0.2 still work and are not listed by `headlight --help`: {}. Use
`headlight predict` instead of the first five, and `headlight profile` instead of `dossier`.
"""


def document() -> str:
    """Return the whole document."""
    group = typer.main.get_group(app)
    sections = [OPENING, "## Commands\n\n| Command | Task |\n| --- | --- |\n"]
    groups = command_groups(group)
    for commands in groups.values():
        sections += [f"| [`{name}`](#headlight-{name}) | {summary(command)} |\n" for name, command in commands.items()]
    for heading, commands in groups.items():
        sections.append(f"\n## {heading}\n")
        sections += [part for name, command in commands.items() for part in command_parts(command, f"headlight {name}")]
    former = ", ".join(f"`{name}`" for name, command in group.commands.items() if command.hidden)
    return "".join([*sections, FORMER.format(former)])


def command_parts(command: Any, name: str) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands. name: with the names of its groups."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield f"\n### {name}\n\n{escape(command.help)}\n\n```text\n{usage}\n```\n"
    if hasattr(command, "commands"):
        for subname, subcommand in command.commands.items():
            yield from command_parts(subcommand, f"{name} {subname}")
        return
    if groups := {heading: rows for heading, rows in option_groups(command, context).items() if heading != "General"}:
        yield "\n| Option | Meaning | Default and limits |\n| --- | --- | --- |\n"
    for heading, rows in groups.items():
        yield f"| **{heading}** | | |\n"
        for label, text in rows:
            meaning, _, limits = text.partition("  [")
            yield f"| `{label.replace('|', escape('|'))}` | {escape(meaning)} | {limits.removesuffix(']')} |\n"
    yield f"\nExample:\n\n```bash\n{command.epilog}\n```\n"


def escape(text: str) -> str:
    """Return a text with those characters escaped that Markdown would read in a table."""
    return text.replace("|", r"\|").replace("*", r"\*")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
