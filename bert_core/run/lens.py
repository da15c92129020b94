"""Logit lens and tuned lens: the MLM head applied to the hidden states of every layer, and these states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import LayerStates, LensChange, LensRun
from bert_core.refused import Refused, require_int, require_sequence, validate_arguments
from bert_core.run.arrays import as_array, to_cpu
from bert_core.run.inputs import check_position, gate_tensor, id_tensor, segment_tensor
from bert_core.tokenizer import Encoding
from bert_core.translators import Translators

BYTES_AT_ONCE = 64 * 2**20  # of one float32 array (position, vocab); a few of them exist at once


@validate_arguments
@torch.no_grad()
def layer_states(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> LayerStates:
    """Compute the hidden states of a text at every depth: the embeddings and the output of each layer.

    head_mask: as for `capture`.
    """
    return LayerStates(encoding, as_array(_states(loaded, encoding, head_mask)))


@validate_arguments
@torch.no_grad()
def logit_lens(
    loaded: LoadedModel,
    encoding: Encoding,
    *,
    positions: Sequence[int] | None = None,
    translators: Translators | None = None,
    followed: Sequence[int] | None = None,
    top_k: int = 10,
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> LensRun:
    """Predict tokens from the hidden states of every layer with the MLM head.

    positions: positions at which the lens predicts; None: all. The layers always run over the whole text.
    translators: translators of a tuned lens, which map the states of each depth to those that the MLM head expects, on
        any device; None gives the logit lens, which uses the states unchanged.
    followed: (seq,) id of a token whose probability is recorded at each position; None: the tokens of the text.
    top_k: number of most likely tokens recorded in each cell. head_mask: as for `capture`.
    report: receives the number of cells (depth, position) that are done, see `Progress`.
    At the last depth both lenses give the prediction of the model itself. In a pre-norm model, the layer norm of the
    final hidden states is applied to those of the other depths too.
    Raises Refused for a model without a trained MLM head, and for positions or token ids that do not exist.
    Source: nostalgebraist 2020; the tuned lens: Belrose 2023 (arXiv:2303.08112).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> lens = bert_core.logit_lens(loaded, encoding, positions=encoding.mask_positions)
    >>> lens.top.shape  # (depth, place, rank)
    (7, 1, 10)
    >>> loaded.tokenizer.token_of(int(lens.top[-1, 0, 0]))
    'door'
    """
    loaded.require_head("words", "its layers cannot be read as words")
    vocab, length = loaded.config.vocab_size, len(encoding)
    top_k = require_int("top_k", top_k, 1)
    requested = (
        encoding.input_ids
        if followed is None
        else require_sequence("followed", followed, "token ids, one for each position")
    )
    pieces = tuple(require_int("an id of followed", piece, None) for piece in requested)
    if len(pieces) != length:
        raise Refused(
            f"followed has {len(pieces)} ids and the text has {length} positions: give one id for each position"
        )
    if not all(0 <= piece < vocab for piece in pieces):
        raise Refused(f"an id of followed does not exist: the vocabulary has 0 to {vocab - 1}")
    requested = tuple(range(length)) if positions is None else require_sequence("positions", positions, "whole numbers")
    selected = tuple(sorted({check_position(encoding, position) for position in requested}))
    pieces = tuple(pieces[position] for position in selected)
    head, norm = loaded.model.cls.predictions, loaded.model.bert.encoder.final_norm
    states = _states(loaded, encoding, head_mask)[:, list(selected)]
    if translators is not None:
        translators = translators.on_device_of(states)
    depths, top_count = len(states), min(top_k, vocab)
    figures = {
        "top": np.empty((depths, len(selected), top_count), np.int32),
        "probabilities": np.empty((depths, len(selected), top_count), np.float32),
    } | {
        name: np.empty((depths, len(selected)), np.int32 if name.endswith("rank") else np.float32)
        for name in (
            *("final_rank", "final_probability", "followed_rank", "followed_probability"),
            *("divergence", "entropy"),
        )
    }
    followed_ids = torch.tensor(pieces, device=loaded.device, dtype=torch.long)[:, None]
    for first in range(0, len(selected), positions_per_batch := max(1, BYTES_AT_ONCE // (4 * vocab))):
        batch = slice(first, first + positions_per_batch)
        final_log_probs = head(states[-1, batch]).float().log_softmax(-1)  # (position, vocab)
        tokens = {"final": final_log_probs.argmax(-1, keepdim=True), "followed": followed_ids[batch]}
        for depth in range(depths):
            log_probs = final_log_probs
            if depth < depths - 1:
                translated = states[depth, batch] if translators is None else translators(depth, states[depth, batch])
                log_probs = head(norm(translated)).float().log_softmax(-1)
            top = log_probs.topk(top_count, dim=-1)
            values = {"top": top.indices, "probabilities": top.values.exp()}
            for name, token_ids in tokens.items():
                token_log_probs = log_probs.gather(1, token_ids)
                values[f"{name}_rank"] = (log_probs > token_log_probs).sum(-1) + 1
                values[f"{name}_probability"] = token_log_probs[:, 0].exp()
            # Rounding can make a divergence of zero slightly negative.
            values["divergence"] = (final_log_probs.exp() * (final_log_probs - log_probs)).sum(-1).clamp(min=0)
            values["entropy"] = -(log_probs.exp() * log_probs).sum(-1)
            for name, value in zip(values, to_cpu([*values.values()]), strict=True):
                figures[name][depth, batch] = value.numpy()
            report_count(report, depths * first + (depth + 1) * len(final_log_probs), depths * len(selected), "cells")
    lens = "logit" if translators is None else "tuned"
    return LensRun(encoding, lens, selected, pieces, **figures)


@validate_arguments
@torch.no_grad()
def lens_change(before: LoadedModel, after: LoadedModel, encoding: Encoding) -> LensChange:
    """Compare the logit lens of two models at every depth and position of a text.

    before, after: models with the same vocabulary and number of layers; each uses its own MLM head.
    encoding: the text, valid for both models. At the last depth the lens gives the prediction of each model itself.
    Returns the most likely token of both models, its probability, and the Jensen-Shannon divergence in nats.
    Raises Refused if a model has no trained MLM head, or if the numbers of layers or of tokens differ.
    Source: nostalgebraist 2020.
    """
    sizes = [(loaded.config.num_hidden_layers, loaded.config.vocab_size) for loaded in (before, after)]
    if sizes[0] != sizes[1]:
        (layers, tokens), (second_layers, second_tokens) = sizes
        raise Refused(
            f"the models have {layers} and {second_layers} layers, and vocabularies of {tokens:,} and "
            f"{second_tokens:,} tokens: both numbers must be equal"
        )
    for loaded in (before, after):
        loaded.require_head("words", "its layers cannot be read as words")
    heads = [loaded.model.cls.predictions for loaded in (before, after)]
    norms = [loaded.model.bert.encoder.final_norm for loaded in (before, after)]
    states = [_states(loaded, encoding, None) for loaded in (before, after)]
    depths, length = states[0].shape[:2]
    tops = np.empty((2, depths, length), np.int32)
    shares = np.empty((2, depths, length), np.float32)
    divergence = np.empty((depths, length), np.float32)
    positions_per_batch = max(1, BYTES_AT_ONCE // (4 * before.config.vocab_size))
    for depth in range(depths):
        for start in range(0, length, positions_per_batch):
            batch = slice(start, start + positions_per_batch)
            first_log_probs, second_log_probs = (
                head(model_states[depth, batch] if depth == depths - 1 else norm(model_states[depth, batch]))
                .float()
                .log_softmax(-1)
                for head, norm, model_states in zip(heads, norms, states, strict=True)
            )
            for model, log_probs in enumerate((first_log_probs, second_log_probs)):
                top = log_probs.max(-1)
                indices, values = to_cpu([top.indices, top.values.exp()])
                tops[model, depth, batch], shares[model, depth, batch] = indices.numpy(), as_array(values)
            mean_log_probs = torch.logaddexp(first_log_probs, second_log_probs) - np.log(2)
            divergences = (first_log_probs.exp() * (first_log_probs - mean_log_probs)).sum(-1) + (
                second_log_probs.exp() * (second_log_probs - mean_log_probs)
            ).sum(-1)
            # Rounding can make a divergence of zero slightly negative.
            divergence[depth, batch] = as_array((divergences / 2).clamp(min=0))
    return LensChange(encoding, tops[0], tops[1], shares[0], shares[1], divergence)


def _states(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None) -> Tensor:
    """Compute the hidden states of a text at every depth, (depth, seq, hidden)."""
    outputs = loaded.model.bert(
        id_tensor(loaded, encoding),
        token_type_ids=segment_tensor(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask),
        output_hidden_states=True,
    )
    return torch.cat(outputs.hidden_states)
