"""The third course: its checks on records made by hand and on the bundled model."""

from __future__ import annotations

from math import inf, log, nan
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bert_core import LoadedModel, Refused
from bert_core.progress import ignore_progress
from tests.lessons import asked_of, bundled, said
from tests.visit import at, settled, visited, words
from viz_app.lessons import Option
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks import third_course as of
from viz_app.lessons.checks.context import CheckContext
from viz_app.lessons.checks.third_course import (
    OCCUPATIONS,
    RELATIONS,
    Leanings,
    LinkedWord,
    NegationGuesses,
    RelationAccuracy,
    TreebankAccuracy,
    WordLeanings,
    with_and_without_not,
)
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson_records

# ---------------------------------------------------------------------------- on records made by hand


def ties(obj: float, amod: float) -> TreebankAccuracy:
    """What one of two heads finds of four relations, where the rules find half."""
    best = {name: RelationAccuracy((0, 1), 0.5, 0.5) for name in RELATIONS}
    best["obj"], best["amod"] = RelationAccuracy((0, 0), obj, 0.5), RelationAccuracy((0, 1), amod, 0.9)
    shares = {name: np.array([[0.1, tie.head_accuracy]]) for name, tie in best.items()}
    shares["obj"] = np.array([[obj, nan]])
    return TreebankAccuracy(best, shares)


def test_the_tie_that_a_head_finds_beyond_distance_is_that_of_the_widest_gap() -> None:
    """0.8 against 0.5 beats 0.95 against 0.9; where no gap is wide, or adjectives have one, the claim does not hold."""
    found = ties(0.8, 0.95)
    right, wrong = of.beyond_distance(found, Option(3, 3, "obj")), of.beyond_distance(found, Option(1, 1, "amod"))
    assert right.right and right.claim_holds and right.truth == ("obj",) and not wrong.right
    assert wrong.figures["own_found"] == 0.95 and wrong.figures["found"] == 0.8 and wrong.figures["head"] == "L0 H0"
    assert [bar.mark for bar in wrong.bars] == ["", "yours", "", "true"]
    assert [bar.value for bar in right.bars] == pytest.approx([0, 5, 0, 30])
    for other in (ties(0.55, 0.9), ties(0.8, 1.05)):
        assert not of.beyond_distance(other, Option(3, 3, "obj")).claim_holds
    assert of.knows_a_relation(found, (0, 0)).right and not of.knows_a_relation(found, (0, 1)).right


def test_the_last_word_is_tied_to_one_word() -> None:
    """That word is right, another is not, and the last word itself is no answer."""
    found = LinkedWord(("she", "shot", "a", "wolf"), 3, 1, (2, 0))
    assert of.tied_word(found, 1).right and of.tied_word(found, 1).figures["away"] == 2
    assert not of.tied_word(found, 2).right
    for word in (3, 4):
        with pytest.raises(Refused, match=f"word {word} cannot be the answer"):
            of.tied_word(found, word)


def test_a_swapped_pair_is_judged_by_the_range_that_holds_it() -> None:
    """0.95 swapped: above 0.9 is right, below 0.1 is not; where the order counts, the claim does not hold."""
    found = (0.99, 0.95, 0.02)
    high, low = Option(0.9, 1, "above 0.9"), Option(0, 0.1, "below 0.1")
    right, wrong = of.swapped_pair(found, high), of.swapped_pair(found, low)
    assert right.right and right.claim_holds and right.truth == (0.95,) and not wrong.right
    assert [(bar.name, bar.value) for bar in wrong.bars][1] == ("yours", 0.1)
    for other in ((0.99, 0.05, 0.02), (0.99, 0.95, 0.8)):
        assert not of.swapped_pair(other, high).claim_holds
    assert of.doubted_pair((0.49, 0.9, 0)).right and not of.doubted_pair((0.5, 0, 0)).right


def test_the_first_guesses_that_stay_are_counted() -> None:
    """Three of five stay: 2 to 4 are near; where only two stay the claim does not hold."""
    found = NegationGuesses(("a", "b", "c", "d", "e"), ("b", "a", "e", "x", "y"), 0.4, 0.1, says_not=True)
    right = of.guesses_that_stay(found, 4)
    assert right.right and right.truth == (3.0,) and right.claim_holds and of.says_not(found).right
    assert right.figures["gone"] == "c, d" and right.figures["kept"] == "a, b, e"
    assert right.figures["first"] == "a" and right.figures["first_with"] == "b"
    assert not of.guesses_that_stay(found, 5).right and not of.guesses_that_stay(found, 1).right
    other = NegationGuesses(("a", "b", "c", "d", "e"), ("x", "a", "b", "y", "z"), 0.4, 0.1, says_not=False)
    assert not of.guesses_that_stay(other, 2).claim_holds and not of.says_not(other).right


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("A robin is a [MASK].", ("A robin is a [MASK].", "A robin is not a [MASK].")),
        ("A robin is not a [MASK].", ("A robin is a [MASK].", "A robin is not a [MASK].")),
        ("Birds cannot [MASK].", ("Birds can [MASK].", "Birds cannot [MASK].")),
        ("It isn't [MASK].", ("It is [MASK].", "It isn't [MASK].")),
        ("She was never [MASK].", ("She was [MASK].", "She was never [MASK].")),
        ("Is it [MASK]? It is.", ("Is it [MASK]? It is.", "Is not it [MASK]? It is.")),
        ("The knot [MASK] island", None),
    ],
)
def test_not_is_put_in_or_taken_out(text: str, both: tuple[str, str] | None) -> None:
    """A sentence gives itself and its other form; one without a verb that takes "not" gives nothing."""
    assert with_and_without_not(text) == both


def test_occupations_are_counted_with_and_without_what_the_frame_leans_to() -> None:
    """None leans to "she" as it stands, four beside the frame; where "she" is first anyway the claim does not hold."""
    raw = (3.7, 3.0, 3.8, 2.3, 1.4, 0.8, 0.6, 0.2)
    right, wrong = of.she_first(Leanings(raw, 1.7), 1), of.she_first(Leanings(raw, 1.7), 4)
    assert right.right and right.truth == (0.0,) and right.claim_holds and not wrong.right
    assert right.figures["less_frame"] == 4 and right.figures["which"] == ", ".join(OCCUPATIONS[4:])
    assert not of.she_first(Leanings(tuple(-one for one in raw), -1.7), 8).claim_holds
    assert not of.she_first(Leanings(raw, 0.0), 0).claim_holds


def test_she_is_likelier_or_he() -> None:
    """Whoever is likelier is named by how many times; a probability of nothing divides nothing by zero."""
    more = of.she_is_likelier((0.1, 0.3))
    assert more.right and more.figures["times"] == pytest.approx(3)
    less = of.she_is_likelier((0.5, 0.0))
    assert not less.right and less.figures["times"] < inf


def test_a_word_leans_to_the_other_side_in_another_frame() -> None:
    """What it adds has another sign here than there; the gap itself is no answer."""
    found = WordLeanings(("He", "is", "a", "nurse"), 0, 0.5, (nan, 0.1, 0.2, log(2)), (nan, 0.1, 0.2, -log(3)))
    right, wrong = of.another_frame(found, 3), of.another_frame(found, 2)
    assert right.right and (right.figures["side"], right.figures["side_there"]) == ("he", "she")
    assert right.figures["times"] == pytest.approx(2) and right.figures["times_there"] == pytest.approx(3)
    assert not wrong.right
    for word in (0, 4):
        with pytest.raises(Refused, match=f"word {word} cannot be the answer"):
            of.another_frame(found, word)


# ---------------------------------------------------------------------------- on the bundled model


def on_a_page(loaded: LoadedModel, name: str, *texts: str) -> CheckContext:
    """A text, or a pair, typed on the page of a lesson."""
    text, pair = (*texts, "")[:2]
    return asked_of(name, loaded, text=text, pair=pair)


@pytest.mark.parametrize(
    ("name", "texts", "answer", "right"),
    [
        ("grammar", ("A boy opened the heavy old door.",), 2, True),
        ("grammar", ("A boy opened the heavy old door.",), 4, False),
        ("follows", ("The king died in the winter.", "His son was crowned in the spring."), 3, True),
        ("follows", ("He put the key into the lock.", "Then he opened the door and went in."), 0, False),
        ("a_robin", ("The door was [MASK].",), 3, True),
        ("a_robin", ("The piano is a musical [MASK].",), 0, False),
        ("he_or_she", ("[MASK] is a teacher.",), 3, True),
        ("he_or_she", ("The soldier said that [MASK] was tired.",), 1, False),
    ],
)
def test_a_sentence_of_ones_own_is_judged(name: str, texts: tuple[str, ...], answer: int, right: bool) -> None:
    """The same check, or that of the last step, on another text; both answers have their sentence."""
    task = lesson_of(name).own_sentence
    check = CHECKS[task.check]
    found = lesson_records.record_work(task.check, on_a_page(bundled(), name, *texts)).compute(ignore_progress)
    verdict = check.judge(found, task.options[answer] if task.options else answer)
    assert verdict.right is right, verdict.figures
    assert said(task.right if right else task.wrong, verdict)


def test_what_a_lesson_cannot_ask_of_a_text_is_a_sentence(tiny_loaded: LoadedModel) -> None:
    """No second sentence, one too many, no gap, two, no word that takes "not", and a sentence of the gap alone."""
    for check, texts, says in (
        ("swapped_pair", ("the cat sat",), "write a second sentence on top of the page"),
        ("says_not", ("the cat is [MASK]", "it sat"), "take the second sentence away"),
        ("says_not", ("the cat is big",), r"leave exactly one gap: type \[MASK\] for one word"),
        ("she_is_likelier", ("[MASK] is a [MASK]",), "leave exactly one gap"),
        ("says_not", ("the cat sat on the [MASK]",), "write a sentence with is, are, was, were or can"),
        ("another_frame", ("[MASK]",), "the sentence is too short"),
        ("tied_word", ("a cat sat.",), "the sentence is too short: write four words or more"),
    ):
        with pytest.raises(Refused, match=says):
            lesson_records.record_work(check, on_a_page(tiny_loaded, "follows", *texts))


def test_the_head_that_is_chosen_on_the_page_is_the_answer_of_the_fourth_lesson() -> None:
    """The second step is done by choosing a head that beats the rules, and not by another; the truth opens then."""
    view = lesson_of("grammar").predict.view
    app = settled(visited(view.page, **view.address, lesson="grammar"))
    app.radio[0].set_value(1).run()
    settled(button(app, "lesson_say").click().run())
    assert app.session_state.step == "do" and "L0 H0 is chosen" in words(app)
    app.session_state.head = (2, 0)
    settled(at(app, "roles").run())
    assert "Done: L2 H0 finds “obj”" in words(app)
    settled(button(app, "lesson_next").click().run())
    assert "You said “an adjective to its noun”" in words(app) and not app.exception and not app.error


def button(app: AppTest, key: str) -> Any:
    return next(one for one in app.button if one.key == key)


def test_the_lesson_names_the_occupations_that_are_asked() -> None:
    """What is said and what is counted are the same eight, and the strange one is among them."""
    assert ", ".join(OCCUPATIONS) in lesson_of("he_or_she").predict.text and of.EXPLAINED_OCCUPATION in OCCUPATIONS
    assert of.UNRELATED_SENTENCE in lesson_of("follows").reveal.right
