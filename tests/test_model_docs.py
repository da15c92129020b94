"""docs/model_docs.py: the documents speak of the bundled weights, and their tables are made of what was measured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bert_core import load
from bert_core.analysis.roles import THRESHOLDS
from bert_core.fingerprint import fingerprint
from bert_core.records import HeadTable
from bert_core.translators import read_translators

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, which is in no package."""
    sys.path.insert(0, str(DOCS))  # as of a script that is run
    spec = importlib.util.spec_from_file_location("model_docs", DOCS / "model_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_docs"] = module
    spec.loader.exec_module(module)
    return module


def test_no_document_speaks_of_older_weights(script: ModuleType) -> None:
    """Every section that the script makes stands in its document once, and names the weights that are bundled; the
    tuned lens is theirs too.
    """
    mini = load("headlight-mini", device="cpu")
    weights = fingerprint(mini)
    made: dict[str, set[str]] = {}
    for name, (document, _) in script.SECTIONS.items():
        if document:
            made.setdefault(document, set()).add(name)
    paths = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    assert "results/heads.md" in made and made.keys() <= paths.keys()
    for name, path in paths.items():
        document_sections = script.sections(path.read_text(encoding="utf-8"))
        assert document_sections == dict.fromkeys(made.get(name, ()), weights), name
    assert read_translators(mini) is not None


def test_only_the_figures_of_a_section_are_put_anew(script: ModuleType) -> None:
    """What stands around a section stays, one that is there twice or not at all is refused, and again is the same."""
    one, two = (f"<!-- figures: {name} of 1 -->\n{name}\n<!-- end of figures -->\n" for name in ("one", "two"))
    text = f"a\n{one}b\n{two}"
    found = script.put(text, "one", "2", "| new \\1 |\n")
    assert found == text.replace("one of 1 -->\none", "one of 2 -->\n| new \\1 |")
    assert script.put(found, "one", "2", "| new \\1 |") == found
    assert script.sections(found) == {"one": "2", "two": "1"}
    for wrong in (text + text, "nothing"):
        with pytest.raises(ValueError, match="it needs one"):
            script.put(wrong, "one", "2", "new")


def test_the_table_of_heads(script: ModuleType) -> None:
    """The head that is missed most comes first; a head with a role has its share, one without its two nearest."""
    figures = {name: np.zeros((2, 2)) for name in THRESHOLDS}
    figures |= {name: np.full((2, 2), 0.25) for name in ("loss_change_error", "importance", "confidence")}
    figures["loss_change"] = np.array([[0.1, 0.4], [0.2, 0.3]])
    figures["next"][0, 1] = 0.9
    figures["cls"][1, 1], figures["self"][1, 1] = 0.4, 0.3
    table = HeadTable("m", 3, 30, figures)
    lines = script.worth_table(table, shown=2).splitlines()[2:]
    assert lines == [
        "| L0 H1 | +0.400 | 0.250 | 0.250 | 0.25 | next token (0.90) |",
        "| L1 H1 | +0.300 | 0.250 | 0.250 | 0.25 | none: [CLS] 0.40, itself 0.30 |",
    ]
    roles = script.role_table(table).splitlines()
    assert "| next token | 1 | L0 H1 (0.90) |" in roles and "| none of these | 3 |  |" in roles


def test_the_table_of_relations(script: ModuleType) -> None:
    """Often asked relations, the most asked first, the better of head and offset bold, `punct` left out."""
    columns = ("relation", "asked", "layer", "head", "direction", "accuracy", "offset", "offset_accuracy")
    rows = [
        ("conj", "200", "5", "7", "head to dependent", "0.26", "-2", "0.27"),
        ("obj", "1209", "2", "0", "dependent to head", "0.73", "-2", "0.358"),
        ("punct", "3000", "2", "0", "dependent to head", "0.73", "-2", "0.358"),
        ("rare", "149", "2", "0", "dependent to head", "0.73", "1", "0.358"),
    ]
    assert script.relation_table([dict(zip(columns, row, strict=True)) for row in rows]).splitlines()[2:] == [
        "| obj | 1,209 | L2 H0 | **73.0%** | dependent to head | -2 | 35.8% |",
        "| conj | 200 | L5 H7 | 26.0% | head to dependent | -2 | **27.0%** |",
    ]


def test_the_table_of_many_heads(script: ModuleType) -> None:
    """Changes are from the loss with all heads; the band is that of the random orders, where they were measured."""
    points = [
        {"order": order, "removed": str(gone), "loss": str(loss), "mlm": "0.4", "nsp": "0.9", "parameters": "22890000"}
        for order, gone, loss in (
            ("importance", 0, 4.0), ("importance", 4, 4.0), ("importance", 8, 4.2), ("importance", 5, 9.0),
            ("ablation", 8, 4.4), ("random 0", 8, 4.8), ("random 1", 8, 5.0),
        )
    ]  # fmt: skip
    assert script.together_table(points).splitlines()[2:] == [
        "| 0 (0%) | 4.000 |  |  |  |  |  | 40.0% | 90.0% | 22.89 |  |",
        "| 4 (50%) | 4.000 | 0.0% |  |  |  |  | 40.0% | 90.0% | 22.89 |  |",
        "| 8 (100%) | 4.200 | +5.0% |  |  | +10.0% |  | 40.0% | 90.0% | 22.89 | +20.0% to +25.0% |",
    ]


def test_the_table_of_neurons_and_layers(script: ModuleType) -> None:
    """Changes are from the loss with all of them; the band is that of the random orders, where they were measured."""
    points = [
        {
            "what": "neurons", "order": order, "removed": str(gone), "loss": str(loss), "mlm": "0.4", "nsp": "0.9",
            "parameters": "22890000",
        }
        for order, gone, loss in (
            ("importance", 0, 4.0), ("importance", 1000, 4.2), ("importance", 2000, 5.0),
            ("random 0", 0, 4.0), ("random 0", 2000, 4.8), ("random 1", 2000, 5.2),
        )
    ]  # fmt: skip
    assert script.parts_table(points).splitlines() == [
        "| neurons pruned | loss | change | masked-token accuracy | sentence-pair accuracy | parameters, M "
        "| change, random orders |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| 0 (0%) | 4.000 |  | 40.0% | 90.0% | 22.89 |  |",
        "| 1,000 (50%) | 4.200 | +5.0% | 40.0% | 90.0% | 22.89 |  |",
        "| 2,000 (100%) | 5.000 | +25.0% | 40.0% | 90.0% | 22.89 | +20.0% to +30.0% |",
    ]


def test_the_table_of_recovery(script: ModuleType) -> None:
    """A row for each step that all models were asked at."""
    at = {"loss": 3.65, "mlm": 0.404, "nsp": 0.939}
    found = script.recovery_table({"all": {0: at, 50: at}, "fewer": {0: at, 50: {**at, "loss": 4.0}, 100: at}})
    assert found.splitlines() == [
        "| steps | all: loss | tokens | pairs | fewer: loss | tokens | pairs |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| 0 | 3.650 | 40.4% | 93.9% | 3.650 | 40.4% | 93.9% |",
        "| 50 | 3.650 | 40.4% | 93.9% | 4.000 | 40.4% | 93.9% |",
    ]


def test_the_ranks_of_methods_are_those_of_the_table_of_agreement(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A section whose command is finished is read from its file; its methods are written without the random ranking."""
    document = (DOCS / "results" / "ground-truth.md").read_text(encoding="utf-8")
    name, weights = "truth-agreement", script.sections(document)["truth-agreement"]
    table = document.split(f"<!-- figures: {name} of {weights} -->\n")[1].split("<!-- end of figures -->")[0]
    (tmp_path / script.MODEL).mkdir()
    bundled, written = (folder / script.MODEL / "method_ranks.json" for folder in (script.ASSETS, tmp_path))
    monkeypatch.setattr(script, "ASSETS", tmp_path)
    work = script.Work(tmp_path / "work", tmp_path)
    (work.folder / f"{name}.txt").write_text(table, encoding="utf-8")
    assert script.SECTIONS[name][1](work) == table and script.put(document, name, weights, table) == document
    assert written.read_bytes() == bundled.read_bytes()
