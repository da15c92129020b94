"""bert_core/run/neurons.py, analysis/neurons.py: neurons beside captum, hooks, small steps and edited models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bert_core
from bert_core import (
    AttentionKnockout,
    Encoding,
    LoadedModel,
    NeuronRun,
    Refused,
    ScaledNeuron,
    Target,
    Translators,
    edited,
)
from bert_core.run.neurons import neuron_activations, neuron_gradients, neuron_words, suppress_neurons
from tests.near import assert_near

GATES = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]])
KINDS = ("mlm", "contrast", "nsp", "class")


@pytest.fixture(scope="module")
def tiny(tiny_classifier_folder: Path) -> LoadedModel:
    """The tiny model with all its heads."""
    return bert_core.load(str(tiny_classifier_folder), device="cpu")


@pytest.fixture(scope="module")
def text(tiny: LoadedModel) -> Encoding:
    """A pair with a gap."""
    return tiny.tokenizer.encode("the cat sat on the [MASK] .", "it was old")


def target_of(kind: str, loaded: LoadedModel, text: Encoding) -> Target:
    one, other = map(loaded.tokenizer.id_of, ("door", "city"))
    at = text.mask_positions[0]
    return {
        "mlm": Target("mlm", at, one),
        "contrast": Target("contrast", at, one, against=other),
        "nsp": Target("nsp"),
        "class": Target("class", label=2),
    }[kind]


def value_of(loaded: LoadedModel, text: Encoding, target: Target, **given: Any) -> float:
    """The target by the library's own whole pass."""
    value = bert_core.capture(loaded, text, target=target, **given).target_value
    assert value is not None
    return value


def in_double(loaded: LoadedModel) -> LoadedModel:
    return replace(loaded, model=copy.deepcopy(loaded.model).double(), task_models={})


def layer_of(loaded: LoadedModel, layer: int) -> Any:
    return loaded.model.bert.encoder.layer[layer]


# ---------------------------------------------------------------------------- how they fire


def test_activations_are_what_a_layer_hands_on(tiny: LoadedModel, text: Encoding) -> None:
    """Of every layer, as a hook of torch reads them; with gates, cuts and scaled neurons too."""
    for loaded, gates in changes(tiny):
        found = neuron_activations(loaded, text, head_mask=gates)
        for layer in range(2):
            outputs: list[Tensor] = []
            module = layer_of(loaded, layer).intermediate
            hook = module.register_forward_hook(lambda _, __, out, outputs=outputs: outputs.append(out[0]))
            loaded.model.bert(
                torch.tensor([text.input_ids]),
                token_type_ids=torch.tensor([text.token_type_ids]),
                head_mask=None if gates is None else torch.tensor(gates, dtype=torch.float32),
            )
            hook.remove()
            assert_near(found.activations[layer], outputs[0])


def changes(tiny: LoadedModel) -> list[tuple[LoadedModel, np.ndarray | None]]:
    """The model as it is, with gates, and with a cut and a scaled neuron."""
    changed = edited(tiny, [AttentionKnockout((3,), (1, 2), layers=(0,)), ScaledNeuron(0, 5, 3.0)])
    return [(tiny, None), (tiny, GATES), (changed, None)]


@pytest.mark.slow
def test_activations_are_those_of_captum(tiny: LoadedModel, text: Encoding) -> None:
    """The same, as captum's LayerActivation reads them."""
    from captum.attr import LayerActivation

    for loaded, gates in changes(tiny):
        found = neuron_activations(loaded, text, head_mask=gates)
        mask = None if gates is None else torch.tensor(gates, dtype=torch.float32)

        def run(ids: Tensor, loaded: LoadedModel = loaded, mask: Tensor | None = mask) -> Tensor:
            states: Tensor = loaded.model.bert(
                ids, token_type_ids=torch.tensor([text.token_type_ids]), head_mask=mask
            ).last_hidden_state
            return states[:, 0, 0]

        for layer in range(2):
            theirs = LayerActivation(run, layer_of(loaded, layer).intermediate).attribute(
                torch.tensor([text.input_ids])
            )
            assert_near(found.activations[layer], theirs[0])


def test_what_neurons_add_is_the_feed_forward_network(tiny: LoadedModel, text: Encoding) -> None:
    """The rows of the second matrix, each times its activation, sum to the network's output less its bias."""
    found = neuron_activations(tiny, text)
    given: list[Tensor] = []
    dense = layer_of(tiny, 0).output.dense
    hook = dense.register_forward_hook(lambda _, __, out: given.append(out[0]))
    bert_core.capture(tiny, text)
    hook.remove()
    rows = dense.weight.T.numpy()  # (neuron, hidden)
    assert_near(found.activations[0] @ rows, given[0] - dense.bias)
    lengths = np.linalg.norm(found.activations[0][..., None] * rows, axis=-1)
    assert_near(np.abs(found.contributions[0]), lengths)
    assert (np.sign(found.contributions) == np.sign(found.activations)).all()


def test_the_strongest_worked_by_hand() -> None:
    """By size, signed, ties in their order, the share of all; one that is gone comes last."""
    values = np.array([[[1.0, -4.0, np.nan, 3.0], [0.0, 0.0, 0.0, 0.0]]])
    found = bert_core.strongest_neurons(values, 2)
    assert found.neurons[0, 0].tolist() == [1, 3] and found.values[0, 0].tolist() == [-4.0, 3.0]
    assert found.share[0, 0] == 7 / 8 and np.isnan(found.share[0, 1])
    every = bert_core.strongest_neurons(values, 99)
    assert every.neurons[0, 0].tolist() == [1, 3, 0, -1] and np.isnan(every.values[0, 0, 3])
    gone = bert_core.strongest_neurons(np.full((1, 1, 2), np.nan))
    assert (gone.neurons == -1).all() and np.isnan(gone.share).all()
    with pytest.raises(Refused, match="infinite"):
        bert_core.strongest_neurons(np.array([[[np.inf, 1.0]]]))


def test_what_they_add_and_how_they_fire_rank_differently() -> None:
    """A neuron with a short vector stands behind, however strongly it fires."""
    run = NeuronRun(None, np.array([[[5.0, 2.0]]]), np.array([[0.1, 1.0]]))  # type: ignore[arg-type]
    assert bert_core.strongest_neurons(run.activations, 1).neurons[0, 0].tolist() == [0]
    assert bert_core.strongest_neurons(run.contributions, 1).neurons[0, 0].tolist() == [1]


# ---------------------------------------------------------------------------- which words they promote


@pytest.mark.parametrize("lens", ["logit", "tuned"])
@pytest.mark.parametrize("layer", [0, 1])
def test_slopes_of_words_are_those_of_small_steps(tiny: LoadedModel, text: Encoding, layer: int, lens: str) -> None:
    """Every word's, in float64, where the neuron alone is turned up and down by a little in a hooked pass."""
    loaded = in_double(tiny)
    translators = Translators(loaded.config).double() if lens == "tuned" else None
    if translators is not None:
        torch.manual_seed(3)
        for parameter in translators.parameters():
            nn.init.normal_(parameter, std=0.1)
    neurons, at = (7, 30), text.mask_positions[0]
    found = neuron_words(loaded, text, layer, neurons, [at], translators=translators, top_k=10**6, head_mask=GATES)
    assert found.lens == lens and found.raised.shape == (2, loaded.config.vocab_size)
    for row, neuron in enumerate(neurons):

        def read(step: float, neuron: int = neuron) -> Tensor:
            def turned(_: object, __: object, out: Tensor) -> Tensor:
                changed = out.clone()
                changed[:, at, neuron] += step
                return changed

            hook = layer_of(loaded, layer).intermediate.register_forward_hook(turned)
            states = loaded.model.bert(
                torch.tensor([text.input_ids]),
                token_type_ids=torch.tensor([text.token_type_ids]),
                head_mask=torch.tensor(GATES),
                output_hidden_states=True,
            ).hidden_states[layer + 1][0, at]
            hook.remove()
            if translators is not None:
                states = translators(layer + 1, states)
            scores: Tensor = loaded.model.cls.predictions(states).log_softmax(-1)
            return scores.detach()

        slopes = (read(1e-5) - read(-1e-5)) / 2e-5
        assert_near(found.raised_slopes[row], slopes[found.raised[row].tolist()])
        assert_near(found.lowered_slopes[row], slopes[found.lowered[row].tolist()])
        assert found.raised[row].tolist() == slopes.argsort(descending=True).tolist()
        # Probabilities sum to 1 however strongly it fires.
        assert abs(float((read(0.0)[found.raised[row].tolist()].exp().numpy() * found.raised_slopes[row]).sum())) < 1e-5


def test_slopes_of_several_tokens_are_their_mean(tiny: LoadedModel, text: Encoding, monkeypatch: Any) -> None:
    """Of all tokens too, and in other batches."""
    every = {"top_k": 10**6}
    alone = [neuron_words(tiny, text, 0, [3], [at], **every) for at in (1, 4)]
    both = neuron_words(tiny, text, 0, [3], [4, 1], **every)
    order = [np.argsort(one.raised[0]) for one in (*alone, both)]
    slopes = [one.raised_slopes[0][places] for one, places in zip((*alone, both), order, strict=True)]
    assert_near(slopes[2], (slopes[0] + slopes[1]) / 2)
    assert_near(both.activations, (alone[0].activations + alone[1].activations) / 2)
    assert both.positions == (1, 4)
    whole = neuron_words(tiny, text, 0, [3, 9])
    monkeypatch.setattr("bert_core.run.neurons.POSITIONS_AT_ONCE", 2)
    again = neuron_words(tiny, text, 0, [3, 9])
    assert_near(again.raised_slopes, whole.raised_slopes)
    assert whole.positions == tuple(range(len(text)))


def test_slopes_are_found_in_many_threads(tiny: LoadedModel, text: Encoding) -> None:
    """At a time, on one model, and no gradient of a weight is left behind."""
    alone = [neuron_words(tiny, text, 0, [neuron]).raised_slopes for neuron in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda neuron: neuron_words(tiny, text, 0, [neuron]).raised_slopes, range(8)))
    for one, other in zip(alone, together, strict=True):
        assert_near(other, one)
    assert all(parameter.grad is None for parameter in tiny.model.parameters())


# ---------------------------------------------------------------------------- what a target rests on


class Times(nn.Module):
    """A layer's neurons, times a number of each copy: what captum takes from 0 to 1."""

    def __init__(self, intermediate: nn.Module) -> None:
        super().__init__()
        self.intermediate, self.by = intermediate, torch.ones(1)

    def forward(self, states: Tensor) -> Tensor:
        out: Tensor = self.intermediate(states) * self.by[:, None, None]
        return out


def by_factor(
    loaded: LoadedModel, text: Encoding, target: Target, layer: int
) -> tuple[Callable[[Tensor], Tensor], Any]:
    """The target as a function of what a layer's neurons are multiplied by, and the module that they leave."""
    model = copy.deepcopy(loaded.model if target.kind != "class" else loaded.task_models["classifier"])
    assert model is not None
    model.bert.encoder.layer[layer].intermediate = times = Times(model.bert.encoder.layer[layer].intermediate)

    def value(by: Tensor) -> Tensor:
        times.by = by
        ids, segments = (torch.tensor([part]).expand(len(by), -1) for part in (text.input_ids, text.token_type_ids))
        outputs = model(ids, token_type_ids=segments)
        if target.kind == "class":
            logits: Tensor = outputs.logits
            return logits[:, target.label]
        if target.kind == "nsp":
            return outputs.seq_relationship_logits @ torch.tensor([1.0, -1.0])
        scores: Tensor = outputs.prediction_logits[:, target.position].log_softmax(-1)
        if target.kind == "contrast":
            return scores[:, target.token_id] - scores[:, target.against]
        return scores[:, target.token_id]

    return value, times


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [0, 1])
def test_integrated_gradients_are_those_of_captum(tiny: LoadedModel, text: Encoding, layer: int, kind: str) -> None:
    """Of every neuron at every token; and captum's conductance of one neuron is the same number."""
    from captum.attr import LayerIntegratedGradients, NeuronConductance

    target = target_of(kind, tiny, text)
    found = neuron_gradients(tiny, text, target, layers=[layer], steps=9)
    value, times = by_factor(tiny, text, target, layer)
    on, off = torch.ones(1), torch.zeros(1)
    more = {"n_steps": 9, "method": "gausslegendre"}
    theirs = LayerIntegratedGradients(value, times).attribute(on, off, **more)
    assert_near(found.scores[0], theirs[0])
    assert_near([found.target_value, found.off_values[0]], torch.cat([value(on), value(off)]))
    at, neuron = np.unravel_index(np.abs(found.scores[0]).argmax(), found.scores[0].shape)
    conducted = NeuronConductance(value, times).attribute(on, (int(at), int(neuron)), off, **more)
    assert_near(conducted[0], found.scores[0, at, neuron])


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_layer_sum_to_its_way_from_nothing(tiny: LoadedModel, text: Encoding, kind: str) -> None:
    """With every neuron of the layer switched off by edits at the other end; with gates and cuts too."""
    target = target_of(kind, tiny, text)
    cut = edited(tiny, [AttentionKnockout((3,), (1, 2), layers=(1,)), ScaledNeuron(0, 5, 3.0)])
    for loaded, gates in ((tiny, None), (tiny, GATES), (cut, None)):
        found = neuron_gradients(loaded, text, target, steps=60, head_mask=gates)
        assert found.scores.shape == (2, len(text), 64) and found.layers == (0, 1)
        assert_near(found.target_value, value_of(loaded, text, target, head_mask=gates))
        for layer in range(2):
            off = edited(loaded, [ScaledNeuron(layer, neuron) for neuron in range(64)])
            assert_near(found.off_values[layer], value_of(off, text, target, head_mask=gates))
        scale = np.abs(found.target_value - found.off_values).max()
        assert_near(found.gap, np.zeros(2), 1e-4, of=scale)
        assert_near(found.neuron_scores.sum(1), found.target_value - found.off_values, 1e-4)


def test_only_the_positions_that_are_asked_are_turned_up(tiny: LoadedModel, text: Encoding) -> None:
    """At the gap alone the scores sum to what is lost by silencing the neurons there, and are 0 elsewhere."""
    target, at = target_of("mlm", tiny, text), text.mask_positions[0]
    found = neuron_gradients(tiny, text, target, layers=[0], positions=[at], steps=60)
    assert not found.scores[0, [place for place in range(len(text)) if place != at]].any()

    def silenced(_: object, __: object, out: Tensor) -> Tensor:
        changed = out.clone()
        changed[:, at] = 0
        return changed

    module = layer_of(tiny, 0).intermediate
    hook = module.register_forward_hook(silenced)
    expected = value_of(tiny, text, target)
    hook.remove()
    assert_near(found.off_values[0], expected)
    assert_near(found.gap, [0.0], 1e-4, of=found.target_value - expected)


def test_batches_and_the_last_layer_change_nothing(tiny: LoadedModel, text: Encoding, monkeypatch: Any) -> None:
    """One point at a time, or all; and every point is reported."""
    target = target_of("mlm", tiny, text)
    together, told = neuron_gradients(tiny, text, target, steps=5), []
    monkeypatch.setattr("bert_core.run.neurons.copies_at_once", lambda *_, **__: 1)
    alone = neuron_gradients(
        tiny, text, target, layers=[1, 0, 1], steps=5, report=lambda done, what="": told.append(done)
    )
    assert_near(alone.scores, together.scores)
    assert alone.layers == (0, 1) and len(told) == 10 and told[-1] == 1.0


def test_pruned_heads_are_gone(tiny: LoadedModel, text: Encoding) -> None:
    """A model without some heads finds of its neurons what the whole one finds with them switched off."""
    heads = [(0, 1), (1, 0), (1, 3)]
    small, gates = bert_core.pruned(tiny, heads), bert_core.head_mask_without(tiny.config, heads)
    target = target_of("mlm", tiny, text)
    one, other = neuron_activations(small, text), neuron_activations(tiny, text, head_mask=gates)
    assert_near(one.activations, other.activations)
    assert_near(
        neuron_gradients(small, text, target, steps=4).scores,
        neuron_gradients(tiny, text, target, steps=4, head_mask=gates).scores,
    )
    assert_near(
        neuron_words(small, text, 1, [2]).raised_slopes,
        neuron_words(tiny, text, 1, [2], head_mask=gates).raised_slopes,
    )


def test_pruned_neurons_and_layers_are_gone(tiny: LoadedModel, text: Encoding) -> None:
    """NaN under their numbers; the others are those of the whole model with these switched off."""
    gone = [(0, 3), (0, 40), (1, 0)]
    small, off = bert_core.pruned(tiny, neurons=gone), edited(tiny, [ScaledNeuron(*one) for one in gone])
    target = target_of("mlm", tiny, text)
    found, expected = neuron_activations(small, text), neuron_activations(off, text)
    there = np.ones((2, 64), bool)
    there[tuple(zip(*gone, strict=True))] = False
    assert np.isnan(found.activations.swapaxes(1, 2)[~there]).all() and np.isnan(found.lengths[~there]).all()
    assert_near(found.contributions.swapaxes(1, 2)[there], expected.contributions.swapaxes(1, 2)[there])
    scores, whole = (neuron_gradients(one, text, target, steps=60) for one in (small, off))
    assert np.isnan(scores.scores.swapaxes(1, 2)[~there]).all()
    assert_near(scores.scores.swapaxes(1, 2)[there], whole.scores.swapaxes(1, 2)[there])
    assert_near(scores.gap, np.zeros(2), 1e-4, of=np.abs(scores.target_value - scores.off_values).max())
    one, other = (neuron_words(model, text, 0, [41, 2]) for model in (small, off))
    assert_near(one.raised_slopes, other.raised_slopes)
    assert_near(
        suppress_neurons(small, text, target, [(0, 41)]).value,
        value_of(edited(off, [ScaledNeuron(0, 41)]), text, target),
    )
    for ask in (lambda: neuron_words(small, text, 0, [3]), lambda: suppress_neurons(small, text, target, [(0, 40)])):
        with pytest.raises(Refused, match="was pruned"):
            ask()
    short = bert_core.pruned(tiny, layers=[0])
    run = neuron_activations(short, text)
    assert np.isnan(run.activations[0]).all() and not np.isnan(run.activations[1]).any()
    assert (bert_core.strongest_neurons(run.contributions).neurons[0] == -1).all()
    scores = neuron_gradients(short, text, target, steps=60)
    assert_near(scores.gap, np.zeros(2), 1e-4, of=np.abs(scores.target_value - scores.off_values).max())


# ---------------------------------------------------------------------------- switched off, beside random ones


def test_suppression_is_what_edits_do(tiny: LoadedModel, text: Encoding) -> None:
    """The value with the neurons off or scaled is that of an edited model; and 1 changes nothing."""
    target, neurons = target_of("mlm", tiny, text), [(0, 3), (1, 9), (1, 4)]
    for factor in (0.0, 2.5):
        found = suppress_neurons(tiny, text, target, neurons, factor=factor, head_mask=GATES)
        changed = edited(tiny, [ScaledNeuron(layer, neuron, factor) for layer, neuron in neurons])
        assert_near(found.value, value_of(changed, text, target, head_mask=GATES))
        assert_near(found.base_value, value_of(tiny, text, target, head_mask=GATES))
        assert found.random.shape == (10,) and np.ptp(found.random) > 0
    same = suppress_neurons(tiny, text, target, neurons, factor=1.0)
    assert_near([same.value, *same.random], [same.base_value] * 11)
    assert not same.beyond_chance


def test_random_ones_are_of_the_same_layers_and_others(tiny: LoadedModel, text: Encoding, monkeypatch: Any) -> None:
    """As many of each layer, none of those that were chosen; among the active ones, only these."""
    target, neurons, given = target_of("mlm", tiny, text), [(0, 3), (1, 9), (1, 4)], []

    def watched(loaded: LoadedModel, edits: Any) -> LoadedModel:
        given.append([(one.layer, one.neuron) for one in edits])
        return edited(loaded, edits)

    monkeypatch.setattr("bert_core.run.neurons.edited", watched)
    suppress_neurons(tiny, text, target, neurons, draws=20)
    drawn = [one for one in given if one and not set(one) & set(neurons)]
    assert len(drawn) == 20
    assert all([layer for layer, _ in one] == [0, 1, 1] and len(set(one)) == 3 for one in drawn)
    given.clear()
    suppress_neurons(tiny, text, target, neurons, draws=20, random_pool="active")
    drawn = [one for one in given if one and not set(one) & set(neurons)]
    added = np.abs(neuron_activations(tiny, text).contributions).mean(1)
    active = [set(np.argsort(-added[layer])[:7].tolist()) for layer in range(2)]  # a tenth of 64, rounded up
    assert len(drawn) == 20
    assert all(neuron in active[layer] for one in drawn for layer, neuron in one)


def test_the_same_seed_draws_the_same(tiny: LoadedModel, text: Encoding) -> None:
    """And another draws others."""
    target = target_of("mlm", tiny, text)
    one, same, other = (suppress_neurons(tiny, text, target, [(0, 3)], seed=seed).random for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda m, e, t: neuron_words(m, e, 2, [0]), "layer 2 does not exist"),
        (lambda m, e, t: neuron_words(m, e, 0, [64]), "neurons 0 to 63"),
        (lambda m, e, t: neuron_words(m, e, 0, []), "neurons is empty"),
        (lambda m, e, t: neuron_words(m, e, 0, [1], [99]), "positions 0 to"),
        (lambda m, e, t: neuron_words(m, e, 0, [1], []), "positions is empty"),
        (lambda m, e, t: neuron_gradients(m, e, t, layers=[5]), "layer 5 does not exist"),
        (lambda m, e, t: neuron_gradients(m, e, t, layers=[]), "layers is empty"),
        (lambda m, e, t: neuron_gradients(m, e, t, steps=0), "steps is 0"),
        (lambda m, e, t: suppress_neurons(m, e, t, []), "neurons is empty"),
        (lambda m, e, t: suppress_neurons(m, e, t, [(0, 64)]), "neurons 0 to 63"),
        (lambda m, e, t: suppress_neurons(m, e, t, [(0, 1, 2)]), "pair"),
        (lambda m, e, t: suppress_neurons(m, e, t, [(0, 1)], random_pool="few"), "all, active"),
        (lambda m, e, t: suppress_neurons(m, e, t, [(0, n) for n in range(40)]), "24 other neurons are left"),
        (lambda m, e, t: suppress_neurons(m, e, t, [(0, n) for n in range(8)], random_pool="active"), "active neurons"),
    ],
)
def test_what_cannot_be_is_refused(tiny: LoadedModel, text: Encoding, ask: Any, says: str) -> None:
    """In one sentence that says what there is."""
    with pytest.raises(Refused, match=says):
        ask(tiny, text, target_of("mlm", tiny, text))


def test_without_a_word_head_there_are_no_words(tiny: LoadedModel, text: Encoding) -> None:
    """A model whose word head came untrained promotes nothing that means anything."""
    report = replace(tiny.report, missing=("cls.predictions.transform.dense.weight",))
    with pytest.raises(Refused, match="no trained masked-word head"):
        neuron_words(replace(tiny, report=report), text, 0, [1])


def test_what_a_person_finds_in_the_bundled_model() -> None:
    """In "The woman lost [MASK] hat.", a neuron of L3 speaks for "she" and carries the most of its layer for "her"."""
    mini = bert_core.load("headlight-mini", device="cpu")
    text = mini.tokenizer.encode("The woman lost [MASK] hat.")
    target = bert_core.word_target(mini.tokenizer, text, "her")
    scores = neuron_gradients(mini, text, target, layers=[3], steps=8).neuron_scores[0]
    best = int(scores.argmax())
    words = neuron_words(mini, text, 3, [best], text.mask_positions, translators=bert_core.read_translators(mini))
    assert "she" in [mini.tokenizer.token_of(int(piece)) for piece in words.raised[0]]
    assert suppress_neurons(mini, text, target, [(3, best)]).beyond_chance
