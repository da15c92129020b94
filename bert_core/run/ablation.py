"""What changes when a head is gone: every head of a model, one at a time, exactly and in a few batches.

Below the layer of a head nothing changes, so nothing below it is computed again; a head is taken out by taking its part
off the output projection; and the last layer is computed only where somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import rows_at
from bert_core.editing import unedited
from bert_core.edits import check_own
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer, BertModel
from bert_core.progress import Progress, counted, silent
from bert_core.records import HeadSweep, Target
from bert_core.refused import Refused, checked, several
from bert_core.run.arrays import as_array
from bert_core.run.inputs import check_head_mask, embedded, gate_tensor
from bert_core.run.memory import copies_within
from bert_core.run.targets import asked_positions, target_values
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding

REPLACEMENTS = ("zero", "mean", "resample")

Head = tuple[int, int]


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
class CleanPass:
    """What a forward pass leaves behind for its variants, layer by layer.

    entering: (batch, seq, hidden). contexts: (batch, seq, heads * head size), gates applied.
    projected: (batch, seq, hidden), residual and output projection, before the norm.
    leaving: (batch, some, hidden), the last layer at the positions asked for.
    """

    entering: tuple[Tensor, ...]
    contexts: tuple[Tensor, ...]
    projected: tuple[Tensor, ...]
    leaving: Tensor


@torch.no_grad()
def clean_pass(
    bert: BertModel, hidden_states: Tensor, mask: Tensor | None, gates: Tensor | None, positions: Tensor
) -> CleanPass:
    """One forward pass from the embeddings on.

    hidden_states: (batch, seq, hidden). mask: additive. gates: (layer, batch or 1, head, 1, 1).
    positions: (batch, some), where the last layer is wanted.
    """
    entering, contexts, projected = [], [], []
    layers = _layers(bert)
    for number, layer in enumerate(layers):
        attention = layer.attention
        context = attention.self(hidden_states, mask, None if gates is None else gates[number]).context
        summed = hidden_states + attention.output.dense(context)
        entering.append(hidden_states)
        contexts.append(context)
        projected.append(summed)
        if number == len(layers) - 1:
            summed = rows_at(summed, positions)
        hidden_states = layer.feed_forward_chunk(attention.output.LayerNorm(summed))
    return CleanPass(tuple(entering), tuple(contexts), tuple(projected), hidden_states)


@torch.no_grad()
def without_each(
    bert: BertModel,
    clean: CleanPass,
    heads: Sequence[Head],
    mask: Tensor | None,
    gates: Tensor | None,
    positions: Tensor,
    *,
    replacement: Callable[[int], Tensor] | None = None,
    batch_tokens: int | None = None,
) -> Iterator[tuple[Sequence[Head], Tensor]]:
    """The last layer without each of these heads, some heads at a time.

    heads: (layer, head), sorted, by their first numbers. mask, gates, positions: those of the clean pass.
    replacement: layer -> contexts (batch or 1, seq or 1, heads * head size) to put in place of its own; None: zeros.
    batch_tokens: tokens of all variants that travel together, at least one variant; memory grows with it. None: as
        many as suit the device.
    Yields the heads of each batch, and (head, batch, some, hidden).
    """
    batch, seq, hidden = clean.entering[0].shape
    together = copies_within(batch_tokens, clean.entering[0].device, batch * seq)
    layers = _layers(bert)
    for first in range(0, len(heads), together):
        some = heads[first : first + together]
        states = clean.entering[0].new_empty(0, seq, hidden)  # (variants so far * batch, seq, hidden)
        for number in range(some[0][0], len(layers)):
            layer, last = layers[number], number == len(layers) - 1
            variants = len(states) // batch
            asked = positions.repeat(variants, 1) if last else None
            if variants:
                states = layer(
                    states,
                    None if mask is None or len(mask) == 1 else mask.repeat(variants, 1, 1, 1),
                    None if gates is None else _repeated(gates[number], variants),
                    positions=asked,
                ).hidden_states
            elif last:
                states = states.new_empty(0, positions.shape[1], hidden)
            own = [head for of_layer, head in some if of_layer == number]
            if own:
                started = _taken_out(layer, clean, number, own, replacement, positions if last else None)
                states = torch.cat([states, layer.feed_forward_chunk(layer.attention.output.LayerNorm(started))])
        yield some, states.view(len(some), batch, -1, hidden)


def _taken_out(
    layer: BertLayer,
    clean: CleanPass,
    number: int,
    heads: Sequence[int],
    replacement: Callable[[int], Tensor] | None,
    positions: Tensor | None,
) -> Tensor:
    """Residual and output projection without each of these heads of one layer, (head * batch, seq or some, hidden)."""
    attention, weight = layer.attention.self, layer.attention.output.dense.weight
    context, projected = clean.contexts[number], clean.projected[number]
    change = -context if replacement is None else replacement(number) - context
    if positions is not None:
        change, projected = rows_at(change, positions), rows_at(projected, positions)
    places = [attention.heads.index(head) for head in heads]
    size = attention.attention_head_size
    parts = change.view(*change.shape[:-1], -1, size)[:, :, places]  # (batch, seq, head, head size)
    columns = weight.view(weight.shape[0], -1, size)[:, places]  # (hidden, head, head size)
    return (projected + torch.einsum("bshd,ohd->hbso", parts, columns)).flatten(0, 1)


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
        reference = several("reference", reference, "Encodings")
        if method != "zero" and not reference:
            raise Refused(f"method {method!r} needs a reference text")
        self.method = method
        self._contexts: list[Tensor] = []  # layer by layer, (token, heads * head size); a mean is one token
        if method == "zero":
            return
        loaded = unedited(loaded)  # what is cut is cut in one text, and these are others
        gates = loaded.model.bert.get_head_mask(gate_tensor(loaded, head_mask), 1)
        first = torch.zeros(1, 1, dtype=torch.long, device=loaded.device)
        total: list[Tensor] = []
        for text in reference if method == "mean" else reference[:1]:
            seen = clean_pass(loaded.model.bert, embedded(loaded, text), None, gates, first).contexts
            contexts = [context[0].sum(0, keepdim=True) if method == "mean" else context[0] for context in seen]
            total = [one + other for one, other in zip(total, contexts, strict=True)] if total else contexts
        tokens = sum(map(len, reference)) if method == "mean" else 1
        self._contexts = [context / tokens for context in total]

    def of_length(self, tokens: int) -> Callable[[int], Tensor] | None:
        """A function of the layer, as `without_each` takes it, for texts of so many tokens; None for zeros.

        It gives (1, tokens or 1, heads * head size), what stands in for the outputs of all heads of the layer.
        """
        if self.method == "zero":
            return None

        def contexts(layer: int) -> Tensor:
            own = self._contexts[layer]
            if self.method == "resample":
                own = own[torch.arange(tokens, device=own.device) % len(own)]
            return own[None]

        return contexts


@checked
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
    report: Progress = silent,
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
    bert = loaded.model.bert
    positions, wanted = asked_positions(loaded, encoding, target, positions)
    config = loaded.config
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    opened = bert.get_head_mask(gate_tensor(loaded, gates), 1)
    asked = torch.tensor([wanted], device=loaded.device)

    replacement = Replacement(loaded, method, reference, head_mask=gates).of_length(len(encoding))
    check_own(loaded.edits, "switching heads off one by one")
    clean = clean_pass(bert, embedded(loaded, encoding), None, opened, asked)
    heads = _heads(bert)
    judge = _Judge(loaded, encoding, target, [wanted.index(position) for position in positions], wanted)
    base = judge(clean.leaving)
    figures = {name: np.full(gates.shape, np.nan, np.float32) for name in ("value", "nsp", "kl", "flips")}
    done = 0
    for some, states in without_each(
        bert, clean, heads, None, opened, asked, replacement=replacement, batch_tokens=batch_tokens
    ):
        for name, numbers in judge.compare(states[:, 0], base).items():
            for (layer, head), number in zip(some, numbers.tolist(), strict=True):
                figures[name][layer, head] = number
        done += len(some)
        counted(report, done, len(heads), "heads")
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


def values_without_heads(
    loaded: LoadedModel, encoding: Encoding, targets: Sequence[Target], replacement: Replacement | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Some targets of one text with all heads (target,), and without each (target, layer, head); a pruned one is NaN.

    All targets are read from the same passes. Raises Refused as `ablate_heads`.
    """
    bert = loaded.model.bert
    for target in targets:
        asked_positions(loaded, encoding, target, ())
    wanted = sorted({row for target in targets for row in target.rows})
    places = [[wanted.index(row) for row in target.rows] for target in targets]
    asked = torch.tensor([wanted], device=loaded.device)
    check_own(loaded.edits, "switching heads off one by one")
    with torch.no_grad():
        clean = clean_pass(bert, embedded(loaded, encoding), None, None, asked)
        config = loaded.config
        without = np.full((len(targets), config.num_hidden_layers, config.num_attention_heads), np.nan)
        other = None if replacement is None else replacement.of_length(len(encoding))
        whole = [
            float(target_values(loaded, target, clean.leaving[:, rows])[0])
            for target, rows in zip(targets, places, strict=True)
        ]
        for some, states in without_each(bert, clean, _heads(bert), None, None, asked, replacement=other):
            layers, numbers = zip(*some, strict=True)
            for number, (target, rows) in enumerate(zip(targets, places, strict=True)):
                without[number, layers, numbers] = as_array(target_values(loaded, target, states[:, 0][:, rows]))
    return np.array(whole), without


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


def _layers(bert: BertModel) -> list[BertLayer]:
    return cast("list[BertLayer]", list(bert.encoder.layer))


def _heads(bert: BertModel) -> list[Head]:
    """Every head that is there."""
    return [(number, head) for number, layer in enumerate(_layers(bert)) for head in layer.attention.self.heads]


def _repeated(gates: Tensor, variants: int) -> Tensor:
    """gates: (batch or 1, head, 1, 1)."""
    return gates if len(gates) == 1 else gates.repeat(variants, 1, 1, 1)
