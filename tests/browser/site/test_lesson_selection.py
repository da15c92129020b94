"""The lessons that the browser edition has, the reasons for those that it leaves out, and their descriptions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bert_core import LoadedModel
from tests.lessons import bundled, record
from viz_app.cli.lessons import TEMPLATE
from viz_app.lessons import Lesson, PageLink, View
from viz_app.lessons.parsing import FOLDER, OWN_COURSE, OWN_LESSONS, lesson_of, lessons
from viz_app.site.lessons import (
    METHODS,
    PAGE_PARAMETERS,
    StoredView,
    check_settings,
    lesson_description,
    select_lessons,
    stored_views,
)

APP = Path(__file__).parents[3] / "viz_app" / "site" / "app"
KEPT = ["both_sides", "follows", "a_robin", "he_or_she"]


def test_the_lessons_that_need_no_more_than_the_pages_are_kept() -> None:
    """All others are left out for one reason each: a page, a parameter or a check."""
    kept, left_out = select_lessons(lessons())
    assert [lesson.name for lesson in kept] == KEPT
    assert {lesson.name for lesson in kept} | {name for name, _ in left_out} == {lesson.name for lesson in lessons()}
    reasons = dict(left_out)
    assert reasons["when"] == "The step “do” needs the page “layers”."
    assert reasons["explanation"] == "The step “do” needs method=attention on the page “why”."
    assert all(re.fullmatch(r"The [^.]+\.", reason) for reason in reasons.values())


def exercise(lesson: Lesson, view: View, check: str = "guess_changes") -> Lesson:
    """A lesson with another view or check in its second step."""
    return replace(lesson, exercise=replace(lesson.exercise, view=view, check=check))


@pytest.mark.parametrize(
    ("view", "check", "reason"),
    [
        (View("attention", {"text": "A"}), "guess_changes", ""),
        (View("attention", {"text": "A", "view": "matrix", "show": "product"}), "guess_changes", ""),
        (View("attention", {"text": "A", "view": "neuron"}), "guess_changes", "view=neuron on the page “attention”."),
        (View("attention", {"text": "A", "sort": "role"}), "guess_changes", "“sort” of the page “attention”."),
        (View("predict", {"masked": "1"}), "guess_changes", "needs a text in its address."),
        (View("why", {"text": "A"}), "guess_changes", "needs method=DecompX on the page “why”."),
        (View("why", {}), "guess_changes", ""),
        (View("predict", {"text": "A"}), "few_missed", "The check “few_missed” needs the app."),
    ],
)  # fmt: skip
def test_the_reason_is_the_first_part_that_is_missing(view: View, check: str, reason: str) -> None:
    """A view has only parameters, values and defaults of the site, and every check exists in JavaScript."""
    kept, left_out = select_lessons([exercise(lesson_of("both_sides"), view, check)])
    assert bool(kept) is not bool(left_out)
    assert not reason if kept else left_out[0].reason.endswith(reason)


def test_links_that_a_site_cannot_open_are_dropped_in_every_language() -> None:
    """Labels belong to their views, also where an earlier link is dropped."""
    (kept, *_), _ = select_lessons([lesson_of("he_or_she")])
    (link,) = kept.free
    assert isinstance(link, PageLink) and link.view.page == "why"
    texts = lesson_description(kept)["texts"]
    assert [link["label"] for link in texts["en"]["free"]] == ["He or she: which words decide?"]
    german = next(link for link in lesson_of("he_or_she", "de").free if link.view.page == "why")
    assert [link["label"] for link in texts["de"]["free"]] == [german.label]


def test_the_texts_of_steps_and_links_are_stored_once() -> None:
    """In their order, with the numbers of the masked words."""
    views = stored_views([lesson_of("both_sides"), lesson_of("follows"), lesson_of("both_sides")])
    assert views[:2] == [
        StoredView("He drank a cup of tea with milk.", "", (5,)),
        StoredView("He drank a cup of tea with milk.", "", (7,)),
    ]
    assert len(views) == len(set(views)) and all(view.text for view in views)


def test_a_description_is_json_with_the_record_of_the_question(tiny_loaded: LoadedModel) -> None:
    """All texts in both languages; what is not a number is null; a model that cannot answer has no record."""
    lesson = lesson_of("both_sides")
    description = lesson_description(lesson, bundled())
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    english, german = description["texts"]["en"], description["texts"]["de"]
    assert (english["question"], german["question"]) == (lesson.question, lesson_of("both_sides", "de").question)
    assert english["predict"]["view"] == {"page": "predict", "address": dict(lesson.predict.view.address)}
    assert description["record"]["words"] == list(record("both_sides").words)
    assert description["record"]["drops"][record("both_sides").gap] is None
    assert lesson_description(lesson)["record"] is None
    assert lesson_description(lesson, tiny_loaded)["record"] is None
    json.dumps(check_settings(), allow_nan=False)


def test_own_lessons_are_selected_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lessons of a folder are last; one that needs another page is left out."""
    (tmp_path / "mine.toml").write_text(TEMPLATE.read_text("utf-8"), "utf-8")
    (tmp_path / "own_bin.toml").write_text((FOLDER / "the_bin.toml").read_text("utf-8"), "utf-8")
    monkeypatch.setenv(OWN_LESSONS, str(tmp_path))
    kept, left_out = select_lessons(lessons())
    assert [lesson.name for lesson in kept] == [*KEPT, "mine"] and kept[-1].course == OWN_COURSE
    assert "own_bin" in dict(left_out)
    assert lesson_description(kept[-1])["texts"]["de"]["title"] == "The missing word"


def test_pages_and_methods_are_those_of_the_scripts() -> None:
    """Parameters and methods that lessons can name are read by the scripts."""
    methods = re.search(r"METHOD_NAMES = \[(.*?)\]", (APP / "attributions.js").read_text("utf-8"), re.DOTALL)
    assert methods and tuple(re.findall(r'"(.*?)"', methods[1])) == METHODS
    state = (APP / "state.js").read_text("utf-8")
    for page, parameters in PAGE_PARAMETERS.items():
        assert (APP / "pages" / f"{page}.js").is_file()
        for name, values in parameters.items():
            assert re.search(rf"^  {name}: ", state, re.MULTILINE), name
            listed = re.search(rf"^  {name}: option\((.*)\)", state, re.MULTILINE)
            if listed and values != METHODS:
                assert tuple(re.findall(r'"(.*?)"', listed[1])) == values
