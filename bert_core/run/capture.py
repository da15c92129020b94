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
from bert_core.refused import Refused, require_int, require_sequence, validate_arguments
from bert_core.run.answers import predict_answers
from bert_core.run.arrays import as_array, fill_pruned_with_nan, to_cpu
from bert_core.run.inputs import check_head_mask, gate_tensor
from bert_core.run.stack import PaddedTexts, encoder_layers, pad
from bert_core.run.targets import prediction_positions, target_values
from bert_core.tokenizer import Encoding


@validate_arguments
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
    norms: also the norms of each key's value vector through each head's output map, which "brought" needs: a
        twentieth of the time more for the bundled model, a tenth to a fifth for one of base size.
    Safe to call from many threads on one model: nothing is written to the model or its parameters.
    Raises Refused for a target the model has no trained head for, or a position or head that does not exist.
    """
    (run,) = _runs(loaded, [encoding], target, positions, head_mask, require_int("top_k", top_k), norms=norms)
    return run


@validate_arguments
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
    encodings = require_sequence("encodings", encodings, "Encodings")
    if not encodings:
        raise Refused("there is no text to read: give at least one")
    return _runs(loaded, encodings, None, None, head_mask, require_int("top_k", top_k), norms=norms)


def _runs(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    target: Target | None,
    positions: Sequence[int] | None,
    head_mask: np.ndarray | None,
    top_k: int,
    *,
    norms: bool,
) -> list[ModelRun]:
    """The texts in one pass; a target and positions are those of a single text."""
    bert, config = loaded.model.bert, loaded.config
    asked = [prediction_positions(loaded, encoding, target, positions) for encoding in encodings]
    wanted = [of_text for _, of_text in asked]
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    opened = gate_tensor(loaded, gates)
    texts = PaddedTexts.from_encodings(loaded, encodings)
    everywhere = all(len(of_text) == texts.ids.shape[1] for of_text in wanted)
    with torch.set_grad_enabled(target is not None), record() as recording:
        if opened is not None and target is not None:
            opened.requires_grad_()
        # The embeddings are the leaf: gradients flow back to the maps, and to no parameter.
        embeddings = bert.embeddings.word_embeddings(texts.ids).detach().requires_grad_(target is not None)
        outputs = bert(
            inputs_embeds=embeddings,
            token_type_ids=texts.segments,
            position_ids=bert.embeddings.create_position_ids(texts.ids),
            attention_mask=texts.mask,
            head_mask=opened,
            positions=None if everywhere else torch.from_numpy(pad(wanted)).to(loaded.device),
            output_hidden_states=norms,
        )
    maps = [recording.attention[layer] for layer in range(config.num_hidden_layers)]
    there, slopes, value = [of_layer for of_layer in maps if of_layer.numel()], list[Tensor](), list[Tensor]()
    if target is not None:
        rows = [wanted[0].index(row) for row in target.rows]
        value = [target_values(loaded, target, outputs.last_hidden_state[:, rows])[0]]
        # A layer without heads has no map, and what has no gates has no slope of them.
        slopes = list(torch.autograd.grad(value, there if opened is None else [*there, opened])) if there else []
    lengths = [_value_norms(loaded, outputs.hidden_states)] if norms else []
    parts = iter(to_cpu([*maps, *slopes, *lengths, *value]))
    maps, slopes, lengths, value = ([next(parts) for _ in part] for part in (maps, slopes, lengths, value))
    at = [[of_text.index(row) for row in predicted] for predicted, of_text in asked]
    answers = predict_answers(
        loaded, encodings, outputs.last_hidden_state, [predicted for predicted, _ in asked], at, top_k
    )
    attention = [
        _stack([of_layer[number, :, : len(text), : len(text)] for of_layer in maps], config)
        for number, text in enumerate(encodings)
    ]
    gradient, gate_gradient = None, None
    if target is not None:
        gradient = _stack([slopes.pop(0)[0] if of_layer.numel() else of_layer[0] for of_layer in maps], config)
        # With every gate at 1, the sum of map x gradient is the gradient of the gate, exactly (Michel 2019).
        gate_gradient = np.einsum("lhqk,lhqk->lhq", attention[0], gradient).sum(-1)
        if slopes:
            gate_gradient = np.where(np.isnan(gate_gradient), np.nan, slopes[0].numpy())
    return [
        ModelRun(
            encoding=encoding,
            attention=attention[number],
            head_mask=gates,
            **answer._asdict(),
            target=target,
            target_value=value[0].item() if value else None,
            gradient=gradient,
            gate_gradient=gate_gradient,
            edits=loaded.edits,
            norms=as_array(lengths[0][number, ..., : len(encoding)]) if norms else None,
        )
        for number, (encoding, answer) in enumerate(zip(encodings, answers, strict=True))
    ]


@torch.no_grad()
def _value_norms(loaded: LoadedModel, states: Sequence[Tensor]) -> Tensor:
    """Norms of the value vectors through the output maps, (text, layer, head, key); NaN for heads that were pruned.

    states: what enters each layer.
    """
    layers = encoder_layers(loaded)
    texts, tokens = states[0].shape[:2]
    lengths = states[0].new_full((texts, len(layers), loaded.config.num_attention_heads, tokens), torch.nan)
    for number, (layer, entering) in enumerate(zip(layers, states, strict=False)):
        attention = layer.attention.self
        values = attention.transpose_for_scores(attention.value(entering))
        lengths[:, number, list(attention.heads)] = layer.attention.head_outputs(values).norm(dim=-1)
    return lengths


def _stack(maps: Sequence[Tensor], config: BertConfig) -> np.ndarray:
    """Maps (head, query, key) of every layer, on the CPU, copied into one (layer, head, query, key).

    Those of the heads that a layer does not have are NaN.
    """
    result = np.empty((len(maps), config.num_attention_heads, *maps[0].shape[1:]), np.float32)
    for layer, of_layer in enumerate(maps):
        values, heads = of_layer.numpy(), config.heads_of(layer)
        result[layer] = (
            values if len(heads) == len(result[layer]) else fill_pruned_with_nan(values, heads, len(result[layer]))
        )
    return result
