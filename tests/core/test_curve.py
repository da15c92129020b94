"""bert_core/studies/curve.py and resume.py: a curve from Python that goes on where it stopped, and tables that grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bert_core
from bert_core import LoadedModel, Refused, pruning_curve, read_curve
from bert_core.records import Batch
from bert_core.run import costs
from bert_core.run.losses import masked_examples
from bert_core.studies.curve import plan_path
from bert_core.studies.runner import check_same_study, settings_path
from bert_core.studies.tables import GrowingTable


@pytest.fixture
def batches(tiny_loaded: LoadedModel) -> tuple[Batch, ...]:
    return masked_examples(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat on the mat", "a dog ran to the door"))


def test_a_curve_goes_on_where_it_stopped(
    tiny_loaded: LoadedModel, batches: tuple[Batch, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, and with a line cut in half, it ends with the points of one that ran through; none is asked twice."""
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    given = {"orders": ("importance", "random"), "steps": 2}
    found = list(pruning_curve(tiny_loaded, batches, batches, whole, **given))
    assert [point.removed for point in found] == [0, 4, 8] * 6 and read_curve(whole) == found
    for number, _ in enumerate(pruning_curve(tiny_loaded, batches, batches, cut, **given)):
        if number == 6:
            break
    cut.write_text(cut.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    asked: list[int] = []
    honest = costs.score
    monkeypatch.setattr(costs, "score", lambda *a, **k: asked.append(1) or honest(*a, **k))
    told: list[float | None] = []
    rest = list(
        pruning_curve(tiny_loaded, batches, batches, cut, report=lambda done, what="": told.append(done), **given)
    )
    assert len(rest) == 12 and len(asked) == 12 + 1, "and one pass to warm up"
    assert told[-1] == 1 and told == sorted(told)
    for one, other in zip(read_curve(cut), found, strict=True):
        assert (one.order, one.removed, one.parameters) == (other.order, other.removed, other.parameters)
        np.testing.assert_allclose([one.loss, one.mlm, one.nsp], [other.loss, other.mlm, other.nsp], rtol=1e-5)
    plan = bert_core.PruningPlan.from_json(plan_path(cut, "random", 3).read_text(encoding="utf-8"))
    assert plan.method == "random 3" and len(plan.order) == 8
    assert list(pruning_curve(tiny_loaded, batches, batches, cut, **given)) == []


def test_another_curve_is_not_gone_on_with(
    tiny_loaded: LoadedModel, batches: tuple[Batch, ...], tmp_path: Path
) -> None:
    """Other examples, another file and an unknown order are refused, and what is there stays as it is."""
    table = tmp_path / "curve.csv"
    list(pruning_curve(tiny_loaded, batches, batches, table, orders=("random",), steps=1))
    written, other = table.read_bytes(), masked_examples(tiny_loaded, tiny_loaded.tokenizer.encode("the king ran"))
    with pytest.raises(Refused, match=r"curve\.csv holds a run with other settings \(examples: \w+, not \w+\)"):
        next(pruning_curve(tiny_loaded, batches, other, table, orders=("random",), steps=1))
    with pytest.raises(Refused, match=r"^order 'best' is unknown: one of importance, "):
        next(pruning_curve(tiny_loaded, batches, batches, table, orders=("best",)))
    assert table.read_bytes() == written
    (strange := tmp_path / "notes.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(Refused, match=r"notes\.csv exists and is no pruning curve: choose another name"):
        next(pruning_curve(tiny_loaded, batches, batches, strange))
    with pytest.raises(Refused, match=r"notes\.csv holds no pruning curve"):
        read_curve(strange)


@pytest.mark.parametrize(("what", "removed"), [("neurons", [0, 64, 128]), ("layers", [0, 1, 2])])
def test_a_curve_of_neurons_or_layers_goes_on_too(
    tiny_loaded: LoadedModel, batches: tuple[Batch, ...], tmp_path: Path, what: str, removed: list[int]
) -> None:
    """By itself with the first of its orders and a band; again without a point; and not with a table of other parts."""
    table = tmp_path / "curve.csv"
    found = list(pruning_curve(tiny_loaded, batches, batches, table, part_kind=what, steps=2))
    assert [point.removed for point in found] == removed * 6 and read_curve(table) == found
    assert list(pruning_curve(tiny_loaded, batches, batches, table, part_kind=what, steps=2)) == []
    plan = bert_core.PruningPlan.from_json(plan_path(table, "random", 1).read_text(encoding="utf-8"))
    assert plan.what == what and len(plan.order) == removed[-1]
    with pytest.raises(Refused, match=r"curve\.csv exists and is no pruning curve|other settings"):
        next(pruning_curve(tiny_loaded, batches, batches, table, steps=2))
    table.unlink()
    with pytest.raises(Refused, match=rf"holds a run with other settings \(what: {what}, not heads\)"):
        next(pruning_curve(tiny_loaded, batches, batches, table, orders=["random"], steps=2))
    settings_path(table).unlink()
    with pytest.raises(Refused, match=rf"random-0\.json is a plan of {what}, not of heads: choose another name"):
        next(pruning_curve(tiny_loaded, batches, batches, table, orders=["random"], steps=2))


def test_a_growing_table_is_whole_whenever_one_looks(tmp_path: Path) -> None:
    """A header comes once; what was cut off is not read, and taken out when the lines are kept; NUL is no table."""
    table = GrowingTable(tmp_path / "t.csv", ("a", "b"), "table")
    assert table.read_rows() == []
    table.replace_rows([])
    assert not table.path.exists()
    table.append_rows([["1", "x, y"]])
    table.append_rows([["2", "z"], ["3", ""]])
    assert table.path.read_text(encoding="utf-8") == 'a,b\n1,"x, y"\n2,z\n3,\n'
    table.path.write_text(table.path.read_text(encoding="utf-8") + "4,wo", encoding="utf-8")
    assert table.read_rows() == [["1", "x, y"], ["2", "z"], ["3", ""]]
    table.replace_rows(table.read_rows()[:2])
    assert table.path.read_text(encoding="utf-8") == 'a,b\n1,"x, y"\n2,z\n'
    table.path.write_text("a,", encoding="utf-8")
    assert table.read_rows() == []
    table.path.write_text("b,a\n", encoding="utf-8")
    with pytest.raises(Refused, match=r"t\.csv exists and is no table: choose another name"):
        table.read_rows()


def test_what_differs_is_named() -> None:
    """Short values with both of theirs, others by name."""
    check_same_study({"seed": 1, "more": 2}, {"seed": 1}, "run")
    with pytest.raises(Refused) as caught:
        check_same_study({"seed": 1, "methods": ["a"]}, {"seed": 2, "methods": ["b"], "text": "t"}, "run")
    assert str(caught.value) == (
        "run holds a run with other settings (seed: 1, not 2; methods; text): "
        "use the same settings, or choose another name"
    )
