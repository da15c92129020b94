"""What changes when a head is gone: every head of a model, one at a time, exactly and in a few batches.

Below the layer of a head nothing changes, so nothing below it is computed again; a head is taken out by taking its part
off the output projection; and the last layer is computed only where somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import gather_positions
from bert_core.editing import unedited
from bert_core.edits import check_unpatched
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import HeadSweep, Target
from bert_core.refused import Refused, require_sequence, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import check_head_mask, embed_text, layer_gates
from bert_core.run.memory import copies_per_batch
from bert_core.run.stack import LayerTrace, encoder_layers, run_variants, trace
from bert_core.run.targets import prediction_positions, target_values
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding

REPLACEMENTS = ("zero", "mean", "resample")
ABLATION_NAME = "switching heads off one by one"

Head = tuple[int, int]


def iter_head_ablations(
    layers: Sequence[BertLayer],
    states: Tensor,
    positions: Tensor,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    replacement: Replacement | None = None,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> tuple[Tensor, Iterator[tuple[Sequence[Head], Tensor]]]:
    """The last layer with all heads of a model, and without each of them, some heads at a time.

    states: (batch, seq, hidden), what enters the first layer. positions: (batch, some), where the last layer is wanted.
    layers, gates, mask: as for `run_layers`. replacement: what takes the place of a head's output; None: zeros.
    batch_tokens: tokens of all variants that are computed together, at least one variant; memory grows with it. None:
        as many as suit the device. report: told how many heads are done, as for `Progress`.
    Returns (batch, some, hidden), and an iterator over some heads (layer, head) and (head, batch, some, hidden).
    """
    batch, seq, _ = states.shape
    given = {"gates": gates, "mask": mask, "positions": positions}
    clean = trace(layers, states, **given, keep=("context", "attended"))
    heads = [(number, head) for number, layer in enumerate(layers) for head in layer.attention.self.heads]
    contexts = None if replacement is None else replacement.of_length(seq)

    def begin(start: int, variants: range) -> Tensor:
        own = [head for _, head in heads[variants.start : variants.stop]]
        replaced = None if contexts is None else contexts(start - 1)
        return _without(clean.layers[start - 1], own, replaced, positions if start == len(layers) else None)

    def without() -> Iterator[tuple[Sequence[Head], Tensor]]:
        starts = [layer + 1 for layer, _ in heads]
        at_once = copies_per_batch(batch_tokens, states.device, batch * seq)
        for variants, leaving in run_variants(layers, starts, begin, at_once, **given):
            yield heads[variants.start : variants.stop], leaving.view(len(variants), batch, -1, leaving.shape[-1])
            report_count(report, variants.stop, len(heads), "heads")

    return clean.last, without()


def _without(traced: LayerTrace, heads: Sequence[int], contexts: Tensor | None, positions: Tensor | None) -> Tensor:
    """What leaves a layer without each of its heads, (head * batch, seq or some, hidden).

    contexts: (batch or 1, seq or 1, heads * head size), what takes the place of the layer's own; None: zeros.
    """
    layer, attention = traced.layer, traced.layer.attention
    change, summed = -traced.merged_context if contexts is None else contexts - traced.merged_context, traced.summed
    if positions is not None:
        change, summed = gather_positions(change, positions), gather_positions(summed, positions)
    places = [attention.self.heads.index(head) for head in heads]
    # (batch, seq, head, head size)
    parts = change.view(*change.shape[:-1], -1, attention.self.attention_head_size)[:, :, places]
    summed = summed + torch.einsum("bshd,ohd->hbso", parts, attention.head_projections[:, places])
    left: Tensor = layer.feed_forward_chunk(attention.output.LayerNorm(summed.flatten(0, 1)))
    return left


class Replacement:
    """What takes the place of a head's output.

    method: "zero", nothing; "mean", its mean over all tokens of the reference texts; "resample", its output in the
        first reference text, position by position (the text again where it is shorter).
    head_mask: (layer, head), what is switched off, or down, while the reference is read.
    The reference is read by the model as it was loaded, without its edits.
    Raises Refused for an unknown method, or one without its reference.
    Source: Wang 2022 (arXiv:2211.00593) for mean and resample.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        method: str = "zero",
        reference: Sequence[Encoding] = (),
        *,
        head_mask: np.ndarray | None = None,
    ) -> None:
        if method not in REPLACEMENTS:
            raise Refused(f"method {method!r} is unknown: one of {', '.join(REPLACEMENTS)}")
        reference = require_sequence("reference", reference, "Encodings")
        if method != "zero" and not reference:
            raise Refused(f"method {method!r} needs a reference text")
        self.method = method
        self._contexts: list[Tensor] = []  # layer by layer, (token, heads * head size); a mean is one token
        if method == "zero":
            return
        loaded = unedited(loaded)  # what is cut is cut in one text, and these are others
        first = torch.zeros(1, 1, dtype=torch.long, device=loaded.device)
        total: list[Tensor] = []
        gates = layer_gates(loaded, head_mask)
        for text in reference if method == "mean" else reference[:1]:
            with torch.no_grad():
                states = embed_text(loaded, text)
                traced = trace(encoder_layers(loaded), states, gates=gates, positions=first, keep=("context",))
            contexts = [layer.merged_context[0] for layer in traced.layers]
            if method == "mean":
                contexts = [context.sum(0, keepdim=True) for context in contexts]
            total = [one + other for one, other in zip(total, contexts, strict=True)] if total else contexts
        tokens = sum(map(len, reference)) if method == "mean" else 1
        self._contexts = [context / tokens for context in total]

    def of_length(self, tokens: int) -> Callable[[int], Tensor] | None:
        """For texts of so many tokens: layer -> what takes the place of the outputs of its heads; None for zeros.

        It gives (1, tokens or 1, heads * head size).
        """
        if self.method == "zero":
            return None

        def contexts(layer: int) -> Tensor:
            own = self._contexts[layer]
            if self.method == "resample":
                own = own[torch.arange(tokens, device=own.device) % len(own)]
            return own[None]

        return contexts


@validate_arguments
@torch.no_grad()
def ablate_heads(
    loaded: LoadedModel,
    encoding: Encoding,
    *,
    target: Target | None = None,
    positions: Sequence[int] | None = None,
    head_mask: np.ndarray | None = None,
    method: str = "zero",
    reference: Sequence[Encoding] = (),
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> HeadSweep:
    """Take every head out in turn, and see what the model then says of a text.

    target: the number to follow. positions: where to follow the predicted pieces; None means at every [MASK].
    head_mask: (layer, head), what is switched off, or down, to begin with.
    method, reference: what takes the place of a head's output, as for `Replacement`.
    batch_tokens: as for `patch`. report: told how many heads are done, as for `Progress`.
    Safe to call from many threads on one model.
    Raises Refused for a target that the model has no trained head for, a position that does not exist, an unknown
    method, or one without its reference.
    Source: Michel 2019, section 3 (arXiv:1905.10650).
    """
    positions, wanted = prediction_positions(loaded, encoding, target, positions)
    config = loaded.config
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    replacement = Replacement(loaded, method, reference, head_mask=gates)
    check_unpatched(loaded.edits, ABLATION_NAME)
    judge = _Judge(loaded, encoding, target, [wanted.index(position) for position in positions], wanted)
    figures = {name: np.full(gates.shape, np.nan, np.float32) for name in ("value", "nsp", "kl", "flips")}
    last, without = iter_head_ablations(
        encoder_layers(loaded), embed_text(loaded, encoding), torch.tensor([wanted], device=loaded.device),
        gates=layer_gates(loaded, gates), replacement=replacement, batch_tokens=batch_tokens, report=report,
    )  # fmt: skip
    base = judge(last)
    for heads, states in without:
        for name, numbers in judge.compare(states[:, 0], base).items():
            figures[name][tuple(np.transpose(heads))] = as_array(numbers)
    return HeadSweep(
        encoding=encoding,
        method=method,
        head_mask=gates,
        target=target,
        base_value=None if target is None else float(base["value"][0]),
        values=None if target is None else figures["value"],
        base_nsp=float(base["nsp"][0]) if "nsp" in base else None,
        nsp=figures["nsp"] if "nsp" in base else None,
        positions=positions,
        divergence=figures["kl"] if positions else None,
        flips=figures["flips"] if positions else None,
    )


@torch.no_grad()
def values_without_heads(
    loaded: LoadedModel, encoding: Encoding, targets: Sequence[Target], replacement: Replacement | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Some targets of one text with all heads (target,), and without each (target, layer, head); a pruned one is NaN.

    All targets are read from the same passes. Raises Refused as `ablate_heads`.
    """
    for target in targets:
        prediction_positions(loaded, encoding, target, ())
    check_unpatched(loaded.edits, ABLATION_NAME)
    config, wanted = loaded.config, sorted({row for target in targets for row in target.rows})
    places = [[wanted.index(row) for row in target.rows] for target in targets]

    def values(states: Tensor) -> np.ndarray:
        """(target, copy) for states (copy, some, hidden)."""
        read = [target_values(loaded, target, states[:, rows]) for target, rows in zip(targets, places, strict=True)]
        return np.stack([as_array(of_target) for of_target in read])

    entering, asked = embed_text(loaded, encoding), torch.tensor([wanted], device=loaded.device)
    last, without = iter_head_ablations(encoder_layers(loaded), entering, asked, replacement=replacement)
    figures = np.full((len(targets), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for heads, states in without:
        figures[:, *np.transpose(heads)] = values(states[:, 0])
    return values(last)[:, 0].astype(float), figures


class _Judge:
    """What the prediction heads say of rows (variant, some, hidden) of the last layer, and how that differs."""

    def __init__(
        self, loaded: LoadedModel, encoding: Encoding, target: Target | None, rows: list[int], wanted: list[int]
    ) -> None:
        self.loaded, self.target, self.rows = loaded, target, rows
        self.asks_nsp = TASK_HEADS["next"].applies(loaded, encoding)
        self.target_rows = [] if target is None else [wanted.index(row) for row in target.rows]

    @torch.no_grad()
    def __call__(self, states: Tensor) -> dict[str, Tensor]:
        """value, nsp: (variant,). pieces: log-probabilities (variant, position, vocab)."""
        model, target, answers = self.loaded.model, self.target, {}
        if target is not None:
            answers["value"] = target_values(self.loaded, target, states[:, self.target_rows])
        if self.asks_nsp:
            answers["nsp"] = TASK_HEADS["next"].logits(self.loaded, states[:, 0]).softmax(-1)[:, 0]
        if self.rows:
            answers["pieces"] = model.cls.predictions(states[:, self.rows]).float().log_softmax(-1)
        return answers

    def compare(self, states: Tensor, base: dict[str, Tensor]) -> dict[str, Tensor]:
        """Each variant's value and nsp; with positions, their mean kl (nats) and flips (share of first guesses)."""
        answers = self(states)
        if "pieces" in answers:
            before, after = base["pieces"], answers.pop("pieces")
            answers["kl"] = (before.exp() * (before - after)).sum(-1).mean(-1)
            answers["flips"] = (before.argmax(-1) != after.argmax(-1)).float().mean(-1)
        return answers
