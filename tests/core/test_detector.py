"""ELECTRA's discriminator: against transformers, in checkpoints, and a replaced token wherever a class is a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import bert_core
from bert_core import BertForReplacedTokenDetection, Encoding, LoadedModel, Target, capture, captures
from bert_core.analysis.walks import replaced_probabilities
from bert_core.checkpoint import CheckpointError
from bert_core.config import BertConfig
from bert_core.methods import METHODS, faithfulness, layer_scores, token_scores
from bert_core.numpy_bert import BertForPretraining
from bert_core.run.ablation import ablate_heads
from bert_core.run.decomposition import decompx
from bert_core.run.inputs import id_tensor, segment_tensor
from bert_core.run.knockouts import knock_out_edges
from bert_core.run.neurons import neuron_gradients, suppress_neurons
from bert_core.run.patching import estimate_patches, patch, predict_with_patch
from bert_core.run.paths import patch_path
from bert_core.run.perturbation import integrated_gradients, values_without
from bert_core.run.walk import walk
from tests.families import reference_of, save_family
from tests.near import assert_near

HEAD = "ForPreTraining"
TEXT, PAIR = "The old man sat along the river with his dog.", "Er brachte frisches Brot."
SOURCE = TEXT.replace("sat", "man")
AT = 4  # “sat”, one piece, as the word that stands there in the source
ASKED = Target("replaced", AT)
TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=[24, 32], ids=["narrow tables", "tables of one width"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = tmp_path_factory.mktemp("detector") / f"electra-{request.param}"
    return save_family("electra", name, HEAD, embedding_size=request.param)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode(TEXT, PAIR)


def inputs_of(loaded: LoadedModel, encoding: Encoding) -> dict[str, Any]:
    return {"input_ids": id_tensor(loaded, encoding), "token_type_ids": segment_tensor(loaded, encoding)}


def logit_at(loaded: LoadedModel, encoding: Encoding, position: int = AT, **more: Any) -> float:
    """By an ordinary forward pass."""
    logits: torch.Tensor = loaded.task_models["detector"](**inputs_of(loaded, encoding), **more).logits[0]
    return logits[position].item()


# ---------------------------------------------------------------------------- the model and its files


def test_every_number_is_that_of_transformers(folder: Path, loaded: LoadedModel, encoding: Encoding) -> None:
    """States, logits and maps agree, and every map's gradient for one token's logit."""
    assert loaded.has_detector and not (loaded.has_mlm or loaded.has_nsp or loaded.has_classifier or loaded.has_tagger)
    assert not loaded.report.unexpected and loaded.task_models["detector"].bert is loaded.model.bert
    theirs = reference_of("electra", folder, HEAD)(
        **inputs_of(loaded, encoding), output_attentions=True, output_hidden_states=True
    )
    ours = loaded.task_models["detector"](**inputs_of(loaded, encoding), output_hidden_states=True)
    for mine, its in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        assert_near(mine, its, TOLERANCE)
    assert_near(ours.logits, theirs.logits, TOLERANCE)
    run = capture(loaded, encoding, target=ASKED)
    assert run.gradient is not None and run.replaced is not None and run.target_value is not None
    assert_near(run.replaced, theirs.logits[0].sigmoid(), TOLERANCE)
    assert_near(run.target_value, theirs.logits[0, AT], TOLERANCE)
    gradients = torch.autograd.grad(theirs.logits[0, AT], theirs.attentions)
    largest = max(float(one.abs().max()) for one in gradients)
    for layer, (map_, gradient) in enumerate(zip(theirs.attentions, gradients, strict=True)):
        assert_near(run.attention[layer], map_[0], TOLERANCE)
        assert_near(run.gradient[layer], gradient[0], TOLERANCE, of=largest)
    assert run.attention.max(-1).mean() > 0.5, "the maps are flat: any error would pass"


def test_the_loss_and_the_gradients_of_all_weights_are_those_of_transformers(folder: Path) -> None:
    """With padding, which has no part in it, also in training; each parameter's gradient agrees."""
    theirs = reference_of("electra", folder, HEAD)
    ours = BertForReplacedTokenDetection.from_pretrained(folder)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, ours.config.vocab_size, (3, 9), generator=generator)
    labels, mask = torch.randint(0, 2, (3, 9), generator=generator), torch.ones(3, 9, dtype=torch.long)
    mask[0, 6:] = mask[2, 4:] = 0
    for one in (ours, theirs):
        found = one(ids, attention_mask=mask, labels=labels)
        found.loss.backward()
    assert_near(ours(ids, attention_mask=mask, labels=labels).loss, found.loss)
    assert_near(ours(ids, labels=labels).loss, theirs(ids, labels=labels).loss)
    own = dict(ours.named_parameters())
    largest = max(float(p.grad.abs().max()) for p in theirs.parameters())
    for name, parameter in theirs.named_parameters():
        name = name.replace("electra.embeddings_project", "bert.embeddings.embeddings_project")
        assert_near(own[name.replace("electra.", "bert.")].grad, parameter.grad, TOLERANCE, of=largest, what=name)


def test_what_is_saved_transformers_reads(loaded: LoadedModel, encoding: Encoding, tmp_path: Path) -> None:
    """Whole, pruned or filled up again, the folder is an ELECTRA's discriminator, without a word of what it lacks."""
    smaller = bert_core.pruned(loaded, [(1, 2), (0, 0)])
    gates = np.ones((3, 4), np.float32)
    gates[1, 2] = gates[0, 0] = 0
    off = capture(loaded, encoding, head_mask=gates).replaced
    for name, one in (("whole", loaded), ("pruned", smaller), ("filled", bert_core.zero_filled(smaller))):
        again = bert_core.load(bert_core.save(one, tmp_path / name), device="cpu")
        found = capture(again, encoding).replaced
        assert found is not None and np.array_equal(found, capture(one, encoding).replaced)
        if name != "whole":
            assert_near(found, off, TOLERANCE)
    theirs, info = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "filled", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_near(theirs.eval()(**inputs_of(loaded, encoding)).logits[0].sigmoid(), off, TOLERANCE)
    assert theirs.config.embedding_size == loaded.config.embedding_size


def test_several_texts_at_once_say_what_each_says(loaded: LoadedModel, encoding: Encoding) -> None:
    """Padded beside a longer text, the same probabilities; a text has as many as tokens."""
    short = loaded.tokenizer.encode("The old man.")
    for found, one in zip(captures(loaded, [short, encoding]), (short, encoding), strict=True):
        alone = capture(loaded, one).replaced
        assert found.replaced is not None and alone is not None and found.replaced.shape == (len(one),)
        assert_near(found.replaced, alone, 1e-5)


def test_the_numpy_twin_and_both_walks_agree(folder: Path, loaded: LoadedModel, encoding: Encoding) -> None:
    """Every value on the way is the same in torch and in NumPy, the head's too; the folder is read without torch."""
    by_torch, by_numpy = (walk(loaded, encoding, 1, pads=2, engine=engine) for engine in ("torch", "numpy"))
    assert by_torch.values.keys() == by_numpy.values.keys() and "mlm_logits" not in by_torch.values
    assert ("embeddings.normed" in by_torch.values) == (loaded.config.embedding_size == 24)
    for name, value in by_torch.values.items():
        of = 1e4 if "mask" in name else max(float(np.abs(value).max()), 1e-3)
        assert_near(by_numpy.values[name], value, TOLERANCE, of=of, what=name)
    replaced = capture(loaded, encoding).replaced
    assert_near(replaced_probabilities(by_torch)[: len(encoding)], replaced, TOLERANCE)
    ids, segments = (np.array([part]) for part in (encoding.input_ids, encoding.token_type_ids))
    found = BertForPretraining.from_pretrained(folder).forward(ids, token_type_ids=segments)
    assert_near(1 / (1 + np.exp(-found["replaced_logits"][0])), replaced, TOLERANCE)
    assert "mlm_logits" not in found and "nsp_logits" not in found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"discriminator_predictions.dense.weight": (31, 32)}, "dense.weight in .* has shape .31, 32.: the conf"),
        ({"discriminator_predictions.dense_prediction.weight": (2, 32)}, "prediction.weight in .* has shape .2, 32"),
        ({"electra.embeddings.word_embeddings.weight": (9, 32)}, "word_embeddings.weight in .* has shape .9, 32."),
    ],
)  # fmt: skip
def test_a_file_of_other_shapes_is_refused(
    changed: dict[str, tuple[int, int]], message: str, folder: Path, tmp_path: Path
) -> None:
    """One sentence names the weight and both shapes."""
    broken = copied(folder, tmp_path, {name: torch.zeros(shape) for name, shape in changed.items()})
    with pytest.raises(CheckpointError, match=message):
        bert_core.load(broken, device="cpu")


def test_half_a_detector_is_none(folder: Path, tmp_path: Path) -> None:
    """Without one of its weights it is reported, and asked for nothing."""
    loaded = bert_core.load(copied(folder, tmp_path, {"discriminator_predictions.dense.bias": None}), device="cpu")
    assert not loaded.has_detector and "discriminator_predictions.dense.bias" in loaded.report.missing
    assert capture(loaded, loaded.tokenizer.encode(TEXT)).replaced is None
    again = bert_core.load(bert_core.save(loaded, tmp_path / "again"), device="cpu")
    assert again.report.missing == loaded.report.missing


@pytest.mark.parametrize("narrow", [True, False])
def test_a_missing_projection_is_refused(narrow: bool, tmp_path: Path) -> None:
    """Tables of another width than the layers need the map between them; those of one width have none to miss."""
    folder = save_family("electra", tmp_path / "made", HEAD, embedding_size=24 if narrow else 32)
    name = "electra.embeddings_project.weight"
    assert (name in load_file(folder / "model.safetensors")) == narrow
    if narrow:
        with pytest.raises(CheckpointError, match=r"not a complete BERT: 1 of .*embeddings_project\.weight$"):
            bert_core.load(copied(folder, tmp_path, {name: None}), device="cpu")


def copied(folder: Path, place: Path, changed: dict[str, torch.Tensor | None]) -> Path:
    """The checkpoint in another folder with some weights changed, or for None left out."""
    new = place / "changed"
    new.mkdir()
    for file in folder.iterdir():
        (new / file.name).write_bytes(file.read_bytes())
    weights = {**load_file(folder / "model.safetensors"), **changed}
    save_file({name: tensor for name, tensor in weights.items() if tensor is not None}, new / "model.safetensors")
    return new


def test_sizes_that_a_file_leaves_out_are_those_of_electra(folder: Path, tmp_path: Path) -> None:
    """A configuration without them means transformers' own defaults, and comes back from its file."""
    (tmp_path / "config.json").write_text('{"model_type": "electra"}')
    ours, theirs = BertConfig.from_json(tmp_path / "config.json"), transformers.ElectraConfig()
    for name in ("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                 "vocab_size", "hidden_act", "layer_norm_eps", "type_vocab_size"):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    ours.to_json(tmp_path / "again.json")
    assert BertConfig.from_json(tmp_path / "again.json") == ours
    assert transformers.ElectraConfig(**json.loads((tmp_path / "again.json").read_text())).embedding_size == 128


# ---------------------------------------------------------------------------- as a target


def test_ablation_is_an_ordinary_pass_without_the_head(loaded: LoadedModel, encoding: Encoding) -> None:
    """Each head taken out gives what a pass with its gate at 0 gives."""
    found = ablate_heads(loaded, encoding, target=ASKED)
    assert found.values is not None and found.base_value is not None
    assert_near(found.base_value, logit_at(loaded, encoding), TOLERANCE)
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        gates = torch.ones(3, 4)
        gates[layer, head] = 0
        assert_near(found.values[layer, head], logit_at(loaded, encoding, head_mask=gates), TOLERANCE, of=1.0)


def test_the_parts_of_decompx_sum_to_the_logit(loaded: LoadedModel, encoding: Encoding) -> None:
    """What every token brings, through the map behind the tables and the head, adds up."""
    found = decompx(loaded, encoding, ASKED)
    assert_near(found.scores.sum(), logit_at(loaded, encoding), TOLERANCE, of=float(np.abs(found.scores).max()))
    assert found.gap is not None and abs(found.gap) < 1e-3


def test_integrated_gradients_go_the_whole_way(loaded: LoadedModel, encoding: Encoding) -> None:
    """They start at the word embeddings, as narrow as they are, and miss the way of the logit by little."""
    found = integrated_gradients(loaded, encoding, ASKED, steps=400)
    assert found.baseline_value is not None and found.gap is not None
    assert abs(found.gap) < 0.02 * max(abs(found.target_value - found.baseline_value), 1.0)
    assert found.scores[AT] != 0, "the token itself can be taken out"


def test_words_taken_away_are_an_ordinary_pass_with_masks(loaded: LoadedModel, encoding: Encoding) -> None:
    """The logit, and its probability, with a [MASK] in the places of two tokens."""
    removed = np.zeros((1, len(encoding)), bool)
    removed[0, [2, 5]] = True
    hidden = id_tensor(loaded, encoding)
    hidden[0, [2, 5]] = loaded.tokenizer.mask_id
    logit = loaded.task_models["detector"](hidden, token_type_ids=segment_tensor(loaded, encoding)).logits[0, AT]
    assert_near(values_without(loaded, encoding, ASKED, removed)[0], logit, TOLERANCE)
    assert_near(values_without(loaded, encoding, ASKED, removed, probability=True)[0], logit.sigmoid(), TOLERANCE)


def test_every_method_answers_and_is_judged(loaded: LoadedModel, encoding: Encoding) -> None:
    """All methods give finite scores for the token's logit, and its probability without the words is followed."""
    run = capture(loaded, encoding, target=ASKED)
    scores = token_scores(loaded, encoding, ASKED, run=run)
    assert scores.shape == (len(METHODS), len(encoding)) and np.isfinite(scores).all()
    for method in METHODS:
        if method.layers is not None:
            assert np.isfinite(layer_scores(loaded, encoding, ASKED, method.name, run=run)).all(), method.name
    judged = faithfulness(loaded, encoding, ASKED, scores, random_rankings=5)
    assert judged and all(np.isfinite(one.scores).all() for one in judged.values())


@pytest.mark.parametrize("what", ["state", "attention", "feed_forward", "head", "pattern"])
def test_parts_of_another_reading_can_be_put_in(what: str, loaded: LoadedModel, encoding: Encoding) -> None:
    """Everything put in gives the source's logit; at depth 0 the state of every token is the whole of it."""
    source = loaded.tokenizer.encode(SOURCE, PAIR)
    assert len(source) == len(encoding)
    found = patch(loaded, source, encoding, ASKED, part_kind=what)
    assert_near(found.base_value, logit_at(loaded, encoding), TOLERANCE)
    assert_near(found.source_value, logit_at(loaded, source), TOLERANCE)
    assert np.isfinite(found.values).all()
    if what == "state":
        # Only the token that differs differs at depth 0, after the map behind the tables.
        assert_near(found.values[0, AT], found.source_value, TOLERANCE)
        assert_near(np.delete(found.values[0], AT), found.base_value, TOLERANCE)
        answer = predict_with_patch(loaded, found, (0, AT))
        assert_near(answer.replaced, capture(loaded, source).replaced, TOLERANCE)
    estimate = estimate_patches(loaded, source, encoding, ASKED, part_kind=what)
    assert np.isfinite(estimate.values).all()


def test_paths_arrows_and_neurons_answer_too(loaded: LoadedModel, encoding: Encoding) -> None:
    """What else takes a target takes this one: its own value is the logit everywhere."""
    source = loaded.tokenizer.encode(SOURCE, PAIR)
    value = logit_at(loaded, encoding)
    assert_near(patch_path(loaded, source, encoding, ASKED).base_value, value, TOLERANCE)
    assert np.isfinite(knock_out_edges(loaded, encoding, ASKED, 1, 2)).all()
    found = neuron_gradients(loaded, encoding, ASKED)
    assert_near(found.target_value, value, TOLERANCE)
    assert_near(suppress_neurons(loaded, encoding, ASKED, [(1, 3)], draws=1).base_value, value, TOLERANCE)


def test_an_edited_model_says_what_it_then_would(loaded: LoadedModel, encoding: Encoding) -> None:
    """A neuron that is off, and a state put in at depth 0, reach the detector; without edits it is as before."""
    changed = bert_core.edited(loaded, [bert_core.ScaledNeuron(0, 3, 0.0)])
    assert changed.task_models["detector"].bert is changed.model.bert
    assert_near(capture(changed, encoding).replaced, 1 / (1 + np.exp(-_all_logits(changed, encoding))), TOLERANCE)
    assert np.abs(_all_logits(changed, encoding) - _all_logits(loaded, encoding)).max() > 1e-4
    source = loaded.tokenizer.encode(SOURCE, PAIR)
    put = bert_core.make_patch(loaded, source, encoding, "state", 0, position=AT)
    put_in = bert_core.edited(loaded, [put])
    assert_near(_all_logits(put_in, encoding), _all_logits(loaded, source), TOLERANCE)
    assert np.array_equal(_all_logits(bert_core.edited(put_in, []), encoding), _all_logits(put_in, encoding))


def _all_logits(loaded: LoadedModel, encoding: Encoding) -> np.ndarray:
    found: np.ndarray = loaded.task_models["detector"](**inputs_of(loaded, encoding)).logits[0].detach().numpy()
    return found


def test_a_question_that_cannot_be_asked_is_one_sentence(
    loaded: LoadedModel, tiny_loaded: LoadedModel, encoding: Encoding
) -> None:
    """A model without a detector, a place beyond the text, no place, and words of a model that has none."""
    with pytest.raises(ValueError, match=r"has no trained replaced-token detection head: choose another target$"):
        capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"), target=Target("replaced", 1))
    assert capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat")).replaced is None
    with pytest.raises(ValueError, match=rf"^position 400 does not exist: .* 0 to {len(encoding) - 1}$"):
        capture(loaded, encoding, target=Target("replaced", 400))
    with pytest.raises(ValueError, match=r"^a 'replaced' target needs a position$"):
        Target("replaced")
    with pytest.raises(ValueError, match=r"has no trained masked-word head: choose another target$"):
        capture(loaded, encoding, target=Target("mlm", AT, 9))
    with pytest.raises(ValueError, match=r"has no trained masked-word head: its layers cannot be read as words$"):
        bert_core.logit_lens(loaded, encoding)
