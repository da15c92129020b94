"""Question answering data in the format of SQuAD: reading its files, and scoring predicted answers."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core.refused import Refused, short_repr
from bert_core.studies.files import Format, identify
from bert_core.studies.rows import MAX_JSON_BYTES

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_REMOVE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MAX_LISTED = 3


@dataclass(frozen=True)
class SquadQuestion:
    """A question about a context, with its reference answers.

    id: the identifier in the file.
    question: the question.
    context: the text in which the answer is to be found.
    answers: the reference answers. Empty if the context does not contain an answer.
    start: position in `context` of the first character of the first answer.
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...] = ()
    start: int = 0


def read_squad(path: Path, *, skip_broken: bool = False) -> tuple[list[SquadQuestion], int]:
    """Read the questions of a SQuAD file, version 1.1 or 2.0.

    A question that is marked as impossible, or that has no answers, gets an empty tuple of answers.
    path: a `.json` file.
    skip_broken: skip the questions whose first answer is not in the context at the given position.

    Returns the questions in the order of the file, and the number of skipped questions.
    Raises Refused if the file is not in the format of SQuAD, or has no questions. Raises Refused also, with the
    identifiers, for answers that are not in their context, unless `skip_broken` is set.
    Source: Rajpurkar 2016 (arXiv:1606.05250), Rajpurkar 2018 (arXiv:1806.03822).
    """
    source = identify(path)
    if source.format is not Format.JSON:
        raise Refused(f"{path.name} contains {source.format.value}: questions are read from a .json in SQuAD's form")
    text = source.read_text(MAX_JSON_BYTES)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path.name} is not a JSON file: {error}") from error
    questions = list(_parse_questions(values, path.name))
    broken = {
        question.id: problem
        for question in questions
        for problem in [_find_misplaced_answer(question)]
        if problem is not None
    }
    if broken and not skip_broken:
        examples = "; ".join(f"{problem} of {name!r:.60}" for name, problem in list(broken.items())[:_MAX_LISTED])
        raise Refused(
            f"{len(broken):,} of {len(questions):,} answers of {path.name} are not in their context at the given "
            f"position ({examples}): correct them, or leave them out with --skip-broken"
        )
    usable = [question for question in questions if question.id not in broken]
    if not usable:
        raise Refused(f"{path.name} has no usable question: there is nothing to learn from")
    return usable, len(questions) - len(usable)


def _find_misplaced_answer(question: SquadQuestion) -> str | None:
    """Describe the first answer of a question if it is not in the context at its position; None if it is."""
    if not question.answers:
        return None
    answer, start = question.answers[0], question.start
    if question.context[start : start + len(answer)] == answer != "":
        return None
    return f"{answer!r:.40} at character {start}"


def _parse_questions(values: object, name: str) -> Iterator[SquadQuestion]:
    """Yield the questions of a parsed file in order. Raises Refused, with the location, for an invalid field."""
    ids: set[str] = set()
    for article_number, article in enumerate(_read_field(values, "data", list, name)):
        article_path = f"data[{article_number}] of {name}"
        for paragraph_number, paragraph in enumerate(_read_field(article, "paragraphs", list, article_path)):
            paragraph_path = f"paragraphs[{paragraph_number}] of {article_path}"
            context = _read_field(paragraph, "context", str, paragraph_path)
            for number, entry in enumerate(_read_field(paragraph, "qas", list, paragraph_path)):
                location = f"qas[{number}] of {paragraph_path}"
                question = _read_field(entry, "question", str, location)
                question_id = str(_read_field(entry, "id", str | int, location))
                if not question.strip() or not context.strip():
                    raise Refused(f"{'the question' if context.strip() else 'the context'} is empty in {location}")
                if question_id in ids:
                    raise Refused(f"the id {question_id!r:.60} occurs twice in {name}: each question must have its own")
                ids.add(question_id)
                impossible = entry.get("is_impossible", False) is True
                answers = [] if impossible else _read_field(entry, "answers", list, location)
                texts = tuple(_read_field(answer, "text", str, f"answers of {location}") for answer in answers)
                start = _read_field(answers[0], "answer_start", int, f"answers of {location}") if answers else 0
                yield SquadQuestion(question_id, question, context, texts, max(start, -1))


def _read_field(values: object, name: str, kind: Any, location: str) -> Any:
    """Return a field of a JSON object. Raises Refused if it is missing or has another type."""
    value = values.get(name) if isinstance(values, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        problem = "missing" if value is None else short_repr(value)
        raise Refused(f"{name!r} is {problem} in {location}: it must be as in SQuAD's files")
    return value


# ---------------------------------------------------------------------------- scoring


def normalise_answer(answer: str) -> str:
    """Return an answer in lower case, without punctuation and English articles, with single spaces between words.

    Source: the evaluation script of SQuAD (Rajpurkar 2016, section 6.1).
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_REMOVE_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if a predicted answer equals one of the reference answers, else 0, after `normalise_answer`.

    prediction: the predicted answer, empty for no answer.
    answers: the reference answers. If there are none, only an empty prediction scores 1.
    """
    return float(normalise_answer(prediction) in {normalise_answer(answer) for answer in _reference_answers(answers)})


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the F1 score of the words of a predicted answer, the highest over the reference answers.

    Words are compared after `normalise_answer`. If either side has no words, the score is 1 if both have none, else 0.
    prediction: the predicted answer, empty for no answer.
    answers: the reference answers.
    """
    words = normalise_answer(prediction).split()
    return max(_word_f1(words, normalise_answer(answer).split()) for answer in _reference_answers(answers))


def _reference_answers(answers: Sequence[str]) -> list[str]:
    """Return the answers that contain a word, or one empty answer if none does."""
    return [answer for answer in answers if normalise_answer(answer)] or [""]


def _word_f1(predicted: list[str], reference: list[str]) -> float:
    """Return the harmonic mean of precision and recall of two lists of words."""
    if not (predicted and reference):
        return float(predicted == reference)
    common = sum((Counter(predicted) & Counter(reference)).values())
    return 2 * common / (len(predicted) + len(reference))
