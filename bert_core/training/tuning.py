"""What every fine-tuning shares: where it starts, its loop, the best weights so far, and the folder that holds them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from bert_core import checkpoint
from bert_core.config import BertConfig
from bert_core.modeling import BertForPreTraining, BertModel, BertPreTrainedModel
from bert_core.naming import Family
from bert_core.progress import Progress
from bert_core.refused import Refused
from bert_core.studies.resume import alone, as_kept, check_same, read_kept
from bert_core.training.keeping import StepKeeper, resume_place, save_place
from bert_core.training.launch import copy_tokenizer
from bert_core.training.runs import (
    STATE_FILE,
    adamw,
    defer_sigint,
    fast_forward,
    in_words,
    log,
    padded_size,
    release_fragments,
    trapezoid,
    update,
)

UNFINISHED_FILE = "unfinished.json"  # what a run was begun with, while it lasts
REPORT_EVERY = 20  # steps, or more often in a short run
SAVE_EVERY = 300.0  # seconds between notes of where a run is
_SORTED_TOGETHER = 16  # batches
Model = TypeVar("Model", bound=BertPreTrainedModel)


@dataclass(frozen=True)
class FinetuneSettings:
    """What decides the weights that come out; on the CPU of one machine equal settings give equal weights.

    epochs: times that every example is seen, at most. The rate rises over the first tenth of all steps, then falls to
        zero.
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


class Read(Protocol):
    """What the model reads of one text; its answer stands beside it, in whatever form the task has."""

    @property
    def input_ids(self) -> tuple[int, ...]:
        """Numbers of its pieces."""

    @property
    def token_type_ids(self) -> tuple[int, ...]:
        """Their segments."""


class Judged(Protocol):
    """How a model does on examples that it was not trained on."""

    @property
    def rank(self) -> tuple[float, ...]:
        """What decides whether weights are better than others: the larger, number after number."""

    @property
    def said(self) -> str:
        """The most telling figures, as a part of a sentence."""

    @property
    def figures(self) -> Mapping[str, object]:
        """The figures as the log holds them."""

    def table(self) -> list[str]:
        """The figures as lines of text."""


Example = TypeVar("Example", bound=Read)
Scores = TypeVar("Scores", bound=Judged)


@dataclass(frozen=True)
class Task(Generic[Example, Scores]):
    """What is learned.

    origin: the model that training starts from. model: the same encoder with the head that is taught.
    training, held: examples to learn from, and to be judged by. loss: of some examples, with a graph; judge: scores on
    `held`, as the model now is.
    """

    origin: BertForPreTraining
    model: BertPreTrainedModel
    training: Sequence[Example]
    held: Sequence[Example]
    loss: Callable[[Sequence[Example]], Tensor]
    judge: Callable[[], Scores]


def as_begun(settings: FinetuneSettings, given: Mapping[str, object], files: Mapping[str, Path]) -> dict[str, Any]:
    """What a run is begun with, as `unfinished.json` has it. files: what is read, by what each is."""
    read = {f"the {name}": sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return as_kept({**given, **read, **asdict(settings)})


def was_begun(folder: Path, now: Mapping[str, object]) -> bool:
    """Whether a run was stopped in a folder, with what it has so far. Raises Refused for any other model there."""
    if not any((folder / name).exists() for name in (checkpoint.CONFIG_FILE, STATE_FILE)):
        return False
    if not (folder / UNFINISHED_FILE).is_file():
        raise Refused(f"{folder} already holds a model: choose another folder")
    check_same(read_kept(folder / UNFINISHED_FILE), now, folder)
    return True


@contextmanager
def _run_in(
    folder: Path, source: Path, now: Mapping[str, object], device: torch.device, report: Progress
) -> Iterator[None]:
    """One run in a folder, alone: what it was begun with stands there until it is done, beside the tokenizer.

    source: the folder of the start. Raises Refused as `was_begun`, and where another run writes to the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = folder / UNFINISHED_FILE
    with alone(folder):
        if was_begun(folder, now) and not (folder / STATE_FILE).is_file():
            report(None, f"the run in {folder} was stopped before its end: it begins anew")
        checkpoint.write_whole(begun, json.dumps(now, indent=1) + "\n")
        copy_tokenizer(source, folder)
        report(None, in_words(device))
        yield
        (folder / STATE_FILE).unlink(missing_ok=True)
        begun.unlink()


def start_of(
    source: Path,
    settings: FinetuneSettings,
    labels: tuple[str, ...] | None,
    head: Callable[[BertConfig, BertModel], Model],
    architecture: Callable[[Family], str],
    holds: Callable[[BertConfig, Mapping[str, Tensor]], bool],
) -> tuple[BertForPreTraining, Model]:
    """The model that training starts from, and the one to be taught, on its encoder.

    source: a checkpoint folder. labels: of the head; None where it has none. head: makes it. architecture: its name in
    a family. holds: whether a file has such a head; one of the same labels is gone on from.
    Raises Refused for a decoder, or a length that the start cannot read.
    """
    config, weights = checkpoint.read(source)
    if config.is_decoder or config.add_cross_attention:
        raise Refused(f"{source.name} is a decoder, which reads a text from left to right: start from an encoder")
    longest = config.max_position_embeddings
    if settings.max_length > longest:
        raise Refused(f"a length of {settings.max_length} is too long: {source.name} reads {longest} tokens")
    if not holds(config, weights) or (labels is not None and config.labels != labels):
        weights = {name: t for name, t in weights.items() if name.startswith(("bert.", "cls."))}
    config = config if labels is None else config.with_labels(labels)
    family = config.family
    config = config.replace(
        hidden_dropout_prob=settings.dropout, attention_probs_dropout_prob=settings.dropout,
        extra={**config.extra, "model_type": family.name, "architectures": [architecture(family)]},
    )  # fmt: skip
    with checkpoint.sizes_alone():
        origin = BertForPreTraining(config)
    origin.load_report = checkpoint.fill(origin, weights, str(source))
    with checkpoint.sizes_alone():
        model = head(config, origin.bert)
    checkpoint.fill(model, weights, str(source))
    return origin, model


def tuned(
    task: Task[Example, Scores],
    settings: FinetuneSettings,
    folder: Path,
    source: Path,
    now: Mapping[str, object],
    *,
    pooled: bool,
    keep: int,
    device: torch.device,
    report: Progress,
) -> Scores:
    """One run in its folder, alone, to its end; the best scores, which are reported too.

    source: the folder of the start. now: what it is begun with, as `as_begun` has it. The rest is as for `_tune`.
    """
    with _run_in(folder, source, now, device, report):
        task.origin.to(device)
        task.model.to(device)
        best = _tune(task, settings, folder, pooled=pooled, keep=keep, device=device, report=report)
    for line in best.table():
        report(None, line)
    return best


def _tune(
    task: Task[Example, Scores],
    settings: FinetuneSettings,
    folder: Path,
    *,
    pooled: bool,
    keep: int,
    device: torch.device,
    report: Progress,
) -> Scores:
    """The loop: an epoch, a look at the held-out examples, and on until it gets no better; the best scores.

    Where `folder` holds what an earlier run left when it was stopped, it goes on there, on a CPU to the same weights.
    pooled: whether the head stands on the pooler, which is then taught too. keep: of how many steps the weights are
    kept, as `StepKeeper` has it.
    Raises Refused where the loss is lost, or as `StepKeeper` and `resume_place` do.
    """
    parameters = list(task.model.parameters())
    nbytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    keeper = StepKeeper(folder, keep, partial(_save, task.origin, task.model, pooled=pooled), nbytes)
    optimizer = adamw(parameters, settings.learning_rate, settings.weight_decay)
    in_epoch = math.ceil(len(task.training) / settings.batch)
    steps = in_epoch * settings.epochs
    every = max(1, min(REPORT_EVERY, steps // 50))
    place = resume_place(folder, task.model, optimizer)
    best: Scores | None = None
    if place.step:
        report(None, f"goes on at step {place.step} of {steps}")
    else:
        log(folder, {"steps": steps, "examples": len(task.training), "held": len(task.held)})
    keeper.begin(place.step)
    started = saved = time.monotonic()
    first, whole = place.step, True  # whole: no update is half done
    try:
        for epoch in range(place.judged + 1, settings.epochs + 1):
            if place.judged and place.judged - place.best_epoch >= settings.patience:
                report(None, f"no better for {settings.patience} epochs: stopped early")
                break
            task.model.train()
            batches = _batches(task.training, settings.batch, np.random.default_rng([settings.seed, epoch]))
            for batch in islice(batches, place.step - (epoch - 1) * in_epoch, None):
                torch.manual_seed(settings.seed * 1_000_003 + place.step)  # dropout
                with fast_forward(device):
                    loss = task.loss(batch)
                loss.backward()  # type: ignore[no-untyped-call]
                rate = settings.learning_rate * trapezoid(place.step, steps=steps, warmup=steps // 10, decay=steps)
                value = loss.item()
                if not math.isfinite(value):
                    raise Refused(f"the loss is no longer a number at step {place.step}: take a lower learning rate")
                with defer_sigint():
                    whole = False
                    update(optimizer, parameters, rate)
                    place.step, whole = place.step + 1, True
                release_fragments(place.step)
                place.smooth = value if place.smooth is None else 0.9 * place.smooth + 0.1 * value
                keeper.add(place.step)
                if place.step % every == 0 or place.step % in_epoch == 0:
                    seconds = (time.monotonic() - started) / (place.step - first)
                    log(folder, {"epoch": epoch, "step": place.step, "rate": rate, "loss": round(place.smooth, 5)})
                    report(
                        place.step / steps,
                        f"epoch {epoch}/{settings.epochs}  step {place.step}/{steps}  loss {place.smooth:.3f}  "
                        f"{settings.batch / seconds:,.1f} examples/s  {_duration((steps - place.step) * seconds)} left",
                    )
                if time.monotonic() - saved > SAVE_EVERY:
                    save_place(folder, place, task.model, optimizer)
                    saved = time.monotonic()
            task.model.eval()
            scores = task.judge()
            better = place.best is None or scores.rank > place.best
            if better:
                _save(task.origin, task.model, folder, pooled=pooled)
                best, place.best, place.best_epoch = scores, tuple(map(float, scores.rank)), epoch
            place.judged = epoch
            log(folder, {"epoch": epoch, "step": place.step, "held_out": scores.figures, "kept": better})
            report(None, f"held out after epoch {epoch}: {scores.said}" + (", the best so far: kept" if better else ""))
    except BaseException as error:  # whatever stops it: a Ctrl-C, or what a report raises
        if whole and not isinstance(error, Refused | OSError):
            save_place(folder, place, task.model, optimizer)
        raise
    keeper.add(place.step, last=True)
    if best is None:  # it was found before the run was stopped
        checkpoint.fill(task.model, checkpoint.read(folder)[1], str(folder))
        best = task.judge()
    report(None, f"kept: the weights after epoch {place.best_epoch}, in {folder}")
    return best


def longest_first(examples: Sequence[Example], batch: int) -> Iterator[Sequence[Example]]:
    """Every example once, those of about one length together."""
    ordered = sorted(examples, key=lambda example: -len(example.input_ids))
    return (ordered[first : first + batch] for first in range(0, len(ordered), batch))


def inputs_of(
    batch: Sequence[Read], config: BertConfig, pad: int, device: torch.device, width: int | None = None
) -> dict[str, Tensor | None]:
    """What a model is called with, (batch, width); the shorter texts are padded on the right.

    width: tokens of each row, as `training_width` has it; None for those of the longest text.
    """
    ids = filled([example.input_ids for example in batch], pad, width)
    mask = filled([[1] * len(example.input_ids) for example in batch], 0, width)
    segments = filled([example.token_type_ids for example in batch], 0, width) if config.type_vocab_size else None
    return {
        "input_ids": ids.to(device),
        "token_type_ids": None if segments is None else segments.to(device),
        "attention_mask": None if mask.all() else mask.to(device),
    }


def training_width(batch: Sequence[Read], config: BertConfig, device: torch.device) -> int:
    """The tokens of a row in training: those of the longest text, or a few more so that widths repeat."""
    longest = max(len(example.input_ids) for example in batch)
    return min(padded_size(longest, device), config.max_position_embeddings)


def filled(rows: Sequence[Sequence[int]], padding: int, width: int | None = None) -> Tensor:
    """(row, width), each row filled up on the right; without a width, up to the longest."""
    found = np.full((len(rows), width or max(map(len, rows))), padding, np.int64)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return torch.from_numpy(found)


def _batches(examples: Sequence[Example], size: int, rng: np.random.Generator) -> Iterator[list[Example]]:
    """Every example once, in an order drawn anew; those of a batch are about equally long: few pads are read."""
    order = rng.permutation(len(examples)).tolist()
    batches: list[list[int]] = []
    for first in range(0, len(order), size * _SORTED_TOGETHER):
        together = sorted(order[first : first + size * _SORTED_TOGETHER], key=lambda n: len(examples[n].input_ids))
        batches += [together[start : start + size] for start in range(0, len(together), size)]
    for number in rng.permutation(len(batches)):
        yield [examples[n] for n in batches[number]]


def _save(origin: BertForPreTraining, model: BertPreTrainedModel, folder: Path, *, pooled: bool) -> None:
    """Write the encoder, the head that is taught, and those that the start had; no head that was never trained."""
    report = origin.load_report
    parts = {
        "bert.pooler.": pooled or not report.lacks("bert.pooler."), "bert.": True,
        "cls.predictions.": not report.lacks("cls.predictions."),
        "cls.seq_relationship.": not (report.lacks("cls.seq_relationship.") or report.lacks("bert.pooler.")),
    }  # fmt: skip
    tensors = {
        name: t
        for name, t in origin.state_dict(keep_vars=True).items()
        if next((there for part, there in parts.items() if name.startswith(part)), False)
    }
    own = {n: t for n, t in model.state_dict(keep_vars=True).items() if not n.startswith("bert.")}
    checkpoint.write_tensors({**tensors, **own}, model.config, folder)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
