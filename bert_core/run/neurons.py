"""Feed-forward neurons: activations, promoted words, attributions of a target, and suppression.

The output of a feed-forward network is a sum over neurons: the activation of each neuron times its row of the second
matrix. Layers below an analysed layer are not computed again, and the last layer only at the positions of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from bert_core.config import check_head_number
from bert_core.deprecation import renamed_parameters
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
from bert_core.run.targets import check_target, target_rows, target_values
from bert_core.tokenizer import Encoding
from bert_core.translators import Translators

RANDOM_POOLS = ("all", "active")
ACTIVE_SHARE = 0.1  # the active neurons of a layer: the tenth that contributes most to a text
MAX_DRAWS = 1_000
POSITIONS_AT_ONCE = 64  # positions whose probabilities of all tokens are in memory at the same time


@validate_arguments
@torch.no_grad()
def neuron_activations(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> NeuronRun:
    """Compute the activation of each feed-forward neuron at each token of a text, from one pass.

    The neurons of a gated network have two inputs, which are computed as well.
    head_mask: as for `capture`.
    Source: Geva 2021 (arXiv:2012.14913), for neurons as pairs of a key and a value; Shazeer 2020 (arXiv:2002.05202)
    for gated networks.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> run = bert_core.neuron_activations(loaded, loaded.tokenizer.encode("She opened the [MASK]."))
    >>> run.activations.shape  # (layer, seq, neuron)
    (6, 7, 1536)
    """
    activations, lengths, width = [], [], loaded.config.intermediate_size
    is_gated = loaded.config.layer_design.gated
    inputs: list[tuple[np.ndarray, ...]] = []  # of each layer
    for traced in trace_text(loaded, encoding, head_mask, keep=("probs", "after_attention", "neurons")):
        activations.append(_restore_pruned(traced.layer, width, traced.neurons))
        lengths.append(_restore_pruned(traced.layer, width, traced.layer.output.dense.weight.norm(dim=0)))
        if is_gated:
            pair = traced.layer.intermediate.gated_inputs(traced.after_attention)
            inputs.append(tuple(_restore_pruned(traced.layer, width, values) for values in pair))
    activated, gates = map(np.stack, zip(*inputs, strict=True)) if is_gated else (None, None)
    return NeuronRun(encoding, np.stack(activations), np.stack(lengths), activated, gates)


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
    """Find the words whose probability some neurons of a layer raise or lower the most, according to a lens.

    The slope of a word is the exact derivative of its log-probability with respect to the activation of the neuron. The
    MLM head predicts this probability from the output of the layer. It is not linear, so the derivative depends on the
    hidden states of the text. The layer norm after the feed-forward network is included.
    layer: the layer, counted from zero. neurons: numbers of the neurons in this layer.
    positions: positions at which the slopes are computed and averaged; None: all.
    translators: translators of a tuned lens, on any device; None gives the logit lens.
    top_k: number of raised and of lowered words. head_mask: as for `capture`.
    Raises Refused for a model without a trained MLM head, and for a layer, neuron or position that does not exist.
    Source: Geva 2021 (arXiv:2012.14913) and Geva 2022, section 3 (arXiv:2203.14680), who project the neuron's vector
    onto the word embeddings; here the MLM head of BERT is applied to first order.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("He drank a cup of [MASK] with milk.")
    >>> words = bert_core.neuron_words(loaded, encoding, 5, [923, 541], encoding.mask_positions, top_k=3)
    >>> words.raised.shape, bool((words.raised_slopes > 0).all())  # (neuron, rank)
    ((2, 3), True)
    """
    loaded.require_head("words", "its neurons cannot be related to words")
    (layer,) = _layers(loaded, [layer])
    traced = next(islice(trace_text(loaded, encoding, head_mask), layer, None))
    remaining, output = traced.layer.intermediate.neurons, traced.layer.output
    numbers = tuple(require_int("a neuron", neuron) for neuron in require_sequence("neurons", neurons, "whole numbers"))
    _check_neurons(loaded, [(layer, neuron) for neuron in numbers])
    indices, selected = [remaining.index(neuron) for neuron in numbers], _positions(encoding, positions)
    word_count, head = min(require_int("top_k", top_k, 1), loaded.config.vocab_size), loaded.model.cls.predictions
    decoder_input = _decoder_input(loaded, traced, layer, translators)
    norm_inputs = traced.feed_forward_update + traced.after_attention
    vectors = output.dense.weight.T[indices]  # (neuron, hidden)
    direction = vectors.new_zeros(len(numbers), head.decoder.in_features)
    normaliser = vectors.new_zeros(len(numbers), 1)  # slope of the softmax normaliser, equal for all words
    for states in torch.split(norm_inputs[list(selected)], POSITIONS_AT_ONCE):
        # (position, embedding), the mean of the word embeddings, weighted by the probabilities of their words
        mean_embedding = head.decoder(decoder_input(states)).softmax(-1) @ head.decoder.weight
        derivatives = _directional_derivatives(
            decoder_input, states[:, None].repeat(1, len(vectors), 1), vectors.repeat(len(states), 1, 1)
        )
        direction += derivatives.sum(0) / len(selected)
        normaliser += torch.einsum("pnh,ph->n", derivatives, mean_embedding)[:, None] / len(selected)
    slopes = direction @ head.decoder.weight.T - normaliser
    raised, lowered = slopes.topk(word_count, -1), (-slopes).topk(word_count, -1)
    return NeuronWords(
        encoding=encoding,
        lens="logit" if translators is None else "tuned",
        layer=layer,
        positions=selected,
        neurons=numbers,
        activations=as_array(traced.neurons[list(selected)][:, indices].mean(0)),
        raised=raised.indices.cpu().numpy().astype(np.int32),
        raised_slopes=as_array(raised.values),
        lowered=lowered.indices.cpu().numpy().astype(np.int32),
        lowered_slopes=as_array(-lowered.values),
    )


@torch.no_grad()
def promoted_words(
    loaded: LoadedModel,
    encoding: Encoding,
    neurons: np.ndarray,
    *,
    translators: Translators | None = None,
    head_mask: np.ndarray | None = None,
) -> np.ndarray:
    """Find the word that one neuron of each layer raises most at each token, from one pass.

    neurons: (layer, token) numbers of the neurons, -1 for none. translators: as for `neuron_words`; the MLM head alone
    reads the last layer. Returns the numbers of the words (layer, token), -1 for none.
    Raises Refused for a model without a trained MLM head.
    """
    loaded.require_head("words", "its neurons cannot be related to words")
    words, embeddings = np.full(neurons.shape, -1), loaded.model.cls.predictions.decoder.weight
    for layer, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        remaining, output = traced.layer.intermediate.neurons, traced.layer.output
        decoder_input = _decoder_input(loaded, traced, layer, None if layer == len(neurons) - 1 else translators)
        norm_inputs = traced.feed_forward_update + traced.after_attention
        existing = np.flatnonzero(neurons[layer] >= 0)
        for positions in np.array_split(existing, -(-len(existing) // POSITIONS_AT_ONCE) or 1):
            vectors = output.dense.weight.T[[remaining.index(int(neuron)) for neuron in neurons[layer, positions]]]
            derivatives = _directional_derivatives(decoder_input, norm_inputs[positions], vectors)
            words[layer, positions] = (derivatives @ embeddings.T).argmax(-1).cpu().numpy()
    return words


def _decoder_input(
    loaded: LoadedModel, traced: LayerTrace, layer: int, translators: Translators | None
) -> Callable[[Tensor], Tensor]:
    """Return a function from inputs of a layer's last layer norm (..., hidden) to inputs of the MLM head's decoder."""
    if translators is not None:
        translators = translators.on_device_of(traced.after_attention)

    def decoder_input(norm_input: Tensor) -> Tensor:
        states = traced.layer.output.LayerNorm(norm_input)
        states = states if translators is None else translators(layer + 1, states)
        if layer < loaded.config.num_hidden_layers - 1:
            states = loaded.model.bert.encoder.final_norm(states)
        transformed: Tensor = loaded.model.cls.predictions.transform(states)
        return transformed

    return decoder_input


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
    """Compute integrated gradients over the neurons of each layer, from activations of 0 to those of the text.

    All neurons of a layer change together, one layer at a time. The scores of a layer therefore sum to the difference
    between the target and its value with all of these neurons at 0; `gap` is the error of this sum.
    layers: the layers, counted from zero; None: all.
    positions: positions whose neurons change; None: all. With the masked position alone the scores are those of the
        program of Dai 2022, for the log-probability of the target; their equation changes neurons one by one.
    steps: number of Gauss-Legendre points on the path. head_mask: as for `capture`.
    report: receives the number of points that are done, see `Progress`.
    Raises Refused for a target without a trained head, a wrong number of steps, and a layer or position that does not
    exist.
    Source: Dai 2022, equation 2 (arXiv:2104.08696); Sundararajan 2017 (arXiv:1703.01365).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> attribution = bert_core.neuron_gradients(loaded, encoding, target, layers=[4, 5])
    >>> attribution.scores.shape, bool((abs(attribution.gap) < 0.1).all())
    ((2, 10, 1536), True)
    """
    check_target(loaded, encoding, target)
    numbers, selected = _layers(loaded, layers), _positions(encoding, positions)
    rule = quadrature_points(steps)
    upper_layers = UpperLayers(loaded, encoding, target, head_mask)
    copies_per_batch = copies_at_once(loaded, len(encoding), gradients=True)
    width = loaded.config.intermediate_size
    scores = np.zeros((len(numbers), len(encoding), width), np.float32)
    baseline_values, value, finished = np.empty(len(numbers)), 0.0, 0
    for number, traced in enumerate(islice(trace_text(loaded, encoding, head_mask), numbers[-1] + 1)):
        if number not in numbers:
            continue
        baseline_neurons = traced.neurons.clone()
        baseline_neurons[list(selected)] = 0
        dense = traced.layer.output.dense
        start = dense(baseline_neurons)
        difference = traced.feed_forward_update - start
        mean = torch.zeros_like(difference)
        for first_point in range(0, steps, copies_per_batch):
            points, weights = (part[first_point : first_point + copies_per_batch].to(difference) for part in rule)
            gradient = upper_layers.gradients(traced, start + points[:, None, None] * difference)
            mean += torch.einsum("c,csh->sh", weights, gradient)
            finished += len(points)
            report_count(report, finished, len(numbers) * steps, "points")
        index = numbers.index(number)
        scores[index] = _restore_pruned(
            traced.layer, width, (mean @ dense.weight) * (traced.neurons - baseline_neurons)
        )
        baseline_values[index], value = upper_layers.values(traced, torch.stack([start, start + difference])).tolist()
    return NeuronAttribution(encoding, target, numbers, selected, scores, value, baseline_values)


@renamed_parameters(among="random_pool")
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
    """Scale the activations of some neurons, and of as many random neurons of the same layers, and compare the target.

    Neurons that were selected by a score should change the target more than random ones, otherwise the score means
    little.
    neurons: pairs (layer, neuron). factor: multiplies their activations; 0 switches them off.
    draws: number of random sets of neurons, 1 to `MAX_DRAWS`, which never contain the given neurons.
    random_pool: the neurons from which the sets are drawn. "all" are all neurons of a layer, most of which are hardly
        active. "active" is the tenth that contributes most to this text, which is the harder test.
    seed: of the random sets. head_mask: as for `capture`.
    Raises Refused for a target or a neuron that does not exist, and if the pool has too few other neurons.
    Source: Dai 2022, section 4.3 (arXiv:2104.08696) for suppression; Niu 2024 (arXiv:2405.02421) for its critique.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> suppression = bert_core.suppress_neurons(loaded, encoding, target, [(5, 923), (5, 541), (5, 1191)])
    >>> suppression.random.shape, bool(suppression.value < suppression.random.min())
    ((10,), True)
    """
    check_target(loaded, encoding, target)
    items = require_sequence("neurons", neurons, "pairs (layer, neuron)")
    pairs = tuple(dict.fromkeys(_pair(pair) for pair in items))
    _check_neurons(loaded, pairs)
    draws, rng = require_int("draws", draws, 1, MAX_DRAWS), np.random.default_rng(require_int("seed", seed))
    if random_pool not in RANDOM_POOLS:
        raise Refused(f"random_pool {short_repr(random_pool)} is unknown: one of {', '.join(RANDOM_POOLS)}")
    candidates = _random_candidates(loaded, encoding, pairs, random_pool, head_mask)

    def value(scaled: Sequence[tuple[int, int]]) -> float:
        changed = edited(loaded, [ScaledNeuron(layer, neuron, factor) for layer, neuron in scaled])
        states = changed.model.bert(
            id_tensor(changed, encoding),
            token_type_ids=segment_tensor(changed, encoding),
            head_mask=gate_tensor(changed, head_mask),
            positions=torch.tensor([target_rows(changed, encoding, target)], device=loaded.device),
        ).last_hidden_state
        return target_values(changed, encoding, target, states).item()

    random = [
        value([
            (layer, int(neuron))
            for layer, (count, pool) in candidates.items()
            for neuron in rng.choice(pool, count, replace=False)
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


def _check_neurons(loaded: LoadedModel, pairs: Sequence[tuple[int, int]]) -> None:
    """Raise Refused for an empty list of neurons (layer, neuron), or for one that the model does not have."""
    if not pairs:
        raise Refused("neurons is empty: give at least one")
    edited(loaded, [ScaledNeuron(*pair) for pair in pairs])


def _pair(pair: object) -> tuple[int, int]:
    """Return a neuron as two ints (layer, neuron). Raises Refused for another value."""
    numbers = require_sequence("a neuron", pair, "two numbers, (layer, neuron)")
    if len(numbers) != 2:
        raise Refused(f"a neuron is {short_repr(pair)}: it must be a pair (layer, neuron)")
    return require_int("the layer of a neuron", numbers[0]), require_int("the number of a neuron", numbers[1])


def _random_candidates(
    loaded: LoadedModel,
    encoding: Encoding,
    pairs: Sequence[tuple[int, int]],
    random_pool: str,
    head_mask: np.ndarray | None,
) -> dict[int, tuple[int, list[int]]]:
    """Return, for each layer, the number of given neurons and the other neurons from which random ones are drawn."""
    run = neuron_activations(loaded, encoding, head_mask=head_mask) if random_pool == "active" else None
    candidates = {}
    for layer in sorted({layer for layer, _ in pairs}):
        given_neurons = {neuron for neuron_layer, neuron in pairs if neuron_layer == layer}
        pool = list(encoder_layers(loaded)[layer].intermediate.neurons)
        if run is not None:
            contributions = np.abs(run.contributions[layer]).mean(0)[pool]
            pool = [
                pool[index]
                for index in np.argsort(-contributions, kind="stable")[: int(np.ceil(ACTIVE_SHARE * len(pool)))]
            ]
        other_neurons = [neuron for neuron in pool if neuron not in given_neurons]
        if len(other_neurons) < len(given_neurons):
            pool_name = "neurons" if random_pool == "all" else "active neurons"
            raise Refused(
                f"{len(given_neurons)} neurons of layer {layer} are given and only {len(other_neurons)} other "
                f"{pool_name} are left for random draws: give fewer neurons"
            )
        candidates[layer] = len(given_neurons), other_neurons
    return candidates


def _directional_derivatives(function: Callable[[Tensor], Tensor], points: Tensor, directions: Tensor) -> Tensor:
    """Compute the directional derivatives of a function at some points, (..., output size).

    points, directions: the same shape (..., input size).
    Two backward passes compute the product, since `torch.func.jvp` cannot be used by two threads at the same time.
    """
    with torch.enable_grad():
        leaf = points.detach().requires_grad_()
        output = function(leaf)
        weights = torch.zeros_like(output).requires_grad_()
        (gradient,) = torch.autograd.grad(output, leaf, weights, create_graph=True)
        (derivatives,) = torch.autograd.grad(gradient, weights, directions)
    return derivatives


class UpperLayers:
    """Computation of a target from the output of a layer's feed-forward network, through all layers above."""

    def __init__(self, loaded: LoadedModel, encoding: Encoding, target: Target, head_mask: np.ndarray | None) -> None:
        self.loaded, self.encoding, self.target = loaded, encoding, target
        self.gates = layer_gates(loaded, head_mask)
        self.layers = encoder_layers(loaded)
        self.rows = torch.tensor([target_rows(loaded, encoding, target)], device=loaded.device)

    def values(self, traced: LayerTrace, update: Tensor) -> Tensor:
        """Compute the target for copies of a text, (copies,).

        traced: the activations of the layer. update: (copies, seq, hidden), the output of its feed-forward network.
        """
        states: Tensor = traced.layer.output.LayerNorm(update + traced.after_attention)
        start = traced.layer.layer_num + 1
        states = run_layers(self.layers, states, start, gates=self.gates, positions=self.rows)
        return target_values(self.loaded, self.encoding, self.target, states)

    def gradients(self, traced: LayerTrace, update: Tensor) -> Tensor:
        """Compute the gradient of the target of each copy with respect to `update`, (copies, seq, hidden)."""
        with torch.enable_grad():
            leaf = update.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.values(traced, leaf).sum(), leaf)
        return gradient


def _restore_pruned(layer: BertLayer, width: int, values: Tensor) -> np.ndarray:
    """Place values of the remaining neurons of a layer at their original numbers, (..., width); NaN if pruned."""
    return fill_pruned_with_nan(as_array(values).T, layer.intermediate.neurons, width).T


def _layers(loaded: LoadedModel, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Return layers in ascending order; None gives all. Raises Refused for an empty list or a missing layer."""
    count = loaded.config.num_hidden_layers
    requested = range(count) if layers is None else require_sequence("layers", layers, "whole numbers")
    numbers = sorted({require_int("a layer", layer) for layer in requested})
    if not numbers:
        raise Refused("layers is empty: give at least one, or None for all")
    check_head_number(numbers[-1], 0, count, 1)
    return tuple(numbers)


def _positions(encoding: Encoding, positions: Sequence[int] | None) -> tuple[int, ...]:
    """Return positions in ascending order; None gives all. Raises Refused for an empty list or a missing position."""
    requested = range(len(encoding)) if positions is None else require_sequence("positions", positions, "whole numbers")
    numbers = tuple(sorted({check_position(encoding, position) for position in requested}))
    if not numbers:
        raise Refused("positions is empty: give at least one, or None for all")
    return numbers
