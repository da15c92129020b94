"""A part of a model's reading of one text, to stand in its reading of another for as long as is wanted."""

from __future__ import annotations

import numpy as np
import torch

from bert_core.analysis.causes import word_partners
from bert_core.config import check_head_exists
from bert_core.editing import neuron_index
from bert_core.edits import HEAD_PARTS, NEURON, PATCHABLE_PARTS, ActivationPatch, check_unpatched
from bert_core.loading import LoadedModel
from bert_core.records import MeanOf, Noised, without_noise
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import layer_gates
from bert_core.run.patch_sources import PATCHED_PARTS, align_trace, trace_source
from bert_core.tokenizer import Encoding


@validate_arguments
@torch.no_grad()
def make_patch(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding,
    part_kind: str = "state",
    layer: int = 0,
    *,
    position: int | None = None,
    head: int | None = None,
    neuron: int | None = None,
    align: str = "tokens",
    head_mask: np.ndarray | None = None,
) -> ActivationPatch:
    """A part of the reading of a source, as an edit for `edited`: the model then reads the text with that part in.

    what, layer: as in `patch`; of a state the layer is its depth. position: the token that gets it; None: all of them.
    head: of what belongs to one. neuron: of a neuron. align, head_mask: as for `patch`.
    Raises Refused as `patch`, and for a head, neuron or position that does not exist.
    """
    config, tokens = loaded.config, len(encoding)
    if part_kind not in PATCHABLE_PARTS:
        raise Refused(f"what {short_repr(part_kind)} is unknown: one of {', '.join(PATCHABLE_PARTS)}")
    check_unpatched(loaded.edits, "carrying over another")
    last = config.num_hidden_layers - (part_kind != "state")
    require_int("the depth" if part_kind == "state" else "the layer", layer, 0, last)
    if position is not None:
        require_int("the position", position, 0, tokens - 1)
    place = 0
    if part_kind in HEAD_PARTS:
        head = require_int("the head", head)
        check_head_exists(config, layer, head)
        place = config.heads_of(layer).index(head)
    if part_kind == NEURON:
        place = neuron_index(loaded, layer, require_int("the neuron", neuron, 0, config.intermediate_size - 1))
    theirs = tokens if isinstance(source, MeanOf) else len(without_noise(source))
    if align == "tokens" and theirs != tokens:
        raise Refused(f'the source has {theirs} tokens and the text {tokens}: with align="words" words go to words')
    gates = layer_gates(loaded, head_mask)
    traced = trace_source(loaded, source, tokens, gates)
    if align == "words" and not isinstance(source, MeanOf):
        partners = word_partners(without_noise(source), encoding).partners
        if position is not None and partners[position] is None:
            raise Refused(f"position {position} of the text has no partner in the source: nothing can be put in there")
        if partners != tuple(range(tokens)):
            traced = align_trace(traced, trace_source(loaded, encoding, tokens, gates), partners)
    if part_kind == "pattern" and (isinstance(source, MeanOf) or theirs != tokens):
        raise Refused("a pattern says which token looks at which, so it can only come from a text of as many tokens")
    part = (
        traced.states[layer][0] if part_kind == "state" else getattr(traced.layers[layer], PATCHED_PARTS[part_kind])[0]
    )
    if part_kind in HEAD_PARTS:
        part = part[place]
    elif part_kind == NEURON:
        part = part[:, [place]]
    rows = part if position is None else part[[position]]
    kept = {"head": head if part_kind in HEAD_PARTS else None, "neuron": neuron if part_kind == NEURON else None}
    return ActivationPatch(part_kind, layer, as_array(rows), tokens, position, **kept, source=source)
