"""Analysis of activation patching: which tokens of two texts correspond, and how accurate an estimate of patches is."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from bert_core.analysis.attribution import rank_agreement
from bert_core.deprecation import renamed_fields
from bert_core.records import Patches
from bert_core.refused import Refused, require_int, validate_arguments
from bert_core.tokenizer import Encoding, Tokenizer, join_pieces


class PatchEstimateQuality(NamedTuple):
    """Accuracy of estimated patches compared with the exact ones.

    agreement: Spearman's rank correlation of the changes of the target, -1 to 1. NaN if one of the two is constant.
    missed: share of the `top` places with the largest exact change that are not among the `top` largest estimated ones.
    top: number of places compared.
    """

    agreement: float
    missed: float
    top: int


@validate_arguments
def patch_estimate_quality(exact: Patches, estimate: Patches, top: int = 10) -> PatchEstimateQuality:
    """Compare estimated patches with the exact patches of the same target.

    top: number of places with the largest absolute change to compare. All places if there are fewer.
    Raises Refused if the two differ in kind or shape, or there are fewer than two places.
    """
    top = require_int("top", top, 1)
    exact_form, estimate_form = ((p.kind, p.axes, p.values.shape) for p in (exact, estimate))
    if exact_form != estimate_form:
        raise Refused(
            f"the exact patches are of {exact.kind} {exact.values.shape} and the estimated ones of "
            f"{estimate.kind} {estimate.values.shape}: both must be of the same places"
        )
    patched = np.isfinite(exact.values) & np.isfinite(estimate.values)
    changes = np.stack([exact.values[patched] - exact.base_value, estimate.values[patched] - estimate.base_value])
    if changes.shape[1] < 2:
        raise Refused(f"the number of patched places is {changes.shape[1]}: a rank correlation needs at least two")
    top = min(top, changes.shape[1])
    first, second = (set(np.argsort(-np.abs(row), kind="stable")[:top].tolist()) for row in changes)
    return PatchEstimateQuality(float(rank_agreement(changes)[0, 1]), 1 - len(first & second) / top, top)


@renamed_fields(alone="unmatched", theirs="unmatched_source")
class Partners(NamedTuple):
    """Alignment of the tokens of a text with those of a source text.

    partners: for each position of the text, the corresponding position of the source, or None.
    unmatched: words of the text without a partner, as the vocabulary spells them.
    unmatched_source: words of the source without a partner, as the vocabulary spells them.
    """

    partners: tuple[int | None, ...]
    unmatched: tuple[str, ...]
    unmatched_source: tuple[str, ...]


@validate_arguments
def word_partners(source: Encoding, encoding: Encoding) -> Partners:
    """Align the words of a text with those of a source text, and their word pieces one by one.

    Equal words in the same order are partners. A run of different words between them is aligned one by one if both
    texts have the same number of words there. Words with different numbers of word pieces are not aligned, because the
    correspondence of their pieces is undefined.
    """
    text_words, source_words = words_with_positions(encoding), words_with_positions(source)
    partners: list[int | None] = [None] * len(encoding)
    matched, matched_source = set(), set()
    is_special, source_is_special = (text.has_role("first", "between", "end") for text in (encoding, source))
    matcher = SequenceMatcher(
        None, [word for word, _ in source_words], [word for word, _ in text_words], autojunk=False
    )
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind != "equal" and last - first != end - start:
            continue
        for number, source_number in zip(range(start, end), range(first, last), strict=True):
            (_, positions), (_, source_positions) = text_words[number], source_words[source_number]
            if (
                len(positions) == len(source_positions)
                and is_special[positions[0]] == source_is_special[source_positions[0]]
            ):
                matched.add(number)
                matched_source.add(source_number)
                for position, partner in zip(positions, source_positions, strict=True):
                    partners[position] = partner
    unmatched, unmatched_source = (
        tuple(word for number, (word, _) in enumerate(words) if number not in matches)
        for words, matches in ((text_words, matched), (source_words, matched_source))
    )
    return Partners(tuple(partners), unmatched, unmatched_source)


def mask_same_words(tokenizer: Tokenizer, source: Encoding, encoding: Encoding, words: Collection[int]) -> Encoding:
    """Return the source with those words masked that are the partners of some words of a text.

    encoding: the text without masks.
    words: numbers of the words in this text. A word without a partner masks nothing.
    """
    same_length = len(source) == len(encoding)
    partners = range(len(source)) if same_length else word_partners(source, encoding).partners
    masked = {partners[position] for position, word in enumerate(encoding.words) if word in words}
    source_words = {source.words[position] for position in masked if position is not None}
    return tokenizer.mask_words(source, tuple(word for word in source_words if word is not None))


def words_with_positions(encoding: Encoding) -> list[tuple[str, tuple[int, ...]]]:
    """Return each word, [CLS] and [SEP] included, as the vocabulary spells it, with the positions of its pieces."""
    words: list[tuple[str, tuple[int, ...]]] = []
    previous_number: int | None = None
    for position, (number, piece) in enumerate(zip(encoding.words, encoding.tokens, strict=True)):
        if number is not None and number == previous_number:
            word, positions = words[-1]
            words[-1] = (join_pieces((word, piece)), (*positions, position))
        else:
            words.append((piece, (position,)))
        previous_number = number
    return words
