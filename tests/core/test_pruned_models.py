"""A model that has lost heads is a model like any other: everywhere the same numbers, with gaps where heads were."""

from __future__ import annotations

import json
import resource
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import BertForPreTraining, CheckpointError, LoadedModel, Target, checkpoint, loading
from bert_core.analysis.flow import attention_rollout, layer_mixing, mean_of_heads
from bert_core.analysis.walks import differences
from bert_core.methods import METHODS
from bert_core.tokenizer import Encoding
from tests.near import assert_near

# Some of one layer, and all of the other.
GONE = ((0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3))
SOME = ((0, 1), (1, 0), (1, 3))


def gates_of(heads: tuple[tuple[int, int], ...]) -> np.ndarray:
    gates = np.ones((2, 4), np.float32)
    for head in heads:
        gates[head] = 0
    return gates


@pytest.fixture(scope="module")
def encoding(tiny_loaded: LoadedModel) -> Encoding:
    return tiny_loaded.tokenizer.encode("the [MASK] sat on the mat", "it was red")


@pytest.fixture(params=[SOME, GONE], ids=["some heads", "a whole layer too"])
def heads(request: pytest.FixtureRequest) -> tuple[tuple[int, int], ...]:
    chosen: tuple[tuple[int, int], ...] = request.param
    return chosen


def target_of(loaded: LoadedModel, encoding: Encoding) -> Target:
    return Target("mlm", encoding.mask_positions[0], loaded.tokenizer.id_of("cat"))


# ---------------------------------------------------------------------------- pruned is masked


@pytest.mark.parametrize("seed", range(4))
def test_any_pruned_model_is_the_masked_one(tiny_loaded: LoadedModel, seed: int) -> None:
    """Over random sets of heads, pairs and padding: the outputs are those of the old model with a head mask."""
    rng = np.random.default_rng(seed)
    gone = [(int(layer), int(head)) for layer, head in np.argwhere(rng.random((2, 4)) < 0.5)]
    ids = torch.from_numpy(rng.integers(5, 90, (3, 11)))
    given = {"token_type_ids": (torch.arange(11) > 5).long().expand(3, -1), "attention_mask": torch.ones(3, 11)}
    given["attention_mask"][1, 7:] = 0
    masked = tiny_loaded.model(ids, head_mask=torch.tensor(gates_of(tuple(gone))), **given)
    smaller = bert_core.pruned(tiny_loaded, gone)
    for one, other in zip(smaller.model(ids, **given), masked, strict=True):
        assert_near(one, other)
    assert smaller.model.pruned_heads == dict(smaller.config.pruned_heads)
    assert {(layer, head) for layer, some in smaller.model.pruned_heads.items() for head in some} == set(gone)


def test_the_old_model_stays_as_it_is(tiny_loaded: LoadedModel) -> None:
    """Nothing of the old model changes or is shared, and what an attention module had saved is not copied."""
    before = {name: tensor.clone() for name, tensor in tiny_loaded.model.state_dict().items()}
    attention = tiny_loaded.model.bert.encoder.layer[0].attention.self
    attention.save_attention_map(torch.ones(1, requires_grad=True) * 2)
    smaller = bert_core.pruned(tiny_loaded.model, GONE)
    attention._attention_map = None
    assert smaller.bert.encoder.layer[0].attention.self.get_attention_map() is None
    with torch.no_grad():
        for parameter in smaller.parameters():
            parameter += 1
    for name, tensor in tiny_loaded.model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert tiny_loaded.config.pruned_heads == {} and tiny_loaded.model.pruned_heads == {}


def test_a_head_counts_once_and_an_unknown_one_is_said(tiny_loaded: LoadedModel) -> None:
    """Named twice, or gone already, a head is passed over; one that never was gets a sentence; all of them may go."""
    once = bert_core.pruned(tiny_loaded, [(0, 1), (0, 1)])
    again = bert_core.pruned(once, [(0, 1), (1, 2)])
    assert dict(again.config.pruned_heads) == {0: (1,), 1: (2,)}
    with pytest.raises(ValueError, match=r"head 4 does not exist in layer 0: this model has heads 0 to 3 \(1 pruned\)"):
        bert_core.pruned(again, [(0, 4)])
    empty = bert_core.pruned(again, [(layer, head) for layer in range(2) for head in range(4)])
    encoding = empty.tokenizer.encode("the [MASK] sat")
    everything_off = bert_core.capture(tiny_loaded, encoding, head_mask=np.zeros((2, 4)))
    run = bert_core.capture(empty, encoding, target=target_of(empty, encoding))
    assert not run.existing_heads.any() and run.gradient is not None and np.isnan(run.gradient).all()
    assert_near(run.predictions[0].probabilities, everything_off.predictions[0].probabilities)


def test_a_classifier_stands_on_the_same_pruned_encoder(tiny_classifier_folder: Path, tmp_path: Path) -> None:
    """Both models of a fine-tuned checkpoint lose their heads together, and come back from a file together."""
    loaded = bert_core.load(str(tiny_classifier_folder))
    smaller = bert_core.pruned(loaded, SOME)
    assert smaller.task_models["classifier"].bert is smaller.model.bert
    again = bert_core.load(str(bert_core.save(smaller, tmp_path / "smaller")))
    encoding = loaded.tokenizer.encode("the cat sat")
    masked = bert_core.capture(loaded, encoding, head_mask=gates_of(SOME)).classes
    for one in (smaller, again):
        found = bert_core.capture(one, encoding).classes
        assert masked is not None and found is not None
        assert found.labels == masked.labels
        assert_near(found.logits, masked.logits)


# ---------------------------------------------------------------------------- questions to it


def test_a_run_keeps_every_head_at_its_number(
    tiny_loaded: LoadedModel, encoding: Encoding, heads: tuple[tuple[int, int], ...]
) -> None:
    """Maps, gradients and slopes are those of the masked model, with NaN for heads that are gone; masks stay whole."""
    smaller, target = bert_core.pruned(tiny_loaded, heads), target_of(tiny_loaded, encoding)
    masked = bert_core.capture(tiny_loaded, encoding, target=target, head_mask=gates_of(heads))
    run = bert_core.capture(smaller, encoding, target=target)
    there = gates_of(heads) == 1
    assert (run.existing_heads == there).all() and run.head_mask.shape == (2, 4)
    for name in ("attention", "gradient", "gate_gradient"):
        found, expected = getattr(run, name), getattr(masked, name)
        assert found.shape == expected.shape
        assert np.isnan(found[~there]).all()
        assert_near(found[there], expected[there])
    assert_near(run.nsp, masked.nsp)
    gated = bert_core.capture(smaller, encoding, target=target, head_mask=0.5 * np.ones((2, 4)))
    half = bert_core.capture(tiny_loaded, encoding, target=target, head_mask=0.5 * gates_of(heads))
    assert gated.gate_gradient is not None and half.gate_gradient is not None
    assert_near(gated.gate_gradient[there], half.gate_gradient[there])
    assert np.isnan(gated.gate_gradient[~there]).all()


def test_ablation_of_a_pruned_model_is_that_of_the_masked_one(
    tiny_loaded: LoadedModel, encoding: Encoding, heads: tuple[tuple[int, int], ...]
) -> None:
    """Each head that is left has the effect that it has where the others are switched off; the others have none."""
    target = target_of(tiny_loaded, encoding)
    for method, more in (("zero", {}), ("mean", {"reference": [encoding]})):
        found = bert_core.ablate_heads(
            bert_core.pruned(tiny_loaded, heads), encoding, target=target, method=method, **more
        )
        masked = bert_core.ablate_heads(
            tiny_loaded, encoding, target=target, method=method, head_mask=gates_of(heads), **more
        )
        there = gates_of(heads) == 1
        for name in ("values", "nsp", "divergence"):
            assert np.isnan(getattr(found, name)[~there]).all()
            assert_near(getattr(found, name)[there], getattr(masked, name)[there])


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("pads", [0, 3])
def test_both_engines_walk_through_a_pruned_model(
    tiny_loaded: LoadedModel, encoding: Encoding, heads: tuple[tuple[int, int], ...], layer: int, pads: int
) -> None:
    """PyTorch and NumPy agree at every value, heads stand at their numbers, and what leaves is as in a masked model."""
    smaller = bert_core.pruned(tiny_loaded, heads)
    one, other = (bert_core.walk(smaller, encoding, layer, pads=pads, engine=engine) for engine in ("torch", "numpy"))
    assert max(difference.share for difference in differences(one, other)) <= 1e-5
    masked = bert_core.walk(tiny_loaded, encoding, layer, pads=pads, head_mask=gates_of(heads))
    there = gates_of(heads)[layer] == 1
    for name in ("query", "key", "value", "scores", "masked_scores", "probabilities", "context"):
        for walk in (one, other):
            assert np.isnan(walk.layer_value(name)[~there]).all()
            assert_near(walk.layer_value(name)[there], masked.layer_value(name)[there])
    assert_near(one.values["hidden_states"], masked.values["hidden_states"])


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_every_method_answers_on_a_pruned_model(
    tiny_loaded: LoadedModel, encoding: Encoding, heads: tuple[tuple[int, int], ...], method: str
) -> None:
    """No NaN reaches a token's score; methods that do not average maps say what they say of the masked model."""
    smaller, target = bert_core.pruned(tiny_loaded, heads), target_of(tiny_loaded, encoding)
    found = bert_core.token_scores(smaller, encoding, target, [method])[0]
    assert np.isfinite(found).all()
    averaged = ("attention", "effective attention", "rollout", "flow", "gradient relevance")
    if method not in averaged:
        masked = bert_core.token_scores(tiny_loaded, encoding, target, [method], head_mask=gates_of(heads))[0]
        assert_near(found, masked)


def test_means_are_over_the_heads_that_are_left(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Rollout of a pruned model is that of the maps which are left; a layer without heads passes everything on."""
    full = bert_core.capture(tiny_loaded, encoding).attention
    run = bert_core.capture(bert_core.pruned(tiny_loaded, [(0, 1), (0, 2)]), encoding).attention
    assert_near(attention_rollout(run)[0], attention_rollout(full[:1, [0, 3]])[0])
    empty = bert_core.capture(bert_core.pruned(tiny_loaded, GONE), encoding).attention
    assert (mean_of_heads(empty)[1] == 0).all()
    assert np.array_equal(layer_mixing(empty)[1], np.eye(len(encoding)))


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["smaller", "smaller.zip"])
def test_saved_and_loaded_it_is_the_same_and_can_be_pruned_again(
    tiny_loaded: LoadedModel, encoding: Encoding, tmp_path: Path, name: str
) -> None:
    """A folder or .zip gives back equal numbers and head numbers, twice over; the tokenizer comes along."""
    first = bert_core.pruned(tiny_loaded, SOME)
    second = bert_core.load(str(bert_core.save(first, tmp_path / name)))
    assert second.config == first.config.replace(extra={"model_type": "bert"})
    assert second.tokenizer.encode("the cat") == first.tokenizer.encode("the cat")
    assert second.report.missing == () and second.report.unexpected == ()
    assert np.array_equal(
        bert_core.capture(second, encoding).attention, bert_core.capture(first, encoding).attention, equal_nan=True
    )
    third = bert_core.load(str(bert_core.save(bert_core.pruned(second, [(0, 0), (1, 1)]), tmp_path / f"more-{name}")))
    gone = (*SOME, (0, 0), (1, 1))
    masked = bert_core.capture(tiny_loaded, encoding, head_mask=gates_of(gone))
    found = bert_core.capture(third, encoding)
    assert_near(found.predictions[0].probabilities, masked.predictions[0].probabilities)
    assert (found.existing_heads == (gates_of(gone) == 1)).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, f"more-{name}"])


def test_transformers_gives_the_same_from_the_full_shape(
    tiny_loaded: LoadedModel, encoding: Encoding, heads: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    """Zeros where heads were: plain transformers, which knows no pruning, finds the outputs of the pruned model."""
    smaller = bert_core.pruned(tiny_loaded, heads)
    folder = bert_core.save(bert_core.zero_filled(smaller), tmp_path / "full")
    theirs = transformers.BertForPreTraining.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer("the [MASK] sat on the mat", "it was red", return_tensors="pt")
    assert tuple(given["input_ids"][0].tolist()) == encoding.input_ids
    with torch.no_grad():
        found = theirs(input_ids=given["input_ids"], token_type_ids=given["token_type_ids"])
        ours = smaller.model(given["input_ids"], token_type_ids=given["token_type_ids"])
    assert_near(found.prediction_logits, ours.prediction_logits)
    assert_near(found.seq_relationship_logits, ours.seq_relationship_logits)
    assert dict(smaller.config.pruned_heads) and not bert_core.load(str(folder)).config.pruned_heads


def test_an_untrained_head_stays_out_of_the_file(tiny_model_folder: Path, tmp_path: Path) -> None:
    """What came without a word head is saved without one, so that nobody takes its noise for an answer."""
    bare = tmp_path / "bare"
    weights = {k: v for k, v in checkpoint.read_weights(tiny_model_folder).items() if not k.startswith("cls.pred")}
    checkpoint.write_tensors(weights, checkpoint.read_config(tiny_model_folder), bare)
    shutil.copy(tiny_model_folder / "vocab.txt", bare)
    again = bert_core.load(str(bert_core.save(bert_core.pruned(bert_core.load(str(bare)), SOME), tmp_path / "again")))
    assert not again.has_mlm and again.has_nsp


@pytest.mark.parametrize("name", ["model", "model.zip"])
def test_a_failed_write_leaves_nothing(tiny_loaded: LoadedModel, tmp_path: Path, name: str) -> None:
    """Where the disk takes no more, one sentence, and neither the model nor anything on the way to it is there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # of one file: the weights are larger
    try:
        with pytest.raises(CheckpointError, match=r"could not be written .*File too large"):
            bert_core.save(tiny_loaded, tmp_path / "deep" / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file() or path.name.startswith((".", name))] == []


def test_nothing_that_is_there_is_written_over(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """A name that is taken is said; an empty folder is free."""
    (tmp_path / "taken.zip").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="already exists: choose another name"):
        bert_core.save(tiny_loaded, tmp_path / "taken.zip")
    (tmp_path / "empty").mkdir()
    assert (bert_core.save(tiny_loaded, tmp_path / "empty") / "config.json").is_file()
    assert (tmp_path / "taken.zip").read_text(encoding="utf-8") == "mine"


def changed(folder: Path, destination: Path, **values: object) -> Path:
    """A checkpoint folder with other values in its configuration."""
    shutil.copytree(folder, destination)
    path = destination / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")
    return destination


@pytest.mark.parametrize(
    ("pruned_heads", "sentence"),
    [
        (
            {},
            r"query\.weight in .* has shape \(24, 32\): the configuration requires \(32, 32\) for layer 0 with all its",
        ),
        ({"0": [0, 1], "1": [0, 3]}, r"requires \(16, 32\) for layer 0 without heads 0, 1 \(pruned_heads\)"),
        ({"0": [9]}, r"pruned_heads: head 9 does not exist in layer 0: this model has heads 0 to 3"),
        ({"7": [0]}, r"pruned_heads: layer 7 does not exist"),
        ({"a": [0]}, r"pruned_heads is \{'a': \[0\]\}: it gives some layers a list of heads"),
        ([3], r"pruned_heads is \[3\]: it gives some layers a list of heads"),
        ({"0": ["x"]}, r"it gives some layers a list of heads"),
    ],
)
def test_pruned_heads_that_disagree_with_the_weights_are_said(
    tiny_loaded: LoadedModel, tmp_path: Path, pruned_heads: object, sentence: str
) -> None:
    """A configuration whose pruned_heads are not those of the weights, or are none, gets one clear sentence."""
    folder = bert_core.save(bert_core.pruned(tiny_loaded, SOME), tmp_path / "right")
    wrong = changed(folder, tmp_path / "wrong", pruned_heads=pruned_heads)
    with pytest.raises(CheckpointError, match=sentence):
        bert_core.load(str(wrong))


def test_a_zip_file_is_no_way_out_of_its_folder(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Only the files of a checkpoint are read, by their bare names; broken and empty ones get a sentence."""
    good = bert_core.save(tiny_loaded, tmp_path / "good.zip")
    with zipfile.ZipFile(good, "a") as archive:
        archive.writestr("../outside.txt", "x")
        archive.writestr("/tmp/outside.txt", "x")
        archive.writestr("run_me.py", "x")
    assert bert_core.load(str(good)).config == tiny_loaded.config.replace(extra={"model_type": "bert"})
    assert not (tmp_path.parent / "outside.txt").exists()
    (tmp_path / "broken.zip").write_bytes(good.read_bytes()[:100])
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("deep/config.json", "{}")
    for name, sentence in (("broken", "is not a complete .zip file"), ("empty", "has no config.json at its top level")):
        with pytest.raises(CheckpointError, match=sentence):
            bert_core.load(str(tmp_path / f"{name}.zip"))


def test_a_zip_file_is_unpacked_only_where_there_is_room(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file that unpacks to a large one is refused before anything is unpacked; so is one that is not there."""
    good = bert_core.save(tiny_loaded, tmp_path / "good.zip")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.safetensors", bytes(20_000_000))
    assert (tmp_path / "bomb.zip").stat().st_size < 100_000
    monkeypatch.setattr(loading, "MAX_UNPACKED_BYTES", 10_000_000)
    monkeypatch.setattr(zipfile.ZipFile, "extract", lambda *_: pytest.fail("something was unpacked"))
    with pytest.raises(CheckpointError, match=r"bomb.zip unpacks to 0.0 GB: at most"):
        bert_core.load(str(tmp_path / "bomb.zip"))
    with pytest.raises(CheckpointError, match=r"none.zip cannot be unpacked: No such file"):
        bert_core.load(str(tmp_path / "none.zip"))
    monkeypatch.undo()
    assert bert_core.load(str(good)).config.num_hidden_layers == tiny_loaded.config.num_hidden_layers


def test_in_place_and_new_agree(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """What was pruned in place, even the encoder by itself, is saved with its pruned heads."""
    model = bert_core.pruned(tiny_loaded.model, [])
    model.bert._prune_heads({0: [1], 1: [0, 3]})
    model.save_pretrained(tmp_path)
    again = BertForPreTraining.from_pretrained(tmp_path)
    assert again.pruned_heads == bert_core.pruned(tiny_loaded.model, SOME).pruned_heads == {0: (1,), 1: (0, 3)}


def test_the_example_of_the_documents_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/how-to/prune.md: its code runs as it stands, the shape is the one that it names, and both files load."""
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "prune.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    shape = bert_core.capture(names["smaller"], names["encoding"]).attention.shape
    assert f"still {shape}: NaN" in code
    gone = bert_core.load("smaller.zip").config.pruned_heads
    assert gone[0] == (3,) and gone[2] == (11,) and len(gone[5]) == 12
    assert not bert_core.load("for-transformers").config.pruned_heads
