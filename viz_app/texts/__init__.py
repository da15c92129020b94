"""The static texts of the app, by key: a TOML file for each page and each shared part, in a folder for each language.

The file of a page has `title` and `line` (one sentence below the title), `reading` and `misleads` (below the figure),
tables of further texts, and in `[controls.NAME]` label, help and options of the control of a parameter.
`en` has all texts. A key that another language does not have is shown in English.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bert_core.refused import Refused

# Names of languages in themselves, by tag.
LANGUAGES = {"en": "English", "de": "Deutsch"}
ENGLISH = "en"
_FOLDER = Path(__file__).parent


class _Reader:
    """The reader of the app. language: returns the tag of their language; English until `set_reader_language`."""

    language: Callable[[], str] = staticmethod(lambda: ENGLISH)


def set_reader_language(language: Callable[[], str]) -> None:
    """Set the function that returns the tag of the language in which texts are looked up."""
    _Reader.language = staticmethod(language)


@dataclass(frozen=True)
class PageTexts:
    """The texts of one file, looked up in the language of the reader. Raises KeyError for a text that English lacks.

    A text that a module looks up when it is imported is in the language of the first reader: look it up when it is
    drawn.

    path: the name of the file. values: its English texts. tag: of a language other than that of the reader.
    """

    path: str
    values: Mapping[str, Any]
    tag: str | None = None

    def __getitem__(self, key: str) -> str:
        """Return a text by its key; "help.upload" is the text `upload` of the table `help`."""
        return str(self._value(key))

    def get(self, key: str, default: str) -> str:
        """Return a text by its key, or the default if the file does not have it."""
        try:
            return self[key]
        except KeyError:
            return default

    def options(self, key: str) -> dict[str, str]:
        """Return a table of texts by its key."""
        return dict(self._value(key))

    def control(self, name: str) -> dict[str, Any]:
        """Return label, help and options of a control, for the constructor of its parameter."""
        return self.options(f"controls.{name}")

    def in_language(self, tag: str | None) -> PageTexts:
        """Return the same texts in a language; None: that of the reader."""
        return replace(self, tag=tag)

    @property
    def own_values(self) -> Mapping[str, Any]:
        """The texts of the file that the language has."""
        return self.values if self._language == ENGLISH else _read(self._language, self.path)

    @property
    def is_translated(self) -> bool:
        """Whether the language has every text."""
        return keys(self.values) <= keys(self.own_values)

    @property
    def _language(self) -> str:
        return _Reader.language() if self.tag is None else self.tag

    def _value(self, key: str) -> Any:
        english: Any = self.values
        translation: Any = {} if self._language == ENGLISH else _read(self._language, self.path)
        for part in key.split("."):
            english, translation = english[part], translation.get(part, {})
        return _merged(english, translation)


@cache
def page_texts(path: str) -> PageTexts:
    """Return the texts of a file. path: its name, which for a page is that of the page in the address."""
    return PageTexts(path, _read(ENGLISH, path))


class Phrase(str):
    """A text in English that is translated where it is shown; for a value that readers of all languages share."""

    def __new__(cls, texts: PageTexts, key: str) -> Phrase:
        """Return the text of a key."""
        phrase = super().__new__(cls, texts.in_language(ENGLISH)[key])
        phrase._texts, phrase._key = texts, key
        return phrase

    _texts: PageTexts
    _key: str

    def __reduce__(self) -> tuple[type[Phrase], tuple[PageTexts, str]]:
        """Return how a copy is made."""
        return type(self), (self._texts, self._key)

    def translated(self, tag: str | None = None) -> str:
        """Return the text in a language; None: that of the reader."""
        return self._texts.in_language(tag)[self._key]


class TranslatedRefusal(Refused):
    """An error whose sentence is translated where it is shown. phrase: with the names of `values` in braces."""

    def __init__(self, phrase: Phrase, **values: object) -> None:
        super().__init__(phrase.format(**values))
        self._phrase, self._values = phrase, values

    @property
    def sentence(self) -> str:
        """The sentence in the language of the reader."""
        return self._phrase.translated().format(**self._values)


def keys(values: Mapping[str, Any], start: str = "") -> set[str]:
    """Return the keys of all texts of a file."""
    names = set[str]()
    for name, value in values.items():
        names |= keys(value, f"{start}{name}.") if isinstance(value, Mapping) else {start + name}
    return names


@cache
def _read(tag: str, path: str) -> Mapping[str, Any]:
    """Return the texts of a file in a language; English has every file, another language may lack it."""
    file = _FOLDER / tag / f"{path}.toml"
    return tomllib.loads(file.read_text("utf-8")) if tag == ENGLISH or file.is_file() else {}


def _merged(english: Any, translation: Any) -> Any:
    """Return a text, or all texts of a table, with the English ones where the other language has none."""
    if isinstance(english, Mapping):
        return {name: _merged(value, translation.get(name, {})) for name, value in english.items()}
    return translation or english
