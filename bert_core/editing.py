"""A model and what is to be changed in it while it runs -> a model that shares its weights and runs so."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import TypeVar, cast

from torch import nn

from bert_core.config import check_head
from bert_core.edits import Cut, Edit, Scaled, cuts_in, scaled_in
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.refused import Refused, checked, several, shown

Module = TypeVar("Module", bound=nn.Module)


@checked
def edited(loaded: LoadedModel, edits: Sequence[Edit]) -> LoadedModel:
    """A model with the weights of another, not a copy of them, in which some things are changed while it runs.

    edits: added to those that the model has already. Without any it is the model itself.
    All that takes a LoadedModel works on it, and records name its edits; the first model stays as it is, so that many
    edited ones, from many threads, can stand on it at a time. Positions are checked against each text that is read.
    Raises Refused for what is no edit, and a layer, head or neuron that does not exist, or not any more.
    """
    given = several("edits", edits, "Cut or Scaled")
    for edit in given:
        _check(loaded, edit)
    return _with(loaded, (*loaded.edits, *given)) if given else loaded


@checked
def unedited(loaded: LoadedModel) -> LoadedModel:
    """The model with the same weights in which nothing is changed while it runs; itself, if nothing is."""
    return _with(loaded, ()) if loaded.edits else loaded


def _with(loaded: LoadedModel, edits: tuple[Edit, ...]) -> LoadedModel:
    known: dict[int, nn.Module] = {}
    model = _sharing(loaded.model, known)
    classifier = None if loaded.classifier is None else _sharing(loaded.classifier, known)
    for number, layer in enumerate(cast("list[BertLayer]", list(model.bert.encoder.layer))):
        layer.attention.self.cuts = cuts_in(edits, number)
        layer.intermediate.scaled = scaled_in(edits, number)
    return dataclasses.replace(loaded, model=model, classifier=classifier, edits=edits)


def _sharing(module: Module, known: dict[int, nn.Module]) -> Module:
    """A module of the same parameters, whose parts are such modules too.

    known: those that were made already, by the id of what they were made of. By hand: a deep copy that is told
    what to share takes several times as long.
    """
    if id(module) not in known:
        twin = known[id(module)] = copy.copy(module)
        for name, value in vars(twin).items():
            if isinstance(value, dict | set):
                vars(twin)[name] = value.copy()
        for name, part in module.named_children():
            twin._modules[name] = _sharing(part, known)
    return cast("Module", known[id(module)])


def _check(loaded: LoadedModel, edit: Edit) -> None:
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if isinstance(edit, Scaled):
        check_head(edit.layer, 0, layers, heads)
        if edit.neuron >= config.intermediate_size:
            raise Refused(
                f"neuron {edit.neuron} does not exist: each layer of this model has neurons 0 to "
                f"{config.intermediate_size - 1}"
            )
    elif isinstance(edit, Cut):
        for layer in range(layers) if edit.layers is None else edit.layers:
            for head in edit.heads or (0,):
                check_head(layer, head, layers, heads)
            there = loaded.model.attention_modules[layer].heads
            if gone := sorted(set(edit.heads or ()) - set(there)):
                left = ", ".join(map(str, there)) or "none"
                raise Refused(f"L{layer} H{gone[0]} was pruned: this layer still has the heads {left}")
    else:
        raise Refused(f"one of the edits is {shown(edit)}: it must be a Cut or a Scaled")
