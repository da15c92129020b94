"""Models with edits: they share the weights of a loaded model and change its activations in every forward pass."""

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
    AddedVector,
    AttentionKnockout,
    Edit,
    ScaledNeuron,
    knockouts_in_layer,
    scaled_neurons_in_layer,
)
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer, BertModel
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments

Module = TypeVar("Module", bound=nn.Module)


@validate_arguments
def edited(loaded: LoadedModel, edits: Sequence[Edit]) -> LoadedModel:
    """Return a model that shares the weights of another and applies edits in every forward pass.

    Every function that takes a LoadedModel accepts it, and records name its edits. The given model is not modified, so
    several edited models can share it, also in several threads.
    loaded: the model. edits: added to the edits that it already has. Without any, the model itself is returned.
    Raises Refused if an item is not an edit, and for a layer, head or neuron that does not exist or was pruned.
    Raises Refused for a vector of another width.
    Positions of tokens are checked later, against each text.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> edited_model = bert_core.edited(loaded, [bert_core.AttentionKnockout(keys=(0,), layers=(2,))])
    >>> run = bert_core.capture(edited_model, loaded.tokenizer.encode("She opened the [MASK] and walked in."))
    >>> bool((run.attention[2, :, :, 0] == 0).all())
    True
    >>> bert_core.unedited(edited_model).edits
    ()
    """
    new_edits = require_sequence("edits", edits, "AttentionKnockout, ScaledNeuron, ActivationPatch or AddedVector")
    for edit in new_edits:
        _check_edit(loaded, edit)
    return _apply_edits(loaded, (*loaded.edits, *new_edits)) if new_edits else loaded


@validate_arguments
def unedited(loaded: LoadedModel) -> LoadedModel:
    """Return the model with the same weights and no edits; a model without edits is returned itself."""
    return _apply_edits(loaded, ()) if loaded.edits else loaded


def with_neuron_gates(loaded: LoadedModel, gates: Sequence[Tensor]) -> LoadedModel:
    """Return a model with the same weights that multiplies the activation of each neuron by its gate.

    gates: for each layer (batch or 1, 1, intermediate), in the order of the neurons that the layer still has.
    """
    gated = _apply_edits(loaded, loaded.edits)
    layers = cast("list[BertLayer]", list(gated.model.bert.encoder.layer))
    for layer, layer_gates in zip(layers, gates, strict=True):
        layer.intermediate.gates = layer_gates
    return gated


def _apply_edits(loaded: LoadedModel, edits: tuple[Edit, ...]) -> LoadedModel:
    """Return a model that shares the weights of another and has exactly these edits."""
    twins: dict[int, nn.Module] = {}
    model = _share_parameters(loaded.model, twins)
    task_models = {name: _share_parameters(task_model, twins) for name, task_model in loaded.task_models.items()}
    for number, layer in enumerate(cast("list[BertLayer]", list(model.bert.encoder.layer))):
        layer.attention.self.knockouts = knockouts_in_layer(edits, number)
        layer.intermediate.scaled_neurons = scaled_neurons_in_layer(edits, number)
        layer.computes_all_positions, layer.attention.self.pattern_patches = False, ()
        for module in _component_modules(layer).values():
            _remove_edit_hooks(module)
    _remove_edit_hooks(model.bert.embeddings.output_module)
    for edit in edits:  # in their order, since patches and added vectors of one module apply one after another
        if isinstance(edit, ActivationPatch):
            _register_patch(model.bert, edit)
        elif isinstance(edit, AddedVector):
            _register_vector(model.bert, edit)
    return dataclasses.replace(loaded, model=model, edits=edits, task_models=task_models)


def _share_parameters(module: Module, twins: dict[int, nn.Module]) -> Module:
    """Return a copy of a module tree that shares all parameters with it.

    twins: the copies made so far, by the id of the original module. `copy.deepcopy` with a memo of the parameters would
    do the same, and takes several times as long.
    """
    if id(module) not in twins:
        twin = twins[id(module)] = copy.copy(module)
        for name, value in vars(twin).items():
            if isinstance(value, dict | set):
                vars(twin)[name] = value.copy()
        for name, child in module.named_children():
            twin._modules[name] = _share_parameters(child, twins)
    return cast("Module", twins[id(module)])


class ReplaceRowsHook:
    """A hook on a module that replaces rows of its input or output with activations of another forward pass.

    tokens: length of the text. rows, columns: the entries that are replaced; None as columns replaces whole rows.
    values: (row, column), the activations of the other pass.
    """

    def __init__(self, patch: ActivationPatch, values: Tensor, columns: slice | None) -> None:
        self.tokens, self.rows, self.values, self.columns = patch.tokens, patch.rows, values, columns or slice(None)

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | None = None) -> Tensor:
        """Return the output with the rows replaced, or the input where the hook runs before the module.

        inputs: the arguments of the module, the first of them (..., token, column). output: its result of the same
            form; None in a hook that runs before the module.
        Raises Refused if only some tokens of the text pass through the module.
        """
        activations = inputs[0] if output is None else output
        if activations.ndim < 3 or activations.shape[-2] < self.tokens:
            raise Refused(
                "an activation patch needs every token of the text, and this result is computed from only some of "
                "them: remove the patch"
            )
        patched = activations.clone()
        patched[:, self.rows, self.columns] = self.values.to(patched)
        return patched


class AddVectorHook:
    """A hook on the module that returns the hidden states of a depth, which adds a vector to them.

    vector: (hidden,), times its factor. positions: the tokens to which it is added; None for all.
    """

    def __init__(self, vector: Tensor, positions: tuple[int, ...] | None) -> None:
        self.vector, self.positions = vector, positions

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Return the states (..., token, hidden) with the vector added.

        Raises Refused if the vector belongs to certain tokens, and only some tokens pass through the module.
        """
        vector = self.vector.to(output)
        if self.positions is None:
            return output + vector
        if output.ndim < 3 or output.shape[-2] <= self.positions[-1]:
            raise Refused(
                "a vector is added at certain tokens, and this result is computed from only some of the tokens: "
                "remove the AddedVector"
            )
        steered = output.clone()
        steered[:, list(self.positions)] += vector
        return steered


def _component_modules(layer: BertLayer) -> dict[str, nn.Module]:
    """Return the module of a layer that each component belongs to.

    Heads and neurons are columns of the input of their module, and all other components are its output.
    """
    attention, inner = layer.attention.output.dense, layer.attention.self
    return {
        "state": layer.output.LayerNorm, "attention": attention, "feed_forward": layer.output.dense, "head": attention,
        "query": inner.query, "key": inner.key, "value": inner.value, NEURON: layer.output.dense,
    }  # fmt: skip


def _register_patch(bert: BertModel, patch: ActivationPatch) -> None:
    """Add an activation patch to a model, in place, as a hook or as a pattern of its attention."""
    layers = cast("list[BertLayer]", list(bert.encoder.layer))
    values = torch.tensor(patch.values, device=next(bert.parameters()).device)
    if patch.component == "state":
        _register_on_states(bert, patch.layer, ReplaceRowsHook(patch, values, None), needs_all_positions=True)
        return
    layer = layers[patch.layer]
    layer.computes_all_positions = True
    attention, columns = layer.attention.self, None
    if patch.component == "pattern":
        attention.pattern_patches = (*attention.pattern_patches, patch)
        return
    if patch.component in HEAD_PARTS:
        index, size = attention.heads.index(cast("int", patch.head)), attention.attention_head_size
        columns = slice(index * size, (index + 1) * size)
    elif patch.component == NEURON:
        index = layer.intermediate.neurons.index(cast("int", patch.neuron))
        columns = slice(index, index + 1)
    module, hook = _component_modules(layer)[patch.component], ReplaceRowsHook(patch, values, columns)
    if patch.component in ("head", NEURON):
        module.register_forward_pre_hook(hook)
    else:
        module.register_forward_hook(hook)


def _register_vector(bert: BertModel, edit: AddedVector) -> None:
    """Add a vector to the states of a depth, in place; a factor of 0 adds no hook, so that nothing changes."""
    if edit.factor:
        vector = torch.tensor(edit.vector, device=next(bert.parameters()).device) * edit.factor
        has_positions = edit.positions is not None
        _register_on_states(bert, edit.depth, AddVectorHook(vector, edit.positions), needs_all_positions=has_positions)


def _register_on_states(
    bert: BertModel, depth: int, hook: ReplaceRowsHook | AddVectorHook, *, needs_all_positions: bool
) -> None:
    """Add a hook to the module that returns the hidden states of a depth, in place.

    needs_all_positions: whether the hook needs all tokens of the text, also where only some are requested.
    """
    if not depth:
        bert.embeddings.output_module.register_forward_hook(hook)
        return
    layer = cast("BertLayer", bert.encoder.layer[depth - 1])
    layer.computes_all_positions |= needs_all_positions
    _component_modules(layer)["state"].register_forward_hook(hook)


def _remove_edit_hooks(module: nn.Module) -> None:
    """Remove the hooks of edits from a module, in place; other hooks stay."""
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for number in [number for number, hook in hooks.items() if isinstance(hook, ReplaceRowsHook | AddVectorHook)]:
            del hooks[number]


def _check_edit(loaded: LoadedModel, edit: Edit) -> None:
    """Raise Refused unless the layers, heads and neurons of an edit exist in a model."""
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
        _check_patch(loaded, edit)
    elif isinstance(edit, AddedVector):
        require_int("the depth of an added vector", edit.depth, 0, layers)
        if len(edit.vector) != config.hidden_size:
            raise Refused(
                f"the added vector has {len(edit.vector)} numbers: the hidden states of this model have "
                f"{config.hidden_size}"
            )
    elif isinstance(edit, AttentionKnockout):
        for layer in range(layers) if edit.layers is None else edit.layers:
            for head in edit.heads or (0,):
                check_head_number(layer, head, layers, heads)
            for head in edit.heads or ():
                check_head_exists(config, layer, head)
    else:
        raise Refused(
            f"one of the edits is {short_repr(edit)}: it must be an AttentionKnockout, a ScaledNeuron, an "
            "ActivationPatch or an AddedVector"
        )


def neuron_index(loaded: LoadedModel, layer: int, neuron: int) -> int:
    """Return the index of a neuron among those that its layer still has.

    neuron: its original index. Raises Refused if the neuron was pruned.
    """
    neurons = cast("BertLayer", loaded.model.bert.encoder.layer[layer]).intermediate.neurons
    if neuron not in neurons:
        raise Refused(
            f"neuron {neuron} of layer {layer} was pruned: this layer still has {len(neurons):,} of "
            f"{loaded.config.intermediate_size:,}"
        )
    return neurons.index(neuron)


def _check_patch(loaded: LoadedModel, patch: ActivationPatch) -> None:
    """Raise Refused unless an activation patch fits a model; `make_patch` makes patches that do."""
    config = loaded.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    layer = patch.layer if patch.component != "state" else max(0, patch.layer - 1)
    check_head_number(layer, patch.head or 0, layers, heads)
    width = config.hidden_size
    if patch.component in HEAD_PARTS:
        width = patch.tokens if patch.component == "pattern" else config.attention_head_size
    elif patch.component == NEURON:
        width = 1
    if patch.values.shape[1] != width:
        raise Refused(
            f"values of the activation patch are {patch.values.shape[1]} wide: a {patch.component} of this model "
            f"is {width} wide"
        )
    if patch.component in HEAD_PARTS:
        check_head_exists(config, patch.layer, cast("int", patch.head))
    if patch.component == NEURON:
        neuron = require_int("the neuron", patch.neuron, 0, config.intermediate_size - 1)
        neuron_index(loaded, patch.layer, neuron)
