"""Pruning of heads, neurons and layers into a smaller model, and models with zeros in place of pruned parts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from bert_core.config import head_pairs
from bert_core.edits import check_unedited
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer, BertPreTrainedModel
from bert_core.refused import Refused, require_int, require_sequence, short_repr

Head = tuple[int, int]
Neuron = tuple[int, int]
Part = tuple[int, ...]  # (layer, head), (layer, neuron) or (layer,)
PRUNABLE_PARTS = ("heads", "neurons", "layers")
Model = TypeVar("Model", bound=BertPreTrainedModel | LoadedModel)


def pruned(
    model: Model, heads: Iterable[Head] = (), *, neurons: Iterable[Neuron] = (), layers: Iterable[int] = ()
) -> Model:
    """Return a smaller model without some heads, neurons or layers.

    Its outputs are those of the given model with these parts switched off. Parts that are given twice or that are
    pruned already count once.
    model: a BertPreTrainedModel or a LoadedModel, which is not modified.
    heads: (layer, head). neurons: (layer, neuron) of the feed-forward networks. Both are original indices, which the
        other parts keep, also in head masks and records. A layer without heads or neurons still adds its biases.
    layers: layers that are removed as a whole, with their biases and norms. The others keep their indices, and a
        removed layer returns its input.
    Raises Refused for a part that never existed, an edited model, and a layer with cross-attention.
    Source: of heads, Michel 2019 (arXiv:1905.10650), section 3.

    >>> import numpy as np
    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> pruned_model = bert_core.pruned(loaded, [(0, 3)], layers=[5])
    >>> pruned_model.nbytes < loaded.nbytes
    True
    >>> run = bert_core.capture(pruned_model, pruned_model.tokenizer.encode("She opened the [MASK]."))
    >>> bool(np.isnan(run.attention[0, 3]).all())
    True
    """
    heads_by_layer, neurons_by_layer = (
        _group_by_layer(head_pairs(heads)),
        _group_by_layer(head_pairs(neurons, "neuron")),
    )
    layer_numbers = {
        require_int("a layer", layer, None) for layer in require_sequence("layers", layers, "whole numbers")
    }
    smaller = _copy_model(model)
    for bert in _models(smaller):
        bert.prune_heads(heads_by_layer)
        bert.prune_neurons(neurons_by_layer)
        bert.prune_layers(layer_numbers)
    return smaller


def prune_parts(model: Model, part_kind: str, parts: Iterable[Part]) -> Model:
    """Return a smaller model without some parts of one kind, as `pruned` does.

    part_kind: one of `PRUNABLE_PARTS`. parts: (layer, head), (layer, neuron) or (layer,), according to the kind.
    Raises Refused for another kind, and as `pruned` does.
    """
    if not isinstance(part_kind, str) or part_kind not in PRUNABLE_PARTS:
        allowed = ", ".join(PRUNABLE_PARTS)
        raise Refused(f"part_kind {short_repr(part_kind)} is unknown: it must be one of {allowed}")
    if part_kind == "layers":
        return pruned(model, layers=[layer for (layer,) in parts])
    pairs = cast("Iterable[tuple[int, int]]", parts)
    return pruned(model, neurons=pairs) if part_kind == "neurons" else pruned(model, pairs)


def zero_filled(model: Model) -> Model:
    """Return a model with the same outputs that has zero weights in place of its pruned heads and neurons.

    It is meant for programs without support for pruned parts, such as transformers 5. All its layers have their
    original shapes and speed. Removed layers of a pre-norm model have zero weights too. Those of a post-norm model are
    left out and the later ones renumbered, since no weights of a layer make it return its input there.
    model: a BertPreTrainedModel or a LoadedModel, which is not modified.
    Raises Refused if all layers are removed, and for an edited model.
    """
    filled = _copy_model(model)
    models = _models(filled)
    encoder = models[0].base_model.encoder
    layers = cast("list[BertLayer]", list(encoder.layer))
    if models[0].config.layer_design.pre_norm:
        for layer in layers:
            layer.restore()
    layers = [layer for layer in layers if not layer.removed]
    if not layers:
        raise Refused("all layers are removed, and other programs need at least one layer: prune fewer layers")
    for number, layer in enumerate(layers):
        layer.layer_num = layer.attention.self.layer_num = number
        _fill_with_zeros(layer)
    encoder.layer = nn.ModuleList(layers)
    for bert in models:
        bert._change_config(num_hidden_layers=len(layers))  # also updates the pruned parts, from the layers
    return filled


def _group_by_layer(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Group (layer, number) pairs by layer."""
    groups: dict[int, list[int]] = {}
    for layer, number in pairs:
        groups.setdefault(layer, []).append(number)
    return groups


def _copy_model(model: Model) -> Model:
    """Return a deep copy of a model; raise Refused if it is no model or is edited."""
    if isinstance(model, BertPreTrainedModel):
        return copy.deepcopy(model)
    if not isinstance(model, LoadedModel):
        raise Refused(f"the model is {short_repr(model)}: it must be a LoadedModel, or a BertPreTrainedModel")
    check_unedited(model.edits, "pruning")
    # In one call of deepcopy, so that the copies share one encoder again.
    bert, task_models = copy.deepcopy((model.model, dict(model.task_models)))
    return dataclasses.replace(model, model=bert, task_models=task_models, shares_weights=False)


def _models(model: BertPreTrainedModel | LoadedModel) -> list[BertPreTrainedModel]:
    """Return the modules with a configuration of their own: the model, and the task models of a LoadedModel."""
    if isinstance(model, BertPreTrainedModel):
        return [model]
    return [model.model, *model.task_models.values()]


def _fill_with_zeros(layer: BertLayer) -> None:
    """Restore the pruned heads and neurons of a layer, in place, with zero weights."""
    attention, config = layer.attention, layer.config
    neurons = torch.tensor(layer.intermediate.neurons, dtype=torch.long)
    for name in layer.intermediate.linears:
        linear = getattr(layer.intermediate, name)
        setattr(layer.intermediate, name, _expand_linear(linear, neurons, config.intermediate_size, dim=0))
    layer.output.dense = _expand_linear(layer.output.dense, neurons, config.intermediate_size, dim=1)
    layer.intermediate.neurons = range(config.intermediate_size)
    self_attention, size = attention.self, attention.self.attention_head_size
    count = self_attention.config.num_attention_heads
    indices = (torch.tensor(self_attention.heads, dtype=torch.long)[:, None] * size + torch.arange(size)).flatten()
    for name in self_attention.head_linears:
        setattr(self_attention, name, _expand_linear(getattr(self_attention, name), indices, count * size, dim=0))
    attention.output.dense = _expand_linear(attention.output.dense, indices, count * size, dim=1)
    self_attention.heads = tuple(range(count))
    self_attention.num_attention_heads, self_attention.all_head_size = count, count * size
    attention.pruned_heads = set()


def _expand_linear(layer: nn.Linear, indices: Tensor, length: int, dim: int) -> nn.Linear:
    """Return a larger linear layer with zeros between the outputs (dim 0) or inputs (dim 1) of another.

    indices: (entry,), the new index of each row (dim 0, with its bias) or column (dim 1). length: the new size.
    """
    indices, weight = indices.to(layer.weight.device), layer.weight.detach()
    outputs, inputs = weight.shape
    expanded = weight.new_zeros((length, inputs) if dim == 0 else (outputs, length))
    expanded.index_copy_(dim, indices, weight)
    larger = nn.Linear(1, 1, bias=layer.bias is not None)  # its weights are replaced
    larger.weight = nn.Parameter(expanded, layer.weight.requires_grad)
    if layer.bias is not None:
        bias = layer.bias.detach()
        bias = bias.new_zeros(length).index_copy_(0, indices, bias) if dim == 0 else bias.clone()
        larger.bias = nn.Parameter(bias, layer.bias.requires_grad)
    larger.out_features, larger.in_features = expanded.shape
    return larger.train(layer.training)
