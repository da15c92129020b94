"""Pre-training by masked-language modelling and next-sentence prediction on plain text."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.modeling import IGNORED_LABEL, BertForPreTraining
from bert_core.progress import Progress, print_progress
from bert_core.records import Batch
from bert_core.training.data import ExampleMaker
from bert_core.training.optimization import (
    Metric,
    Muon,
    WeightAverage,
    adamw,
    padded_size,
    read_metrics,
    training_autocast,
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
from bert_core.training.settings import MaskingRule, PretrainSettings

EVALUATION_MASKING = MaskingRule(rate=0.15)


MASK_TOKEN_ONLY = MaskingRule(rate=0.15, mask_share=1.0, random_share=0.0)


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
    """Pre-train a model in place, resuming the run in `folder` if it has the same identity.

    The identity, as of `run_identity`, consists of the texts of both corpora, the initial weights, the configuration,
    the tokenizer, and the settings except the number of steps.
    examples: training examples. held_out: examples for evaluations, None for no evaluations.
    folder: folder of the run, for its state, its log `log.jsonl` with one JSON object per line, and the finished model
        in `folder / "model"`.
    save_every: seconds between saved states; an interrupted run saves its state, too. evaluate_every: number of steps
        between evaluations. report: function that receives the progress.
    Returns the model.
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
    """Training by masked-language modelling and next-sentence prediction."""

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
        # The first optimizer imports torch._dynamo. A process group that is joined before that import outlives
        # destroy_process_group (seen in torch 2.13), and its threads may then abort the exit of the interpreter.
        self.workers = Workers.join(device)

    def learning_rate(self, step: int) -> float:
        return self.settings.rate_at(step)

    def add_gradients(self, step: int) -> dict[str, Metric]:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, step, self.workers.rank])
        lengths = list(settings.lengths)
        # All workers use the same length, so that none waits for another.
        length_rng = np.random.default_rng([settings.seed, step])
        length = int(length_rng.choice(lengths, p=list(settings.lengths.values())))
        batch = self.examples.batch(settings.tokens // length, length, rng)
        torch.manual_seed(int(rng.integers(1 << 62)))  # dropout also depends only on (seed, step, rank)
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
        parts = (f"MLM {v['mlm']:.1%}, NSP {v['nsp']:.1%} at {k} tokens" for k, v in scores.items())
        return Evaluation({"step": state.step, "held_out": scores}, "held-out accuracy: " + "; ".join(parts))


def make_optimizer(model: BertForPreTraining, settings: PretrainSettings) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name; for Muon, the hidden matrices are those of the encoder layers."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if settings.optimizer == "adamw":
        return adamw(parameters, settings.learning_rate, settings.weight_decay)
    hidden = [p for p in model.bert.encoder.parameters() if p.requires_grad and p.dim() > 1]
    other_parameters = [p for p in parameters if all(p is not matrix for matrix in hidden)]
    return Muon(hidden, other_parameters, settings.learning_rate, settings.weight_decay)


def train_step(model: BertForPreTraining, batch: Batch, device: torch.device) -> dict[str, Metric]:
    """Add the gradients of one batch to the parameters, and return its metrics without waiting for the device.

    The MLM head is computed at the masked positions only.
    Returns a mapping with these keys:
    loss: sum of the MLM and the NSP loss, in nats.
    mlm: masked-token accuracy, 0 to 1.
    nsp: NSP accuracy, 0 to 1; missing if the batch has no pairs.
    """
    mlm_logits, labels, nsp_logits, nsp_labels = predictions(model, batch, device)
    masked, pairs = count_labels(batch.labels), count_labels(batch.next_sentence_label)
    mlm_loss, nsp_loss = mean_loss(mlm_logits, labels, masked), mean_loss(nsp_logits, nsp_labels, pairs)
    (mlm_loss + nsp_loss).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return {
            "loss": Metric(mlm_loss + nsp_loss),
            "mlm": Metric(count_correct(mlm_logits, labels), max(masked, 1)),
            **({"nsp": Metric(count_correct(nsp_logits, nsp_labels), pairs)} if pairs else {}),
        }


def predictions(model: BertForPreTraining, batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return MLM logits (row, vocab) and labels (row,) of masked positions, and NSP logits (row, 2) and labels (row,).

    The NSP rows are the pairs of the batch. The last rows of each may be padding (see `padded_size`), with
    IGNORED_LABEL as their label, which excludes them from the loss.
    """

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    def padded(array: np.ndarray, value: int = 0) -> Tensor:
        rows = padded_size(len(array), device) - len(array)
        return tensor(np.pad(array, (0, rows), constant_values=value))

    needs_mask = bool((batch.attention_mask == 0).any())
    with training_autocast(device):
        states = model.bert(
            tensor(batch.input_ids),
            token_type_ids=tensor(batch.token_type_ids) if model.config.type_vocab_size else None,
            attention_mask=tensor(batch.attention_mask) if needs_mask else None,
            position_ids=None if batch.position_ids is None else tensor(batch.position_ids),
        ).last_hidden_state
        masked = np.nonzero(batch.labels.ravel() != IGNORED_LABEL)[0]
        pairs = np.nonzero(batch.next_sentence_label != IGNORED_LABEL)[0]
        rows, positions = (pairs, np.zeros_like(pairs)) if batch.starts is None else batch.starts[pairs].T
        assert model.bert.pooler is not None  # BertForPreTraining always has a pooler
        return (
            model.cls.predictions(states.flatten(0, 1)[padded(masked)]),
            padded(batch.labels.ravel()[masked], IGNORED_LABEL),
            model.cls.seq_relationship(model.bert.pooler(states[padded(rows), padded(positions)][:, None])),
            padded(batch.next_sentence_label[pairs], IGNORED_LABEL),
        )


def mean_loss(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return the mean cross-entropy of the rows that have a label, in nats; 0 if there are none.

    logits: (row, class). labels: (row,), IGNORED_LABEL for padding, whose gradient is exactly 0. count: number of rows
    with a label.
    """
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")
    return total / max(count, 1)


def count_labels(labels: np.ndarray) -> int:
    """Return the number of labels that are not IGNORED_LABEL."""
    return int((labels != IGNORED_LABEL).sum())


def count_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the number of rows whose largest logit is at their label, as a tensor; padding is never counted.

    logits: (row, class). labels: (row,).
    """
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
    """Return held-out scores of a model for each sequence length.

    held_out: generator of the examples, which depend only on the seed, so that models are compared on the same ones.
    lengths: sequence lengths in tokens. batches: number of batches per length. tokens: number of tokens of a batch.
    Returns for each length a mapping with these keys:
    mlm, loss: accuracy, 0 to 1, and loss in nats for masked tokens. nsp: NSP accuracy, 0 to 1.
    masked, pairs: number of masked tokens, and of pairs.
    """
    was_training = model.training
    model.eval()
    scores: dict[int, dict[str, float]] = {}
    for length in lengths:
        masked_counts, pairs, totals = [], 0, []
        for number in range(batches):
            batch = held_out.batch(max(tokens // length, 1), length, np.random.default_rng([seed, length, number]))
            mlm_logits, labels, nsp_logits, nsp_labels = predictions(model, batch, device)
            masked_counts.append(count_labels(batch.labels))
            pairs += count_labels(batch.next_sentence_label)
            totals.append({
                "loss": Metric(mean_loss(mlm_logits, labels, masked_counts[-1])),
                "mlm": Metric(count_correct(mlm_logits, labels)),
                "nsp": Metric(count_correct(nsp_logits, nsp_labels)),
            })  # fmt: skip
        masked, batch_metrics = sum(masked_counts), read_metrics(totals)
        loss = sum(metrics["loss"] * count for metrics, count in zip(batch_metrics, masked_counts, strict=True))
        mlm_correct, nsp_correct = (int(sum(metrics[name] for metrics in batch_metrics)) for name in ("mlm", "nsp"))
        means = {"mlm": mlm_correct / max(masked, 1), "loss": loss / max(masked, 1), "nsp": nsp_correct / max(pairs, 1)}
        scores[length] = {**means, "masked": masked, "pairs": pairs}
    model.train(was_training)
    return scores
