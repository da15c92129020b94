"""Activation patches as edits of a model, which stay in place until they are removed."""

from __future__ import annotations

import numpy as np
import torch

from bert_core.analysis.causes import word_partners
from bert_core.config import check_head_exists
from bert_core.deprecation import renamed_parameters
from bert_core.editing import neuron_index
from bert_core.edits import HEAD_PARTS, NEURON, PATCHABLE_PARTS, ActivationPatch, check_unpatched
from bert_core.loading import LoadedModel
from bert_core.records import MeanOf, Noised, without_noise
from bert_core.refused import Refused, require_int, short_repr, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import layer_gates
from bert_core.run.patch_sources import PATCHED_PARTS, align_trace, trace_source
from bert_core.tokenizer import Encoding


@renamed_parameters(what="part_kind")
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
    """Take an activation of a source and return it as an edit, which `edited` adds to a model.

    source, part_kind, align, head_mask: as for `patch`. encoding: the text that the patched model will process.
    layer: the layer of the activation; for "state" the depth, 0 for the embeddings.
    position: the patched position; None: all positions.
    head: the head, for parts of a head. neuron: the neuron, for "neuron". Both are None for other parts.
    Raises Refused as `patch`, and for a head, neuron or position that does not exist.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encode = loaded.tokenizer.encode
    >>> source, encoding = encode("The woman lost [MASK] hat."), encode("The man lost [MASK] hat.")
    >>> activation_patch = bert_core.make_patch(loaded, source, encoding, "state", 1, position=2)
    >>> run = bert_core.capture(bert_core.edited(loaded, [activation_patch]), encoding)
    >>> loaded.tokenizer.token_of(run.predictions[0].top[0][0])
    'her'
    """
    config, tokens = loaded.config, len(encoding)
    if part_kind not in PATCHABLE_PARTS:
        raise Refused(f"the kind of part {short_repr(part_kind)} is unknown: one of {', '.join(PATCHABLE_PARTS)}")
    check_unpatched(loaded.edits, "another activation patch")
    last = config.num_hidden_layers - (part_kind != "state")
    require_int("the depth" if part_kind == "state" else "the layer", layer, 0, last)
    if position is not None:
        require_int("the position", position, 0, tokens - 1)
    index = 0
    if part_kind in HEAD_PARTS:
        head = require_int("the head", head)
        check_head_exists(config, layer, head)
        index = config.heads_of(layer).index(head)
    if part_kind == NEURON:
        index = neuron_index(loaded, layer, require_int("the neuron", neuron, 0, config.intermediate_size - 1))
    source_tokens = tokens if isinstance(source, MeanOf) else len(without_noise(source))
    if align == "tokens" and source_tokens != tokens:
        raise Refused(
            f"the source has {source_tokens} tokens and the text has {tokens}: "
            'use align="words" to patch from word to word'
        )
    gates = layer_gates(loaded, head_mask)
    traced = trace_source(loaded, source, tokens, gates)
    if align == "words" and not isinstance(source, MeanOf):
        partners = word_partners(without_noise(source), encoding).partners
        if position is not None and partners[position] is None:
            raise Refused(f"position {position} of the text has no partner in the source, so it cannot be patched")
        if partners != tuple(range(tokens)):
            traced = align_trace(traced, trace_source(loaded, encoding, tokens, gates), partners)
    if part_kind == "pattern" and (isinstance(source, MeanOf) or source_tokens != tokens):
        raise Refused("an attention pattern can only be patched from a text with the same number of tokens")
    part = (
        traced.states[layer][0] if part_kind == "state" else getattr(traced.layers[layer], PATCHED_PARTS[part_kind])[0]
    )
    if part_kind in HEAD_PARTS:
        part = part[index]
    elif part_kind == NEURON:
        part = part[:, [index]]
    rows = part if position is None else part[[position]]
    unit = {"head": head if part_kind in HEAD_PARTS else None, "neuron": neuron if part_kind == NEURON else None}
    return ActivationPatch(part_kind, layer, as_array(rows), tokens, position, **unit, source=source)
