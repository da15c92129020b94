"""`headlight index` and `headlight search`: what they print and write, going on, and how they say no."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bert_core.studies import index as study
from bert_core.studies.documents import split_sentences
from bert_core.studies.lines import MAX_LINE_BYTES
from tests.app.test_cli import Run, headlight, text_file
from tests.core.test_treebank import SENTENCES, row

__all__ = ["headlight", "text_file"]  # fixtures

TEXT = "the cat sat on the 3 mat"


@pytest.fixture
def index(headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path) -> Path:
    """Of the text file."""
    out = tmp_path / "index"
    code, printed, err = headlight("index", text_file, "--out", out, "--model", tiny_model_folder, "--device", "cpu")
    assert code == 0, err
    assert printed.startswith(f"{out}: 1 files, ") and "96 sentences" in err
    return out


def test_matches_stand_in_the_middle(headlight: Run, index: Path, text_file: Path, tmp_path: Path) -> None:
    """A line each, the token between its neighbours; all that is known of them in a table and as JSON."""
    text = split_sentences(text_file.read_text(encoding="utf-8").splitlines()[0])[0]
    given = ("search", index, text, "--token", "1", "--top", "5", "--device", "cpu")
    code, printed, err = headlight(*given, "--depth", "1", "--out", tmp_path / "t.csv")
    assert code == 0, err
    first, *lines = printed.splitlines()
    assert first.startswith("«") and "the best 5 of " in first and len(lines) == 5
    assert lines[0].split()[:2] == ["1.0000", f"{text_file.name}:1"]
    places = {line.index("«") for line in lines}
    assert len(places) == 1
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["line"] for row in rows] == [line.split()[1].rpartition(":")[2] for line in lines]
    assert rows[0]["text"] == text and rows[0]["position"] == "1"
    heads = ("--heads", "0.1,1.*", "--alike", "looks", "--out", tmp_path / "t.json")
    code, printed, err = headlight(*given, *heads)
    assert code == 0 and " offset " in printed, err
    told = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert told["heads"][:2] == [[0, 1], [1, 0]] and len(told["matches"]) == 5 and told["text"] == text
    assert told["matches"][0]["text"] == text


def test_a_word_is_named_by_itself(headlight: Run, index: Path) -> None:
    """Where it stands once; else with its position, or by that alone. Filters say which tokens are compared."""
    given = ("search", index, "the cat saw the dog", "--device", "cpu", "--top", "3", "--token")
    code, by_word, err = headlight(*given, "cat")
    assert code == 0, err
    assert headlight(*given, "2")[1] == by_word
    code, printed, err = headlight(*given, "the")
    assert (code, printed) == (2, "") and "2 times a word of the text" in err and "4:the" in err
    assert headlight(*given, "the at 4")[1] == headlight(*given, "4")[1]
    code, printed, err = headlight(*given, "cat", "--where", "piece=cat|dog")
    assert code == 0 and "«cat»" in printed, err
    code, printed, err = headlight(*given, "1,2", "--phrase", "each")
    assert code == 0, err


def test_stopped_and_gone_on_with(
    headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C keeps what there is and says so; the same command makes the index of a run that was never stopped."""
    monkeypatch.setattr(study, "SHARD_CHARACTERS", 200)
    given = ("index", text_file, "--model", tiny_model_folder, "--device", "cpu", "--out")
    assert headlight(*given, tmp_path / "whole")[0] == 0
    measured, done, whole = study.index_shard, [], study.STUDY

    def stopped(*some: object) -> object:
        done.append(some)
        if len(done) == 3:
            raise KeyboardInterrupt
        return measured(*some)  # type: ignore[arg-type]

    monkeypatch.setattr(study, "STUDY", replace(whole, measure=stopped))
    code, _, err = headlight(*given, tmp_path / "index")
    assert code == 130 and "run the same command again to resume" in err
    monkeypatch.setattr(study, "STUDY", whole)
    assert headlight(*given, tmp_path / "index")[0] == 0
    found, expected = (
        {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        for folder in (tmp_path / "index", tmp_path / "whole")
    )
    assert found == expected and not any(path.name == ".lock" for path in found)


def test_a_file_is_taken_out(headlight: Run, index: Path, text_file: Path) -> None:
    """By its name; then nothing is found, and the index is there to grow again."""
    assert headlight("index", "--remove", text_file.name, "--out", index)[0] == 0
    code, printed, err = headlight("search", index, TEXT, "--token", "1", "--device", "cpu")
    assert code == 0 and "the best 0 of 0 tokens" in printed, err
    code, _, err = headlight("index", "--remove", text_file.name, "--out", index)
    assert code == 2 and "holds no file" in err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--token", "9"), "--token is '9', which is not a word of the text"),
        (("--token", "1", "--heads", "x"), "--heads is 'x'"),
        (("--token", "1", "--where", "word"), "--where is 'word': write column=value"),
        (("--token", "1", "--where", "verb=is"), "no column 'verb' to filter by"),
        (("--token", "1", "--depth", "9"), "no states of depth 9"),
        (("--token", "1", "--depth", "1", "--heads", "0.1"), "give either a depth or heads"),
        (("--token", "1", "--out", "t.txt"), "its ending must be one of csv, json"),
        (("--token", "1", "--model", "headlight-mini"), "has other weights"),
    ],
)
def test_what_search_refuses(headlight: Run, index: Path, options: tuple[str, ...], sentence: str) -> None:
    """Exit code 2 and one sentence."""
    code, printed, err = headlight("search", index, "the cat sat", "--device", "cpu", *options)
    assert (code, printed, err.count("\n")) == (2, "", 1) and sentence in err


def test_what_index_refuses(headlight: Run, text_file: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Exit code 2, one sentence, and no folder is left behind."""
    table = tmp_path / "t.csv"
    table.write_text("a\n", encoding="utf-8")
    out = tmp_path / "new"
    for options, sentence in (
        ((), "give a file that is added, or --remove"),
        ((table,), "name the column of the texts (--text); its columns are a"),
        ((text_file, "--layers", "9"), "a layer of"),
        ((text_file, "--layers", "x"), "--layers is 'x'"),
        ((text_file, "--engine", "x"), "engine 'x' is unknown"),
        (("--remove", "x.txt"), "is not an index"),
    ):
        code, printed, err = headlight("index", *options, "--model", tiny_model_folder, "--out", out)
        assert (code, printed) == (2, "") and sentence in err, err
        assert not out.exists()


def test_what_was_not_read_whole_is_said(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A sentence of a treebank that is too long, as one of a text is."""
    word = "a" * (MAX_LINE_BYTES + 1)
    path = tmp_path / "long.conllu"
    path.write_text("\n".join([row(1, word), "", *SENTENCES]) + "\n", encoding="utf-8")
    code, _, err = headlight("index", path, "--out", tmp_path / "i", "--model", tiny_model_folder, "--device", "cpu")
    assert code == 0 and "1 lines too long, of which only the beginning was read" in err, err
