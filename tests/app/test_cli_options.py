"""viz_app.cli.options and tables: options from a settings class, and tables as text and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from bert_core.settings import Option, Settings
from viz_app.cli.options import options
from viz_app.cli.tables import text_table, write_json


@dataclass(frozen=True)
class Example(Settings):
    """An option of each type."""

    seeds: Annotated[int, Option("Number of seeds.", 1, 100)] = 3
    share: Annotated[float, Option("Share of the texts.", 0.05, 0.5)] = 0.2
    erase: Annotated[bool, Option("Also erase the label.")] = False
    lens: Annotated[bool, Option("Also apply the lens.")] = True
    order: Annotated[str, Option("Order of the rows.", choices=("rising", "falling"))] = "rising"
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class OtherExample(Settings):
    """Other settings of the same command."""

    top: Annotated[int, Option("Number of rows.", 1)] = 9


RESULTS: list[Any] = []
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
@options(Example, omit=("share",), names={"seeds": "split_count"}, partial=True)
@options(OtherExample, parameter="other")
def command(
    file: str,
    settings: Any,
    other: OtherExample,
    model: Annotated[str, typer.Option(help="A model.")] = "mini",
    out: Annotated[str, typer.Option(help="A file.")] = "table.csv",
) -> None:
    """Record the arguments."""
    RESULTS.append((file, settings(columns=("text",)), other, model, out))


def run(*arguments: str) -> tuple[int, str]:
    """Run the command with these arguments, and return its exit code and its output."""
    RESULTS.clear()
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_without_options_settings_have_their_defaults() -> None:
    """Two settings classes stack, and all other parameters of the command stay as they are."""
    assert run("texts.txt")[0] == 0
    assert [("texts.txt", Example(columns=("text",)), OtherExample(), "mini", "table.csv")] == RESULTS


def test_options_set_the_fields_of_the_settings() -> None:
    """An option is named like its field or renamed, a bool is a flag, and one that is on can be switched off."""
    arguments = ("--split-count", "7", "--erase", "--no-lens", "--order", "falling", "--top", "2", "--model", "base")
    assert run("texts.txt", *arguments)[0] == 0
    settings = Example(seeds=7, erase=True, lens=False, order="falling", columns=("text",))
    assert [("texts.txt", settings, OtherExample(2), "base", "table.csv")] == RESULTS


def test_help_has_texts_limits_and_defaults() -> None:
    """They come from the options of the fields, and an omitted field has no option."""
    code, text = run("--help")
    assert code == 0 and "--share" not in text and "--columns" not in text
    for part in (
        "--split-count",
        "Number of seeds.",
        "default: 3",
        "1<=x<=100",
        "rising|falling",
        "--lens",
        "--no-lens",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    "arguments", [("--split-count", "0"), ("--split-count", "101"), ("--top", "0"), ("--share", "0.1")]
)
def test_a_value_out_of_range_is_a_usage_error(arguments: tuple[str, str]) -> None:
    """The command does not run."""
    assert run("texts.txt", *arguments)[0] == 2 and RESULTS == []


def test_a_table_is_aligned() -> None:
    """Numbers are aligned to the right, texts to the left, None is a dash, and no line ends in a space."""
    rows = [("L0 H1", 0.5, 12, "none"), ("L11 H10", None, 1_234, "previous token")]
    assert text_table({"head": "", "share": ".1%", "count": ",", "role": ""}, rows).splitlines() == [
        "head     share  count  role",
        "L0 H1    50.0%     12  none",
        "L11 H10      -  1,234  previous token",
    ]
    assert text_table({"head": "", "role": ""}, []) == "head  role"


def test_json_files_have_null_for_nan(tmp_path: Path) -> None:
    """At any depth, because JSON has no NaN; other values and letters are unchanged."""
    write_json({"label": "ü", "rows": [{"loss": float("nan"), "seed": 1}, (0.5, float("nan"))]}, tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"label": "ü", "rows": [{"loss": None, "seed": 1}, [0.5, None]]}
    assert "ü" in text and "NaN" not in text
