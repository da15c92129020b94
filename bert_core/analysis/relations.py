"""Accuracy of each attention head in predicting dependency relations: the syntactic head of a word by its attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.units import map_of_units
from bert_core.deprecation import RenamedAttribute, renamed_parameters
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding

DIRECTIONS = ("dependent to head", "head to dependent")
MAX_OFFSET = 8  # words: largest distance of the fixed offsets of the baseline


class RelationRow(NamedTuple):
    """One dependency relation with the attention head that predicts it best and the best fixed offset.

    asked: number of occurrences; for a head of a local layer, of those whose two words are within its window.
    layer, head, direction, accuracy: the best attention head. None, and accuracy 0, if no head is ever
        correct. The accuracy is NaN if all heads are pruned.
    offset: number of words after the dependent (negative before) at which the baseline predicts the syntactic head.
    offset_accuracy: accuracy of this baseline in the same occurrences, 0 to 1.
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
    """Return the positions of the word pieces that start inside the span of each word, empty for None.

    spans: (word,), rising spans of characters in the first text.
    """
    pieces: list[tuple[int, ...]] = []
    starts = [(n, encoding.offsets[n][0]) for n, side in enumerate(encoding.sides) if side == "A"]
    for span in spans:
        pieces.append(() if span is None else tuple(n for n, start in starts if span[0] <= start < span[1]))
    return pieces


class RelationTally:
    """Correct predictions of every attention head and every fixed offset by relation, accumulated over sentences.

    Each attention head predicts in two directions: the word that the dependent attends to most, and the word that
    attends most to the dependent. The dependent itself, [CLS] and [SEP] are excluded. A head of a local layer is only
    asked for relations within its window.

    windows: for each layer the largest distance between a query and a key, as in `ModelRun`; empty for any distance.
    counts: relation -> number of occurrences.
    left_out: number of relations left out because a word has no word piece, as after truncation.
    sentences: number of sentences.
    Source: Clark 2019, section 4.2 (arXiv:1906.04341).
    """

    def __init__(self, layers: int, heads: int, windows: Sequence[int | None] = ()) -> None:
        self.windows = tuple(windows) or (None,) * layers
        self.counts: Counter[str] = Counter()
        self.left_out = 0
        self.sentences = 0
        self._right: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((len(DIRECTIONS), layers, heads), np.int64))
        # By window and relation: how often each offset is right, in occurrences within the window.
        self._offsets: dict[tuple[int | None, str], Counter[int]] = defaultdict(Counter)
        self._exists = np.ones((layers, heads), bool)

    def add(
        self,
        attention: np.ndarray,
        encoding: Encoding,
        spans: Sequence[tuple[int, int] | None],
        heads: Sequence[int | None],
        relations: Sequence[str],
    ) -> None:
        """Count the predictions of every attention head for one sentence.

        attention: (layer, head, query, key), between word pieces.
        spans, heads, relations: (word,), as in a `TreeSentence`.
        """
        pieces = pieces_of_words(encoding, spans)
        words = [word for word, positions in enumerate(pieces) if positions]
        place = {word: number for number, word in enumerate(words)}
        self.sentences += 1
        self._exists &= np.isfinite(attention[:, :, 0, 0])
        edges = [(word, head) for word, head in enumerate(heads) if head is not None]
        counted_edges = [(word, head) for word, head in edges if word in place and head in place]
        self.left_out += len(edges) - len(counted_edges)
        if not counted_edges:
            return
        word_attention = map_of_units(attention, [pieces[word] for word in words])  # (layer, head, word, word)
        diagonal = np.arange(len(words))
        word_attention[..., diagonal, diagonal] = -1
        # (direction, layer, head, dependent)
        predictions = np.stack([word_attention.argmax(-1), word_attention.argmax(-2)])
        for word, head in counted_edges:
            relation = relations[word]
            self.counts[relation] += 1
            self._right[relation] += predictions[..., place[word]] == place[head]
            distance = min(abs(query - key) for query in pieces[word] for key in pieces[head])
            for window in {None, *self.windows}:
                if window is None or distance <= window:
                    self._offsets[window, relation][head - word] += 1

    @renamed_parameters(least="min_count")
    def rows(self, min_count: int = 1) -> list[RelationRow]:
        """Return one row for each relation with at least `min_count` occurrences, the most frequent first.

        The heads of a local layer count only with as many occurrences within its window.
        """
        table = []
        for relation, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0])):
            if count < min_count:
                continue
            accuracies = np.nan_to_num(self.accuracy(relation), nan=-1)
            counts = [self._offsets[window, relation].total() for window in self.windows]
            accuracies[:, np.array(counts) < min_count] = -1  # too few occurrences within the window of a local layer
            direction, layer, head = map(int, np.unravel_index(accuracies.argmax(), accuracies.shape))
            any_right = bool(accuracies[direction, layer, head] > 0)
            all_offsets = self._offsets[self.windows[layer] if any_right else None, relation]
            offsets = {offset: right for offset, right in all_offsets.items() if abs(offset) <= MAX_OFFSET}
            offset = max(offsets, key=lambda offset: (offsets[offset], -abs(offset), offset), default=1)
            count = all_offsets.total()
            table.append(
                RelationRow(
                    relation,
                    count,
                    layer if any_right else None,
                    head if any_right else None,
                    DIRECTIONS[direction] if any_right else None,
                    max(accuracies[direction, layer, head], 0) if self._exists.any() else float("nan"),
                    offset,
                    offsets.get(offset, 0) / count,
                )
            )
        return table

    @renamed_parameters(least="min_count")
    def rows_of_head(self, layer: int, head: int, min_count: int = 20) -> list[RelationRow]:
        """Return the relations that one head predicts better than all other heads and any fixed offset.

        min_count: minimum number of occurrences of a relation.
        Returns rows by descending accuracy.
        """
        head_rows = [row for row in self.rows(min_count) if (row.layer, row.head) == (layer, head)]
        return sorted((row for row in head_rows if row.accuracy > row.offset_accuracy), key=lambda row: -row.accuracy)

    def accuracy(self, relation: str) -> np.ndarray:
        """Return the accuracy of every head for one relation, (direction, layer, head).

        A pruned head is NaN, and so is a head of a local layer in which the relation was never within the window.
        Raises Refused if the relation did not occur.
        """
        if not self.counts[relation]:
            allowed = (
                f"it must be one of {', '.join(sorted(self.counts))}" if self.counts else "there are no relations yet"
            )
            raise Refused(f"the relation {relation!r} did not occur: {allowed}")
        counts = np.array([self._offsets[window, relation].total() for window in self.windows])[:, None]
        exists = self._exists & (counts > 0)
        shares: np.ndarray = np.where(exists, self._right[relation] / np.maximum(counts, 1), np.nan)
        return shares

    of_head = RenamedAttribute("rows_of_head")
    asked = RenamedAttribute("counts")
