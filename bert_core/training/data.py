"""Pre-training examples from plain text: pairs of segments, or whole sentences, with some of their tokens masked.

A text is split into word pieces once, and cached on disk as flat arrays. Each batch depends only on the seed, the step
and the worker's rank, so a resumed run reads the same batches as an uninterrupted one.
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
from bert_core.training.document_clusters import cluster_documents
from bert_core.training.runs import file_digest
from bert_core.training.settings import MaskingRule, Mix

_CHUNK = 20_000  # sentences tokenized at once
_MIN_SENTENCE_PIECES = 3  # of a whole sentence, punctuation included
_MAX_TRIES = 8  # sentences drawn for the rest of a row before it is padded


@compared_by_value
@dataclass(frozen=True)
class Corpus:
    """Text as a sequence of word pieces, divided into documents and sentences.

    tokens: ids of all word pieces, (piece,). sentence_starts: index in `tokens` of the start of each sentence, followed
    by the end, (sentence + 1,). document_starts: index in `sentence_starts` of the start of each document, followed by
    the end, (document + 1,).
    digest: digest of the content of the file and of the name of the column; empty for a text that is not from a file.
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
        """Return the corpus of a file, which is tokenized once and then read from a cache while it is unchanged.

        text, column: as for `read_documents`. cache: folder in which the word pieces are stored.
        Raises Refused if fewer than two documents have two sentences or more. Next-sentence prediction needs pairs of
        consecutive sentences, and a second sentence from another document.
        """
        digest = text_digest(text, column)
        identity = json.dumps([digest, tokenizer.backend.to_str()])
        folder = cache / f"{text.name}-{sha256(identity.encode()).hexdigest()[:12]}"
        names = ("tokens", "sentence_starts", "document_starts")
        if not (folder / "done").exists():
            arrays = _tokenize(text, tokenizer, report, column)
            folder.mkdir(parents=True, exist_ok=True)
            for name, array in zip(names, arrays, strict=True):
                _save_array(folder / f"{name}.npy", array)
            (folder / "done").touch()
        tokens, sentences, documents = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
        corpus = cls(tokens, sentences, documents, digest)
        if len(corpus.document_starts) < 3:
            raise Refused(
                f"{text.name} has fewer than two documents: write one paragraph per line and an empty line between "
                "documents"
            )
        multiple = len(corpus.document_starts) - 1 - corpus.single_sentence_documents
        if multiple < 2:
            raise Refused(
                f"{multiple} document{'s' * (multiple != 1)} of {text.name} "
                f"{'has' if multiple == 1 else 'have'} two sentences or more: next-sentence prediction needs "
                "two such documents"
            )
        return corpus

    @property
    def single_sentence_documents(self) -> int:
        """Number of documents with a single sentence."""
        return int((np.diff(self.document_starts) == 1).sum())

    def document_pieces(self, max_pieces: int = 256) -> list[np.ndarray]:
        """Return the ids of the first `max_pieces` word pieces of each document, in order."""
        starts = self.sentence_starts[self.document_starts]
        return [self.tokens[a : min(a + max_pieces, b)] for a, b in itertools.pairwise(starts)]


def text_digest(text: Path, column: str | None) -> str:
    """Return a SHA-256 digest of the content of a file and of the name of the column that is read."""
    return sha256(json.dumps([file_digest(text), column]).encode()).hexdigest()


def _save_array(path: Path, array: np.ndarray) -> None:
    """Write an array atomically as a new file, since another run may have mapped the existing one into memory."""

    def write(temporary: str) -> None:
        with open(temporary, "wb") as file:  # np.save would append .npy to a file name
            np.save(file, array)

    write_atomically(path, write)


def _tokenize(text: Path, tokenizer: Tokenizer, report: Progress, column: str | None) -> tuple[np.ndarray, ...]:
    """Return `tokens`, `sentence_starts` and `document_starts` of the corpus of a file."""
    pieces: list[np.ndarray] = []
    lengths: list[int] = []
    document_starts = [0]
    pending: list[str] = []  # sentences that are not yet tokenized

    def flush() -> None:
        encoded = tokenizer.encode_plain(pending)
        lengths.extend(map(len, encoded))
        pieces.append(np.concatenate(encoded) if encoded else np.zeros(0, np.uint16))
        pending.clear()
        report(
            None, f"{text.name}: {sum(map(len, pieces)) / 1e6:.1f} M word pieces, {len(document_starts) - 1} documents"
        )

    for paragraphs in read_documents(text, column):
        sentences = [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]
        pending.extend(sentences)
        document_starts.append(document_starts[-1] + len(sentences))
        if len(pending) >= _CHUNK:
            flush()
    flush()
    return np.concatenate(pieces), np.concatenate([[0], np.cumsum(lengths)]), np.array(document_starts)


_LONG_PAIRS = Mix()


class ExampleMaker:
    """Generator of random batches of pre-training examples from a corpus."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, masking: MaskingRule, mix: Mix = _LONG_PAIRS,
        *, predict_order: bool = False,
    ) -> None:  # fmt: skip
        """Create a generator.

        masking: rule by which tokens are masked. mix: composition of the examples.
        predict_order: a false pair is a true one in reversed order (sentence-order prediction, Lan 2020, section 3.1).
            By default, the second segment of a false pair comes from another document.
        """
        self.predict_order = predict_order
        self.corpus, self.tokenizer, self.masking, self.mix = corpus, tokenizer, masking, mix
        self.document_clusters = cluster_documents(corpus.document_pieces()) if mix.near else None
        self.cls_id, self.sep_id, self.pad_id, self.mask_id = (
            tokenizer.first_id, tokenizer.end_id, tokenizer.pad_id, tokenizer.mask_id
        )  # fmt: skip
        self.separator_ids = [tokenizer.id_of(token) for token in tokenizer.special_tokens.separators]
        self.segment_of_second = tokenizer.special_tokens.segment
        self.vocab_size = len(tokenizer)
        names = [tokenizer.token_of(i) for i in range(self.vocab_size)]
        self.is_continuation = np.array([name.startswith("##") for name in names])
        special = tokenizer.special_tokens.roles
        # Names such as "[unused0]" are placeholders; a single "[" is an ordinary word piece.
        self.replacement_ids = np.array([
            i for i, name in enumerate(names) if name not in special and (not name.startswith("[") or len(name) == 1)
        ])  # fmt: skip

    def batch(self, size: int, length: int, rng: np.random.Generator) -> Batch:
        """Return a random batch of `size` rows of `length` tokens, `[CLS] A [SEP] B [SEP]`.

        In half of the pairs, B is the true continuation of A. The special tokens are those of the tokenizer, for
        example `<s> A </s></s> B </s>` for RoBERTa. With a share of whole sentences (`Mix.whole`), that share of the
        rows holds several examples each.
        rng: random generator, which determines the batch.
        Raises Refused if the length has no room for two segments.
        """
        special_count = 2 + len(self.separator_ids)  # special tokens of a pair
        if length < special_count + 2:
            raise Refused(
                f"the length of examples is {length} tokens: two segments need at least {special_count + 2} tokens"
            )
        whole = int(rng.binomial(size, self.mix.whole)) if self.mix.whole else 0
        input_ids = np.full((size, length), self.pad_id, np.int64)
        token_type_ids = np.zeros((size, length), np.int64)
        next_sentence_label = rng.integers(0, 2, size - whole)
        for row in range(size - whole):
            pair = self._pair(length - special_count, bool(next_sentence_label[row]), rng)
            self._write(pair, input_ids[row], token_type_ids[row])
        attention_mask = (input_ids != self.pad_id).astype(np.int64)
        if not whole:
            return Batch(
                input_ids, token_type_ids, attention_mask, self._mask(input_ids, rng), next_sentence_label
            )  # fmt: skip

        position_ids = np.tile(np.arange(length), (size, 1))
        example = np.zeros((size, length), np.int64)
        starts = [(row, 0) for row in range(size - whole)]
        labels = next_sentence_label.tolist()
        example[: size - whole] = attention_mask[: size - whole]
        for row in range(size - whole, size):
            begin = number = 0
            while (sample := self._sentences(length - begin, rng)) is not None:
                segments, label = sample
                end = begin + self._write(segments, input_ids[row, begin:], token_type_ids[row, begin:])
                number += 1
                example[row, begin:end] = number
                position_ids[row, begin:end] = np.arange(end - begin)
                starts.append((row, begin))
                labels.append(label)
                begin = end
        return Batch(
            input_ids, token_type_ids, (example[:, :, None] == example[:, None, :]).astype(np.int64),
            self._mask(input_ids, rng), np.array(labels, np.int64), position_ids,
            np.array(starts, np.int64).reshape(-1, 2),
        )  # fmt: skip

    def _write(self, segments: tuple[np.ndarray, ...], ids: np.ndarray, segment_ids: np.ndarray) -> int:
        """Write `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` to the start of a row, and return the number of tokens."""
        first, *second = segments
        parts = [
            [self.cls_id],
            first,
            *(part for segment in second for part in (self.separator_ids, segment)),
            [self.sep_id],
        ]
        example = np.concatenate(parts)
        ids[: len(example)] = example
        if second:
            segment_ids[1 + len(first) + len(self.separator_ids) : len(example)] = self.segment_of_second
        return len(example)

    def examples(self, count: int, length: int, seed: int) -> list[Batch]:
        """Return `count` rows of `length` tokens in batches of about 4,096 tokens, which depend only on the seed."""
        batch_size = max(1, 4096 // length)
        sizes = [min(batch_size, count - first) for first in range(0, count, batch_size)]
        return [self.batch(size, length, np.random.default_rng([seed, number])) for number, size in enumerate(sizes)]

    def _pair(self, room: int, is_random: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return two segments with at most `room` tokens in total; A ends with a sentence and B starts with one.

        is_random: whether the pair is false: B comes from another document, or both segments are swapped.
        """
        starts, documents = self.corpus.sentence_starts, self.corpus.document_starts
        while True:
            sentence = int(rng.integers(0, len(starts) - 1))
            document = int(np.searchsorted(documents, sentence, side="right")) - 1
            last = int(documents[document + 1])  # first sentence of the next document
            if last - sentence < 2:
                continue
            # A is filled with whole sentences up to a random share of the room, and B starts where A ends.
            budget = max(1, int(room * rng.uniform(0.2, 0.8)))
            begin = int(starts[sentence])
            split = int(np.searchsorted(starts[sentence : last + 1], begin + budget, side="right")) - 1 + sentence
            split = min(max(split, sentence + 1), last - 1)
            first = self.corpus.tokens[begin : int(starts[split])][-budget:]
            if is_random and not self.predict_order:
                split, last = self._wrong_next(document, rng)
            second = self.corpus.tokens[int(starts[split]) : int(starts[last])][: room - len(first)]
            if len(first) and len(second):
                return (second, first) if is_random and self.predict_order else (first, second)

    def _sentences(self, room: int, rng: np.random.Generator) -> tuple[tuple[np.ndarray, ...], int] | None:
        """Return a whole sentence or a pair of sentences, with its next-sentence label; None if none was found to fit.

        The label is IGNORED_LABEL for a single sentence. All sentences are equally likely, whatever their length, so
        that short ones are as frequent as in the text. The last sentence of a document is always single, since it has
        no true continuation.
        """
        starts, documents = self.corpus.sentence_starts, self.corpus.document_starts
        if room < 2 + _MIN_SENTENCE_PIECES:
            return None
        for _ in range(_MAX_TRIES):
            sentence = int(rng.integers(0, len(starts) - 1))
            document = int(np.searchsorted(documents, sentence, side="right")) - 1
            label = int(rng.choice([IGNORED_LABEL, 0, 1], p=[0.5, 0.25, 0.25]))
            if sentence + 1 == documents[document + 1]:
                label = IGNORED_LABEL
            sentences = [sentence]
            if label == 0 or (label == 1 and self.predict_order):
                sentences.insert(1 - label, sentence + 1)
            elif label == 1:
                sentences.append(self._wrong_next(document, rng)[0])
            segments = tuple(self.corpus.tokens[int(starts[s]) : int(starts[s + 1])] for s in sentences)
            sizes = [len(segment) for segment in segments]
            special_count = 2 + len(self.separator_ids) * (len(sizes) - 1)
            if min(sizes) >= _MIN_SENTENCE_PIECES and sum(sizes) + special_count <= room:
                return segments, label
        return None

    def _wrong_next(self, document: int, rng: np.random.Generator) -> tuple[int, int]:
        """Return a random sentence of another document, and the sentence number at which that document ends.

        The first sentence of a document is never drawn. It is never a true continuation either, so the position in the
        document does not reveal the label. Documents with a single sentence are therefore not drawn.
        """
        documents, sentences = self.corpus.document_starts, len(self.corpus.sentence_starts) - 1
        if self.document_clusters is not None and rng.random() < self.mix.near:
            similar = np.nonzero(self.document_clusters == self.document_clusters[document])[0]
            similar = similar[(similar != document) & (documents[similar + 1] - documents[similar] > 1)]
            if len(similar):
                source = int(rng.choice(similar))
                return int(rng.integers(documents[source] + 1, documents[source + 1])), int(documents[source + 1])
        while True:
            sentence = int(rng.integers(0, sentences))
            source = int(np.searchsorted(documents, sentence, side="right")) - 1
            if source != document and sentence > documents[source]:
                return sentence, int(documents[source + 1])

    def _mask(self, input_ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Mask tokens of `input_ids`, (batch, seq), in place and return the labels, (batch, seq)."""
        rule = self.masking
        is_text = ~np.isin(input_ids, [self.cls_id, self.sep_id, self.pad_id, *self.separator_ids])
        draw = rng.random(input_ids.shape)
        if rule.whole_words:
            # All word pieces of a word share the random number of its first piece.
            first = is_text & ~self.is_continuation[input_ids]
            index = np.maximum.accumulate(np.where(first, np.arange(input_ids.shape[1]), 0), axis=1)
            draw = np.take_along_axis(draw, index, axis=1)
        is_target = is_text & (draw < rule.rate)
        labels = np.where(is_target, input_ids, IGNORED_LABEL)
        treatment = rng.random(input_ids.shape)
        input_ids[is_target & (treatment < rule.mask_share)] = self.mask_id
        replaced = is_target & (treatment >= rule.mask_share) & (treatment < rule.mask_share + rule.random_share)
        input_ids[replaced] = rng.choice(self.replacement_ids, int(replaced.sum()))
        return labels
