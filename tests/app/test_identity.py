"""Keys of results: equal arguments give equal keys, and other arguments give others."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, replace

import numpy as np
import pytest

import bert_core
from bert_core.editing import edited
from bert_core.edits import ScaledNeuron
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from viz_app.shell.controls import Upload
from viz_app.shell.identity import identity_of
from viz_app.shell.work import Work, cached, wait_for, work


@dataclass(frozen=True)
class Record:
    """A record that contains an array and can therefore not be hashed."""

    values: np.ndarray


def test_arrays_are_identified_by_content_shape_and_type() -> None:
    """A copy and a view with equal elements have the key of the original; another shape or type has another."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert identity_of(values) == identity_of(values.copy()) == identity_of(np.asfortranarray(values))
    changed = values.copy()
    changed[2, 3] += 1
    others = [changed, values.reshape(4, 3), values.astype(np.float64), values.T]
    assert len({identity_of(array) for array in (values, *others)}) == 1 + len(others)


def test_models_and_edits_are_identified_by_what_they_compute(tiny_loaded: LoadedModel) -> None:
    """Two loads of a model are equal; a model with a scaled neuron is another one."""
    again = replace(tiny_loaded)
    scaled = edited(tiny_loaded, [ScaledNeuron(0, 1, 0.0)])
    assert identity_of(tiny_loaded) == identity_of(again) != identity_of(scaled)


def test_containers_are_identified_by_their_elements() -> None:
    """Lists and tuples of arrays, mappings, and uploads of equal content, whatever their names."""
    array = np.ones(3)
    assert identity_of([array, "a"]) == identity_of((array.copy(), "a")) != identity_of([array, "b"])
    assert identity_of({"x": array}) == identity_of({"x": array.copy()}) != identity_of({"y": array})
    upload = Upload("a.csv", b"1,2")
    assert identity_of(upload) == identity_of(Upload("b.CSV", b"1,2")) != identity_of(Upload("a.csv", b"1,3"))
    assert identity_of(upload) != identity_of(Upload("a.txt", b"1,2"))  # read in another way


def test_a_key_keeps_no_arrays_in_memory(tiny_loaded: LoadedModel) -> None:
    """The key of a run is a number of its own, although a run can be hashed."""
    run = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"))
    key, reference = identity_of(run), weakref.ref(run)
    assert key == identity_of(run) and isinstance(hash(run), int)
    del run
    gc.collect()
    assert reference() is None and key is not None


def test_a_class_is_identified_as_itself() -> None:
    """A class of records with arrays has no arrays of its own."""
    assert identity_of(Record) == identity_of(Record) != identity_of(Upload)


def test_records_with_arrays_are_identified_as_objects() -> None:
    """A record has one key for its lifetime, and no later record has the same."""
    record = Record(np.ones(3))
    key = identity_of(record)
    assert key == identity_of(record) != identity_of(Record(np.ones(3)))
    keys = {key}
    for _ in range(10):  # the memory of a record is reused by the next one
        keys.add(identity_of(Record(np.ones(3))))
        gc.collect()
    assert len(keys) == 11


calls: list[str] = []


@work("{model} counts {tokens} of {name}", seconds=lambda model, tokens, name: len(tokens), memory=1000)
def count(
    model: LoadedModel, tokens: tuple[str, ...], name: str = "A", report: Progress = ignore_progress
) -> list[str]:
    """Return the tokens, and report once."""
    report(0.5)
    calls.append(name)
    return [f"{name}{token}" for token in tokens]


def test_a_decorated_function_describes_its_call(tiny_loaded: LoadedModel) -> None:
    """Label, cost and key come from the arguments; defaults count as given, and the report does not."""
    call = count(tiny_loaded, ("x", "y"))
    assert isinstance(call, Work)
    assert call.label == "tiny-bert counts 2 of A" and call.seconds == 2 and call.memory == 1000
    assert call.key == count(tiny_loaded, tokens=("x", "y"), name="A").key
    assert len({call.key, count(tiny_loaded, ("x",)).key, count(tiny_loaded, ("x", "y"), "B").key}) == 3
    shares: list[float | None] = []
    assert call.compute(lambda share, text="": shares.append(share)) == ["Ax", "Ay"] and shares == [0.5]


def test_the_queue_computes_equal_calls_once(tiny_loaded: LoadedModel) -> None:
    """A second call with equal arguments gets the result of the first."""
    calls.clear()
    first = wait_for(count(tiny_loaded, ("x", "y"), "once"))
    assert wait_for(count(tiny_loaded, ("x", "y"), "once")) is first and calls == ["once"]


def test_a_cached_function_is_called_once_per_argument(tiny_loaded: LoadedModel) -> None:
    """Arrays with equal elements count as the same argument; errors are not kept."""
    sums: list[float] = []

    @cached
    def total(values: np.ndarray, factor: float = 1.0) -> float:
        if factor < 0:
            raise ValueError("negative")
        sums.append(factor)
        return float(values.sum() * factor)

    assert total(np.ones(3)) == total(np.ones(3)) == 3.0 and total(np.ones(3), 2.0) == 6.0
    assert sums == [1.0, 2.0]
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            total(np.ones(3), -1.0)
