"""Which head finds which dependency relation: for every word, is the word it is tied to most by attention its head?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.units import map_of_units
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding

DIRECTIONS = ("dependent to head", "head to dependent")
MAX_OFFSET = 8  # words: the fixed offsets that are tried go this far to both sides


class RelationRow(NamedTuple):
    """One relation, the head that finds it best, and the best fixed offset.

    asked: how often. layer, head, direction, accuracy: of the best head; None if no head finds any.
    offset: how many words further on the head of the relation is looked for, negative before the word.
    """

    relation: str
    asked: int
    layer: int | None
    head: int | None
    direction: str | None
    accuracy: float
    offset: int
    offset_accuracy: float


def pieces_of_words(encoding: Encoding, spans: Sequence[tuple[int, int] | None]) -> list[tuple[int, ...]]:
    """The positions of every word's pieces: those that start inside its span; empty for a word without any.

    spans: (word,), rising, of characters in the first text.
    """
    pieces: list[tuple[int, ...]] = []
    starts = [(n, encoding.offsets[n][0]) for n, side in enumerate(encoding.sides) if side == "A"]
    for span in spans:
        pieces.append(() if span is None else tuple(n for n, start in starts if span[0] <= start < span[1]))
    return pieces


class RelationTally:
    """Right answers of every head and of every fixed offset, relation by relation, over the sentences so far.

    asked: relation -> how often. left_out: relations of words of which no piece was read. sentences: how many.
    A head is asked in two directions: for a dependent, the word that it attends to most; or the word that attends to
    it most. The word itself and the added [CLS] and [SEP] are no answer.
    Source: Clark 2019, section 4.2 (arXiv:1906.04341).
    """

    def __init__(self, layers: int, heads: int) -> None:
        self.counts: Counter[str] = Counter()
        self.left_out = 0
        self.sentences = 0
        self._right: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((len(DIRECTIONS), layers, heads), np.int64))
        self._offsets: dict[str, Counter[int]] = defaultdict(Counter)
        self._there = np.ones((layers, heads), bool)

    def add(
        self,
        attention: np.ndarray,
        encoding: Encoding,
        spans: Sequence[tuple[int, int] | None],
        heads: Sequence[int | None],
        relations: Sequence[str],
    ) -> None:
        """Ask every head about one sentence.

        attention: (layer, head, query, key), between pieces. spans, heads, relations: (word,), as in a TreeSentence.
        """
        pieces = pieces_of_words(encoding, spans)
        read = [word for word, own in enumerate(pieces) if own]
        place = {word: number for number, word in enumerate(read)}
        self.sentences += 1
        self._there &= np.isfinite(attention[:, :, 0, 0])
        tied = [(word, head) for word, head in enumerate(heads) if head is not None]
        asked = [(word, head) for word, head in tied if word in place and head in place]
        self.left_out += len(tied) - len(asked)
        if not asked:
            return
        between = map_of_units(attention, [pieces[word] for word in read])  # (layer, head, word, word)
        itself = np.arange(len(read))
        between[..., itself, itself] = -1
        answers = np.stack([between.argmax(-1), between.argmax(-2)])  # (direction, layer, head, dependent)
        for word, head in asked:
            relation = relations[word]
            self.counts[relation] += 1
            self._right[relation] += answers[..., place[word]] == place[head]
            self._offsets[relation][head - word] += 1

    def rows(self, min_count: int = 1) -> list[RelationRow]:
        """One row for each relation that was asked at least `least` times, the most frequent first."""
        table = []
        for relation, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0])):
            if count < min_count:
                continue
            near = {offset: right for offset, right in self._offsets[relation].items() if abs(offset) <= MAX_OFFSET}
            offset = max(near, key=lambda offset: (near[offset], -abs(offset), offset), default=1)
            right = np.where(self._there, self._right[relation], -1)
            direction, layer, head = map(int, np.unravel_index(right.argmax(), right.shape))
            any_right = bool(right[direction, layer, head] > 0)
            table.append(
                RelationRow(
                    relation,
                    count,
                    layer if any_right else None,
                    head if any_right else None,
                    DIRECTIONS[direction] if any_right else None,
                    right[direction, layer, head] / count if self._there.any() else float("nan"),
                    offset,
                    near.get(offset, 0) / count,
                )
            )
        return table

    def rows_of_head(self, layer: int, head: int, min_count: int = 20) -> list[RelationRow]:
        """The relations that this head finds best of all heads, and better than any fixed offset; the surest first.

        least: how often a relation was asked, at least.
        """
        own = [row for row in self.rows(min_count) if (row.layer, row.head) == (layer, head)]
        return sorted((row for row in own if row.accuracy > row.offset_accuracy), key=lambda row: -row.accuracy)

    def accuracy(self, relation: str) -> np.ndarray:
        """(direction, layer, head), the share of right answers; NaN for a head that is not there.

        Raises Refused for a relation that was never asked.
        """
        if not self.counts[relation]:
            raise Refused(f"the relation {relation!r} was not asked: {', '.join(sorted(self.counts)) or 'none was'}")
        shares: np.ndarray = np.where(self._there, self._right[relation] / self.counts[relation], np.nan)
        return shares
