"""bert_core/studies/faithfulness.py: the questions of a file, a table that goes on where it stopped, its summary."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bert_core import LoadedModel, faithfulness, token_scores
from bert_core.analysis.faithfulness import MEASURES
from bert_core.studies.faithfulness import (
    FUNCTION_WORDS,
    Judgement,
    draw_questions,
    judge_file,
    judge_question,
    read_judgements,
    summarise_methods,
    summary_markdown,
)
from bert_core.studies.settings import StudySettings
from bert_core.tokenizer import MASK

pytestmark = pytest.mark.slow

TEXT = """
The cat sat on the mat. The dog ran to the door. It was an old city. The king saw the queen.
The woman went to the river. She had a big house.

He said it was not small. They opened the red door. The child is in the house. One night the man ran.
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT.strip() + "\n", encoding="utf-8")
    return path


def settings(**more: object) -> StudySettings:
    quick = {"methods": ("rollout", "occlusion"), "lengths": (6, 16), "random_rankings": 6, "questions": 3}
    quick |= {"pair_lengths": (10, 40), "least": 0.0}
    return StudySettings(**{**quick, **more})  # type: ignore[arg-type]


def test_questions_are_hidden_words_and_pairs(tiny_loaded: LoadedModel, text: Path) -> None:
    """The kinds in turn; a word is one piece of its kind, and its true piece is the target; pairs stand in a row."""
    asked = draw_questions(tiny_loaded, text, settings())
    assert [(one.kind, one.number) for one in asked] == [
        (kind, number) for number in range(3) for kind in ("content", "function", "nsp")
    ]
    sentences = TEXT.replace("\n", " ")
    for one in asked:
        encoding = one.encoding
        if one.kind == "nsp":
            assert encoding.pair is not None and f"{encoding.text} {encoding.pair}" in sentences
            assert one.target.kind == "nsp" and not encoding.mask_positions
            continue
        assert encoding.mask_positions == (one.target.position,) and encoding.tokens.count(MASK) == 1
        assert tiny_loaded.tokenizer.id_of(one.answer) == one.target.token_id
        assert (one.answer in FUNCTION_WORDS) == (one.kind == "function")
        assert one.answer in encoding.text.lower().replace(".", "").split()
    texts = [one.encoding.text for one in asked if one.kind != "nsp"]
    assert len(set(texts)) == len(texts), "each sentence is asked once"
    pairs = [side for one in asked if one.kind == "nsp" for side in (one.encoding.text, one.encoding.pair)]
    assert len(set(pairs)) == len(pairs), "no sentence stands in two pairs"
    assert draw_questions(tiny_loaded, text, settings()) == asked
    assert draw_questions(tiny_loaded, text, settings(seed=5)) != asked


def test_a_judgement_is_that_of_the_library(tiny_loaded: LoadedModel, text: Path) -> None:
    """A line of the table says what `faithfulness` says of that text."""
    chosen = settings()
    asked = draw_questions(tiny_loaded, text, chosen)[3]
    rows = judge_question(tiny_loaded, asked, chosen)
    scores = token_scores(tiny_loaded, asked.encoding, asked.target, chosen.methods)
    found = faithfulness(
        tiny_loaded, asked.encoding, asked.target, scores, words=True, random_rankings=6, seed=asked.number
    )
    assert [row.method for row in rows] == list(chosen.methods)
    for place, row in enumerate(rows):
        assert row.scores == tuple(found[name].scores[place] for name in MEASURES)
        assert [row.verdict(name) for name in MEASURES] == [found[name].verdicts[place] for name in MEASURES]
        assert 0 < row.probability < 1 and row.tokens == len(asked.encoding)


def test_a_study_goes_on_where_it_stopped(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """Stopped, and with a line cut in half, it ends with the file of one that ran through; nothing is asked twice."""
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    told: list[str] = []
    found = judge_file(tiny_loaded, text, whole, settings(), report=lambda done, what="": told.append(what))
    assert told == ["9 questions", *(f"{n} of 9 questions" for n in range(1, 10))] and len(found) == 18

    class Stop(Exception):
        pass

    def stop(done: float | None, what: str = "") -> None:
        if done == 4 / 9:
            raise Stop

    with pytest.raises(Stop):
        judge_file(tiny_loaded, text, cut, settings(), report=stop)
    cut.write_text(cut.read_text(encoding="utf-8")[:-3], encoding="utf-8")
    told.clear()
    judge_file(tiny_loaded, text, cut, settings(), report=lambda done, what="": told.append(what))
    assert told == [f"3 of 9 questions are already in {cut}", *(f"{n} of 9 questions" for n in range(4, 10))]
    assert cut.read_bytes() == whole.read_bytes()
    assert read_judgements(whole) == read_judgements(cut) and len(read_judgements(whole)) == 18

    told.clear()
    judge_file(tiny_loaded, text, cut, settings(questions=4), report=lambda done, what="": told.append(what))
    assert told[0].startswith("9 of 12 ") and told[-1] == "12 of 12 questions", "more questions are the same study"
    again = judge_file(tiny_loaded, text, cut, settings(questions=1))
    assert [(one.kind, one.number) for one in again[::2]] == [("content", 0), ("function", 0), ("nsp", 0)]


def test_numbers_below_zero_are_numbers_for_other_programs(
    tiny_loaded: LoadedModel, text: Path, tmp_path: Path
) -> None:
    """A cell of the table that begins with a minus sign has no apostrophe, which marks a text."""
    table = tmp_path / "table.csv"
    judge_file(tiny_loaded, text, table, settings(questions=1))
    with table.open(newline="", encoding="utf-8") as file:
        numbers = [float(cell) for row in list(csv.reader(file))[1:] for cell in row[6:]]
    assert min(numbers) < 0


def test_a_cut_header_begins_anew(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """A file that holds not even its first line is as good as none."""
    table = tmp_path / "table.csv"
    judge_file(tiny_loaded, text, table, settings(questions=1))
    written = table.read_bytes()
    table.write_bytes(b"kind,num")
    judge_file(tiny_loaded, text, table, settings(questions=1))
    assert table.read_bytes() == written


def test_other_settings_are_refused(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """A table is gone on with only by the settings it was begun with, and a strange file is left alone."""
    table = tmp_path / "table.csv"
    judge_file(tiny_loaded, text, table, settings(questions=1))
    written = table.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"table\.csv holds a run with other settings \(methods; seed: 0, not 1\): use the same",
    ):
        judge_file(tiny_loaded, text, table, settings(questions=1, seed=1, methods=("rollout",)))
    text.write_text(TEXT + "The cat was old.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"table\.csv holds a run with other settings \(text\)"):
        judge_file(tiny_loaded, text, table, settings(questions=1))
    assert table.read_bytes() == written
    strange = tmp_path / "notes.csv"
    strange.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^notes.csv exists without the settings of a study next to it"):
        judge_file(tiny_loaded, text, strange, settings(questions=1))
    with pytest.raises(ValueError, match=r"notes\.csv exists and is no table of a study"):
        read_judgements(strange)


def test_a_call_that_finds_no_question_binds_no_other(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """Neither a table nor its settings are there after it, so that the same name can be used with what was meant."""
    table = tmp_path / "table.csv"
    with pytest.raises(ValueError, match="holds no question"):
        judge_file(tiny_loaded, text, table, settings(lengths=(90, 99), pair_lengths=(90, 99)))
    assert list(tmp_path.iterdir()) == [text]
    assert judge_file(tiny_loaded, text, table, settings(questions=1))


@pytest.mark.parametrize("written", ["{not json", "[]", ""])
def test_settings_that_are_none_are_refused(tiny_loaded: LoadedModel, text: Path, tmp_path: Path, written: str) -> None:
    """The file that holds them is named, and the table stays as it is."""
    table = tmp_path / "table.csv"
    table.write_text("kind\n", encoding="utf-8")
    (tmp_path / "table.csv.settings.json").write_text(written, encoding="utf-8")
    with pytest.raises(ValueError, match=r"^table\.csv\.settings\.json does not hold the settings of a study"):
        judge_file(tiny_loaded, text, table, settings())
    assert table.read_text(encoding="utf-8") == "kind\n"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"questions": 0}, "questions is 0: it must be a whole number of at least 1"),
        (
            {"kinds": ("verbs",)},
            "kind 'verbs' is unknown: one of content, function, nsp, tag, span, replaced, similarity",
        ),
        ({"kinds": ()}, "there is nothing to judge: name at least one kind of question and one method"),
        ({"methods": ()}, "there is nothing to judge: name at least one kind of question and one method"),
        ({"lengths": (9, 8)}, "lengths is 9 to 8 tokens: give the minimum, from 4, before the maximum"),
        ({"pair_lengths": (3, 8)}, "pair_lengths is 3 to 8 tokens: give the minimum, from 6, before the maximum"),
        ({"least": 1.5}, "least is 1.5: it must be a number of at least 0 and of at most 1"),
        ({"random_rankings": 0}, "random_rankings is 0: it must be a whole number of at least 1"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(more: dict[str, object], sentence: str) -> None:
    """What was given, and what is allowed."""
    with pytest.raises(ValueError) as caught:
        settings(**more)
    assert str(caught.value) == sentence
    with pytest.raises(ValueError, match=r"^method 'LIME' is unknown: one of attention, "):
        settings(methods=("LIME",))


def test_a_file_without_a_question_says_what_it_needs(tiny_loaded: LoadedModel, text: Path) -> None:
    """Sentences of the lengths that were asked for."""
    with pytest.raises(
        ValueError, match=r"^text.txt holds no question: it needs sentences of 90 to 99 tokens, or two consec"
    ):
        draw_questions(tiny_loaded, text, settings(lengths=(90, 99), pair_lengths=(90, 99)))


def test_only_what_the_model_guesses_is_asked(tiny_loaded: LoadedModel, text: Path) -> None:
    """No question has a less probable answer than was asked for, and some are left out by it."""
    every = [
        row
        for one in draw_questions(tiny_loaded, text, settings())
        for row in judge_question(tiny_loaded, one, settings())
    ]
    middle = float(np.median([row.probability for row in every if row.kind != "nsp"]))
    chosen = settings(kinds=("content", "function"), least=middle)
    some = [judge_question(tiny_loaded, one, chosen)[0] for one in draw_questions(tiny_loaded, text, chosen)]
    assert some and min(row.probability for row in some) >= middle
    assert min(row.probability for row in every) < middle


def judgement(number: int, method: str, aopc: float) -> Judgement:
    """With a band from -0.1 to 0.1 for every measure."""
    return Judgement("content", number, 9, "cat", 0.5, method, (aopc / 2, aopc, aopc), (-0.1,) * 3, (0.1,) * 3)


def test_standings_worked_by_hand() -> None:
    """Medians, shares of verdicts, for sufficiency the other way round; the largest AOPC first."""
    rows = [judgement(n, "a", aopc) for n, aopc in enumerate((0.3, 0.0, -0.5, 0.2))]
    rows += [judgement(n, "b", 0.25) for n in range(4)]
    found = summarise_methods(rows)
    assert [(one.method, one.questions) for one in found] == [("b", 4), ("a", 4)]
    np.testing.assert_allclose(found[1].medians, (0.05, 0.1, 0.1))
    assert found[1].verdicts == ((0.25, 0.5, 0.25), (0.25, 0.25, 0.5), (0.5, 0.25, 0.25))
    lines = summary_markdown(found).splitlines()
    assert lines[0] == "**A masked content word** (4 questions)"
    assert lines[4:6] == [
        "| b | 0.125 | 0.250 | 0.250 | 100% | 0% | 0% |",
        "| a | 0.050 | 0.100 | 0.100 | 50% | 25% | 25% |",
    ]
