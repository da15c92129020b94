"""analysis/scoring.py, run/scoring.py and studies/pairs.py: two sentences side by side, and tables of them."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bert_core import LoadedModel, pseudo_log_likelihood, score_pairs
from bert_core.analysis.scoring import align_columns, pair_columns
from bert_core.records import PairRow
from bert_core.refused import Refused
from bert_core.studies.pairs import MAX_PAIRS, PAIR_COLUMNS, pairs_csv, read_pair_file, read_pairs
from tests.near import assert_near

TOKENS = some.lists(some.sampled_from("abc"), max_size=12)


@given(TOKENS, TOKENS)
def test_every_token_is_in_one_column(first: list[str], second: list[str]) -> None:
    """Both sentences read off the columns as they were; columns that are alike hold the same token."""
    columns = align_columns(first, second)
    assert [c.first for c in columns if c.first is not None] == list(range(len(first)))
    assert [c.second for c in columns if c.second is not None] == list(range(len(second)))
    for column in columns:
        if column.equal:
            assert column.first is not None and column.second is not None
            assert first[column.first] == second[column.second]


def test_a_changed_word_is_the_only_difference() -> None:
    """One word for another is one column; one for two is two, the second with nothing above it."""
    one = ["the", "keys", "are", "here"]
    assert [c.equal for c in align_columns(one, ["the", "keys", "is", "here"])] == [True, True, False, True]
    longer = align_columns(one, ["the", "keys", "used", "to", "here"])
    assert [(c.first, c.second) for c in longer] == [(0, 0), (1, 1), (2, 2), (None, 3), (3, 4)]


def test_the_two_parts_of_the_difference_add_up(tiny_loaded: LoadedModel) -> None:
    """What the parting words and what their neighbours are owed is the difference of the totals."""
    (pair,) = score_pairs(tiny_loaded, [PairRow(1, "the cat sat on the mat .", "the old cat ran on a mat")])
    one, other = pair.scores
    found = pair_columns(pair)
    assert_near(found.differing_contribution + found.shared_contribution, one.total - other.total, of=one.total)
    assert found.differing_contribution != 0 and found.shared_contribution != 0
    assert all(np.isnan(found.first[n]) == (c.first is None) for n, c in enumerate(found.columns))
    same = pair_columns(dataclasses.replace(pair, second=one))
    assert same.equal.all() and same.differing_contribution == 0 and same.shared_contribution == 0


@pytest.mark.parametrize(
    "text",
    [
        "One cat.\tTwo cats.\nA dog, old.\tA cat.\n",
        "One cat. | Two cats.\n\n A dog, old. | A cat.",
        '\ufeffOne cat.,Two cats.\n"A dog, old.",A cat.\n',
        "sentence_good,sentence_bad\nOne cat.,Two cats.\n\"A dog, old.\", A cat.",
        'kind,sentence_good,sentence_bad\nnumber,One cat.,Two cats.\nnoun,"A dog, old.",A cat.\n',
        "First | Second | Kind\nOne cat. | Two cats. | number\nA dog, old. | A cat. | noun",
        'first\tsecond\nOne cat.\tTwo cats.\nA dog, old.\tA cat.',
        "One cat.;Two cats.\nA dog, old.;A cat.\n",
        "\ufeffsentence_good;sentence_bad\r\nOne cat.;Two cats.\r\nA dog, old.;A cat.\r\n",
        'kind;sentence_good;sentence_bad\nnumber;"One cat.";Two cats.\n"a; b";A dog, old.;"A cat."\n',
    ],
)  # fmt: skip
def test_pairs_are_read_however_they_are_parted(text: str) -> None:
    """Tabs, bars, commas or semicolons, with a header or without, from text or from bytes."""
    for given_as in (text, text.encode()):
        found = read_pairs(given_as)
        assert [(r.first, r.second, r.problem) for r in found] == [
            ("One cat.", "Two cats.", None), ("A dog, old.", "A cat.", None)
        ]  # fmt: skip


def test_semicolons_within_sentences_part_nothing() -> None:
    """The sign that makes more of the lines pairs is the one between them."""
    found = read_pairs("It rained; he stayed.,It rained; he stay.\nA cat.,A cats.\n")
    assert [(row.first, row.second, row.problem) for row in found] == [
        ("It rained; he stayed.", "It rained; he stay.", None), ("A cat.", "A cats.", None)
    ]  # fmt: skip


def test_a_row_that_is_no_pair_stays_and_says_why() -> None:
    """Nothing that was given is lost, and the line numbers are those of the text."""
    found = read_pairs("A cat.,A dog.\nalone\nA, cat, sat\n" + "x" * 3000 + ",y\n")
    assert [row.row for row in found] == [1, 2, 3, 4]
    assert [row.problem for row in found] == [
        None,
        "only one sentence: two are needed",
        "3 parts instead of two sentences: put a sentence with a comma or semicolon in quotes",
        "a sentence of 3,000 characters: at most 2,000 are read",
    ]
    assert (found[2].first, found[2].second) == ("A", "cat, sat")


def test_a_table_that_came_out_goes_in_again(tiny_loaded: LoadedModel) -> None:
    """Of many columns the header names the two that are read; a row that does not fit the header says so."""
    scored = score_pairs(tiny_loaded, [PairRow(1, "the cat sat .", "a dog, old"), PairRow(2, "the", "", "wrong")])
    written = pairs_csv(scored)
    again = read_pairs(written + "9,a cat,sat,on,a,mat,and,a,dog,ran,away\n" + "10,a cat\n")
    assert [(row.first, row.second, row.problem) for row in again] == [
        ("the cat sat .", "a dog, old", None),
        ("the", "", "only one sentence: two are needed"),
        (
            "9", "a cat, sat, on, a, mat, and, a, dog, ran, away",
            "11 parts where the header has 10: put a sentence with a comma or semicolon in quotes",
        ),
        ("a cat", "", "only one sentence: two are needed"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given_text", "sentence"),
    [
        ("", "there are no pairs: give two sentences per line, separated by a tab, |, a comma or a semicolon"),
        (
            "first,second\n",
            "there are no pairs: give two sentences per line, separated by a tab, |, a comma or a semicolon",
        ),
        (b"A caf\xe9.,B.", "the pairs are not UTF-8 (byte 5): save them as CSV UTF-8"),
        ('"a" b,c', "line 1 is not a row of a CSV table: ',' expected after '\"'"),
        ("x,y\n" * (MAX_PAIRS + 1), "there are more than 2,000 pairs, the most that are scored at once"),
    ],
)
def test_a_table_that_is_none_is_refused_in_one_sentence(given_text: str | bytes, sentence: str) -> None:
    """What was given, and what is allowed."""
    with pytest.raises(ValueError) as caught:
        read_pairs(given_text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("variant", ["original", "within word"])
def test_pairs_are_scored_like_single_sentences(variant: str, tiny_loaded: LoadedModel) -> None:
    """Each total is that of the sentence by itself; the likelier one is believed; a bad pair stops no other."""
    rows = [
        PairRow(1, "the cat sat .", "the xyz sat ."),
        PairRow(3, "the cat sat .", "the [MASK] sat ."),
        PairRow(4, "alone", "", "only one sentence: two are needed"),
        PairRow(5, "a dog " * 300, "a dog"),
        PairRow(6, "a dog ran", "a dog ran"),
    ]
    told: list[str] = []
    found = score_pairs(tiny_loaded, rows, variant=variant, report=lambda done, what="": told.append(what))
    whole = dict.fromkeys(text for row in rows for text in row[1:3] if row.row in (1, 6))
    copies = [len(tiny_loaded.tokenizer.encode(text)) - 2 for text in whole]
    assert told == [f"{done} of {sum(copies)} masked copies" for done in np.cumsum(copies)], (
        "what is shared is read once"
    )
    totals = [
        pseudo_log_likelihood(tiny_loaded, tiny_loaded.tokenizer.encode(text), variant=variant).total
        for text in rows[0][1:3]
    ]
    assert found[0].first is not None and found[0].second is not None
    np.testing.assert_allclose([found[0].first.total, found[0].second.total], totals, rtol=1e-5)
    assert found[0].preferred == ("first" if totals[0] > totals[1] else "second")
    assert [one.problem for one in found] == [
        None,
        "a sentence contains [MASK]: a masked position cannot be scored",
        "only one sentence: two are needed",
        "a sentence has 602 tokens: " + tiny_loaded.name + " takes at most 512",
        None,
    ]
    assert found[1].preferred is None and found[4].preferred == "neither"


def test_plain_pairs_are_numbered_rows(tiny_loaded: LoadedModel) -> None:
    """(first, second) from Python is what `read_pairs` makes of a line; three parts are no pair."""
    plain = [("the cat sat .", "the dog sat ."), ("a dog ran", "a cat ran")]
    rows = [PairRow(1, *plain[0]), PairRow(2, *plain[1])]
    for one, other in zip(score_pairs(tiny_loaded, plain), score_pairs(tiny_loaded, rows), strict=True):
        assert (one.row, one.sentences, one.problem) == (other.row, other.sentences, None)
        assert one.difference == pytest.approx(other.difference, rel=1e-4)
    with pytest.raises(ValueError, match="pair 2 has 3 items: give two sentences, or a row from read_pairs"):
        score_pairs(tiny_loaded, [plain[0], ("a", "b", "c")])  # type: ignore[list-item]


def test_the_table_comes_out_as_csv(tiny_loaded: LoadedModel) -> None:
    """A row each, in order, numbers in full, a problem in the last column, formulas made harmless."""
    rows = [PairRow(1, "the cat sat .", "a dog , ran"), PairRow(2, "=SUM(A1)", "", "only one sentence: two are needed")]
    scores = score_pairs(tiny_loaded, rows)
    header, one, other = csv.reader(io.StringIO(pairs_csv(scores)))
    assert tuple(header) == PAIR_COLUMNS
    assert scores[0].first is not None and float(one[3]) == scores[0].first.total
    assert one[1:3] == ["the cat sat .", "a dog , ran"] and one[-1] == ""
    assert other[1] == "'=SUM(A1)" and other[-1] == "only one sentence: two are needed" and other[3] == ""


def test_pairs_need_a_word_head(tiny_loaded: LoadedModel) -> None:
    """A model without one, or a variant that is none, is one sentence for the whole table."""
    headless = dataclasses.replace(
        tiny_loaded, report=dataclasses.replace(tiny_loaded.report, missing=("cls.predictions.bias",))
    )
    with pytest.raises(ValueError, match="has no trained masked-word head: it cannot score a text"):
        score_pairs(headless, [PairRow(1, "a cat", "a dog")])
    with pytest.raises(ValueError, match="variant 'new' is unknown"):
        score_pairs(tiny_loaded, [PairRow(1, "a cat", "a dog")], variant="new")


def test_a_file_of_pairs_is_read_by_its_columns_or_its_lines(tmp_path: Path) -> None:
    """Both give the same pairs; one column alone, and JSON without columns, are refused with the columns."""
    lines, table = tmp_path / "pairs.txt", tmp_path / "pairs.jsonl"
    lines.write_text("a cat\ta dog\n", encoding="utf-8")
    table.write_text('{"good": "a cat", "bad": "a dog", "n": 1}\n', encoding="utf-8")
    assert read_pair_file(lines) == read_pair_file(table, "good", "bad") == [PairRow(1, "a cat", "a dog")]
    for path, columns in ((table, ()), (table, ("good",)), (lines, ("good", "bad"))):
        with pytest.raises(Refused):
            read_pair_file(path, *columns)
    with pytest.raises(Refused, match=r"fields are good, bad, n"):
        read_pair_file(table)
