"""`headlight compare-models`: what it prints and writes, and how it says no."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.app.test_cli import Run, headlight, text_file

__all__ = ["headlight", "text_file"]  # fixtures


def test_a_model_and_itself(headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A line a depth, the heads in order, and both tables; with itself every depth is 1 and no head changed."""
    out, cka = tmp_path / "heads.csv", tmp_path / "cka.parquet"
    code, printed, err = headlight(
        "compare-models", tiny_model_folder, tiny_model_folder, text_file, "--out", out, "--cka", cka, "--texts", "9",
        "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    first, header, *rest = printed.splitlines()
    assert first.startswith("9 texts, ") and "nearest depth  lens before" in header
    assert [line.split()[:4] for line in rest[:3]] == [[str(n), "1.000", "1.000", str(n)] for n in range(3)]
    assert sum(" -> " in line for line in rest) == 9  # the header and every head
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 8 and all(float(row["divergence"]) == 0 for row in rows) and cka.exists()


def test_classes_of_a_table(headlight: Run, tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """With a column of classes importance is that of the class's loss; without it no lens is printed."""
    table = tmp_path / "pets.csv"
    table.write_text("text,class\na cat,pet\nthe king,ruler\n", encoding="utf-8")
    given = ("compare-models", tiny_classifier_folder, tiny_classifier_folder, table, "--device", "cpu")
    code, printed, err = headlight(*given, "--text", "text", "--label", "class")
    assert code == 0 and "importance before" in printed and "lens" not in printed, err
    code, printed, err = headlight(*given, "--text", "text", "--no-importance")
    assert code == 0 and "importance before" not in printed, err


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--label", "class"], "say with --text which column holds the texts"),
        (["--out", "table.txt"], "must end in .csv or .parquet"),
        (["--out", "nowhere/table.csv"], "there is no folder"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    headlight: Run, text_file: Path, tiny_model_folder: Path, more: list[str], why: str
) -> None:
    """Exit code 2 and one sentence."""
    code, printed, err = headlight("compare-models", tiny_model_folder, tiny_model_folder, text_file, *more)
    assert (code, printed, err.count("\n")) == (2, "", 1) and why in err
    code, _, err = headlight("compare-models", tiny_model_folder, "headlight-mini", text_file, "--out", "heads.csv")
    assert code == 2 and "can be compared head by head" in err
