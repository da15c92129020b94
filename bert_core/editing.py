"""A model and what is to be changed in it while it runs -> a model that shares its weights and runs so."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from bert_core.config import check_head_exists, check_head_number
from bert_core.edits import (
    HEAD_PARTS,
    NEURON,
    ActivationPatch,
    AttentionKnockout,
    Edit,
    ScaledNeuron,
    activation_patches,
    knockouts_in_layer,
    scaled_neurons_in_layer,
)
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer, BertModel
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments

Module = TypeVar("Module", bound=nn.Module)


@validate_arguments
def edited(loaded: LoadedModel, edits: Sequence[Edit]) -> LoadedModel:
    """A model with the weights of another, not a copy of them, in which some things are changed while it runs.

    edits: added to those that the model has already. Without any it is the model itself.
    All that takes a LoadedModel works on it, and records name its edits; the first model stays as it is, so that many
    edited ones, from many threads, can stand on it at a time. Positions are checked against each text that is read.
    Raises Refused for what is no edit, and a layer, head or neuron that does not exist, or not any more.
    """
    given = require_sequence("edits", edits, "Cut, Scaled or Put")
    for edit in given:
        _check(loaded, edit)
    return _with(loaded, (*loaded.edits, *given)) if given else loaded


@validate_arguments
def unedited(loaded: LoadedModel) -> LoadedModel:
    """The model with the same weights in which nothing is changed while it runs; itself, if nothing is."""
    return _with(loaded, ()) if loaded.edits else loaded


def with_neuron_gates(loaded: LoadedModel, gates: Sequence[Tensor]) -> LoadedModel:
    """The model with the same weights in which the activation of each neuron is multiplied by its gate.

    gates: of each layer (batch or 1, 1, intermediate), of the neurons that it still has, in their order.
    """
    new = _with(loaded, loaded.edits)
    for layer, own in zip(cast("list[BertLayer]", list(new.model.bert.encoder.layer)), gates, strict=True):
        layer.intermediate.gates = own
    return new


def _with(loaded: LoadedModel, edits: tuple[Edit, ...]) -> LoadedModel:
    known: dict[int, nn.Module] = {}
    model = _sharing(loaded.model, known)
    tuned = {name: _sharing(one, known) for name, one in loaded.task_models.items()}
    for number, layer in enumerate(cast("list[BertLayer]", list(model.bert.encoder.layer))):
        layer.attention.self.knockouts = knockouts_in_layer(edits, number)
        layer.intermediate.scaled_neurons = scaled_neurons_in_layer(edits, number)
        layer.computes_all_positions, layer.attention.self.pattern_patches = False, ()
        for part in _places(layer).values():
            _take_out(part)
    _take_out(model.bert.embeddings.output_module)
    for one in activation_patches(edits):
        _put_in(model.bert, one)
    return dataclasses.replace(loaded, model=model, edits=edits, task_models=tuned)


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


class ReplaceRowsHook:
    """A hook on a module: rows of what goes in, or comes out, are replaced by those of another pass.

    tokens: of the text. rows, columns: where; None is all columns. values: (row, column).
    """

    def __init__(self, put: ActivationPatch, values: Tensor, columns: slice | None) -> None:
        self.tokens, self.rows, self.values, self.columns = put.tokens, put.rows, values, columns or slice(None)

    def __call__(self, module: nn.Module, given: tuple[Tensor, ...], out: Tensor | None = None) -> Tensor:
        """The output with the rows replaced; as a hook before the module, which has no output yet, its input.

        Raises Refused where only some tokens of the text go through the module.
        """
        taken = given[0] if out is None else out
        if taken.ndim < 3 or taken.shape[-2] < self.tokens:
            raise Refused(
                "a part of another text is put in, and what is asked is computed from some tokens of a layer alone: "
                "take it out"
            )
        made = taken.clone()
        made[:, self.rows, self.columns] = self.values.to(made)
        return made


def _places(layer: BertLayer) -> dict[str, nn.Module]:
    """Where in a layer each kind of part stands: in what a weight gives; of heads and neurons in what it takes."""
    attention, inner = layer.attention.output.dense, layer.attention.self
    return {
        "state": layer.output.LayerNorm, "attention": attention, "feed_forward": layer.output.dense, "head": attention,
        "query": inner.query, "key": inner.key, "value": inner.value, NEURON: layer.output.dense,
    }  # fmt: skip


def _put_in(bert: BertModel, put: ActivationPatch) -> None:
    layers = cast("list[BertLayer]", list(bert.encoder.layer))
    values = torch.tensor(put.values, device=next(bert.parameters()).device)
    if put.component == "state" and not put.layer:
        bert.embeddings.output_module.register_forward_hook(ReplaceRowsHook(put, values, None))
        return
    layer = layers[put.layer - (put.component == "state")]
    layer.computes_all_positions = True
    inner, columns = layer.attention.self, None
    if put.component == "pattern":
        inner.pattern_patches = (*inner.pattern_patches, put)
        return
    if put.component in HEAD_PARTS:
        place, size = inner.heads.index(cast("int", put.head)), inner.attention_head_size
        columns = slice(place * size, (place + 1) * size)
    elif put.component == NEURON:
        place = layer.intermediate.neurons.index(cast("int", put.neuron))
        columns = slice(place, place + 1)
    part, hook = _places(layer)[put.component], ReplaceRowsHook(put, values, columns)
    if put.component in ("head", NEURON):
        part.register_forward_pre_hook(hook)
    else:
        part.register_forward_hook(hook)


def _take_out(part: nn.Module) -> None:
    """Without what was put in there; the hooks of others stay."""
    for hooks in (part._forward_hooks, part._forward_pre_hooks):
        for number in [number for number, hook in hooks.items() if isinstance(hook, ReplaceRowsHook)]:
            del hooks[number]


def _check(loaded: LoadedModel, edit: Edit) -> None:
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if isinstance(edit, ScaledNeuron):
        check_head_number(edit.layer, 0, layers, heads)
        if edit.neuron >= config.intermediate_size:
            raise Refused(
                f"neuron {edit.neuron} does not exist: each layer of this model has neurons 0 to "
                f"{config.intermediate_size - 1}"
            )
        neuron_index(loaded, edit.layer, edit.neuron)
    elif isinstance(edit, ActivationPatch):
        _check_put(loaded, edit)
    elif isinstance(edit, AttentionKnockout):
        for layer in range(layers) if edit.layers is None else edit.layers:
            for head in edit.heads or (0,):
                check_head_number(layer, head, layers, heads)
            for head in edit.heads or ():
                check_head_exists(config, layer, head)
    else:
        raise Refused(f"one of the edits is {short_repr(edit)}: it must be a Cut, a Scaled or a Put")


def neuron_index(loaded: LoadedModel, layer: int, neuron: int) -> int:
    """Where a neuron stands among those that its layer still has. Raises Refused for one that was pruned."""
    there = cast("BertLayer", loaded.model.bert.encoder.layer[layer]).intermediate.neurons
    if neuron not in there:
        raise Refused(
            f"neuron {neuron} of layer {layer} was pruned: this layer still has {len(there):,} of "
            f"{loaded.config.intermediate_size:,}"
        )
    return there.index(neuron)


def _check_put(loaded: LoadedModel, put: ActivationPatch) -> None:
    """Raise Refused unless it fits the model: `make_patch` makes what does."""
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    check_head_number(put.layer if put.component != "state" else max(0, put.layer - 1), put.head or 0, layers, heads)
    width = config.hidden_size
    if put.component in HEAD_PARTS:
        width = put.tokens if put.component == "pattern" else config.attention_head_size
    elif put.component == NEURON:
        width = 1
    if put.values.shape[1] != width:
        raise Refused(
            f"what is put in is {put.values.shape[1]} numbers wide: a {put.component} of this model has {width}"
        )
    if put.component in HEAD_PARTS:
        check_head_exists(config, put.layer, cast("int", put.head))
    if put.component == NEURON:
        neuron = require_int("the neuron", put.neuron, 0, config.intermediate_size - 1)
        neuron_index(loaded, put.layer, neuron)
