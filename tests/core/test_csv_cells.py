"""Cells of CSV files: no spreadsheet takes them for formulas, and they are read back as they were."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_core import PairScore, WordTotal, pairs_csv
from bert_core.csv_cells import FORMULA_CHARACTERS, as_csv, original_text, safe_cell
from bert_core.studies.explanation_tables import read_totals, totals_csv
from bert_core.studies.tables import GrowingTable, read_batches, write_columns
from viz_app.export.tables import labelled_csv

HOSTILE = ("=1+1", "+49", "-cat", "@sum", "\t=1", "\n=1", "＝1", "＋1", "－1", "＠x", "'=1", "''-1")
PLAIN = ("cat", "'s", "''", "", "1=1", " =1", "a-b", "O'Neil")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_formula_gets_an_apostrophe_and_loses_it_again(text: str) -> None:
    """Also behind apostrophes, so that taking one off always gives the text back."""
    cell = safe_cell(text)
    assert cell == f"'{text}" and not cell.startswith(FORMULA_CHARACTERS) and original_text(cell) == text


@pytest.mark.parametrize("text", PLAIN)
def test_other_texts_stay_as_they_are(text: str) -> None:
    """Apostrophes that begin a word are no mark of a text."""
    assert safe_cell(text) == text == original_text(text)


@given(st.text(alphabet=st.sampled_from("'=+-@\t\n＝－ab"), max_size=6))
def test_every_text_is_read_back(text: str) -> None:
    """Two texts never have one cell."""
    assert original_text(safe_cell(text)) == text


def test_numbers_are_no_formulas() -> None:
    """A negative number stays one, in full precision; None is empty."""
    assert as_csv([("a", "b", "c"), (-1.5, 1 / 3, None)]) == f"a,b,c\n-1.5,{1 / 3!r},\n"


def test_every_table_keeps_the_rule(tmp_path: Path) -> None:
    """Columns, growing tables, totals, pairs and files of pages: no cell begins with a sign, and texts come back."""
    columns = {"text": list(HOSTILE), "value": [-1.0] * len(HOSTILE)}
    write_columns(columns, tmp_path / "t.csv")
    (batch,) = read_batches(tmp_path / "t.csv")
    assert batch["text"] == list(HOSTILE)
    table = GrowingTable(tmp_path / "g.csv", ("text", "value"), "table")
    table.append_rows(zip(*columns.values(), strict=True))
    assert [text for text, _ in table.read_rows()] == list(HOSTILE)
    totals = [WordTotal("=class", "occlusion", text, 3, -0.5, 0.1) for text in HOSTILE]
    (tmp_path / "w.csv").write_text(totals_csv(totals), encoding="utf-8", newline="")
    assert {total.word for total in read_totals(tmp_path / "w.csv")} == set(HOSTILE)
    pairs = pairs_csv([PairScore(1, (text, "a cat"), problem="none") for text in HOSTILE])
    written = [(tmp_path / name).read_text(encoding="utf-8") for name in ("t.csv", "g.csv", "w.csv")]
    for text in (*written, pairs, labelled_csv(columns).decode()):
        for row in list(csv.reader(io.StringIO(text, newline="")))[1:]:
            assert not any(cell.startswith(FORMULA_CHARACTERS) and not _is_number(cell) for cell in row), row


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii()
