"""The answers of a reader in all lessons as files: a self-contained HTML page, and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from viz_app.export.policy import hash_source

STYLE = """
:root { color-scheme: light dark; }
body { max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 1.05rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; }
h2 { margin: 2rem 0 0.3rem; font-size: 1.2rem; }
p { margin: 0.4rem 0; }
.says { white-space: pre-line; }
a { margin-right: 1rem; }
@media print { a { color: inherit; } }
"""


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
    policy = f"default-src 'none'; style-src '{hash_source(STYLE)}'; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="{escape(words.language)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(words.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(words.title)}</h1>\n"
        + "".join(_section(entry, words) for entry in entries)
        + "</body>\n</html>\n"
    )


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


def _section(entry: Entry, words: Words) -> str:
    right = "" if entry.right is None else f" ({words.right if entry.right else words.wrong})"
    links = "".join(
        f'<a href="{escape(link)}">{escape(name)}</a>'
        for name, link in entry.links
        if link.startswith(("http://", "https://"))
    )
    outcome = f'<p class="says">{escape(entry.outcome)}</p>\n' if entry.outcome else ""
    return (
        f"<h2>{escape(entry.title)}</h2>\n<p>{escape(entry.question)}</p>\n"
        f"<p><b>{escape(words.expected)}</b> {escape(entry.answer)}{escape(right)}</p>\n{outcome}<p>{links}</p>\n"
    )
