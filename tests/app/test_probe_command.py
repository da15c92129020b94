"""`headlight probe`: a table on the terminal and in a file, going on where it stopped, and how it says no."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bert_core
from tests.app.test_cli import Run, headlight

__all__ = ["headlight"]  # a fixture


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """Thirty sentences, a row a word, and what each word is."""
    rng, rows = np.random.default_rng(0), ["sentence,word,kind"]
    for number in range(30):
        for word in rng.permutation(["the", "cat", "dog", "king", "queen", "old"]).tolist():
            rows.append(f"{number},{word},{'pet' if word in ('cat', 'dog') else 'other'}")
    (tmp_path / "words.csv").write_text("\n".join(rows), encoding="utf-8")
    return tmp_path / "words.csv"


def test_a_label_of_a_table(headlight: Run, words: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A line a depth on the terminal, all points in the file, and the same command again makes none anew."""
    out = tmp_path / "probes.csv"
    given = ("probe", words, "--label", "kind", "--layers", "0,2", "--seeds", "2", "--erase", "--least", "1",
             "--model", tiny_model_folder, "--device", "cpu", "--out")  # fmt: skip
    code, printed, err = headlight(*given, out)
    assert code == 0, err
    header, *lines = printed.splitlines()
    assert header.split()[:3] == ["depth", "accuracy", "seeds"] and header.endswith("masked-token loss")
    assert [line.split()[0] for line in lines] == ["0", "2"]
    points = bert_core.read_probes(out)
    assert [(point.depth, point.seed) for point in points] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    written = out.read_bytes()
    assert headlight(*given, out)[:2] == (0, printed) and out.read_bytes() == written

    code, again, err = headlight(*given, tmp_path / "probes.json")
    assert code == 0 and again == printed, err
    kept = json.loads((tmp_path / "probes.json").read_text())
    assert kept["label"] == "kind" and [point["accuracy"] for point in kept["points"]] == [
        point.accuracy for point in points
    ]


def test_what_was_not_asked_is_null(headlight: Run, words: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Without --erase there is no column of it, and nothing that JSON cannot hold."""
    code, printed, err = headlight(
        "probe", words, "--label", "kind", "--layers", "1", "--seeds", "1", "--least", "1", "--model",
        tiny_model_folder, "--device", "cpu", "--out", tmp_path / "probes.json",
    )  # fmt: skip
    assert code == 0 and "erased" not in printed, err
    text = (tmp_path / "probes.json").read_text()
    assert "NaN" not in text and json.loads(text)["points"][0]["loss_erased"] is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ("--label", "colour", "--out", "OUT.csv"),
            "the column 'colour' is not in words.csv: its columns are sentence",
        ),
        (("--label", "kind", "--out", "OUT.txt"), "OUT.txt': its ending must be one of csv, json"),
        (("--label", "kind", "--out", "words.csv"), "words.csv', which is read: choose another name"),
        (("--label", "kind", "--out", "words.json"), "words.csv', which is read: choose another name"),
        (("--label", "kind", "--out", "OUT.csv", "--layers", "two"), "--layers is 'two': write depths with commas"),
        (("--label", "kind", "--out", "OUT.csv", "--layers", "9", "--least", "1"), "a depth is 9: it must be a whole"),
        (("--label", "kind", "--out", "OUT.csv", "--least", "1000"), "0 of 2 labels occur 1,000 times or more"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    headlight: Run, words: Path, tiny_model_folder: Path, given: tuple[str, ...], sentence: str
) -> None:
    """What was given and what is allowed; and nothing is left behind."""
    options = [str(words.parent / one) if one.startswith(("OUT", "words")) else one for one in given]
    code, printed, err = headlight("probe", words, *options, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, printed) == (2, "") and sentence in err and len(err.splitlines()) == 1
    assert [path.name for path in words.parent.iterdir()] == ["words.csv"]
