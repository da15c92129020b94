"""The feed-forward neurons of a text: how they fire, which words they speak for, and what a target rests on.

A feed-forward network is a sum over neurons: each adds its row of the second matrix, times how strongly it fires. Below
a layer nothing is computed again, and the last layer only where the target is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from bert_core.config import check_head_number
from bert_core.editing import edited
from bert_core.edits import ScaledNeuron
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import NeuronAttribution, NeuronRun, NeuronWords, Suppression, Target
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.arrays import as_array, fill_pruned_with_nan
from bert_core.run.inputs import check_position, gate_tensor, id_tensor, layer_gates, segment_tensor
from bert_core.run.memory import copies_at_once
from bert_core.run.perturbation import quadrature_points
from bert_core.run.stack import LayerTrace, encoder_layers, run_layers, trace_text
from bert_core.run.targets import check_target, target_values
from bert_core.tokenizer import Encoding
from bert_core.translators import Translators

RANDOM_POOLS = ("all", "active")
ACTIVE_SHARE = 0.1  # the share of a layer's neurons that add most to a text, which are its active ones
MAX_DRAWS = 1_000
POSITIONS_AT_ONCE = 64  # of which every word's probability is held


@validate_arguments
@torch.no_grad()
def neuron_activations(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> NeuronRun:
    """How strongly each feed-forward neuron fires at each token of a text, from one pass.

    head_mask: as for `capture`.
    Source: a feed-forward network as neurons with a key and a value each: Geva 2021 (arXiv:2012.14913).
    """
    activations, lengths, width = [], [], loaded.config.intermediate_size
    for traced in trace_text(loaded, encoding, head_mask, keep=("probs", "neurons")):
        activations.append(_spread(traced.layer, width, traced.neurons))
        lengths.append(_spread(traced.layer, width, traced.layer.output.dense.weight.norm(dim=0)))
    return NeuronRun(encoding, np.stack(activations), np.stack(lengths))


@validate_arguments
@torch.no_grad()
def neuron_words(
    loaded: LoadedModel,
    encoding: Encoding,
    layer: int,
    neurons: Sequence[int],
    positions: Sequence[int] | None = None,
    *,
    translators: Translators | None = None,
    top_k: int = 10,
    head_mask: np.ndarray | None = None,
) -> NeuronWords:
    """Which words some neurons of a layer promote, and which they speak against: what a lens reads as each fires more.

    The exact slope of every word's log-probability with the neuron's activation, at the states of this text, where the
    word head reads what leaves the layer. The word head of BERT is not linear, so that a neuron's vector has no words
    of its own; the layer norm behind the feed-forward network is part of the slope.
    positions: the tokens whose states it starts from; None: all, and the mean of their slopes.
    translators: those of a tuned lens, on any device; None reads the state as it is. top_k: how many words each way.
    head_mask: as for `capture`.
    Raises Refused for a model without a trained word head, and a layer, neuron or position that does not exist.
    Source: Geva 2021 (arXiv:2012.14913), Geva 2022, section 3 (arXiv:2203.14680), who project the vector by itself onto
    the word embeddings; here with the head of BERT, to first order.
    """
    loaded.require_head("words", "its neurons promote no words")
    (layer,) = _layers(loaded, [layer])
    traced = next(islice(trace_text(loaded, encoding, head_mask), layer, None))
    there, output = traced.layer.intermediate.neurons, traced.layer.output
    given = tuple(require_int("a neuron", neuron) for neuron in require_sequence("neurons", neurons, "whole numbers"))
    _check(loaded, [(layer, neuron) for neuron in given])
    places, at = [there.index(neuron) for neuron in given], _positions(encoding, positions)
    some, head = min(require_int("top_k", top_k, 1), loaded.config.vocab_size), loaded.model.cls.predictions
    if translators is not None:
        translators = translators.on_device_of(traced.after_attention)

    def read(summed: Tensor) -> Tensor:
        """What the layer's last norm takes (..., hidden) -> what the word head compares with words (..., embedding)."""
        left = output.LayerNorm(summed)
        compared: Tensor = head.transform(left if translators is None else translators(layer + 1, left))
        return compared

    summed = traced.feed_forward_update + traced.after_attention
    vectors = output.dense.weight.T[places]  # (neuron, hidden)
    pushed = vectors.new_zeros(len(given), head.decoder.in_features)
    shared = vectors.new_zeros(len(given), 1)  # of a log-probability, what all words have in common
    for states in torch.split(summed[list(at)], POSITIONS_AT_ONCE):
        likely = head.decoder(read(states)).softmax(-1) @ head.decoder.weight  # the mean word, (position, embedding)
        moved = _slope(read, states[:, None].repeat(1, len(vectors), 1), vectors.repeat(len(states), 1, 1))
        pushed += moved.sum(0) / len(at)
        shared += torch.einsum("pnh,ph->n", moved, likely)[:, None] / len(at)
    slopes = pushed @ head.decoder.weight.T - shared
    raised, lowered = slopes.topk(some, -1), (-slopes).topk(some, -1)
    return NeuronWords(
        encoding=encoding,
        lens="logit" if translators is None else "tuned",
        layer=layer,
        positions=at,
        neurons=given,
        activations=as_array(traced.neurons[list(at)][:, places].mean(0)),
        raised=raised.indices.cpu().numpy().astype(np.int32),
        raised_slopes=as_array(raised.values),
        lowered=lowered.indices.cpu().numpy().astype(np.int32),
        lowered_slopes=as_array(-lowered.values),
    )


@validate_arguments
@torch.no_grad()
def neuron_gradients(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    *,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    steps: int = 20,
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> NeuronAttribution:
    """Integrated gradients over the neurons of each layer, from none of them firing to as they fire.

    One layer at a time, all of its neurons together, so that their scores sum to the target's value less its value with
    all of them at 0; `gap` is by how much they miss it.
    layers: which; None: all. positions: the tokens whose neurons are turned up from 0; None: all. With the gap alone it
    is what Dai's programs compute, of the target's log-probability; their equation turns neurons up one by one.
    steps: Gauss-Legendre points on the way, computed in batches that fit. head_mask: as for `capture`.
    report: told how many points are done, as for `Progress`.
    Raises Refused for a target that the model has no trained head for, fewer than one step, and a layer or position
    that does not exist.
    Source: Dai 2022, equation 2 (arXiv:2104.08696); Sundararajan 2017 (arXiv:1703.01365).
    """
    check_target(loaded, encoding, target)
    asked, at = _layers(loaded, layers), _positions(encoding, positions)
    along = quadrature_points(steps)
    above, together = UpperLayers(loaded, target, head_mask), copies_at_once(loaded, len(encoding), gradients=True)
    width = loaded.config.intermediate_size
    scores = np.zeros((len(asked), len(encoding), width), np.float32)
    off, value, done = np.empty(len(asked)), 0.0, 0
    for number, traced in enumerate(islice(trace_text(loaded, encoding, head_mask), asked[-1] + 1)):
        if number not in asked:
            continue
        silenced = traced.neurons.clone()
        silenced[list(at)] = 0
        dense = traced.layer.output.dense
        start = dense(silenced)
        way = traced.feed_forward_update - start
        mean = torch.zeros_like(way)
        for some in range(0, steps, together):
            points, weights = (part[some : some + together].to(way) for part in along)
            gradient = above.gradients(traced, start + points[:, None, None] * way)
            mean += torch.einsum("c,csh->sh", weights, gradient)
            done += len(points)
            report_count(report, done, len(asked) * steps, "points")
        place = asked.index(number)
        scores[place] = _spread(traced.layer, width, (mean @ dense.weight) * (traced.neurons - silenced))
        off[place], value = above.values(traced, torch.stack([start, start + way])).tolist()
    return NeuronAttribution(encoding, target, asked, at, scores, value, off)


@validate_arguments
@torch.no_grad()
def suppress_neurons(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    neurons: Sequence[tuple[int, int]],
    *,
    factor: float = 0.0,
    draws: int = 10,
    random_pool: str = "all",
    seed: int = 0,
    head_mask: np.ndarray | None = None,
) -> Suppression:
    """Switch some neurons off, or scale them, and see the target; and the same of as many random ones of their layers.

    neurons: pairs (layer, neuron). factor: as for `Scaled`. draws: of random ones, 1 to 1,000, without these.
    among: where they are drawn from: "all" of the layer, most of which hardly fire, or the "active" tenth of it that
    adds most to this text, which is the harder test. head_mask: as for `capture`.
    Neurons that were chosen for their score must move the target further than random ones, else the score means little.
    Raises Refused for a target or a neuron that does not exist, and where too few others are left to draw from.
    Source: suppression: Dai 2022, section 4.3 (arXiv:2104.08696); the critique: Niu 2024 (arXiv:2405.02421).
    """
    check_target(loaded, encoding, target)
    given = require_sequence("neurons", neurons, "pairs (layer, neuron)")
    pairs = tuple(dict.fromkeys(_pair(pair) for pair in given))
    _check(loaded, pairs)
    draws, rng = require_int("draws", draws, 1, MAX_DRAWS), np.random.default_rng(require_int("seed", seed))
    if random_pool not in RANDOM_POOLS:
        raise Refused(f"among {short_repr(random_pool)} is unknown: one of {', '.join(RANDOM_POOLS)}")
    own = _others(loaded, encoding, pairs, random_pool, head_mask)

    def value(off: Sequence[tuple[int, int]]) -> float:
        changed = edited(loaded, [ScaledNeuron(layer, neuron, factor) for layer, neuron in off])
        states = changed.model.bert(
            id_tensor(changed, encoding),
            token_type_ids=segment_tensor(changed, encoding),
            head_mask=gate_tensor(changed, head_mask),
            positions=torch.tensor([target.rows], device=loaded.device),
        ).last_hidden_state
        return target_values(changed, target, states).item()

    random = [
        value([
            (layer, int(neuron))
            for layer, (many, others) in own.items()
            for neuron in rng.choice(others, many, replace=False)
        ])
        for _ in range(draws)
    ]  # fmt: skip
    return Suppression(
        encoding,
        target,
        pairs,
        ScaledNeuron(*pairs[0], factor).factor,
        random_pool,
        value([]),
        value(pairs),
        np.array(random),
    )


def _check(loaded: LoadedModel, pairs: Sequence[tuple[int, int]]) -> None:
    """Raise Refused unless there are neurons (layer, neuron), and the model has them."""
    if not pairs:
        raise Refused("there are no neurons: name at least one")
    edited(loaded, [ScaledNeuron(*pair) for pair in pairs])


def _pair(pair: object) -> tuple[int, int]:
    two = require_sequence("a neuron", pair, "two numbers, (layer, neuron)")
    if len(two) != 2:
        raise Refused(f"a neuron is {short_repr(pair)}: it must be a pair (layer, neuron)")
    return require_int("the layer of a neuron", two[0]), require_int("the number of a neuron", two[1])


def _others(
    loaded: LoadedModel, encoding: Encoding, pairs: Sequence[tuple[int, int]], among: str, head_mask: np.ndarray | None
) -> dict[int, tuple[int, list[int]]]:
    """Of each layer how many neurons were chosen, and from which others random ones are drawn."""
    run = neuron_activations(loaded, encoding, head_mask=head_mask) if among == "active" else None
    found = {}
    for layer in sorted({layer for layer, _ in pairs}):
        own = {neuron for at, neuron in pairs if at == layer}
        there = list(encoder_layers(loaded)[layer].intermediate.neurons)
        if run is not None:
            added = np.abs(run.contributions[layer]).mean(0)[there]
            there = [
                there[place] for place in np.argsort(-added, kind="stable")[: int(np.ceil(ACTIVE_SHARE * len(there)))]
            ]
        others = [neuron for neuron in there if neuron not in own]
        if len(others) < len(own):
            what = "neurons" if among == "all" else "active neurons"
            raise Refused(
                f"{len(own)} neurons of layer {layer} were chosen, and {len(others)} other {what} are left to draw "
                "random ones from: choose fewer"
            )
        found[layer] = len(own), others
    return found


def _slope(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> Tensor:
    """How fast a function of vectors moves at some points along some directions, each of the shape of the points.

    By two passes back: PyTorch's pass forward (`torch.func.jvp`) is one for all threads, and a second one is an error.
    """
    with torch.enable_grad():
        leaf = at.detach().requires_grad_()
        left = function(leaf)
        back = torch.zeros_like(left).requires_grad_()
        (pulled,) = torch.autograd.grad(left, leaf, back, create_graph=True)
        (moved,) = torch.autograd.grad(pulled, back, along)
    return moved


class UpperLayers:
    """A target from what the feed-forward network of a layer gives: the rest of that layer, and those above it."""

    def __init__(self, loaded: LoadedModel, target: Target, head_mask: np.ndarray | None) -> None:
        self.loaded, self.target, self.gates = loaded, target, layer_gates(loaded, head_mask)
        self.layers, self.asked = encoder_layers(loaded), torch.tensor([target.rows], device=loaded.device)

    def values(self, traced: LayerTrace, fed: Tensor) -> Tensor:
        """(copies,) the target, for fed (copies, seq, hidden) in a layer that was traced."""
        states: Tensor = traced.layer.output.LayerNorm(fed + traced.after_attention)
        start = traced.layer.layer_num + 1
        states = run_layers(self.layers, states, start, gates=self.gates, positions=self.asked)
        return target_values(self.loaded, self.target, states)

    def gradients(self, traced: LayerTrace, fed: Tensor) -> Tensor:
        """Of the target of each copy, at what the feed-forward network gives: (copies, seq, hidden)."""
        with torch.enable_grad():
            leaf = fed.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.values(traced, leaf).sum(), leaf)
        return gradient


def _spread(layer: BertLayer, width: int, values: Tensor) -> np.ndarray:
    """Values of the neurons that a layer has (..., neuron), each under its own number of so many; NaN for others."""
    return fill_pruned_with_nan(as_array(values).T, layer.intermediate.neurons, width).T


def _layers(loaded: LoadedModel, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Layers that exist, rising; None: all."""
    count = loaded.config.num_hidden_layers
    given = range(count) if layers is None else require_sequence("layers", layers, "whole numbers")
    numbers = sorted({require_int("a layer", layer) for layer in given})
    if not numbers:
        raise Refused("there are no layers: name at least one, or give None for all")
    check_head_number(numbers[-1], 0, count, 1)
    return tuple(numbers)


def _positions(encoding: Encoding, positions: Sequence[int] | None) -> tuple[int, ...]:
    """Positions that exist, rising; None: all."""
    given = range(len(encoding)) if positions is None else require_sequence("positions", positions, "whole numbers")
    at = tuple(sorted({check_position(encoding, position) for position in given}))
    if not at:
        raise Refused("there are no positions: name at least one, or give None for all")
    return at
