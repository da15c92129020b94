"""The glossary: every technical term of the pages with one sentence, from `terms.toml`; and the terms in a text.

The translations are in a file named by the tag of the language, by the English names of the terms. A translated text
can contain a term in English, too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

from viz_app.texts import ENGLISH

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Term:
    """One term: the forms in which a text can contain it, and its meaning in one sentence.

    page: path of a page that contains it. source, link: the publication that introduced or measured it, or "". english:
    its English name, if that is another. synonyms: found by the search, but not in texts. pages: the only pages whose
    texts are searched for it, if others use the word in another sense.
    """

    forms: tuple[str, ...]
    meaning: str
    page: str
    source: str = ""
    link: str = ""
    english: str = ""
    synonyms: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first form."""
        return self.forms[0]

    @property
    def letters(self) -> str:
        """The key by which terms are sorted."""
        return self.name.strip("[]").casefold()

    @property
    def title(self) -> str:
        """The name, followed by the English one if that is another."""
        return f"{self.name} ({self.english})" if self.english else self.name


@cache
def terms(language: str = ENGLISH) -> tuple[Term, ...]:
    """Return all terms in alphabetical order. language: one of `lessons.LANGUAGES`."""
    table = tomllib.loads((FOLDER / "terms.toml").read_text("utf-8"))["term"]
    all_terms = [
        Term(**{**entry, **{name: tuple(entry.get(name, ())) for name in ("forms", "synonyms", "pages")}})
        for entry in table
    ]
    if language != ENGLISH:
        words = tomllib.loads((FOLDER / f"{language}.toml").read_text("utf-8"))
        all_terms = [_translate(term, **words[term.name]) for term in all_terms]
    return tuple(sorted(all_terms, key=lambda term: term.letters))


def _translate(term: Term, forms: list[str], meaning: str) -> Term:
    english = "" if term.name.casefold() == forms[0].casefold() else term.name
    return replace(term, forms=(*forms, *term.forms), meaning=meaning, english=english)


def first_uses(text: str, language: str = ENGLISH, page: str = "") -> Iterator[tuple[int, int, Term]]:
    """Yield start, end and term of the first occurrence of each term in a text, from left to right.

    page: path of the page that shows the text; without one, terms of certain pages only are found too.
    """
    names: set[str] = set()
    for match in _pattern(language).finditer(text):
        term = _by_form(language)[match[0].casefold()]
        if term.name not in names and (not term.pages or not page or page in term.pages):
            names.add(term.name)
            yield match.start(), match.end(), term


def find_terms(query: str, language: str = ENGLISH) -> list[Term]:
    """Return the terms with a form that contains the query, or a word of a synonym that begins with it."""
    query_text = query.strip().casefold()
    names = {term: [name.casefold() for name in (*term.forms, *term.synonyms)] for term in terms(language)}
    matches = [
        term
        for term in names
        if any(query_text in form.casefold() for form in term.forms)
        or any(f" {query_text}" in f" {synonym.casefold()}" for synonym in term.synonyms)
    ]
    return sorted(matches, key=lambda term: query_text not in names[term])


@cache
def _by_form(language: str) -> dict[str, Term]:
    return {form.casefold(): term for term in terms(language) for form in term.forms}


@cache
def _pattern(language: str) -> re.Pattern[str]:
    """Match any form as a separate word, the longest first; grouped by first letters, which is five times as fast."""
    forms = sorted(_by_form(language), key=lambda form: (form[0], -len(form)))
    groups = (
        f"{re.escape(letter)}(?:{'|'.join(re.escape(form[1:]) for form in group)})"
        for letter, group in groupby(forms, key=lambda form: form[0])
    )
    return re.compile(rf"(?<![\w-])(?:{'|'.join(groups)})(?![\w-])", re.IGNORECASE)
