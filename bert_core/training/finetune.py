"""The second step of pre-train and fine-tune: a classifier of texts, learned from a table with a class in each row."""

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
from bert_core.training.labelled import check_classes, classes_of, split_off
from bert_core.training.tuning import (
    FinetuneSettings,
    Task,
    finetune_identity,
    inputs_of,
    is_unfinished,
    longest_first,
    run_finetuning,
    start_of,
    training_width,
)


@compared_by_value
@dataclass(frozen=True)
class Scores:
    """How a classifier does on examples that it was not trained on.

    confusion: (true class, guessed class), numbers of texts. loss: mean cross-entropy in nats.
    """

    classes: tuple[str, ...]
    confusion: np.ndarray
    loss: float

    @property
    def accuracy(self) -> float:
        """Share of texts whose class was guessed."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def precision(self) -> np.ndarray:
        """(class,): of the texts that were given this class, the share that has it; 0 if none was."""
        shares: np.ndarray = np.diag(self.confusion) / np.maximum(self.confusion.sum(0), 1)
        return shares

    @property
    def recall(self) -> np.ndarray:
        """(class,): of the texts of this class, the share that was given it; 0 if there are none."""
        shares: np.ndarray = np.diag(self.confusion) / np.maximum(self.confusion.sum(1), 1)
        return shares

    @property
    def f1(self) -> np.ndarray:
        """(class,): harmonic mean of precision and recall."""
        means: np.ndarray = 2 * np.diag(self.confusion) / np.maximum(self.confusion.sum(0) + self.confusion.sum(1), 1)
        return means

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the classes that were asked for or guessed, each counted alike."""
        return float(self.f1[(self.confusion.sum(0) + self.confusion.sum(1)) > 0].mean())

    @property
    def rank(self) -> tuple[float, float]:
        """What decides which weights are better: macro-F1, then the loss."""
        return self.macro_f1, -self.loss

    @property
    def summary(self) -> str:
        """The most telling figures, as a part of a sentence."""
        return f"accuracy {self.accuracy:.1%}, macro-F1 {self.macro_f1:.3f}, loss {self.loss:.3f}"

    @property
    def figures(self) -> Mapping[str, object]:
        """The figures as the log holds them."""
        return {
            "accuracy": round(self.accuracy, 5), "macro_f1": round(self.macro_f1, 5), "loss": round(self.loss, 5),
            "f1": dict(zip(self.classes, self.f1.round(5).tolist(), strict=True)),
        }  # fmt: skip

    def table(self) -> list[str]:
        """The figures as lines of text: a header, then a line for each class."""
        width = max(len("class"), *(len(name) for name in self.classes))
        lines = [f"{'class':<{width}}  precision  recall     F1  texts"]
        rows = zip(self.classes, self.precision, self.recall, self.f1, self.confusion.sum(1), strict=True)
        for name, precision, recall, f1, texts in rows:
            lines.append(f"{name:<{width}} {precision:>10.1%} {recall:>7.1%} {f1:>6.3f} {texts:>6,}")
        return lines


@dataclass(frozen=True)
class Example:
    """What the model reads of one text, and the number of its class."""

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
) -> Scores:
    """Train a classifier on the rows of a CSV file, and keep the weights that do best on held-out rows.

    text, pair, label: the columns. held_out: another file, or the share of each class to hold out.
    start: a bundled model, a checkpoint folder, or a hub id; a classifier of the same classes goes on from its own.
    The folder gets a checkpoint with the tokenizer, the classifier, and the heads that the start had, unchanged; each
    better result replaces it at once. Progress goes to `report` and, as one JSON object a line, to `log.jsonl`.
    While it lasts, `unfinished.json` says what it was begun with: the same call goes on where one was stopped, on a CPU
    to the same weights, or begins anew where one was killed within its first minutes.
    keep: of how many steps the weights are kept, in `steps/NUMBER`, where `load` opens them: the start, the end, and
    others evenly between, all together 4 GiB at most; 0 for none.
    Returns the held-out scores of the weights that were kept.
    Raises Refused if the table, the start, the settings or the device cannot be used, the loss is lost, or the folder
    holds a model, another run that was not finished, or one that writes to it now.
    """
    here = best_device(device)
    examples = read_labelled(train, text, label, pair)
    classes = classes_of(examples, label)
    if isinstance(held_out, Path):
        asked = read_labelled(held_out, text, label, pair)
        check_classes(asked, classes, held_out)
    else:
        examples, asked = split_off(examples, held_out, settings.seed)

    source, _ = read_pooling(model_folder(start))
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # the weights that the start does not have
    origin, classifier = start_of(
        source, settings, classes, BertForSequenceClassification, lambda family: family.classifier,
        TASK_HEADS["classifier"].is_in_checkpoint,
    )  # fmt: skip
    tokenizer.check_against(origin.config)
    identity = finetune_identity(
        settings, (origin, classifier), tokenizer, train, held_out, columns=[text, label, pair]
    )  # fmt: skip
    is_unfinished(folder, identity)  # before examples are encoded
    report(
        None,
        f"{len(examples):,} texts to train on, {len(asked):,} held out; "
        + ", ".join(f"{name} {count:,}" for name, count in _counts(examples, classes).items()),
    )
    if seen := len({(e.text, e.pair) for e in asked} & {(e.text, e.pair) for e in examples}):
        report(None, f"{seen:,} held-out texts also stand in the training rows: the scores flatter the model")
    training = _encode(examples, classes, tokenizer, settings, train, report)
    held = _encode(asked, classes, tokenizer, settings, held_out if isinstance(held_out, Path) else train, report)
    pad = tokenizer.pad_id
    task = Task(
        origin, classifier, training, held,
        partial(_loss, classifier, pad=pad, device=here),
        lambda: evaluate(classifier, held, pad=pad, device=here, batch=settings.batch),
    )  # fmt: skip
    return run_finetuning(task, settings, folder, source, identity, pooled=True, keep=keep, device=here, report=report)


def _loss(
    classifier: BertForSequenceClassification, batch: Sequence[Example], *, pad: int, device: torch.device
) -> Tensor:
    width = training_width(batch, classifier.config, device)
    logits = classifier(**inputs_of(batch, classifier.config, pad, device, width)).logits
    return F.cross_entropy(logits.float(), torch.tensor([example.label for example in batch], device=device))


@torch.no_grad()
def evaluate(
    classifier: BertForSequenceClassification,
    held: Sequence[Example],
    *,
    pad: int,
    device: torch.device,
    batch: int = 16,
) -> Scores:
    """Scores on examples, in the precision in which the app runs the model."""
    classifier.eval()
    confusion = np.zeros((classifier.num_labels, classifier.num_labels), np.int64)
    loss = 0.0
    for asked in longest_first(held, batch):
        labels = torch.tensor([example.label for example in asked], device=device)
        logits = classifier(**inputs_of(asked, classifier.config, pad, device)).logits
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        np.add.at(confusion, (labels.cpu().numpy(), logits.argmax(-1).cpu().numpy()), 1)
    return Scores(classifier.config.labels, confusion, loss / len(held))


def _encode(
    examples: Sequence[LabelledText],
    classes: tuple[str, ...],
    tokenizer: Tokenizer,
    settings: FinetuneSettings,
    path: Path,
    report: Progress,
) -> list[Example]:
    """Texts as the app would read them. Raises Refused, with its row, for a text that cannot be read."""
    number_of = {name: number for number, name in enumerate(classes)}
    encoded, cut = [], 0
    for example in examples:
        try:
            encoding = tokenizer.encode(example.text, example.pair, max_length=settings.max_length)
        except Refused as error:
            raise Refused(f"row {example.row} of {path.name}: {error}") from error
        cut += encoding.truncated_count > 0
        encoded.append(Example(encoding.input_ids, encoding.token_type_ids, number_of[example.label]))
    if cut:
        report(None, f"{cut:,} of {len(examples):,} texts are longer than {settings.max_length} tokens and were cut")
    return encoded


def _counts(examples: Sequence[LabelledText], classes: tuple[str, ...]) -> dict[str, int]:
    counts = Counter(example.label for example in examples)
    return {name: counts[name] for name in classes}
