"""bert_core/recording.py: who sees which map, also with many people on one model."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core import Encoding, LoadedModel, ModelRun, Target, capture
from bert_core.recording import record
from bert_core.refused import Refused
from tests.near import apart

THREADS, CAPTURES = 8, 60
NAMES = ("cat", "dog", "mat", "door", "house", "city", "river", "king", "queen")
WORDS = (*NAMES, "man", "woman", "child", "people", "night", "paris", "france", "london", "england")


def some_ids(seed: int = 0, length: int = 8) -> Tensor:
    return torch.randint(5, 90, (1, length), generator=torch.Generator().manual_seed(seed))


def text_of(number: int) -> tuple[str, str]:
    """A different pair for every number, several of the same length."""
    first, second = WORDS[number % 18], WORDS[(number // 18 + number) % 18]
    return f"the {first} saw [MASK] {second}" + " in the city" * (number % 3), f"it was the {second} of the {first}"


def look(loaded: LoadedModel, number: int) -> ModelRun:
    """One visitor's question: a masked word, or every third time the next sentence."""
    encoding: Encoding = loaded.tokenizer.encode(*text_of(number))
    word = Target("mlm", position=encoding.mask_positions[0], token_id=loaded.tokenizer.id_of(WORDS[number % 18]))
    return capture(loaded, encoding, target=Target("nsp") if number % 3 == 0 else word)


def same(one: ModelRun, other: ModelRun) -> bool:
    """Equal to rounding of the last digits, in every array and number."""
    pairs = [
        (one.attention, other.attention),
        (one.gradient, other.gradient),
        (one.gate_gradient, other.gate_gradient),
        (one.predictions[0].probabilities, other.predictions[0].probabilities),
        (one.nsp, other.nsp),
        (one.target_value, other.target_value),
    ]
    return all(a is not None and b is not None and apart(a, b) <= 1e-5 for a, b in pairs)


@pytest.mark.slow
def test_many_threads_on_one_model_get_their_own_answers(tiny_loaded: LoadedModel) -> None:
    """8 threads that take 60 captures each, of different texts and targets, make 480 single-thread answers."""
    numbers = range(THREADS * CAPTURES)
    expected = [look(tiny_loaded, number) for number in numbers]
    neighbours = zip(expected, expected[18:], strict=False)
    assert not any(same(one, other) for one, other in neighbours), "the texts must differ, or nothing is tested"
    together = threading.Barrier(THREADS)

    def visitor(thread: int) -> list[tuple[int, ModelRun]]:
        together.wait()
        return [(number, look(tiny_loaded, number)) for number in numbers if number % THREADS == thread]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for visit in pool.map(visitor, range(THREADS)) for answer in visit]
    assert len(answers) == THREADS * CAPTURES
    assert [number for number, run in answers if not same(run, expected[number])] == []


def test_looking_writes_nothing_to_the_model(tiny_loaded: LoadedModel) -> None:
    """After captures with gradients no parameter has a gradient, wants one, or has another value; no map is kept."""
    before = {name: parameter.clone() for name, parameter in tiny_loaded.model.named_parameters()}
    for number in range(4):
        look(tiny_loaded, number)
    for name, parameter in tiny_loaded.model.named_parameters():
        assert parameter.grad is None
        assert not parameter.requires_grad
        assert torch.equal(parameter, before[name])
    for module in tiny_loaded.model.attention_modules:
        assert module.get_attention_map() is None
        assert module.get_attn_gradients() is None


def test_a_recording_sees_its_own_thread_only(tiny_loaded: LoadedModel) -> None:
    """A forward pass in another thread, while a recording is open here, leaves no trace in it."""
    with record() as recording:
        other = threading.Thread(target=lambda: tiny_loaded.model.bert(some_ids()))
        other.start()
        other.join()
        assert recording.attention == {}
        tiny_loaded.model.bert(some_ids())
        assert set(recording.attention) == {0, 1}


def test_a_recording_sees_its_own_context_only(tiny_loaded: LoadedModel) -> None:
    """A context copied before the recording was opened does not belong to it."""
    outside = contextvars.copy_context()
    with record() as recording:
        outside.run(tiny_loaded.model.bert, some_ids())
        assert recording.attention == {}


def test_a_nested_recording_does_not_leak(tiny_loaded: LoadedModel) -> None:
    """The inner recording takes its own passes; the outer one keeps what came before and after."""
    with record() as outer:
        tiny_loaded.model.bert(some_ids(1, 5))
        with record() as inner:
            tiny_loaded.model.bert(some_ids(2, 7))
        assert outer.attention[0].shape[-1] == 5
        assert inner.attention[0].shape[-1] == 7
        tiny_loaded.model.bert(some_ids(3, 6))
    assert outer.attention[0].shape[-1] == 6
    assert inner.attention[0].shape[-1] == 7


def test_a_recording_ends_with_its_block(tiny_loaded: LoadedModel) -> None:
    """After the block, also one left by an error, passes are not recorded any more."""
    with pytest.raises(RuntimeError, match="stop"), record() as recording:
        raise RuntimeError("stop")
    tiny_loaded.model.bert(some_ids())
    assert recording.attention == {}


@pytest.mark.parametrize("layers", [[0], [1], {0, 1}, [], None])
def test_only_the_layers_asked_for(tiny_loaded: LoadedModel, layers: list[int] | set[int] | None) -> None:
    """layers= chooses whose maps, and whose gradients, are taken."""
    embeddings = tiny_loaded.model.get_input_embeddings()(some_ids()).detach().requires_grad_()
    with record(layers) as recording:
        tiny_loaded.model.bert(inputs_embeds=embeddings).last_hidden_state.square().sum().backward()
    assert set(recording.attention) == set(recording.gradients) == set([0, 1] if layers is None else layers)


@pytest.mark.parametrize("layers", [[9], [0, 9], (layer for layer in (1, 9)), np.array([9, 0])])
def test_a_layer_that_the_model_does_not_have_is_refused(tiny_loaded: LoadedModel, layers: Collection[int]) -> None:
    """One sentence names the layers of the model, and nothing is recorded instead; the next recording works."""
    with record(layers) as recording, pytest.raises(Refused) as refusal:
        tiny_loaded.model.bert(some_ids())
    assert str(refusal.value) == "layer 9 does not exist, so it cannot be recorded: this model has layers 0 to 1"
    assert recording.attention == {}
    with record([1]) as recording:
        tiny_loaded.model.bert(some_ids())
    assert set(recording.attention) == {1}


def test_the_backward_pass_may_come_after_the_block(tiny_loaded: LoadedModel) -> None:
    """Gradients reach the recording that saw the forward pass, whichever is open during the backward pass."""
    embeddings = tiny_loaded.model.get_input_embeddings()(some_ids()).detach().requires_grad_()
    with record() as recording:
        result = tiny_loaded.model.bert(inputs_embeds=embeddings).last_hidden_state.square().sum()
    with record() as other:
        result.backward()
    assert set(recording.gradients) == {0, 1}
    assert other.gradients == {}


def test_without_gradients_only_maps_are_taken(tiny_loaded: LoadedModel) -> None:
    """Under no_grad the maps come, as constants."""
    with torch.no_grad(), record() as recording:
        tiny_loaded.model.bert(some_ids())
    assert recording.gradients == {}
    assert not any(one.requires_grad for one in recording.attention.values())


def test_nothing_stays_alive_after_a_recording(tiny_loaded: LoadedModel) -> None:
    """When the last name of a recording is gone, its maps are gone: no ring keeps them."""
    embeddings = tiny_loaded.model.get_input_embeddings()(some_ids()).detach().requires_grad_()
    gc.disable()
    try:
        with record() as recording:
            tiny_loaded.model.bert(inputs_embeds=embeddings).last_hidden_state.sum().backward()
        maps = [weakref.ref(one) for one in recording.attention.values()]
        assert all(one() is not None for one in maps)
        del recording
        assert all(one() is None for one in maps)
    finally:
        gc.enable()
