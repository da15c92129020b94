"""What the page Neurons asks of the model; from the queue."""

from __future__ import annotations

from collections.abc import Sequence

from bert_core.analysis.neurons import StrongestNeurons, strongest_neurons
from bert_core.records import NeuronAttribution, NeuronRun, NeuronWords, Suppression
from bert_core.run.memory import forward_bytes, gradient_bytes
from bert_core.run.neurons import neuron_activations, neuron_gradients, neuron_words, suppress_neurons
from viz_app.shell.lenses import translators_of
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, wait_for

LISTED = 10  # neurons of a token
WORDS = 8  # that a neuron makes likelier, and unlikelier
STEPS = 20  # on the way from no neuron firing
DRAWS = 10  # of random neurons


def fired(current: Selection) -> NeuronRun:
    """How strongly each neuron fires at each token."""
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    size = 4 * loaded.config.num_hidden_layers * len(encoding) * loaded.config.intermediate_size
    return wait_for(Work(
        ("neurons", loaded.identity, encoding, gates.tobytes()),
        f"{shown_name(loaded.name)} reads {len(encoding)} tokens",
        lambda _: neuron_activations(loaded, encoding, head_mask=gates),
        memory=2 * size,
    ))  # fmt: skip


def strongest(current: Selection, ranked: str) -> StrongestNeurons:
    """The strongest neurons of each layer at each token, by what they add or by how strongly they fire."""
    found: StrongestNeurons = current.kept(
        "strongest neurons", ranked,
        make=lambda: strongest_neurons(
            fired(current).contributions if ranked == "added" else fired(current).activations, LISTED
        ),
    )  # fmt: skip
    return found


def said(current: Selection, layer: int, neurons: Sequence[int], position: int | None, *, tuned: bool) -> NeuronWords:
    """Which words some neurons promote at a position, or on average over the text, by one of the two lenses."""
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    at = None if position is None else [position]
    return wait_for(Work(
        ("neuron words", loaded.identity, encoding, gates.tobytes(), layer, tuple(neurons), position, tuned),
        f"{shown_name(loaded.name)} says what {len(neurons)} neurons promote",
        lambda _: neuron_words(
            loaded, encoding, layer, neurons, at, translators=translators_of(loaded) if tuned else None, top_k=WORDS,
            head_mask=gates,
        ),
    ))  # fmt: skip


def scores(current: Selection) -> Work[NeuronAttribution]:
    """What the answer rests on in the neurons of each layer."""
    loaded, encoding, gates, target = current.loaded, current.encoding, current.head_mask, current.target
    assert target is not None  # asked before
    layers = loaded.config.num_hidden_layers
    # There and back is three passes, of the layers above: half of them on average.
    passes = STEPS * 3 * layers / 2
    return Work(
        ("neuron gradients", loaded.identity, encoding, repr(target), gates.tobytes()),
        f"{shown_name(loaded.name)}: what the answer rests on in {layers} layers of neurons",
        lambda report: neuron_gradients(loaded, encoding, target, steps=STEPS, head_mask=gates, report=report),
        current.seconds(passes),
        memory=gradient_bytes(loaded, len(encoding), 8),
    )


def without(current: Selection, neurons: Sequence[tuple[int, int]], among: str) -> Work[Suppression]:
    """The answer with some neurons switched off, beside as many random ones of their layers."""
    loaded, encoding, gates, target = current.loaded, current.encoding, current.head_mask, current.target
    assert target is not None
    pairs = tuple(neurons)
    return Work(
        ("suppression", loaded.identity, encoding, repr(target), gates.tobytes(), pairs, among),
        f"{shown_name(loaded.name)} reads without {len(pairs)} neurons, and without random ones",
        lambda _: suppress_neurons(loaded, encoding, target, pairs, draws=DRAWS, random_pool=among, head_mask=gates),
        current.seconds(DRAWS + 3),
        memory=forward_bytes(loaded, len(encoding), 1),
    )
