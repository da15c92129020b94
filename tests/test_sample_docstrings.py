"""tools/sample_docstrings.py: samples are reproducible, and each definition is matched with its counterpart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools import sample_docstrings

OLD = '''
class Model:
    """A model."""

    def run(self):
        """Run it."""

    @property
    def size(self):
        """Its size."""

    @size.setter
    def size(self, value): ...

def removed():
    """Something else."""

if True:
    def undocumented(): ...
'''
NEW = '''
class Encoder:
    """An encoder."""

    def run(self):
        """Run the encoder."""

    def n_parameters(self): ...
'''


def test_docstrings_belong_to_qualified_names() -> None:
    """Classes, methods and functions have their docstrings; a setter does not hide that of its property."""
    assert sample_docstrings.docstrings("package.module", OLD) == {
        "package.module.Model": "A model.",
        "package.module.Model.run": "Run it.",
        "package.module.Model.size": "Its size.",
        "package.module.removed": "Something else.",
        "package.module.undocumented": None,
    }


def test_a_sample_depends_on_the_seed_alone_and_has_docstrings() -> None:
    """The order of the definitions does not matter, no name occurs twice, and none lacks a docstring."""
    by_name = {f"f{number}": "Text." if number % 2 else None for number in range(100)}
    sample = sample_docstrings.sample(by_name, 20, seed=41)
    assert sample == sample_docstrings.sample(dict(reversed(by_name.items())), 20, seed=41)
    assert sample != sample_docstrings.sample(by_name, 20, seed=42)
    assert len(set(sample)) == 20
    assert all(by_name[name] for name in sample)
    assert sorted(sample_docstrings.sample(by_name, 1_000, seed=41)) == sorted(f"f{n}" for n in range(1, 100, 2))


def test_a_renamed_definition_is_matched_by_the_longest_entry() -> None:
    """An entry for a class applies to its methods, unless the method has an entry of its own."""
    by_name = sample_docstrings.docstrings("b", NEW)
    renames = {"a": "z", "a.Model": "b.Encoder", "a.Model.size": "b.Encoder.n_parameters"}
    counterparts = {
        name: sample_docstrings.counterpart(name, by_name, renames)
        for name in ("a.Model", "a.Model.run", "a.Model.size", "a.removed", "b.Encoder")
    }
    assert counterparts == {
        "a.Model": ("b.Encoder", "An encoder."),
        "a.Model.run": ("b.Encoder.run", "Run the encoder."),
        "a.Model.size": ("b.Encoder.n_parameters", ""),
        "a.removed": ("a.removed", None),
        "b.Encoder": ("b.Encoder", "An encoder."),
    }


def test_a_revision_is_compared_with_another_and_with_the_working_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed text has both docstrings of each sampled definition, and states where there is no second one."""
    package = tmp_path / "bert_core" / "run"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(OLD, encoding="utf-8")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=name", "-c", "user.email=name@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Old"]):
        subprocess.run([*git, *command], check=True)
    (package / "__init__.py").write_text(NEW, encoding="utf-8")
    renames = tmp_path / "renames.json"
    renames.write_text(json.dumps({"bert_core.run.Model": "bert_core.run.Encoder"}), encoding="utf-8")
    monkeypatch.setattr(sample_docstrings, "ROOT", tmp_path)

    sample_docstrings.main(["--revision", "HEAD", "--renames", str(renames)])
    printed = capsys.readouterr().out
    assert "bert_core.run.Model.run\n\n    Run it.\n\nworking tree: bert_core.run.Encoder.run\n\n    Run the" in printed
    assert printed.count("working tree: no definition of this name") == 2

    sample_docstrings.main(["--revision", "HEAD", "--and", "HEAD", "--count", "1"])
    assert capsys.readouterr().out.startswith("1. bert_core.run.")
