"""A class on its pages: what its teacher sees and does, and what who has joined it sees, without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bert_core import Refused
from tests.visit import at, settled, visited, words
from viz_app.classroom import MAX_PEOPLE, Class, new_code
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import classroom, lesson

CODE = "abcd-efgh-jkmn"


@pytest.fixture(autouse=True)
def _for_a_class(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that was started for a class; what was opened on it is closed, wrong codes are forgotten."""
    monkeypatch.setenv(classroom.CODE, CODE)
    classroom._teachers.cache_clear()
    yield
    for one in classroom.CLASSES.open_classes(classroom.clock_time()):
        classroom.CLASSES.close(one.code)


def button(app: AppTest, key: str) -> Any:
    return next(one for one in app.button if one.key == key)


def clicked(app: AppTest, key: str) -> AppTest:
    return settled(button(app, key).click().run())


def known(app: AppTest) -> AppTest:
    """A page whose browser has said that it kept nothing."""
    app.session_state[classroom._PASS], app.session_state[classroom._MEMBERSHIP] = "", ("", "")
    app.session_state[lesson._RESTORED] = True
    return settled(app.run())


def teacher(**address: str) -> AppTest:
    """A teacher who has given the code."""
    app = known(visited("learn", teach="1", **address))
    app.text_input(key="teachers_code").set_value(CODE)
    next(one for one in app.button if one.label in ("Continue", "Weiter")).click()
    return settled(app.run())


def opened(name: str = "the_bin", **address: str) -> tuple[AppTest, Class]:
    """A teacher with an open class."""
    app = teacher(**address)
    app.selectbox(key="class_lesson").set_value(name)
    app = clicked(settled(app.run()), "class_open")
    found = classroom.CLASSES.find(app.session_state["class"], classroom.clock_time())
    assert found is not None and not app.exception and not app.error
    return app, found


def student(group: Class, **address: str) -> AppTest:
    return known(visited("learn", **{"class": group.code, **address}))


def answered(app: AppTest, number: int) -> AppTest:
    app.number_input[0].set_value(number).run()
    return clicked(app, "class_say")


def test_a_server_that_was_not_started_for_a_class_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, and no field for a code."""
    monkeypatch.delenv(classroom.CODE)
    app = settled(visited("learn", teach="1"))
    assert "start it with `headlight app --class`" in words(app) and not app.text_input and not app.exception


def test_the_code_is_asked_for_once() -> None:
    """A wrong one is said so; with the right one classes can be opened, and a reload needs none."""
    app = known(visited("learn", teach="1"))
    app.text_input(key="teachers_code").set_value("0" * 12)
    next(one for one in app.button if one.label == "Continue").click()
    settled(app.run())
    assert "That is not the teacher's code" in words(app) and "Open the class" not in [one.label for one in app.button]
    app = teacher()
    given = app.session_state[classroom._PASS]
    again = visited("learn", teach="1")
    again.session_state[classroom._PASS] = given
    assert button(settled(again.run()), "class_open").label == "Open the class"
    clicked(again, "class_out")
    assert not again.session_state.teach
    late = visited("learn", teach="1")
    late.session_state[classroom._PASS] = given
    assert [one.key for one in settled(late.run()).text_input] == ["teachers_code"]


def test_a_class_goes_from_the_question_to_the_truth() -> None:
    """Ask, stop and show, ask again, what is true: students follow, and see their own prediction beside the truth."""
    app, group = opened()
    one = student(group)
    assert "The vote has not begun yet" in words(one) and lesson_of("the_bin").question in words(one)
    clicked(app, "class_key_1")
    one, other = settled(one.run()), student(group)
    assert button(one, "class_say").disabled
    answered(one, 30)
    answered(other, 80)
    assert "Your answer: 30 percent. You can change it until the vote ends." in words(one)
    answered(other, 90)
    settled(app.run())
    assert [(metric.label, metric.value) for metric in app.metric] == [("joined", "2"), ("answered", "2")]
    assert not app.get("plotly_chart"), "the votes are not shown before they are asked for"
    clicked(app, "class_key_2")
    assert "Vote 1: 2 answered" in words(app) and len(app.get("plotly_chart")) == 1
    assert "The vote is over. Your answer: 90 percent." in words(settled(other.run()))
    clicked(app, "class_key_3")
    settled(other.run())
    assert "A second vote" in words(other)
    answered(other, 31)
    clicked(app, "class_key_2")
    assert "Vote 2: 1 answered" in words(app) and len(app.get("plotly_chart")) == 2
    clicked(app, "class_key_4")
    assert app.session_state.step == "reveal" and "“You” is what most of the class expected." in words(app)
    assert "Vote 1: 1 of 2 expected it." in words(app) and "Vote 2: 1 of 1 expected it." in words(app)
    settled(one.run())
    assert "weight is not work" in words(one) and one.get("plotly_chart")
    clicked(app, "lesson_class")
    assert "Vote 2: 1 answered" in words(app) and not app.session_state.lesson
    clicked(app, "class_close")
    assert "There is no such class" in words(settled(one.run()))
    assert one.session_state[lesson._NOTES]["the_bin"].answer == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", ["both_sides", "one_head", "explanation"])
def test_every_kind_of_answer_is_taken(name: str) -> None:
    """A word, a choice, an order: by the controls of the lesson, and shown by its name."""
    app, group = opened(name)
    one = student(group)
    clicked(app, "class_key_1")
    settled(one.run())
    if name == "both_sides":
        one.session_state[lesson._DRAFTS]["both_sides"]["both_sides_predict"] = 7  # as a click on the word does
        settled(one.run())
    elif name == "one_head":
        one.radio[0].set_value(1).run()
    else:
        for number in range(3):
            clicked(one, f"lesson_order_{number}")
    clicked(one, "class_say")
    assert "Your answer:" in words(one)
    clicked(app, "class_key_2")
    assert "Vote 1: 1 answered" in words(app) and not app.exception and not app.error
    clicked(app, "class_key_4")
    settled(one.run())
    assert one.get("plotly_chart") and not one.exception and not one.error


def test_what_is_sent_is_what_was_chosen_last() -> None:
    """Who chooses another answer and presses at once sends that one, though the page has not shown it yet."""
    app, group = opened()
    one = student(group)
    clicked(app, "class_key_1")
    settled(one.run())
    one.number_input[0].set_value(30).run()
    one.number_input[0].set_value(80)
    clicked(one, "class_say")
    assert "Your answer: 80 percent." in words(one)
    one.number_input[0].set_value(20).run()
    clicked(app, "class_key_2")
    clicked(one, "class_say")
    assert "The vote is over. Your answer: 80 percent." in words(one)
    assert [toast.value for toast in one.toast] == ["No answers are taken now: this vote is over."]


def test_a_full_class_and_a_class_that_is_not_there_are_one_sentence() -> None:
    """The 501st is told so; a link to a class that was closed, or that is none, too."""
    _, group = opened()
    for number in range(MAX_PEOPLE):
        group.join(f"person {number}")
    assert "This class is full: 500 have joined it" in words(student(group))
    code = new_code()
    app = known(visited("learn", **{"class": code}))
    assert "There is no such class" in words(app) and not app.exception
    clicked(app, "class_leave")
    assert "Next for you:" in words(app) and "class" not in app.query_params
    app = settled(visited("learn", **{"class": "<b>"}))
    assert "which is not possible: a class has a code of 12 letters and figures" in words(app)


def test_whoever_joined_late_or_reloaded_is_where_the_class_is() -> None:
    """The present step with the present question; the same browser is counted once."""
    app, group = opened()
    clicked(app, "class_key_1")
    one = answered(student(group), 30)
    again = visited("learn", **{"class": group.code})
    again.session_state[classroom._MEMBERSHIP] = one.session_state[classroom._MEMBERSHIP]
    assert "Your answer: 30 percent" in words(settled(again.run())) and group.state().people_count == 1
    app.selectbox(key="class_next_lesson_1").set_value("one_head")
    clicked(settled(app.run()), "class_next")
    assert lesson_of("one_head").question in words(student(group)) and group.state().people_count == 2
    assert lesson_of("one_head", "de").question in words(student(group, lang="de"))


def test_a_student_may_look_on_and_come_back() -> None:
    """From the truth to a page of their own and back, also with a lesson's truth beside the class; then out of it."""
    app, group = opened()
    clicked(app, "class_key_1")
    one = answered(student(group), 30)
    clicked(app, "class_key_4")
    clicked(settled(one.run()), "class_try")
    assert one.session_state.lesson == "the_bin" and one.session_state.step == "do" and "Find another" in words(one)
    clicked(one, "lesson_next")
    settled(at(one, "learn").run())
    assert not one.exception and not one.error and "This step is on the page" in words(one)
    clicked(settled(at(one, "roles").run()), "lesson_class")
    assert not one.session_state.lesson and "weight is not work" in words(one)
    clicked(at(one, "learn"), "class_leave")
    assert "Next for you:" in words(one) and not one.session_state["class"]


def test_a_class_goes_on_when_its_lesson_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a teacher's own lesson was taken away meanwhile: the question stays as it was asked."""
    app, group = opened()
    one = student(group)

    def gone(*_: object) -> None:
        raise Refused("one of the lessons")

    monkeypatch.setattr(classroom, "lesson_of", gone)
    clicked(app, "class_key_1")
    assert lesson_of("the_bin").question in words(settled(one.run())) and not app.error and not one.error


def test_the_code_of_a_class_is_in_no_log() -> None:
    """What a bug writes to the log names what is chosen, without it."""

    def page() -> None:
        import streamlit as st

        from viz_app.pages import PAGES
        from viz_app.shell import address, frame

        address.restore_params(frame.params_of_pages(PAGES))
        st.text(address.log_line())

    app = AppTest.from_function(page)
    app.query_params.update({"class": new_code(), "teach": "1"})
    app.run()
    assert "teach=1" in app.text[0].value and "class" not in app.text[0].value


def test_what_was_answered_can_be_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a class and on Learn: a page and JSON with the prediction, what was found, and links to the steps."""
    files: dict[str, Callable[[], str]] = {}
    monkeypatch.setattr("streamlit.download_button", lambda label, make, name, *_, **__: files.update({name: make}))
    app, group = opened()
    clicked(app, "class_key_1")
    one = answered(student(group), 30)
    clicked(app, "class_key_4")
    settled(one.run())
    (said,) = json.loads(files["headlight-answers.json"]())
    assert said["answer"] == "30 percent" and said["right"] and "weight is not work" in said["found"]
    assert "roles?text=We+had" in said["links"]["Try it"] and "lesson=the_bin&step=do" in said["links"]["Try it"]
    assert "<h2>The bin</h2>" in files["headlight-answers.html"]()
    files.clear()
    known(visited("learn"))
    assert not files


@pytest.mark.parametrize(("name", "alt"), [("both_sides", "words at position"), ("grammar", "all heads")])
def test_the_figure_of_the_question_is_on_phone_and_projector(name: str, alt: str) -> None:
    """Student and teacher see the figure to which the question refers, before and during the vote."""
    app, group = opened(name)
    phone = student(group)
    for _ in ("wait", "ask"):
        for page in (app, phone):
            figures = [str(element.proto) for element in page.get("image")]
            assert any(alt in figure for figure in figures) and not page.exception
        app = clicked(app, "class_key_1") if not group.state().vote else app
        phone = settled(phone.run())


def test_the_examples_of_the_question_are_on_the_phone() -> None:
    """A question about a head over a corpus shows its examples."""
    _, group = opened("ten_looks")
    assert "\n10. " in words(student(group))
