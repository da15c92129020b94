"""Exact ablation of every attention head of a model, one head at a time, in a few batches.

The layers below an ablated head are not computed again. Ablating a head subtracts its part of the output projection.
The last layer is computed only at the positions that are needed.
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
from bert_core.run.targets import prediction_positions, target_rows, target_values
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding

REPLACEMENTS = ("zero", "mean", "resample")
ABLATION_NAME = "head ablation"  # in messages

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
    """Compute the output of the last layer with all heads, and with each head ablated in turn.

    states: (batch, seq, hidden), the input of the first layer.
    positions: (batch, position), the positions at which the output of the last layer is needed.
    layers, gates, mask: as for `run_layers`. replacement: what replaces the output of a head; None: zeros.
    batch_tokens: limit of the tokens of all variants in a batch, which bounds the memory; a batch has at least one
        variant. None: the number that suits the device.
    report: receives the number of heads that are done, see `Progress`.
    Returns the output with all heads (batch, position, hidden), and an iterator over batches of heads. The iterator
    yields a list of heads (layer, head) and the outputs without each of them (head, batch, position, hidden).
    """
    batch, seq, _ = states.shape
    arguments = {"gates": gates, "mask": mask, "positions": positions}
    clean = trace(layers, states, **arguments, keep=("context", "attention_update"))
    heads = [(number, head) for number, layer in enumerate(layers) for head in layer.attention.self.heads]
    contexts = None if replacement is None else replacement.contexts_for(seq)

    def start_variants(start: int, variants: range) -> Tensor:
        layer_heads = [head for _, head in heads[variants.start : variants.stop]]
        replacements = None if contexts is None else contexts(start - 1)
        return _output_without_heads(
            clean.layers[start - 1], layer_heads, replacements, positions if start == len(layers) else None
        )

    def iter_ablations() -> Iterator[tuple[Sequence[Head], Tensor]]:
        starts = [layer + 1 for layer, _ in heads]
        variants_per_batch = copies_per_batch(batch_tokens, states.device, batch * seq)
        for variants, last_states in run_variants(layers, starts, start_variants, variants_per_batch, **arguments):
            yield (
                heads[variants.start : variants.stop],
                last_states.view(len(variants), batch, -1, last_states.shape[-1]),
            )
            report_count(report, variants.stop, len(heads), "heads")

    return clean.last, iter_ablations()


def _output_without_heads(
    traced: LayerTrace, heads: Sequence[int], contexts: Tensor | None, positions: Tensor | None
) -> Tensor:
    """Compute the output of a layer with each of some heads ablated, (head * batch, seq or position, hidden).

    heads: numbers of the heads. contexts: (batch or 1, seq or 1, heads * head size), which replace the contexts of the
        layer; None: zeros.
    positions: (batch, position), the only positions that are computed; None: all.
    """
    layer, attention = traced.layer, traced.layer.attention
    change, attention_sum = (
        -traced.merged_context if contexts is None else contexts - traced.merged_context,
        traced.attention_sum,
    )
    if positions is not None:
        change, attention_sum = gather_positions(change, positions), gather_positions(attention_sum, positions)
    indices = [attention.self.heads.index(head) for head in heads]
    # (batch, seq, head, head size)
    parts = change.view(*change.shape[:-1], -1, attention.self.attention_head_size)[:, :, indices]
    attention_sum = attention_sum + torch.einsum("bshd,ohd->hbso", parts, attention.head_projections[:, indices])
    output_states: Tensor = layer.feed_forward_chunk(attention.output.LayerNorm(attention_sum.flatten(0, 1)))
    return output_states


class Replacement:
    """Replacement of the outputs of ablated heads.

    method: "zero" removes the output of a head. "mean" replaces it by its mean over all tokens of the reference texts.
        "resample" replaces it by its output at the same position of the first reference text, which is repeated if it
        is shorter.
    reference: texts for "mean" and "resample". They run through the unedited model.
    head_mask: head gates (layer, head) while the reference texts run; None: all 1.
    Raises Refused for an unknown method, or for "mean" or "resample" without a reference text.
    Source: Wang 2022 (arXiv:2211.00593) for mean and resample ablation.
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
        self._contexts: list[Tensor] = []  # one for each layer, (token, heads * head size); a mean has one token
        if method == "zero":
            return
        loaded = unedited(loaded)  # edits refer to positions of another text
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
            total = [sums + context for sums, context in zip(total, contexts, strict=True)] if total else contexts
        tokens = sum(map(len, reference)) if method == "mean" else 1
        self._contexts = [context / tokens for context in total]

    def contexts_for(self, tokens: int) -> Callable[[int], Tensor] | None:
        """Return a function from a layer to the contexts that replace those of its heads; None stands for zeros.

        tokens: length of the ablated text. The function returns (1, tokens or 1, heads * head size).
        """
        if self.method == "zero":
            return None

        def contexts(layer: int) -> Tensor:
            layer_contexts = self._contexts[layer]
            if self.method == "resample":
                layer_contexts = layer_contexts[
                    torch.arange(tokens, device=layer_contexts.device) % len(layer_contexts)
                ]
            return layer_contexts[None]

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
    """Ablate every attention head in turn and record how the predictions for a text change.

    target: the value that is recorded without each head; None: none.
    positions: positions of the MLM predictions that are compared; None: every [MASK].
    head_mask: head gates (layer, head) during all passes; None: all 1.
    method, reference: the replacement of a head's output, see `Replacement`.
    batch_tokens: as for `patch`. report: receives the number of heads that are done, see `Progress`.
    Thread-safe: the model is not changed.
    Raises Refused for a target without a trained head, a position that does not exist, and as `Replacement`.
    Source: Michel 2019, section 3 (arXiv:1905.10650).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("He drank a cup of [MASK] with milk.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "tea")
    >>> effect = bert_core.ablate_heads(loaded, encoding, target=target).effect  # in nats
    >>> layer, head = bert_core.leading_heads(-effect, 1)[0]
    >>> print(f"largest decrease: L{layer} H{head}, {effect[layer, head]:.2f}")
    largest decrease: L5 H10, -0.67
    """
    positions, needed_positions = prediction_positions(loaded, encoding, target, positions)
    config = loaded.config
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    replacement = Replacement(loaded, method, reference, head_mask=gates)
    check_unpatched(loaded.edits, ABLATION_NAME)
    predictor = _Predictor(
        loaded, encoding, target, [needed_positions.index(position) for position in positions], needed_positions
    )
    figures = {name: np.full(gates.shape, np.nan, np.float32) for name in ("value", "nsp", "kl", "flips")}
    last, ablations = iter_head_ablations(
        encoder_layers(loaded), embed_text(loaded, encoding), torch.tensor([needed_positions], device=loaded.device),
        gates=layer_gates(loaded, gates), replacement=replacement, batch_tokens=batch_tokens, report=report,
    )  # fmt: skip
    base = predictor(last)
    for heads, states in ablations:
        for name, results in predictor.compare(states[:, 0], base).items():
            figures[name][tuple(np.transpose(heads))] = as_array(results)
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
    """Compute targets of a text with all heads, and with each head ablated in turn, all from the same passes.

    replacement: what replaces the output of a head; None: zeros.
    Returns the values with all heads (target,) and without each head (target, layer, head), NaN for a pruned head.
    Raises Refused as `ablate_heads`.
    """
    for target in targets:
        prediction_positions(loaded, encoding, target, ())
    check_unpatched(loaded.edits, ABLATION_NAME)
    rows_of_targets = [target_rows(loaded, encoding, target) for target in targets]
    config, positions = loaded.config, sorted({row for rows in rows_of_targets for row in rows})
    indices = [[positions.index(row) for row in rows] for rows in rows_of_targets]

    def values(states: Tensor) -> np.ndarray:
        """Compute the values (target, copy) from the last layer, (copy, position, hidden)."""
        target_copies = [
            target_values(loaded, encoding, target, states[:, rows])
            for target, rows in zip(targets, indices, strict=True)
        ]
        return np.stack([as_array(copy_values) for copy_values in target_copies])

    embeddings, position_tensor = embed_text(loaded, encoding), torch.tensor([positions], device=loaded.device)
    last, ablations = iter_head_ablations(encoder_layers(loaded), embeddings, position_tensor, replacement=replacement)
    figures = np.full((len(targets), config.num_hidden_layers, config.num_attention_heads), np.nan)
    for heads, states in ablations:
        figures[:, *np.transpose(heads)] = values(states[:, 0])
    return values(last)[:, 0].astype(float), figures


class _Predictor:
    """Predictions from the last layer of ablated variants, and their differences from the predictions with all heads.

    rows: the positions of the MLM predictions among `needed_positions`, those at which the last layer is computed.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        encoding: Encoding,
        target: Target | None,
        rows: list[int],
        needed_positions: list[int],
    ) -> None:
        self.loaded, self.encoding, self.target, self.rows = loaded, encoding, target, rows
        self.predicts_nsp = TASK_HEADS["next"].applies(loaded, encoding)
        target_positions = () if target is None else target_rows(loaded, encoding, target)
        self.target_rows = [needed_positions.index(row) for row in target_positions]

    @torch.no_grad()
    def __call__(self, states: Tensor) -> dict[str, Tensor]:
        """Compute predictions from the output of the last layer, (variant, position, hidden).

        Returns the requested ones of "value" (variant,), "nsp" (variant,), the probability that text B follows text A,
        and "pieces" (variant, position, vocab), the log-probabilities of the MLM head.
        """
        model, target, answers = self.loaded.model, self.target, {}
        if target is not None:
            answers["value"] = target_values(self.loaded, self.encoding, target, states[:, self.target_rows])
        if self.predicts_nsp:
            answers["nsp"] = TASK_HEADS["next"].logits(self.loaded, states[:, 0]).softmax(-1)[:, 0]
        if self.rows:
            answers["pieces"] = model.cls.predictions(states[:, self.rows]).float().log_softmax(-1)
        return answers

    def compare(self, states: Tensor, base: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute "value" and "nsp" of each variant, and the changes of its MLM predictions compared with `base`.

        The changes are means over the positions: "kl", the KL divergence from the base prediction in nats, and "flips",
        the share of positions at which the most likely token differs.
        """
        answers = self(states)
        if "pieces" in answers:
            before, after = base["pieces"], answers.pop("pieces")
            answers["kl"] = (before.exp() * (before - after)).sum(-1).mean(-1)
            answers["flips"] = (before.argmax(-1) != after.argmax(-1)).float().mean(-1)
        return answers
