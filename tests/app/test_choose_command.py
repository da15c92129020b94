"""`headlight choose`: what it prints of a question and its choices, and how it says no."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import bert_core
from bert_core import Target, capture
from tests.app.test_cli import Run, headlight

__all__ = ["headlight"]  # a fixture
QUESTION, CHOICES = "who sat?", ("The  Old cats", "a king", "a dog ran")


def test_each_choice_has_its_line(headlight: Run, tiny_chooser_folder: Path) -> None:
    """The likeliest first, with its probability; as JSON in the order given, with the logits."""
    given = ("choose", QUESTION, *CHOICES, "--model", tiny_chooser_folder, "--device", "cpu")
    found = bert_core.choose(bert_core.load(str(tiny_chooser_folder), device="cpu"), QUESTION, CHOICES)
    expected = [f"{found.probabilities[n]:.3f}  {' '.join(CHOICES[n].split())}" for n in found.order]
    code, out, err = headlight(*given)
    assert (code, out.splitlines(), err) == (0, expected, "")
    assert [float(line[:5]) for line in expected] == sorted((float(line[:5]) for line in expected), reverse=True)
    code, out, _ = headlight(*given, "--json")
    said = json.loads(out)
    assert code == 0 and said["question"] == QUESTION
    assert [one["choice"] for one in said["choices"]] == list(CHOICES)
    assert [one["logit"] for one in said["choices"]] == pytest.approx(found.logits.tolist())
    assert sum(one["probability"] for one in said["choices"]) == pytest.approx(1)


def test_what_cannot_be_chosen_from_is_one_sentence(headlight: Run, tiny_chooser_folder: Path) -> None:
    """One choice, an empty one, or a model that was not trained for it; and `predict` says whom to ask."""
    model = ("--model", tiny_chooser_folder, "--device", "cpu")
    for arguments, sentence in (
        ((QUESTION, "a king", *model), "1 choice was given: give from 2 to 26 choices"),
        ((QUESTION, "a king", " ", *model), "choice 2 is empty: type at least one word"),
        ((QUESTION, "a", "b", "--model", "headlight-mini"), "has no trained multiple-choice head: load a model"),
    ):
        code, out, err = headlight("choose", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err


def test_a_choice_can_be_drawn_and_patched(headlight: Run, tiny_chooser_folder: Path, tmp_path: Path) -> None:
    """It is what a gradient explains where nothing else is said, and `--target choice` names it to `patch`."""
    model = ("--model", tiny_chooser_folder, "--device", "cpu")
    code, _, err = headlight(
        "attention", QUESTION, "--pair", "a king", "--show", "gradient", "--out", tmp_path / "g.csv", *model
    )
    assert (code, err) == (0, "")
    loaded = bert_core.load(str(tiny_chooser_folder), device="cpu")
    run = capture(loaded, loaded.tokenizer.encode(QUESTION, "a king"), target=Target("choice"))
    assert run.target_value is not None
    code, out, err = headlight(
        "patch", "--source", "what sat?", QUESTION, "--pair", "a king", "--target", "choice", *model
    )
    assert code == 0, err
    assert f"the choice “a king”: logit {run.target_value:.3g} in the text" in out


def table_of(rows: list[tuple[str, ...]], space: Path) -> Path:
    table = space / "asked.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("context", "ending0", "ending1", "ending2", "label"), *rows])
    return table


COLUMNS = ("--text", "context", "--choice", "ending0", "--choice", "ending1", "--choice", "ending2")


def test_a_table_is_chosen_in_row_by_row(headlight: Run, tiny_chooser_folder: Path, tmp_path: Path) -> None:
    """Each row has the column that is chosen and the probability of each; where one is empty, it is no choice."""
    loaded = bert_core.load(str(tiny_chooser_folder), device="cpu")
    asked = [(QUESTION, CHOICES), ("=who ran?", ("a dog", "", "the old king")), ("who?", ("a cat", "the mat", "a man"))]
    found = [bert_core.choose(loaded, question, [one for one in choices if one]) for question, choices in asked]
    chosen = [choices.index(one.choices[one.order[0]]) for (_, choices), one in zip(asked, found, strict=True)]
    labels = (str(chosen[0]), f"ending{chosen[1]}", str((chosen[2] + 1) % 3))
    table = table_of([(q, *choices, label) for (q, choices), label in zip(asked, labels, strict=True)], tmp_path)
    model = ("--model", tiny_chooser_folder, "--device", "cpu")
    code, out, err = headlight("choose", "--table", table, *COLUMNS, "--label", "label", *model)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err) == (0, "2 of 3 right (66.7%)\n")
    assert [row["row"] for row in rows] == ["2", "3", "4"] and rows[1]["question"] == "'=who ran?"
    assert [row["chosen"] for row in rows] == [f"ending{number}" for number in chosen]
    assert [row["right"] for row in rows] == ["1", "1", "0"] and rows[1]["p(ending1)"] == ""
    for row, one in zip(rows, found, strict=True):
        shares = [float(row[f"p(ending{number})"]) for number in range(3) if row[f"p(ending{number})"]]
        assert shares == pytest.approx(one.probabilities.tolist(), rel=1e-4)
        assert row["choice"] == one.choices[one.order[0]]
    code, out, err = headlight("choose", "--table", table, *COLUMNS, *model)
    assert (code, err) == (0, "") and "right" not in out.splitlines()[0]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("who?", "a cat", "", "", "0"), "row 2 of asked.csv: 1 choice was given: give from 2 to 26 choices"),
        (("", "a cat", "a dog", "", "0"), "row 2 of asked.csv: the question is empty: type at least one word"),
        (
            ("who?", "a cat", "a dog", "", "2"),
            "'2' is none of its choices: they are ending0, ending1, or their numbers",
        ),
        (("who?", "a cat", "a dog", "", "dog"), "row 2 of asked.csv: 'dog' is none of its choices"),
        (("who?", "a cat", "the mat " * 300, "", "0"), "row 2 of asked.csv: choice 2 with its question has"),
    ],
)
def test_a_row_that_cannot_be_asked_is_one_sentence(
    headlight: Run, tiny_chooser_folder: Path, tmp_path: Path, row: tuple[str, ...], sentence: str
) -> None:
    """It names the row, and nothing is printed before."""
    table = table_of([row], tmp_path)
    code, out, err = headlight(
        "choose", "--table", table, *COLUMNS, "--label", "label", "--model", tiny_chooser_folder, "--device", "cpu"
    )
    assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err


def test_one_way_of_asking_at_a_time(headlight: Run, tiny_chooser_folder: Path, tmp_path: Path) -> None:
    """A question or a table, and columns with a table alone."""
    table, model = table_of([], tmp_path), ("--model", tiny_chooser_folder, "--device", "cpu")
    for arguments, sentence in (
        ((), "give a question and its choices, or --table and many of them"),
        ((QUESTION,), "give a question and its choices, or --table and many of them"),
        (
            (QUESTION, "a", "b", "--label", "c"),
            "--text, --choice and --label name the columns of a table: give --table",
        ),
        ((QUESTION, "a", "b", "--table", table), "--table is many questions instead of one"),
        (
            ("--table", table, "--text", "context"),
            "name the column of the questions (--text) and each that",
        ),
        (("--table", table, *COLUMNS), "asked.csv has no rows: there is nothing to ask"),
        (("--table", table, *COLUMNS[:-1], "x"), "the column 'x' is not in asked.csv"),
    ):
        code, out, err = headlight("choose", *arguments, *model)
        assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err, arguments
