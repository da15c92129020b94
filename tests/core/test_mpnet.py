"""MPNet: a bias for each head and bucket of distances, one table for all layers; transformers is the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bert_core
from bert_core import BertForMaskedLM, BertForSequenceClassification, LoadedModel, Target, checkpoint
from bert_core.checkpoint import CheckpointError
from bert_core.fingerprint import fingerprint
from bert_core.naming import MPNET
from bert_core.recording import record
from bert_core.run.capture import capture
from bert_core.run.vectors import head_vectors
from bert_core.run.walk import walk
from tests.distances import PRECISIONS, assert_every_form_agrees, assert_numpy_agrees
from tests.families import reference_of, save_family
from tests.near import apart, assert_near

TABLE = "mpnet.encoder.relative_attention_bias.weight"
PLACES = "mpnet.embeddings.position_embeddings.weight"
# Lengths at which a bucket begins, one before and one behind; and the longest text.
LENGTHS = (2, 8, 9, 10, 12, 13, 16, 17, 23, 24, 32, 33, 46, 47, 63, 64, 65, 66, 91, 92, 93, 200, 512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of words in which the bias decides as much as the products of queries and keys."""
    folder = save_family("mpnet", tmp_path_factory.mktemp("mpnet") / "words")
    model = reference_of("mpnet", folder)
    torch.manual_seed(3)
    model.mpnet.encoder.relative_attention_bias.weight.data.normal_(std=2)
    for layer in model.mpnet.encoder.layer:  # else float32 is not precise enough to tell an error of 1e-5
        layer.attention.attn.q.weight.data.mul_(0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def long_text(loaded: LoadedModel) -> bert_core.Encoding:
    """A text of more than 100 tokens, so that every bucket counts."""
    encoding = loaded.tokenizer.encode("The old man [MASK] along the river with his dog. " + "The cat sat. " * 40)
    assert len(encoding) > 100
    return encoding


def ids_of(loaded: LoadedModel, batch: int, length: int) -> Tensor:
    """Random words between the first and the last special token."""
    draw = torch.Generator().manual_seed(length)
    ids = torch.randint(5, loaded.config.vocab_size - 1, (batch, length), generator=draw)
    ids[:, 0], ids[:, -1] = loaded.tokenizer.first_id, loaded.tokenizer.end_id
    return ids


def results(model: Any, encoder: Any, inputs: dict[str, Tensor], ours: bool) -> dict[str, Tensor]:
    """States, maps, logits, and the gradient of one log-probability for every map and every parameter, by name."""
    model.zero_grad()
    with record() as recording:
        outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
        maps = outputs.attentions
        for map_ in maps:
            map_.retain_grad()
        outputs.logits[:, outputs.logits.shape[1] // 2].log_softmax(-1)[:, 7].sum().backward()
    gradients = [recording.gradients[layer] for layer in range(len(maps))] if ours else [map_.grad for map_ in maps]
    found = {"logits": outputs.logits}
    for name, tensors in (("state", outputs.hidden_states), ("map", maps), ("gradient", gradients)):
        found |= {f"{name} {number}": tensor for number, tensor in enumerate(tensors)}
    own = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    own = MPNET.from_bert_names(own) if ours else own
    own[PLACES] = own[PLACES] if ours else own[PLACES][1:]  # the first row is of no place, and not kept
    return {name: tensor.detach() for name, tensor in {**found, **own}.items()}


def assert_parity(folder: Path, inputs: dict[str, Tensor], dtype: torch.dtype, within: float) -> dict[str, Tensor]:
    """Everything agrees; returns ours. Gradients of parameters are compared with the largest of them."""
    ours = BertForMaskedLM.from_pretrained(folder).requires_grad_(True).to(dtype)
    theirs = reference_of("mpnet", folder).to(dtype)
    found = results(ours, ours.bert, inputs, ours=True)
    expected = results(theirs, theirs.mpnet, inputs, ours=False)
    assert found.keys() == expected.keys()
    largest = max(float(tensor.abs().max()) for name, tensor in expected.items() if name.endswith((".weight", ".bias")))
    for name, tensor in expected.items():
        of = largest if name.endswith((".weight", ".bias")) else None
        assert_near(found[name], tensor, within, of=of, what=name)
    return found


@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_texts_of_every_length(
    folder: Path, loaded: LoadedModel, length: int, dtype: torch.dtype, within: float
) -> None:
    """States, maps, logits and all gradients, the table's too, are those of transformers at the edges of buckets."""
    found = assert_parity(folder, {"input_ids": ids_of(loaded, 1, length)}, dtype, within)
    if length > 16:
        peaks = torch.cat([tensor.amax(-1).flatten() for name, tensor in found.items() if name.startswith("map")])
        assert peaks.median() > 0.2, "the maps are flat: any error would pass"


@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(folder: Path, loaded: LoadedModel, side: str, dtype: torch.dtype, within: float) -> None:
    """With padding on either side everything agrees; a padded text has the states that it has alone."""
    ids, mask = ids_of(loaded, 2, 80), torch.ones(2, 80, dtype=torch.long)
    padding, text = (slice(0, 30), slice(30, 80)) if side == "left" else (slice(50, 80), slice(0, 50))
    ids[1, padding], mask[1, padding] = loaded.config.pad_token_id, 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    found = assert_parity(folder, inputs, dtype, within)
    assert (found["map 1"][1, :, text, padding] == 0).all()
    alone = BertForMaskedLM.from_pretrained(folder).to(dtype).bert(ids[1:, text]).last_hidden_state
    assert_near(found["state 3"][1:, text], alone, within)


def test_fused_attention_and_chosen_positions_have_the_bias(loaded: LoadedModel) -> None:
    """Unwatched, and asked for some positions alone, the model gives the states of the watched pass."""
    ids, mask = ids_of(loaded, 2, 80), torch.ones(2, 80)
    mask[1, 50:] = 0
    wanted = torch.tensor([[0, 79, 40], [49, 0, 3]])
    with torch.no_grad():
        with record():
            watched = loaded.model.bert(ids, attention_mask=mask).last_hidden_state
        fused = loaded.model.bert(ids, attention_mask=mask).last_hidden_state
        chosen = loaded.model.bert(ids, attention_mask=mask, positions=wanted).last_hidden_state
    assert_near(fused, watched)
    assert_near(chosen, watched[torch.arange(2)[:, None], wanted])


def test_the_numpy_model_agrees_on_padded_batches(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """From the same file, with padding on both sides, with gates and with pruned heads, in both number types."""
    smaller = bert_core.save(bert_core.pruned(loaded, [(0, 0), (2, 1), (2, 3)]), tmp_path / "smaller")
    ids, mask = ids_of(loaded, 3, 100), torch.ones(3, 100, dtype=torch.long)
    for row, padding in ((1, slice(0, 40)), (2, slice(20, 100))):
        ids[row, padding], mask[row, padding] = loaded.config.pad_token_id, 0
    gates = np.linspace(0, 1, 12).reshape(3, 4).astype(np.float32)
    for place in (folder, smaller):
        assert_numpy_agrees(place, ids, mask, gates)


def test_a_long_text_in_every_form(loaded: LoadedModel, long_text: bert_core.Encoding) -> None:
    """The neuron view's scores, both walks, and a batch give the map of the captured run, where all buckets count."""
    assert_every_form_agrees(loaded, long_text)
    table = loaded.model.attention_modules[1].get_submodule("relative_attention_bias").weight
    for head in range(4):
        vectors = head_vectors(loaded, long_text, 1, head)
        assert vectors.distances is not None
        assert set(np.unique(vectors.distances)) == set(table[:, head].numpy()) - {table[16, head].item()}


def test_heads_that_are_left_keep_their_bias(loaded: LoadedModel, long_text: bert_core.Encoding) -> None:
    """Pruned is the same as switched off, within 1e-6; the table keeps its columns, and each head its own."""
    smaller = bert_core.pruned(loaded, [(0, 0), (1, 1), (1, 2)])
    (position,) = long_text.mask_positions
    gates = bert_core.head_mask_without(loaded.config, [(0, 0), (1, 1), (1, 2)])
    target = Target("mlm", position, 7)
    off, run = capture(loaded, long_text, target=target, head_mask=gates), capture(smaller, long_text, target=target)
    assert off.gradient is not None and run.gradient is not None
    for layer in range(3):
        there = list(smaller.config.heads_of(layer))
        assert_near(run.attention[layer, there], off.attention[layer, there], 1e-6)
        assert_near(run.gradient[layer, there], off.gradient[layer, there], 1e-5)
    assert_near(run.target_value, off.target_value, 1e-6)
    assert smaller.model.attention_modules[1].get_submodule("relative_attention_bias").weight.shape == (32, 4)


def test_the_table_is_one_weight_in_memory_and_in_files(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """All layers have one parameter, also in copies; the file has it under transformers' name, and nothing else."""
    for model in (loaded, bert_core.pruned(loaded, [(0, 1)]), bert_core.zero_filled(loaded)):
        tables = {
            id(module.get_submodule("relative_attention_bias").weight) for module in model.model.attention_modules
        }
        assert len(tables) == 1
    saved = bert_core.save(loaded, tmp_path / "saved")
    written, given = (checkpoint.read_tensors(place / "model.safetensors") for place in (saved, folder))
    assert written.keys() == given.keys() and TABLE in given
    for tensors in (written, given):
        tensors[PLACES] = tensors[PLACES][1:]  # the first row is of no place, and not kept
    assert all(torch.equal(written[name], given[name]) for name in given)
    again = bert_core.load(saved, device="cpu")
    assert fingerprint(again) == fingerprint(loaded)
    assert json.loads((saved / "config.json").read_text())["relative_attention_num_buckets"] == 32


def test_a_layer_can_go(loaded: LoadedModel, long_text: bert_core.Encoding, tmp_path: Path) -> None:
    """Without the first layer, whose name the table has, the others keep it, in memory, in files and in NumPy; with
    zeros in place of what is pruned, transformers reads the model.
    """
    smaller = bert_core.pruned(loaded, [(1, 2)], layers=[0])
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    expected = capture(smaller, long_text).predictions[0].top
    assert capture(again, long_text).predictions[0].top == expected
    by_torch, by_numpy = (walk(again, long_text, 1, engine=engine) for engine in ("torch", "numpy"))
    assert (
        apart(by_numpy.layer_value("probabilities")[[0, 1, 3]], by_torch.layer_value("probabilities")[[0, 1, 3]]) < 1e-5
    )
    full = bert_core.save(bert_core.zero_filled(smaller), tmp_path / "full")
    logits = reference_of("mpnet", full)(torch.tensor([long_text.input_ids])).logits[0, long_text.mask_positions[0]]
    assert_near(logits.softmax(-1)[expected[0][0]], expected[0][1])


@pytest.mark.parametrize(
    ("name", "value"),
    [("relative_attention_num_buckets", 64), ("pad_token_id", 0), ("position_embedding_type", "absolute")],
)
def test_what_transformers_does_not_follow_is_refused(folder: Path, tmp_path: Path, name: str, value: object) -> None:
    """transformers has 32 buckets and padding token 1, whatever a file says: a file that says otherwise is refused."""
    values = {**json.loads((folder / "config.json").read_text()), name: value}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=rf"{name} is {value!r}: only models with .* are supported$"):
        bert_core.load(tmp_path, device="cpu")


def test_a_table_of_another_size_is_refused(folder: Path, tmp_path: Path) -> None:
    """A table that has not a row for each bucket is one sentence, and no error of an index later."""
    bert_core.save(bert_core.load(folder, device="cpu"), tmp_path / "odd")
    weights = checkpoint.read_tensors(tmp_path / "odd" / "model.safetensors")
    weights[TABLE] = weights[TABLE][:30].contiguous()
    checkpoint.save_file(weights, tmp_path / "odd" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"relative_attention_bias.* has shape \(30, 4\): .* \(32, 4\)$"):
        bert_core.load(tmp_path / "odd", device="cpu")


def test_training_moves_the_one_table(folder: Path) -> None:
    """After a step of an optimizer all layers still share the table, and it has moved."""
    model = BertForMaskedLM.from_pretrained(folder).train().requires_grad_(True)
    before = model.attention_modules[0].get_submodule("relative_attention_bias").weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.arange(5, 45)[None]
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    tables = [module.get_submodule("relative_attention_bias").weight for module in model.attention_modules]
    assert all(table is tables[0] for table in tables) and not torch.equal(tables[0], before)


def test_a_classifier_of_the_bare_names(tmp_path: Path) -> None:
    """What stands before the classes has the family's names in the file: its dense layer, and its projection."""
    source = save_family("mpnet", tmp_path / "classes", "ForSequenceClassification")
    names = checkpoint.read_tensors(source / "model.safetensors").keys()
    assert {"classifier.dense.weight", "classifier.out_proj.weight"} <= names
    model = BertForSequenceClassification.from_pretrained(source)
    assert not model.load_report.missing and not model.load_report.unexpected
