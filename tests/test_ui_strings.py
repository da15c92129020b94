"""Texts of the app and documents: short sentences in the terms of the field."""

from __future__ import annotations

import json
from pathlib import Path

from tools.lint_prose import findings, parts
from tools.list_ui_strings import ROOT, UiString, is_prose, ui_strings


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


def test_no_text_has_a_finding() -> None:
    """Neither a word that has a standard term nor a sentence of more than 30 words."""
    assert not findings([], ui_strings())


def test_the_linter_reports_words_and_long_sentences(tmp_path: Path) -> None:
    """Of a document and of a text of the app, with their places; code, targets of links and tables have no words."""
    long = " ".join(["word"] * 31)
    most = " ".join(["word"] * 28) + " `some code` [word](https://example.org/a-b)"
    clean = f"# The masked word\n\n**A label:** {most}. {most}\n\n| a table |\n| --- |\n| {long} |\n"
    document = tmp_path / "document.md"
    document.write_text(f"{clean}\n{long}\n\nThe hidden word. **{long}**\n", encoding="utf-8")
    (tmp_path / "clean.md").write_text(clean, encoding="utf-8")
    texts = [UiString("page.py", 7, "The masked word"), UiString("page.py", 8, f"As here.\n\nThe hidden word: {long}")]
    assert findings([str(document), str(tmp_path / "clean.md")], texts) == [
        f"{document}:9: A sentence of 31 words, 1 too many",
        f"{document}:11: hidden word => masked word",
        f"{document}:11: A sentence of 31 words, 1 too many",
        "page.py:10: A sentence of 34 words, 4 too many",
        "page.py:10: hidden word => masked word",
    ]
    assert not findings([str(tmp_path / "clean.md")], texts[:1])


def test_parts_of_other_files_are_linted(tmp_path: Path) -> None:
    """The next and the last release of the changelog, without earlier ones, and the Markdown cells of a notebook."""
    (release,) = parts("CHANGELOG.md")
    assert release.text.count("\n## ") == 2 and (ROOT / "CHANGELOG.md").read_text("utf-8").startswith(release.text)
    notebook = tmp_path / "a.ipynb"
    cells = [{"cell_type": "code", "source": ["x = 1"]}, {"cell_type": "markdown", "source": ["A\n", "cell"]}]
    notebook.write_text(json.dumps({"cells": cells}))
    assert [text.text for text in parts(str(notebook))] == ["A\ncell"]
