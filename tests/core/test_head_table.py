"""Tables of heads: written, read again, and refused where they are not what they should be."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest

from bert_core.records import HeadTable
from bert_core.studies.head_tables import check_fits, read_table, write_table
from bert_core.studies.tables import read_column_names


def made() -> HeadTable:
    """Two layers of three heads, one of them gone."""
    rng = np.random.default_rng(0)
    figures = {name: rng.random((2, 3)) for name in ("importance", "loss_change", "confidence")}
    for values in figures.values():
        values[0, 1] = np.nan
    return HeadTable("tiny-bert", 12, 340, figures, 2.5)


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
@pytest.mark.parametrize("loss", [2.5, None])
def test_a_table_reads_back_as_it_was(tmp_path: Path, kind: str, loss: float | None) -> None:
    """Every number to the last bit; a head that is gone has no row and is NaN again."""
    table = made()
    table = HeadTable(table.model, table.texts, table.tokens, table.figures, loss, "class", "mean", "00ff" * 4)
    path = tmp_path / f"table{kind}"
    write_table(table, path)
    again = read_table(path.read_bytes(), path.name)
    assert (again.model, again.texts, again.tokens, again.loss) == ("tiny-bert", 12, 340, loss)
    assert (again.loss_of, again.method, again.weights) == ("class", "mean", "00ff" * 4)
    assert again.shape == (2, 3) and again.figures.keys() == table.figures.keys()
    for name, values in table.figures.items():
        assert np.array_equal(again.figures[name], values, equal_nan=True)
    check_fits(again, "somewhere/tiny-bert", 2, 3, "00ff" * 4)


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_table_without_a_fingerprint_is_read_and_fits(tmp_path: Path, kind: str) -> None:
    """As version 0.2 wrote it, in which there is no such column: name and sizes decide."""
    path = tmp_path / f"table{kind}"
    write_table(made(), path)
    assert "weights" not in read_column_names(path)
    again = read_table(path.read_bytes(), path.name)
    assert again.weights == ""
    check_fits(again, "tiny-bert", 2, 3, "00ff" * 4)


def test_a_table_of_other_weights_does_not_fit() -> None:
    """Both fingerprints are named, with what to do; a table has one for all of its rows."""
    table = dataclasses.replace(made(), weights="1" * 16)
    with pytest.raises(
        ValueError, match=r"tiny-bert of fingerprint 1{16}, .* tiny-bert here has fingerprint 2{16}: .*headlight heads"
    ):
        check_fits(table, "tiny-bert", 2, 3, "2" * 16)
    with pytest.raises(ValueError, match=r"a\.csv has the fingerprints of 2 models"):
        read_table(as_csv(weights=["1" * 16, "2" * 16]), "a.csv")


def test_a_table_that_went_through_a_spreadsheet_reads_back(tmp_path: Path) -> None:
    """Semicolons between fields and decimal commas, as a spreadsheet writes them in most of Europe."""
    write_table(made(), tmp_path / "table.csv")
    written = (tmp_path / "table.csv").read_text(encoding="utf-8")
    through = "\ufeff" + written.replace(",", ";").replace(".", ",").replace("\n", "\r\n")
    again, table = read_table(through.encode(), "table.csv"), made()
    assert (again.model, again.texts, again.tokens, again.loss) == ("tiny-bert", 12, 340, 2.5)
    for name, values in table.figures.items():
        assert np.array_equal(again.figures[name], values, equal_nan=True)


def as_csv(**changes: object) -> bytes:
    """A table of two heads as CSV, with some of its columns changed; None leaves a column out."""
    columns: dict[str, object] = {
        "model": ["m", "m"], "layer": [0, 0], "head": [0, 1], "texts": [3, 3], "tokens": [9, 9], "loss": ["", ""],
        "confidence": [0.5, 0.25],
    }  # fmt: skip
    columns = {name: values for name, values in (columns | changes).items() if values is not None}
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))  # type: ignore[call-overload]
    return out.getvalue().encode()


@pytest.mark.parametrize(
    ("data", "name", "sentence"),
    [
        (as_csv(), "a.xlsx", "the name of the table a.xlsx must end in .csv or .parquet"),
        (b"", "a.csv", "the file a.csv is not a table of heads: every row needs as many fields as the header"),
        (b"\xff\xfe", "a.csv", "the file a.csv is not a table in UTF-8"),
        (b"a,b\n1\n", "a.csv", "the file a.csv is not a table of heads"),
        (b"PAR1 and no more", "a.parquet", "the file a.parquet is not a whole Parquet file"),
        (
            as_csv(head=None),
            "a.csv",
            "the file a.csv lacks the column 'head': a table of heads comes from",
        ),
        (as_csv(confidence=None), "a.csv", "the file a.csv lacks a column of figures"),
        (as_csv(model=["m", "n"]), "a.csv", "the file a.csv has the names of 2 models: a table describes one model"),
        (as_csv(head=[0, 0]), "a.csv", "the file a.csv has a head twice"),
        (as_csv(head=[0, -1]), "a.csv", "the column 'head' of a.csv must hold whole numbers from 0 and below 256"),
        (as_csv(layer=[0, 10**9]), "a.csv", "the column 'layer' of a.csv must hold whole numbers from 0"),
        (as_csv(layer=[0, 0.5]), "a.csv", "the column 'layer' of a.csv must hold whole numbers from 0"),
        (as_csv(confidence=["high", "low"]), "a.csv", "the column 'confidence' of a.csv contains a value that is not"),
        (
            as_csv(loss_of=["words", "class"]),
            "a.csv",
            "the column 'loss_of' of a.csv must be one of words, next, word, class",
        ),
        (
            as_csv(method=["half", "half"]),
            "a.csv",
            "the column 'method' of a.csv must be one of zero, mean, resample, the",
        ),
        (b"a" * 9_000_000, "a.csv", "the file a.csv has 9.0 MB: a table of heads has at most 8 MB"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(data: bytes, name: str, sentence: str) -> None:
    """It says what was given and what is allowed."""
    with pytest.raises(ValueError) as caught:
        read_table(data, name)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(("model", "sizes"), [("another", (2, 3)), ("tiny-bert", (2, 2)), ("tiny-bert", (1, 3))])
def test_a_table_of_another_model_is_refused(model: str, sizes: tuple[int, int]) -> None:
    """Both models are named with their sizes."""
    with pytest.raises(
        ValueError, match=r"the table was made with tiny-bert \(2 layers of 3 heads\), but the model here is"
    ):
        check_fits(made(), model, *sizes, "00ff" * 4)


def test_a_record_is_read_only() -> None:
    """Neither its arrays nor which of them there are can be changed."""
    table = made()
    with pytest.raises(ValueError):
        table.figures["importance"][0, 0] = 1
    with pytest.raises(TypeError):
        table.figures["more"] = np.zeros((2, 3))  # type: ignore[index]
