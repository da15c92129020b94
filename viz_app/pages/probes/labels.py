"""Files of words with labels, and the slow computations on them."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
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
from bert_core.progress import Progress, ignore_progress
from bert_core.records import ProbePoint, Steering, Target
from bert_core.run.states import predict_with_erasers
from bert_core.run.steering import steer
from bert_core.studies.probes import MASKED_SENTENCES, label_erasers, label_vector, probe_points
from bert_core.studies.settings import ProbeSettings
from bert_core.studies.words import LabelledSentence, label_names, read_labelled_words
from bert_core.tokenizer import Encoding
from viz_app.lessons import TREES
from viz_app.pages.probes import FACTORS
from viz_app.shell.controls import Upload
from viz_app.shell.work import cached, estimate_seconds, wait_for, work

MAX_WORDS = 2_000  # that are probed while a visitor waits
RANDOM_ERASERS = 10
RANDOM_VECTORS = 20
SENTENCE_WORDS, SENTENCE_TOKENS = 10, 16  # of a typical sentence
FITS, FIT_STEPS = 21, 60  # probes at one depth: of the labels and of random ones, on all words and for the codes
OPERATIONS_PER_SECOND = 2e10  # on one core


@cached
def _agreement_csv() -> bytes:
    return agreement.as_word_csv().encode()


@dataclass(frozen=True)
class LabelledFile:
    """A file of words with labels: an upload, or the words of bert-agreement if None."""

    upload: Upload | None

    def __str__(self) -> str:
        return "bert-agreement.csv" if self.upload is None else self.upload.name

    @property
    def data(self) -> bytes:
        """The content."""
        return _agreement_csv() if self.upload is None else self.upload.data

    @cached_property
    def identity(self) -> str:
        """A digest of type and content."""
        return sha256(self._suffix.encode() + self.data).hexdigest()

    @property
    def _suffix(self) -> str:
        return ".csv" if str(self).lower().endswith(".csv") else ".conllu"

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The file in a temporary folder, under its name as far as the file system allows."""
        stem = re.sub(r"[^\w-]+", "_", Path(str(self)).stem)[:60] or "words"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{stem}{self._suffix}"
            path.write_bytes(self.data)
            yield path

    def sentences(self, label: str) -> list[LabelledSentence]:
        """Return its sentences with one of its labels."""
        with self.on_disk() as path:
            return read_labelled_words(path, label)


SENTENCES, AGREEMENT = LabelledFile(Upload("example sentences.conllu", TREES.read_bytes())), LabelledFile(None)
BUNDLED = {"subject": AGREEMENT, "number": AGREEMENT, "relation": SENTENCES}  # file of each label


@cached
def labels_of(file: LabelledFile) -> list[str]:
    """Return the labels of the words of a file. Raises Refused if it is neither a treebank nor a table of words."""
    with file.on_disk() as path:
        return label_names(path)


@cached
def values_of(file: LabelledFile, label: str, minimum: int) -> list[str]:
    """Return the values of a label that enough words have, in alphabetic order. minimum: number of words."""
    counts = Counter(value for sentence in file.sentences(label) for value in sentence.labels if value is not None)
    return sorted(value for value, count in counts.items() if count >= minimum)


def _count_words(file: LabelledFile, settings: ProbeSettings) -> int:
    """Estimate the number of words that are probed: one per line of the file."""
    return min(settings.words, file.data.count(b"\n"))


def _probe_seconds(model: LoadedModel, file: LabelledFile, label: str, settings: ProbeSettings) -> float:
    config, words = model.config, _count_words(file, settings)
    sentences, depths, hidden = words / SENTENCE_WORDS, config.num_hidden_layers + 1, config.hidden_size
    passes = sentences * depths / 2
    if settings.erase:
        passes += 2 * settings.seeds * depths * min(MASKED_SENTENCES, settings.held_out * sentences)
    operations = FITS * 10 * hidden**3 + 3 * words * hidden * (2 * hidden + 16 * FIT_STEPS)
    return (
        estimate_seconds(model, SENTENCE_TOKENS, passes) + depths * settings.seeds * operations / OPERATIONS_PER_SECOND
    )


@work("{model}: probes of {label} in {file}", seconds=_probe_seconds)
def probe_file(
    model: LoadedModel, file: LabelledFile, label: str, settings: ProbeSettings, report: Progress = ignore_progress
) -> list[ProbePoint]:
    """Probe a label at every depth with every seed."""
    return list(probe_points(model, file.sentences(label), settings, report=report))


def _eraser_seconds(model: LoadedModel, file: LabelledFile, label: str, settings: ProbeSettings, depth: int) -> float:
    passes = _count_words(file, settings) / SENTENCE_WORDS * depth / model.config.num_hidden_layers
    return estimate_seconds(model, SENTENCE_TOKENS, passes)


@work("{model}: {label} is erased at depth {depth}", seconds=_eraser_seconds)
def fit_erasers(
    model: LoadedModel,
    file: LabelledFile,
    label: str,
    settings: ProbeSettings,
    depth: int,
    report: Progress = ignore_progress,
) -> tuple[Eraser, list[Eraser]]:
    """Fit the eraser of a label at one depth, and erasers of as many random directions, on all words of a file."""
    sentences = file.sentences(label)
    return label_erasers(model, sentences, depth, settings, random_erasers=RANDOM_ERASERS, report=report)


@dataclass(frozen=True)
class ErasedPrediction:
    """The predictions at one masked position: as it is, with a label erased, with random directions erased (mean).

    All probabilities have the shape (vocab,).
    """

    position: int
    full: np.ndarray
    erased: np.ndarray
    randomly_erased: np.ndarray

    def most_likely(self, per_prediction: int, maximum: int) -> list[int]:
        """Return the most likely pieces of the first two predictions, `per_prediction` of each, at most `maximum`."""
        pieces = [np.argsort(-probabilities)[:per_prediction] for probabilities in (self.full, self.erased)]
        return list(dict.fromkeys(np.concatenate(pieces).tolist()))[:maximum]


def _prediction_seconds(
    model: LoadedModel, encoding: Encoding, depth: int, erasers: tuple[Eraser, list[Eraser]]
) -> float:
    return estimate_seconds(model, len(encoding), 1 + 1 + RANDOM_ERASERS)


@work("{model} reads with a label erased", seconds=_prediction_seconds)
def predict_erased(
    model: LoadedModel, encoding: Encoding, depth: int, erasers: tuple[Eraser, list[Eraser]]
) -> list[ErasedPrediction]:
    """Predict the masked positions of a text as it is, with the label erased, and with random directions erased."""
    eraser, random_erasers = erasers
    answers = predict_with_erasers(model, encoding, depth, [None, eraser, *random_erasers])
    full, erased, *randomly = ([prediction.probabilities for prediction in answer.predictions] for answer in answers)
    return [
        ErasedPrediction(position, full[gap], erased[gap], np.stack([other[gap] for other in randomly]).mean(0))
        for gap, position in enumerate(encoding.mask_positions)
    ]


@dataclass(frozen=True)
class Direction:
    """A direction between two values of a label at one depth, and the words that it is fitted on.

    kind: one of `DIRECTIONS`.
    """

    file: LabelledFile
    label: str
    values: tuple[str, str]
    kind: str
    depth: int

    @property
    def identity(self) -> tuple[object, ...]:
        """All that the vector depends on, besides the model."""
        return self.file.identity, self.label, self.values, self.kind, self.depth

    @property
    def settings(self) -> ProbeSettings:
        """The settings with which the words are drawn."""
        return ProbeSettings(words=MAX_WORDS)


def _vector_seconds(model: LoadedModel, direction: Direction) -> float:
    return _eraser_seconds(model, direction.file, direction.label, direction.settings, direction.depth)


@work("{model}: direction of a label", seconds=_vector_seconds)
def fit_vector(model: LoadedModel, direction: Direction, report: Progress = ignore_progress) -> np.ndarray:
    """Fit the vector of a direction, (hidden,)."""
    return label_vector(
        model, direction.file.sentences(direction.label), direction.depth, direction.values,
        direction=direction.kind, settings=direction.settings, report=report,
    )  # fmt: skip


def _steering_seconds(model: LoadedModel, encoding: Encoding, target: Target, direction: Direction) -> float:
    copies = len(FACTORS) * (1 + RANDOM_VECTORS)
    passes = copies * (1 - direction.depth / (model.config.num_hidden_layers + 1))
    places = copies * len(encoding) if model.has_head("words") else 0
    return _vector_seconds(model, direction) + estimate_seconds(model, len(encoding), passes, places=places)


@work("{model} is steered", seconds=_steering_seconds)
def steer_text(
    model: LoadedModel, encoding: Encoding, target: Target, direction: Direction, report: Progress = ignore_progress
) -> Steering:
    """Add the vector of a direction to the hidden states of a text, with all factors, and random vectors."""
    vector = wait_for(fit_vector(model, direction))
    return steer(model, encoding, target, vector, direction.depth, factors=FACTORS, draws=RANDOM_VECTORS, report=report)
