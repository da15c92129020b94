"""The first sentence of a text with one word replaced."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bert_core.tokenizer import Encoding

_PAIRS = """
he she, his her, him her, himself herself, man woman, men women, boy girl, boys girls, father mother, son daughter,
brother sister, husband wife, king queen, prince princess, uncle aunt, actor actress, waiter waitress, mr mrs, is are,
was were, has have, this these, that those, child children, person people, dog dogs, cat cats, bird birds, horse horses,
key keys, door doors, book books, house houses, car cars, tree trees, friend friends, author authors, teacher teachers,
student students, doctor doctors, river rivers, letter letters
"""  # counterparts of another gender or number
SWAPS: dict[str, str] = {}  # words by their counterparts
for _first, _second in (pair.split() for pair in _PAIRS.split(",")):
    SWAPS.setdefault(_first, _second)
    SWAPS.setdefault(_second, _first)


def swap_word(original: Encoding, masked: Collection[int], swaps: Mapping[str, str]) -> str | None:
    """Return the first sentence with its first word that has a counterpart swapped; None if none has.

    masked: numbers of words that stay. swaps: counterparts of words in lower case.
    """
    swap = swapped_word(original, masked, swaps)
    return None if swap is None else replace_word(original, *swap)


def swapped_word(original: Encoding, masked: Collection[int], swaps: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the number of the first word that has a counterpart, and this; the arguments are those of `swap_word`."""
    for word in unmasked_words(original, masked):
        text = original.word_text(word)
        if (swapped := swaps.get(text.casefold())) is not None:
            return word, swapped.capitalize() if text[:1].isupper() else swapped
    return None


def unmasked_words(original: Encoding, masked: Collection[int]) -> list[int]:
    """Return the numbers of the words of the first sentence that are not masked."""
    return [
        word
        for word in range(original.word_count)
        if word not in masked
        and (first := original.pieces_of(word)[0]) not in original.mask_positions
        and original.sides[first] == "A"
    ]


def replace_word(original: Encoding, word: int, replacement: str) -> str:
    """Return the first sentence with the word of a number replaced."""
    pieces = original.pieces_of(word)
    start, end = original.offsets[pieces[0]][0], original.offsets[pieces[-1]][1]
    text = original.text
    start += len(text[start:end]) - len(text[start:end].lstrip())  # some vocabularies count the space before a word
    return text[:start] + replacement + text[end:]
