"""What says which Headlight this is: the version, the list of changes, the citation; and the forms for readers."""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path

import yaml

import bert_core

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
RELEASES = re.findall(r"^## \[([\d.]+)\] - (\S+)$", CHANGELOG, re.MULTILINE)
HEADINGS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # of Keep a Changelog
MAX_WORDS, MAX_LINES = 25, 85


def test_the_latest_release_of_the_changelog_is_this_version() -> None:
    """The package's version is the first of the list, releases follow each other, and each has its day."""
    assert RELEASES[0][0] == bert_core.__version__
    days = [datetime.date.fromisoformat(day) for _, day in RELEASES]
    assert days == sorted(days, reverse=True)


def test_the_changelog_is_short_and_in_the_form_of_keep_a_changelog() -> None:
    """Unreleased comes first; headings have their order, and a change has one line of at most 25 words."""
    name, *sections = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)
    assert name.startswith("# Changelog\n") and sections[0].startswith("[Unreleased]\n")
    for section in sections:
        lines = re.sub(r"<!--.*?-->", "", section, flags=re.DOTALL).splitlines()
        headings = [line.removeprefix("### ") for line in lines if line.startswith("#")]
        assert headings == [heading for heading in HEADINGS if heading in headings], lines[0]
        changes = lines[lines.index(f"### {headings[0]}") :] if headings else []
        assert all(line.startswith(("- ", "### ")) for line in changes if line), lines[0]
        texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line[2:]) for line in changes if line.startswith("- ")]
        assert [text for text in texts if len(text.split()) > MAX_WORDS] == []
        assert len(lines) <= MAX_LINES, "merge small changes: the page is read by those who upgrade"


def test_the_addresses_of_the_project_are_of_one_place() -> None:
    """The package index shows them; the changelog is linked, and the address is the placeholder of CONTRIBUTING.md."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    homepage = project["urls"]["Homepage"]
    assert {"Homepage", "Documentation", "Changelog"} <= project["urls"].keys()
    assert all(address.startswith(homepage) for address in project["urls"].values())
    assert homepage in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(project["description"]) <= 200
    minimum = int(project["requires-python"].removeprefix(">=3."))
    versions = re.findall(r"Python :: 3\.(\d+)", " ".join(project["classifiers"]))
    assert [int(version) for version in versions] == list(range(minimum, minimum + 3))


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
