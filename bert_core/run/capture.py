"""One text through the model, once forward and at most once back, and everything seen on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.loading import LoadedModel
from bert_core.recording import record
from bert_core.records import ModelRun, Target
from bert_core.refused import Refused, checked, several, whole
from bert_core.run.answers import answers_of
from bert_core.run.arrays import as_array, on_cpu, with_gaps
from bert_core.run.inputs import check_head_mask, gate_tensor, ids_of, positions_of, segments_of
from bert_core.run.stack import PaddedTexts, head_outputs, layers_of, pad
from bert_core.run.targets import asked_positions, target_values
from bert_core.tokenizer import Encoding


@checked
def capture(
    loaded: LoadedModel,
    encoding: Encoding,
    *,
    target: Target | None = None,
    positions: Sequence[int] | None = None,
    head_mask: np.ndarray | None = None,
    top_k: int = 10,
    norms: bool = False,
) -> ModelRun:
    """Attention maps, predictions and, for a target, the gradient of every map.

    positions: where to predict pieces; None means at every [MASK].
    head_mask: (layer, head), 1 on and 0 off, or any gate between; None leaves all on.
    norms: also how long the vectors are that each head brings, which "brought" needs: a twentieth of the time more for
        the bundled model, a tenth to a fifth for one of base size.
    Safe to call from many threads on one model: nothing is written to the model or its parameters.
    Raises Refused for a target the model has no trained head for, or a position or head that does not exist.
    """
    model, config, top_k = loaded.model, loaded.config, whole("top_k", top_k)
    positions, wanted = asked_positions(loaded, encoding, target, positions)
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    ids = ids_of(loaded, encoding)
    opened = gate_tensor(loaded, gates)

    with torch.set_grad_enabled(target is not None), record() as recording:
        if opened is not None and target is not None:
            opened.requires_grad_()
        # The embeddings are the leaf: gradients flow back to the maps, and to no parameter.
        embeddings = model.bert.embeddings.word_embeddings(ids).detach().requires_grad_(target is not None)
        outputs = model.bert(
            inputs_embeds=embeddings,
            token_type_ids=segments_of(loaded, encoding),
            position_ids=positions_of(loaded, encoding),
            head_mask=opened,
            positions=None if len(wanted) == len(encoding) else torch.tensor([wanted], device=loaded.device),
            output_hidden_states=norms,
        )
    there = [config.heads_of(layer) for layer in range(config.num_hidden_layers)]
    maps = [recording.attention[layer] for layer in range(config.num_hidden_layers)]
    asked, slopes, value = [one for one in maps if one.numel()], [], None
    if target is not None:
        rows = [wanted.index(row) for row in target.rows]
        value = target_values(loaded, target, outputs.last_hidden_state[:, rows])[0]
        # A layer without heads has no map, and what has no gates has no slope of them.
        slopes = list(torch.autograd.grad(value, asked if opened is None else [*asked, opened])) if asked else []
    lengths = [_value_norms(loaded, outputs.hidden_states)] if norms else []
    parts = iter(on_cpu([*maps, *slopes, *lengths, *([] if value is None else [value])]))
    maps, slopes, lengths = ([next(parts) for _ in part] for part in (maps, slopes, lengths))
    attention, gradient, gate_gradient, target_value = _stack(maps, there, config), None, None, None
    if target is not None:
        target_value = next(parts).item()
        gradient = _stack([slopes.pop(0) if one.numel() else one for one in maps], there, config)
        # With every gate at 1, the sum of map x gradient is the gradient of the gate, exactly (Michel 2019).
        gate_gradient = np.einsum("lhqk,lhqk->lhq", attention, gradient).sum(-1)
        if slopes:
            gate_gradient = np.where(np.isnan(gate_gradient), np.nan, slopes[0].numpy())
    rows = [wanted.index(position) for position in positions]
    (answer,) = answers_of(loaded, [encoding], outputs.last_hidden_state, [positions], [rows], top_k)
    return ModelRun(
        encoding=encoding,
        attention=attention,
        head_mask=gates,
        **answer._asdict(),
        target=target,
        target_value=target_value,
        gradient=gradient,
        gate_gradient=gate_gradient,
        edits=loaded.edits,
        norms=as_array(lengths[0][0]) if norms else None,
    )


@checked
@torch.no_grad()
def captures(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    *,
    head_mask: np.ndarray | None = None,
    top_k: int = 10,
    norms: bool = False,
) -> list[ModelRun]:
    """Attention maps and predictions of several texts in one pass: for each what `capture` gives, up to rounding.

    The shorter texts are padded, so texts of about one length are quickest.
    head_mask, norms: as for `capture`, for all.
    Raises Refused for no text.
    """
    encodings = several("encodings", encodings, "Encodings")
    if not encodings:
        raise Refused("there is no text to read: give at least one")
    model, config, top_k = loaded.model, loaded.config, whole("top_k", top_k)
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    asked = [asked_positions(loaded, encoding, None, None) for encoding in encodings]
    positions, wanted = [of_text for of_text, _ in asked], [of_text for _, of_text in asked]
    texts = PaddedTexts.of(loaded, encodings)
    with record() as recording:
        outputs = model.bert(
            texts.ids,
            token_type_ids=texts.segments,
            attention_mask=texts.mask,
            head_mask=gate_tensor(loaded, gates),
            positions=torch.from_numpy(pad(wanted)).to(loaded.device),
            output_hidden_states=norms,
        )
    there = [config.heads_of(layer) for layer in range(config.num_hidden_layers)]
    maps = [recording.attention[layer] for layer in range(config.num_hidden_layers)]
    value_norms = [_value_norms(loaded, outputs.hidden_states)] if norms else []
    values = on_cpu([*maps, *value_norms])
    maps, value_norms = values[: len(maps)], values[len(maps) :]
    rows = [[of_text.index(position) for position in at] for of_text, at in zip(wanted, positions, strict=True)]
    answers = answers_of(loaded, encodings, outputs.last_hidden_state, positions, rows, top_k)
    return [
        ModelRun(
            encoding=encoding,
            attention=_stack([of_layer[number, None, :, :length, :length] for of_layer in maps], there, config),
            head_mask=gates,
            **answer._asdict(),
            target=None,
            target_value=None,
            gradient=None,
            gate_gradient=None,
            edits=loaded.edits,
            norms=as_array(value_norms[0][number, ..., :length]) if norms else None,
        )
        for number, (encoding, answer, length) in enumerate(zip(encodings, answers, map(len, encodings), strict=True))
    ]


@torch.no_grad()
def _value_norms(loaded: LoadedModel, states: Sequence[Tensor]) -> Tensor:
    """How long the vectors are that heads bring, (text, layer, head, key); NaN for heads that were pruned.

    states: what enters each layer.
    """
    layers = layers_of(loaded)
    texts, tokens = states[0].shape[:2]
    lengths = states[0].new_full((texts, len(layers), loaded.config.num_attention_heads, tokens), torch.nan)
    for number, (layer, entering) in enumerate(zip(layers, states, strict=False)):
        attention = layer.attention.self
        values = attention.transpose_for_scores(attention.value(entering))
        lengths[:, number, list(attention.heads)] = head_outputs(layer.attention, values).norm(dim=-1)
    return lengths


def _stack(maps: Sequence[Tensor], there: Sequence[Sequence[int]], config: BertConfig) -> np.ndarray:
    """Maps (1, head, query, key) of every layer, on the CPU, copied into one (layer, head, query, key).

    there: the heads that each layer has; the others are NaN.
    """
    result = np.empty((len(maps), config.num_attention_heads, *maps[0].shape[2:]), np.float32)
    for layer, (one, heads) in enumerate(zip(maps, there, strict=True)):
        values = one[0].numpy()
        result[layer] = values if len(heads) == len(result[layer]) else with_gaps(values, heads, len(result[layer]))
    return result
