"""A class, its people and its teacher, without pages: the time is handed in."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from typing import Any

import pytest

from bert_core import Refused
from viz_app import classroom
from viz_app.access import is_local_address
from viz_app.classroom import (
    ALPHABET,
    CLASS_FULL,
    CODE_LENGTH,
    JOIN_BUSY,
    MAX_CLASSES,
    MAX_IDLE_SECONDS,
    MAX_PEOPLE,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_CLASSES,
    UNKNOWN_CLASS,
    VOTE_CLOSED,
    WRONG_CODE,
    Class,
    Classes,
    ClassQuestion,
    Teachers,
    group_code,
    new_code,
    parse_code,
)  # fmt: skip
from viz_app.classroom.counts import counts_csv, group_answers
from viz_app.classroom.links import app_base_url, class_link, qr_code
from viz_app.classroom.sheet import Entry, Words, as_json, as_page
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import lesson_of
from viz_app.texts import Phrase, page_texts


def question(name: str, *words: int) -> ClassQuestion:
    return ClassQuestion(lesson_of(name), "headlight-mini", words)


@pytest.fixture
def asked() -> Class:
    """A class of two, in the first vote about a number."""
    one = Class("code", 0.0)
    one.begin_question(question("the_bin"))
    for me in ("a", "b"):
        one.join(me)
    one.begin_vote(1)
    return one


def test_a_second_answer_is_in_the_place_of_the_first(asked: Class) -> None:
    """Counted is one answer a person; each vote has its own, and the second begins empty."""
    asked.answer("a", 1, 1, 30)
    asked.answer("b", 1, 1, 30)
    asked.answer("a", 1, 1, 40)
    assert asked.state().answer_count == 2 and asked.answer_of("a") == 40
    asked.move_to("stop")
    asked.begin_vote(2)
    assert asked.state().answer_count == 0 and asked.answer_of("a") is None
    asked.answer("a", 1, 2, 50)
    now = asked.current_votes()
    assert now is not None and [dict(vote) for vote in now.votes] == [{40: 1, 30: 1}, {50: 1}]


def test_answers_are_taken_while_they_are_asked_for_and_of_who_joined(asked: Class) -> None:
    """Not before or after a vote, not for an earlier one or another question, and of no stranger."""
    for me, number, vote in (("stranger", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 0, 0)):
        with pytest.raises(Refused) as caught:
            asked.answer(me, number, vote, 30)
        assert str(caught.value) == VOTE_CLOSED, (me, number, vote)
    for step in ("stop", "do", "reveal"):
        asked.move_to(step)
        with pytest.raises(Refused):
            asked.answer("a", 1, 1, 30)
    asked.begin_question(question("one_head"))
    with pytest.raises(Refused):
        asked.answer("a", 2, 0, 30)
    assert [dict(vote) for one in asked.counted_questions() for vote in one.votes] == [{}]


def test_votes_come_in_their_order() -> None:
    """No second one before the first, no third, none once the truth was seen; a stopped one can go on."""
    one = Class("code", 0.0)
    one.begin_vote(1)
    one.move_to("reveal")
    assert one.state().step == "wait" and one.state().vote == 0
    one.begin_question(question("the_bin"))
    for asks, vote, step in ((2, 0, "wait"), (1, 1, "ask"), (1, 1, "ask"), (2, 2, "ask"), (1, 2, "ask"), (3, 2, "ask")):
        one.begin_vote(asks)
        assert (one.state().vote, one.state().step) == (vote, step), asks
    one.move_to("stop")
    one.begin_vote(2)
    assert one.state().step == "ask"
    one.move_to("reveal")
    one.begin_vote(2)
    assert one.state().step == "reveal"


def test_a_page_that_follows_learns_of_every_step_by_one_number(asked: Class) -> None:
    """It grows with each step and stays when somebody answers."""
    seen = [asked.state().version]
    asked.answer("a", 1, 1, 3)
    assert asked.state().version == seen[0]
    for change in (lambda: asked.move_to("stop"), lambda: asked.begin_vote(2), lambda: asked.move_to("reveal"),
                   lambda: asked.begin_question(question("one_head"))):  # fmt: skip
        change()
        seen.append(asked.state().version)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("name", ["both_sides", "the_bin", "one_head", "explanation"])
def test_only_what_can_be_an_answer_is_taken(name: str) -> None:
    """A word of the sentence, a number in its range, an option, an order of all things; of strangers' values none."""
    one = question(name, 1, 2, 3)
    task = one.lesson.predict
    things = CHECKS[task.check].items
    good: dict[str, Any] = {
        "word": 2, "number": int(task.maximum), "choice": task.options[:1] and task.options[0], "order": things[::-1],
    }  # fmt: skip
    for kind, answer in good.items():
        assert one.is_answer(answer) is (kind == task.answer or (kind == "word" and task.answer == "number")), kind
    for odd in (
        None,
        True,
        -1,
        10**9,
        float("nan"),
        float("inf"),
        "3",
        "<b>",
        (),
        things[:1],
        things * 2,
        [1],
        {},
        0.5j,
    ):
        assert not one.is_answer(odd), odd


def test_the_five_hundred_and_first_is_told_so() -> None:
    """Five hundred join, also from many threads at once; one who is in it comes back all the same."""
    classes = Classes()
    one = classes.open(0.0)
    threads = [
        threading.Thread(target=lambda first: [one.join(f"{first} {n}") for n in range(50)], args=(first,))
        for first in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.state().people_count == MAX_PEOPLE and str(MAX_PEOPLE) in CLASS_FULL
    with pytest.raises(Refused) as caught:
        classes.join(one.code, "one more", 0.0)
    assert str(caught.value) == CLASS_FULL
    assert classes.join(one.code, "3 7", 0.0) is one


def test_a_class_is_gone_when_it_is_closed_or_its_teacher_was_away_for_hours() -> None:
    """Three hours after the teacher was seen last, not before; then its code is one of no class."""
    classes = Classes()
    one, other = classes.open(0.0), classes.open(0.0)
    one.last_seen = 100.0
    assert classes.find(one.code, MAX_IDLE_SECONDS + 100) is one and MAX_IDLE_SECONDS == 3 * 3600
    assert classes.find(other.code, MAX_IDLE_SECONDS + 100) is None
    one.join("a")
    one.begin_question(question("the_bin"))
    one.begin_vote(1)
    one.answer("a", 1, 1, 30)
    classes.close(one.code)
    assert one.counted_questions() == () and one.state().people_count == 0 and one.answer_of("a") is None
    for code in (one.code, other.code, "0" * CODE_LENGTH):
        with pytest.raises(Refused) as caught:
            classes.join(code, "a", MAX_IDLE_SECONDS + 101)
        assert str(caught.value) == UNKNOWN_CLASS
    assert classes.open_classes(MAX_IDLE_SECONDS + 101) == ()


def test_codes_cannot_be_tried_without_end() -> None:
    """After three hundred wrong ones in a minute nobody is answered who gives another; the right one still is."""
    classes = Classes()
    one = classes.open(0.0)
    for _ in range(300):
        with pytest.raises(Refused):
            classes.join("0" * CODE_LENGTH, "a", 10.0)
    with pytest.raises(Refused) as caught:
        classes.join("0" * CODE_LENGTH, "a", 69.0)
    assert str(caught.value) == JOIN_BUSY
    assert classes.join(one.code, "b", 69.0) is one
    with pytest.raises(Refused) as caught:
        classes.join("0" * CODE_LENGTH, "a", 71.0)
    assert str(caught.value) == UNKNOWN_CLASS
    for number in range(MAX_CLASSES - 1):
        classes.open(float(number))
    with pytest.raises(Refused) as caught:
        classes.open(0.0)
    assert str(caught.value) == TOO_MANY_CLASSES


def test_the_teachers_code_is_asked_for_once_and_cannot_be_tried_without_end() -> None:
    """Right however it is written; wrong five times of one visitor, or ten of all, and even the right one waits."""
    code = new_code()
    teachers = Teachers(code)
    known = teachers.issue_pass(f"  {group_code(code).upper()} ", "her", 0.0)
    assert (
        teachers.is_valid(known, 100.0) and not teachers.is_valid(known + "x", 100.0) and not teachers.is_valid("", 0.0)
    )

    def refused(given: str, visitor: str, now: float) -> str:
        with pytest.raises(Refused) as caught:
            teachers.issue_pass(given, visitor, now)
        return str(caught.value)

    assert [refused(odd, "him", 0.0) for odd in ("", "x" * 10_000, "\ud800", code[:-1], "0" * CODE_LENGTH)] == [
        WRONG_CODE
    ] * 5
    assert refused(code, "him", 59.0) == TOO_MANY_ATTEMPTS and teachers.issue_pass(code, "her", 59.0)
    assert [refused("x", f"{number}", 59.0) for number in range(10)] == [WRONG_CODE] * 5 + [TOO_MANY_ATTEMPTS] * 5
    assert refused(code, "her", 59.0) == TOO_MANY_ATTEMPTS and teachers.issue_pass(code, "her", 120.0)
    assert not teachers.is_valid(known, 100.0 + MAX_IDLE_SECONDS + 1)
    teachers.revoke(again := teachers.issue_pass(code, "her", 200.0))
    assert not teachers.is_valid(again, 200.0)
    with pytest.raises(Refused):
        Teachers("").issue_pass("", "a", 0.0)


def test_a_code_has_sixty_bits_and_only_codes_are_read() -> None:
    """Twelve signs of thirty-two, before them perhaps a copy's name; of a stranger's text nothing is taken."""
    assert len(set(ALPHABET)) == 32 and CODE_LENGTH * 5 == 60
    assert len({new_code() for _ in range(100)}) == 100
    for good in ("", new_code(), f"copy3-{new_code()}", Classes().open(0.0, "copy_1").code):
        assert parse_code(good) == good
    for bad in ("a", new_code().upper(), f"{new_code()}0", f"a b-{new_code()}", f"-{new_code()}", "<b>", "x" * 100_000):
        with pytest.raises(Refused, match="12 letters and figures"):
            parse_code(bad)


def test_a_link_leads_where_the_teacher_came_from() -> None:
    """Host, port and base path are those of her own address; one of this machine alone is known as such."""
    for url, link in (
        ("http://192.168.0.7:8501/learn", "http://192.168.0.7:8501/learn?class=x"),
        ("https://class.example.org/tools/headlight/learn/?teach=1#a", "https://class.example.org/tools/headlight/learn?class=x"),
        ("http://localhost:8501/learn", "http://localhost:8501/learn?class=x"),
    ):  # fmt: skip
        assert class_link(app_base_url(url), "x") == link
        assert is_local_address(app_base_url(url)) is ("localhost" in url)
    assert is_local_address("http://[::1]:8501/") and is_local_address("http://127.0.0.1/")


def test_the_qr_code_is_drawn_here_and_holds_no_script() -> None:
    """An SVG without a text, an address or a script in it, whatever the link holds."""
    drawn = qr_code("http://example.org/learn?class=<script>&\"'")
    assert drawn.startswith("<svg") and "script" not in drawn and "example" not in drawn and "#fff" in drawn


def test_every_refusal_of_a_class_is_translated() -> None:
    """Each constant is a text of the file of the class, and each text there a constant."""
    named = {value for name, value in vars(classroom).items() if name.isupper() and isinstance(value, str)}
    texts = page_texts("class").options("refused")
    assert {str(value) for value in named if " " in value} == set(texts.values())
    german = {value.translated("de") for value in named if isinstance(value, Phrase)}
    assert german == set(page_texts("class").in_language("de").options("refused").values()) and len(german) == len(
        texts
    )


# ---------------------------------------------------------------------------- what is taken along


def named(answer: object) -> str:
    return f"={answer}" if not isinstance(answer, tuple) else " ".join(answer)


def test_the_counts_are_a_table_that_no_spreadsheet_runs() -> None:
    """Lesson, step, vote, answer and count, a line for each answer; what looks like a formula has an apostrophe."""
    one = Class("code", 0.0)
    assert counts_csv(one.counted_questions(), lambda _, answer: str(answer)) == b"lesson,step,vote,answer,count\r\n"
    one.begin_question(question("the_bin"))
    for me in "abc":
        one.join(me)
    one.begin_vote(1)
    for me, answer in zip("abc", (30, 80, 30), strict=True):
        one.answer(me, 1, 1, answer)
    one.move_to("stop")
    one.begin_vote(2)
    one.answer("a", 1, 2, 31)
    one.begin_question(question("one_head"))
    lines = counts_csv(one.counted_questions(), lambda _, answer: named(answer)).decode().split("\r\n")
    assert lines[1:] == ["the_bin,predict,1,'=30,2", "the_bin,predict,1,'=80,1", "the_bin,predict,2,'=31,1", ""]


@pytest.mark.parametrize(
    ("name", "given", "labels", "counts"),
    [
        ("the_bin", [80, 20, 80], ["=20", "=80"], [(1,), (2,)]),
        ("the_bin", [*range(10)], ["0 – 1", "2 – 3", "4 – 5", "6 – 7", "8 – 9"], [(2,)] * 5),
        ("the_bin", [*range(0, 100, 3)], ["0 – 19", "20 – 39", "40 – 59", "60 – 79", "80 – 99"], None),
        ("both_sides", [3, 1, 3], ["=1", "=3"], [(1,), (2,)]),
        ("both_sides", [*range(12), 11], [*(f"={n}" for n in (*range(6), 11)), "others"], [(1,)] * 6 + [(2,), (5,)]),
    ],
)  # fmt: skip
def test_a_vote_is_few_rows_in_their_order(
    name: str, given: list[int], labels: list[str], counts: list[tuple[int, ...]] | None
) -> None:
    """Numbers by size, in ranges where they are many; words in their order, the rarest together; none is lost."""
    one = Class("code", 0.0)
    one.begin_question(question(name, *range(20)))
    one.begin_vote(1)
    for number, answer in enumerate(given):
        one.join(str(number))
        one.answer(str(number), 1, 1, answer)
    asked = one.current_votes()
    assert asked is not None
    rows = group_answers(asked, named, "others")
    assert [row.label for row in rows] == labels
    assert counts is None or [row.counts for row in rows] == counts
    assert sum(row.counts[0] for row in rows) == len(given)
    assert {answer for row in rows for answer in row.answers} == set(given)


def test_options_all_have_a_row_and_orders_stand_by_how_often_they_came() -> None:
    """An option that nobody chose is there with 0; of orders the commonest is the first."""
    one = Class("code", 0.0)
    one.begin_question(question("one_head"))
    one.begin_vote(1)
    asked = one.current_votes()
    assert asked is not None
    options = lesson_of("one_head").predict.options
    assert [row.counts for row in group_answers(asked, named, "")] == [(0,)] * len(options)
    one.begin_question(question("explanation"))
    one.begin_vote(1)
    things = CHECKS[lesson_of("explanation").predict.check].items
    for me, order in (("a", things), ("b", things[::-1]), ("c", things[::-1])):
        one.join(me)
        one.answer(me, 2, 1, order)
    asked = one.current_votes()
    assert asked is not None
    assert [row.counts for row in group_answers(asked, named, "")] == [(2,), (1,)]


def test_the_answer_sheet_holds_texts_and_runs_nothing() -> None:
    """One page whose policy forbids all but its own style; signs of HTML are signs, only links to the web lead out."""
    bad = '<script>alert(1)</script> " onload="x" </style>'
    links = (("Try it", "https://example.org/why?a=1&b=<"), ("no", "javascript:alert(1)"))
    entry = Entry("the_bin", bad, bad, bad, False, bad, links)
    page = as_page([entry, entry._replace(right=None, outcome="")], Words("de", bad, "Expected:", "yes", "no"))
    assert "<script" not in page and page.count("</style>") == 1 and 'onload="' not in page
    assert page.count("&lt;script&gt;") == 9
    assert "default-src 'none'; style-src 'sha256-" in page and "javascript:" not in page
    digest = base64.b64encode(hashlib.sha256(page.split("<style>")[1].split("</style>")[0].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page
    assert '<a href="https://example.org/why?a=1&amp;b=&lt;">Try it</a>' in page and "(no)" in page
    (said, _) = json.loads(as_json([entry, entry]))
    assert said["answer"] == bad and said["right"] is False and said["links"]["Try it"].startswith("https://")
