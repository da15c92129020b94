"""A second text for a comparison: the first one with one word swapped."""

from __future__ import annotations

from dataclasses import replace

from viz_app.shell.selection import Selection, longest_word
from viz_app.shell.swaps import replace_word, unmasked_words


def guessed_text(current: Selection) -> str | None:
    """Return the first sentence with its longest word replaced by another one that the model predicts there.

    Masked words stay. None if the model predicts no words.
    """
    words = unmasked_words(current.original, current.masked_words)
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
    return next((replace_word(current.original, word, guess) for guess in alternatives), None)
