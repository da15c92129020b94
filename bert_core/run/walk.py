"""One text through the model, every value on the way by name: overheard from the torch model, or by the NumPy one."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable
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
from bert_core.numpy_bert import MASKED_SCORE, BertForPretraining
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
HEAD_VALUES = ("query", "key", "value", "scores", "masked_scores", "probabilities", "context")
NEURON_VALUES = ("intermediate_dense", "intermediate")
# What each value is in the torch model: what goes into a module with weights, or what comes out of it.
_INTO, _OUT = 0, 1
_EMBEDDINGS = {
    "embeddings.word": ("embeddings.word_embeddings", _OUT),
    "embeddings.token_type": ("embeddings.token_type_embeddings", _OUT),
    "embeddings.position": ("embeddings.position_embeddings", _OUT),
    "embeddings.sum": ("embeddings.LayerNorm", _INTO),
    "embeddings.normed": ("embeddings.LayerNorm", _OUT),
    "embeddings.output": ("embeddings.embeddings_project", _OUT),
}
_AFTER_THE_SOFTMAX = {
    "context": ("attention.output.dense", _INTO),
    "attention_output": ("attention.output.dense", _OUT),
    "attention_sum": ("attention.output.LayerNorm", _INTO),
    "attention_normed": ("attention.output.LayerNorm", _OUT),
    "intermediate_dense": ("intermediate.dense", _OUT),
    "intermediate": ("output.dense", _INTO),
    "output_dense": ("output.dense", _OUT),
    "output_sum": ("output.LayerNorm", _INTO),
    "output": ("output.LayerNorm", _OUT),
}


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
    """The values on the way of a text, in full in one layer; see `Walk` for their names and shapes.

    position: where to ask the masked-word head. head_mask: as for `capture`.
    pads: padding to put behind the text, which every layer then masks.
    engine: "torch" for the model itself, "numpy" for its twin with the same weights.
    report: told how many layers are done, as for `Progress`.
    Safe to call from many threads on one model: nothing is written to it, and no hook is registered.
    Raises Refused for a layer, position, gate or engine that does not exist, or padding without room.
    """
    config = loaded.config
    check_unpatched(loaded.edits, "Step by step")
    if engine not in ENGINES:
        raise Refused(f"engine {engine!r} is unknown: one of {', '.join(ENGINES)}")
    check_head_number(layer, 0, config.num_hidden_layers, config.num_attention_heads)
    if layer in config.pruned_layers:
        raise Refused(f"layer {layer} was taken out: nothing is computed in it, and what enters it leaves it")
    check_position(encoding, position)
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    room = config.max_position_embeddings - len(check_text(loaded, encoding))
    if not 0 <= pads <= room:
        raise Refused(f"{pads} pads: behind this text there is room for 0 to {room}")
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
    values = _with_gaps((_by_torch if engine == "torch" else _by_numpy)(loaded, inputs, report), layer, config)
    return Walk(
        engine, encoding, (*encoding.tokens, *[loaded.tokenizer.special_tokens.pad] * pads), layer, position, values
    )


@validate_arguments
def walk_at_position(loaded: LoadedModel, seen: Walk, position: int) -> Walk:
    """The same walk with the masked-word head asked at another position: nothing else of it changes.

    loaded: the model that was walked through. Raises Refused for a position that does not exist.
    """
    check_position(seen.encoding, position)
    if not loaded.has_head("words"):
        return replace(seen, position=position)
    state = seen.values["hidden_states"][-1, position]
    words = _words_by_torch(loaded, torch.tensor(state)) if seen.engine == "torch" else _words_by_numpy(loaded, state)
    return replace(seen, position=position, values={**seen.values, **words})


@compared_by_value
@dataclass(frozen=True)
class _WalkInputs:
    """What is asked of either engine; ids, segments and mask are (1, seq), the gates (layer, head)."""

    layer: int
    position: int
    ids: np.ndarray
    segments: np.ndarray | None
    mask: np.ndarray | None
    gates: np.ndarray | None
    has_pooler: bool
    heads: frozenset[str]


class ModuleTracer(TorchFunctionMode):
    """The input and output of every module with weights, and of every softmax, of the passes made in its context.

    A mode belongs to its thread, so that no other pass through the same model is traced.
    """

    def __init__(self, model: nn.Module, passed: Callable[[int], None] = lambda layers: None) -> None:
        """passed: told how many layers are done."""
        super().__init__()
        self._passed = passed
        # Layers that share their weights take turns, from the bottom up.
        self._names: dict[int, list[str]] = {}
        for name, weight in model.named_parameters(remove_duplicate=False):
            if name.endswith(".weight"):
                self._names.setdefault(id(weight), []).append(name.removesuffix(".weight"))
        self._turns: Counter[int] = Counter()
        self.modules: dict[str, tuple[Tensor, Tensor]] = {}
        self.scores: dict[int, Tensor] = {}  # what went into the softmax of each layer that builds its map
        self._layer = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called = getattr(func, "__name__", "")
        if called == "softmax":
            self.scores[self._layer] = args[0].clone()  # the softmax may write over them
        result = func(*args, **(kwargs or {}))
        if called in ("linear", "embedding", "layer_norm"):
            given = (*args, *(kwargs or {}).values())
            name = next((self._name_of(id(value)) for value in given if id(value) in self._names), None)
            if name is not None:
                self.modules[name] = (args[0], result)
                if layer := re.search(r"layer\.(\d+)\.(.*)", name):
                    self._layer = int(layer[1])
                    if layer[2] == "output.LayerNorm":
                        self._passed(self._layer + 1)
        return result

    def _name_of(self, weight: int) -> str:
        """The module that a weight is used for now: of layers that share it the one whose turn it is."""
        names = self._names[weight]
        if names[0].endswith(".attention.self.query"):  # with which a layer begins
            self._turns[weight] += 1
            return names[(self._turns[weight] - 1) % len(names)]
        return next((name for name in names if f".layer.{self._layer}." in name), names[0])


def _by_torch(loaded: LoadedModel, inputs: _WalkInputs, report: Progress) -> dict[str, np.ndarray]:
    """The values as the model's own modules compute them."""
    model, device, layer = loaded.model, loaded.device, f"layer.{inputs.layer}."
    ids, segments, mask, gates = (
        None if given is None else torch.from_numpy(given).to(device)
        for given in (inputs.ids, inputs.segments, inputs.mask, inputs.gates)
    )
    assert ids is not None
    layers = loaded.config.num_hidden_layers

    def passed(done: int) -> None:
        report_count(report, done, layers, "layers")

    # Only the watched layer builds its map; the others stay fused.
    with (
        torch.no_grad(),
        record([inputs.layer]) as recording,
        ModuleTracer(model, passed) as heard,
    ):
        outputs = model.bert(
            ids, token_type_ids=segments, attention_mask=mask, head_mask=gates, output_hidden_states=True
        )
    modules = {name.removeprefix("bert.").removeprefix("encoder."): value for name, value in heard.modules.items()}
    attention, length = cast("BertLayer", model.bert.encoder.layer[inputs.layer]).attention.self, ids.shape[1]
    nothing = torch.empty(1, 0, length, length, device=device)  # of a layer without heads
    masked_scores, probabilities = nothing, nothing
    if attention.heads:
        masked_scores, probabilities = heard.scores[inputs.layer], recording.attention[inputs.layer]
    scores, added = masked_scores, torch.zeros(length, length, device=device)
    if mask is not None or loaded.config.is_decoder:
        allowed = torch.ones_like(ids) if mask is None else mask
        added = model.bert.get_extended_attention_mask(allowed, (1, length))[0, 0].expand_as(added)
    if attention.heads and (added.any() or attention.knockouts):
        # The module once more without mask and cuts: taking -10000 off again would leave few digits of the scores.
        bare = copy.copy(attention)
        bare.knockouts = ()
        with torch.no_grad(), record([inputs.layer]), ModuleTracer(model) as unmasked:
            bare(modules[layer + "attention.self.query"][_INTO])
        (scores,) = unmasked.scores.values()  # of the one layer, under whatever number

    found: dict[str, Tensor] = {}
    for name, (module, side) in _EMBEDDINGS.items():
        if module in modules:
            found[name] = modules[module][side][0]
    if "embeddings.output" not in found:  # no linear map follows the norm
        found["embeddings.output"] = found.pop("embeddings.normed")
    for name in ("query", "key", "value"):
        heard_here = modules.get(f"{layer}attention.self.{name}")
        found[layer + name] = torch.empty(length, 0, device=device) if heard_here is None else heard_here[_OUT][0]
    found |= {layer + "scores": scores[0], layer + "mask": added}
    found |= {layer + "masked_scores": masked_scores[0], layer + "probabilities": probabilities[0]}
    for name, (module, side) in _AFTER_THE_SOFTMAX.items():
        found[layer + name] = modules[layer + module][side][0]
    for name in ("query", "key", "value", "context"):  # (seq, heads * head size) -> (head, seq, head size)
        parts = found[layer + name].reshape(length, len(attention.heads), attention.attention_head_size)
        found[layer + name] = parts.transpose(0, 1)
    found["hidden_states"] = torch.stack([state[0] for state in outputs.hidden_states])
    if inputs.has_pooler:
        found["pooler_dense"], found["pooler"] = modules["pooler.dense"][_OUT][0], outputs.pooler_output[0]
    answers = _words_by_torch(loaded, outputs.last_hidden_state[0, inputs.position]) if "words" in inputs.heads else {}
    if "next" in inputs.heads:
        with torch.no_grad():
            logits = model.cls.seq_relationship(outputs.pooler_output)[0]
        answers |= _copied({"nsp_logits": logits})
    if "detector" in inputs.heads:
        answers |= _tokens_by_torch(loaded, outputs.last_hidden_state[0])
    return _copied(found) | answers


def _words_by_torch(loaded: LoadedModel, state: Tensor) -> dict[str, np.ndarray]:
    """What the masked-word head makes of one vector (hidden,) of the last layer."""
    with torch.no_grad(), ModuleTracer(loaded.model) as heard:
        logits = loaded.model.cls.predictions(state.to(loaded.device))
    transform = "cls.predictions.transform."
    activated, transformed = heard.modules[transform + "LayerNorm"]
    return _copied(
        {
            "mlm.dense": heard.modules[transform + "dense"][_OUT],
            "mlm.activated": activated,
            "mlm.transform": transformed,
            "mlm_logits": logits,
        }
    )


def _tokens_by_torch(loaded: LoadedModel, states: Tensor) -> dict[str, np.ndarray]:
    """What the detector of replaced tokens makes of the last layer (seq, hidden)."""
    detector = cast("BertForReplacedTokenDetection", loaded.task_models["detector"])
    with torch.no_grad(), ModuleTracer(detector) as heard:
        logits = detector.discriminator_predictions(states)
    (_, dense), (activated, _) = (
        heard.modules[f"discriminator_predictions.{n}"] for n in ("dense", "dense_prediction")
    )
    return _copied({"detector.dense": dense, "detector.activated": activated, "replaced_logits": logits})


def _copied(found: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """As arrays of their own: a record must not change with a tensor."""
    return {name: as_array(value) for name, value in zip(found, to_cpu([*found.values()]), strict=True)}


def _with_gaps(values: dict[str, np.ndarray], layer: int, config: BertConfig) -> dict[str, np.ndarray]:
    """The values with those of each head and neuron under its first number, and NaN for what was pruned."""
    heads, neurons = config.heads_of(layer), config.neurons_of(layer)
    whole = dict(values)
    if len(heads) < config.num_attention_heads:
        whole |= {f"layer.{layer}.{name}": fill_pruned_with_nan(values[f"layer.{layer}.{name}"], heads, config.num_attention_heads)
                  for name in HEAD_VALUES}  # fmt: skip
    if len(neurons) < config.intermediate_size:
        whole |= {f"layer.{layer}.{name}": fill_pruned_with_nan(values[f"layer.{layer}.{name}"].T, neurons,
                                                     config.intermediate_size).T
                  for name in NEURON_VALUES}  # fmt: skip
    return whole


def _twin(loaded: LoadedModel) -> BertForPretraining:
    """The NumPy model with the same weights."""
    tensors = loaded.model.state_dict()
    if loaded.has_head("detector"):
        tensors |= loaded.head_weights("detector")
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return BertForPretraining.from_weights(weights, loaded.config)


def _changes(loaded: LoadedModel, tokens: int) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """What the model's edits do to the twin's values, by name."""
    changes: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    for number in range(loaded.config.num_hidden_layers):
        cuts, heads, at = knockouts_in_layer(loaded.edits, number), loaded.config.heads_of(number), f"layer.{number}."
        unseen = blocked_edges(cuts, heads, tokens, renormalised=True)
        removed = blocked_edges(cuts, heads, tokens, renormalised=False)
        factors = np.ones(loaded.config.intermediate_size)
        for one in scaled_neurons_in_layer(loaded.edits, number):
            factors[one.neuron] *= one.factor
        factors = factors[list(loaded.config.neurons_of(number))]
        if unseen is not None:
            changes[at + "masked_scores"] = _plus(unseen * MASKED_SCORE)
        if removed is not None:
            changes[at + "probabilities"] = _times(~removed)
        if (factors != 1).any():
            changes[at + "intermediate"] = _times(factors)
    return changes


def _plus(added: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda value: value + added.astype(value.dtype)


def _times(factors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda value: value * factors.astype(value.dtype)


def _words_by_numpy(loaded: LoadedModel, state: np.ndarray) -> dict[str, np.ndarray]:
    """What the masked-word head makes of one vector (hidden,) of the last layer, by the NumPy twin."""
    found: dict[str, np.ndarray] = {}

    def keep(name: str, value: np.ndarray) -> np.ndarray:
        found[name] = np.array(value[0], np.float32)
        return value

    mlm = _twin(loaded).mlm
    if mlm is not None:
        mlm.forward(state[None], keep)
    return found


def _by_numpy(loaded: LoadedModel, inputs: _WalkInputs, report: Progress) -> dict[str, np.ndarray]:
    """The values as the NumPy twin computes them with the same weights."""
    twin = _twin(loaded)
    layer = f"layer.{inputs.layer}."
    # What leaves each layer, which enters the next.
    states = ["embeddings.output", *(f"layer.{n}.output" for n in range(loaded.config.num_hidden_layers))]
    found: dict[str, np.ndarray] = {}
    leaving: list[np.ndarray] = []
    changes = _changes(loaded, inputs.ids.shape[1])

    def keep(name: str, value: np.ndarray) -> np.ndarray:
        if name in states:
            leaving.append(value[0])
            report_count(report, len(leaving) - 1, len(states) - 1, "layers")
        if name in changes:
            value = changes[name](value)
        if name == layer + "masked_scores":
            mask = twin.bert.additive_mask(inputs.mask, *inputs.ids.shape)
            found[layer + "mask"] = np.broadcast_to(0 if mask is None else mask[0, 0], value.shape[-2:])
        if not name.startswith("layer.") or name.startswith(layer):
            found[name] = value if name == "embeddings.position" and value.ndim == 2 else value[0]
        return value

    sequence_output = twin.bert.forward(
        inputs.ids,
        token_type_ids=inputs.segments,
        attention_mask=inputs.mask,
        head_mask=inputs.gates,
        hook=keep,
    )
    found["hidden_states"] = np.stack(leaving)
    pooled_output = twin.bert.pool(sequence_output, keep) if inputs.has_pooler else None
    if "words" in inputs.heads and twin.mlm is not None:
        twin.mlm.forward(sequence_output[:, inputs.position], keep)
    if "next" in inputs.heads and twin.nsp is not None and pooled_output is not None:
        twin.nsp.forward(pooled_output, keep)
    if "detector" in inputs.heads and twin.detector is not None:
        twin.detector.forward(sequence_output, keep)
    # Copied: some are views of the model's own weights.
    return {name: np.array(value, np.float32) for name, value in found.items()}
