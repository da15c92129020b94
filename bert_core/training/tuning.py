"""Parts shared by all kinds of fine-tuning: settings, initial models, batches, the training loop and its folder."""

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
from bert_core.naming import HEAD_TRANSFORMS, WORD_TRANSFORM, Family
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
from bert_core.training.settings import FinetuneSettings

UNFINISHED_FILE = "unfinished.json"  # identity of a run, deleted when the run is finished
REPORT_EVERY = 20  # steps; fewer in a short run
SAVE_EVERY = 300.0  # seconds between saved states
_BATCHES_PER_SORT = 16  # batches whose examples are sorted by length together
Model = TypeVar("Model", bound=BertPreTrainedModel)


class EncodedExample(Protocol):
    """Interface of an encoded training example; each task adds its labels."""

    @property
    def input_ids(self) -> tuple[int, ...]:
        """Token ids, (seq,)."""

    @property
    def token_type_ids(self) -> tuple[int, ...]:
        """Segment ids, (seq,)."""


class EvaluationScores(Protocol):
    """Interface of the scores of a model on held-out examples."""

    @property
    def rank(self) -> tuple[float, ...]:
        """Values by which weights are compared in order; larger is better."""

    @property
    def summary(self) -> str:
        """Main metrics as text for the progress report."""

    @property
    def metrics(self) -> Mapping[str, object]:
        """Metrics as JSON values for the log."""

    def table(self) -> list[str]:
        """Return all metrics as the lines of a text table."""


Example = TypeVar("Example", bound=EncodedExample)
Scores = TypeVar("Scores", bound=EvaluationScores)


@dataclass(frozen=True)
class Task(Generic[Example, Scores]):
    """Fine-tuning task: the models, the examples, the loss and the evaluation.

    origin: model with the encoder and the pre-training heads. model: model with the same encoder and the head to train.
    training, held_out: encoded examples. loss: function from a batch of examples to the loss as a scalar tensor with
    gradient graph. evaluate: function that returns the scores of the current model on the held-out examples.
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
    **reading: Any,
) -> dict[str, Any]:
    """Return the identity of a fine-tuning run, as `run_identity` does.

    task: both models, as of `load_start`. held_out: held-out file, or share of the training file to hold out.
    reading: arguments that determine how the files are read.
    """
    share = {} if isinstance(held_out, Path) else {"held-out share": held_out}
    texts = {"text": file_digest(train), "held-out text": file_digest(held_out) if isinstance(held_out, Path) else None}
    start = start_digests(*task, config=task[1].config.to_dict(), tokenizer=tokenizer)
    return run_identity("finetune", settings, start, texts, **share, **reading)


def is_unfinished(folder: Path, identity: Mapping[str, object]) -> bool:
    """Return whether a folder holds an unfinished run with this identity; False for a folder without a run.

    Raises Refused for a folder with a finished model, another run, or an unfinished run of version 0.2.
    """
    state = folder / STATE_FILE
    if not any(path.exists() for path in (folder / checkpoint.CONFIG_FILE, state)):
        return False
    if not (folder / UNFINISHED_FILE).is_file():
        raise Refused(f"{folder} already holds a model: choose another folder")
    saved_identity = read_json(folder / UNFINISHED_FILE)
    if "training" not in saved_identity and state.is_file():  # the file is damaged, or of version 0.2
        saved_identity = read_state(state)["identity"]
    if "training" in saved_identity:
        check_same_study(saved_identity, identity, folder)
    return True


@contextmanager
def _run_in(folder: Path, source: Path, identity: Mapping[str, object], report: Progress) -> Iterator[None]:
    """Context manager of a run, which locks its folder and keeps the identity of the run there until its end.

    source: checkpoint folder of the start, whose tokenizer is copied. After an error the files stay, for resuming.
    Raises Refused as `is_unfinished` does, and if another run is using the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / UNFINISHED_FILE
    with exclusive_lock(folder):
        if is_unfinished(folder, identity) and not (folder / STATE_FILE).is_file():
            report(None, f"the run in {folder} was stopped before its first state was saved: it starts again")
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
    has_head: Callable[[BertConfig, Mapping[str, Tensor]], bool],
) -> tuple[BertForPreTraining, Model]:
    """Load the initial model of a fine-tuning run, and the model to train, which shares its encoder.

    source: checkpoint folder. labels: labels of the head, None for a head without labels.
    head: function that creates the model to train from a configuration and an encoder. architecture: function that
        returns the name of its architecture in a model family.
    has_head: function that returns whether a checkpoint has such a head. A head with the same labels is trained
        further, and any other is initialised at random.
    Raises Refused for a decoder, or a maximum length that the model does not support.
    """
    config, weights = checkpoint.read(source)
    if config.is_decoder or config.add_cross_attention:
        raise Refused(f"{source.name} is a decoder, which cannot be fine-tuned here: start from an encoder")
    longest = config.max_position_embeddings
    if settings.max_length > longest:
        raise Refused(f"a length of {settings.max_length} is too long: {source.name} reads at most {longest} tokens")
    if not has_head(config, weights) or (labels is not None and config.labels != labels):
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
    if family.one_head_design:  # a new head starts with the layers of the MLM head, as in transformers
        words = {name: weight for name, weight in weights.items() if name.startswith(WORD_TRANSFORM)}
        for part in HEAD_TRANSFORMS:
            weights = {name.replace(WORD_TRANSFORM, part): weight for name, weight in words.items()} | weights
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
    """Run or resume a fine-tuning run to its end, and return and report its best held-out scores.

    The folder, which only one run may use at a time, gets the checkpoint of the best weights.
    source: checkpoint folder of the start. identity: as of `finetune_identity`. pooled: whether the head uses the
        pooler, which is then trained and saved, too. keep: maximum number of saved steps, as for `StepKeeper`.
    Raises Refused if the loss becomes infinite or NaN, and as `is_unfinished`, `StepKeeper` and `train` do.
    """
    with _run_in(folder, source, identity, report):
        training = _Finetuning(task, settings, folder, source, pooled=pooled, keep=keep, device=device)
        state = train(training, folder, identity, save_every=SAVE_EVERY, report=report, keep_state=False)
        training.keeper.add(state.step, last=True)
        best = training.best
        if best is None:  # the best evaluation was before the run was stopped and resumed
            checkpoint.load_weights(task.model, checkpoint.read(folder)[1], str(folder))
            best = task.evaluate()
        report(None, f"{folder} holds the weights after epoch {training.epoch_of(state.best_step)}, which are the best")
    for line in best.table():
        report(None, line)
    return best


class _Finetuning(Training, Generic[Example, Scores]):
    """Fine-tuning in epochs, each followed by an evaluation; the folder holds the weights of the best one."""

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
        self.steps_per_epoch = math.ceil(len(task.training) / settings.batch)
        self.steps = self.decay = self.steps_per_epoch * settings.epochs
        self.log_every = max(1, min(REPORT_EVERY, self.steps // 50))
        self.best: Scores | None = None
        self._batches: list[list[Example]] = []
        self._epoch_of_batches = 0

    def epoch_of(self, step: int) -> int:
        """Return the number, from 1, of the epoch of the last of `step` updates."""
        return -(-step // self.steps_per_epoch)

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
            loss = self.task.loss(self._batches[step % self.steps_per_epoch])
        loss.backward()  # type: ignore[no-untyped-call]
        if not math.isfinite(loss.item()):
            raise Refused(f"the loss is {loss.item()} at step {step}: choose a lower learning rate")
        self.done_units += settings.batch
        return {"loss": Metric(loss.detach())}

    def is_logged(self, step: int) -> bool:
        return step % self.log_every == 0 or step % self.steps_per_epoch == 0

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
        return step % self.steps_per_epoch == 0

    def evaluate(self, state: RunState) -> Evaluation:
        self.model.eval()
        scores = self.task.evaluate()
        self.model.train()
        is_best = state.best_rank is None or scores.rank > state.best_rank
        if is_best:
            _save(self.task.origin, self.task.model, self.folder, pooled=self.pooled)
            self.best = scores
        epoch = self.epoch_of(state.step)
        return Evaluation(
            {"epoch": epoch, "step": state.step, "held_out": scores.metrics, "kept": is_best},
            f"held out after epoch {epoch}: {scores.summary}" + (" (best so far)" if is_best else ""),
            tuple(map(float, scores.rank)),
        )

    def stop_reason(self, state: RunState) -> str:
        patience = self.settings.patience
        if not state.evaluated or state.evaluated - state.best_step < patience * self.steps_per_epoch:
            return ""
        return f"stopped early: no better held-out result for {patience} epoch{'s' * (patience > 1)}"

    def _write_step(self, folder: Path) -> None:
        """Write the current weights and the tokenizer as a checkpoint."""
        _save(self.task.origin, self.task.model, folder, pooled=self.pooled)
        copy_tokenizer(self.source, folder)


def batches_by_length(examples: Sequence[Example], batch: int) -> Iterator[Sequence[Example]]:
    """Yield all examples in batches of `batch` examples, from the longest to the shortest."""
    ordered = sorted(examples, key=lambda example: -len(example.input_ids))
    return (ordered[start : start + batch] for start in range(0, len(ordered), batch))


def model_inputs(
    batch: Sequence[EncodedExample], config: BertConfig, pad: int, device: torch.device, width: int | None = None
) -> dict[str, Tensor | None]:
    """Return the inputs of a model for a batch, each (batch, width) or None; shorter texts are padded on the right.

    pad: id of the padding token. width: number of tokens of each row, as of `training_width`; None for the length of
    the longest text.
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
    """Return the number of tokens of a row in training: the length of the longest text, rounded up by `padded_size`."""
    longest = max(len(example.input_ids) for example in batch)
    return min(padded_size(longest, device), config.max_position_embeddings)


def pad_rows(rows: Sequence[Sequence[int]], padding: int, width: int | None = None) -> Tensor:
    """Return rows of different lengths as one tensor (row, width), padded on the right.

    padding: value of the padding. width: None for the length of the longest row.
    """
    table = np.full((len(rows), width or max(map(len, rows))), padding, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)


def _batches(examples: Sequence[Example], size: int, rng: np.random.Generator) -> Iterator[list[Example]]:
    """Yield all examples once in random batches of similar lengths, so that few padding tokens are computed."""
    order = rng.permutation(len(examples)).tolist()
    batches: list[list[int]] = []
    for first in range(0, len(order), size * _BATCHES_PER_SORT):
        by_length = sorted(order[first : first + size * _BATCHES_PER_SORT], key=lambda n: len(examples[n].input_ids))
        batches += [by_length[start : start + size] for start in range(0, len(by_length), size)]
    for number in rng.permutation(len(batches)):
        yield [examples[n] for n in batches[number]]


def _save(origin: BertForPreTraining, model: BertPreTrainedModel, folder: Path, *, pooled: bool) -> None:
    """Write a checkpoint of the encoder, the trained head, and the pre-training heads that the start had."""
    report = origin.load_report
    is_saved = {
        "bert.pooler.": pooled or not (report.lacks("bert.pooler.") or model.config.family.one_head_design),
        "bert.": True,
        "cls.predictions.": not report.lacks("cls.predictions."),
        "cls.seq_relationship.": not (report.lacks("cls.seq_relationship.") or report.lacks("bert.pooler.")),
    }  # fmt: skip
    tensors = {
        name: t
        for name, t in origin.state_dict(keep_vars=True).items()
        if next((saved for prefix, saved in is_saved.items() if name.startswith(prefix)), False)
    }
    head = {n: t for n, t in model.state_dict(keep_vars=True).items() if not n.startswith("bert.")}
    checkpoint.write_tensors({**tensors, **head}, model.config, folder)
