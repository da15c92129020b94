"""Training of tuned-lens translators on plain text, and their comparison with the logit lens."""

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
from bert_core.training.data import Corpus, ExampleMaker, text_digest
from bert_core.training.optimization import Metric, adamw, padded_size, training_autocast, trapezoid
from bert_core.training.runs import RunState, Training, check_same_texts, run_identity, train
from bert_core.training.settings import LensSettings, MaskingRule
from bert_core.translators import Translators, write_translators

CARD_FILE = "TUNED_LENS.md"
LENSES = ("logit", "tuned")
POSITION_GROUPS = ("at [MASK]", "elsewhere")
ENTROPY = "entropy"  # metric of a step: the mean entropy of the predictions of the final layer
_MASKING = MaskingRule(rate=0.15, mask_share=1.0, random_share=0.0)


@compared_by_value
@dataclass(frozen=True)
class LensScore:
    """Difference between the predictions of a lens at each depth and those of the model, on one text.

    divergence: mean KL divergence of the model's distribution from that of the lens, in nats, (depth,).
    agreement: share of the positions at which both have the same top prediction, 0 to 1, (depth,).
    positions: number of positions.
    Depth 0 is the embeddings, and depth n the output of the n-th layer.
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
    """Train the translators of a tuned lens for a model, resuming the run in `folder` if it is the same.

    The loss is the KL divergence of the model's final distribution from that of each depth, summed over the depths.
    The weights of the model stay unchanged. A run is the same if both texts, the model, the tokenizer and the settings
    except the number of steps are.
    text, column: training text and the column to read, as for `read_documents`. held_out: text for a comparison with
        the logit lens, which is written to a card; None for no comparison.
    folder: folder of the run. The translators and their card are written to `folder / "lens"`.
    cache: folder of tokenized texts; None means `folder / "corpus"`. save_every: seconds between saved states.
    report: function that receives the progress.
    Returns the translators.
    Raises Refused if the model is edited or has no trained MLM head, or a text cannot be used. Also raises Refused if
    the folder holds another run, or is used by a run now.
    Source: Belrose 2023, section 3 (arXiv:2303.08112).
    """
    check_unedited(loaded.edits, "training a lens")
    loaded.require_head("words", "its layers cannot be read as words")
    if settings.length > loaded.config.max_position_embeddings:
        raise Refused(
            f"a length of {settings.length} is too long: {loaded.name} reads at most "
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
    """Train in a folder that is locked for this run."""
    held_out_digest = None if held_out is None else text_digest(held_out, column)
    check_same_texts(folder, {"text": text_digest(text, column), "held-out text": held_out_digest})
    corpus = Corpus.prepare(text, loaded.tokenizer, texts, report, column=column)
    held_out_corpus = None
    if held_out is not None:
        held_out_corpus = Corpus.prepare(held_out, loaded.tokenizer, texts, report, column=column)
    translators = Translators(loaded.config).to(loaded.device)
    identity = run_identity(
        "tune-lens", settings, {"weights": fingerprint(loaded)},
        {"text": corpus.digest, "held-out text": None if held_out_corpus is None else held_out_corpus.digest},
    )  # fmt: skip
    examples = ExampleMaker(corpus, loaded.tokenizer, _MASKING)
    train(
        _LensTraining(loaded, translators, examples, settings), folder, identity, save_every=save_every, report=report
    )
    translators.requires_grad_(False)
    write_translators(translators, loaded, folder / "lens")
    if held_out is not None and held_out_corpus is not None:
        scores = compare_lenses(
            loaded, translators, ExampleMaker(held_out_corpus, loaded.tokenizer, _MASKING), settings.length
        )
        card = lens_card(loaded.name, text.name, held_out.name, settings, scores)
        write_atomically(folder / "lens" / CARD_FILE, card)
        report(None, card[card.index("| Depth") :])
    return translators


class _LensTraining(Training):
    """Training of the translators; the weights of the model stay unchanged."""

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
    """Add the gradients of one batch to the translators, and return the metrics for `_divergence`.

    The depths are computed one after another, so that the logits (position, vocab) of only one have a gradient graph.
    """
    head, norm = loaded.model.cls.predictions, loaded.model.bert.encoder.final_norm
    positions = torch.cat(_positions(batch, rng)).to(loaded.device)
    count, size = len(positions), padded_size(len(positions), loaded.device)
    with torch.no_grad(), training_autocast(loaded.device):
        states = _states(loaded, batch)[:, F.pad(positions, (0, size - count))]
        final = head(states[-1]).float().log_softmax(-1)
    target = final.exp()
    target[count:] = 0  # padding then has neither a loss nor a gradient
    metrics = {ENTROPY: Metric(-(target * final).sum(), count)}
    for depth in range(len(translators)):
        with training_autocast(loaded.device):
            logits = head(norm(translators(depth, states[depth].float())))
        loss = F.cross_entropy(logits.float(), target, reduction="sum") / count
        loss.backward()  # type: ignore[no-untyped-call]
        metrics[str(depth)] = Metric(loss.detach())
    return metrics


def _divergence(metrics: Mapping[str, float]) -> np.ndarray:
    """Return the KL divergence at each depth except the last, in nats, (depth,): cross-entropy minus entropy."""
    return np.array([value - metrics[ENTROPY] for name, value in metrics.items() if name != ENTROPY])


def _states(loaded: LoadedModel, batch: Batch) -> Tensor:
    """Return the hidden states of a batch at all depths, (depth, batch * seq, hidden)."""
    arrays = (batch.input_ids, batch.token_type_ids, batch.attention_mask)
    ids, segments, mask = (torch.from_numpy(array).to(loaded.device) for array in arrays)
    outputs = loaded.model.bert(
        ids, token_type_ids=segments if loaded.config.type_vocab_size else None, attention_mask=mask,
        output_hidden_states=True,
    )  # fmt: skip
    return torch.stack(outputs.hidden_states).flatten(1, 2)


def _positions(batch: Batch, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return the masked positions and an equal number of random other positions, as indices into (batch * seq,)."""
    masked = batch.labels.ravel() != IGNORED_LABEL
    unmasked = np.nonzero(~masked & (batch.attention_mask.ravel() == 1))[0]
    sample = rng.choice(unmasked, min(max(int(masked.sum()), 1), len(unmasked)), replace=False)
    return torch.from_numpy(np.nonzero(masked)[0]), torch.from_numpy(np.sort(sample))


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
    """Compare the logit lens and the tuned lens on the same held-out examples, computed in float32.

    examples: generator of the examples, which depend only on the seed. length: length of an example in tokens.
    batches, size: number of batches, and of examples of a batch.
    Returns the scores for each lens ("logit", "tuned") and group of positions ("at [MASK]", "elsewhere").
    """
    head, depths = loaded.model.cls.predictions, len(translators) + 1
    norm = loaded.model.bert.encoder.final_norm
    # Sums of the divergence and of the agreement, (2, depth).
    sums = {(lens, group): np.zeros((2, depths)) for lens in LENSES for group in POSITION_GROUPS}
    counts = dict.fromkeys(POSITION_GROUPS, 0)
    for number in range(batches):
        rng = np.random.default_rng([seed, number])
        batch = examples.batch(size, length, rng)
        states = _states(loaded, batch)
        for group, positions in zip(POSITION_GROUPS, _positions(batch, rng), strict=True):
            group_states = states[:, positions.to(loaded.device)]
            final = head(group_states[-1]).log_softmax(-1)
            target, top_prediction = final.exp(), final.argmax(-1)
            counts[group] += len(positions)
            totals = []
            for lens in LENSES:
                for depth in range(depths):
                    state = group_states[depth]
                    if lens == "tuned":
                        state = translators(depth, state)
                    log_probs = final if depth == depths - 1 else head(norm(state)).log_softmax(-1)
                    totals += [(target * (final - log_probs)).sum(), (log_probs.argmax(-1) == top_prediction).sum()]
            values = np.array([total.item() for total in to_cpu(totals)]).reshape(len(LENSES), depths, 2)
            for lens, lens_values in zip(LENSES, values, strict=True):
                sums[lens, group] += lens_values.T
    return {
        (lens, group): LensScore(total[0] / counts[group], total[1] / counts[group], counts[group])
        for (lens, group), total in sums.items()
    }


def lens_card(
    name: str, text: str, held_out: str, settings: LensSettings, scores: Mapping[tuple[str, str], LensScore]
) -> str:
    """Return the card of a tuned lens as Markdown: what it is, how it was trained, and its scores.

    name: name of the model. text, held_out: names of the files of both texts. scores: as of `compare_lenses`.
    """
    layers = len(scores["logit", POSITION_GROUPS[0]].divergence) - 1
    lines = [
        f"# Tuned lens of {name}",
        "",
        "One affine map, h + W h + b, for the embeddings and for each layer except the last. It translates a hidden",
        "state to the representation that the MLM head of the model expects (Belrose 2023, arXiv:2303.08112). The maps",
        "are valid only for these weights. They show what can be decoded from a layer by an affine map. Whether the",
        "model itself uses this information is a different question.",
        "",
        "| What | |",
        "| --- | --- |",
        f"| text | {text} |",
        "| loss | KL divergence of the last layer's distribution from that of each layer, summed over the layers |",
        f"| updates | {settings.steps:,} of {settings.examples} examples of {settings.length} tokens, "
        "15% of the word pieces replaced by [MASK] |",
        "| positions | the masked positions and an equal number of other positions |",
        f"| learning rate | {settings.learning_rate:g}: rises over {settings.warmup} updates, then constant, "
        f"falls to 0 over the last {settings.decay} |",
        f"| optimizer | AdamW, betas 0.9 and 0.98, weight decay {settings.weight_decay:g} towards the identity |",
        f"| seed | {settings.seed} |",
        "| stored as | float16 |",
        "",
        f"## Comparison with the logit lens on held-out text ({held_out})",
        "",
        "Mean KL divergence of the model's prediction from that of a lens, in nats (lower is better), and the share of",
        "positions with the same top prediction. Depth 0 is the embeddings, depth n + 1 the output of layer n.",
        "",
        "| Depth | "
        + " | ".join(
            f"{metric}, {lens}, {group}"
            for group in POSITION_GROUPS
            for metric in ("KL", "same top prediction")
            for lens in LENSES
        )
        + " |",
        "| --- |" + " ---: |" * 8,
    ]
    for depth in range(layers):
        cells = [
            f"{scores[lens, group].divergence[depth]:.3f}"
            if metric == "KL"
            else f"{scores[lens, group].agreement[depth]:.1%}"
            for group in POSITION_GROUPS
            for metric in ("KL", "same top prediction")
            for lens in LENSES
        ]
        lines.append(f"| {depth} | {' | '.join(cells)} |")
    counts = " and ".join(f"{scores['logit', group].positions:,} positions {group}" for group in POSITION_GROUPS)
    return "\n".join([*lines, "", f"{counts}.", ""])
