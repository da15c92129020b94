"""docs/how-to/migrate-to-0.3.md names what exists: each new name is there, and each alias is that of the code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer

import bert_core
from bert_core.deprecation import RenamedAttribute
from tests.core.test_deprecation import ATTRIBUTES, FIELDS, PARAMETERS, entries
from viz_app.cli.aliases import FORMER_COMMANDS
from viz_app.cli.command import app
from viz_app.maps import COLUMNS
from viz_app.moved_pages import moved_address
from viz_app.pages import BY_PATH, PAGES
from viz_app.pages.compare.page import NAMES
from viz_app.shell.frame import params_of_pages

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how-to" / "migrate-to-0.3.md").read_text(encoding="utf-8")
DEVELOPMENT = " of development versions"
Row = list[str]


def tables(*headings: str) -> list[Row]:
    """The rows of all tables below each of the headings, without their first two lines."""
    rows: list[Row] = []
    for heading in headings:
        section = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
        assert section is not None, heading
        for table in re.findall(r"(?:^\|.*\n)+", section[1], re.MULTILINE):
            rows += [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return rows


def code(cell: str) -> str:
    """The first name of a cell that is written as code."""
    return re.findall(r"`([^`]+)`", cell)[0]


def pairs(rows: Iterable[Row]) -> dict[str, str]:
    """Old name -> new name, of the last two columns."""
    return {code(row[-2]): code(row[-1]) for row in rows}


def renamed(rows: Iterable[Row]) -> set[tuple[str, str, str]]:
    """Owner, old and new name, of rows with an owner and its names."""
    return {(code(owner), old, new) for owner, names in rows for old, new in re.findall(r"`(\w+)` → `(\w+)`", names)}


def public(path: str) -> Any:
    """The object of a module by its whole path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_names_of_the_library_are_all_its_aliases() -> None:
    """Functions, classes, parameters and attributes; tests/core prove that each old name works."""
    title = "Functions and classes"
    assert pairs(tables(title, title + DEVELOPMENT)) == bert_core._RENAMED
    assert all(hasattr(bert_core, new) for new in bert_core._RENAMED.values())
    assert renamed(tables("Parameters", "Parameters" + DEVELOPMENT)) == set(entries(PARAMETERS))
    attributes = tables("Attributes and methods", "Attributes" + DEVELOPMENT)
    assert renamed(attributes) == set(entries(FIELDS, ATTRIBUTES))


def test_names_without_an_alias_are_replaced_by_what_exists() -> None:
    """The old attribute is gone and the class of the new one has it."""
    rows = pairs(tables("Names without an alias"))
    assert len(rows) == 3
    for old, new in rows.items():
        owner, _, attribute = old.partition(".")
        assert attribute not in vars(getattr(bert_core, owner)), old
        owner, _, attribute = re.sub(r"\[.*", "", new).partition(".")
        fields = getattr(getattr(bert_core, owner), "__dataclass_fields__", {})
        assert attribute in fields or hasattr(getattr(bert_core, owner), attribute), new


def module_exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is gone, too
        return False


def test_modules_are_where_the_table_says() -> None:
    """None of the old ones is left, and each new one is there."""
    rows = tables("Modules")
    assert len(rows) == 18
    for old, new in rows:
        assert not module_exists(code(old)), old
        assert all(module_exists(name) for name in re.findall(r"`([^`]+)`", new)), new
    scripts = re.findall(r"`(tools\.\w+)`", PAGE)
    assert len(scripts) == 3 and all(module_exists(script) for script in scripts)


def test_figures_have_the_new_names() -> None:
    """Names with an alias are refused beside their new one; those without have the new parameter alone."""
    names = renamed(tables("Figures and exports"))
    with_alias = {name for name in names if not name[0].startswith("viz_app.export.")}
    assert with_alias and names - with_alias
    for path, old, new in with_alias:
        owner = public(path)
        with pytest.raises(TypeError, match=f"got both {new} and its old name {old}"):
            owner(**{old: None, new: None})
    for owner in {public(path) for path, _, _ in with_alias}:
        aliases = {old for old, value in vars(owner).items() if isinstance(value, RenamedAttribute)}
        documented = {old for path, old, _ in with_alias if public(path) is owner}
        assert aliases == (documented if inspect.isclass(owner) else set())
    for path, old, new in names - with_alias:
        parameters = inspect.signature(public(path)).parameters
        assert new in parameters and old not in parameters, path
    pictures = importlib.import_module("viz_app.export.pictures")
    functions = [value for name, value in vars(pictures).items() if inspect.isfunction(value) and name[0] != "_"]
    assert not any("dark" in inspect.signature(function).parameters for function in functions)


def test_commands_are_parsed() -> None:
    """Old and new ones with their options; the former commands are all of the program."""
    rows = pairs(tables("Commands", "Commands and options" + DEVELOPMENT))
    former = {shlex.split(old)[1] for old in rows} & FORMER_COMMANDS.keys()
    assert former == FORMER_COMMANDS.keys()
    group = typer.main.get_group(app)
    for line in (*rows, *rows.values()):
        _, name, *arguments = shlex.split(line)
        required = ["--model", "a"] if name in ("tags", "answer", "choose") else []
        required += ["--out", "a.csv"] if name in ("profile", "dossier", "attention") else []
        required += ["--token", "a"] if name == "search" else []
        group.commands[name].make_context(name, [*arguments, *required])
    for old, new in rows.items():  # what replaces a former command is what its note says
        name = shlex.split(old)[1]
        if name in FORMER_COMMANDS:
            command, *options = FORMER_COMMANDS[name][1].split()
            assert shlex.split(new)[1] == command and " ".join(options) in new


def test_addresses_open_pages_of_these_titles() -> None:
    """The pages of 0.2.0 have their addresses, those that moved have a redirect, and parameters their old names."""
    rows = tables("Pages and addresses")
    assert {code(address).strip("/"): title for address, _, title in rows} == {
        path: BY_PATH[path].title for path in (code(row[0]).strip("/") for row in rows)
    }
    moved, params = tables("Addresses" + DEVELOPMENT)[:3], tables("Addresses" + DEVELOPMENT)[3:]
    for old, new in pairs(moved).items():
        path, _, query = old.strip("/").partition("?")
        assert moved_address(path, dict([query.split("=")] if query else [])) == (new.strip("/"), {})
    params += tables("URL parameters", "URL parameters renamed after 0.3.0")
    table = params_of_pages(PAGES)
    assert pairs(params) == {param.old_name: param.name for param in table.values() if param.old_name}
    titles = {page.title: {param.name for param in page.params} for page in PAGES}
    shared = table.keys() - set().union(*titles.values())
    for title, _, new in params:
        assert code(new) in titles[title] | shared


def test_columns_have_the_new_names() -> None:
    """Each new column is written by the app; those of value-weighted attention and of Compare are its tables."""
    rows = pairs(tables("Columns", "Columns" + DEVELOPMENT))
    assert len(rows) == 8 and rows.items() >= COLUMNS.items()
    assert NAMES["masked"] == (rows["words shown"], rows["words hidden"])
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "viz_app").rglob("*.py"))
    assert [new for new in rows.values() if f'"{new}"' not in sources and f"{new}=" not in sources] == []


def test_aliases_are_removed_in_the_version_that_the_page_says() -> None:
    """The page, the warnings and the notes of commands name one version."""
    versions = set(re.findall(r"\b0\.\d+\.0\b", PAGE))
    assert versions == {"0.2.0", "0.3.0", "0.4.0"}
    assert bert_core.deprecation.REMOVED_IN == "0.4"
