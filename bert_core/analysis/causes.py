"""What is made of patches: which tokens of two texts stand for each other, and whether an estimate tells the truth."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from bert_core.analysis.attribution import rank_agreement
from bert_core.records import Patches
from bert_core.refused import Refused, require_int, validate_arguments
from bert_core.tokenizer import Encoding, Tokenizer, join_pieces


class PatchEstimateQuality(NamedTuple):
    """How an estimate of patches stands beside the exact ones.

    agreement: rank correlation (Spearman) of the two, -1 to 1; NaN where one of them is the same everywhere.
    missed: the share of the places that move the answer most, exactly, which are not among as many of the estimate.
    top: how many places these are.
    """

    agreement: float
    missed: float
    top: int


@validate_arguments
def patch_estimate_quality(exact: Patches, estimate: Patches, top: int = 10) -> PatchEstimateQuality:
    """Hold an estimate against the exact patches of the same question.

    top: how many of the places with the largest change, either way, are looked for; all where there are fewer.
    Raises Refused for patches of different kinds or shapes, or fewer than two places.
    """
    top = require_int("top", top, 1)
    if (exact.kind, exact.axes, exact.values.shape) != (estimate.kind, estimate.axes, estimate.values.shape):
        raise Refused(
            f"patches of {exact.kind} {exact.values.shape} and of {estimate.kind} {estimate.values.shape}: give the "
            "same places twice"
        )
    both = np.isfinite(exact.values) & np.isfinite(estimate.values)
    changes = np.stack([exact.values[both] - exact.base_value, estimate.values[both] - estimate.base_value])
    if changes.shape[1] < 2:
        raise Refused(f"{changes.shape[1]} places have no order: it takes two")
    top = min(top, changes.shape[1])
    first, second = (set(np.argsort(-np.abs(row), kind="stable")[:top].tolist()) for row in changes)
    return PatchEstimateQuality(float(rank_agreement(changes)[0, 1]), 1 - len(first & second) / top, top)


class Partners(NamedTuple):
    """Which token of a source stands for each token of a text.

    partners: for each position of the text, the position in the source; None where there is none.
    alone, theirs: the words of the text, and of the source, that have no partner, as the vocabulary writes them.
    """

    partners: tuple[int | None, ...]
    unmatched: tuple[str, ...]
    unmatched_source: tuple[str, ...]


@validate_arguments
def word_partners(source: Encoding, encoding: Encoding) -> Partners:
    """The words of two texts laid beside each other, piece by piece.

    Equal words in the same order are partners, and so are as many different words between them. Two words of different
    numbers of pieces have no partners, as there is no saying which piece stands for which.
    """
    own, theirs = words_with_positions(encoding), words_with_positions(source)
    partners: list[int | None] = [None] * len(encoding)
    met, known = set(), set()
    ends, their_ends = (one.has_role("first", "between", "end") for one in (encoding, source))
    matcher = SequenceMatcher(None, [word for word, _ in theirs], [word for word, _ in own], autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind != "equal" and last - first != end - start:
            continue
        for one, other in zip(range(start, end), range(first, last), strict=True):
            (_, places), (_, of) = own[one], theirs[other]
            if len(places) == len(of) and ends[places[0]] == their_ends[of[0]]:
                met.add(one)
                known.add(other)
                for place, partner in zip(places, of, strict=True):
                    partners[place] = partner
    alone, left = (
        tuple(word for number, (word, _) in enumerate(words) if number not in found)
        for words, found in ((own, met), (theirs, known))
    )
    return Partners(tuple(partners), alone, left)


def mask_same_words(tokenizer: Tokenizer, source: Encoding, encoding: Encoding, words: Collection[int]) -> Encoding:
    """The source with the words hidden that stand for these words of a text; none for one that has no partner.

    encoding: the text as it was typed, nothing hidden. words: their numbers in it.
    """
    same = len(source) == len(encoding)
    partners = range(len(source)) if same else word_partners(source, encoding).partners
    hidden = {partners[place] for place, word in enumerate(encoding.words) if word in words}
    theirs = {source.words[place] for place in hidden if place is not None}
    return tokenizer.mask_words(source, tuple(word for word in theirs if word is not None))


def words_with_positions(encoding: Encoding) -> list[tuple[str, tuple[int, ...]]]:
    """Each word as the vocabulary writes it, [CLS] and [SEP] too, and the positions of its pieces."""
    found: list[tuple[str, tuple[int, ...]]] = []
    before: int | None = None
    for position, (number, piece) in enumerate(zip(encoding.words, encoding.tokens, strict=True)):
        if number is not None and number == before:
            word, places = found[-1]
            found[-1] = (join_pieces((word, piece)), (*places, position))
        else:
            found.append((piece, (position,)))
        before = number
    return found
