"""Lessons: their files, and their panel and page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bert_core import Refused
from tests.lessons import bundled
from tests.visit import settled, visited, words
from viz_app.lessons import STEPS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.lessons.parsing import FOLDER, lesson_of, lessons, parse_lesson
from viz_app.pages import PAGES
from viz_app.shell import frame
from viz_app.shell.answers import answer_text
from viz_app.shell.lesson import _RESTORED, parse_view
from viz_app.shell.lesson_records import lesson_context
from viz_app.shell.markdown import escape_and_mark_terms, protect_terms
from viz_app.shell.panel import fill_figures

BY_PATH = {page.path: page for page in PAGES}
LESSONS = [file.stem for file in sorted(FOLDER.glob("*.toml"))]
TOML = (FOLDER / "both_sides.toml").read_text("utf-8")

# ---------------------------------------------------------------------------- files


def test_every_lesson_is_whole_and_leads_to_views_that_are_there() -> None:
    """Each file is read; its pages are there, their choices possible; numbers in a course are each once."""
    assert {lesson.name for lesson in lessons()} == set(LESSONS) and len(lessons()) == len(LESSONS)
    assert len({(lesson.course, lesson.number) for lesson in lessons()}) == len(lessons())
    for lesson in lessons():
        for view in (*(lesson.view(step) for step in STEPS), *(way.view for way in lesson.free)):
            assert view.page in BY_PATH, (lesson.name, view)
            if view.address:
                parse_view(view, BY_PATH)
        assert lesson.predict.view.address["text"] == lesson.exercise.view.address["text"], lesson.name


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("minutes = 6\n", "", r"both_sides\.toml: minutes is missing: a whole number"),
        ("minutes = 6", "minutes = '6'", r"minutes is '6': a whole number is needed"),
        ("minutes = 6", "minutes = 600", r"minutes is 600: 1 to 60"),
        ("minutes = 6", "minutes = 6\nbonus = 1", r"bonus is not known: course, do, free, "),
        ("https://", "javascript:", r"link is 'javascript:arxiv.*': an address that begins with https://"),
        ('check = "guess_changes"', 'check = "luck"', r"do\.check is 'luck': one of largest_drop, guess_changes, "),
        ('answer = "page"', 'answer = "word"', r"do\.answer is 'word': guess_changes takes page"),
        ("{left:.2f}", "{luck:.2f}", r"reveal\.right names {luck}: largest_drop gives word, yours, "),
        ("{left:.2f}", "{left.real:.2f}", r"reveal\.right names {left\.real}: largest_drop gives"),
        ("{left:.2f}", "{left!r}", r"reveal\.right writes the number left as 'r': such as \.2f"),
        ("{left:.2f}", "{left:9999999f}", r"writes the number left as '9999999f': such as"),
        ("{hidden}", "{hidden:.2f}", r"do\.right writes the word hidden as '\.2f': it is written as {hidden}"),
        ("{hidden}", "{hidden", r"do\.right has braces that do not fit"),
        ('title = "Both sides"', 'title = ""', r"title is empty: a text is needed"),
        ('title = "Both sides"', "title = Both", r"both_sides\.toml is no TOML file"),
        ('form = ".2f"', 'form = "s"', r"reveal\.form is 's': such as \.2f, \.0f, \.0%"),
        ("[[free]]", "[free]", r"both_sides\.toml is no TOML file"),
        ("minutes = 6", "minutes = 6\nfree = 1", r"both_sides\.toml is no TOML file"),
    ],
)
def test_a_fault_is_one_sentence_with_file_key_and_what_may_be(old: str, new: str, says: str) -> None:
    """A lesson with one thing wrong is refused; the sentence names the file, the key, and what is allowed."""
    assert old in TOML
    with pytest.raises(Refused, match=says) as caught:
        parse_lesson(TOML.replace(old, new, 1), "both_sides")
    assert str(caught.value).startswith("both_sides.toml") and "\n" not in str(caught.value)[:100]


def test_a_link_to_no_lesson_and_an_address_that_is_not_possible_are_refused() -> None:
    """The lessons that there are, the page, the choice or its value are named."""
    with pytest.raises(Refused, match="one of the lessons both_sides, one_head, the_bin, fewer_heads"):
        lesson_of("luck")
    lesson = lesson_of("both_sides")
    view = lesson.predict.view
    for page, address, says in (
        ("luck", view.address, "the page 'luck' is not there: one of start, predict, "),
        ("predict", {"masked": "1"}, "the address for the page predict names no text"),
        ("predict", {**view.address, "lens": "tuned"}, "'lens' is no choice of the page predict"),
        ("predict", {**view.address, "head": "x"}, "head='x' is not possible: write a head as layer.head"),
    ):
        with pytest.raises(Refused, match=re.escape(says)):
            parse_view(type(view)(page, address), BY_PATH)


# ---------------------------------------------------------------------------- the panel and the page


def button(app: AppTest, key: str) -> Any:
    return next(one for one in app.button if one.key == key)


@pytest.fixture
def bin_lesson() -> AppTest:
    """The third lesson at its first step, with its prediction given."""
    app = settled(visited("roles", **lesson_of("the_bin").predict.view.address, lesson="the_bin"))
    assert not app.exception and lesson_of("the_bin").question in words(app)
    assert button(app, "lesson_say").disabled
    app.number_input[0].set_value(80).run()
    return settled(button(app, "lesson_say").click().run())


def test_nothing_is_shown_before_the_prediction(bin_lesson: AppTest) -> None:
    """A link to the truth opens the question to whoever has said nothing; once said, the answer stays as it is."""
    address = lesson_of("the_bin").predict.view.address
    fresh = settled(visited("roles", **address, lesson="the_bin", step="reveal"))
    assert "What do you expect?" in words(fresh) and fresh.session_state.step == "reveal", "the browser may know more"
    fresh.session_state[_RESTORED] = True
    settled(fresh.run())
    assert fresh.session_state.step == "predict" and "What do you expect?" in words(fresh)
    assert "of what it brings comes from there; " not in words(fresh)
    assert bin_lesson.session_state.step == "do"
    bin_lesson.session_state.step = "predict"
    settled(bin_lesson.run())
    assert "You said: 80 percent" in words(bin_lesson) and not bin_lesson.number_input


def test_a_bug_of_the_page_takes_no_lesson_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said about the page is said there; the panel stands, and its answer is taken."""
    app = settled(visited("roles", **lesson_of("the_bin").predict.view.address, lesson="the_bin"))

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(frame, "show_text_notices", broken)
    app.number_input[0].set_value(80).run()
    assert "This page has a bug" in words(app) and not app.exception
    assert not button(app, "lesson_say").disabled
    settled(button(app, "lesson_say").click().run())
    assert app.session_state.step == "do" and "This page has a bug" in words(app)


def test_a_step_is_done_when_the_record_says_so(bin_lesson: AppTest) -> None:
    """The lesson's own head is not another one; a head of the map that looks at [CLS] is, and then the truth opens."""
    app = bin_lesson
    assert "Find another one than L3 H2" in words(app) and button(app, "lesson_next").label == "Skip"
    app.session_state.head = (4, 3)
    settled(app.run())
    assert "Done: L4 H3" in words(app) and button(app, "lesson_next").label == "See what is true"
    settled(button(app, "lesson_next").click().run())
    assert app.session_state.step == "reveal" and app.session_state.head == (3, 2)
    assert "You said 80%" in words(app) and "weight is not work" in words(app)
    assert app.query_params["lesson"] == "the_bin" and app.query_params["step"] == "reveal"
    settled(button(app, "lesson_next").click().run())
    assert "The sentence on the page is still that of the lesson" in words(app)
    app.session_state.text = "They gave the boy a new coat."
    settled(app.run())
    app.number_input[0].set_value(50).run()
    settled(button(app, "lesson_say").click().run())
    assert re.search(r"L3 H2 gives \d+% of its attention", words(app))
    settled(button(app, "lesson_next").click().run())
    assert app.session_state.step == "free" and "predicted otherwise, tried, own sentence" in words(app)


def test_the_panel_folds_and_goes_and_what_was_said_stays(bin_lesson: AppTest) -> None:
    """Folded it is one button; left, the page is as without; on another page it says where its step is."""
    app = bin_lesson
    settled(button(app, "lesson_fold").click().run())
    assert "Try it" not in words(app)
    settled(button(app, "lesson_unfold").click().run())
    assert "Try it" in words(app)
    settled(button(app, "lesson_leave").click().run())
    assert not app.session_state.lesson and "lesson" not in app.query_params and "Try it" not in words(app)
    app.session_state.lesson = "the_bin"
    app.session_state.step = "reveal"
    settled(app.run())
    assert "You said 80%" in words(app)


def test_a_step_of_another_page_says_which() -> None:
    """The panel stands on every page, and offers the page of its step; what is there is not asked."""
    for path in ("learn", "score", "attention"):
        app = settled(visited(path, lesson="both_sides"))
        assert not app.exception and not app.error, path
        assert "This step is on the page Predictions." in words(app), path
        assert button(app, "lesson_open").label == "Open Predictions"


def test_the_page_learn_lists_every_lesson() -> None:
    """The next one first; title, question and minutes of each, and a button that starts it; no lesson is an error."""
    app = settled(visited("learn", lesson="luck"))
    assert not app.exception and not app.error
    assert "The link says lesson='luck', which is not possible: one of the lessons both_sides" in words(app)
    for lesson in lessons():
        for part in (lesson.title, lesson.question, f"{lesson.minutes} minutes"):
            assert part in words(app), (lesson.name, part)
        assert button(app, f"begin_{lesson.name}").label == "Start"


def test_what_a_file_says_is_shown_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markdown, links, HTML and directives in a lesson's words stay signs."""
    hostile = "**b** <i>x</i> [y](https://e.org) :red[z] $a$ ![p](https://e.org/p.png)"
    text = TOML.replace('title = "Both sides"', f'title = "{hostile}"').replace(
        "One word of this sentence is masked", hostile
    )
    lesson = parse_lesson(text, "both_sides")
    monkeypatch.setattr("viz_app.shell.lesson.lesson_of", lambda *_: lesson)
    app = settled(visited("predict", **lesson.predict.view.address, lesson="both_sides"))
    assert not app.exception
    drawn = [one.value for kind in (app.markdown, app.caption) for one in kind if "\\*\\*b" in one.value]
    assert len(drawn) == 2, "the title and the text"
    for one in drawn:
        assert all(sign in one for sign in ("\\<i\\>", "\\[y\\]", "\\:red\\[", "\\$a\\$", "\\!\\[p\\]"))


def marks(app: AppTest) -> list[str]:
    """The words that are explained where they stand, in the order of the page's Markdown."""
    return [mark for one in app.markdown for mark in re.findall(r">([^<]*)</abbr>", one.value.replace("\\", ""))]


def test_a_step_explains_each_technical_word_once() -> None:
    """In question, task and hint, where it is said first; in the truth, none of the words that the model guessed."""
    app = settled(visited("attention", **lesson_of("one_head").predict.view.address, lesson="one_head"))
    assert marks(app) == ["heads", "layer", "attention", "[CLS]", "[SEP]", "token"]
    assert not any("<" in label for one in app.radio for label in one.options)
    verdict = Verdict(True, (), {"guess": "head"}, ())
    says = escape_and_mark_terms(fill_figures("“{guess}” needs a head.", verdict, protect_terms), set())
    assert says.startswith("“head” needs a <abbr") and says.endswith(">head</abbr>\\.")


def test_answers_are_said_in_words() -> None:
    """A number with its unit, an option by its label, a word of the text."""
    number, choice, word = (lesson_of(name).predict for name in ("the_bin", "one_head", "both_sides"))
    assert (
        answer_text(number, 30, None) == "30 percent"
        and answer_text(choice, choice.options[0], None) == "fewer than 10"
    )
    original = lesson_context(bundled(), word.view).original
    assert answer_text(word, 7, original) == "milk"
    assert Path(FOLDER, "both_sides.toml").is_file()
