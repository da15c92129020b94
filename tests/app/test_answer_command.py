"""`headlight answer`: what it prints of a question or of a table, and how it says no."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import bert_core
from bert_core import Span, best_spans, capture
from bert_core.analysis.spans import span_at
from tests.app.test_cli import Run, headlight

__all__ = ["headlight"]  # a fixture
ASKED = "who sat?", "The  Old cats sat on the mat, and a Dog ran."


def found_by(folder: Path, question: str, context: str) -> tuple[tuple[Span, ...], Span]:
    loaded = bert_core.load(str(folder), device="cpu")
    encoding = loaded.tokenizer.encode(question, context)
    spans = capture(loaded, encoding).spans
    assert spans is not None
    return best_spans(encoding, spans, 5), span_at(encoding, spans, 0, 0)


def test_one_question(headlight: Run, tiny_reader_folder: Path) -> None:
    """Each answer in a line with its probability, and that there is none among them; as JSON with its places."""
    given = ("answer", "--model", tiny_reader_folder, "--question", ASKED[0], "--context", ASKED[1], "--device", "cpu")
    best, none = found_by(tiny_reader_folder, *ASKED)
    code, out, err = headlight(*given)
    ordered = sorted((*best, none), key=lambda one: -one.score)
    expected = [f"{one.probability:.3f}  {' '.join(one.text.split()) or '(no answer)'}" for one in ordered]
    assert (code, out.splitlines(), err) == (0, expected, "")
    code, out, _ = headlight(*given, "--json", "--top-k", 2)
    values = json.loads(out)
    assert code == 0 and [one["text"] for one in values["answers"]] == [one.text for one in best[:2]]
    for one in values["answers"]:
        assert ASKED[1][one["start"] : one["end"]] == one["text"]
    assert values["none"]["score"] == pytest.approx(none.score)


def test_a_table(headlight: Run, tiny_reader_folder: Path, tmp_path: Path) -> None:
    """The best answer to each row, or none where that has the larger score, as CSV that opens in a spreadsheet."""
    rows = [ASKED, ("=who ran?", "a dog ran to the city. " * 100), ("who?", "The king.")]
    table = tmp_path / "asked.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("q", "c"), *rows])
    code, out, err = headlight(
        "answer", table, "--model", tiny_reader_folder, "--text", "q", "--pair", "c", "--device", "cpu"
    )
    found = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and err == "1 of 3 contexts did not fit: what stands behind their beginning was not read\n"
    assert [row["row"] for row in found] == ["2", "3", "4"] and found[1]["question"] == "'=who ran?"
    for row, (question, context) in zip(found, rows, strict=True):
        (best, *_), none = found_by(tiny_reader_folder, question, context)
        assert row["answer"] == (best.text if best.score >= none.score else "")
        assert float(row["probability"]) == pytest.approx(best.probability, rel=1e-4)
        assert context[int(row["start"]) : int(row["end"])] == best.text


def test_questions_in_squads_form_are_judged(headlight: Run, tiny_reader_folder: Path, tmp_path: Path) -> None:
    """Exact match and F1 of all questions, and apart of those with an answer and without."""
    (best, *_), none = found_by(tiny_reader_folder, *ASKED)
    said = best.text if best.score >= none.score else ""
    asked = [
        {"id": "a", "question": ASKED[0], "answers": [{"text": best.text, "answer_start": best.start}]},
        {"id": "b", "question": ASKED[0], "answers": []},
    ]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": ASKED[1], "qas": asked}]}]}), encoding="utf-8")
    code, out, err = headlight("answer", file, "--model", tiny_reader_folder, "--device", "cpu")
    right = ("100.0%", "0.0%") if said else ("0.0%", "100.0%")
    assert (code, err) == (0, "")
    assert [line.split()[-3:] for line in out.splitlines()[1:]] == [
        ["50.0%", "50.0%", "2"], [right[0], right[0], "1"], [right[1], right[1], "1"],
    ]  # fmt: skip
    code, _, err = headlight("answer", file, "--model", tiny_reader_folder, "--text", "a")
    assert code == 2 and "a.json contains a JSON object and no list of objects" in err


WRONG = {
    "give either --question and --context, or a file of many": ("--question", "who?"),
    "there is no context: type the text that contains the answer": ("--question", "who?", "--context", " "),
    "there is a second sentence but no first one": ("--question", " ", "--context", "a cat"),
    "name the column of the questions (--text) and that of the contexts (--pair); its columns are q, c": (
        "TABLE",
        "--text",
        "q",
    ),
    "--json is for one question, and a file was given": ("TABLE", "--text", "q", "--pair", "c", "--json"),
    "the column 'x' is not in asked.csv": ("TABLE", "--text", "x", "--pair", "c"),
    "an empty field in the column 'c' (row 3;": ("TABLE", "--text", "q", "--pair", "c"),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_is_one_sentence(headlight: Run, tiny_reader_folder: Path, tmp_path: Path, said: str) -> None:
    """Exit code 2 and one sentence."""
    table = tmp_path / "asked.csv"
    table.write_text("q,c\nwho?,a cat\nwho?,\n", encoding="utf-8")
    given = [table if word == "TABLE" else word for word in WRONG[said]]
    code, out, err = headlight("answer", "--model", tiny_reader_folder, *given)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err


def test_a_model_without_a_reader_says_so(headlight: Run, tiny_model_folder: Path) -> None:
    """It says what could teach it."""
    code, _, err = headlight("answer", "--model", tiny_model_folder, "--question", "who?", "--context", "a cat")
    assert code == 2 and "has no trained question-answering head: `headlight finetune` can teach it" in err


def test_an_answer_can_be_explained_on_the_command_line(
    headlight: Run, tiny_reader_folder: Path, tmp_path: Path
) -> None:
    """A gradient explains the best answer, or the one that is named; what cannot stand is refused."""
    given = ("attention", ASKED[0], "--pair", ASKED[1], "--model", tiny_reader_folder, "--show", "gradient")
    assert headlight(*given, "--out", tmp_path / "a.csv")[0] == 0
    assert headlight(*given, "--target", "span:8:9", "--out", tmp_path / "b.csv")[0] == 0
    code, _, err = headlight(*given, "--target", "span:1:2", "--out", tmp_path / "c.csv")
    assert code == 2 and "an answer cannot be at positions 1 to 2" in err
