"""`headlight predict` of several texts, choices and tables, and the former commands of single task heads."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
import typer

import bert_core
from bert_core.task_heads import TASK_HEADS
from tests.app.test_cli import Run, headlight, note_of_former_command
from viz_app import cli
from viz_app.cli.command import app

__all__ = ["headlight"]  # a fixture
QUESTION, CONTEXT, CHOICES = "who sat?", "The  Old cats sat on the mat.", ("The  Old cats", "a king", "a dog ran")


def write_table(folder: Path, *rows: tuple[str, ...]) -> Path:
    """Write rows, of which the first has the names of the columns, as CSV."""
    table = folder / "table.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return table


def test_several_texts_are_predicted_one_after_another(headlight: Run, tiny_tagger_folder: Path) -> None:
    """An empty line stands between them; as JSON each has a line with what it has alone."""
    texts, model = ("The cat sat.", "a dog ran"), ("--model", tiny_tagger_folder, "--device", "cpu")
    outputs = [headlight("predict", text, *model)[1] for text in texts]
    assert headlight("predict", *texts, *model) == (0, "\n".join(outputs), "")
    outputs = [headlight("predict", text, "--json", *model)[1] for text in texts]
    assert headlight("predict", *texts, "--json", *model) == (0, "".join(outputs), "")


def test_choices_have_their_probabilities(headlight: Run, tiny_chooser_folder: Path) -> None:
    """The likeliest first, as `choose` prints them below a title, at most --top-k; as JSON in full precision."""
    model = ("--model", tiny_chooser_folder, "--device", "cpu")
    choices = [word for choice in CHOICES for word in ("--choice", choice)]
    lines = headlight("choose", QUESTION, *CHOICES, *model)[1].splitlines()
    code, out, err = headlight("predict", QUESTION, *choices, *model)
    assert (code, out.splitlines(), err) == (0, ["choice", *(f"  {line}" for line in lines)], "")
    code, out, _ = headlight("predict", QUESTION, *choices, "--top-k", 2, "--json", "--head", "chooser", *model)
    (readout,) = json.loads(out)["chooser"]
    scores = bert_core.choose(bert_core.load(str(tiny_chooser_folder), device="cpu"), QUESTION, CHOICES)
    expected = [[" ".join(CHOICES[number].split()), scores.probabilities[number]] for number in scores.order[:2]]
    assert [row[0] for row in readout["rows"]] == [name for name, _ in expected]
    assert [row[1] for row in readout["rows"]] == pytest.approx([number for _, number in expected])


def test_a_table_of_texts_has_a_line_for_each_number(
    headlight: Run, tiny_classifier_folder: Path, tmp_path: Path
) -> None:
    """The CSV has the readouts of the head that the library gives for every row, and names the row of the file."""
    texts = ("The cat sat.", "=a dog ran")
    table = write_table(tmp_path, ("text",), *((text,) for text in texts))
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    command = ("predict", "--table", table, "--text", "text", "--model", tiny_classifier_folder, "--device", "cpu")
    code, out, err = headlight(*command, "--top-k", 2, "--head", "classifier")
    expected = [
        (str(number), text, readout.title, name, value)
        for number, text in enumerate(texts, 2)
        for readout in TASK_HEADS["classifier"].readouts(
            loaded, bert_core.capture(loaded, loaded.tokenizer.encode(text)), 2
        )
        for name, value in readout.rows
    ]
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err, len(rows)) == (0, "", 4)
    texts_and_names = [(row["row"], row["text"].removeprefix("'"), row["title"], row["name"]) for row in rows]
    assert texts_and_names == [values[:4] for values in expected]
    assert [float(row["number"]) for row in rows] == pytest.approx([values[4] for values in expected], rel=1e-4)


def test_tables_of_questions_are_those_of_the_former_commands(
    headlight: Run, tiny_reader_folder: Path, tiny_chooser_folder: Path, tmp_path: Path
) -> None:
    """Answers, choices and the scores of a file in SQuAD's form are the same bytes, and so is the note on stderr."""
    reader, chooser = (("--model", folder, "--device", "cpu") for folder in (tiny_reader_folder, tiny_chooser_folder))
    table = write_table(tmp_path, ("q", "c"), (QUESTION, CONTEXT), ("who ran?", "a dog ran to the city. " * 100))
    columns = ("--text", "q", "--pair", "c")
    printed = headlight("predict", "--table", table, *columns, "--head", "reader", *reader)
    assert printed == headlight("answer", table, *columns, *reader)
    assert printed[0] == 0 and "1 of 2 contexts did not fit" in printed[2] and len(printed[1].splitlines()) == 3
    table = write_table(tmp_path, ("q", "a", "b", "right"), (QUESTION, "a king", "a dog", "0"))
    columns = ("--table", table, "--text", "q", "--choice", "a", "--choice", "b", "--label", "right")
    printed = headlight("predict", *columns, *chooser)
    assert printed == headlight("choose", *columns, *chooser) and printed[0] == 0 and "right" in printed[2]
    questions = [{"id": "a", "question": QUESTION, "answers": [{"text": "cats", "answer_start": 9}]}]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]}), encoding="utf-8")
    printed = headlight("predict", "--table", file, *reader)
    assert printed == headlight("answer", file, *reader) and printed[0] == 0 and "F1" in printed[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Missing argument 'TEXT': give a text, or --table and a file of many"),
        (("a", "--label", "b"), "--text and --label name the columns of a table: give --table"),
        (("a", "--table", "TABLE"), "--table is many texts instead of one"),
        (("--table", "TABLE", "--text", "q", "--json"), "--table is many texts instead of one"),
        (("a", "--choice", "b", "--choice", "c", "--pair", "d"), "--choice asks the head chooser"),
        (("a", "--choice", "b", "--choice", "c", "--head", "reader"), "--choice asks the head chooser"),
        (("a", "--choice", "b", "--choice", "c"), "has no trained multiple-choice head"),
        (("--table", "TABLE", "--text", "q", "--head", "tagger"), "--head is 'tagger': the trained heads of"),
        (("--table", "TABLE", "--text", "q"), "--table is read by one head: name it by --head, one of words, next"),
        (("--table", "TABLE", "--head", "words"), "name the column of the texts (--text); its columns are q, c"),
        (("--table", "TABLE", "--text", "q", "--head", "next"), "and that of the second texts (--pair)"),
        (("--table", "TABLE", "--text", "x", "--head", "words"), "the column 'x' is not in table.csv"),
        (("--table", "TABLE", "--text", "q", "--head", "words"), "predicts nothing of table.csv with the head words"),
        (("--table", "SQUAD"), "has no trained question-answering head"),
        (
            ("--table", "SQUAD", "--head", "words"),
            "questions in SQuAD's form are for the head reader",
        ),
    ],
)
def test_invalid_combinations_are_one_sentence(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    """Exit code 2, nothing on stdout, and one sentence that says what is allowed."""
    squad = tmp_path / "squad.json"
    squad.write_text('{"data": []}', encoding="utf-8")
    files = {"TABLE": write_table(tmp_path, ("q", "c"), ("who sat?", "a cat")), "SQUAD": squad}
    words = [files.get(word, word) for word in arguments]
    code, out, err = headlight("predict", *words, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err


def test_former_commands_are_hidden_and_keep_their_options(headlight: Run) -> None:
    """They are not listed, and their own help has every option of theirs."""
    listed = set(re.findall(r"^  ([\w-]+)  ", headlight("--help")[1], re.MULTILINE))
    options = {
        "nsp": ("--cut",),
        "replaced": ("--pair", "--cut"),
        "tags": ("--json", "--cut"),
        "answer": ("--question", "--context", "--text", "--pair", "--top-k", "--json"),
        "choose": ("--table", "--text", "--choice", "--label", "--json"),
    }
    assert "predict" in listed and not listed & options.keys()
    for name, names in options.items():
        code, out, _ = headlight(name, "--help")
        assert code == 0 and all(option in out for option in (*names, "--model", "--device")), name


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("nsp", "a b --model EMPTY"),
        ("replaced", "a --model EMPTY"),
        ("tags", "a --model EMPTY"),
        ("answer", "--question a --context b --model EMPTY"),
        ("choose", "a b c --model EMPTY"),
        ("dossier", "EMPTY --out EMPTY.json"),
    ],
)
def test_a_former_command_names_the_new_one(
    name: str, arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr before anything else; the command that it names exists and has the option that it names."""
    with pytest.raises(SystemExit) as ended:
        cli.main([name, *arguments.replace("EMPTY", str(tmp_path)).split()])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")  # the folder is empty
    note, _, message = printed.err.partition("\n")
    assert note + "\n" == note_of_former_command(name) and message.count("\n") == 1
    match = re.fullmatch(
        r"headlight \w+: use headlight (\w+)(?: --head (\w+))?; this command is removed in 0.4.0", note
    )
    assert match is not None
    assert match[1] in typer.main.get_group(app).commands and match[2] in (None, *TASK_HEADS.present)
