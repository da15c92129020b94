"""The translators of a tuned lens from plain text, and how much nearer to the last layer they bring each other one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.checkpoint import write_atomically
from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.modeling import IGNORED_LABEL
from bert_core.progress import Progress, print_progress
from bert_core.records import Batch
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.run.arrays import to_cpu
from bert_core.studies.runner import exclusive_lock
from bert_core.training.data import Corpus, ExampleMaker, MaskingRule, text_digest
from bert_core.training.optimization import Metric, adamw, padded_size, training_autocast, trapezoid
from bert_core.training.runs import RunState, Training, check_same_texts, run_identity, train
from bert_core.translators import Translators, write_translators

CARD_FILE = "TUNED_LENS.md"
LENSES = ("logit", "tuned")
POSITION_GROUPS = ("at [MASK]", "elsewhere")
ENTROPY = "entropy"  # of the last depth's distribution, beside a step's losses by depth
_MASKING = MaskingRule(rate=0.15, mask_share=1.0, random_share=0.0)


@dataclass(frozen=True)
class LensSettings:
    """What decides the translators that come out.

    steps: updates in all. The rate rises over `warmup` steps, stays, and falls to zero over the last `decay` steps.
    examples, length: of one batch; the lens is trained where a piece is hidden, and at as many other places.
    """

    steps: int = 800
    warmup: int = 20
    decay: int = 400
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    examples: int = 12
    length: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.examples) < 1 or self.length < 5:
            raise Refused(
                f"{self.steps} steps of {self.examples} examples of {self.length} tokens: "
                "at least one step, one example and 5 tokens"
            )


@compared_by_value
@dataclass(frozen=True)
class LensScore:
    """How far what is read out of each depth is from the model's own prediction, on one text.

    divergence: (depth,) mean KL of the last depth's distribution from this depth's, nats.
    agreement: (depth,) share of the positions where both put the same piece first. positions: how many there were.
    """

    divergence: np.ndarray
    agreement: np.ndarray
    positions: int


def tune_lens(
    loaded: LoadedModel,
    text: Path,
    settings: LensSettings,
    folder: Path,
    *,
    held_out: Path | None = None,
    column: str | None = None,
    cache: Path | None = None,
    save_every: float = 120.0,
    report: Progress = print_progress,
) -> Translators:
    """Train the translators of a model on texts, continuing where `folder` holds the state of the same run.

    The loss is the KL of the last depth's distribution from each depth's own, summed over depths; the model stays as
    it is. text, column: as for `read_documents`. held_out: another such file, to compare both lenses on, for the card.
    cache: where tokenized texts are kept; None means `folder / "corpus"`. save_every: seconds between states.
    The run is the same if both texts, the model, the tokenizer and the settings but for the number of steps are.
    Progress goes to `report` and to the log; the translators and their card to `folder / "lens"`.
    Raises Refused if the model has no trained word head, a text cannot be used, the folder holds another run, or one
    writes to it now.
    Source: Belrose 2023, section 3 (arXiv:2303.08112).
    """
    check_unedited(loaded.edits, "training a lens")
    loaded.require_head("words", "its layers cannot be read as words")
    if settings.length > loaded.config.max_position_embeddings:
        raise Refused(
            f"a length of {settings.length} is too long: {loaded.name} reads "
            f"{loaded.config.max_position_embeddings} tokens"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder):
        texts = cache or folder / "corpus"
        return _tune(loaded, text, settings, folder, held_out, column, texts, save_every, report)


def _tune(
    loaded: LoadedModel, text: Path, settings: LensSettings, folder: Path, held_out: Path | None, column: str | None,
    texts: Path, save_every: float, report: Progress,
) -> Translators:  # fmt: skip
    """Train in a folder that this run alone writes to."""
    held_out_digest = None if held_out is None else text_digest(held_out, column)
    check_same_texts(folder, {"text": text_digest(text, column), "held-out text": held_out_digest})
    corpus = Corpus.prepare(text, loaded.tokenizer, texts, report, column=column)
    asked = None if held_out is None else Corpus.prepare(held_out, loaded.tokenizer, texts, report, column=column)
    translators = Translators(loaded.config).to(loaded.device)
    identity = run_identity(
        "tune-lens", settings, {"weights": fingerprint(loaded)},
        {"text": corpus.digest, "held-out text": None if asked is None else asked.digest},
    )  # fmt: skip
    examples = ExampleMaker(corpus, loaded.tokenizer, _MASKING)
    train(
        _LensTraining(loaded, translators, examples, settings), folder, identity, save_every=save_every, report=report
    )
    translators.requires_grad_(False)
    write_translators(translators, loaded, folder / "lens")
    if held_out is not None and asked is not None:
        scores = compare_lenses(
            loaded, translators, ExampleMaker(asked, loaded.tokenizer, _MASKING), settings.length
        )  # fmt: skip
        card = lens_card(loaded.name, text.name, held_out.name, settings, scores)
        write_atomically(folder / "lens" / CARD_FILE, card)
        report(None, card[card.index("| Depth") :])
    return translators


class _LensTraining(Training):
    """The translators of a model, which stays as it is."""

    units = "examples"
    log_every = 10
    smoothing = 0.95

    def __init__(
        self, loaded: LoadedModel, translators: Translators, examples: ExampleMaker, settings: LensSettings
    ) -> None:
        self.loaded, self.translators, self.examples, self.settings = loaded, translators, examples, settings
        self.model, self.device = translators, loaded.device
        self.steps, self.decay = settings.steps, settings.decay
        self.optimizer = adamw(list(translators.parameters()), settings.learning_rate, settings.weight_decay)

    def learning_rate(self, step: int) -> float:
        settings = self.settings
        return settings.learning_rate * trapezoid(
            step, steps=settings.steps, warmup=settings.warmup, decay=settings.decay
        )

    def add_gradients(self, step: int) -> dict[str, Metric]:
        rng = np.random.default_rng([self.settings.seed, step])
        batch = self.examples.batch(self.settings.examples, self.settings.length, rng)
        self.done_units += len(batch.input_ids)
        return _train_step(self.loaded, self.translators, batch, rng)

    def log_line(self, state: RunState, learning_rate: float, speed: float) -> dict[str, Any]:
        return {"step": state.step, "divergence": [round(float(value), 5) for value in _divergence(state.means)]}

    def progress(self, state: RunState) -> str:
        values = " ".join(f"{value:.3f}" for value in _divergence(state.means))
        return f"step {state.step}/{self.steps}  KL by depth {values}"


def _train_step(
    loaded: LoadedModel, translators: Translators, batch: Batch, rng: np.random.Generator
) -> dict[str, Metric]:
    """Add the gradient of one batch to the translators; figures of which `_divergence` makes the KL of each depth.

    One depth after another, so that only one table of scores (position, vocab) has a way back at a time.
    """
    head = loaded.model.cls.predictions
    places = torch.cat(_positions(batch, rng)).to(loaded.device)
    count, size = len(places), padded_size(len(places), loaded.device)
    with torch.no_grad(), training_autocast(loaded.device):
        states = _states(loaded, batch)[:, F.pad(places, (0, size - count))]
        final = head(states[-1]).float().log_softmax(-1)
    aim = final.exp()
    aim[count:] = 0  # padding: neither a loss nor a gradient
    figures = {ENTROPY: Metric(-(aim * final).sum(), count)}
    for depth in range(len(translators)):
        with training_autocast(loaded.device):
            scores = head(translators(depth, states[depth].float()))
        loss = F.cross_entropy(scores.float(), aim, reduction="sum") / count
        loss.backward()  # type: ignore[no-untyped-call]
        figures[str(depth)] = Metric(loss.detach())
    return figures


def _divergence(figures: Mapping[str, float]) -> np.ndarray:
    """Of the figures of a step the KL of each depth but the last, nats, (depth,)."""
    return np.array([value - figures[ENTROPY] for name, value in figures.items() if name != ENTROPY])


def _states(loaded: LoadedModel, batch: Batch) -> Tensor:
    """(depth, batch * seq, hidden)."""
    tables = (batch.input_ids, batch.token_type_ids, batch.attention_mask)
    ids, segments, seen = (torch.from_numpy(table).to(loaded.device) for table in tables)
    outputs = loaded.model.bert(
        ids, token_type_ids=segments if loaded.config.type_vocab_size else None, attention_mask=seen,
        output_hidden_states=True,
    )  # fmt: skip
    return torch.stack(outputs.hidden_states).flatten(1, 2)


def _positions(batch: Batch, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Where a piece is hidden, and as many other tokens: places in the batch read row after row."""
    hidden = batch.labels.ravel() != IGNORED_LABEL
    others = np.nonzero(~hidden & (batch.attention_mask.ravel() == 1))[0]
    drawn = rng.choice(others, min(max(int(hidden.sum()), 1), len(others)), replace=False)
    return torch.from_numpy(np.nonzero(hidden)[0]), torch.from_numpy(np.sort(drawn))


@torch.no_grad()
def compare_lenses(
    loaded: LoadedModel,
    translators: Translators,
    examples: ExampleMaker,
    length: int = 128,
    *,
    batches: int = 24,
    size: int = 8,
    seed: int = 12345,
) -> dict[tuple[str, str], LensScore]:
    """Both lenses on the same held-out text, by lens ("logit", "tuned") and place ("at [MASK]", "elsewhere").

    The examples depend on the seed alone. float32 throughout.
    """
    head, depths = loaded.model.cls.predictions, len(translators) + 1
    sums = {(lens, place): np.zeros((2, depths)) for lens in LENSES for place in POSITION_GROUPS}
    counts = dict.fromkeys(POSITION_GROUPS, 0)
    for number in range(batches):
        rng = np.random.default_rng([seed, number])
        batch = examples.batch(size, length, rng)
        states = _states(loaded, batch)
        for place, where in zip(POSITION_GROUPS, _positions(batch, rng), strict=True):
            at = states[:, where.to(loaded.device)]
            final = head(at[-1]).log_softmax(-1)
            aim, best = final.exp(), final.argmax(-1)
            counts[place] += len(where)
            of_lenses = []
            for lens in LENSES:
                for depth in range(depths):
                    read = at[depth] if lens == "logit" else translators(depth, at[depth])
                    here = final if depth == depths - 1 else head(read).log_softmax(-1)
                    of_lenses += [(aim * (final - here)).sum(), (here.argmax(-1) == best).sum()]
            values = np.array([value.item() for value in to_cpu(of_lenses)]).reshape(len(LENSES), depths, 2)
            for lens, of_depths in zip(LENSES, values, strict=True):
                sums[lens, place] += of_depths.T
    return {
        (lens, place): LensScore(total[0] / counts[place], total[1] / counts[place], counts[place])
        for (lens, place), total in sums.items()
    }


def lens_card(
    name: str, text: str, held_out: str, settings: LensSettings, scores: Mapping[tuple[str, str], LensScore]
) -> str:
    """What the translators are, where they come from, and how they do beside the logit lens, as Markdown."""
    layers = len(scores["logit", POSITION_GROUPS[0]].divergence) - 1
    lines = [
        f"# Tuned lens of {name}",
        "",
        "One affine map for the embeddings and for each layer but the last, h + W h + b, which brings a state to where",
        "the masked-word head of the model reads it (Belrose 2023, arXiv:2303.08112). It belongs to these weights and",
        "to no others. It shows what can be read out of a layer by a linear map; whether the model itself makes use",
        "of that there is another question.",
        "",
        "| What | |",
        "| --- | --- |",
        f"| text | {text} |",
        "| loss | KL of the last layer's distribution from each layer's, summed over layers |",
        f"| updates | {settings.steps:,} of {settings.examples} examples of {settings.length} tokens, "
        "15% of the pieces behind [MASK]; |",
        "| | trained where a piece is hidden, and at as many other positions |",
        f"| learning rate | {settings.learning_rate:g}: {settings.warmup} updates up, then level, "
        f"falling to 0 over the last {settings.decay} |",
        f"| optimizer | AdamW, betas 0.9 and 0.98, weight decay {settings.weight_decay:g} towards the identity |",
        f"| seed | {settings.seed} |",
        "| stored as | float16 |",
        "",
        f"## Beside the logit lens, on held-out text ({held_out})",
        "",
        "Mean KL of the model's own prediction from what is read at a depth, in nats (less is nearer), and how often",
        "both put the same piece first. Depth 0 is the embeddings, depth n + 1 what leaves layer n.",
        "",
        "| Depth | "
        + " | ".join(
            f"{what}, {lens}, {place}" for place in POSITION_GROUPS for what in ("KL", "same first") for lens in LENSES
        )
        + " |",
        "| --- |" + " ---: |" * 8,
    ]
    for depth in range(layers):
        cells = [
            f"{scores[lens, place].divergence[depth]:.3f}"
            if what == "KL"
            else f"{scores[lens, place].agreement[depth]:.1%}"
            for place in POSITION_GROUPS
            for what in ("KL", "same first")
            for lens in LENSES
        ]
        lines.append(f"| {depth} | {' | '.join(cells)} |")
    counted = " and ".join(f"{scores['logit', place].positions:,} positions {place}" for place in POSITION_GROUPS)
    return "\n".join([*lines, "", f"{counted}.", ""])
