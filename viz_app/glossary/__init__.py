"""The glossary: every technical word of the pages with one sentence, from `terms.toml`; and where a text says one.

What it says in another language stands in a file called after the language, under the English names of the terms: only
its words. There a text may say a term in English, too, as most pages do.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

from viz_app.lessons import ENGLISH

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Term:
    """One term: the forms in which a text may say it, and what it means in one sentence.

    page: the path of a page that says it. source, link: who said it first or measured it so; empty where nobody knows.
    english: what it is called in English, where that is not its name.
    """

    forms: tuple[str, ...]
    meaning: str
    page: str
    source: str = ""
    link: str = ""
    english: str = ""

    @property
    def name(self) -> str:
        """The form that stands for all."""
        return self.forms[0]

    @property
    def letters(self) -> str:
        """What it is sorted by."""
        return self.name.strip("[]").casefold()

    @property
    def title(self) -> str:
        """Its name, and beside it what it is called in English, where that is another."""
        return f"{self.name} ({self.english})" if self.english else self.name


@cache
def terms(language: str = ENGLISH) -> tuple[Term, ...]:
    """All terms in alphabetical order. language: one of `lessons.LANGUAGES`."""
    table = tomllib.loads((FOLDER / "terms.toml").read_text("utf-8"))["term"]
    made = [Term(**(one | {"forms": tuple(one["forms"])})) for one in table]
    if language != ENGLISH:
        words = tomllib.loads((FOLDER / f"{language}.toml").read_text("utf-8"))
        made = [_in_other_words(term, **words[term.name]) for term in made]
    return tuple(sorted(made, key=lambda term: term.letters))


def _in_other_words(term: Term, forms: list[str], meaning: str) -> Term:
    english = "" if term.name.casefold() == forms[0].casefold() else term.name
    return replace(term, forms=(*forms, *term.forms), meaning=meaning, english=english)


def first_uses(text: str, language: str = ENGLISH) -> Iterator[tuple[int, int, Term]]:
    """Where a text says a term for the first time, as start and end, from left to right."""
    seen: set[str] = set()
    for match in _pattern(language).finditer(text):
        term = _by_form(language)[match[0].casefold()]
        if term.name not in seen:
            seen.add(term.name)
            yield match.start(), match.end(), term


def find_terms(typed: str, language: str = ENGLISH) -> list[Term]:
    """The terms one form of which holds what was typed; that with just this form first."""
    wanted = typed.strip().casefold()
    found = [term for term in terms(language) if any(wanted in form.casefold() for form in term.forms)]
    return sorted(found, key=lambda term: wanted not in (form.casefold() for form in term.forms))


@cache
def _by_form(language: str) -> dict[str, Term]:
    return {form.casefold(): term for term in terms(language) for form in term.forms}


@cache
def _pattern(language: str) -> re.Pattern[str]:
    """Any form as a word of its own, the longest that fits: by first letters, which takes a fifth of the time."""
    forms = sorted(_by_form(language), key=lambda form: (form[0], -len(form)))
    some = (
        f"{re.escape(letter)}(?:{'|'.join(re.escape(form[1:]) for form in group)})"
        for letter, group in groupby(forms, key=lambda form: form[0])
    )
    return re.compile(rf"(?<![\w-])(?:{'|'.join(some)})(?![\w-])", re.IGNORECASE)
