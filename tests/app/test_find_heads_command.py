"""`headlight find-heads`: the heads that attend from one word to another, on a terminal and in a file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bert_core import LoadedModel, ablate_heads, capture, find_heads, open_index, parse_target
from bert_core.studies.search import count_pairs
from tests.app.test_cli import Run, headlight, text_file
from tests.near import assert_near

__all__ = ["headlight", "text_file"]  # fixtures
TEXT = "The cat sat on a mat."
PAIR_OPTIONS = ("--from", "sat", "--to", "cat", "--device", "cpu")


def cells(printed: str) -> list[list[str]]:
    """The table, with the headings, each row as its cells; heads as one cell."""
    lines = printed.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("head "))
    return [line.replace(" H", "H").split() for line in lines[start:]]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


def test_the_table_is_what_the_library_finds(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Weight and percentile of each head, the largest weight first; without a target there is no effect."""
    given = ("find-heads", TEXT, *PAIR_OPTIONS, "--model", tiny_model_folder)
    code, printed, err = headlight(*given, "--top", 3, "--out", tmp_path / "heads.csv")
    assert (code, err) == (0, "")
    expected = find_heads(capture(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT)), 3, 2)
    assert printed.startswith("attention from sat (3) to cat (2): 3 of 8 heads, largest weight first\nhead")
    assert cells(printed) == [
        ["head", "weight", "percentile"],
        *([f"L{one.layer}H{one.head}", f"{one.weight:.4f}", f"{one.percentile:.1f}"] for one in expected[:3]),
    ]
    rows = rows_of(tmp_path / "heads.csv")
    assert list(rows[0]) == ["layer", "head", "weight", "percentile"] and len(rows) == 8
    assert_near(np.array([[float(value) for value in row.values()] for row in rows]), np.array(expected))
    assert len(cells(headlight(*given)[1])) == 9  # all heads, which are fewer than ten


@pytest.mark.parametrize(
    ("options", "target"),
    [
        (("--mask", 1), None),
        (("--mask", 1, "--target", "dog rather than cat"), "dog rather than cat"),
        (("--pair", "It was old.", "--target", "alike:A"), "alike:A"),
        (("--pair", "It was old."), "nsp"),
    ],
)
def test_effects_are_those_of_ablation(
    headlight: Run,
    tiny_loaded: LoadedModel,
    tiny_model_folder: Path,
    tmp_path: Path,
    options: tuple[object, ...],
    target: str | None,
) -> None:
    """The target without each head minus that with all; of the top guess unless a target is given."""
    given = ("find-heads", TEXT, *PAIR_OPTIONS, "--model", tiny_model_folder, "--out", tmp_path / "heads.csv")
    code, printed, err = headlight(*given, *options)
    assert (code, err) == (0, "")
    tokenizer = tiny_loaded.tokenizer
    original = tokenizer.encode(TEXT, "It was old." if "--pair" in options else None)
    encoding = tokenizer.mask_words(original, [1] if "--mask" in options else [])
    if target is None:
        token, _ = capture(tiny_loaded, encoding).predictions[0].top[0]
        target = f"2:{tokenizer.token_of(token)}"
        assert "to cat (masked) (2)" in printed
    expected, encoding = parse_target(tiny_loaded, encoding, target, original=original)
    effect = ablate_heads(tiny_loaded, encoding, target=expected).effect
    heads = find_heads(capture(tiny_loaded, encoding), 3, 2)
    assert effect is not None
    rows = rows_of(tmp_path / "heads.csv")
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [head[:2] for head in heads]
    assert_near(np.array([float(row["effect"]) for row in rows]), np.array([effect[head[:2]] for head in heads]))
    heading, *table = cells(printed)
    assert heading == ["head", "weight", "percentile", "effect"]
    assert [row[-1] for row in table] == [f"{float(row['effect']):+.4f}" for row in rows]
    assert printed.splitlines()[1].startswith("target ") and "; effect in " in printed


def test_counts_are_those_of_the_index(
    headlight: Run, tiny_model_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """How often the strongest key is the word, also a masked one, and how often it is at its offset, of any token."""
    folder = tmp_path / "index"
    made = ("index", text_file, "--out", folder, "--layers", 1, "--model", tiny_model_folder, "--device", "cpu")
    assert headlight(*made)[0] == 0
    given = ("find-heads", "The king sat.", "--from", "sat", "--model", tiny_model_folder, "--device", "cpu")
    out = tmp_path / "heads.csv"
    for to, options, token, offset in (
        ("king", (), "king", -1), ("king", ("--mask", 1), "king", -1), ("0", (), "[CLS]", "first"),
        ("5", (), "[SEP]", "end"),
    ):  # fmt: skip
        code, printed, err = headlight(*given, "--to", to, *options, "--index", folder, "--out", out)
        assert (code, err) == (0, "")
        rows = rows_of(out)
        heads = [(int(row["layer"]), int(row["head"])) for row in rows]
        counts = count_pairs(open_index(folder), heads, "sat", token, offset)
        names = ("pairs", "strongest", "tokens", "same_offset")
        assert [[row[name] for name in names] for row in rows] == [
            [""] * 4 if entry is None else list(map(str, entry)) for entry in counts
        ]
        heading, *table = cells(printed)
        assert heading[-2:] == ["strongest/pairs", "same_offset/tokens"]
        for line, entry in zip(table, counts, strict=True):
            shares = (
                ["-", "-"]
                if entry is None
                else [f"{entry.strongest}/{entry.pairs}", f"{entry.same_offset / entry.tokens:.1%}"]
            )
            assert line[-2:] == shares
        stored = next(entry for entry in counts if entry is not None)
        assert stored.pairs and counts.count(None) == 4
        assert f"{folder}: occurrences of sat in sentences with {token}: {stored.pairs}; typed tokens: " in printed
    for number in range(1, 9):
        printed = headlight(*given, "--to", "king", "--index", folder, "--top", number)[1]
        assert (f"{folder} holds none of these heads: it has those of layers 1" in printed) == (
            not any(row[0].startswith("L1") for row in cells(printed))
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--from", "the", "--to", "cat"), "--from is 'the', which is 2 times a word of the text: name one of 0:[CLS]"),
        (("--from", "cat", "--to", "dog"), "--to is 'dog', which is not a word of the text"),
        (("--from", "cat", "--to", "99"), "--to is '99', which is not a word of the text"),
        (("--from", "1,2", "--to", "cat"), "--from is '1,2', which has 2 tokens: name one of 0:[CLS] 1:the"),
        (("--from", "2", "--to", "1", "--mask", 99), "word 99 does not exist"),
        (("--from", "2", "--to", "1", "--target", "cat"), "--target is 'cat': no word is masked"),
        (("--from", "2", "--to", "1", "--index", "."), "is not an index"),
        (("--from", "2", "--to", "1", "--out", "heads.json"), "its ending must be one of csv"),
    ],
)
def test_what_is_refused(headlight: Run, tiny_model_folder: Path, options: tuple[object, ...], sentence: str) -> None:
    """Exit code 2 and one sentence."""
    text = "The cat saw the mat."
    code, printed, err = headlight("find-heads", text, *options, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, printed, err.count("\n")) == (2, "", 1) and sentence in err


def test_a_word_of_the_second_text_and_one_that_occurs_twice(headlight: Run, tiny_model_folder: Path) -> None:
    """Words of both texts are found; a position after "at" selects one of several."""
    given = (
        "find-heads",
        "The cat sat.",
        "--pair",
        "The mat was old.",
        "--model",
        tiny_model_folder,
        "--device",
        "cpu",
    )
    code, printed, err = headlight(*given, "--from", "old", "--to", "the at 6")
    assert (code, err) == (0, "") and printed.startswith("attention from old (9) to the (6): 8 of 8 heads")
    assert headlight(*given, "--from", "9", "--to", "6")[1] == printed
