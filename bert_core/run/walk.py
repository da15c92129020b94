"""All intermediate values of a pass by name, traced in the PyTorch model or computed by the NumPy implementation."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bert_core.config import BertConfig, check_head_number
from bert_core.edits import blocked_edges, check_unpatched, knockouts_in_layer, scaled_neurons_in_layer
from bert_core.loading import LoadedModel
from bert_core.modeling import BertForReplacedTokenDetection, BertLayer
from bert_core.numpy_bert import MASKED_SCORE, BertForPretraining, is_supported
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.recording import record
from bert_core.records import Walk
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, validate_arguments
from bert_core.run.arrays import as_array, fill_pruned_with_nan, to_cpu
from bert_core.run.inputs import check_head_mask, check_position, check_text
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding

ENGINES = ("torch", "numpy")
HEAD_VALUES = (
    "query", "key", "value", "rotated_query", "rotated_key", "scores", "masked_scores", "probabilities", "context"
)  # fmt: skip
NEURON_VALUES = ("intermediate_dense", "intermediate_activated", "intermediate_gate", "intermediate")
# Where each value occurs in the PyTorch model: as the input or the output of a module with weights.
_INPUT, _OUTPUT = 0, 1
_EMBEDDINGS = {
    "embeddings.word": ("embeddings.word_embeddings", _OUTPUT),
    "embeddings.token_type": ("embeddings.token_type_embeddings", _OUTPUT),
    "embeddings.position": ("embeddings.position_embeddings", _OUTPUT),
    "embeddings.sum": ("embeddings.LayerNorm", _INPUT),
    "embeddings.normed": ("embeddings.LayerNorm", _OUTPUT),
    "embeddings.output": ("embeddings.embeddings_project", _OUTPUT),
}
# Values of a layer before and after its attention maps. A layer lacks the values of the modules that it does not have.
_ATTENTION_INPUTS = {
    "attention_input": ("attention.input_norm", _OUTPUT),
    "query": ("attention.self.query", _OUTPUT),
    "key": ("attention.self.key", _OUTPUT),
    "value": ("attention.self.value", _OUTPUT),
    "rotated_query": ("attention.self.query_rotation", _OUTPUT),
    "rotated_key": ("attention.self.key_rotation", _OUTPUT),
}
_LAYER_VALUES = {
    "context": ("attention.output.dense", _INPUT),
    "attention_output": ("attention.output.dense", _OUTPUT),
    "attention_sum": ("attention_sum", _INPUT),
    "attention_normed": ("attention.output.LayerNorm", _OUTPUT),
    "intermediate_input": ("intermediate.input_norm", _OUTPUT),
    "intermediate_dense": ("intermediate.dense", _OUTPUT),
    "intermediate_activated": ("intermediate.intermediate_act_fn", _OUTPUT),
    "intermediate_gate": ("intermediate.gate", _OUTPUT),
    "intermediate": ("output.dense", _INPUT),
    "output_dense": ("output.dense", _OUTPUT),
    "output_sum": ("output.LayerNorm", _INPUT),
    "output": ("output.LayerNorm", _OUTPUT),
}
_SPLIT_BY_HEAD = ("query", "key", "value", "rotated_query", "rotated_key", "context")


def engines_of(config: BertConfig) -> tuple[str, ...]:
    """Return those of `ENGINES` that have the layers of a configuration."""
    return ENGINES if is_supported(config) else ENGINES[:1]


@validate_arguments
def walk(
    loaded: LoadedModel,
    encoding: Encoding,
    layer: int,
    *,
    position: int = 0,
    head_mask: np.ndarray | None = None,
    pads: int = 0,
    engine: str = "torch",
    report: Progress = ignore_progress,
) -> Walk:
    """Run a text and record every intermediate value of one layer; see `Walk` for the names and shapes.

    layer: the layer, counted from zero. position: the position at which the MLM head predicts.
    head_mask: as for `capture`. pads: number of padding tokens after the text, which every layer masks.
    engine: "torch" runs the model itself, "numpy" a NumPy implementation with the same weights.
    report: receives the number of layers that are done, see `Progress`.
    Thread-safe: the model is not changed, and no hook is registered.
    Raises Refused for a layer, position, gate or engine that does not exist, and for a removed layer. Raises Refused
    also for a model with activation patches, and for more padding than the model has positions.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> values = bert_core.walk(loaded, encoding, layer=2).values
    >>> values["layer.2.probabilities"].shape  # (head, query, key)
    (12, 10, 10)
    >>> values["layer.2.intermediate"].shape  # (seq, neuron)
    (10, 1536)
    """
    config = loaded.config
    check_unpatched(loaded.edits, "a walk through a layer")
    if engine not in ENGINES:
        raise Refused(f"engine {engine!r} is unknown: one of {', '.join(ENGINES)}")
    check_head_number(layer, 0, config.num_hidden_layers, config.num_attention_heads)
    if layer in config.pruned_layers:
        raise Refused(f"layer {layer} was removed: it computes nothing, and its output equals its input")
    check_position(encoding, position)
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    room = config.max_position_embeddings - len(check_text(loaded, encoding))
    if not 0 <= pads <= room:
        raise Refused(f"pads is {pads}: after this text there is room for 0 to {room}")
    inputs = _WalkInputs(
        layer=layer,
        position=position,
        ids=np.array([[*encoding.input_ids, *[config.pad_token_id] * pads]]),
        segments=np.array([[*encoding.token_type_ids, *[0] * pads]]) if config.type_vocab_size else None,
        mask=np.array([[1] * len(encoding) + [0] * pads]) if pads else None,
        gates=None if (gates == 1).all() else gates,
        has_pooler=not loaded.report.lacks("bert.pooler."),
        heads=frozenset(head.name for head in TASK_HEADS.values() if head.applies(loaded, encoding)),
    )
    values = _with_pruned_as_nan((_by_torch if engine == "torch" else _by_numpy)(loaded, inputs, report), layer, config)
    return Walk(
        engine, encoding, (*encoding.tokens, *[loaded.tokenizer.special_tokens.pad] * pads), layer, position, values
    )


@validate_arguments
def walk_at_position(loaded: LoadedModel, base: Walk, position: int) -> Walk:
    """Return a walk with the MLM prediction at another position; all other values are unchanged.

    loaded: the model of the walk. base: the walk. Raises Refused for a position that does not exist.
    """
    check_position(base.encoding, position)
    if not loaded.has_head("words"):
        return replace(base, position=position)
    state = base.values["hidden_states"][-1, position]
    words = _words_by_torch(loaded, torch.tensor(state)) if base.engine == "torch" else _words_by_numpy(loaded, state)
    return replace(base, position=position, values={**base.values, **words})


@compared_by_value
@dataclass(frozen=True)
class _WalkInputs:
    """The inputs of either engine; ids, segments and mask are (1, seq), gates are (layer, head)."""

    layer: int
    position: int
    ids: np.ndarray
    segments: np.ndarray | None
    mask: np.ndarray | None
    gates: np.ndarray | None
    has_pooler: bool
    heads: frozenset[str]


class ModuleTracer(TorchFunctionMode):
    """Context that records the input and output of every module with weights, and the input of every softmax.

    modules: the input and the output of each module, by name. scores: the input of the softmax of each layer that
        computes an explicit attention map, by layer.
    A mode is active only in its own thread, so passes of other threads through the same model are not traced.
    """

    def __init__(self, model: nn.Module, on_layer_end: Callable[[int], None] = lambda layers: None) -> None:
        """Prepare to trace a model. on_layer_end: called with the number of layers that are done."""
        super().__init__()
        self._on_layer_end = on_layer_end
        # Layers with shared weights use them in ascending order.
        self._names: dict[int, list[str]] = {}
        for name, weight in model.named_parameters(remove_duplicate=False):
            if name.endswith(".weight"):
                self._names.setdefault(id(weight), []).append(name.removesuffix(".weight"))
        self._turns: Counter[int] = Counter()
        self.modules: dict[str, tuple[Tensor, Tensor]] = {}
        self.scores: dict[int, Tensor] = {}
        self._layer = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function_name = getattr(func, "__name__", "")
        if function_name == "softmax":
            self.scores[self._layer] = args[0].clone()  # the softmax may overwrite its input
        result = func(*args, **(kwargs or {}))
        if function_name in ("linear", "embedding", "layer_norm"):
            arguments = (*args, *(kwargs or {}).values())
            name = next((self._name_of(id(value)) for value in arguments if id(value) in self._names), None)
            if name is not None:
                # Only the first call of a layer is for the states of tokens: later ones can project a table.
                self.modules.setdefault(name, (args[0], result))
                if layer := re.search(r"layer\.(\d+)\.(.*)", name):
                    self._layer = int(layer[1])
                    if layer[2] == "output.dense":  # the last module with weights that every layer has
                        self._on_layer_end(self._layer + 1)
        return result

    def _name_of(self, weight: int) -> str:
        """Return the module that uses a weight at the moment; layers with shared weights take turns."""
        names = self._names[weight]
        if names[0].endswith(".attention.self.query"):  # the first module of a layer
            self._turns[weight] += 1
            return names[(self._turns[weight] - 1) % len(names)]
        return next((name for name in names if f".layer.{self._layer}." in name), names[0])


def _by_torch(loaded: LoadedModel, inputs: _WalkInputs, report: Progress) -> dict[str, np.ndarray]:
    """Run the PyTorch model and return the values by name."""
    model, device, layer = loaded.model, loaded.device, f"layer.{inputs.layer}."
    ids, segments, mask, gates = (
        None if array is None else torch.from_numpy(array).to(device)
        for array in (inputs.ids, inputs.segments, inputs.mask, inputs.gates)
    )
    assert ids is not None
    layers = loaded.config.num_hidden_layers

    def report_layers(layer_count: int) -> None:
        report_count(report, layer_count, layers, "layers")

    # Only the recorded layer computes an explicit attention map; the others use fused attention.
    with (
        torch.no_grad(),
        record([inputs.layer]) as recording,
        ModuleTracer(model, report_layers) as tracer,
    ):
        outputs = model.bert(
            ids, token_type_ids=segments, attention_mask=mask, head_mask=gates, output_hidden_states=True
        )
    modules = {name.removeprefix("bert.").removeprefix("encoder."): pair for name, pair in tracer.modules.items()}
    block, length = cast("BertLayer", model.bert.encoder.layer[inputs.layer]), ids.shape[1]
    attention = block.attention.self
    empty = torch.empty(1, 0, length, length, device=device)  # for a layer without heads
    masked_scores, probabilities = empty, empty
    if attention.heads:
        masked_scores, probabilities = tracer.scores[inputs.layer], recording.attention[inputs.layer]
    scores, additive_mask = masked_scores, torch.zeros(length, length, device=device)
    if mask is not None or loaded.config.is_decoder:
        allowed = torch.ones_like(ids) if mask is None else mask
        additive_mask = model.bert.get_extended_attention_mask(allowed, (1, length))[0, 0].expand_as(additive_mask)
    far_keys = attention.outside_window(length, length)
    if far_keys is not None:
        additive_mask = additive_mask.masked_fill(far_keys[0, 0], -torch.inf)
    if attention.heads and (additive_mask.any() or attention.knockouts):
        # Attention runs once more without mask, window and knockouts: subtracting -10000 would lose most digits.
        unmasked_attention = copy.copy(attention)
        unmasked_attention.knockouts, unmasked_attention.window = (), None
        with torch.no_grad(), record([inputs.layer]), ModuleTracer(model) as unmasked_tracer:
            unmasked_attention(modules[layer + "attention.self.query"][_INPUT])
        (scores,) = unmasked_tracer.scores.values()  # of the only layer, whose number does not matter here

    values: dict[str, Tensor] = {}
    for name, (module, side) in _EMBEDDINGS.items():
        if module in modules:
            values[name] = modules[module][side][0]
    if "embeddings.output" not in values:  # without a projection, the output is that of the layer norm
        values["embeddings.output"] = values.pop("embeddings.normed")
    traced = _modules_of_layer(block, modules)
    if not attention.heads:
        no_vectors = torch.empty(1, length, 0, device=device)
        traced |= {f"attention.self.{name}": (no_vectors, no_vectors) for name in ("query", "key", "value")}
    values |= _layer_values(layer, _ATTENTION_INPUTS, traced)
    values |= {layer + "scores": scores[0], layer + "mask": additive_mask}
    values |= {layer + "masked_scores": masked_scores[0], layer + "probabilities": probabilities[0]}
    values |= _layer_values(layer, _LAYER_VALUES, traced)
    for name in _SPLIT_BY_HEAD:  # (seq, heads * head size) -> (head, seq, head size)
        if layer + name in values:
            parts = values[layer + name].reshape(length, len(attention.heads), attention.attention_head_size)
            values[layer + name] = parts.transpose(0, 1)
    values.setdefault(layer + "output", outputs.hidden_states[inputs.layer + 1][0])
    values["hidden_states"] = torch.stack([state[0] for state in outputs.hidden_states])
    if loaded.config.layer_design.pre_norm:
        final_norm = modules[f"layer.{layers - 1}.output.LayerNorm"]
        values |= {"final.sum": final_norm[_INPUT][0], "final.normed": final_norm[_OUTPUT][0]}
    if inputs.has_pooler:
        (pooler_input, pooler_dense), pooler_norm = modules["pooler.dense"], modules.get("pooler.LayerNorm")
        values["pooler_dense"] = pooler_dense[0]
        if pooler_norm is not None:
            values |= {"pooler_input": pooler_input[0], "pooler_activated": pooler_norm[_INPUT][0]}
        values["pooler"] = outputs.pooler_output[0]
    answers = _words_by_torch(loaded, outputs.last_hidden_state[0, inputs.position]) if "words" in inputs.heads else {}
    if "next" in inputs.heads:
        with torch.no_grad():
            logits = model.cls.seq_relationship(outputs.pooler_output)[0]
        answers |= _to_arrays({"nsp_logits": logits})
    if "detector" in inputs.heads:
        answers |= _tokens_by_torch(loaded, outputs.last_hidden_state[0])
    return _to_arrays(values) | answers


def _layer_values(
    layer: str, places: Mapping[str, tuple[str, int]], traced: Mapping[str, tuple[Tensor, Tensor]]
) -> dict[str, Tensor]:
    """Return the values of a layer at the given places, without the batch axis, as far as the layer has them."""
    return {layer + name: traced[place][side][0] for name, (place, side) in places.items() if place in traced}


def _modules_of_layer(
    block: BertLayer, modules: Mapping[str, tuple[Tensor, Tensor]]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the input and the output of each module of a layer by its name within the layer.

    modules: of the whole model, as traced. The rotations and the activation of a gated network are added to them, as
    modules without weights are not traced, and so is the sum after attention, which either of two norms receives.
    """
    prefix, attention, intermediate = f"layer.{block.layer_num}.", block.attention.self, block.intermediate
    traced = {name.removeprefix(prefix): pair for name, pair in modules.items() if name.startswith(prefix)}
    norms = ("attention.output.LayerNorm", "intermediate.input_norm")
    traced["attention_sum"] = next(traced[norm] for norm in norms if norm in traced)
    functions = {
        "attention.self.query_rotation": ("attention.self.query", attention.query_rotation),
        "attention.self.key_rotation": ("attention.self.key", attention.key_rotation),
        "intermediate.intermediate_act_fn": (
            "intermediate.dense",
            None if intermediate.gate is None else intermediate.intermediate_act_fn,
        ),
    }
    for name, (source, function) in functions.items():
        if function is not None and source in traced:
            traced[name] = (traced[source][_OUTPUT], function(traced[source][_OUTPUT]))
    return traced


def _words_by_torch(loaded: LoadedModel, state: Tensor) -> dict[str, np.ndarray]:
    """Compute the values of the MLM head for one state (hidden,) of the last layer."""
    with torch.no_grad(), ModuleTracer(loaded.model) as tracer:
        logits = loaded.model.cls.predictions(state.to(loaded.device))
    transform = "cls.predictions.transform."
    activated, transformed = tracer.modules[transform + "LayerNorm"]
    return _to_arrays(
        {
            "mlm.dense": tracer.modules[transform + "dense"][_OUTPUT],
            "mlm.activated": activated,
            "mlm.transform": transformed,
            "mlm_logits": logits,
        }
    )


def _tokens_by_torch(loaded: LoadedModel, states: Tensor) -> dict[str, np.ndarray]:
    """Compute the values of the replaced-token detector for the states (seq, hidden) of the last layer."""
    detector = cast("BertForReplacedTokenDetection", loaded.task_models["detector"])
    with torch.no_grad(), ModuleTracer(detector) as tracer:
        logits = detector.discriminator_predictions(states)
    (normed, dense), (activated, _) = (
        tracer.modules[f"discriminator_predictions.{n}"] for n in ("dense", "dense_prediction")
    )
    values = {"detector.dense": dense, "detector.activated": activated, "replaced_logits": logits}
    if detector.discriminator_predictions.LayerNorm is not None:
        values = {"detector.normed": normed, **values}
    return _to_arrays(values)


def _to_arrays(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Copy tensors to arrays, so that a record does not change with them."""
    return {name: as_array(value) for name, value in zip(tensors, to_cpu([*tensors.values()]), strict=True)}


def _with_pruned_as_nan(values: dict[str, np.ndarray], layer: int, config: BertConfig) -> dict[str, np.ndarray]:
    """Place the values of heads and neurons at their original numbers, with NaN for pruned ones."""
    heads, neurons = config.heads_of(layer), config.neurons_of(layer)
    filled, prefix = dict(values), f"layer.{layer}."
    if len(heads) < config.num_attention_heads:
        for name in filled.keys() & {prefix + name for name in HEAD_VALUES}:
            filled[name] = fill_pruned_with_nan(values[name], heads, config.num_attention_heads)
    if len(neurons) < config.intermediate_size:
        for name in filled.keys() & {prefix + name for name in NEURON_VALUES}:  # neurons are the last axis
            filled[name] = fill_pruned_with_nan(values[name].T, neurons, config.intermediate_size).T
    return filled


def _numpy_model(loaded: LoadedModel) -> BertForPretraining:
    """Create the NumPy implementation of a model with the same weights."""
    tensors = loaded.model.state_dict()
    if loaded.has_head("detector"):
        tensors |= loaded.head_weights("detector")
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return BertForPretraining.from_weights(weights, loaded.config)


def _edit_functions(loaded: LoadedModel, tokens: int) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return functions that apply the edits of a model to values of the NumPy implementation, by name."""
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    for number in range(loaded.config.num_hidden_layers):
        knockouts, heads = knockouts_in_layer(loaded.edits, number), loaded.config.heads_of(number)
        prefix = f"layer.{number}."
        masked_edges = blocked_edges(knockouts, heads, tokens, renormalised=True)
        zeroed_edges = blocked_edges(knockouts, heads, tokens, renormalised=False)
        factors = np.ones(loaded.config.intermediate_size)
        for scaled_neuron in scaled_neurons_in_layer(loaded.edits, number):
            factors[scaled_neuron.neuron] *= scaled_neuron.factor
        factors = factors[list(loaded.config.neurons_of(number))]
        if masked_edges is not None:
            changes[prefix + "masked_scores"] = _add_to(masked_edges * MASKED_SCORE)
        if zeroed_edges is not None:
            changes[prefix + "probabilities"] = _multiply_by(~zeroed_edges)
        if (factors != 1).any():
            changes[prefix + "intermediate"] = _multiply_by(factors)
    return changes


def _add_to(addend: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that adds an array to a value."""
    return lambda value: value + addend.astype(value.dtype)


def _multiply_by(factors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that multiplies a value by an array."""
    return lambda value: value * factors.astype(value.dtype)


def _words_by_numpy(loaded: LoadedModel, state: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the values of the MLM head for one state (hidden,) with the NumPy implementation."""
    values: dict[str, np.ndarray] = {}

    def record_value(name: str, value: np.ndarray) -> np.ndarray:
        values[name] = np.array(value[0], np.float32)
        return value

    mlm = _numpy_model(loaded).mlm
    if mlm is not None:
        mlm.forward(state[None], record_value)
    return values


def _by_numpy(loaded: LoadedModel, inputs: _WalkInputs, report: Progress) -> dict[str, np.ndarray]:
    """Run the NumPy implementation and return the values by name."""
    model = _numpy_model(loaded)
    layer = f"layer.{inputs.layer}."
    # The input of the first layer and the output of each layer.
    states = ["embeddings.output", *(f"layer.{n}.output" for n in range(loaded.config.num_hidden_layers))]
    values: dict[str, np.ndarray] = {}
    layer_outputs: list[np.ndarray] = []
    edits = _edit_functions(loaded, inputs.ids.shape[1])

    def record_value(name: str, value: np.ndarray) -> np.ndarray:
        if name in states:
            layer_outputs.append(value[0])
            report_count(report, len(layer_outputs) - 1, len(states) - 1, "layers")
        if name in edits:
            value = edits[name](value)
        if name == layer + "masked_scores":
            mask = model.bert.additive_mask(inputs.mask, *inputs.ids.shape)
            values[layer + "mask"] = np.broadcast_to(0 if mask is None else mask[0, 0], value.shape[-2:])
        if not name.startswith("layer.") or name.startswith(layer):
            values[name] = value if name == "embeddings.position" and value.ndim == 2 else value[0]
        return value

    sequence_output = model.bert.forward(
        inputs.ids,
        token_type_ids=inputs.segments,
        attention_mask=inputs.mask,
        head_mask=inputs.gates,
        hook=record_value,
    )
    values["hidden_states"] = np.stack(layer_outputs)
    pooled_output = model.bert.pool(sequence_output, record_value) if inputs.has_pooler else None
    if "words" in inputs.heads and model.mlm is not None:
        model.mlm.forward(sequence_output[:, inputs.position], record_value)
    if "next" in inputs.heads and model.nsp is not None and pooled_output is not None:
        model.nsp.forward(pooled_output, record_value)
    if "detector" in inputs.heads and model.detector is not None:
        model.detector.forward(sequence_output, record_value)
    # Copied, because some values are views of the model's weights.
    return {name: np.array(value, np.float32) for name, value in values.items()}
