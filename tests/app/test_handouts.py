"""A lesson as one file: what is said of each answer, the command, and the button of its last step."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import bert_core
from bert_core import Refused
from tests.app.test_cli import Run, headlight
from tests.lessons import ANSWERS, bundled, record, said
from tests.visit import settled, visited
from viz_app.export.profiles import example_parts, mark_example
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import FOLDER, lesson_of
from viz_app.shell.handouts import handout_of, handout_work
from viz_app.shell.profiles import guess_examples, profiles_of

__all__ = ["headlight"]  # a fixture


def outcomes(page: str) -> dict[str, dict[str, list]]:
    """What a file says of each answer."""
    (told,) = re.findall(r'<script type="application/json" id="outcomes">(.*?)</script>', page)
    found: dict[str, dict[str, list]] = json.loads(told)
    return found


def test_each_answer_is_told_what_the_panel_would_tell_it() -> None:
    """Every word but the hidden one can be said; the true one is told that it is, another one what it takes."""
    page = handout_of(lesson_of("both_sides"), bundled(), "en")
    told = outcomes(page)
    true, wrong = str(ANSWERS["both_sides"].true), str(ANSWERS["both_sides"].wrong)
    assert set(told) == {str(word) for word in range(9)} - {"5"}
    reveal, judge = lesson_of("both_sides").reveal, CHECKS["largest_drop"].judge
    for answer, text in ((true, reveal.right), (wrong, reveal.wrong)):
        whole = said(text, judge(record("both_sides"), int(answer)))
        assert " ".join(told[answer]["paragraphs"]) == " ".join(whole.split())
    assert [bar["mark"] for bar in told[true]["bars"]].count("both") == 1
    for bar in told[wrong]["bars"]:
        assert bar["start"] >= 0 and bar["start"] + bar["length"] <= 1 + 1e-9
    assert page.count("<img ") == 1 and "Results of headlight-mini" in page and "arxiv.org/abs/1810.04805" in page
    german = handout_of(lesson_of("both_sides", "de"), bundled(), "de")
    assert '<html lang="de">' in german and "Das erwarte ich" in german and "That is what I expect" not in german
    assert outcomes(german)[true]["bars"][0]["mark_label"] == "dein Tipp, wahr"


def test_a_guess_from_looks_has_them_in_the_file() -> None:
    """The ten that the page shows, as it writes them, and not the text, which the page does not show."""
    page = html.unescape(handout_of(lesson_of("ten_looks"), bundled(), "en"))
    found = profiles_of(bundled())
    assert found is not None
    app = settled(visited("profiles", **lesson_of("ten_looks").predict.view.address))
    shown = html.unescape(re.sub(r"<[^>]*>", "", "".join(str(part.proto.body) for part in app.get("html"))))
    for number, look in enumerate(guess_examples(found.find_head(1, 7)), 1):
        assert f"{number}. {mark_example(look)}" in page
        assert "".join(text for text, _ in example_parts(look)).strip("… ")[:30] in shown, number
    assert "The old man" not in page.partition("<form>")[0]


def test_a_lesson_that_cannot_be_asked_is_refused(tiny_classifier_folder: Path) -> None:
    """Of a model that cuts the hidden word, in the sentence of the panel; a number with too many answers."""
    with pytest.raises(Refused, match="mask exactly one short word"):
        handout_of(lesson_of("both_sides"), bert_core.load(tiny_classifier_folder, device="cpu"), "en")
    one = lesson_of("a_robin")
    with pytest.raises(Refused, match=r"are 0 and 5000: a file holds what is said of each answer, 1,000 at most"):
        handout_of(replace(one, predict=replace(one.predict, maximum=5000.0)), bundled(), "en")


def test_the_command_writes_a_lesson(headlight: Run, tmp_path: Path) -> None:
    """One that comes along, in German, and a teacher's own file, with the language that it has."""
    out = tmp_path / "lesson.html"
    code, printed, err = headlight("lessons", "export", "follows", "--out", out, "--lang", "de", "--device", "cpu")
    assert (code, err) == (0, "") and lesson_of("follows", "de").title in printed and "kB" in printed
    assert lesson_of("follows", "de").question in out.read_text("utf-8")
    own = tmp_path / "mine.toml"
    own.write_text((FOLDER / "follows.toml").read_text("utf-8").replace('title = "', 'title = "Mine: '), "utf-8")
    assert headlight("lessons", "export", own, "--out", out, "--lang", "de", "--device", "cpu")[0] == 0
    assert "<title>Headlight: Mine: " in out.read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["luck", "--out", "x.html"], "there is no lesson 'luck': one of the lessons both_sides, "),
        (["follows", "--out", "x.pdf"], "--out is 'x.pdf': its ending must be one of html"),
        (["follows", "--out", "x.html", "--lang", "fr"], "--lang is 'fr': one of en, de"),
        (["nowhere.toml", "--out", "x.html"], "nowhere.toml cannot be read: No such file"),
        (["follows"], "Missing option '--out'"),
    ],
)
def test_what_is_no_lesson_is_one_sentence(
    headlight: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], says: str
) -> None:
    """It says what was given and what is allowed, and no file is written."""
    monkeypatch.chdir(tmp_path)
    code, _, err = headlight("lessons", "export", *given)
    assert code == 2 and err.count("\n") == 1 and says in err
    assert not list(tmp_path.iterdir())


def test_the_last_step_offers_the_file() -> None:
    """In the panel, made by the queue after the click; equal questions have equal keys."""
    app = settled(visited("predict", **lesson_of("follows").predict.view.address, lesson="follows"))
    app.radio[0].set_value(3).run()
    settled(app.button(key="lesson_say").click().run())
    app.session_state.step = "free"
    settled(app.run())
    assert not app.exception and not app.error
    (button,) = (one for one in app.get("download_button") if "page" in one.proto.label)
    assert button.proto.label == "This lesson as a page" and not button.proto.disabled
    one = lesson_of("follows")
    assert handout_work(one, bundled(), "en").key == handout_work(lesson_of("follows"), bundled(), "en").key
    assert handout_work(one, bundled(), "en").key != handout_work(lesson_of("follows", "de"), bundled(), "de").key
