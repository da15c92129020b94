"""Scores that somebody else computed are judged like ours: by what falls when the words go that they name."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core import (
    Columns,
    ExplainSettings,
    LoadedModel,
    Refused,
    Target,
    faithfulness,
    iter_explanations,
    judge_scores,
    load,
    token_scores,
)
from bert_core.analysis.faithfulness import MEASURES
from bert_core.studies.external_scores import scores_per_token
from tests.near import assert_near

TEXTS = ["the cat sat on the red mat", "a dog ran in the house", "the king saw the old door"]


def texts(path: Path) -> Path:
    """A table of three texts."""
    path.write_text("review\n" + "\n".join(TEXTS) + "\n")
    return path


def mine(path: Path, rows: list[tuple[Any, ...]], header: str = "text,start,end,asked,mine") -> Path:
    """A file of scores, as somebody writes it."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def test_the_table_of_explain_is_judged_as_ours_are(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """The same scores under another name fare the same; a second call reads the table and asks nothing again."""
    loaded, file = load(str(tiny_classifier_folder), device="cpu"), texts(tmp_path / "rows.csv")
    settings = ExplainSettings("class", ("occlusion",), columns=Columns("review"))
    list(iter_explanations(file, tmp_path / "found.csv", str(tiny_classifier_folder), settings, device="cpu"))
    scores = tmp_path / "scores.csv"
    scores.write_text((tmp_path / "found.csv").read_text().replace("probability,occlusion", "probability,mine", 1))
    more: dict[str, Any] = {"columns": Columns("review"), "methods": ("occlusion", "rollout"), "random_rankings": 8}
    found = judge_scores(loaded, file, scores, tmp_path / "judged.csv", **more)
    assert [(one.kind, one.number, one.method) for one in found] == [
        ("class", number, method) for number in (2, 3, 4) for method in ("mine", "occlusion", "rollout")
    ]
    for own, ours in zip(found[::3], found[1::3], strict=True):
        assert_near(own.scores, ours.scores) and assert_near(own.low, ours.low)
    encoding = loaded.tokenizer.encode(TEXTS[0])
    target = Target("class", label=loaded.labels.index(found[0].answer))
    by_hand = faithfulness(
        loaded, encoding, target, token_scores(loaded, encoding, target, ["occlusion"]), words=True,
        random_rankings=8, seed=2,
    )  # fmt: skip
    assert_near(found[0].scores, [by_hand[name].scores[0] for name in MEASURES])
    again = judge_scores(loaded, file, scores, tmp_path / "judged.csv", **more)
    assert [(one.method, one.number) for one in again] == [(one.method, one.number) for one in found]
    with pytest.raises(Refused, match="holds a run with other settings"):
        judge_scores(loaded, file, scores, tmp_path / "judged.csv", **{**more, "methods": ("rollout",)})


def test_stretches_are_shared_out_among_the_tokens_they_touch(tiny_loaded: LoadedModel) -> None:
    """By characters, each side by itself; what touches no token is left out, and the sum stays."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat", "the dog")
    pieces = [(side, encoding.offsets[n]) for n, side in enumerate(encoding.sides) if side]
    rows = [
        {"side": "A", "start": 0, "end": 7, "mine": 4.0},  # two words
        {"side": "A", "start": 8, "end": 11, "mine": -1.0},
        {"side": "B", "start": 4, "end": 7, "mine": 3.0},
        {"side": "B", "start": 3, "end": 4, "mine": 9.0},  # the space between
    ]
    (found,) = scores_per_token(encoding, rows, ["mine"])
    by_place = {
        place: found[n] for n, place in zip((n for n, side in enumerate(encoding.sides) if side), pieces, strict=True)
    }
    assert found.sum() == 6 and not found[[n for n, side in enumerate(encoding.sides) if not side]].any()
    touched = [place for place in pieces if place[0] == "A" and place[1][0] < 7]
    assert all(by_place[place] == pytest.approx(4 / len(touched)) for place in touched)
    of_b = [place for place in pieces if place[0] == "B" and place[1][0] >= 4]
    assert sum(by_place[place] for place in of_b) == pytest.approx(3)
    assert by_place["B", (0, 3)] == 0


def test_words_at_a_mask_are_judged(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Of a text file, whose lines count from zero: scores of two words, beside one method of ours."""
    file = tmp_path / "text.txt"
    file.write_text("\nthe cat [MASK] on the mat\n")
    scores = mine(tmp_path / "scores.csv", [(1, 4, 7, "sat", 2.0), (1, 22, 25, "sat", -1.0)])
    found = judge_scores(tiny_loaded, file, scores, tmp_path / "out.csv", methods=("occlusion",), random_rankings=8)
    assert [(one.kind, one.method, one.answer) for one in found] == [
        ("word", "mine", "sat"),
        ("word", "occlusion", "sat"),
    ]
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    own = np.zeros((1, len(encoding)))
    own[0, [encoding.offsets.index((4, 7)), encoding.offsets.index((22, 25))]] = 2.0, -1.0
    target = Target("mlm", 3, tiny_loaded.tokenizer.id_of("sat"))
    expected = faithfulness(tiny_loaded, encoding, target, own, words=True, random_rankings=8, seed=1)
    assert_near(found[0].scores, [expected[name].scores[0] for name in MEASURES])


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        ([], "text,start,end,asked,mine", "has no rows: there are no scores to evaluate"),
        ([(2, 0, 3, "pet", 1)], "text,start,asked,mine,x", "has no column 'end'"),
        ([(2, 0, 3, "pet")], "text,start,end,asked", "has no column of scores"),
        (
            [(9, 0, 3, "pet", 1)],
            "text,start,end,asked,mine",
            "scores of text 9, which rows.csv does not have",
        ),
        ([(2, 0, 3, "cat", 1)], "text,start,end,asked,mine", r"has no \[MASK\] for a word"),
        ([(2, 0, 3, "pet", 1), (2, 4, 7, "ruler", 1)], "text,start,end,asked,mine", "has scores for 2 answers"),
        ([(n, 0, 3, "pet", 1) for n in (2, 3, 2)], "text,start,end,asked,mine", "are not consecutive"),
        ([(2, 0, 3, "pet", "x")], "text,start,end,asked,mine", "contains a value that is not a number"),
        ([(2, 0, 3, "pet", 1)], "text,start,end,asked,rollout", "'rollout' is both a column of"),
    ],
)
def test_what_cannot_be_is_refused(
    tiny_classifier_folder: Path, tmp_path: Path, rows: list[tuple[Any, ...]], header: str, says: str
) -> None:
    """In one sentence, before anything is asked; and no table is begun."""
    loaded, file = load(str(tiny_classifier_folder), device="cpu"), texts(tmp_path / "rows.csv")
    with pytest.raises(Refused, match=says):
        judge_scores(
            loaded, file, mine(tmp_path / "scores.csv", rows, header), tmp_path / "out.csv", columns=Columns("review"),
            methods=("rollout",),
        )  # fmt: skip
    assert not (tmp_path / "out.csv").exists() and not (tmp_path / "out.csv.settings.json").exists()
