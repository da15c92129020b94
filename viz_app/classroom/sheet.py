"""The answers of a reader in all lessons as files: a self-contained HTML page, and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from viz_app.export.markup import render


class Entry(NamedTuple):
    """One lesson: its question, the answer, the text of the reveal, and links to its steps with their labels."""

    lesson: str
    title: str
    question: str
    answer: str
    right: bool | None
    outcome: str
    links: tuple[tuple[str, str], ...]


class Words(NamedTuple):
    """The labels of the page in the language of the reader; language: its tag."""

    language: str
    title: str
    expected: str
    right: str
    wrong: str


def as_page(entries: Sequence[Entry], words: Words) -> str:
    """Return all entries as one HTML page without scripts and requests; every text is escaped."""
    return render("classroom/sheet.html", entries=entries, words=words)


def as_json(entries: Sequence[Entry]) -> str:
    """Return all entries as JSON: lesson, title, question, answer, right (null if unknown), found, links by step."""
    rows = [
        {
            **{name: getattr(entry, name) for name in ("lesson", "title", "question", "answer", "right")},
            "found": entry.outcome,
            "links": dict(entry.links),
        }
        for entry in entries
    ]
    return json.dumps(rows, ensure_ascii=False, indent=2)
