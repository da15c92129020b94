"""The second course: its checks on records made by hand and on the bundled model; an order of buttons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bert_core import Refused
from tests.lessons import FLOWERS, asked_of, bundled
from tests.visit import at, settled, visited, words
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks import second_course as of
from viz_app.lessons.checks.second_course import LensReadings, Meanings, MethodScores, SentencePair, VerbAccuracy
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson_records

# ---------------------------------------------------------------------------- on records made by hand


def test_an_order_is_right_but_for_one_pair_and_what_is_alike() -> None:
    """Two that are within 0.01 may stand either way; attention first is wrong; no other things can be put in order."""
    found = MethodScores("cat", 0.5, of.RANKED_METHODS, np.array([0.1, 0.2, 0.3, 0.305]), 0.25)
    right = of.order_of_methods(found, ("DecompX", "occlusion", "rollout", "attention"))
    assert right.right and right.claim_holds and right.figures["swapped"] == 0
    assert right.figures["better"] == "occlusion, DecompX" and right.truth[0] == "occlusion"
    assert of.order_of_methods(found, ("occlusion", "rollout", "DecompX", "attention")).figures["swapped"] == 1
    wrong = of.order_of_methods(found, ("attention", "rollout", "DecompX", "occlusion"))
    assert not wrong.right and wrong.figures["swapped"] == 5
    assert [bar.name for bar in wrong.bars] == ["occlusion", "DecompX", "chance", "rollout", "attention"]
    assert [bar.mark for bar in wrong.bars] == ["true", "", "", "", "yours"]
    assert not of.order_of_methods(found._replace(random_upper=0.05), of.RANKED_METHODS).claim_holds
    with pytest.raises(Refused, match="each of attention, rollout, DecompX, occlusion once"):
        of.order_of_methods(found, ("attention",))


def test_a_method_is_better_than_chance_above_the_band() -> None:
    """At the upper end of the random orders it is not yet."""
    found = MethodScores("cat", 0.5, (*of.RANKED_METHODS, "ALTI"), np.array([0.2, 0.1, 0.3, 0.3, 0.25]), 0.2)
    assert of.better_than_chance(found, "occlusion").right and of.better_than_chance(found, "ALTI").right
    assert not of.better_than_chance(found, "attention").right
    assert "ALTI" not in str(of.order_of_methods(found, of.RANKED_METHODS).figures["order"])


READING = LensReadings("she", 6, 6, 2, ("a", "b", "he", "he", "he", "he", "she"), 1, True, "tuned", 2, 1)


def test_the_depth_of_the_answer_is_asked_of_the_plain_reading() -> None:
    """5 and 6 of 6 are right, 2 is what the tuned lens says; where both say the same, nothing holds."""
    assert of.known_after(READING, 6).right and of.known_after(READING, 5).right
    assert not of.known_after(READING, 2).right and of.known_after(READING, 2).claim_holds
    assert of.known_after(READING, 6).figures["before"] == "he"
    assert not of.known_after(READING._replace(tuned=5), 6).claim_holds
    assert of.known_after(READING._replace(plain=0, tuned=0), 0).figures["before"] == "she"


def test_the_cell_of_the_answer_is_one_lens_one_row_and_one_depth() -> None:
    """Another lens, another depth, another token, or a model without a tuned lens is not it."""
    assert of.cell_of_the_answer(READING).right
    for other in (
        READING._replace(lens="logit"), READING._replace(depth=3), READING._replace(position=2),
        READING._replace(has_tuned=False),
    ):  # fmt: skip
        assert not of.cell_of_the_answer(other).right
    assert of.readings_differ(READING).right and not of.readings_differ(READING._replace(tuned=5)).right


def meanings(sorted_: list[int], depth: int = 0) -> Meanings:
    """Four places of a word at three depths, with gaps of 0, 0.1 and 0.2."""
    return Meanings("bank", np.array([0.9, 0.8, 0.8]), np.array([0.9, 0.7, 0.6]), np.array(sorted_), 4, depth)


def test_meanings_are_apart_from_the_depth_on_at_which_all_stay_sorted() -> None:
    """Sorted too early and then not again does not count; a guess beyond the last layer has the last bar."""
    right = of.parted_after(meanings([2, 4, 4]), 1)
    assert right.right and right.claim_holds and right.truth == (1.0,)
    assert [(bar.name, bar.mark) for bar in right.bars] == [("start", ""), ("true", "both"), ("end", "")]
    far = of.parted_after(meanings([4, 2, 4]), 9)
    assert far.truth == (2.0,) and not far.right and [bar.mark for bar in far.bars] == ["", "both"]
    none = of.parted_after(meanings([2, 2, 3]), 0)
    assert not none.right and not none.claim_holds and [bar.name for bar in none.bars] == ["yours", "true"]
    assert not of.parted_after(meanings([4, 4, 4]), 0).claim_holds
    assert of.first_apart(meanings([2, 4, 4], 1)).right and not of.first_apart(meanings([2, 4, 4], 2)).right
    assert not of.first_apart(meanings([2, 2, 3], 2)).right
    assert (
        of.meanings_are_separate(meanings([2, 2, 4])).right and not of.meanings_are_separate(meanings([4, 4, 3])).right
    )
    narrow = meanings([2, 2, 4])._replace(between_meanings=np.array([0.9, 0.7, 0.76]))
    assert not of.meanings_are_separate(narrow).right


def test_verbs_follow_the_nearest_noun_where_fewer_than_half_are_right() -> None:
    """35 is right for 22, 90 is not; where most verbs are right, the claim does not hold."""
    assert (
        of.verbs_right(VerbAccuracy(0.9, 0.22, 80), 35).right
        and not of.verbs_right(VerbAccuracy(0.9, 0.22, 80), 90).right
    )
    assert of.verbs_right(VerbAccuracy(0.9, 0.22, 80), 90).claim_holds
    assert (
        not of.verbs_right(VerbAccuracy(0.95, 0.6, 80), 60).claim_holds
        and not of.verbs_right(VerbAccuracy(0.5, 0.4, 80), 40).claim_holds
    )


def test_a_verb_is_pulled_over_only_with_both_verbs_in_their_places() -> None:
    """Two sentences that changed places do not count, nor do other words."""
    verbs = ("is", "are")
    assert of.verb_pulled_over(SentencePair(-2.0, verbs, verbs)).right
    assert of.verb_pulled_over(SentencePair(-2.0, verbs, verbs)).figures["believed"] == "are"
    assert not of.verb_pulled_over(SentencePair(2.0, verbs, verbs)).right
    assert not of.verb_pulled_over(SentencePair(-2.0, ("are", "is"), verbs)).right
    assert of.second_is_likelier(SentencePair(-2.0, ("was", "were"), verbs)).right
    assert not of.second_is_likelier(SentencePair(2.0, ("was", "were"), verbs)).right


# ---------------------------------------------------------------------------- on the bundled model


def test_own_sentences_are_judged_as_the_lesson_is() -> None:
    """To park and the park are told apart, banks in no order are not; another verb is pulled over too."""
    name, check = "bank_and_bank", "told_apart"
    for word, lines, right in (
        ("park", ("The children played in the park.", "We walked through the park to the lake.",
                  "You can not park the car here.", "He wanted to park his car near the house."), True),
        ("bank", ("They sat on the bank of the river.", "She put her money in the bank every month.",
                  "Trees stood along the bank of the lake.", "The bank raised its interest rates."), False),
    ):  # fmt: skip
        asked = asked_of(name, bundled(), common_word=word, sentences="\n".join(lines))
        assert (
            asked.is_own
            and CHECKS[check].judge(lesson_records.record_work(check, asked).compute(None), None).right is right
        ), word
    own = {"one": "The father with the boys was at home.", "two": "The father with the boys were at home."}
    asked = asked_of("the_keys", bundled(), **own)
    found = lesson_records.record_work("second_is_likelier", asked).compute(None)
    assert asked.is_own and of.second_is_likelier(found).right and not of.verb_pulled_over(found).right


@pytest.mark.parametrize(
    ("name", "check", "chosen", "says"),
    [
        (
            "bank_and_bank",
            "parted_after",
            {"sentences": "the bank\na bank\nmy bank"},
            "there are 3 sentences: write 4, 6 or 8",
        ),
        ("bank_and_bank", "parted_after", {"common_word": "cat"}, "sentence 1 does not contain “cat”"),
        ("bank_and_bank", "parted_after", {"sentences": "\n".join(["bank " * 80] * 4)}, "sentence 1 has .* at most"),
        ("the_keys", "verb_pulled_over", {"one": " "}, "sentence 1 is empty"),
        ("the_keys", "verb_pulled_over", {"two": "The cat is on the wall."}, "must differ in one word, the verb"),
        (
            "the_keys",
            "verb_pulled_over",
            {"two": "The picture with the flower is on the wall."},
            "must differ in one word, the verb",
        ),
        ("the_keys", "verb_pulled_over", {"two": "a " * 80}, "sentence 2 has .* at most"),
    ],
)
def test_what_cannot_be_asked_of_ones_own_words_is_a_sentence(
    name: str, check: str, chosen: dict[str, str], says: str
) -> None:
    """Too few sentences, one without the word, an empty one, two that are too different, or too long ones."""
    with pytest.raises(Refused, match=says):
        lesson_records.record_work(check, asked_of(name, bundled(), **chosen))


def test_a_choice_that_is_no_number_is_refused() -> None:
    """A lesson of a teacher may have a wrong cell or depth: too few numbers, and other text, are refused."""
    for name, check, page in (
        ("when", "known_after", {"cell": "3"}),
        ("when", "known_after", {"cell": "3.x"}),
        ("bank_and_bank", "parted_after", {"depth": "1.2"}),
    ):
        context = asked_of(name, bundled())
        asked = replace(context, choices={**context.choices, **page})
        with pytest.raises(Refused, match=r"is not possible: \d whole numbers"):
            lesson_records.record_work(check, asked)


def test_many_copies_are_read_of_short_texts_only() -> None:
    """A text of more than 32 tokens is refused where hundreds of copies would be read."""
    begun = asked_of("explanation", bundled())
    original = bundled().tokenizer.encode("She took the pen and wrote a letter. " * 4)
    long = replace(begun, original=original, encoding=bundled().tokenizer.mask_words(original, [3]))
    with pytest.raises(Refused, match="this lesson asks of 32 at most"):
        lesson_records.record_work("order_of_methods", long)


# ---------------------------------------------------------------------------- the panel


def button(app: AppTest, key: str) -> Any:
    return next(one for one in app.button if one.key == key)


def test_an_order_is_given_by_buttons() -> None:
    """Each press gives the next place, the last comes by itself, a second press takes back what follows too."""
    app = settled(visited("predict", **lesson_of("explanation").predict.view.address, lesson="explanation"))
    assert not app.exception and button(app, "lesson_say").disabled

    def pressed(*numbers: int) -> list[str]:
        for number in numbers:
            settled(button(app, f"lesson_order_{number}").click().run())
        return [button(app, f"lesson_order_{number}").label for number in range(4)]

    assert pressed(3) == ["attention", "rollout", "DecompX", "1. occlusion"]
    assert pressed(0, 1) == ["2. attention", "3. rollout", "4. DecompX", "1. occlusion"]
    assert pressed(0) == ["attention", "rollout", "DecompX", "1. occlusion"] and button(app, "lesson_say").disabled
    assert pressed(2, 1) == ["4. attention", "3. rollout", "2. DecompX", "1. occlusion"]
    settled(button(app, "lesson_say").click().run())
    app.session_state.step = "predict"
    settled(app.run())
    assert "You said: occlusion, DecompX, rollout, attention" in words(app)


def test_a_lesson_works_on_a_page_without_the_shared_text() -> None:
    """The keys: the pair on the page Score is judged as it is typed, revealed there, and one's own is asked for."""
    app = settled(visited("predict", **lesson_of("the_keys").predict.view.address, lesson="the_keys"))
    app.number_input[0].set_value(90).run()
    settled(button(app, "lesson_say").click().run())
    settled(at(app, "score").run())
    assert not app.exception and "It prefers “is”" in words(app)
    app.session_state.sentence_a, app.session_state.sentence_b = FLOWERS["one"], FLOWERS["two"]
    settled(app.run())
    assert "Done: now it prefers “are”" in words(app)
    settled(button(app, "lesson_next").click().run())
    assert not app.exception and "You said 90%" in words(app) and "Done:" not in words(app)
    settled(button(app, "lesson_next").click().run())
    assert "still that of the lesson" in words(app) and "You did" not in words(app)
    app.session_state.sentence_a = "The father with the boys was at home."
    app.session_state.sentence_b = "The father with the boys were at home."
    settled(app.run())
    assert "still that of the lesson" not in words(app) and "You did: it prefers “were” over “was”" in words(app)
