"""The lessons in a second language: whole, the same claims, and chosen in the address. Static texts: test_texts.py."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from bert_core.refused import Refused
from tests.app.test_own_lessons import folder, said
from tests.visit import settled, visited, words
from viz_app.figures.lessons import LONGEST_LABEL
from viz_app.glossary import terms
from viz_app.lessons.checks.context import Unsuitable
from viz_app.lessons.parsing import FOLDER, folder_faults, lesson_of, lessons, parse_translation
from viz_app.shell.markdown import error_sentence, escape_markdown
from viz_app.texts import LANGUAGES, page_texts

__all__ = ["folder"]  # a fixture

OTHERS = [tag for tag in LANGUAGES if tag != "en"]
SAID = {"title", "question", "says", "hint", "right", "wrong", "otherwise", "label", "bars", "unit"}  # by these keys
THE_SAME = {"attention", "rollout", "DecompX", "occlusion"}  # names
UNSAID = r"^(page|address|answer|check|course|number|minutes|source|link|form) .*\n"  # lines of a lesson
APP = Path(__file__).parents[2] / "viz_app"


def texts(table: Any, at: str = "", under: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text of a file: the whole of its key, the last part of it that is a word, and what it says."""
    if isinstance(table, str):
        yield at, under, table
        return
    for name, value in (
        table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    ):
        yield from texts(value, f"{at}.{name}", under if under == "bars" or isinstance(name, int) else name)


def said_in(file: Path) -> dict[str, str]:
    """What a lesson says, by its keys: nothing of its addresses, numbers and checks, and not whose result it is."""
    return {at: text for at, under, text in texts(tomllib.loads(file.read_text("utf-8"))) if under in SAID}


def figures(text: str) -> list[tuple[str, str]]:
    """The figures that a sentence names, with their forms, in order of their names."""
    return sorted({(name, form or "") for _, name, form, _ in Formatter().parse(text) if name is not None})


@pytest.mark.parametrize("tag", OTHERS)
@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.toml")))
def test_a_lesson_says_the_same_in_every_language(name: str, tag: str) -> None:
    """The same keys, the same figures in each sentence, the same paragraphs, and no text left in English."""
    ours, theirs = said_in(FOLDER / f"{name}.toml"), said_in(FOLDER / tag / f"{name}.toml")
    assert ours.keys() == theirs.keys()
    for key, text in theirs.items():
        assert figures(text) == figures(ours[key]), key
        assert text.count("\n\n") == ours[key].count("\n\n"), key
        assert not text or text != ours[key] or text in THE_SAME, key
        assert "“" not in re.sub("„[^„“]*“", "", text) and '"' not in text, f"{key}: quotation marks are „ and “"
        assert ".bars." not in key or len(text) <= LONGEST_LABEL, key
    lesson, other = lesson_of(name), lesson_of(name, tag)
    assert (other.predict.view, other.reveal.form, other.source) == (
        lesson.predict.view, lesson.reveal.form, lesson.source,
    )  # fmt: skip
    assert other.predict.options == lesson.predict.options, "an answer is the same in every language"
    assert other.title == theirs[".title"] and other.own_sentence.text == theirs[".yours.says"].strip()


def test_no_file_of_a_language_is_left_over() -> None:
    """Each belongs to a lesson, and every lesson is there, in its order."""
    for tag in OTHERS:
        assert {file.name for file in (FOLDER / tag).iterdir()} == {file.name for file in FOLDER.glob("*.toml")}
        assert [one.name for one in lessons(tag)] == [one.name for one in lessons()]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[do]\n", '[do]\nanswer = "word"\n', r"do\.answer is not known: hint, right, says, wrong"),
        ("{left:.2f}", "{luck:.2f}", r"reveal\.right names {luck}: largest_drop gives word, yours, "),
        ("{left:.2f}", "{left}", r"reveal\.right writes the number left as ''"),
        ('title = "Beide Seiten"\n', "", r"title is missing: a text"),
        ('title = "Beide Seiten"', 'title = ""', r"title is empty: a text is needed"),
        ('[[free]]\nlabel = "Fünfzehn andere Methoden"\n', "", r"free has 2 tables: 3 are needed"),
        ('title = "Beide Seiten"', "title = Beide", r"de/both_sides\.toml is no TOML file"),
    ],
)
def test_a_fault_in_a_translation_is_one_sentence(tmp_path: Path, old: str, new: str, says: str) -> None:
    """It names the file in its folder, the key, and what is allowed."""
    text = (FOLDER / "de" / "both_sides.toml").read_text("utf-8")
    assert old in text
    file = tmp_path / "de" / "both_sides.toml"
    file.parent.mkdir()
    file.write_text(text.replace(old, new, 1), "utf-8")
    lesson, faults = parse_translation(lesson_of("both_sides"), file)
    assert lesson is None and len(faults) == 1
    assert re.search(says, faults[0].message) and faults[0].message.startswith("de/both_sides.toml")


@pytest.mark.parametrize("tag", OTHERS)
def test_every_term_of_the_glossary_has_its_words(tag: str) -> None:
    """The same terms as in English, each with forms and a sentence of its own, and the page and source of the term."""
    ours = {term.name: term for term in terms()}
    theirs = tomllib.loads((APP / "glossary" / f"{tag}.toml").read_text("utf-8"))
    assert theirs.keys() == ours.keys()
    for name, one in theirs.items():
        assert one.keys() == {"forms", "meaning"} and one["meaning"] != ours[name].meaning, name
        assert "“" not in re.sub("„[^„“]*“", "", one["meaning"]) and '"' not in one["meaning"], name
    assert {(term.page, term.link) for term in terms(tag)} == {(term.page, term.link) for term in ours.values()}


def test_a_term_is_explained_in_the_language_that_is_chosen() -> None:
    """The page Glossary finds it by either name; an English caption has the German sentence, with both names."""
    for typed in ("kopf", "head"):
        app = settled(visited("glossary", term=typed, lang="de"))
        assert "**Kopf** (head): Einer der Teile einer Schicht" in words(app) and not app.exception
        assert "Jedes Fachwort der App in einem Satz" in words(app)
        assert "also:" not in words(app)
    assert f"Keines der {len(terms())} Wörter hier ist wie „zebra“." in words(
        settled(visited("glossary", term="zebra", lang="de"))
    )
    app = settled(visited("layers", text="She opened the door.", lang="de"))
    marks = [mark for one in app.caption for mark in re.findall(r'data-says="([^"]*)"', one.value)]
    assert any(mark.startswith("Tiefe (depth): Wie weit oben") for mark in marks)
    (lens,) = (one for one in app.get("button_group") if one.label == "Lens")
    assert "**Tuned lens**: Eine Logit lens" in lens.proto.help


@pytest.mark.parametrize("tag", OTHERS)
def test_why_a_check_cannot_be_applied_is_said_in_the_language_that_is_chosen(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence is translated where it is shown, with its values; other errors stay as they are."""
    error = Unsuitable("sentence_without_word", number=3, word="bank")
    assert str(error) == "sentence 3 does not contain “bank”: every one of them must"
    assert error_sentence(error).startswith("Sentence 3 does not contain")
    monkeypatch.setattr("viz_app.texts._Reader.language", staticmethod(lambda: tag))
    translated = page_texts("checks").in_language(tag)["unsuitable.sentence_without_word"].format(number=3, word="bank")
    assert error_sentence(error) == escape_markdown(translated[:1].upper() + translated[1:] + ".")
    assert error_sentence(Refused("there is no file")) == escape_markdown("There is no file.")


def test_a_language_is_chosen_by_the_address_and_stays_on_every_page() -> None:
    """A link opens it, the address keeps it, the frame, the list and the panel speak it; English is not in it."""
    german = lesson_of("the_bin", "de")
    app = settled(visited("learn", lang="de"))
    assert not app.exception and not app.error and app.query_params["lang"] == "de"
    assert german.question in words(app) and "Als Nächstes für dich:" in words(app)
    app = settled(visited("roles", **german.predict.view.address, lang="de", lesson="the_bin"))
    assert not app.exception and german.question in words(app) and "Was erwartest du?" in words(app)
    assert {"Satz", "Zweiter Satz"} <= {one.label for one in app.text_input}
    assert app.number_input[0].label == "Wie viele Prozent?"
    app.number_input[0].set_value(80).run()
    settled(next(one for one in app.button if one.key == "lesson_say").click().run())
    assert app.session_state.lang == "de" and "Finde einen anderen als L3 H2" in words(app)
    app.session_state.lang = "en"
    settled(app.run())
    assert "Find another one than L3 H2" in words(app) and "lang" not in app.query_params
    app = settled(visited("heads", lang="de"))
    assert app.title[0].value == "Ablation von Köpfen"
    assert "Diese Seite gibt es nur auf Englisch; die Fachwörter sind erklärt." in words(app)
    app = settled(visited("learn", lang="xx"))
    assert "The link says lang='xx', which is not possible: one of en, de" in words(app)


def test_an_answer_is_said_in_the_language_that_is_chosen_later() -> None:
    """A choice between answers was made in English and is repeated in German."""
    app = settled(visited("predict", **lesson_of("follows").predict.view.address, lesson="follows"))
    app.radio[0].set_value(0).run()
    settled(next(one for one in app.button if one.key == "lesson_say").click().run())
    app.session_state.lang, app.session_state.step = "de", "predict"
    settled(app.run())
    assert "Dein Tipp: unter 0.1: es bemerkt die falsche Reihenfolge" in words(app)


def test_a_teacher_may_add_a_language(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without words a lesson stays as it is, with them it speaks them; page and check name their faults."""
    assert lesson_of("mine", "de") == lesson_of("mine")
    text = re.sub(UNSAID, "", (folder / "mine.toml").read_text("utf-8"), flags=re.MULTILINE)
    file = folder / "de" / "mine.toml"
    file.parent.mkdir()
    file.write_text(text.replace("The missing word", "Das fehlende Wort"), "utf-8")
    assert lesson_of("mine", "de").title == "Das fehlende Wort" and folder_faults("de") == []
    assert lesson_of("mine").title == "The missing word" and said(capsys, "lessons", "check", "mine.toml")[0] == 0
    file.write_text(text.replace("The missing word", ""), "utf-8")
    assert lesson_of("mine", "de") == lesson_of("mine") and folder_faults() == []
    assert folder_faults("de") == ["de/mine.toml: title is empty: a text is needed"]
    status, _, err = said(capsys, "lessons", "check", "mine.toml")
    assert status == 2 and "de/mine.toml:3: de/mine.toml: title is empty: a text is needed" in err
