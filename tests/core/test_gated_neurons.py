"""Neurons of gated networks: both inputs and their product, in a run, a table and the statistics of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bert_core
from bert_core import LoadedModel
from bert_core.run.neurons import neuron_activations
from bert_core.run.states import iter_activations, iter_neurons
from bert_core.run.walk import walk
from bert_core.studies.neurons import NeuronStats, measure_neurons, write_neuron_table
from bert_core.studies.settings import NeuronSettings
from bert_core.studies.tables import read_column_names
from tests.families import save_family, sentences
from tests.near import assert_near

INPUTS = ("activated_mean", "gate_mean", "gate_negative")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("modernbert", tmp_path_factory.mktemp("gated") / "words")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: LoadedModel) -> bert_core.Encoding:
    return loaded.tokenizer.encode("The old man [MASK] along the river with his dog.")


def test_both_inputs_are_those_of_the_walk_and_give_the_activation(
    loaded: LoadedModel, encoding: bert_core.Encoding
) -> None:
    run = neuron_activations(loaded, encoding)
    assert run.activated is not None and run.gates is not None and list(run.inputs) == ["activated input", "gate"]
    for layer in range(3):
        seen = walk(loaded, encoding, layer)
        assert_near(run.activated[layer], seen.layer_value("intermediate_activated"))
        assert_near(run.gates[layer], seen.layer_value("intermediate_gate"))
        assert_near(run.activations[layer], seen.layer_value("intermediate"))
    assert_near(run.activated * run.gates, run.activations)
    assert run.nbytes == 3 * run.activations.nbytes + run.lengths.nbytes
    with pytest.raises(ValueError, match="read-only"):
        run.gates[0] = 0


def test_a_negative_gate_makes_a_large_neuron_negative(loaded: LoadedModel, encoding: bert_core.Encoding) -> None:
    """GELU goes down to -0.17, and a product far below that has a gate below 0."""
    run = neuron_activations(loaded, encoding)
    assert run.gates is not None and run.activated is not None
    negative = run.activations < -1
    assert negative.sum() > 10 and (run.activated >= -0.17).all()
    assert ((run.gates < 0) == (run.activated > 0))[negative].all()


def test_a_scaled_neuron_keeps_its_inputs_and_a_pruned_one_is_nan(
    loaded: LoadedModel, encoding: bert_core.Encoding
) -> None:
    plain = neuron_activations(loaded, encoding)
    scaled = neuron_activations(bert_core.edited(loaded, [bert_core.ScaledNeuron(0, 5, 2.0)]), encoding)
    assert scaled.gates is not None and plain.gates is not None
    assert_near(scaled.gates[0], plain.gates[0])
    assert_near(scaled.activations[0, :, 5], 2 * plain.activations[0, :, 5])
    pruned = neuron_activations(bert_core.pruned(loaded, neurons=[(0, 5)]), encoding)
    for values in (pruned.activations, *pruned.inputs.values()):
        assert np.isnan(values[0, :, 5]).all() and np.isfinite(np.delete(values[0], 5, axis=1)).all()


def test_other_networks_have_no_second_input(tiny_loaded: LoadedModel) -> None:
    run = neuron_activations(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"))
    assert run.gates is None and run.activated is None and run.inputs == {}
    assert run.nbytes == run.activations.nbytes + run.lengths.nbytes


def test_batches_give_the_inputs_of_single_texts(loaded: LoadedModel, encoding: bert_core.Encoding) -> None:
    texts = [encoding, loaded.tokenizer.encode("A dog."), loaded.tokenizer.encode("Brot.", "His red house.")]
    activations = {(tuple(i), layer): values for i, layer, values in iter_activations(loaded, texts, [0, 2])}
    for indices, layer, values, inputs in iter_neurons(loaded, texts, [0, 2]):
        assert np.array_equal(values, activations[tuple(indices), layer])
        runs = [neuron_activations(loaded, texts[index]) for index in indices]
        for name, part in zip(("activated", "gates"), inputs, strict=True):
            assert_near(part, np.concatenate([getattr(run, name)[layer] for run in runs]))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "texts.txt"
    path.write_text("\n".join(list(sentences())[:12]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stats(file: Path, folder: Path) -> NeuronStats:
    return measure_neurons(file, str(folder), NeuronSettings(neurons=((1, 3), (2, None))), device="cpu")


def test_the_statistics_of_a_file_include_both_inputs(
    stats: NeuronStats, loaded: LoadedModel, file: Path, tmp_path: Path
) -> None:
    """Means of each input over typed tokens, and how often a gate is negative; they are columns of the table."""
    encodings = [loaded.tokenizer.encode(line) for line in file.read_text(encoding="utf-8").splitlines()]
    runs = [(neuron_activations(loaded, encoding), ~np.array(encoding.special)) for encoding in encodings]
    for row, (layer, neuron) in enumerate(stats.neurons.tolist()):
        activated, gates = (
            np.concatenate([getattr(run, name)[layer, typed, neuron] for run, typed in runs])
            for name in ("activated", "gates")
        )
        expected = activated.mean(), gates.mean(), (gates < 0).mean()
        for name, value in zip(INPUTS, expected, strict=True):
            assert_near(stats.figures[name][row], value, of=1.0)
    write_neuron_table(stats, tmp_path / "neurons.csv")
    assert set(INPUTS) <= set(read_column_names(tmp_path / "neurons.csv"))


def test_a_stopped_study_of_a_gated_model_resumes(stats: NeuronStats, file: Path, folder: Path, tmp_path: Path) -> None:
    settings, state = NeuronSettings(neurons=((1, 3), (2, None))), tmp_path / "state"
    measure_neurons(file, str(folder), settings, state=state, device="cpu")
    again = measure_neurons(file, str(folder), settings, state=state, device="cpu")
    for name in INPUTS:
        assert np.array_equal(again.figures[name], stats.figures[name])
