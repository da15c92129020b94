"""Fine-tuning of a text classifier on a table with a text, or a pair of texts, and a class in each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.loading import best_device, model_folder
from bert_core.modeling import BertForSequenceClassification
from bert_core.pooling import read_pooling
from bert_core.progress import Progress, print_progress
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.studies.rows import LabelledText, read_labelled
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Tokenizer
from bert_core.training.class_labels import check_known_classes, sorted_classes, stratified_split
from bert_core.training.settings import FinetuneSettings
from bert_core.training.tuning import (
    Task,
    batches_by_length,
    finetune_identity,
    is_unfinished,
    load_start,
    model_inputs,
    run_finetuning,
    training_width,
)


@compared_by_value
@dataclass(frozen=True)
class ClassifierScores:
    """Scores of a classifier on held-out examples.

    classes: class names. confusion: number of texts for each true and predicted class, (true class, predicted class).
    loss: mean cross-entropy in nats.
    """

    classes: tuple[str, ...]
    confusion: np.ndarray
    loss: float

    @property
    def accuracy(self) -> float:
        """Share of texts whose class is predicted correctly, 0 to 1."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def precision(self) -> np.ndarray:
        """Precision of each class, (class,), 0 to 1; 0 for a class that is never predicted."""
        shares: np.ndarray = np.diag(self.confusion) / np.maximum(self.confusion.sum(0), 1)
        return shares

    @property
    def recall(self) -> np.ndarray:
        """Recall of each class, (class,), 0 to 1; 0 for a class without texts."""
        shares: np.ndarray = np.diag(self.confusion) / np.maximum(self.confusion.sum(1), 1)
        return shares

    @property
    def f1(self) -> np.ndarray:
        """F1 score of each class, (class,), 0 to 1: the harmonic mean of precision and recall."""
        means: np.ndarray = 2 * np.diag(self.confusion) / np.maximum(self.confusion.sum(0) + self.confusion.sum(1), 1)
        return means

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of the F1 scores of all classes that have a text or are predicted, 0 to 1."""
        return float(self.f1[(self.confusion.sum(0) + self.confusion.sum(1)) > 0].mean())

    @property
    def rank(self) -> tuple[float, float]:
        """Values by which weights are compared in order: macro-F1, then the negative loss."""
        return self.macro_f1, -self.loss

    @property
    def summary(self) -> str:
        """Main metrics as text for the progress report."""
        return f"accuracy {self.accuracy:.1%}, macro-F1 {self.macro_f1:.3f}, loss {self.loss:.3f}"

    @property
    def metrics(self) -> Mapping[str, object]:
        """Metrics as JSON values for the log."""
        return {
            "accuracy": round(self.accuracy, 5), "macro_f1": round(self.macro_f1, 5), "loss": round(self.loss, 5),
            "f1": dict(zip(self.classes, self.f1.round(5).tolist(), strict=True)),
        }  # fmt: skip

    def table(self) -> list[str]:
        """Return the metrics as the lines of a text table: a header, then a line for each class."""
        width = max(len("class"), *(len(name) for name in self.classes))
        lines = [f"{'class':<{width}}  precision  recall     F1  texts"]
        rows = zip(self.classes, self.precision, self.recall, self.f1, self.confusion.sum(1), strict=True)
        for name, precision, recall, f1, texts in rows:
            lines.append(f"{name:<{width}} {precision:>10.1%} {recall:>7.1%} {f1:>6.3f} {texts:>6,}")
        return lines


@dataclass(frozen=True)
class ClassifierExample:
    """Encoded text or pair of texts with the number of its class.

    input_ids, token_type_ids: token and segment ids, (seq,). label: number of the class.
    """

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    label: int


def finetune(
    train: Path,
    folder: Path,
    settings: FinetuneSettings,
    *,
    text: str,
    label: str,
    pair: str | None = None,
    held_out: Path | float = 0.1,
    start: str = "headlight-mini",
    keep: int = 0,
    device: str | None = None,
    report: Progress = print_progress,
) -> ClassifierScores:
    """Train a classifier on the rows of a table, and save the weights with the best held-out scores.

    train: table (CSV, TSV or JSON lines). text, pair, label: names of its columns; pair may be None.
    folder: folder of the run. It gets a checkpoint with the tokenizer, the classifier and the unchanged pre-training
        heads of the start, which each better evaluation replaces. The log is `log.jsonl`, one JSON object per line.
    held_out: another table, or the share of each class to hold out, between 0 and 1.
    start: bundled model, checkpoint folder, or hub id. A classifier with the same classes is trained further.
    keep: maximum number of steps whose weights are saved, in `steps/NUMBER`, where `load` can open them; 0 for none.
        They are evenly spaced, include the first and the last step, and take at most 4 GiB.
    device: device name; None chooses the best one. report: function that receives the progress.
    The same call resumes a stopped run, on a CPU to the same weights. A run that was killed before its first state was
    saved, within minutes of its start, starts again. Until the run is finished, `unfinished.json` holds its identity.
    Returns the held-out scores of the saved weights.
    Raises Refused if the table, the start, the settings or the device cannot be used, or the loss becomes infinite or
    NaN. Also raises Refused if the folder holds a finished model or another unfinished run, or is used by a run now.
    """
    torch_device = best_device(device)
    examples = read_labelled(train, text, label, pair)
    classes = sorted_classes(examples, label)
    if isinstance(held_out, Path):
        held_out_examples = read_labelled(held_out, text, label, pair)
        check_known_classes(held_out_examples, classes, held_out)
    else:
        examples, held_out_examples = stratified_split(examples, held_out, settings.seed)

    source, _ = read_pooling(model_folder(start))
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # for weights that the start lacks
    origin, classifier = load_start(
        source, settings, classes, BertForSequenceClassification, lambda family: family.classifier,
        TASK_HEADS["classifier"].is_in_checkpoint,
    )  # fmt: skip
    tokenizer.check_against(origin.config)
    identity = finetune_identity(
        settings, (origin, classifier), tokenizer, train, held_out, columns=[text, label, pair]
    )  # fmt: skip
    is_unfinished(folder, identity)  # raises Refused before the examples are encoded
    report(
        None,
        f"{len(examples):,} training texts, {len(held_out_examples):,} held-out texts; "
        + ", ".join(f"{name} {count:,}" for name, count in _counts(examples, classes).items()),
    )
    if shared := len({(e.text, e.pair) for e in held_out_examples} & {(e.text, e.pair) for e in examples}):
        report(None, f"{shared:,} held-out texts are also training texts, so the scores overestimate the model")
    training = _encode(examples, classes, tokenizer, settings, train, report)
    held_out_path = held_out if isinstance(held_out, Path) else train
    evaluation = _encode(held_out_examples, classes, tokenizer, settings, held_out_path, report)
    pad = tokenizer.pad_id
    task = Task(
        origin, classifier, training, evaluation,
        partial(_loss, classifier, pad=pad, device=torch_device),
        lambda: evaluate_classifier(classifier, evaluation, pad=pad, device=torch_device, batch=settings.batch),
    )  # fmt: skip
    return run_finetuning(
        task, settings, folder, source, identity, pooled=True, keep=keep, device=torch_device, report=report
    )  # fmt: skip


def _loss(
    classifier: BertForSequenceClassification, batch: Sequence[ClassifierExample], *, pad: int, device: torch.device
) -> Tensor:
    """Return the mean cross-entropy of a batch, in nats."""
    width = training_width(batch, classifier.config, device)
    logits = classifier(**model_inputs(batch, classifier.config, pad, device, width)).logits
    return F.cross_entropy(logits.float(), torch.tensor([example.label for example in batch], device=device))


@torch.no_grad()
def evaluate_classifier(
    classifier: BertForSequenceClassification,
    examples: Sequence[ClassifierExample],
    *,
    pad: int,
    device: torch.device,
    batch: int = 16,
) -> ClassifierScores:
    """Return the scores of a classifier on examples, computed in float32 as in the app.

    pad: id of the padding token. batch: number of examples per batch. The classifier is left in evaluation mode.
    """
    classifier.eval()
    confusion = np.zeros((classifier.num_labels, classifier.num_labels), np.int64)
    loss = 0.0
    for batch_examples in batches_by_length(examples, batch):
        labels = torch.tensor([example.label for example in batch_examples], device=device)
        logits = classifier(**model_inputs(batch_examples, classifier.config, pad, device)).logits
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        np.add.at(confusion, (labels.cpu().numpy(), logits.argmax(-1).cpu().numpy()), 1)
    return ClassifierScores(classifier.config.labels, confusion, loss / len(examples))


def _encode(
    examples: Sequence[LabelledText],
    classes: tuple[str, ...],
    tokenizer: Tokenizer,
    settings: FinetuneSettings,
    path: Path,
    report: Progress,
) -> list[ClassifierExample]:
    """Return the encoded examples, with long texts truncated, and report how many were truncated.

    Raises Refused with the row number for a text that cannot be encoded.
    """
    class_numbers = {name: number for number, name in enumerate(classes)}
    encoded, truncated = [], 0
    for example in examples:
        try:
            encoding = tokenizer.encode(example.text, example.pair, max_length=settings.max_length)
        except Refused as error:
            raise Refused(f"row {example.row} of {path.name}: {error}") from error
        truncated += encoding.truncated_count > 0
        encoded.append(ClassifierExample(encoding.input_ids, encoding.token_type_ids, class_numbers[example.label]))
    if truncated:
        report(
            None,
            f"{truncated:,} of {len(examples):,} texts are longer than {settings.max_length} tokens and were truncated",
        )
    return encoded


def _counts(examples: Sequence[LabelledText], classes: tuple[str, ...]) -> dict[str, int]:
    """Return the number of examples of each class."""
    counts = Counter(example.label for example in examples)
    return {name: counts[name] for name in classes}
