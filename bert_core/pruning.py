"""A model and the heads that it is to lose -> a new, smaller model; and back to the shapes that others expect."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from bert_core.attention import BertAttention
from bert_core.config import head_pairs
from bert_core.edits import check_unedited
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer, BertPreTrainedModel
from bert_core.refused import Refused, shown

Head = tuple[int, int]
Model = TypeVar("Model", bound=BertPreTrainedModel | LoadedModel)


def pruned(model: Model, heads: Iterable[Head]) -> Model:
    """A new model without some heads: smaller matrices, and the outputs of the old one with these heads switched off.

    model: a model of ours, or a LoadedModel; it stays as it is.
    heads: (layer, head) by their first numbers, which the others keep, in head masks and records too. One that is
        named twice or gone already counts once. A layer may lose all of them: attention is then skipped there.
    Raises Refused for a head that never was, and for an edited model.
    Source: Michel 2019, section 3 (arXiv:1905.10650).
    """
    of_layers: dict[int, list[int]] = {}
    for layer, head in head_pairs(heads):
        of_layers.setdefault(layer, []).append(head)
    new = _copied(model)
    for one in _models(new):
        one.prune_heads(of_layers)
    return new


def zero_filled(model: Model) -> Model:
    """A new model in which every pruned head stands again, with zeros for weights: the same outputs, the first shapes.

    For programs that know nothing of pruned heads, such as transformers 5. It is as large and slow as before pruning.
    """
    new = _copied(model)
    models = _models(new)
    for layer in cast("list[BertLayer]", list(models[0].base_model.encoder.layer)):
        _fill(layer.attention)
    for one in models:
        one.prune_heads({})  # the configuration follows the layers
    return new


def _copied(model: Model) -> Model:
    if isinstance(model, BertPreTrainedModel):
        return copy.deepcopy(model)
    if not isinstance(model, LoadedModel):
        raise Refused(f"the model is {shown(model)}: it must be a LoadedModel, or a BertPreTrainedModel")
    check_unedited(model.edits, "pruning")
    # Together, so that both stand on one encoder again.
    both = copy.deepcopy((model.model, model.classifier))
    return dataclasses.replace(model, model=both[0], classifier=both[1])


def _models(model: BertPreTrainedModel | LoadedModel) -> list[BertPreTrainedModel]:
    if isinstance(model, BertPreTrainedModel):
        return [model]
    return [model.model, *([] if model.classifier is None else [model.classifier])]


def _fill(attention: BertAttention) -> None:
    """Give an attention module its pruned heads back, in place, as zeros."""
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
