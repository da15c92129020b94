"""What says which Headlight this is: the version, the list of changes, the citation; and the forms for readers."""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path

import yaml

import bert_core

ROOT = Path(__file__).parents[1]
RELEASES = re.findall(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_latest_release_of_the_changelog_is_this_version() -> None:
    """The package's version is the first of the list, releases follow each other, and each has its day."""
    assert RELEASES[0][0] == bert_core.__version__
    days = [datetime.date.fromisoformat(day) for _, day in RELEASES]
    assert days == sorted(days, reverse=True)


def test_the_citation_is_of_this_version_under_this_licence() -> None:
    """CITATION.cff has what the format 1.2.0 asks for, and agrees with the package and the list of changes."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["cff-version"], citation["title"]) == ("1.2.0", "Headlight")
    assert all(author["name"] for author in citation["authors"])
    assert (citation["version"], citation["date-released"]) == RELEASES[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["license"] == project["license"]


def test_the_forms_for_issues_can_be_filled_in() -> None:
    """Each form has a name, a description and fields that a reader can tell apart; none demands a text."""
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"] and form["description"]
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert {field["type"] for field in fields} <= {"textarea", "input", "checkboxes"}
        assert len({field["id"] for field in fields}) == len({field["attributes"]["label"] for field in fields})
        required = [field["id"] for field in fields if field.get("validations", {}).get("required")]
        assert required and "text" not in required
