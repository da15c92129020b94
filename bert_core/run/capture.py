"""Attention maps, predictions and gradients of texts, from one forward pass and at most one backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.recording import check_token_range, record
from bert_core.records import ModelRun, Target
from bert_core.refused import Refused, require_int, require_sequence, validate_arguments
from bert_core.run.answers import predict_answers
from bert_core.run.arrays import as_array, fill_pruned_with_nan, to_cpu
from bert_core.run.inputs import check_head_mask, gate_tensor
from bert_core.run.stack import PaddedTexts, encoder_layers, pad
from bert_core.run.targets import prediction_positions, target_rows, target_values
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
    layers: Sequence[int] | None = None,
    token_range: tuple[int, int] | None = None,
) -> ModelRun:
    """Run a text through a model and return its attention maps, predictions and, for a target, gradients.

    target: the value whose gradient with respect to every attention map and head gate is computed; None: no gradients.
    positions: positions at which the MLM head predicts; None: every [MASK].
    head_mask: gates (layer, head) from 0 (off) to 1 (on), which multiply the output of each head; None: all 1.
    top_k: number of most likely tokens in each prediction of the MLM head.
    norms: whether to also compute the norm of each key's value vector through each head's output projection. Value-
        weighted attention (`ModelRun.value_weighted`) needs it. It takes a twentieth more time for the bundled model,
        and a tenth to a fifth more for one of base size.
    layers: numbers of the layers whose maps are kept; None: all. The other layers use fused attention.
    token_range: (start, stop), the positions of the queries and keys whose block of each map is kept; None: all. The
        values are those of the whole maps, which are not computed: memory grows with the length of the text, not with
        its square. All other results are of the whole text.
    Thread-safe: neither the model nor its parameters are changed.
    Raises Refused for a target without a trained head, or for a layer, position, range or gate that does not exist.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> run = bert_core.capture(loaded, encoding)
    >>> run.attention.shape  # (layer, head, query, key)
    (6, 12, 10, 10)
    >>> token_id, probability = run.predictions[0].top[0]
    >>> print(f"{loaded.tokenizer.token_of(token_id)} {probability:.2f}")
    door 0.69
    """
    (run,) = _runs(
        loaded,
        [encoding],
        [target],
        positions,
        head_mask,
        require_int("top_k", top_k),
        norms=norms,
        layers=_check_layers(layers, loaded.config.num_hidden_layers),
        token_range=None if token_range is None else check_token_range(token_range, len(encoding)),
    )
    return run


@validate_arguments
def captures(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    *,
    target: Target | Sequence[Target | None] | None = None,
    head_mask: np.ndarray | None = None,
    top_k: int = 10,
    norms: bool = False,
) -> list[ModelRun]:
    """Run several texts through a model in one padded pass; each result equals that of `capture`, up to rounding.

    encodings: at least one text. Texts of similar lengths are fastest, because shorter ones are padded.
    target: a target of all texts, or one for each text, where None means no gradients; as for `capture`. All gradients
        come from one backward pass.
    head_mask, top_k, norms: as for `capture`, for all texts.
    Raises Refused if there is no text, for another number of targets, and as `capture`.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> texts = ["She opened the [MASK] and walked in.", "The [MASK] rises in the east."]
    >>> encodings = [loaded.tokenizer.encode(text) for text in texts]
    >>> runs = bert_core.captures(loaded, encodings)
    >>> [loaded.tokenizer.token_of(run.predictions[0].top[0][0]) for run in runs]
    ['door', 'sun']
    >>> targets = [bert_core.word_target(loaded.tokenizer, encoding, "sun") for encoding in encodings]
    >>> [run.gradient.shape for run in bert_core.captures(loaded, encodings, target=targets)]
    [(6, 12, 10, 10), (6, 12, 9, 9)]
    """
    encodings = require_sequence("encodings", encodings, "Encodings")
    if not encodings:
        raise Refused("encodings is empty: give at least one text")
    if target is None or isinstance(target, Target):
        targets: tuple[Target | None, ...] = (target,) * len(encodings)
    else:
        targets = require_sequence("target", target, "a Target or None for each text")
    if len(targets) != len(encodings):
        raise Refused(f"target has {len(targets)} items for {len(encodings)} texts: give one Target or None for each")
    return _runs(loaded, encodings, targets, None, head_mask, require_int("top_k", top_k), norms=norms)


def _runs(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    targets: Sequence[Target | None],
    positions: Sequence[int] | None,
    head_mask: np.ndarray | None,
    top_k: int,
    *,
    norms: bool,
    layers: tuple[int, ...] | None = None,
    token_range: tuple[int, int] | None = None,
) -> list[ModelRun]:
    """Run texts in one pass; positions, layers or a range may only be given for a single text.

    targets: the target of each text, or None.
    """
    bert, config = loaded.model.bert, loaded.config
    pairs = [
        prediction_positions(loaded, encoding, target, positions)
        for encoding, target in zip(encodings, targets, strict=True)
    ]
    has_gradients = any(target is not None for target in targets)
    predicted, required = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    gate_values = gate_tensor(loaded, gates)
    if gate_values is None and has_gradients and (layers, token_range) != (None, None):
        gate_values = torch.tensor(gates, device=loaded.device)  # its gradient follows from whole maps of all layers
    if gate_values is not None and has_gradients:  # (layer, text, head), for a gradient of each text
        gate_values = gate_values[:, None].repeat(1, len(encodings), 1)
    texts = PaddedTexts.from_encodings(loaded, encodings)
    all_positions = all(len(rows) == texts.ids.shape[1] for rows in required)
    with torch.set_grad_enabled(has_gradients), record(layers, token_range) as recording:
        if gate_values is not None and has_gradients:
            gate_values.requires_grad_()
        # With the embeddings as the leaf of the graph, gradients reach the attention maps but no parameter.
        embeddings = bert.embeddings.word_embeddings(texts.ids).detach().requires_grad_(has_gradients)
        outputs = bert(
            inputs_embeds=embeddings,
            token_type_ids=texts.segments,
            position_ids=bert.embeddings.create_position_ids(texts.ids),
            attention_mask=texts.mask,
            head_mask=gate_values,
            positions=None if all_positions else torch.from_numpy(pad(required)).to(loaded.device),
            output_hidden_states=norms,
        )
    kept_layers = range(config.num_hidden_layers) if layers is None else layers
    maps = [recording.attention[layer] for layer in kept_layers]
    head_maps, gradients, values = [layer for layer in maps if layer.numel()], list[Tensor](), list[Tensor]()
    with torch.set_grad_enabled(has_gradients):
        for number, (encoding, target) in enumerate(zip(encodings, targets, strict=True)):
            if target is not None:
                rows = [required[number].index(row) for row in target_rows(loaded, encoding, target)]
                states = outputs.last_hidden_state[number : number + 1, rows]
                values.append(target_values(loaded, encoding, target, states)[0])
    if values:
        # Gradients of the sum of all targets: no text contributes to the target of another.
        # Layers without heads have no map, and there is no gradient of gates that are all 1.
        gate_inputs = [] if gate_values is None else [gate_values]
        has_heads = any(config.heads_of(layer) for layer in range(config.num_hidden_layers))
        if has_heads and token_range is None:
            gradients = list(torch.autograd.grad(values, [*head_maps, *gate_inputs]))
        elif has_heads:  # the gradients of the blocks are recorded on the way to the embeddings
            _, *gradients = torch.autograd.grad(values, [embeddings, *gate_inputs])
            recorded = [recording.gradients[layer] for layer in kept_layers if recording.attention[layer].numel()]
            gradients = [*recorded, *gradients]
    lengths = [_value_norms(loaded, outputs.hidden_states)] if norms else []
    parts = iter(to_cpu([*maps, *gradients, *lengths, *values]))
    maps, gradients, lengths, values = ([next(parts) for _ in part] for part in (maps, gradients, lengths, values))
    prediction_rows = [
        [rows.index(position) for position in places] for places, rows in zip(predicted, required, strict=True)
    ]
    answers = predict_answers(loaded, encodings, outputs.last_hidden_state, predicted, prediction_rows, top_k)
    heads = [config.heads_of(layer) for layer in kept_layers]
    attention = [
        _stack([layer[number, :, : len(text), : len(text)] for layer in maps], heads, config.num_attention_heads)
        for number, text in enumerate(encodings)
    ]
    if values:
        map_gradients = [gradients.pop(0) if layer.numel() else layer for layer in maps]
    exists = np.zeros(gates.shape, bool)
    for layer in range(config.num_hidden_layers):
        exists[layer, list(config.heads_of(layer))] = True
    target_fields: list[dict[str, Any]] = []
    for number, target in enumerate(targets):
        if target is None:
            target_fields.append({})
            continue
        tokens = len(encodings[number])
        gradient = _stack(
            [layer[number, :, :tokens, :tokens] for layer in map_gradients], heads, config.num_attention_heads
        )
        if gradients:
            gate_gradient = np.where(exists, gradients[0][:, number].numpy(), np.nan)
        else:
            # With all gates at 1, the gradient of a gate is exactly the sum of map x gradient (Michel 2019).
            gate_gradient = np.einsum("lhqk,lhqk->lhq", attention[number], gradient).sum(-1)
        target_fields.append({
            "target": target, "target_value": values.pop(0).item(), "gradient": gradient,
            "gate_gradient": gate_gradient,
        })  # fmt: skip
    return [
        ModelRun(
            encoding=encoding,
            attention=attention[number],
            head_mask=gates,
            **answer._asdict(),
            **target_fields[number],
            edits=loaded.edits,
            norms=_kept_norms(lengths[0][number, ..., : len(encoding)], kept_layers, token_range) if norms else None,
            layers=layers,
            token_range=token_range,
            windows=tuple(config.windows[layer] for layer in kept_layers) if config.windows else (),
        )
        for number, (encoding, answer) in enumerate(zip(encodings, answers, strict=True))
    ]


@torch.no_grad()
def _value_norms(loaded: LoadedModel, states: Sequence[Tensor]) -> Tensor:
    """Compute the norms of value vectors through the output projection, (text, layer, head, key); NaN if pruned.

    states: the input of each layer, (text, seq, hidden).
    """
    layers = encoder_layers(loaded)
    texts, tokens = states[0].shape[:2]
    lengths = states[0].new_full((texts, len(layers), loaded.config.num_attention_heads, tokens), torch.nan)
    for number, (layer, layer_input) in enumerate(zip(layers, states, strict=False)):
        attention = layer.attention.self
        values = attention.transpose_for_scores(attention.value(layer.attention_input(layer_input)))
        lengths[:, number, list(attention.heads)] = layer.attention.head_outputs(values).norm(dim=-1)
    return lengths


def _kept_norms(norms: Tensor, layers: Sequence[int], token_range: tuple[int, int] | None) -> np.ndarray:
    """Return the norms (layer, head, key) of the layers and keys whose maps are kept."""
    return as_array(norms[list(layers)][..., slice(*(token_range or (None,)))])


def _stack(maps: Sequence[Tensor], heads: Sequence[Sequence[int]], head_count: int) -> np.ndarray:
    """Copy the maps (head, query, key) of layers to one array (layer, head, query, key), with NaN if pruned.

    heads: the heads that each layer has. head_count: their number before pruning.
    """
    result = np.empty((len(maps), head_count, *maps[0].shape[1:]), np.float32)
    for layer, (layer_maps, layer_heads) in enumerate(zip(maps, heads, strict=True)):
        values = layer_maps.float().numpy()  # NumPy has no bfloat16
        is_whole = len(layer_heads) == head_count
        result[layer] = values if is_whole else fill_pruned_with_nan(values, layer_heads, head_count)
    return result


def _check_layers(layers: Sequence[int] | None, layer_count: int) -> tuple[int, ...] | None:
    """Return the numbers of the kept layers in order. Raises Refused for one that does not exist, or without any."""
    if layers is None:
        return None
    numbers = {require_int("a layer", layer, 0) for layer in require_sequence("layers", layers, "their numbers")}
    if not numbers:
        raise Refused("layers is empty: give at least one layer, or None for all")
    if max(numbers) >= layer_count:
        raise Refused(f"layer {max(numbers)} does not exist: this model has layers 0 to {layer_count - 1}")
    return tuple(sorted(numbers))
