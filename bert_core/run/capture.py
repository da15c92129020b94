"""One text through the model, once forward and at most once back, and everything seen on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.loading import LoadedModel
from bert_core.recording import record
from bert_core.records import ClassPrediction, MaskPrediction, ModelRun, Target
from bert_core.run.arrays import with_gaps
from bert_core.run.inputs import check_head_mask, gate_tensor, ids_of, segments_of
from bert_core.run.targets import asked_positions, class_logits, is_exclusive, is_number, target_values
from bert_core.tokenizer import Encoding


def capture(
    loaded: LoadedModel,
    encoding: Encoding,
    *,
    target: Target | None = None,
    positions: Sequence[int] | None = None,
    head_mask: np.ndarray | None = None,
    top_k: int = 10,
) -> ModelRun:
    """Attention maps, predictions and, for a target, the gradient of every map.

    positions: where to predict pieces; None means at every [MASK].
    head_mask: (layer, head), 1 on and 0 off, or any gate between; None leaves all on.
    Safe to call from many threads on one model: nothing is written to the model or its parameters.
    Raises Refused for a target the model has no trained head for, or a position or head that does not exist.
    """
    model, config = loaded.model, loaded.config
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
            head_mask=opened,
            positions=None if len(wanted) == len(encoding) else torch.tensor([wanted], device=loaded.device),
        )
    there = [config.heads_of(layer) for layer in range(config.num_hidden_layers)]
    maps = [recording.attention[layer] for layer in range(config.num_hidden_layers)]
    attention, gradient, gate_gradient, target_value = _stack(maps, there, config), None, None, None

    if target is not None:
        rows = [wanted.index(row) for row in target.rows]
        value = target_values(loaded, target, outputs.last_hidden_state[:, rows])[0]
        target_value = value.item()
        # A layer without heads has no map, and what has no gates has no slope of them.
        asked = [one for one in maps if one.numel()]
        slopes = list(torch.autograd.grad(value, asked if opened is None else [*asked, opened])) if asked else []
        gradient = _stack([slopes.pop(0) if one.numel() else one for one in maps], there, config)
        # With every gate at 1, the sum of map x gradient is the gradient of the gate, exactly (Michel 2019).
        gate_gradient = np.einsum("lhqk,lhqk->lhq", attention, gradient).sum(-1)
        if slopes:
            gate_gradient = np.where(np.isnan(gate_gradient), np.nan, slopes[0].cpu().numpy())
    probabilities, nsp, classes = None, None, None
    with torch.no_grad():  # what is only read needs no way back
        if positions:
            asked = outputs.last_hidden_state[0, [wanted.index(position) for position in positions]]
            probabilities = model.cls.predictions(asked).float().softmax(-1)
        if loaded.has_nsp and encoding.pair is not None:
            nsp = model.cls.seq_relationship(outputs.pooler_output)[0].float().softmax(-1)[0].item()
        if loaded.has_classifier:
            classes = _classes(loaded.config, class_logits(loaded, outputs.pooler_output)[0])

    return ModelRun(
        encoding=encoding,
        attention=attention,
        head_mask=gates,
        predictions=_predictions(positions, probabilities, top_k),
        nsp=nsp,
        target=target,
        target_value=target_value,
        gradient=gradient,
        gate_gradient=gate_gradient,
        classes=classes,
    )


def _classes(config: BertConfig, logits: Tensor) -> ClassPrediction:
    """logits: (label,)."""
    exclusive = is_exclusive(config)
    probabilities = logits.softmax(-1) if exclusive else logits.sigmoid()
    return ClassPrediction(
        config.labels,
        logits.cpu().numpy().copy(),
        None if is_number(config) else probabilities.cpu().numpy().copy(),
        exclusive,
    )


def _stack(maps: Sequence[Tensor], there: Sequence[Sequence[int]], config: BertConfig) -> np.ndarray:
    """Maps (1, head, query, key) of every layer, copied into one (layer, head, query, key).

    there: the heads that each layer has; the others are NaN.
    """
    result = np.empty((len(maps), config.num_attention_heads, *maps[0].shape[2:]), np.float32)
    for layer, (one, heads) in enumerate(zip(maps, there, strict=True)):
        values = one[0].detach().cpu().numpy()
        result[layer] = values if len(heads) == len(result[layer]) else with_gaps(values, heads, len(result[layer]))
    return result


def _predictions(positions: Sequence[int], probabilities: Tensor | None, top_k: int) -> tuple[MaskPrediction, ...]:
    """probabilities: (position, vocab)."""
    if probabilities is None:
        return ()
    top = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
    return tuple(
        MaskPrediction(
            position,
            tuple(zip(top.indices[row].tolist(), top.values[row].tolist(), strict=True)),
            probabilities[row].cpu().numpy().copy(),
        )
        for row, position in enumerate(positions)
    )
