"""The help of the commands: a line for each command, options in groups, and examples that run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from viz_app import cli
from viz_app.cli.command import app
from viz_app.cli.help import SETTINGS, command_groups, option_groups, summary
from viz_app.cli.serve import MALLOC
from viz_app.shell.params import GROUPS

ROOT = typer.main.get_group(app)
MAX_SUMMARY = 56  # characters beside the longest name of a command, in 80 columns
TEXTS = "She opened the door and walked in.\nThe cat sat on the mat.\nHe closed the window because it was cold.\n"
# Examples that run long, serve the app, or read a model, a treebank or a table of the user; `site` exports the same
# graph as export-onnx.
NOT_RUN = {
    *(
        "app",
        "compare-models",
        "direct",
        "evaluate",
        "export-onnx",
        "faithfulness",
        "finetune",
        "pretrain",
        "probe",
        "prune-curve",
        "roles",
        "steer",
    ),
    *("train-captioner", "tune-lens"),
}


def visible_commands(group: Any = ROOT, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and commands that are not hidden; those of a group come after the names of the group."""
    for commands in command_groups(group).values():
        for name, command in commands.items():
            if hasattr(command, "commands"):
                yield from visible_commands(command, f"{prefix}{name} ")
            else:
                yield prefix + name, command


COMMANDS = dict(visible_commands())


def arguments_of(example: str) -> list[str]:
    """The words of an example after `headlight`, as a shell reads them."""
    return shlex.split(example)[1:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with small files that examples read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text(TEXTS, encoding="utf-8")
    (tmp_path / "masked.txt").write_text(TEXTS.replace("door", "[MASK]"), encoding="utf-8")
    return tmp_path


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints in a terminal of 80 columns, if it succeeds."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in MALLOC.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert not ended.value.code, (arguments, capsys.readouterr().err)
    return capsys.readouterr().out


def test_every_command_is_one_line_of_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole sentence beside its name, below a heading, most of which are those of the app's navigation."""
    text = printed(monkeypatch, capsys, "--help")
    assert "…" not in text and "..." not in text.partition("\n\n")[2]
    for commands in command_groups(ROOT).values():
        for name, command in commands.items():
            assert re.search(rf"^  {name} +{re.escape(summary(command))}$", text, re.MULTILINE), name
    assert list(command_groups(ROOT)) == ["App", *GROUPS]


@pytest.mark.parametrize("group", [(), ("lessons",)])
def test_a_group_without_a_command_prints_its_help(
    group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In lines, on the standard output."""
    assert printed(monkeypatch, capsys, *group) == printed(monkeypatch, capsys, *group, "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_one_short_sentence(name: str) -> None:
    """It begins with a capital, ends with its only full stop, and fits."""
    line = summary(COMMANDS[name])
    assert re.fullmatch(r"[A-Z][^.]+\.", line) and len(line) <= MAX_SUMMARY


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_groups_types_and_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each option is below a heading, no line is too long, and the types are words."""
    command = COMMANDS[name]
    text = printed(monkeypatch, capsys, *name.split(), "--help")
    assert text.endswith(f"\n\nExample:\n  {command.epilog}\n")
    assert max(map(len, text.splitlines())) <= 80 and not re.search(r"<\w|<=|>=|\nOptions:", text)
    groups = option_groups(command, typer.Context(command, info_name=name))
    listed = " ".join(row for rows in groups.values() for row, _ in rows)
    for parameter in command.params:
        assert parameter.hidden or parameter.param_type_name == "argument" or parameter.opts[0] in listed, name
    large = [heading for heading, rows in groups.items() if len(rows) > 9]
    assert not large and (SETTINGS not in groups or len(groups[SETTINGS]) < 9)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_read_by_it(name: str, folder: Path) -> None:
    """All its options and arguments exist; files that it names are made for that."""
    words = arguments_of(COMMANDS[name].epilog or "")
    names = name.split()
    assert words[: len(names)] == names
    for word in words:
        if re.fullmatch(r"[\w-]+\.(conllu|csv|toml)", word):
            (folder / word).touch()
    assert not COMMANDS[name].make_context(name, words[len(names) :]).args


@pytest.mark.slow
def test_the_examples_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the help, so that an index is built before it is searched."""
    assert COMMANDS.keys() >= NOT_RUN
    for name, command in COMMANDS.items():
        if name not in NOT_RUN:
            printed(monkeypatch, capsys, *arguments_of(command.epilog))
