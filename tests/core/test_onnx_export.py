"""An exported graph against PyTorch and `bert_core`, its files, and the models that are refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import bert_core
from bert_core import AttentionKnockout, BertConfig, BertForPreTraining, LoadedModel, Refused, Target
from bert_core.onnx_export import export
from bert_core.onnx_export.graph import GRADIENTS, GraphInputs, compute_outputs, example_inputs
from bert_core.onnx_export.weights import MAX_PART_BYTES
from bert_core.run.perturbation import quadrature_points
from tests.conftest import VOCABULARY, built_once, exported_mini
from tests.families import FAMILIES, save_family
from tests.selection import mark_cases

LENGTHS = (5, 12, 31, 64, 128, 512)
TOLERANCE = 2e-5  # relative to the largest value of an output
TINY_DESIGNS: dict[str, dict[str, Any]] = {
    "one layer": {"num_hidden_layers": 1},
    "no segments": {"type_vocab_size": 0},
    "heads of width 5": {"hidden_size": 20, "num_attention_heads": 4},
    "wide embeddings": {"embedding_size": 48},
    "relu": {"hidden_act": "relu"},
    "silu": {"hidden_act": "silu"},
    "relative positions": {"position_embedding_type": "relative_key_query"},
}


@cache
def session_of(folder: Path) -> onnxruntime.InferenceSession:
    """A session on an exported folder, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(folder / export.GRAPH_FILE, options)


def run_graph(folder: Path, inputs: GraphInputs, gradients: bool | None = True) -> dict[str, np.ndarray]:
    """The outputs of a graph by name. gradients: None for a graph without them."""
    session = session_of(folder)
    feeds = {name: tensor.numpy() for name, tensor in inputs.tensors.items()}
    if gradients is not None:
        feeds["compute_gradients"] = np.array(gradients)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest value; both have NaN at the same places."""
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    return float(np.nanmax(np.abs(actual - expected)) / np.nanmax(np.abs(expected)))


def outputs_of(loaded: LoadedModel, inputs: GraphInputs) -> dict[str, np.ndarray]:
    """The outputs by PyTorch."""
    return {name: tensor.numpy() for name, tensor in compute_outputs(loaded, inputs).tensors.items()}


def outputs_in_float64(loaded: LoadedModel, inputs: GraphInputs) -> dict[str, np.ndarray]:
    """The outputs by PyTorch in float64."""
    exact = dataclasses.replace(loaded, model=copy.deepcopy(loaded.model).double())
    wide = {name: tensor.double() for name, tensor in inputs.tensors.items() if tensor.is_floating_point()}
    return outputs_of(exact, inputs._replace(**wide))


def varied(inputs: GraphInputs, seed: int) -> GraphInputs:
    """The inputs with hidden tokens, gates between 0 and 1, and embeddings on the way from others."""
    generator = torch.Generator().manual_seed(seed)
    mask = inputs.attention_mask.clone()
    mask[-2:] = 0
    return inputs._replace(
        attention_mask=mask,
        head_mask=torch.rand(inputs.head_mask.shape, generator=generator),
        interpolation=torch.tensor(0.3),
    )


@pytest.fixture(scope="session")
def mini() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


@pytest.fixture(scope="session")
def mini_folder() -> Path:
    """The bundled model as a graph with gradients."""
    return exported_mini()


@pytest.fixture(scope="session")
def tiny_folder(tiny_loaded: LoadedModel) -> Path:
    """The tiny model as a graph with gradients."""
    return built_once("tiny-onnx", lambda folder: bert_core.export_onnx(tiny_loaded, folder, gradients=True))


@pytest.mark.parametrize("tokens", LENGTHS)
def test_the_graph_of_the_bundled_model_equals_pytorch(mini: LoadedModel, mini_folder: Path, tokens: int) -> None:
    """At any length, with all heads on or gates, all outputs are within 2e-5 of the largest value in float64.

    The reference is in float64, because PyTorch in float32 has errors up to 7e-5 for gradients of random targets.
    """
    inputs = example_inputs(mini, tokens=tokens, positions=min(tokens, 3), terms=1 + tokens % 3, seed=tokens)
    for case in (inputs, varied(inputs, tokens)):
        expected, actual = outputs_in_float64(mini, case), run_graph(mini_folder, case)
        assert actual.keys() == expected.keys()
        errors = {name: error(actual[name], expected[name]) for name in expected}
        assert max(errors.values()) < TOLERANCE, errors


def test_one_predicted_position_and_one_term_suffice(mini: LoadedModel, mini_folder: Path) -> None:
    """The lengths position and term can be 1, which the exporter treats as a special case."""
    inputs = example_inputs(mini, tokens=7, positions=1, terms=1)
    expected, actual = outputs_in_float64(mini, inputs), run_graph(mini_folder, inputs)
    assert max(error(actual[name], expected[name]) for name in expected) < TOLERANCE


def test_gradients_are_computed_on_request_only(mini: LoadedModel, mini_folder: Path) -> None:
    """Without them the other outputs are the same to the bit, and the gradients are empty."""
    inputs = example_inputs(mini, tokens=12, positions=2, terms=2)
    with_gradients, without = run_graph(mini_folder, inputs), run_graph(mini_folder, inputs, gradients=False)
    for name, values in without.items():
        if name in GRADIENTS:
            assert values.size == 0 and values.ndim == with_gradients[name].ndim
        else:
            np.testing.assert_array_equal(values, with_gradients[name])


def graph_inputs(loaded: LoadedModel, encoding: bert_core.Encoding, **changes: Any) -> GraphInputs:
    """The inputs for a text with one target at its first [MASK]."""
    config = loaded.config
    values: dict[str, Any] = {
        "input_ids": torch.tensor(encoding.input_ids),
        "token_type_ids": torch.tensor(encoding.token_type_ids),
        "attention_mask": torch.ones(len(encoding)),
        "head_mask": torch.ones(config.num_hidden_layers, config.num_attention_heads),
        "positions": torch.tensor(encoding.mask_positions),
        "baseline_ids": torch.tensor(encoding.input_ids),
        "interpolation": torch.tensor(1.0),
        "target_rows": torch.tensor([0]),
        "target_tokens": torch.tensor([0]),
        "target_weights": torch.tensor([0.0]),
        "next_sentence_weights": torch.zeros(2),
    }
    return GraphInputs(**{**values, **changes})


def test_targets_are_those_of_the_library(mini: LoadedModel, mini_folder: Path) -> None:
    """A word, a contrast and the next sentence have the value and the gradients of `capture`, also with heads off."""
    encoding = mini.tokenizer.encode("She opened the [MASK] and walked in.", "It was cold.")
    position, (first, second) = encoding.mask_positions[0], map(mini.tokenizer.id_of, ("door", "window"))
    word = {"target_tokens": torch.tensor([first]), "target_weights": torch.tensor([1.0])}
    contrast = {
        "target_rows": torch.tensor([0, 0]),
        "target_tokens": torch.tensor([first, second]),
        "target_weights": torch.tensor([1.0, -1.0]),
    }
    next_sentence = {"next_sentence_weights": torch.tensor([1.0, -1.0])}
    head_mask = bert_core.head_mask_without(mini.config, [(0, 2), (4, 7)])
    for target, changes in (
        (Target("mlm", position, first), word),
        (Target("contrast", position, first, against=second), contrast),
        (Target("nsp"), next_sentence),
    ):
        run = bert_core.capture(mini, encoding, target=target, head_mask=head_mask)
        outputs = run_graph(mini_folder, graph_inputs(mini, encoding, head_mask=torch.from_numpy(head_mask), **changes))
        assert run.gradient is not None and run.gate_gradient is not None and run.target_value is not None
        assert error(outputs["attention"], run.attention) < TOLERANCE
        assert error(outputs["attention_gradient"], run.gradient) < 1e-4
        assert error(outputs["head_mask_gradient"], run.gate_gradient) < 1e-4
        assert outputs["target_value"] == pytest.approx(run.target_value, rel=1e-5, abs=1e-5)


def test_integrated_gradients_are_those_of_the_library(mini: LoadedModel, mini_folder: Path) -> None:
    """The mean gradient over the path, times the difference of the embeddings, equals `integrated_gradients`."""
    encoding = mini.tokenizer.encode("She opened the [MASK] and walked in.")
    target = Target("mlm", encoding.mask_positions[0], mini.tokenizer.id_of("door"))
    expected = bert_core.integrated_gradients(mini, encoding, target, steps=10)
    removable = target.removable(encoding)
    baseline = [
        mini.config.pad_token_id if position in removable else token
        for position, token in enumerate(encoding.input_ids)
    ]
    inputs = graph_inputs(
        mini,
        encoding,
        baseline_ids=torch.tensor(baseline),
        target_tokens=torch.tensor([target.token_id]),
        target_weights=torch.tensor([1.0]),
    )
    mean_gradient = 0.0
    for share, weight in zip(*quadrature_points(10), strict=True):
        outputs = run_graph(mini_folder, inputs._replace(interpolation=torch.tensor(float(share))))
        mean_gradient = mean_gradient + float(weight) * outputs["embedding_gradient"]
    start, end = (
        run_graph(mini_folder, inputs._replace(interpolation=torch.tensor(share)), gradients=False)
        for share in (0.0, 1.0)
    )
    scores = (mean_gradient * (end["embeddings"] - start["embeddings"])).sum(-1)
    assert error(scores, np.asarray(expected.scores)) < 1e-4


def test_the_example_of_the_guide(mini: LoadedModel, mini_folder: Path) -> None:
    """The example in the documentation runs on an exported folder, with the numbers that it names."""
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "onnx.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert example is not None
    variables: dict[str, Any] = {}
    exec(example[1].replace('"onnx/', f'"{mini_folder.as_posix()}/'), variables)
    outputs = variables["outputs"]
    encoding = mini.tokenizer.encode("She opened the [MASK] and walked in.")
    run = bert_core.capture(mini, encoding, target=Target("mlm", variables["mask"], mini.tokenizer.id_of("door")))
    assert np.exp(outputs["target_value"]) == pytest.approx(np.exp(run.target_value), abs=1e-5)
    assert np.exp(outputs["target_value"]) == pytest.approx(0.69, abs=0.005)
    assert run.gradient is not None
    assert error(outputs["attention_gradient"], run.gradient) < 1e-4
    for name in (*[graph_input.name for graph_input in session_of(mini_folder).get_inputs()], *outputs):
        assert f"| `{name}` |" in guide


@pytest.mark.parametrize(
    "design", mark_cases(TINY_DESIGNS, pytest.mark.slow, lambda design: design not in ("no segments", "one layer"))
)
def test_other_designs_equal_pytorch(tiny_config: BertConfig, tmp_path: Path, design: str) -> None:
    """Tiny models with other sizes and parts are exact, and so are weights that float16 would round."""
    torch.manual_seed(1)
    BertForPreTraining(tiny_config.replace(**TINY_DESIGNS[design])).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    loaded = bert_core.load(str(tmp_path), device="cpu")
    bert_core.export_onnx(loaded, tmp_path / "onnx", gradients=True)
    names = {graph_input.name for graph_input in session_of(tmp_path / "onnx").get_inputs()}
    assert ("token_type_ids" in names) == bool(loaded.config.type_vocab_size)
    assert_exact(loaded, tmp_path / "onnx", (5, 31, 64))


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "modernbert"])
def test_other_families_equal_pytorch(tmp_path: Path, family: str) -> None:
    """Tiny models of every family but ModernBERT, at several lengths, with relative positions where these have them."""
    loaded = bert_core.load(str(save_family(family, tmp_path / family)), device="cpu")
    bert_core.export_onnx(loaded, tmp_path / "onnx", gradients=True)
    assert_exact(loaded, tmp_path / "onnx", (5, 12, 31, 64, 128))


def assert_exact(loaded: LoadedModel, folder: Path, lengths: tuple[int, ...]) -> None:
    """The graph is as close to float64 as PyTorch in float32 is, up to the tolerance."""
    for tokens in lengths:
        inputs = example_inputs(loaded, tokens=tokens, positions=2, terms=3, seed=tokens)
        if tokens % 2:
            inputs = varied(inputs, tokens)
        reference, in_float32 = outputs_in_float64(loaded, inputs), outputs_of(loaded, inputs)
        actual = run_graph(folder, inputs)
        assert actual.keys() == reference.keys()
        for name in actual:
            limit = TOLERANCE + error(in_float32[name], reference[name])
            assert error(actual[name], reference[name]) < limit, (name, tokens)


def test_pruned_models_equal_the_library(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Pruned heads are NaN in maps and gradients at their original places; pruned neurons and layers work too."""
    pruned = bert_core.pruned(tiny_loaded, [(0, 1), (1, 0), (1, 3)], neurons=[(0, 3), (0, 5)])
    bert_core.export_onnx(pruned, tmp_path / "heads", gradients=True)
    encoding = pruned.tokenizer.encode("the king saw the [MASK]")
    target = Target("mlm", encoding.mask_positions[0], 40)
    run = bert_core.capture(pruned, encoding, target=target)
    outputs = run_graph(
        tmp_path / "heads",
        graph_inputs(pruned, encoding, target_tokens=torch.tensor([40]), target_weights=torch.tensor([1.0])),
    )
    assert run.gradient is not None and run.gate_gradient is not None
    assert np.isnan(outputs["attention"][1, 3]).all()
    assert error(outputs["attention"], run.attention) < TOLERANCE
    assert error(outputs["attention_gradient"], run.gradient) < TOLERANCE
    assert error(outputs["head_mask_gradient"], run.gate_gradient) < TOLERANCE
    without_layer = bert_core.pruned(tiny_loaded, [], layers=[0])
    bert_core.export_onnx(without_layer, tmp_path / "layers", gradients=True)
    assert_exact(without_layer, tmp_path / "layers", (12,))
    assert json.loads((tmp_path / "heads" / "model.json").read_text())["pruned_heads"] == {"0": [1], "1": [0, 3]}


def test_without_gradients_the_graph_has_no_target(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """The inputs and outputs are those of a forward pass, which are exact."""
    bert_core.export_onnx(tiny_loaded, tmp_path)
    inputs = example_inputs(tiny_loaded, tokens=9, positions=2, terms=1, gradients=False)
    expected = outputs_of(tiny_loaded, inputs)
    actual = run_graph(tmp_path, inputs, gradients=None)
    assert list(actual) == ["attention", "hidden_states", "logits", "next_sentence_logits"] == list(expected)
    assert max(error(actual[name], expected[name]) for name in expected) < TOLERANCE


def test_each_weight_is_stored_once_in_small_files(mini: LoadedModel, mini_folder: Path) -> None:
    """Files of less than 10 MB hold as many numbers as the model, in float16; the description lists all files."""
    description = json.loads((mini_folder / "model.json").read_text())
    parts = sorted(mini_folder.glob("weights-*.bin"))
    assert [part.stat().st_size <= MAX_PART_BYTES < 10_000_000 for part in parts] == [True] * len(parts)
    parameters = sum(parameter.numel() for parameter in mini.model.parameters())
    assert sum(part.stat().st_size for part in parts) == pytest.approx(2 * parameters, rel=0.001)
    assert (mini_folder / "model.onnx").stat().st_size < 120_000
    sizes = {file["name"]: file["bytes"] for file in description["files"]}
    assert sizes == {path.name: path.stat().st_size for path in [mini_folder / "model.onnx", *parts]}
    assert (description["layers"], description["heads"], description["gradients"]) == (6, 12, True)
    onnx.checker.check_model(str(mini_folder / "model.onnx"))
    graph = onnx.load(mini_folder / "model.onnx", load_external_data=False)
    assert {opset.domain for opset in graph.opset_import} == {""}


def test_weights_that_float16_would_round_stay_float32(tiny_loaded: LoadedModel, tiny_folder: Path) -> None:
    """The files of a random model hold its numbers in float32, as they are."""
    content = b"".join(part.read_bytes() for part in sorted(tiny_folder.glob("weights-*.bin")))
    table = tiny_loaded.model.bert.embeddings.word_embeddings.weight.numpy()
    assert table.astype("<f4").tobytes() in content


def test_the_same_model_gives_the_same_bytes(tiny_model_folder: Path, tiny_folder: Path, tmp_path: Path) -> None:
    """Another process with other hashes writes files that are equal byte by byte, and leftover parts are removed."""
    (tmp_path / "weights-7.bin").write_bytes(b"old")
    command = [sys.executable, "-m", "viz_app.cli", "export-onnx", "--gradients", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--model", str(tiny_model_folder)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    names = sorted(path.name for path in tiny_folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert done.stdout.startswith("5 files, ")
    for name in names:
        assert (tmp_path / name).read_bytes() == (tiny_folder / name).read_bytes(), name


def test_models_that_cannot_be_exported_are_refused(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused in one sentence, before anything is written."""
    wide = dataclasses.replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).double())
    rotary = bert_core.load(str(save_family("modernbert", tmp_path / "modern")), device="cpu")
    headless = bert_core.pruned(tiny_loaded, [(1, head) for head in range(4)])
    edited = bert_core.edited(tiny_loaded, [AttentionKnockout(keys=(0,), layers=(1,))])
    untrained = dataclasses.replace(
        tiny_loaded, report=dataclasses.replace(tiny_loaded.report, missing=tuple(tiny_loaded.model.state_dict()))
    )
    for loaded, sentence in (
        (wide, "is in float64: only a model in float32 can be exported to ONNX"),
        (rotary, "has rotary positions and local attention: only models without them can be exported to ONNX"),
        (headless, "layer 1 of"),
        (edited, "the model is edited (AttentionKnockout), and the export to ONNX needs it unmodified"),
        (untrained, "has neither a masked language modelling head nor a next-sentence head"),
    ):
        with pytest.raises(Refused) as refused:
            bert_core.export_onnx(loaded, tmp_path / "out", gradients=True)
        assert sentence in str(refused.value)
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(Refused) as refused:
        bert_core.export_onnx(tiny_loaded, tmp_path / "out")
    assert str(refused.value) == "onnxscript must be installed for this: pip install 'headlight[site]'"
    assert not (tmp_path / "out").exists()
