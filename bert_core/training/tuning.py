"""What every fine-tuning shares: where it starts, its epochs, the best weights so far, and the folder of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from bert_core.studies.runner import check_same_study, exclusive_lock, read_json
from bert_core.tokenizer import Tokenizer
from bert_core.training.launch import copy_tokenizer
from bert_core.training.optimization import Metric, adamw, padded_size, training_autocast, trapezoid
from bert_core.training.runs import (
    STATE_FILE,
    Evaluation,
    RunState,
    StepKeeper,
    Training,
    append_to_log,
    file_digest,
    read_state,
    run_identity,
    start_digests,
    train,
)

UNFINISHED_FILE = "unfinished.json"  # the identity of a run, while it lasts
REPORT_EVERY = 20  # steps, or more often in a short run
SAVE_EVERY = 300.0  # seconds between notes of where a run is
_BATCHES_PER_SORT = 16  # batches
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


class EncodedExample(Protocol):
    """What the model reads of one text; its answer stands beside it, in whatever form the task has."""

    @property
    def input_ids(self) -> tuple[int, ...]:
        """Numbers of its pieces."""

    @property
    def token_type_ids(self) -> tuple[int, ...]:
        """Their segments."""


class EvaluationScores(Protocol):
    """How a model does on examples that it was not trained on."""

    @property
    def rank(self) -> tuple[float, ...]:
        """What decides whether weights are better than others: the larger, number after number."""

    @property
    def summary(self) -> str:
        """The most telling figures, as a part of a sentence."""

    @property
    def metrics(self) -> Mapping[str, object]:
        """The figures as the log holds them."""

    def table(self) -> list[str]:
        """The figures as lines of text."""


Example = TypeVar("Example", bound=EncodedExample)
Scores = TypeVar("Scores", bound=EvaluationScores)


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
    held_out: Sequence[Example]
    loss: Callable[[Sequence[Example]], Tensor]
    evaluate: Callable[[], Scores]


def finetune_identity(
    settings: FinetuneSettings,
    task: tuple[BertForPreTraining, BertPreTrainedModel],
    tokenizer: Tokenizer,
    train: Path,
    held_out: Path | float,
    **given: Any,
) -> dict[str, Any]:
    """What a fine-tuning run is identified by. task: as `start_of` has it. given: how the files are read."""
    share = {} if isinstance(held_out, Path) else {"held-out share": held_out}
    texts = {"text": file_digest(train), "held-out text": file_digest(held_out) if isinstance(held_out, Path) else None}
    start = start_digests(*task, config=task[1].config.to_dict(), tokenizer=tokenizer)
    return run_identity("finetune", settings, start, texts, **share, **given)


def is_unfinished(folder: Path, identity: Mapping[str, object]) -> bool:
    """Whether a run with this identity was stopped in a folder.

    Raises Refused for a folder with any other model or run, or an unfinished run of version 0.2.
    """
    state = folder / STATE_FILE
    if not any(path.exists() for path in (folder / checkpoint.CONFIG_FILE, state)):
        return False
    if not (folder / UNFINISHED_FILE).is_file():
        raise Refused(f"{folder} already holds a model: choose another folder")
    kept = read_json(folder / UNFINISHED_FILE)
    if "training" not in kept and state.is_file():  # the file is damaged, or of version 0.2
        kept = read_state(state)["identity"]
    if "training" in kept:
        check_same_study(kept, identity, folder)
    return True


@contextmanager
def _run_in(folder: Path, source: Path, identity: Mapping[str, object], report: Progress) -> Iterator[None]:
    """One run in a folder, alone: its identity is in a file there until it is done, beside the tokenizer.

    source: the folder of the start. Raises Refused as `is_unfinished`, and where another run writes to the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / UNFINISHED_FILE
    with exclusive_lock(folder):
        if is_unfinished(folder, identity) and not (folder / STATE_FILE).is_file():
            report(None, f"the run in {folder} was stopped before its first state was saved: it begins anew")
        checkpoint.write_atomically(unfinished, json.dumps(identity, indent=1) + "\n")
        copy_tokenizer(source, folder)
        yield
        (folder / STATE_FILE).unlink(missing_ok=True)
        unfinished.unlink()


def load_start(
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
    with checkpoint.on_meta_device():
        origin = BertForPreTraining(config)
    origin.load_report = checkpoint.load_weights(origin, weights, str(source))
    with checkpoint.on_meta_device():
        model = head(config, origin.bert)
    checkpoint.load_weights(model, weights, str(source))
    return origin, model


def run_finetuning(
    task: Task[Example, Scores],
    settings: FinetuneSettings,
    folder: Path,
    source: Path,
    identity: Mapping[str, object],
    *,
    pooled: bool,
    keep: int,
    device: torch.device,
    report: Progress,
) -> Scores:
    """One run in its folder, exclusive_lock, to its end; the best scores, which are reported too.

    source: the folder of the start. identity: as `finetune_identity` has it. pooled: whether the head stands on the
    pooler, which is then taught too. keep: of how many steps the weights are kept, as `StepKeeper` has it.
    Raises Refused where the loss is lost, or as `is_unfinished`, `StepKeeper` and `train` do.
    """
    with _run_in(folder, source, identity, report):
        training = _Finetuning(task, settings, folder, source, pooled=pooled, keep=keep, device=device)
        state = train(training, folder, identity, save_every=SAVE_EVERY, report=report, keep_state=False)
        training.keeper.add(state.step, last=True)
        best = training.best
        if best is None:  # it was found before the run was stopped
            checkpoint.load_weights(task.model, checkpoint.read(folder)[1], str(folder))
            best = task.evaluate()
        report(None, f"kept: the weights after epoch {training.epoch_of(state.best_step)}, in {folder}")
    for line in best.table():
        report(None, line)
    return best


class _Finetuning(Training, Generic[Example, Scores]):
    """Epochs over the examples of a task, each followed by an evaluation; the best weights are kept in the folder."""

    units = "examples"
    smoothing = 0.9

    def __init__(
        self, task: Task[Example, Scores], settings: FinetuneSettings, folder: Path, source: Path,
        *, pooled: bool, keep: int, device: torch.device,
    ) -> None:  # fmt: skip
        self.task, self.settings, self.folder, self.device = task, settings, folder, device
        self.pooled, self.source = pooled, source
        task.origin.to(device)
        self.model = task.model.to(device)
        parameters = list(self.model.parameters())
        nbytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        self.keeper = StepKeeper(folder, keep, self._write_step, nbytes)
        self.optimizer = adamw(parameters, settings.learning_rate, settings.weight_decay)
        self.in_epoch = math.ceil(len(task.training) / settings.batch)
        self.steps = self.decay = self.in_epoch * settings.epochs
        self.log_every = max(1, min(REPORT_EVERY, self.steps // 50))
        self.best: Scores | None = None
        self._batches: list[list[Example]] = []
        self._epoch_of_batches = 0

    def epoch_of(self, step: int) -> int:
        """The epoch, counted from 1, of the last of so many updates."""
        return -(-step // self.in_epoch)

    def begin(self, state: RunState) -> None:
        if not state.step:
            line = {"steps": self.steps, "examples": len(self.task.training), "held": len(self.task.held_out)}
            append_to_log(self.folder, line)
        self.keeper.begin(state.step)

    def learning_rate(self, step: int) -> float:
        share = trapezoid(step, steps=self.steps, warmup=self.steps // 10, decay=self.decay)
        return self.settings.learning_rate * share

    def add_gradients(self, step: int) -> dict[str, Metric]:
        settings, epoch = self.settings, self.epoch_of(step + 1)
        if epoch != self._epoch_of_batches:
            rng = np.random.default_rng([settings.seed, epoch])
            self._batches, self._epoch_of_batches = list(_batches(self.task.training, settings.batch, rng)), epoch
        torch.manual_seed(settings.seed * 1_000_003 + step)  # dropout
        with training_autocast(self.device):
            loss = self.task.loss(self._batches[step % self.in_epoch])
        loss.backward()  # type: ignore[no-untyped-call]
        if not math.isfinite(loss.item()):
            raise Refused(f"the loss is no longer a number at step {step}: take a lower learning rate")
        self.done_units += settings.batch
        return {"loss": Metric(loss.detach())}

    def is_logged(self, step: int) -> bool:
        return step % self.log_every == 0 or step % self.in_epoch == 0

    def log_line(self, state: RunState, learning_rate: float, speed: float) -> dict[str, Any]:
        epoch, loss = self.epoch_of(state.step), round(state.means["loss"], 5)
        return {"epoch": epoch, "step": state.step, "rate": learning_rate, "loss": loss}

    def progress(self, state: RunState) -> str:
        return (
            f"epoch {self.epoch_of(state.step)}/{self.settings.epochs}  step {state.step}/{self.steps}  "
            f"loss {state.means['loss']:.3f}"
        )

    def after_update(self, step: int) -> None:
        self.keeper.add(step)

    def is_evaluated(self, step: int) -> bool:
        return step % self.in_epoch == 0

    def evaluate(self, state: RunState) -> Evaluation:
        self.model.eval()
        scores = self.task.evaluate()
        self.model.train()
        better = state.best_rank is None or scores.rank > state.best_rank
        if better:
            _save(self.task.origin, self.task.model, self.folder, pooled=self.pooled)
            self.best = scores
        epoch = self.epoch_of(state.step)
        return Evaluation(
            {"epoch": epoch, "step": state.step, "held_out": scores.metrics, "kept": better},
            f"held out after epoch {epoch}: {scores.summary}" + (", the best so far: kept" if better else ""),
            tuple(map(float, scores.rank)),
        )

    def stop_reason(self, state: RunState) -> str:
        patience = self.settings.patience
        if not state.evaluated or state.evaluated - state.best_step < patience * self.in_epoch:
            return ""
        return f"no better for {patience} epochs: stopped early"

    def _write_step(self, folder: Path) -> None:
        _save(self.task.origin, self.task.model, folder, pooled=self.pooled)
        copy_tokenizer(self.source, folder)


def batches_by_length(examples: Sequence[Example], batch: int) -> Iterator[Sequence[Example]]:
    """Every example once, those of about one length together."""
    ordered = sorted(examples, key=lambda example: -len(example.input_ids))
    return (ordered[first : first + batch] for first in range(0, len(ordered), batch))


def model_inputs(
    batch: Sequence[EncodedExample], config: BertConfig, pad: int, device: torch.device, width: int | None = None
) -> dict[str, Tensor | None]:
    """What a model is called with, (batch, width); the shorter texts are padded on the right.

    width: tokens of each row, as `training_width` has it; None for those of the longest text.
    """
    ids = pad_rows([example.input_ids for example in batch], pad, width)
    mask = pad_rows([[1] * len(example.input_ids) for example in batch], 0, width)
    segments = pad_rows([example.token_type_ids for example in batch], 0, width) if config.type_vocab_size else None
    return {
        "input_ids": ids.to(device),
        "token_type_ids": None if segments is None else segments.to(device),
        "attention_mask": None if mask.all() else mask.to(device),
    }


def training_width(batch: Sequence[EncodedExample], config: BertConfig, device: torch.device) -> int:
    """The tokens of a row in training: those of the longest text, or a few more so that widths repeat."""
    longest = max(len(example.input_ids) for example in batch)
    return min(padded_size(longest, device), config.max_position_embeddings)


def pad_rows(rows: Sequence[Sequence[int]], padding: int, width: int | None = None) -> Tensor:
    """(row, width), each row filled up on the right; without a width, up to the longest."""
    found = np.full((len(rows), width or max(map(len, rows))), padding, np.int64)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return torch.from_numpy(found)


def _batches(examples: Sequence[Example], size: int, rng: np.random.Generator) -> Iterator[list[Example]]:
    """Every example once, in an order drawn anew; those of a batch are about equally long: few pads are read."""
    order = rng.permutation(len(examples)).tolist()
    batches: list[list[int]] = []
    for first in range(0, len(order), size * _BATCHES_PER_SORT):
        together = sorted(order[first : first + size * _BATCHES_PER_SORT], key=lambda n: len(examples[n].input_ids))
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
