"""Plain text -> pre-training examples: segments that follow each other or do not, some of their tokens masked.

The text is read and cut into word pieces once, kept as flat arrays on disk, and every batch is a function
of (seed, step, rank) alone: a run that is interrupted and resumed sees exactly the batches it would have seen.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from bert_core.checkpoint import write_atomically
from bert_core.modeling import IGNORED_LABEL
from bert_core.progress import Progress, ignore_progress
from bert_core.records import Batch
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.studies.documents import read_documents, split_sentences
from bert_core.tokenizer import Tokenizer
from bert_core.training.kinds import document_kinds
from bert_core.training.runs import file_digest

_CHUNK = 20_000  # sentences tokenized at once
_FEWEST_PIECES = 3  # of a sentence that stands alone: its stop is one of them
_TRIES = 8  # sentences looked at before a row is left as full as it is


@compared_by_value
@dataclass(frozen=True)
class Corpus:
    """A text as word pieces.

    tokens: all pieces in a row. sentence_starts: (sentences + 1,) where each sentence starts in `tokens`.
    document_starts: (documents + 1,) where each document starts in `sentence_starts`.
    digest: of the content of the file that the text was read from, and of the column; empty for other texts.
    """

    tokens: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    digest: str = ""

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def prepare(
        cls,
        text: Path,
        tokenizer: Tokenizer,
        cache: Path,
        report: Progress = ignore_progress,
        *,
        column: str | None = None,
    ) -> Corpus:
        """The corpus of a file, tokenized the first time and read from `cache` as long as the file has that content.

        text, column: as for `read_documents`.
        Raises Refused if the file holds fewer than two documents with two sentences: a next sentence needs a right one,
        and a wrong one that follows another sentence elsewhere.
        """
        digest = text_digest(text, column)
        identity = json.dumps([digest, tokenizer.backend.to_str()])
        folder = cache / f"{text.name}-{sha256(identity.encode()).hexdigest()[:12]}"
        names = ("tokens", "sentence_starts", "document_starts")
        if not (folder / "done").exists():
            arrays = _tokenize(text, tokenizer, report, column)
            folder.mkdir(parents=True, exist_ok=True)
            for name, array in zip(names, arrays, strict=True):
                _keep(folder / f"{name}.npy", array)
            (folder / "done").touch()
        tokens, sentences, documents = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
        corpus = cls(tokens, sentences, documents, digest)
        if len(corpus.document_starts) < 3:
            raise Refused(
                f"{text.name} has fewer than two documents: put one paragraph on each line and a blank line between "
                "documents"
            )
        with_next = len(corpus.document_starts) - 1 - corpus.single_sentences
        if with_next < 2:
            raise Refused(
                f"{with_next} document{'s' * (with_next != 1)} of {text.name} "
                f"{'has' if with_next == 1 else 'have'} two sentences or more: next sentences, right and wrong, "
                "need two such documents"
            )
        return corpus

    @property
    def single_sentences(self) -> int:
        """How many documents have one sentence."""
        return int((np.diff(self.document_starts) == 1).sum())

    def pieces_of_documents(self, most: int = 256) -> list[np.ndarray]:
        """The first pieces of each document, as they stand there."""
        starts = self.sentence_starts[self.document_starts]
        return [self.tokens[a : min(a + most, b)] for a, b in itertools.pairwise(starts)]


def text_digest(text: Path, column: str | None) -> str:
    """A digest of the content of a text's file, and of the column that is read."""
    return sha256(json.dumps([file_digest(text), column]).encode()).hexdigest()


def _keep(path: Path, array: np.ndarray) -> None:
    """Write an array whole: a run beside this one may have mapped a file of that name, which then stays as it is."""

    def write(temporary: str) -> None:
        with open(temporary, "wb") as file:  # np.save gives a name another ending
            np.save(file, array)

    write_atomically(path, write)


def _tokenize(text: Path, tokenizer: Tokenizer, report: Progress, column: str | None) -> tuple[np.ndarray, ...]:
    pieces: list[np.ndarray] = []
    lengths: list[int] = []
    document_starts = [0]
    waiting: list[str] = []

    def flush() -> None:
        encoded = tokenizer.encode_plain(waiting)
        lengths.extend(map(len, encoded))
        pieces.append(np.concatenate(encoded) if encoded else np.zeros(0, np.uint16))
        waiting.clear()
        report(
            None, f"{text.name}: {sum(map(len, pieces)) / 1e6:.1f} M word pieces, {len(document_starts) - 1} documents"
        )

    for paragraphs in read_documents(text, column):
        sentences = [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]
        waiting.extend(sentences)
        document_starts.append(document_starts[-1] + len(sentences))
        if len(waiting) >= _CHUNK:
            flush()
    flush()
    return np.concatenate(pieces), np.concatenate([[0], np.cumsum(lengths)]), np.array(document_starts)


@dataclass(frozen=True)
class MaskingRule:
    """Which tokens are hidden, and behind what (Devlin 2019, section 3.1).

    rate: share of tokens to predict. Of these, mask_share become [MASK], random_share a random piece, the rest stay.
    whole_words: choose words, and hide all their pieces.
    """

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False

    def __post_init__(self) -> None:
        for name in ("rate", "mask_share", "random_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise Refused(f"{name} is {getattr(self, name)}: a share is between 0 and 1")
        if self.mask_share + self.random_share > 1:
            raise Refused(f"mask_share {self.mask_share} and random_share {self.random_share} are more than all")


@dataclass(frozen=True)
class Mix:
    """What examples are made of besides long pairs of passages from anywhere.

    whole: share of the rows that are filled with whole sentences, side by side: one alone, or two as a pair.
    near: share of the wrong second passages that come from a document of the same kind.
    """

    whole: float = 0.0
    near: float = 0.0

    def __post_init__(self) -> None:
        for name in ("whole", "near"):
            if not 0 <= getattr(self, name) <= 1:
                raise Refused(f"{name} is {getattr(self, name)}: a share is between 0 and 1")


_LONG_PAIRS = Mix()


class ExampleMaker:
    """Draws batches from a corpus."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, masking: MaskingRule, mix: Mix = _LONG_PAIRS,
        *, swaps: bool = False,
    ) -> None:  # fmt: skip
        """swaps: a wrong pair is a right one in the wrong order (Lan 2020, section 3.1), not a B from elsewhere."""
        self.swaps = swaps
        self.corpus, self.tokenizer, self.masking, self.mix = corpus, tokenizer, masking, mix
        self.kinds = document_kinds(corpus.pieces_of_documents()) if mix.near else None
        self.cls, self.sep, self.pad, self.mask = (
            tokenizer.first_id, tokenizer.end_id, tokenizer.pad_id, tokenizer.mask_id
        )  # fmt: skip
        self.between = [tokenizer.id_of(token) for token in tokenizer.special_tokens.separators]
        self.segment_of_second = tokenizer.special_tokens.segment
        self.vocab_size = len(tokenizer)
        names = [tokenizer.token_of(i) for i in range(self.vocab_size)]
        self.continues = np.array([name.startswith("##") for name in names])
        special = tokenizer.special_tokens.roles
        self.ordinary = np.array([
            i for i, name in enumerate(names) if name not in special and (not name.startswith("[") or len(name) == 1)
        ])  # fmt: skip

    def batch(self, size: int, length: int, rng: np.random.Generator) -> Batch:
        """`size` rows of `length` tokens: `[CLS] A [SEP] B [SEP]`, half of the Bs the true continuation.

        The special tokens are those of the tokenizer (`<s> A </s></s> B </s>` of RoBERTa). With a share of whole
        sentences, so many rows hold several examples each. Raises Refused if the length has no room for two segments.
        """
        around = 2 + len(self.between)  # special tokens of a pair
        if length < around + 2:
            raise Refused(f"examples of {length} tokens have no room for two segments: {around + 2} is the least")
        whole = int(rng.binomial(size, self.mix.whole)) if self.mix.whole else 0
        input_ids = np.full((size, length), self.pad, np.int64)
        token_type_ids = np.zeros((size, length), np.int64)
        next_sentence_label = rng.integers(0, 2, size - whole)
        for row in range(size - whole):
            pair = self._pair(length - around, bool(next_sentence_label[row]), rng)
            self._write(pair, input_ids[row], token_type_ids[row])
        attention_mask = (input_ids != self.pad).astype(np.int64)
        if not whole:
            return Batch(
                input_ids, token_type_ids, attention_mask, self._mask(input_ids, rng), next_sentence_label
            )  # fmt: skip

        position_ids = np.tile(np.arange(length), (size, 1))
        example = np.zeros((size, length), np.int64)
        starts = [(row, 0) for row in range(size - whole)]
        verdicts = next_sentence_label.tolist()
        example[: size - whole] = attention_mask[: size - whole]
        for row in range(size - whole, size):
            begin = number = 0
            while (drawn := self._sentences(length - begin, rng)) is not None:
                segments, verdict = drawn
                end = begin + self._write(segments, input_ids[row, begin:], token_type_ids[row, begin:])
                number += 1
                example[row, begin:end] = number
                position_ids[row, begin:end] = np.arange(end - begin)
                starts.append((row, begin))
                verdicts.append(verdict)
                begin = end
        return Batch(
            input_ids, token_type_ids, (example[:, :, None] == example[:, None, :]).astype(np.int64),
            self._mask(input_ids, rng), np.array(verdicts, np.int64), position_ids,
            np.array(starts, np.int64).reshape(-1, 2),
        )  # fmt: skip

    def _write(self, segments: tuple[np.ndarray, ...], ids: np.ndarray, segment_ids: np.ndarray) -> int:
        """Put `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` at the beginning of a row; how many tokens it takes."""
        first, *second = segments
        parts = [[self.cls], first, *(part for segment in second for part in (self.between, segment)), [self.sep]]
        written = np.concatenate(parts)
        ids[: len(written)] = written
        if second:
            segment_ids[1 + len(first) + len(self.between) : len(written)] = self.segment_of_second
        return len(written)

    def examples(self, count: int, length: int, seed: int) -> list[Batch]:
        """So many examples in batches of about 4,096 tokens; which they are depends on the seed alone."""
        together = max(1, 4096 // length)
        sizes = [min(together, count - first) for first in range(0, count, together)]
        return [self.batch(size, length, np.random.default_rng([seed, number])) for number, size in enumerate(sizes)]

    def _pair(self, room: int, is_random: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two segments of at most `room` tokens together; the second starts a sentence."""
        starts, documents = self.corpus.sentence_starts, self.corpus.document_starts
        while True:
            sentence = int(rng.integers(0, len(starts) - 1))
            document = int(np.searchsorted(documents, sentence, side="right")) - 1
            last = int(documents[document + 1])  # first sentence of the next document
            if last - sentence < 2:
                continue
            # A ends with the last sentence that fits a share of the room drawn at random, B begins there.
            budget = max(1, int(room * rng.uniform(0.2, 0.8)))
            begin = int(starts[sentence])
            split = int(np.searchsorted(starts[sentence : last + 1], begin + budget, side="right")) - 1 + sentence
            split = min(max(split, sentence + 1), last - 1)
            first = self.corpus.tokens[begin : int(starts[split])][-budget:]
            if is_random and not self.swaps:
                split, last = self._wrong_next(document, rng)
            second = self.corpus.tokens[int(starts[split]) : int(starts[last])][: room - len(first)]
            if len(first) and len(second):
                return (second, first) if is_random and self.swaps else (first, second)

    def _sentences(self, room: int, rng: np.random.Generator) -> tuple[tuple[np.ndarray, ...], int] | None:
        """A whole sentence, or two as a pair, with the answer to whether the second follows; None if none fits.

        Sentences are drawn alike, however long: what is short, as speech is, comes as often as it is said. One that
        ends its document stands alone: in a pair it could only be wrong.
        """
        starts, documents = self.corpus.sentence_starts, self.corpus.document_starts
        if room < 2 + _FEWEST_PIECES:
            return None
        for _ in range(_TRIES):
            sentence = int(rng.integers(0, len(starts) - 1))
            document = int(np.searchsorted(documents, sentence, side="right")) - 1
            verdict = int(rng.choice([IGNORED_LABEL, 0, 1], p=[0.5, 0.25, 0.25]))
            if sentence + 1 == documents[document + 1]:
                verdict = IGNORED_LABEL
            chosen = [sentence]
            if verdict == 0 or (verdict == 1 and self.swaps):
                chosen.insert(1 - verdict, sentence + 1)
            elif verdict == 1:
                chosen.append(self._wrong_next(document, rng)[0])
            segments = tuple(self.corpus.tokens[int(starts[s]) : int(starts[s + 1])] for s in chosen)
            sizes = [len(segment) for segment in segments]
            around = 2 + len(self.between) * (len(sizes) - 1)
            if min(sizes) >= _FEWEST_PIECES and sum(sizes) + around <= room:
                return segments, verdict
        return None

    def _wrong_next(self, document: int, rng: np.random.Generator) -> tuple[int, int]:
        """A sentence of another document that follows one there, and the first sentence after that document.

        The first sentence of a document is never a right next one, so it must not be a wrong one either: the kind of
        the sentence would give the answer away. A document of one sentence has no other.
        """
        documents, sentences = self.corpus.document_starts, len(self.corpus.sentence_starts) - 1
        if self.kinds is not None and rng.random() < self.mix.near:
            alike = np.nonzero(self.kinds == self.kinds[document])[0]
            alike = alike[(alike != document) & (documents[alike + 1] - documents[alike] > 1)]
            if len(alike):
                other = int(rng.choice(alike))
                return int(rng.integers(documents[other] + 1, documents[other + 1])), int(documents[other + 1])
        while True:
            sentence = int(rng.integers(0, sentences))
            other = int(np.searchsorted(documents, sentence, side="right")) - 1
            if other != document and sentence > documents[other]:
                return sentence, int(documents[other + 1])

    def _mask(self, input_ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Hide tokens of `input_ids` in place and return the labels."""
        rule = self.masking
        typed = ~np.isin(input_ids, [self.cls, self.sep, self.pad, *self.between])
        draw = rng.random(input_ids.shape)
        if rule.whole_words:
            # Every piece of a word has the draw of its first piece.
            first = typed & ~self.continues[input_ids]
            index = np.maximum.accumulate(np.where(first, np.arange(input_ids.shape[1]), 0), axis=1)
            draw = np.take_along_axis(draw, index, axis=1)
        chosen = typed & (draw < rule.rate)
        labels = np.where(chosen, input_ids, IGNORED_LABEL)
        fate = rng.random(input_ids.shape)
        input_ids[chosen & (fate < rule.mask_share)] = self.mask
        replaced = chosen & (fate >= rule.mask_share) & (fate < rule.mask_share + rule.random_share)
        input_ids[replaced] = rng.choice(self.ordinary, int(replaced.sum()))
        return labels
