"""Drawn questions: each answer is what the context says, and stands where it is said to."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bert_core.studies.squad import SquadQuestion, read_squad
from tools.synthetic_questions import UNANSWERED, main

ASKED = {  # a question, and the sentence that answers it
    r"Who has a (\w+)\?": r"(\w+) has a \w+ {}\.",
    r"What does (\w+) have\?": r"{} has (a \w+ \w+)\.",
    r"What colour is the (\w+)\?": r"has a (\w+) {}\.",
    r"Where is (\w+)\?": r"{} is (in the \w+)\.",
}


def drawn(folder: Path, *more: str) -> list[SquadQuestion]:
    main([str(folder / "a.json"), *more])
    return read_squad(folder / "a.json")[0]


def test_the_context_says_every_answer_and_no_other(tmp_path: Path) -> None:
    """Read with patterns of their own: one sentence answers, and none where there is no answer."""
    found, kinds = drawn(tmp_path, "--contexts", "200"), set()
    for one in found:
        ((pattern, name),) = [(said, m[1]) for asks, said in ASKED.items() if (m := re.fullmatch(asks, one.question))]
        kinds.add(pattern)
        matches = list(re.finditer(pattern.format(name), one.context))
        assert tuple(match[1] for match in matches) == one.answers, one
        assert not matches or matches[0].start(1) == one.start
    share = sum(not one.answers for one in found) / len(found)
    assert UNANSWERED <= share < UNANSWERED + 0.15  # and some are not said where
    assert len(kinds) == len(ASKED)


def test_a_seed_draws_one_file_and_unseen_words_are_others(tmp_path: Path) -> None:
    """Two runs are equal, two seeds are not; but colours and the frame, no word of one kind stands in the other."""
    first = drawn(tmp_path, "--contexts", "150", "--seed", "1")
    assert first == drawn(tmp_path, "--contexts", "150", "--seed", "1")
    assert first != drawn(tmp_path, "--contexts", "150", "--seed", "2")
    unseen = drawn(tmp_path, "--contexts", "150", "--seed", "1", "--unseen")
    frame = {"has", "a", "is", "in", "the", "red", "blue", "green", "black", "white", "yellow"}
    words = [{word for one in part for word in re.findall(r"\w+", one.context)} - frame for part in (first, unseen)]
    assert words[0].isdisjoint(words[1]) and len(words[0]) > 40 and len(words[1]) >= 10
    assert len(unseen) == 600 and json.loads((tmp_path / "a.json").read_text())["version"] == "v2.0"
