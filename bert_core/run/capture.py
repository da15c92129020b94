"""One text through the model, once forward and at most once back, and everything seen on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.config import BertConfig, check_head
from bert_core.loading import LoadedModel
from bert_core.recording import record
from bert_core.records import ClassPrediction, MaskPrediction, ModelRun, Target
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
    Raises ValueError for a target the model has no trained head for, or a position or head that does not exist.
    """
    model, config = loaded.model, loaded.config
    positions, wanted = asked_positions(loaded, encoding, target, positions)
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
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
            classes = _classes(loaded.config, _class_logits(loaded, outputs.pooler_output)[0])

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


def asked_positions(
    loaded: LoadedModel, encoding: Encoding, target: Target | None, positions: Sequence[int] | None
) -> tuple[tuple[int, ...], list[int]]:
    """Where to predict pieces, and where the last layer is read for that, for the target and, at [CLS], the pooler.

    positions: None means every [MASK]; without a trained masked-word head there are none.
    Raises ValueError for a target that the model has no trained head for, or a position that does not exist.
    """
    check_target(loaded, encoding, target)
    positions = encoding.mask_positions if positions is None else tuple(positions)
    for position in positions:
        check_position(encoding, position)
    if not loaded.has_mlm:
        positions = ()
    return positions, sorted({0, *positions, *(() if target is None else target.rows)})


def segments_of(loaded: LoadedModel, encoding: Encoding) -> Tensor | None:
    """(1, seq), or None for a model without segments."""
    if not loaded.config.type_vocab_size:
        return None
    return torch.tensor([encoding.token_type_ids], device=loaded.device)


def gate_tensor(loaded: LoadedModel, head_mask: np.ndarray | None) -> Tensor | None:
    """Checked gates (layer, head) on the model's device, or None where every head is on."""
    gates = check_head_mask(head_mask, loaded.config.num_hidden_layers, loaded.config.num_attention_heads)
    return None if (gates == 1).all() else torch.tensor(gates, device=loaded.device)


def check_position(encoding: Encoding, position: int) -> None:
    """Raise ValueError unless the encoding has a token at this position."""
    if not 0 <= position < len(encoding):
        raise ValueError(f"position {position} does not exist: this text has positions 0 to {len(encoding) - 1}")


def check_target(loaded: LoadedModel, encoding: Encoding, target: Target | None) -> None:
    """Raise ValueError unless this model can compute this target on this text."""
    if target is None:
        return
    if target.kind == "nsp":
        if not loaded.has_nsp:
            raise ValueError(f"{loaded.name} has no trained next-sentence head: choose a masked word as the target")
        if encoding.pair is None:
            raise ValueError("the next-sentence target needs a second sentence")
        return
    if target.kind == "class":
        assert target.label is not None  # Target checks this
        if not loaded.has_classifier:
            raise ValueError(f"{loaded.name} has no trained classifier: choose another target")
        if not 0 <= target.label < len(loaded.labels):
            raise ValueError(f"class {target.label} does not exist: this model has 0 to {len(loaded.labels) - 1}")
        return
    if not loaded.has_mlm:
        raise ValueError(f"{loaded.name} has no trained masked-word head: choose another target")
    for position, _ in target.asked:
        check_position(encoding, position)
    last = loaded.config.vocab_size - 1
    for token in (*(token for _, token in target.asked), target.against):
        if token is not None and not 0 <= token <= last:
            raise ValueError(f"token {token} does not exist: the vocabulary has 0 to {last}")


def head_mask_without(config: BertConfig, heads: Iterable[tuple[int, int]]) -> np.ndarray:
    """Gates (layer, head) as float32: 0 for each of these heads, (layer, head) from zero, and 1 for all others.

    Raises ValueError for a head that the model has not, and had not before pruning.
    """
    gates = np.ones((config.num_hidden_layers, config.num_attention_heads), np.float32)
    for layer, head in heads:
        check_head(layer, head, *gates.shape)
        gates[layer, head] = 0
    return gates


def check_head_mask(head_mask: np.ndarray | None, layers: int, heads: int) -> np.ndarray:
    """Gates (layer, head) as float32; all ones for None.

    Raises ValueError for any other shape, or a number not in 0 to 1.
    """
    if head_mask is None:
        return np.ones((layers, heads), np.float32)
    gates = np.array(head_mask, np.float32)
    if gates.shape != (layers, heads):
        raise ValueError(f"head_mask is {gates.shape}: this model has {layers} layers of {heads} heads")
    if not ((gates >= 0) & (gates <= 1)).all():
        raise ValueError("a gate is below 0 or above 1: 0 switches a head off, 1 leaves it on")
    return gates


def target_values(loaded: LoadedModel, target: Target, rows: Tensor) -> Tensor:
    """The target for some copies of a text, (copies,), with a graph if the rows have one.

    rows: (copies, row, hidden), the last layer at `target.rows`. The masked-word head is computed there alone, and for
    a contrast only for its two words.
    """
    heads = loaded.model.cls
    if target.kind == "class":
        return _class_logits(loaded, _pooled(loaded, rows))[:, target.label]
    if target.kind == "nsp":
        logits = heads.seq_relationship(_pooled(loaded, rows)).float()
        return torch.sub(logits[:, 0], logits[:, 1])
    if target.kind == "contrast":
        words, head = [target.token_id, target.against], heads.predictions
        decoder = head.decoder
        logits = F.linear(head.transform(rows[:, 0]), decoder.weight[words], decoder.bias[words]).float()
        return torch.sub(logits[:, 0], logits[:, 1])
    scores: Tensor = heads.predictions(rows)
    wanted = torch.tensor([token for _, token in target.asked], device=rows.device)
    of_pieces = scores.float().log_softmax(-1).gather(-1, wanted.expand(len(rows), -1)[..., None])[..., 0]
    return of_pieces.mean(-1) if target.kind == "loss" else of_pieces.sum(-1)


def target_probabilities(loaded: LoadedModel, target: Target, rows: Tensor) -> Tensor:
    """The target as a probability, (copies,): of the word; of it and not the other; that B follows A; of the class.

    Of several pieces it is the product of theirs, and of a loss their geometric mean. rows: as for `target_values`.
    Raises ValueError for a classifier whose output is a number.
    """
    if target.kind != "class":
        values = target_values(loaded, target, rows)
        return values.exp() if target.kind in ("mlm", "joint", "loss") else values.sigmoid()
    if _is_number(loaded.config):
        raise ValueError(f"{loaded.name} gives a number and no class, so there is no probability to follow")
    logits = _class_logits(loaded, _pooled(loaded, rows))
    probabilities = logits.softmax(-1) if _is_exclusive(loaded.config) else logits.sigmoid()
    return probabilities[:, target.label]


def _pooled(loaded: LoadedModel, rows: Tensor) -> Tensor:
    """rows: (copies, 1, hidden), [CLS] of the last layer."""
    pooler = loaded.model.bert.pooler
    assert pooler is not None  # a pre-training model has one
    pooled: Tensor = pooler(rows)
    return pooled


def _class_logits(loaded: LoadedModel, pooled: Tensor) -> Tensor:
    """pooled: (copies, hidden). Returns (copies, label)."""
    assert loaded.classifier is not None  # has_classifier was asked
    logits: Tensor = loaded.classifier.classifier(pooled)
    return logits.float()


def _is_exclusive(config: BertConfig) -> bool:
    """Whether a text has one class; published files say so by `problem_type`."""
    return config.problem_type != "multi_label_classification"


def _is_number(config: BertConfig) -> bool:
    """Whether the classifier gives a number; one output alone is one."""
    return config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)


def _classes(config: BertConfig, logits: Tensor) -> ClassPrediction:
    """logits: (label,)."""
    exclusive = _is_exclusive(config)
    probabilities = logits.softmax(-1) if exclusive else logits.sigmoid()
    return ClassPrediction(
        config.labels,
        logits.cpu().numpy().copy(),
        None if _is_number(config) else probabilities.cpu().numpy().copy(),
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


def with_gaps(values: np.ndarray, heads: Sequence[int], count: int) -> np.ndarray:
    """Values of the heads that a layer has (head, ...), each under its first number; NaN for those that were pruned.

    heads: their first numbers. count: how many there were. Returns (count, ...) float32.
    """
    whole = np.full((count, *values.shape[1:]), np.nan, np.float32)
    whole[list(heads)] = values
    return whole


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
