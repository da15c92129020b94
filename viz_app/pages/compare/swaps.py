"""A second text for a comparison: the first one with one word swapped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from bert_core.tokenizer import Encoding
from viz_app.pages.compare import TEXTS
from viz_app.shell.selection import Selection, longest_word

SWAPS: dict[str, str] = {}  # words by their counterpart of another gender or number
for _first, _second in (pair.split() for pair in TEXTS["swaps"].split(",")):
    SWAPS.setdefault(_first, _second)
    SWAPS.setdefault(_second, _first)


def swap_word(original: Encoding, masked: Collection[int]) -> str | None:
    """Return the first sentence with its first word that has a counterpart in `SWAPS` swapped; None if none has.

    masked: numbers of words that stay.
    """
    for word in _words(original, masked):
        text = original.word_text(word)
        if (swapped := SWAPS.get(text.casefold())) is not None:
            return _with_word(original, word, swapped.capitalize() if text[:1].isupper() else swapped)
    return None


def guessed_text(current: Selection, masked: Collection[int]) -> str | None:
    """Return the first sentence with its longest word replaced by another one that the model predicts there.

    masked: numbers of words that stay. None if the model predicts no words.
    """
    words = _words(current.original, masked)
    if not words or not current.loaded.has_head("words"):
        return None
    word = longest_word(current.original)
    if word not in words:
        word = max(words, key=lambda number: len(current.original.word_text(number)))
    encoding = current.loaded.tokenizer.mask_words(current.original, (word,))
    (prediction, *_) = replace(current, encoding=encoding, target=None).run().predictions or (None,)
    guesses = () if prediction is None else (current.word(token) for token, _ in prediction.top)
    text = current.original.word_text(word).casefold()
    alternatives = (guess for guess in guesses if guess.isalpha() and guess.casefold() != text)
    return next((_with_word(current.original, word, guess) for guess in alternatives), None)


def _words(original: Encoding, masked: Collection[int]) -> list[int]:
    """Return the numbers of the words of the first sentence that are not masked."""
    return [
        word
        for word in range(original.word_count)
        if word not in masked
        and (first := original.pieces_of(word)[0]) not in original.mask_positions
        and original.sides[first] == "A"
    ]


def _with_word(original: Encoding, word: int, replacement: str) -> str:
    pieces = original.pieces_of(word)
    start, end = original.offsets[pieces[0]][0], original.offsets[pieces[-1]][1]
    text = original.text
    start += len(text[start:end]) - len(text[start:end].lstrip())  # some vocabularies count the space before a word
    return text[:start] + replacement + text[end:]
