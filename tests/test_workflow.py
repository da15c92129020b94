""".github/workflows/test.yml: systems and versions, rights, pinned actions, and commands that name what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILE = ROOT / ".github" / "workflows" / "test.yml"
WORKFLOW: dict[Any, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
JOBS: dict[str, Any] = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
COMMANDS = "\n".join(step["run"] for step in STEPS if "run" in step)


def test_every_supported_system_and_version_is_tested() -> None:
    """Linux, macOS and Windows with the versions of Python that pyproject.toml lists; a failure stops no other job."""
    strategy = JOBS["test"]["strategy"]
    assert strategy["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert strategy["matrix"]["python"] == versions == ["3.11", "3.12", "3.13"]
    assert strategy["fail-fast"] is False and JOBS["test"]["runs-on"] == "${{ matrix.os }}"
    assert JOBS.keys() == {"test", "make", "build", "docker"}
    assert all(job["timeout-minutes"] <= 60 for job in JOBS.values())


def test_a_run_has_few_rights_and_ends_for_a_newer_one() -> None:
    """It reads the repository only; actions have a major version, and those of Python keep downloads of pip."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in JOBS.values())
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is True
    assert {"push", "pull_request"} <= WORKFLOW[True].keys()  # YAML 1.1 reads `on` as true
    actions = [step for step in STEPS if "uses" in step]
    assert [step["uses"] for step in actions if not re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])] == []
    pythons = [step["with"] for step in actions if "setup-python" in step["uses"]]
    assert len(pythons) == 3
    for values in pythons:
        assert values["cache"] == "pip"
        assert all((ROOT / name).is_file() for name in values["cache-dependency-path"].split())


def test_commands_name_files_and_targets_that_exist() -> None:
    """Targets of the Makefile, folders of tests, files with pins, extras, and options of this workflow's own."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\s*make (\S+)", COMMANDS, re.MULTILINE)
    assert targets == ["test"] and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    paths = set(re.findall(r"(?<![\w/.$])(?:tests|docs|tools|benchmarks)/[\w./-]+|\w+\.txt", COMMANDS))
    assert paths == {"tests/core", "tests/app", "constraints.txt"}
    assert all((ROOT / path).exists() for path in paths)
    assert re.search("^torch==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"\.\[(\w+)\]", COMMANDS)) <= project["optional-dependencies"].keys()
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "ARG TORCH_INDEX" in dockerfile and "HEALTHCHECK" in dockerfile and "docker build" in COMMANDS


@pytest.mark.parametrize("job", ["make", "build"])
def test_windows_runs_no_command_of_a_unix_shell(job: str) -> None:
    """Steps that Windows runs have no syntax of bash; make and its environment are of jobs on Linux."""
    assert JOBS[job]["runs-on"] == "ubuntu-latest"
    steps = [step for step in JOBS["test"]["steps"] if "run" in step and "Linux" not in step.get("if", "")]
    assert len(steps) == 3
    assert [step["run"] for step in steps if re.search(r"[$|;&`]|\bmake\b|\.venv", step["run"])] == []


def test_no_address_of_another_machine_is_in_the_file() -> None:
    """The index of PyTorch is a variable of the repository."""
    text = FILE.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^/\s:]+", text) == ["http://localhost"]
    assert WORKFLOW["env"]["TORCH_INDEX"] == "${{ vars.TORCH_INDEX }}"
