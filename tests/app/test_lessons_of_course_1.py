"""The first course: its checks on records made by hand, and what they cannot be asked of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bert_core import LoadedModel, Refused
from bert_core.analysis.roles import THRESHOLDS
from bert_core.loading import ASSETS
from bert_core.progress import ignore_progress
from bert_core.records import CurvePoint
from bert_core.studies.profiles import INSTALLED_FILE, read_profiles
from tests.lessons import asked_of, bundled, said
from tests.near import assert_near
from viz_app.lessons import Option
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks import first_course as of
from viz_app.lessons.checks.context import CheckContext
from viz_app.lessons.checks.first_course import (
    JOBS,
    FirstWordAttention,
    HeadContribution,
    HeadJobs,
    RoleScores,
    WordDrops,
)
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson_records, profiles
from viz_app.shell.lesson_records import lesson_context


def test_the_word_that_is_needed_most_is_the_one_with_the_largest_drop() -> None:
    """Another word is wrong, the gap itself no answer; where the word stands before the gap the claim does not hold."""
    drops = WordDrops(("a", "b", "c", "d"), 1, "cat", 0.8, np.array([0.1, np.nan, -0.2, 0.5]), ("x", "", "y", "dog"))
    right, wrong = of.largest_drop(drops, 3), of.largest_drop(drops, 0)
    assert right.right and right.truth == ("d",) and right.claim_holds and not wrong.right
    assert wrong.figures["own"] == 0.1 and wrong.figures["drop"] == 0.5 and right.figures["then"] == "dog"
    assert (wrong.figures["left"], wrong.figures["own_left"]) == pytest.approx((0.3, 0.7))
    assert [(bar.name, bar.mark) for bar in right.bars] == [("d", "both"), ("a", ""), ("c", "")]
    assert [(bar.name, bar.mark) for bar in wrong.bars][:2] == [("d", "true"), ("a", "yours")]
    for word in (1, 4):
        with pytest.raises(Refused, match=f"word {word} cannot be the answer"):
            of.largest_drop(drops, word)
    before = WordDrops(("a", "b", "c"), 1, "cat", 0.8, np.array([0.4, np.nan, 0.1]), ("x", "", "y"))
    assert not of.largest_drop(before, 0).claim_holds


def test_a_guess_has_changed_when_another_word_is_first_and_something_was_hidden() -> None:
    """The same word, or another one without anything hidden, is not yet done."""
    assert of.guess_changes(("milk", "tea", ("milk",))).right
    assert not of.guess_changes(("milk", "milk", ("cup",))).right
    assert not of.guess_changes(("milk", "tea", ())).right


def looks(**shares: list[float]) -> RoleScores:
    """Three heads of one layer with these shares; all other roles are 0."""
    scores = {name: np.array([shares.get(name, [0.0, 0.0, 0.0])]) for name in THRESHOLDS}
    return RoleScores(scores, (0, 0))


def test_heads_at_a_fixed_place_are_counted() -> None:
    """Two of three: the range that holds 2 is right, 0 to 1 is wrong; without a next-token head the claim is void."""
    found = looks(next=[0.9, 0, 0], cls=[0, 0.7, 0], broad=[0, 0, 0.9])
    right = of.fixed_places(found, Option(2, 3, "2 or 3"))
    assert right.right and right.truth == (2.0,) and right.claim_holds
    assert (right.figures["cls"], right.figures["next"], right.figures["rest"]) == (1, 1, 1)
    assert not of.fixed_places(found, Option(0, 1, "0 or 1")).right
    assert not of.fixed_places(looks(cls=[0.7, 0, 0]), Option(0, 3, "any")).claim_holds


def test_a_head_with_a_job_gives_half_to_it() -> None:
    """The next-token head is found by its share, and another sink is any but the lesson's own with 60% at [CLS]."""
    found = looks(next=[0.9, 0.4, np.nan], cls=[0.9, 0.7, 0.1])
    assert of.next_token_head(found, (0, 0)).right and not of.next_token_head(found, (0, 1)).right
    assert not of.next_token_head(found, (0, 2)).right and not of.next_token_head(looks(), (0, 0)).claim_holds
    assert of.another_sink(found, (0, 1)).right
    assert not of.another_sink(found, (0, 0)).right and not of.another_sink(found, (0, 2)).right


def test_a_guessed_share_is_right_within_fifteen_points() -> None:
    """30 is right for 31.4 brought, and the attention itself, 74, is not; equal shares are no bin."""
    found = HeadContribution((3, 2), 0.74, 0.314)
    assert of.brought_share(found, 30).right and of.brought_share(found, 46).right
    assert not of.brought_share(found, 74).right and of.brought_share(found, 74).claim_holds
    assert not of.brought_share(HeadContribution((3, 2), 0.74, 0.7), 70).claim_holds


def points(order: str, *losses: float) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(order, 12 * n, loss, 0.5, 0.5, 1, 1.0) for n, loss in enumerate(losses))


def test_heads_can_go_up_to_the_first_loss_that_is_one_percent_higher() -> None:
    """24 by the gradient: 20 and 30 are near, 5 is not; where none can go the claim does not hold."""
    found = points("importance", 2.0, 2.01, 2.02, 2.03, 2.5) + points("ablation", 2.0, 1.9, 1.9, 1.9, 1.9)
    right = of.heads_that_can_go(found, 30)
    assert right.right and right.truth == (24.0,) and right.figures["single"] == 48 and right.claim_holds
    assert not of.heads_that_can_go(found, 5).right
    assert not of.heads_that_can_go(points("importance", 2.0, 3.0) + points("ablation", 2.0, 3.0), 0).claim_holds


def test_enough_heads_are_off_at_a_loss_that_hardly_rose() -> None:
    """Twelve at 1% is done; eleven, or 2%, is not."""
    assert of.few_missed((2.0, 2.019, 12)).right and of.few_missed((2.0, 1.5, 40)).right
    assert not of.few_missed((2.0, 2.0, 11)).right and not of.few_missed((2.0, 2.04, 12)).right


ENDS = ("first", "end")  # as profiles name [CLS] and [SEP]


def jobs(*heads: dict[str, float]) -> HeadJobs:
    """Heads of one layer with these shares, all others 0; by chance each job has 0.1; they rest from 0.6 of all."""
    by_chance, rests = (np.full((1, len(heads)), share) for share in (0.1, 0.6))
    shares = {name: np.array([[head.get(name, 0.0) for head in heads]]) for name in JOBS}
    return HeadJobs(shares, {name: by_chance.copy() for name in JOBS}, rests, 0.05, (0, 0))


def test_a_head_does_what_is_farthest_above_chance_in_its_profile() -> None:
    """The answer is the number of a job; each has its share, and what chance gives; without a clear one it is void."""
    found = jobs({"governor": 0.4, "next": 0.3})
    right, wrong = (of.job_of_head(found, Option(number, number, "mine")) for number in (4, 1))
    assert right.right and right.claim_holds and right.truth == (JOBS["governor"],) and not wrong.right
    assert (wrong.figures["share"], wrong.figures["own"], wrong.figures["own_chance"]) == (0.4, 0.3, 0.1)
    marks = {bar.name: (bar.value, bar.mark) for bar in wrong.bars}
    assert marks["governor"] == (0.4, "true") and marks["next"] == (0.3, "yours") and marks["chance"] == (0.1, "")
    assert not of.job_of_head(jobs({"next": 0.14}), Option(1, 1, "mine")).claim_holds
    # Chance counts: what is seen less often, but would be far seldomer by chance, is what the head does.
    found.chances["governor"][0, 0] = 0.35
    assert of.job_of_head(found, Option(1, 1, "mine")).right


def test_another_head_with_the_job_is_found() -> None:
    """Not the lesson's own, none with another job, and none that hardly does it; one without a profile is refused."""
    found = jobs({"governor": 0.4}, {"governor": 0.3}, {"next": 0.9}, {"governor": 0.12}, {"next": np.nan})
    assert of.same_job(found, (0, 1)).right and of.same_job(found, (0, 1)).figures["share"] == 0.3
    for head in ((0, 0), (0, 2), (0, 3)):
        assert not of.same_job(found, head).right, head
    assert of.same_job(found, (0, 0)).figures["job"] not in JOBS.values(), "which would tell the answer"
    with pytest.raises(Refused, match="there is no profile of L0 H4"):
        of.same_job(found, (0, 4))


def test_the_first_word_looks_at_one() -> None:
    """The largest share of the others is right; the first word itself is no answer."""
    found = FirstWordAttention(("In", "my", "room"), (1, 7), np.array([np.nan, 0.1, 0.7]), 0.05)
    right, wrong = of.first_word_looks_at(found, 2), of.first_word_looks_at(found, 1)
    assert right.right and not wrong.right and (wrong.figures["word"], wrong.figures["own"]) == ("room", 0.1)
    for word in (0, 3):
        with pytest.raises(Refused, match=f"word {word} cannot be the answer"):
            of.first_word_looks_at(found, word)


def test_what_a_head_does_is_what_its_profile_says() -> None:
    """Every share and every chance of the lesson are those of the profile that comes along, where it is active."""
    found = read_profiles(ASSETS / "headlight-mini" / INSTALLED_FILE)
    asked = lesson_context(bundled(), lesson_of("ten_looks").predict.view)
    counted = lesson_records.record_work("job_of_head", asked).compute(ignore_progress)
    for one in found.heads:
        bars = {(question, bar.name): bar for question, of_it in one.active.items() for bar in of_it}
        for job, keys in (
            ("previous", [("offset", "-1")]), ("governor", [("relation", "its governor")]),
            ("ends", [("offset", name) for name in ENDS]), ("self", [("offset", "0")]),
        ):  # fmt: skip
            there = [bars[key] for key in keys if key in bars]
            at = one.layer, one.head
            assert_near(counted.shares[job][at], sum(bar.share for bar in there), of=1.0)
            assert_near(counted.chances[job][at], sum(bar.chance for bar in there), of=1.0)
    assert_near(
        counted.special_shares[1, 7], sum(bar.share for bar in found.find_head(1, 7).bars["offset"] if bar.name in ENDS)
    )
    job = counted.job_of(counted.lesson_head)
    assert (job == "governor") == any(bar.name == "its governor" for _, bar in found.find_head(1, 7).distinctive_groups)


def test_profiles_of_other_weights_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that has a file of profiles but other weights than they speak of is refused like one without."""
    other = profiles.profiles_of(bundled())
    assert other is not None
    monkeypatch.setattr(of, "read_profiles", lambda path: replace(other, weights="0" * 16))
    work = lesson_records.record_work("job_of_head", lesson_context(bundled(), lesson_of("ten_looks").predict.view))
    with pytest.raises(Refused, match="nobody has counted what the heads of this model do"):
        work.compute(ignore_progress)


@pytest.mark.parametrize(("text", "answer", "right"), [
    ("In my small room there was a large window.", 3, True), ("My sister has a dog.", 4, False),
])  # fmt: skip
def test_the_first_word_of_a_sentence_of_ones_own(text: str, answer: int, right: bool) -> None:
    """What the head looks at is right, another noun is not, and both have their sentence."""
    task = lesson_of("ten_looks").own_sentence
    asked = asked_of("ten_looks", bundled(), text=text, head="1.7")
    verdict = CHECKS[task.check].judge(lesson_records.record_work(task.check, asked).compute(ignore_progress), answer)
    assert verdict.right is right, verdict.figures
    assert said(task.right if right else task.wrong, verdict)


def test_what_a_lesson_cannot_ask_of_a_text_is_a_sentence(tiny_loaded: LoadedModel) -> None:
    """Too long a text, no hidden word, two, a filled gap, another sentence, and a model without words."""
    lesson = lesson_of("both_sides")
    began = lesson_context(tiny_loaded, lesson.predict.view)

    def asked(text: str, *masked: int) -> CheckContext:
        original = tiny_loaded.tokenizer.encode(text)
        encoding = tiny_loaded.tokenizer.mask_words(original, masked)
        return CheckContext(tiny_loaded, encoding, original, began.encoding, (0, 0), (0, 0))

    own = lesson.predict.view.address["text"]
    for check, about, says in (
        ("largest_drop", asked("the cat sat on the mat. " * 20, 1), "tokens: a lesson asks of 64 at most"),
        ("largest_drop", asked("the cat sat"), "mask exactly one short word"),
        ("largest_drop", asked("the cat sat", 0, 1), "mask exactly one short word"),
        ("largest_drop", asked("the cat", 1), "the sentence is too short: write three words or more"),
        ("guess_changes", asked("the cat sat", 1), "this step is about the lesson's own sentence"),
        ("guess_changes", asked(own, 2), "the gap is filled again"),
    ):
        with pytest.raises(Refused, match=says):
            lesson_records.record_work(check, about)
