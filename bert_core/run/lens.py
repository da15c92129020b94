"""What every layer already says: the masked-word head applied to the states between the layers, and these states."""

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

BYTES_AT_ONCE = 64 * 2**20  # of one table of scores (position, vocab); a few of them are held at once


@validate_arguments
@torch.no_grad()
def layer_states(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> LayerStates:
    """The state of every position before the first layer and after each.

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
    """What the masked-word head reads out of every layer at every position, in batches that fit.

    positions: where to read; None: everywhere. The layers run over the whole text all the same.
    translators: those of a tuned lens, which bring a layer's states to the head's, on any device; None reads them as
        they are.
    followed: (seq,) a piece to follow at each position of the text; None: the pieces that stand there.
    head_mask: as for `capture`. report: told how many cells, a position at a depth each, are done, as for
    `Progress`.
    The last layer is the model's own prediction, with either lens.
    Raises Refused for a model without a trained word head, or positions or pieces to follow that are not there.
    Source: nostalgebraist 2020; the tuned lens: Belrose 2023 (arXiv:2303.08112).
    """
    loaded.require_head("words", "its layers cannot be read as words")
    vocab, length = loaded.config.vocab_size, len(encoding)
    top_k = require_int("top_k", top_k, 1)
    given = (
        encoding.input_ids
        if followed is None
        else require_sequence("followed", followed, "pieces, one at each position")
    )
    pieces = tuple(require_int("a piece to follow", piece, None) for piece in given)
    if len(pieces) != length:
        raise Refused(f"{len(pieces)} pieces to follow at {length} positions: one at each")
    if not all(0 <= piece < vocab for piece in pieces):
        raise Refused(f"a piece to follow does not exist: the vocabulary has 0 to {vocab - 1}")
    given = tuple(range(length)) if positions is None else require_sequence("positions", positions, "whole numbers")
    places = tuple(sorted({check_position(encoding, position) for position in given}))
    pieces = tuple(pieces[position] for position in places)
    head = loaded.model.cls.predictions
    states = _states(loaded, encoding, head_mask)[:, list(places)]
    if translators is not None:
        translators = translators.on_device_of(states)
    depths, some_words = len(states), min(top_k, vocab)
    figures = {
        "top": np.empty((depths, len(places), some_words), np.int32),
        "probabilities": np.empty((depths, len(places), some_words), np.float32),
    } | {
        name: np.empty((depths, len(places)), np.int32 if name.endswith("rank") else np.float32)
        for name in (
            *("final_rank", "final_probability", "followed_rank", "followed_probability"),
            *("divergence", "entropy"),
        )
    }
    wanted = torch.tensor(pieces, device=loaded.device, dtype=torch.long)[:, None]
    for first in range(0, len(places), together := max(1, BYTES_AT_ONCE // (4 * vocab))):
        some = slice(first, first + together)
        final = head(states[-1, some]).float().log_softmax(-1)  # (place, vocab)
        words = {"final": final.argmax(-1, keepdim=True), "followed": wanted[some]}
        for depth in range(depths):
            here = final
            if depth < depths - 1:
                read = states[depth, some] if translators is None else translators(depth, states[depth, some])
                here = head(read).float().log_softmax(-1)
            likeliest = here.topk(some_words, dim=-1)
            values = {"top": likeliest.indices, "probabilities": likeliest.values.exp()}
            for name, word in words.items():
                own = here.gather(1, word)
                values[f"{name}_rank"] = (here > own).sum(-1) + 1
                values[f"{name}_probability"] = own[:, 0].exp()
            # Rounding may take a divergence of nothing a hair below it.
            values["divergence"] = (final.exp() * (final - here)).sum(-1).clamp(min=0)
            values["entropy"] = -(here.exp() * here).sum(-1)
            for name, value in zip(values, to_cpu([*values.values()]), strict=True):
                figures[name][depth, some] = value.numpy()
            report_count(report, depths * first + (depth + 1) * len(final), depths * len(places), "cells")
    lens = "logit" if translators is None else "tuned"
    return LensRun(encoding, lens, places, pieces, **figures)


@validate_arguments
@torch.no_grad()
def lens_change(before: LoadedModel, after: LoadedModel, encoding: Encoding) -> LensChange:
    """What the word heads of two models, each its own, read out of every layer of a text, in batches that fit.

    encoding: of both, which have one vocabulary. The last depth is each model's own prediction.
    Raises Refused where either has no trained word head, or they have not as many layers or pieces.
    Source: nostalgebraist 2020.
    """
    sizes = [(loaded.config.num_hidden_layers, loaded.config.vocab_size) for loaded in (before, after)]
    if sizes[0] != sizes[1]:
        (layers, pieces), (others, of_others) = sizes
        raise Refused(
            f"{layers} layers and {pieces:,} pieces, and {others} and {of_others:,}: depth by depth two models are "
            "compared that have as many"
        )
    for loaded in (before, after):
        loaded.require_head("words", "its layers cannot be read as words")
    heads = [loaded.model.cls.predictions for loaded in (before, after)]
    states = [_states(loaded, encoding, None) for loaded in (before, after)]
    depths, length = states[0].shape[:2]
    tops = np.empty((2, depths, length), np.int32)
    shares = np.empty((2, depths, length), np.float32)
    divergence = np.empty((depths, length), np.float32)
    together = max(1, BYTES_AT_ONCE // (4 * before.config.vocab_size))
    for depth in range(depths):
        for first in range(0, length, together):
            some = slice(first, first + together)
            one, other = (
                head(of_model[depth, some]).float().log_softmax(-1)
                for head, of_model in zip(heads, states, strict=True)
            )
            for side, read in enumerate((one, other)):
                likeliest = read.max(-1)
                indices, values = to_cpu([likeliest.indices, likeliest.values.exp()])
                tops[side, depth, some], shares[side, depth, some] = indices.numpy(), as_array(values)
            middle = torch.logaddexp(one, other) - np.log(2)
            both = (one.exp() * (one - middle)).sum(-1) + (other.exp() * (other - middle)).sum(-1)
            # Rounding may take a divergence of nothing a hair below it.
            divergence[depth, some] = as_array((both / 2).clamp(min=0))
    return LensChange(encoding, tops[0], tops[1], shares[0], shares[1], divergence)


def _states(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None) -> Tensor:
    """(depth, seq, hidden)."""
    outputs = loaded.model.bert(
        id_tensor(loaded, encoding),
        token_type_ids=segment_tensor(loaded, encoding),
        head_mask=gate_tensor(loaded, head_mask),
        output_hidden_states=True,
    )
    return torch.cat(outputs.hidden_states)
