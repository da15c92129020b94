"""SQuAD's files and its measures: what is read, what is refused by name, and scores worked out by hand."""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert_core.refused import Refused
from bert_core.studies.squad import SquadQuestion, exact_match, normalise_answer, read_squad, token_f1

CONTEXT = "Anna has a red ball.  Tom has a blue car."


def written(path: Path, qas: list[dict[str, Any]], context: Any = CONTEXT) -> Path:
    values = {"version": "v2.0", "data": [{"title": "x", "paragraphs": [{"context": context, "qas": qas}]}]}
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def asked(number: int, text: str | None = "Tom", start: int = 22, **more: Any) -> dict[str, Any]:
    answers = [] if text is None else [{"text": text, "answer_start": start}]
    return {"id": f"q{number}", "question": "Who has a car?", "answers": answers, **more}


def test_both_versions_are_read(tmp_path: Path) -> None:
    """Answers with their places; without any, or impossible, there is none, whatever is plausible."""
    two = asked(1)
    two["answers"].append({"text": "Tom has", "answer_start": 22})
    impossible = asked(3, is_impossible=True, plausible_answers=[{"text": "Tom", "answer_start": 22}])
    found, left_out = read_squad(written(tmp_path / "a.json", [two, asked(2, None), impossible]))
    assert left_out == 0 and found == [
        SquadQuestion("q1", "Who has a car?", CONTEXT, ("Tom", "Tom has"), 22),
        SquadQuestion("q2", "Who has a car?", CONTEXT),
        SquadQuestion("q3", "Who has a car?", CONTEXT),
    ]


@pytest.mark.parametrize(("text", "start"), [("Tom", 21), ("Tim", 22), ("", 22), ("Tom", -3), ("car.x", 37)])
def test_an_answer_that_is_not_in_its_context_is_named(text: str, start: int, tmp_path: Path) -> None:
    """Refused with its id; or left out and counted, and the others stay."""
    path = written(tmp_path / "a.json", [asked(1), asked(2, text, start)])
    with pytest.raises(
        Refused,
        match=r"^1 of 2 answers of a.json are not in their context at the given position \(.*of 'q2'\): correct",
    ):
        read_squad(path)
    found, left_out = read_squad(path, skip_broken=True)
    assert [one.id for one in found] == ["q1"] and left_out == 1
    with pytest.raises(Refused, match=r"^a.json has no usable question"):
        read_squad(written(path, [asked(2, text, start)]), skip_broken=True)


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "'data' is missing in a.json": lambda v: v.pop("data"),
    "'data' is 3 in a.json": lambda v: v.update(data=3),
    "'paragraphs' is missing in data\\[0\\] of a.json": lambda v: v["data"][0].pop("paragraphs"),
    "'context' is 3 in paragraphs\\[0\\] of data\\[0\\]": lambda v: v["data"][0]["paragraphs"][0].update(context=3),
    "'qas' is missing in paragraphs": lambda v: v["data"][0]["paragraphs"][0].pop("qas"),
    "'question' is missing in qas\\[1\\] of": lambda v: v["data"][0]["paragraphs"][0]["qas"][1].pop("question"),
    "the question is empty in qas": lambda v: v["data"][0]["paragraphs"][0]["qas"][1].update(question=" "),
    "the context is empty in qas": lambda v: v["data"][0]["paragraphs"][0].update(context=" "),
    "the id 'q1' occurs twice in a.json": lambda v: v["data"][0]["paragraphs"][0]["qas"][1].update(id="q1"),
    "'answers' is missing in": lambda v: v["data"][0]["paragraphs"][0]["qas"][1].pop("answers"),
    "'text' is missing in answers of": lambda v: v["data"][0]["paragraphs"][0]["qas"][1].update(answers=[3]),
    "'answer_start' is True in": lambda v: v["data"][0]["paragraphs"][0]["qas"][1]["answers"][0].update(
        answer_start=True
    ),
    "there is nothing to learn from": lambda v: v.update(data=[]),
}


@pytest.mark.parametrize("said", BROKEN)
def test_what_is_not_as_in_squad_is_said_where(said: str, tmp_path: Path) -> None:
    """One sentence names the field and its place."""
    path = written(tmp_path / "a.json", [asked(1), asked(2)])
    values = json.loads(path.read_text(encoding="utf-8"))
    BROKEN[said](values)
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(Refused, match=said):
        read_squad(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(Refused, match=r"^a.json is not a JSON file"):
        read_squad(path)


# ---------------------------------------------------------------------------- judging


def test_answers_are_compared_as_the_field_does() -> None:
    """Case, punctuation, English articles and spaces do not count; words within words stay."""
    assert normalise_answer("  The  Cat's  an-tenna, a THEatre. ") == "cats antenna theatre"
    assert exact_match("the red Ball!", ["Red ball", "a ball"]) == 1
    assert exact_match("red balls", ["red ball"]) == 0
    assert (exact_match("", []), token_f1("", []), exact_match("x", []), token_f1("x", [])) == (1, 1, 0, 0)
    assert (exact_match("", ["the"]), token_f1("the", ["a", "..."])) == (1, 1)
    assert (exact_match("", ["x"]), token_f1("", ["x"])) == (0, 0)


def test_f1_counts_words_as_often_as_both_have_them() -> None:
    """Two of three words found, of four that were given: 2 * 2 / (3 + 4); the best of several answers counts."""
    assert token_f1("big red car", ["red car of Tom's"]) == pytest.approx(4 / 7)
    assert token_f1("car car", ["car"]) == pytest.approx(2 / 3)
    assert token_f1("big red car", ["ball", "the red car", "red"]) == pytest.approx(4 / 5)


def official(found: str, given: list[str]) -> tuple[float, float]:
    """Exact match and F1, step by step as in SQuAD's own evaluate-v2.0.py."""

    def normalise(text: str) -> str:
        text = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
        return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text).split())

    def compute_f1(gold: str, guess: str) -> float:
        golds, guesses = normalise(gold).split(), normalise(guess).split()
        same = sum((Counter(golds) & Counter(guesses)).values())
        if len(golds) == 0 or len(guesses) == 0:
            return int(golds == guesses)
        if same == 0:
            return 0
        precision, recall = same / len(guesses), same / len(golds)
        return 2 * precision * recall / (precision + recall)

    golds = [text for text in given if normalise(text)] or [""]
    return max(int(normalise(gold) == normalise(found)) for gold in golds), max(compute_f1(g, found) for g in golds)


def test_every_score_is_that_of_the_official_steps() -> None:
    """On a thousand answers put together of words, articles and signs."""
    draw = random.Random(3)
    words = ["the", "a", "An", "cat", "Cat's", "ball", "red,", "--", "über", "1,000", "", "theatre", "…"]
    for _ in range(1000):
        found, *given = (" ".join(draw.choices(words, k=draw.randint(0, 4))) for _ in range(draw.randint(1, 4)))
        exact, overlap = official(found, given)
        assert exact_match(found, given) == exact and token_f1(found, given) == pytest.approx(overlap, abs=1e-12)
