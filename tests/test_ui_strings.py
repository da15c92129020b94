"""Texts of the app: short sentences in the terms of the field, found by the tool that lists them."""

from __future__ import annotations

from pathlib import Path

from tools.list_ui_strings import DIALECT, MAX_WORDS, ROOT, UiString, is_prose, ui_strings

# Lessons 1 to 3 introduce attention as "looking at", and the German texts are German.
OTHER_LANGUAGE = ("viz_app/lessons/de/", "viz_app/texts/de/", "viz_app/glossary/de.toml")


def test_the_list_has_texts_of_every_kind_of_file_and_no_code(tmp_path: Path) -> None:
    """Pages, components, lessons and the library are in it; docstrings, styles and formulas are not."""
    strings = list(ui_strings())
    assert len(strings) > 2_000
    for start in ("viz_app/texts/en/", "viz_app/pages/", "viz_app/shell/", "viz_app/components/", "bert_core/"):
        assert any(string.file.startswith(start) for string in strings), start
    assert is_prose("Click a word to mask it.") and not is_prose("<div class='a b'>") and not is_prose("color: red;")
    module = tmp_path / "viz_app" / "page.py"
    module.parent.mkdir()
    module.write_text('"""A docstring of a module."""\nTEXT = f"Masked {word} of the text"\nKEY = "a_key"\n')
    (tmp_path / "bert_core" / "methods").mkdir(parents=True)
    for name in ("target_kinds.py", "task_heads.py"):
        (tmp_path / "bert_core" / name).touch()
    assert list(ui_strings(tmp_path)) == [UiString("viz_app/page.py", 2, "Masked {…} of the text")]


def test_no_sentence_is_longer_than_thirty_words() -> None:
    """In any language."""
    long = [
        f"{string.file}:{string.line}: {sentence}"
        for string in ui_strings()
        for sentence in string.sentences()
        if len(sentence.split()) > MAX_WORDS
    ]
    assert not long, "\n".join(long)


def test_texts_use_the_terms_of_the_field() -> None:
    """No text has a word that has a standard term; the patterns are in tools/list_ui_strings.py."""
    assert DIALECT.search("the hidden word") and not DIALECT.search("the masked word")
    found = [
        f"{string.file}:{string.line}: {string.text}"
        for string in ui_strings(ROOT)
        if not string.file.startswith(OTHER_LANGUAGE) and DIALECT.search(string.text)
    ]
    assert not found, "\n".join(found)
