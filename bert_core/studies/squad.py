"""Questions with their contexts and answers, as SQuAD has them: its files, and how an answer is judged."""

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
_NO_SIGNS = str.maketrans("", "", string.punctuation)
_NAMED = 3


@dataclass(frozen=True)
class SquadQuestion:
    """One question of a context, and what was answered.

    id: as its file has it. answers: every one that was given; none where the context has none. start: the first
    character of the first of them.
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...] = ()
    start: int = 0


def read_squad(path: Path, *, skip_broken: bool = False) -> tuple[list[SquadQuestion], int]:
    """The questions of a `.json` file of SQuAD, of version 1.1 or 2.0, and how many were left out.

    A question without answers, or that is said to be impossible, has none in its context.
    skip_broken: leave out the questions whose answers do not stand where they are said to.
    Raises Refused if the file is none of SQuAD, or empty; and, naming their ids, for answers that are not in their
    context.
    Source: Rajpurkar 2016 (arXiv:1606.05250); Rajpurkar 2018 (arXiv:1806.03822).
    """
    source = identify(path)
    if source.format is not Format.JSON:
        raise Refused(f"{path.name} contains {source.format.value}: questions are read from a .json in SQuAD's form")
    text = source.read_text(MAX_JSON_BYTES)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path.name} is not a JSON file: {error}") from error
    found = list(_questions(values, path.name))
    broken = {one.id: at for one in found for at in [_misplaced(one)] if at is not None}
    if broken and not skip_broken:
        named = "; ".join(f"{at} of {name!r:.60}" for name, at in list(broken.items())[:_NAMED])
        raise Refused(
            f"{len(broken):,} of {len(found):,} answers of {path.name} do not stand in their context ({named}): mend "
            "them, or leave them out with --skip-broken"
        )
    kept = [one for one in found if one.id not in broken]
    if not kept:
        raise Refused(f"{path.name} has no question that can be asked: there is nothing to learn from")
    return kept, len(found) - len(kept)


def _misplaced(one: SquadQuestion) -> str | None:
    """The answer of a question that does not stand where it is said to; None if all is well."""
    if not one.answers or one.context[one.start : one.start + len(one.answers[0])] == one.answers[0] != "":
        return None
    return f"{one.answers[0]!r:.40} at character {one.start}"


def _questions(values: object, name: str) -> Iterator[SquadQuestion]:
    """All questions of a file in their order. Raises Refused, saying where, for what is not as in SQuAD."""
    seen: set[str] = set()
    for number, article in enumerate(_part(values, "data", list, name)):
        at = f"data[{number}] of {name}"
        for place, paragraph in enumerate(_part(article, "paragraphs", list, at)):
            within = f"paragraphs[{place}] of {at}"
            context = _part(paragraph, "context", str, within)
            for order, asked in enumerate(_part(paragraph, "qas", list, within)):
                here = f"qas[{order}] of {within}"
                question, own = _part(asked, "question", str, here), _part(asked, "id", str | int, here)
                if not question.strip() or not context.strip():
                    raise Refused(f"{'the question' if context.strip() else 'the context'} is empty in {here}")
                if str(own) in seen:
                    raise Refused(f"the id {str(own)!r:.60} stands twice in {name}: each question has its own")
                seen.add(str(own))
                impossible = asked.get("is_impossible", False) is True
                given = [] if impossible else _part(asked, "answers", list, here)
                texts = tuple(_part(one, "text", str, f"answers of {here}") for one in given)
                start = _part(given[0], "answer_start", int, f"answers of {here}") if given else 0
                yield SquadQuestion(str(own), question, context, texts, max(start, -1))


def _part(values: object, name: str, kind: Any, where: str) -> Any:
    """A field of an object in a file. Raises Refused where there is none of its kind."""
    found = values.get(name) if isinstance(values, Mapping) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        given = "missing" if found is None else short_repr(found)
        raise Refused(f"{name!r} is {given} in {where}: it must be as in SQuAD's files")
    return found


# ---------------------------------------------------------------------------- judging


def normalise_answer(answer: str) -> str:
    """An answer as it is compared: lower case, without punctuation and English articles, and one space between words.

    Source: the evaluation of SQuAD (Rajpurkar 2016, section 6.1).
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_SIGNS)).split())


def exact_match(found: str, given: Sequence[str]) -> float:
    """1 if an answer is one of those that were given, else 0; of none given, 1 if nothing was answered.

    Both are compared as `normalised`.
    """
    return float(normalise_answer(found) in {normalise_answer(one) for one in _golds(given)})


def token_f1(found: str, given: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of an answer's words, of the one given that it fits best.

    Where either has no words, 1 if neither has, else 0. Both are compared as `normalised`.
    """
    return max(_overlap(normalise_answer(found).split(), normalise_answer(one).split()) for one in _golds(given))


def _golds(given: Sequence[str]) -> list[str]:
    """The answers that say something; nothing, where there is none."""
    return [one for one in given if normalise_answer(one)] or [""]


def _overlap(found: list[str], given: list[str]) -> float:
    if not (found and given):
        return float(found == given)
    common = sum((Counter(found) & Counter(given)).values())
    return 2 * common / (len(found) + len(given))
