"""The glossary: every technical word of the pages with one sentence, from `terms.toml`; and where a text says one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TERMS = Path(__file__).parent / "terms.toml"


@dataclass(frozen=True)
class Term:
    """One term: the forms in which a text may say it, and what it means in one sentence.

    page: the path of a page that says it. source, link: who said it first or measured it so; empty where nobody knows.
    """

    forms: tuple[str, ...]
    says: str
    page: str
    source: str = ""
    link: str = ""

    @property
    def name(self) -> str:
        """The form that stands for all."""
        return self.forms[0]

    @property
    def letters(self) -> str:
        """What it is sorted by."""
        return self.name.strip("[]").casefold()


@cache
def terms() -> tuple[Term, ...]:
    """All terms in alphabetical order."""
    table = tomllib.loads(TERMS.read_text("utf-8"))["term"]
    made = (Term(**(one | {"forms": tuple(one["forms"])})) for one in table)
    return tuple(sorted(made, key=lambda term: term.letters))


def first_uses(text: str) -> Iterator[tuple[int, int, Term]]:
    """Where a text says a term for the first time, as start and end, from left to right."""
    seen: set[str] = set()
    for match in _pattern().finditer(text):
        term = _by_form()[match[0].casefold()]
        if term.name not in seen:
            seen.add(term.name)
            yield match.start(), match.end(), term


def like(typed: str) -> list[Term]:
    """The terms one form of which holds what was typed; that with just this form first."""
    wanted = typed.strip().casefold()
    found = [term for term in terms() if any(wanted in form.casefold() for form in term.forms)]
    return sorted(found, key=lambda term: wanted not in (form.casefold() for form in term.forms))


@cache
def _by_form() -> dict[str, Term]:
    return {form.casefold(): term for term in terms() for form in term.forms}


@cache
def _pattern() -> re.Pattern[str]:
    """Any form as a word of its own, the longest that fits."""
    forms = sorted(_by_form(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, forms))})(?![\w-])", re.IGNORECASE)
