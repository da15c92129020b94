"""The labels of a file of words, what probes find of them, and a text without one of them; from the queue."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from bert_core import agreement
from bert_core.analysis.erasure import Eraser
from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.records import ProbePoint
from bert_core.run.states import predict_with_erasers
from bert_core.studies.probes import (
    MASKED_SENTENCES,
    label_erasers,
    probe_points,
)
from bert_core.studies.settings import ProbeSettings
from bert_core.studies.words import LabelledSentence, label_names, read_labelled_words
from bert_core.tokenizer import Encoding
from viz_app.shell.controls import Upload
from viz_app.shell.models import ModelReference, shown_name
from viz_app.shell.work import Work, cached, estimate_seconds

LARGEST_FILE = 5  # megabytes
WORDS = 2_000  # that are asked about at most while somebody waits
RANDOM_ERASERS = 10
SENTENCE_WORDS, SENTENCE_TOKENS = 10, 16  # about
FITS, FIT_STEPS = 21, 60  # probes of a point: of the labels and of random ones, on all words and for the codes
OPERATIONS = 2e10  # in a second, on one core


@dataclass(frozen=True)
class LabelledFile:
    """A file of words with labels: one that was uploaded, or None for the words of bert-agreement."""

    upload: Upload | None

    @property
    def name(self) -> str:
        """As it was uploaded."""
        return "bert-agreement.csv" if self.upload is None else self.upload.name

    @property
    def data(self) -> bytes:
        """All that it holds."""
        if self.upload is not None:
            return self.upload.data
        made: bytes = cached(("words of bert-agreement",), lambda: agreement.as_word_csv().encode())
        return made

    @cached_property
    def digest(self) -> str:
        """The same for files of the same kind and content."""
        return sha256(self._suffix.encode() + self.data).hexdigest()

    @property
    def _suffix(self) -> str:
        return ".csv" if self.name.lower().endswith(".csv") else ".conllu"

    @contextmanager
    def _on_disk(self) -> Iterator[Path]:
        """The file under its name, as far as that can be the name of one."""
        stem = re.sub(r"[^\w-]+", "_", Path(self.name).stem)[:60] or "words"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{stem}{self._suffix}"
            path.write_bytes(self.data)
            yield path

    def labels(self) -> list[str]:
        """The labels that its words have. Raises Refused for a file that is neither a treebank nor a table of words."""

        def read() -> list[str]:
            with self._on_disk() as path:
                return label_names(path)

        found: list[str] = cached(("labels of a file", self.digest, self.name), read)
        return found

    def sentences(self, label: str) -> list[LabelledSentence]:
        """Its sentences with one of its labels."""
        with self._on_disk() as path:
            return read_labelled_words(path, label)


@dataclass(frozen=True)
class Probed:
    """A label of a file, as probes are to look for it in a model."""

    model: ModelReference
    file: LabelledFile
    label: str
    settings: ProbeSettings

    @property
    def loaded(self) -> LoadedModel:
        """The model, in memory."""
        return self.model.get()

    def points(self) -> Work[list[ProbePoint]]:
        """What is found at every depth, with every seed."""
        loaded, file, label, settings = self.loaded, self.file, self.label, self.settings

        def find(report: Progress) -> list[ProbePoint]:
            return list(probe_points(loaded, file.sentences(label), settings, report=report))

        return Work(
            ("probes", *self._key, settings),
            f"{shown_name(loaded.name)}: probes of {label} in {file.name}",
            find,
            self._seconds(),
        )

    def erasers(self, depth: int) -> Work[tuple[Eraser, list[Eraser]]]:
        """What takes the label out at one depth, and what takes as many random directions out."""
        loaded, file, label = self.loaded, self.file, self.label
        # The seeds are those of the probes: here all words are learned from.
        settings = ProbeSettings(words=self.settings.words)

        def fit(report: Progress) -> tuple[Eraser, list[Eraser]]:
            sentences = file.sentences(label)
            return label_erasers(loaded, sentences, depth, settings, random_erasers=RANDOM_ERASERS, report=report)

        seconds = estimate_seconds(loaded, SENTENCE_TOKENS, self._sentences * depth / loaded.config.num_hidden_layers)
        key = ("erasers", *self._key, settings, depth)
        return Work(key, f"{shown_name(loaded.name)}: {label} is erased at depth {depth}", fit, seconds)

    def erased(self, encoding: Encoding, depth: int, erasers: tuple[Eraser, list[Eraser]]) -> Work[list[Erased]]:
        """What the model says at the gaps of a text: as it is, without the label, without random directions."""
        loaded = self.loaded

        def ask(_: Progress) -> list[Erased]:
            eraser, at_random = erasers
            whole, without, *others = (
                [prediction.probabilities for prediction in answer.predictions]
                for answer in predict_with_erasers(loaded, encoding, depth, [None, eraser, *at_random])
            )
            return [
                Erased(position, whole[gap], without[gap], np.stack([other[gap] for other in others]).mean(0))
                for gap, position in enumerate(encoding.mask_positions)
            ]

        return Work(
            ("erased answer", *self._key, self.settings.words, depth, encoding),
            f"{shown_name(loaded.name)} reads without {self.label}",
            ask,
            estimate_seconds(loaded, len(encoding), 2 + RANDOM_ERASERS),
        )

    @property
    def _key(self) -> tuple[object, ...]:
        return (self.loaded.identity, self.file.digest, self.label)

    @property
    def _words(self) -> int:
        """How many words are asked about, about: a line of the file is a word."""
        return min(self.settings.words, self.file.data.count(b"\n"))

    @property
    def _sentences(self) -> float:
        return self._words / SENTENCE_WORDS

    def _seconds(self) -> float:
        """What all probes take, about."""
        config, seeds = self.loaded.config, self.settings.seeds
        depths, hidden, words = config.num_hidden_layers + 1, config.hidden_size, self._words
        passes = self._sentences * depths / 2
        if self.settings.erase:
            passes += 2 * seeds * depths * min(MASKED_SENTENCES, self.settings.held_out * self._sentences)
        fits = FITS * 10 * hidden**3 + 3 * words * hidden * (2 * hidden + 16 * FIT_STEPS)
        return estimate_seconds(self.loaded, SENTENCE_TOKENS, passes) + depths * seeds * fits / OPERATIONS


@dataclass(frozen=True)
class Erased:
    """What a model puts at one gap of a text: as it is, without a label, and without random directions, their mean.

    All probabilities (vocab,).
    """

    position: int
    whole: np.ndarray
    without: np.ndarray
    at_random: np.ndarray

    def likeliest(self, each: int, most: int) -> list[int]:
        """The likeliest pieces of the first two, `each` of either, `most` of them together."""
        found = [int(piece) for one in (self.whole, self.without) for piece in np.argsort(-one)[:each]]
        return list(dict.fromkeys(found))[:most]
