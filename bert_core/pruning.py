"""A model and what it is to lose: heads, neurons, layers -> a new, smaller one; and back to shapes that others know."""

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
Part = tuple[int, ...]  # a head, a neuron, or a layer alone
PRUNABLE_PARTS = ("heads", "neurons", "layers")
Model = TypeVar("Model", bound=BertPreTrainedModel | LoadedModel)


def pruned(
    model: Model, heads: Iterable[Head] = (), *, neurons: Iterable[Neuron] = (), layers: Iterable[int] = ()
) -> Model:
    """A new model without some heads, neurons or layers: smaller matrices, and the outputs of the old one without them.

    model: a model of ours, or a LoadedModel; it stays as it is.
    heads: (layer, head); neurons: (layer, neuron) of the feed-forward networks; by their first numbers, which the
        others keep, in head masks and records too. A layer may lose all of them: what is left adds its biases.
    layers: those that go as a whole, biases and norms too. Each keeps its number and passes on what it is given.
    What is named twice or gone already counts once.
    Raises Refused for what never was, an edited model, and a layer with cross-attention.
    Source: Michel 2019, section 3 (arXiv:1905.10650), of heads.
    """
    of_heads, of_neurons = _by_layer(head_pairs(heads)), _by_layer(head_pairs(neurons, "neuron"))
    of_layers = {require_int("a layer", layer, None) for layer in require_sequence("layers", layers, "whole numbers")}
    new = _copied(model)
    for one in _models(new):
        one.prune_heads(of_heads)
        one.prune_neurons(of_neurons)
        one.prune_layers(of_layers)
    return new


def prune_parts(model: Model, part_kind: str, parts: Iterable[Part]) -> Model:
    """As `pruned`, of one kind of part by its name, one of `PARTS`.

    parts: (layer, head), (layer, neuron), or (layer,). Raises Refused for another name.
    """
    if not isinstance(part_kind, str) or part_kind not in PRUNABLE_PARTS:
        raise Refused(f"what {short_repr(part_kind)} is unknown: one of {', '.join(PRUNABLE_PARTS)}")
    if part_kind == "layers":
        return pruned(model, layers=[layer for (layer,) in parts])
    given = cast("Iterable[tuple[int, int]]", parts)
    return pruned(model, neurons=given) if part_kind == "neurons" else pruned(model, given)


def zero_filled(model: Model) -> Model:
    """A new model in which every pruned head and neuron stands again, with zeros for weights: the same outputs.

    For programs that know nothing of what was pruned, such as transformers 5. All layers have their first shapes, and
    are as slow as before; those that were taken out are not among them, and what stood above moves down: behind a norm
    no weights pass on what they are given.
    Raises Refused if all layers were taken out.
    """
    new = _copied(model)
    models = _models(new)
    encoder = models[0].base_model.encoder
    kept = [layer for layer in cast("list[BertLayer]", list(encoder.layer)) if not layer.removed]
    if not kept:
        raise Refused("all layers were taken out: a BERT of other programs has at least one, so prune fewer")
    for number, layer in enumerate(kept):
        layer.layer_num = layer.attention.self.layer_num = number
        _fill(layer)
    encoder.layer = nn.ModuleList(kept)
    for one in models:
        one._change_config(num_hidden_layers=len(kept))  # the configuration follows the layers
    return new


def _by_layer(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for layer, number in pairs:
        found.setdefault(layer, []).append(number)
    return found


def _copied(model: Model) -> Model:
    if isinstance(model, BertPreTrainedModel):
        return copy.deepcopy(model)
    if not isinstance(model, LoadedModel):
        raise Refused(f"the model is {short_repr(model)}: it must be a LoadedModel, or a BertPreTrainedModel")
    check_unedited(model.edits, "pruning")
    # Together, so that all stand on one encoder again.
    encoder, tuned = copy.deepcopy((model.model, dict(model.task_models)))
    return dataclasses.replace(model, model=encoder, task_models=tuned)


def _models(model: BertPreTrainedModel | LoadedModel) -> list[BertPreTrainedModel]:
    if isinstance(model, BertPreTrainedModel):
        return [model]
    return [model.model, *model.task_models.values()]


def _fill(layer: BertLayer) -> None:
    """Give a layer its pruned heads and neurons back, in place, as zeros."""
    attention, config = layer.attention, layer.config
    neurons = torch.tensor(layer.intermediate.neurons, dtype=torch.long)
    layer.intermediate.dense = _spread(layer.intermediate.dense, neurons, config.intermediate_size, dim=0)
    layer.output.dense = _spread(layer.output.dense, neurons, config.intermediate_size, dim=1)
    layer.intermediate.neurons = range(config.intermediate_size)
    inner, size = attention.self, attention.self.attention_head_size
    count = inner.config.num_attention_heads
    places = (torch.tensor(inner.heads, dtype=torch.long)[:, None] * size + torch.arange(size)).flatten()
    for name in ("query", "key", "value"):
        setattr(inner, name, _spread(getattr(inner, name), places, count * size, dim=0))
    attention.output.dense = _spread(attention.output.dense, places, count * size, dim=1)
    inner.heads = tuple(range(count))
    inner.num_attention_heads, inner.all_head_size = count, count * size
    attention.pruned_heads = set()


def _spread(layer: nn.Linear, places: Tensor, length: int, dim: int) -> nn.Linear:
    """A linear layer with its rows (dim 0, with their biases) or columns (dim 1) at these places among zeros."""
    places, weight, bias = places.to(layer.weight.device), layer.weight.detach(), layer.bias.detach()
    outputs, inputs = weight.shape
    whole = weight.new_zeros((length, inputs) if dim == 0 else (outputs, length))
    whole.index_copy_(dim, places, weight)
    if dim == 0:
        bias = bias.new_zeros(length).index_copy_(0, places, bias)
    larger = nn.Linear(1, 1)  # of any size: its weights are put in place
    larger.weight = nn.Parameter(whole, layer.weight.requires_grad)
    larger.bias = nn.Parameter(bias.clone(), layer.bias.requires_grad)
    larger.out_features, larger.in_features = whole.shape
    return larger.train(layer.training)
