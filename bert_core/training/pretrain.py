"""Masked words and next sentences from plain text: how the bundled weights were made, and how yours are."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from bert_core.modeling import IGNORED_LABEL, BertForPreTraining
from bert_core.progress import Progress, printed
from bert_core.records import Batch
from bert_core.refused import Refused
from bert_core.training.data import ExampleMaker, MaskingRule, Mix
from bert_core.training.runs import (
    Average,
    Figure,
    Muon,
    adamw,
    cut_log,
    defer_sigint,
    fast_forward,
    in_words,
    log,
    padded_size,
    read_figures,
    read_lines,
    release_fragments,
    resume_state,
    rounded,
    save_state,
    trapezoid,
    update,
)

EVALUATION_MASKING = MaskingRule(rate=0.15)
OPTIMIZERS = ("adamw", "muon")
ALL_HIDDEN = MaskingRule(rate=0.15, mask_share=1.0, random_share=0.0)


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


@dataclass(frozen=True)
class Workers:
    """Which of how many processes this is; `torchrun` says so in the environment."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Workers:
        """Join the group that `torchrun` started, or work alone."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(int(os.environ.get("RANK", "0")), world)

    def average(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace every gradient by its mean over the workers."""
        if self.world > 1:
            gradients = [p.grad for p in parameters if p.grad is not None]
            flat = torch.cat([g.flatten() for g in gradients])
            dist.all_reduce(flat)
            parts = torch.split(flat.div_(self.world), [g.numel() for g in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


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
    report: Progress = printed,
) -> BertForPreTraining:
    """Train a model in place, resuming from `folder` if a run with the same settings was interrupted there.

    save_every: seconds between checkpoints; a run that is interrupted saves one more. evaluate_every: steps between
    looks at the held-out text.
    Progress goes to `report` and, as one JSON object a line, to `log.jsonl`; the finished model to `folder / "model"`.
    Raises Refused if the folder holds a run with other settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.to(device).train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(model, settings)
    average = Average(model, settings.average) if settings.average else None
    # After the optimizer: its first one imports torch._dynamo, and a group joined before that import outlives
    # destroy_process_group (seen in torch 2.13), so that its threads could meet the interpreter's end and abort.
    workers = Workers.join(device)
    smooth: dict[str, float] = {}
    first = resume_state(model, optimizer, settings, folder, average, smooth)
    if workers.rank == 0:
        cut_log(folder, first)
    report(None, in_words(device) + (f"; resuming at step {first} of {settings.steps}" if first else ""))

    def look(step: int) -> None:
        """Log the figures of held-out text after so many updates, where they are due."""
        due = step % evaluate_every == 0 or step == settings.steps
        if workers.rank != 0 or held_out is None or not due:
            return
        with average.instead(model) if average else nullcontext():
            scores = evaluate(model, held_out, device, lengths=(128,), batches=16)
        log(folder, {"step": step, "held_out": scores})
        lines = (f"{k} tokens: MLM {v['mlm']:.1%}, NSP {v['nsp']:.1%}" for k, v in scores.items())
        report(None, "held out: " + "; ".join(lines))

    def read_pending() -> None:
        """Add the figures of the steps that are not yet read to the running means."""
        for figures in read_figures(pending):
            for name, value in figures.items():
                smooth[name] = value if name not in smooth else 0.98 * smooth[name] + 0.02 * value
        pending.clear()

    def save() -> None:
        save_state(model, optimizer, settings, done, folder, average, smooth)

    started = saved = time.monotonic()
    tokens_done = 0
    pending: list[Mapping[str, Figure]] = []  # of the steps since the last reading, for which the device is waited for
    done = saved_at = first  # updates
    consistent = True  # whether weights, optimizer and average are those after `done` updates
    try:
        if first and not any(line.get("step") == first and "held_out" in line for line in read_lines(folder)):
            look(first)  # the run was interrupted during this evaluation
        for step in range(first, settings.steps):
            rate = settings.rate_at(step)
            rng = np.random.default_rng([settings.seed, step, workers.rank])
            lengths = list(settings.lengths)
            # Every worker takes the same length, so that none waits for another.
            drawn = np.random.default_rng([settings.seed, step]).choice(lengths, p=list(settings.lengths.values()))
            length = int(drawn)
            batch = examples.batch(settings.tokens // length, length, rng)
            torch.manual_seed(int(rng.integers(1 << 62)))  # dropout, too, is a function of (seed, step, rank)
            figures = train_step(model, batch, device)
            workers.average(parameters)
            last = step + 1 == settings.steps
            logged = workers.rank == 0 and ((step + 1) % 20 == 0 or last)
            with defer_sigint():
                consistent = False
                update(optimizer, parameters, rate)
                if average:
                    average.add(model)
                if workers.rank == 0:
                    pending.append(figures)
                done, consistent = step + 1, True
                tokens_done += batch.input_ids.size * workers.world
                if logged:
                    read_pending()
                    speed = tokens_done / (time.monotonic() - started)
                    log(folder, {"step": done, "rate": rate, "tokens_per_s": round(speed), **rounded(smooth)})
            if logged:
                remaining = (settings.steps - done) * (time.monotonic() - started) / (done - first)
                report(
                    done / settings.steps,
                    f"step {done}/{settings.steps}  loss {smooth['loss']:.3f}  MLM {smooth['mlm']:.1%}  "
                    f"NSP {smooth.get('nsp', math.nan):.1%}  {speed:,.0f} tokens/s  {remaining / 60:.0f} min left",
                )
            release_fragments(done)
            look(done)
            if workers.rank == 0 and (time.monotonic() - saved > save_every or last):
                with defer_sigint():
                    read_pending()
                save()
                saved, saved_at = time.monotonic(), done
    except BaseException as error:  # whatever stops it: a Ctrl-C, or another worker that was stopped
        if workers.rank == 0 and consistent and done > saved_at and not isinstance(error, Refused | OSError):
            with defer_sigint():  # torchrun passes on a Ctrl-C that the terminal has already sent
                read_pending()
                save()
        raise
    if average:
        average.put_into(model)
    model.eval()
    if workers.rank == 0:
        model.save_pretrained(folder / "model")
    return model


def optimizer_of(model: BertForPreTraining, settings: PretrainSettings) -> torch.optim.Optimizer:
    """The optimizer that the settings name; the hidden matrices are those of the layers."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if settings.optimizer == "adamw":
        return adamw(parameters, settings.learning_rate, settings.weight_decay)
    hidden = [p for p in model.bert.encoder.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in parameters if all(p is not matrix for matrix in hidden)]
    return Muon(hidden, others, settings.learning_rate, settings.weight_decay)


def train_step(model: BertForPreTraining, batch: Batch, device: torch.device) -> dict[str, Figure]:
    """Add the gradient of one batch to the parameters; loss in nats, accuracies 0 to 1, not yet read from the device.

    The masked-word head is computed at the masked positions only.
    """
    mlm_logits, labels, nsp_logits, follows = predictions(model, batch, device)
    masked, pairs = count_of(batch.labels), count_of(batch.next_sentence_label)
    mlm_loss, nsp_loss = mean_loss(mlm_logits, labels, masked), mean_loss(nsp_logits, follows, pairs)
    (mlm_loss + nsp_loss).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return {
            "loss": Figure(mlm_loss + nsp_loss),
            "mlm": Figure(correct(mlm_logits, labels), max(masked, 1)),
            **({"nsp": Figure(correct(nsp_logits, follows), pairs)} if pairs else {}),
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
    with fast_forward(device):
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


def count_of(labels: np.ndarray) -> int:
    """How many labels there are, of a batch on the CPU."""
    return int((labels != IGNORED_LABEL).sum())


def correct(logits: Tensor, labels: Tensor) -> Tensor:
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
            masked.append(count_of(batch.labels))
            pairs += count_of(batch.next_sentence_label)
            measured.append({
                "loss": Figure(mean_loss(mlm_logits, labels, masked[-1])),
                "mlm": Figure(correct(mlm_logits, labels)),
                "nsp": Figure(correct(nsp_logits, follows)),
            })  # fmt: skip
        total, of_batches = sum(masked), read_figures(measured)
        loss = sum(figures["loss"] * count for figures, count in zip(of_batches, masked, strict=True))
        right, nsp_right = (int(sum(figures[name] for figures in of_batches)) for name in ("mlm", "nsp"))
        shares = {"mlm": right / max(total, 1), "loss": loss / max(total, 1), "nsp": nsp_right / max(pairs, 1)}
        scores[length] = {**shares, "masked": total, "pairs": pairs}
    model.train(was_training)
    return scores
