"""Masked words and next sentences from plain text: how the bundled weights were made, and how yours are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.modeling import IGNORED_LABEL, BertForPreTraining
from bert_core.progress import Progress, print_progress
from bert_core.records import Batch
from bert_core.refused import Refused
from bert_core.training.data import ExampleMaker, MaskingRule, Mix
from bert_core.training.optimization import (
    Metric,
    Muon,
    WeightAverage,
    adamw,
    padded_size,
    read_metrics,
    training_autocast,
    trapezoid,
)
from bert_core.training.runs import (
    Evaluation,
    RunState,
    Training,
    Workers,
    round_finite,
    run_identity,
    start_digests,
    train,
)

EVALUATION_MASKING = MaskingRule(rate=0.15)
OPTIMIZERS = ("adamw", "muon")
MASK_TOKEN_ONLY = MaskingRule(rate=0.15, mask_share=1.0, random_share=0.0)


@dataclass(frozen=True)
class PretrainSettings:
    """What decides the weights that come out; on the CPU of one machine equal settings give equal weights.

    steps: updates in all. The rate rises over `warmup` steps, stays, and falls to zero over the last `decay` steps;
    a run may be lengthened or shortened while its rate is still constant.
    tokens: tokens of one batch on each worker. lengths: share of batches of each sequence length.
    optimizer: "adamw", or "muon" for the matrices of the layers and AdamW for the rest.
    average: 0 ends with the weights of the last step, else with their running mean over about 1 / (1 - average) steps.
    """

    steps: int = 4000
    warmup: int = 150
    decay: int = 2000
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    tokens: int = 3072
    lengths: Mapping[int, float] = field(default_factory=lambda: {32: 0.15, 64: 0.3, 128: 0.45, 256: 0.05, 512: 0.05})
    masking: MaskingRule = field(default_factory=lambda: MaskingRule(rate=0.2))
    mix: Mix = field(default_factory=Mix)
    optimizer: str = "adamw"
    average: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.tokens < max(self.lengths):
            raise Refused(
                f"{self.steps} steps of {self.tokens} tokens: at least one step, and {max(self.lengths)} tokens"
            )
        if self.optimizer not in OPTIMIZERS:
            raise Refused(f"the optimizer {self.optimizer!r} is unknown: {' or '.join(OPTIMIZERS)}")
        if not 0 <= self.average < 1:
            raise Refused(f"average is {self.average:g}: 0 for none, and below 1")
        total = sum(self.lengths.values())
        if abs(total - 1) > 1e-6:
            raise Refused(f"the shares of the lengths add up to {total:g}: they must add up to 1")

    def rate_at(self, step: int) -> float:
        """Learning rate of a step, counted from zero."""
        return self.learning_rate * trapezoid(step, steps=self.steps, warmup=self.warmup, decay=self.decay)


def pretrain(
    model: BertForPreTraining,
    examples: ExampleMaker,
    held_out: ExampleMaker | None,
    settings: PretrainSettings,
    folder: Path,
    *,
    device: torch.device,
    save_every: float = 300.0,
    evaluate_every: int = 500,
    report: Progress = print_progress,
) -> BertForPreTraining:
    """Train a model in place, continuing where `folder` holds the state of a run with the same identity.

    The identity is that of `run_identity`: the texts of both corpora, the weights and the configuration of the model
    as it is given, the tokenizer, and the settings but for the number of steps.
    save_every: seconds between states; a run that is interrupted saves one more. evaluate_every: steps between
    evaluations on the held-out text.
    Progress goes to `report` and, as one JSON object a line, to `log.jsonl`; the finished model to `folder / "model"`.
    Raises Refused if the folder holds another run, or a state that cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    identity = run_identity(
        "pretrain", settings, start_digests(model, config=model.config.to_dict(), tokenizer=examples.tokenizer),
        {"text": examples.corpus.digest, "held-out text": None if held_out is None else held_out.corpus.digest},
    )  # fmt: skip
    training = _Pretraining(model.to(device), examples, held_out, settings, evaluate_every, device)
    train(training, folder, identity, save_every=save_every, report=report)
    if training.workers.rank == 0:
        model.save_pretrained(folder / "model")
    return model


class _Pretraining(Training):
    """Masked words and next sentences of a corpus."""

    model: BertForPreTraining
    units = "tokens"

    def __init__(
        self, model: BertForPreTraining, examples: ExampleMaker, held_out: ExampleMaker | None,
        settings: PretrainSettings, evaluate_every: int, device: torch.device,
    ) -> None:  # fmt: skip
        self.model, self.examples, self.held_out, self.settings = model, examples, held_out, settings
        self.evaluate_every, self.device = evaluate_every, device
        self.steps, self.decay = settings.steps, settings.decay
        self.optimizer = make_optimizer(model, settings)
        self.average = WeightAverage(model, settings.average) if settings.average else None
        # After the optimizer: its first one imports torch._dynamo, and a group joined before that import outlives
        # destroy_process_group (seen in torch 2.13), so that its threads could meet the interpreter's end and abort.
        self.workers = Workers.join(device)

    def learning_rate(self, step: int) -> float:
        return self.settings.rate_at(step)

    def add_gradients(self, step: int) -> dict[str, Metric]:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, step, self.workers.rank])
        lengths = list(settings.lengths)
        # Every worker takes the same length, so that none waits for another.
        drawn = np.random.default_rng([settings.seed, step]).choice(lengths, p=list(settings.lengths.values()))
        length = int(drawn)
        batch = self.examples.batch(settings.tokens // length, length, rng)
        torch.manual_seed(int(rng.integers(1 << 62)))  # dropout, too, is a function of (seed, step, rank)
        self.done_units += batch.input_ids.size
        return train_step(self.model, batch, self.device)

    def log_line(self, state: RunState, learning_rate: float, speed: float) -> dict[str, Any]:
        return {"step": state.step, "rate": learning_rate, "tokens_per_s": round(speed), **round_finite(state.means)}

    def progress(self, state: RunState) -> str:
        means = state.means
        return (
            f"step {state.step}/{self.steps}  loss {means['loss']:.3f}  MLM {means['mlm']:.1%}  "
            f"NSP {means.get('nsp', math.nan):.1%}"
        )

    def is_evaluated(self, step: int) -> bool:
        return self.held_out is not None and (step % self.evaluate_every == 0 or step == self.steps)

    def evaluate(self, state: RunState) -> Evaluation:
        assert self.held_out is not None  # `is_evaluated` is False without it
        with self.average.swapped_in(self.model) if self.average else nullcontext():
            scores = evaluate(self.model, self.held_out, self.device, lengths=(128,), batches=16)
        sentences = (f"{k} tokens: MLM {v['mlm']:.1%}, NSP {v['nsp']:.1%}" for k, v in scores.items())
        return Evaluation({"step": state.step, "held_out": scores}, "held out: " + "; ".join(sentences))


def make_optimizer(model: BertForPreTraining, settings: PretrainSettings) -> torch.optim.Optimizer:
    """The optimizer that the settings name; the hidden matrices are those of the layers."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if settings.optimizer == "adamw":
        return adamw(parameters, settings.learning_rate, settings.weight_decay)
    hidden = [p for p in model.bert.encoder.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in parameters if all(p is not matrix for matrix in hidden)]
    return Muon(hidden, others, settings.learning_rate, settings.weight_decay)


def train_step(model: BertForPreTraining, batch: Batch, device: torch.device) -> dict[str, Metric]:
    """Add the gradient of one batch to the parameters; loss in nats, accuracies 0 to 1, not yet read from the device.

    The masked-word head is computed at the masked positions only.
    """
    mlm_logits, labels, nsp_logits, follows = predictions(model, batch, device)
    masked, pairs = count_labels(batch.labels), count_labels(batch.next_sentence_label)
    mlm_loss, nsp_loss = mean_loss(mlm_logits, labels, masked), mean_loss(nsp_logits, follows, pairs)
    (mlm_loss + nsp_loss).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return {
            "loss": Metric(mlm_loss + nsp_loss),
            "mlm": Metric(count_correct(mlm_logits, labels), max(masked, 1)),
            **({"nsp": Metric(count_correct(nsp_logits, follows), pairs)} if pairs else {}),
        }


def predictions(model: BertForPreTraining, batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """MLM logits (row, vocab) and labels (row,) of the masked positions, NSP logits (row, 2) and labels of the pairs.

    The last rows may be padding (`padded_size`): their label is IGNORED_LABEL, and they have no part in a loss.
    """

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    def padded(array: np.ndarray, value: int = 0) -> Tensor:
        rows = padded_size(len(array), device) - len(array)
        return tensor(np.pad(array, (0, rows), constant_values=value))

    limited = bool((batch.attention_mask == 0).any())
    with training_autocast(device):
        states = model.bert(
            tensor(batch.input_ids),
            token_type_ids=tensor(batch.token_type_ids) if model.config.type_vocab_size else None,
            attention_mask=tensor(batch.attention_mask) if limited else None,
            position_ids=None if batch.position_ids is None else tensor(batch.position_ids),
        ).last_hidden_state
        where = np.nonzero(batch.labels.ravel() != IGNORED_LABEL)[0]
        asked = np.nonzero(batch.next_sentence_label != IGNORED_LABEL)[0]
        rows, places = (asked, np.zeros_like(asked)) if batch.starts is None else batch.starts[asked].T
        assert model.bert.pooler is not None  # a model with a next-sentence head has one
        return (
            model.cls.predictions(states.flatten(0, 1)[padded(where)]),
            padded(batch.labels.ravel()[where], IGNORED_LABEL),
            model.cls.seq_relationship(model.bert.pooler(states[padded(rows), padded(places)][:, None])),
            padded(batch.next_sentence_label[asked], IGNORED_LABEL),
        )


def mean_loss(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """Mean cross-entropy of the rows that have a label, in nats; 0 where none has.

    logits: (row, class). labels: (row,), IGNORED_LABEL for padding, whose gradient is exactly 0. count: of the rows
    that have one.
    """
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")
    return total / max(count, 1)


def count_labels(labels: np.ndarray) -> int:
    """How many labels there are, of a batch on the CPU."""
    return int((labels != IGNORED_LABEL).sum())


def count_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """How many rows have their label as the largest logit; padding has none."""
    return (logits.argmax(-1) == labels).sum()


@torch.no_grad()
def evaluate(
    model: BertForPreTraining,
    held_out: ExampleMaker,
    device: torch.device,
    *,
    lengths: tuple[int, ...] = (32, 128, 512),
    batches: int = 100,
    tokens: int = 4096,
    seed: int = 12345,
) -> dict[int, dict[str, float]]:
    """Held-out figures for each length: share of masked pieces guessed first, loss in nats, NSP accuracy.

    The examples depend on the seed alone, so two models are asked the same questions.
    """
    was_training = model.training
    model.eval()
    scores: dict[int, dict[str, float]] = {}
    for length in lengths:
        masked, pairs, measured = [], 0, []
        for number in range(batches):
            batch = held_out.batch(max(tokens // length, 1), length, np.random.default_rng([seed, length, number]))
            mlm_logits, labels, nsp_logits, follows = predictions(model, batch, device)
            masked.append(count_labels(batch.labels))
            pairs += count_labels(batch.next_sentence_label)
            measured.append({
                "loss": Metric(mean_loss(mlm_logits, labels, masked[-1])),
                "mlm": Metric(count_correct(mlm_logits, labels)),
                "nsp": Metric(count_correct(nsp_logits, follows)),
            })  # fmt: skip
        total, of_batches = sum(masked), read_metrics(measured)
        loss = sum(figures["loss"] * count for figures, count in zip(of_batches, masked, strict=True))
        right, nsp_right = (int(sum(figures[name] for figures in of_batches)) for name in ("mlm", "nsp"))
        shares = {"mlm": right / max(total, 1), "loss": loss / max(total, 1), "nsp": nsp_right / max(pairs, 1)}
        scores[length] = {**shares, "masked": total, "pairs": pairs}
    model.train(was_training)
    return scores
