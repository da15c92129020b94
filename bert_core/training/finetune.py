"""The second step of pre-train and fine-tune: a classifier of texts, learned from a table with a class in each row."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core import checkpoint
from bert_core.loading import best_device, model_folder
from bert_core.modeling import BertForPreTraining, BertForSequenceClassification
from bert_core.progress import Progress, printed
from bert_core.refused import Refused
from bert_core.studies.resume import alone, as_kept, check_same, read_kept
from bert_core.studies.rows import LabelledText, read_labelled
from bert_core.tokenizer import Tokenizer
from bert_core.training.labelled import check_classes, classes_of, split_off
from bert_core.training.launch import copy_tokenizer
from bert_core.training.runs import LOG_FILE, adamw, fast_forward, in_words, log, trapezoid, update

UNFINISHED_FILE = "unfinished.json"  # what a run was begun with, while it lasts
REPORT_EVERY = 20  # steps
_SORTED_TOGETHER = 16  # batches


@dataclass(frozen=True)
class FinetuneSettings:
    """What decides the weights that come out; two runs with equal settings give equal weights on one machine.

    epochs: times that every row is seen, at most. The rate rises over the first tenth of all steps, then falls to zero.
    patience: epochs without a better held-out result after which the run ends.
    max_length: tokens of a text, or of a pair together; longer ones are cut as in the app.
    """

    epochs: int = 5
    learning_rate: float = 5e-5
    batch: int = 16
    max_length: int = 128
    dropout: float = 0.1
    weight_decay: float = 0.01
    patience: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "patience"):
            if getattr(self, name) < 1:
                raise Refused(f"{name} is {getattr(self, name)}: 1 is the least")
        if not 0 < self.learning_rate < math.inf:
            raise Refused(f"the learning rate is {self.learning_rate:g}: it is a number greater than 0")


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
    device: str | None = None,
    report: Progress = printed,
) -> Scores:
    """Train a classifier on the rows of a CSV file, and keep the weights that do best on held-out rows.

    text, pair, label: the columns. held_out: another file, or the share of each class to hold out.
    start: a bundled model, a checkpoint folder, or a hub id; a classifier of the same classes goes on from its own.
    The folder gets a checkpoint with the tokenizer, the classifier, and the heads that the start had, unchanged; each
    better result replaces it at once. Progress goes to `report` and, as one JSON object a line, to `log.jsonl`.
    While it lasts, `unfinished.json` says what it was begun with: the same call begins anew where one was killed.
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
    files = {"text": train, **({"held_out": held_out} if isinstance(held_out, Path) else {})}
    now = as_kept(
        {"start": str(start), "columns": [text, label, pair], "held_out": str(held_out)}
        | {f"the {name}": sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
        | asdict(settings)
    )
    _begins_anew(folder, now)

    source = model_folder(start)
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # the weights that the start does not have
    origin, classifier = _start(source, classes, settings)
    tokenizer.check_against(origin.config)
    report(
        None,
        f"{len(examples):,} texts to train on, {len(asked):,} held out; "
        + ", ".join(f"{name} {count:,}" for name, count in _counts(examples, classes).items()),
    )
    if seen := len({(e.text, e.pair) for e in asked} & {(e.text, e.pair) for e in examples}):
        report(None, f"{seen:,} held-out texts also stand in the training rows: the scores flatter the model")
    training = _encode(examples, classes, tokenizer, settings, train, report)
    held = _encode(asked, classes, tokenizer, settings, held_out if isinstance(held_out, Path) else train, report)

    folder.mkdir(parents=True, exist_ok=True)
    begun = folder / UNFINISHED_FILE
    with alone(folder):
        if _begins_anew(folder, now):
            report(None, f"the run in {folder} was stopped before its end: it begins anew")
        checkpoint.write_whole(begun, json.dumps(now, indent=1) + "\n")
        copy_tokenizer(source, folder)
        (folder / LOG_FILE).unlink(missing_ok=True)  # of a run that was not finished
        report(None, in_words(here))
        origin.to(here)
        classifier.to(here)
        best = _train(
            origin, classifier, training, held, settings, folder, pad=tokenizer.pad_id, device=here, report=report
        )
        begun.unlink()
    for line in best.table():
        report(None, line)
    return best


def _begins_anew(folder: Path, now: Mapping[str, object]) -> bool:
    """Whether a run was killed in a folder that has its best model so far. Raises Refused for any other model there."""
    if not (folder / checkpoint.CONFIG_FILE).exists():
        return False
    if not (folder / UNFINISHED_FILE).is_file():
        raise Refused(f"{folder} already holds a model: choose another folder")
    check_same(read_kept(folder / UNFINISHED_FILE), now, folder)
    return True


def _start(
    source: Path, classes: tuple[str, ...], settings: FinetuneSettings
) -> tuple[BertForPreTraining, BertForSequenceClassification]:
    """The model that training starts from, and the classifier on its encoder."""
    config, weights = checkpoint.read(source)
    if config.is_decoder or config.add_cross_attention:
        raise Refused(f"{source.name} is a decoder, which reads a text from left to right: start from an encoder")
    longest = config.max_position_embeddings
    if settings.max_length > longest:
        raise Refused(f"a length of {settings.max_length} is too long: {source.name} reads {longest} tokens")
    goes_on = checkpoint.holds_classifier(config, weights) and config.labels == classes
    if not goes_on:
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")}
    config = config.with_labels(classes).replace(
        hidden_dropout_prob=settings.dropout, attention_probs_dropout_prob=settings.dropout
    )
    family = config.family
    config = config.replace(extra={**config.extra, "model_type": family.name, "architectures": [family.classifier]})
    with checkpoint.sizes_alone():
        origin = BertForPreTraining(config)
    origin.load_report = checkpoint.fill(origin, weights, str(source))
    with checkpoint.sizes_alone():
        classifier = BertForSequenceClassification(config, origin.bert)
    checkpoint.fill(classifier, weights, str(source))
    return origin, classifier


def _train(
    origin: BertForPreTraining,
    classifier: BertForSequenceClassification,
    training: Sequence[Example],
    held: Sequence[Example],
    settings: FinetuneSettings,
    folder: Path,
    *,
    pad: int,
    device: torch.device,
    report: Progress,
) -> Scores:
    """The loop: an epoch, a look at the held-out examples, and on until it gets no better."""
    parameters = list(classifier.parameters())
    optimizer = adamw(parameters, settings.learning_rate, settings.weight_decay)
    in_epoch = math.ceil(len(training) / settings.batch)
    steps = in_epoch * settings.epochs
    best: Scores | None = None
    best_epoch = step = texts_done = 0
    started = time.monotonic()
    for epoch in range(1, settings.epochs + 1):
        classifier.train()
        smooth: float | None = None
        for batch in _batches(training, settings.batch, np.random.default_rng([settings.seed, epoch])):
            torch.manual_seed(settings.seed * 1_000_003 + step)  # dropout
            with fast_forward(device):
                logits = _logits(classifier, batch, pad, device)
                loss = F.cross_entropy(logits.float(), torch.tensor([e.label for e in batch], device=device))
            loss.backward()  # type: ignore[no-untyped-call]
            rate = settings.learning_rate * trapezoid(step, steps=steps, warmup=steps // 10, decay=steps)
            update(optimizer, parameters, rate)
            step, texts_done = step + 1, texts_done + len(batch)
            value = loss.item()
            if not math.isfinite(value):
                raise Refused(f"the loss is no longer a number at step {step}: take a lower learning rate")
            smooth = value if smooth is None else 0.9 * smooth + 0.1 * value
            if step % REPORT_EVERY == 0 or step % in_epoch == 0:
                speed = texts_done / (time.monotonic() - started)
                left = (settings.epochs * len(training) - texts_done) / speed
                log(folder, {"epoch": epoch, "step": step, "rate": rate, "loss": round(smooth, 5)})
                report(
                    step / steps,
                    f"epoch {epoch}/{settings.epochs}  step {step}/{steps}  loss {smooth:.3f}  "
                    f"{speed:,.1f} examples/s  {_duration(left)} left",
                )
        scores = evaluate(classifier, held, pad=pad, device=device, batch=settings.batch)
        better = best is None or (scores.macro_f1, -scores.loss) > (best.macro_f1, -best.loss)
        log(folder, {"epoch": epoch, "held_out": _figures(scores), "kept": better})
        report(
            None,
            f"held out after epoch {epoch}: accuracy {scores.accuracy:.1%}, macro-F1 {scores.macro_f1:.3f}, "
            f"loss {scores.loss:.3f}" + (", the best so far: kept" if better else ""),
        )
        if better:
            best, best_epoch = scores, epoch
            _save(origin, classifier, folder)
        elif epoch - best_epoch >= settings.patience and epoch < settings.epochs:
            report(None, f"no better for {settings.patience} epochs: stopped early")
            break
    assert best is not None  # there is at least one epoch
    report(None, f"kept: the weights after epoch {best_epoch}, in {folder}")
    return best


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
    longest_first = sorted(held, key=lambda example: -len(example.input_ids))
    for first in range(0, len(longest_first), batch):
        asked = longest_first[first : first + batch]
        labels = torch.tensor([example.label for example in asked], device=device)
        logits = _logits(classifier, asked, pad, device)
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
        cut += encoding.cut > 0
        encoded.append(Example(encoding.input_ids, encoding.token_type_ids, number_of[example.label]))
    if cut:
        report(None, f"{cut:,} of {len(examples):,} texts are longer than {settings.max_length} tokens and were cut")
    return encoded


def _batches(examples: Sequence[Example], size: int, rng: np.random.Generator) -> Iterator[list[Example]]:
    """Every example once, in an order drawn anew; those of a batch are about equally long: few pads are read."""
    order = rng.permutation(len(examples)).tolist()
    batches: list[list[int]] = []
    for first in range(0, len(order), size * _SORTED_TOGETHER):
        together = sorted(order[first : first + size * _SORTED_TOGETHER], key=lambda n: len(examples[n].input_ids))
        batches += [together[start : start + size] for start in range(0, len(together), size)]
    for number in rng.permutation(len(batches)):
        yield [examples[n] for n in batches[number]]


def _logits(
    classifier: BertForSequenceClassification, batch: Sequence[Example], pad: int, device: torch.device
) -> Tensor:
    """(batch, class), the shorter texts padded on the right."""
    length = max(len(example.input_ids) for example in batch)
    ids = np.full((len(batch), length), pad, np.int64)
    segments, mask = np.zeros_like(ids), np.zeros_like(ids)
    for row, example in enumerate(batch):
        end = len(example.input_ids)
        ids[row, :end], segments[row, :end], mask[row, :end] = example.input_ids, example.token_type_ids, 1
    outputs = classifier(
        torch.from_numpy(ids).to(device),
        token_type_ids=torch.from_numpy(segments).to(device) if classifier.config.type_vocab_size else None,
        attention_mask=None if mask.all() else torch.from_numpy(mask).to(device),
    )
    logits: Tensor = outputs.logits
    return logits


def _save(origin: BertForPreTraining, classifier: BertForSequenceClassification, folder: Path) -> None:
    """Write the encoder, the classifier, and those heads that the start had; no head that was never trained."""
    report = origin.load_report
    parts = {"bert.": True, "cls.predictions.": report.has_mlm, "cls.seq_relationship.": report.has_nsp}
    kept = tuple(part for part, there in parts.items() if there)
    tensors = {name: t for name, t in origin.state_dict(keep_vars=True).items() if name.startswith(kept)}
    own = {f"classifier.{name}": t for name, t in classifier.classifier.state_dict(keep_vars=True).items()}
    checkpoint.write_tensors({**tensors, **own}, classifier.config, folder)


def _counts(examples: Sequence[LabelledText], classes: tuple[str, ...]) -> dict[str, int]:
    counts = Counter(example.label for example in examples)
    return {name: counts[name] for name in classes}


def _figures(scores: Scores) -> Mapping[str, object]:
    return {
        "accuracy": round(scores.accuracy, 5), "macro_f1": round(scores.macro_f1, 5), "loss": round(scores.loss, 5),
        "f1": dict(zip(scores.classes, scores.f1.round(5).tolist(), strict=True)),
    }  # fmt: skip


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
