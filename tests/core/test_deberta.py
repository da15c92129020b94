"""DeBERTa-v2 and v3: contents and distances have queries and keys; transformers is the reference.

Both sides are compared at tokens: transformers multiplies the states of padding by the mask and masks their queries
too, which changes nothing that a token reads. Maps are 0 at padding on both sides, where only gradients differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bert_core
from bert_core import BertForMaskedLM, BertForReplacedTokenDetection, LoadedModel, Target, checkpoint
from bert_core.checkpoint import CheckpointError
from bert_core.fingerprint import fingerprint
from bert_core.methods import token_scores
from bert_core.naming import DEBERTA_V2
from bert_core.recording import record
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture, captures
from bert_core.run.decomposition import alti, attention_norms, decompx, globenc
from bert_core.run.knockouts import knock_out_edges
from bert_core.run.lens import logit_lens
from bert_core.run.neurons import suppress_neurons
from bert_core.run.patching import estimate_patches, patch
from bert_core.run.paths import patch_path
from bert_core.run.perturbation import integrated_gradients, values_without
from bert_core.run.vectors import head_vectors, score_addends
from bert_core.run.walk import walk
from tests.distances import PRECISIONS, assert_every_form_agrees, assert_numpy_agrees
from tests.families import reference_of, save_family, save_published_deberta
from tests.near import assert_near
from tests.parity import results

TABLE = "deberta.encoder.rel_embeddings.weight"
NORM = "deberta.encoder.LayerNorm.weight"
# Where the first logarithmic bucket begins, one before and one behind; and the longest text.
LENGTHS = (2, 16, 128, 129, 130, 131, 257, 300, 512)
# transformers computes the root in float32: that of 3 terms times a head size of 12 is exact.
EXACT = {"hidden_size": 48}
VARIANTS: dict[str, dict[str, Any]] = {
    "v3": {},
    "projections of its own": {"share_att_key": False},
    "rows as they are": {"norm_rel_ebd": "none"},
    "one term": {"pos_att_type": ["c2p"]},
    "the other term": {"pos_att_type": "p2c", "share_att_key": False},
    "a row for each distance": {"position_buckets": -1},
    "small buckets": {"position_buckets": 32, "max_relative_positions": 128},
}
TEXT, PAIR = "The old man sat along the river with his dog.", "Er brachte frisches Brot."
AT = 4


def save(folder: Path, head: str = "ForMaskedLM", **sizes: Any) -> Path:
    """A model in which distances decide as much as contents."""
    save_family("deberta-v2", folder, head, **{**EXACT, **sizes})
    model = reference_of("deberta-v2", folder, head)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.endswith("rel_embeddings.weight"):
            parameter.data.normal_(std=1.0)
        if name.endswith(("query_proj.weight", "key_proj.weight")):  # else float32 cannot tell an error of 1e-5
            parameter.data.mul_(0.7)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("deberta") / "words")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("variants") / "words", **VARIANTS[request.param])


@pytest.fixture(scope="module")
def long_text(loaded: LoadedModel) -> bert_core.Encoding:
    """A text with distances in logarithmic buckets."""
    encoding = loaded.tokenizer.encode("The old man [MASK] along the river with his dog. " + "The cat sat. " * 60)
    assert len(encoding) > 256
    return encoding


def ids_of(config: bert_core.BertConfig, batch: int, length: int) -> Tensor:
    """Random words between the first and the last special token."""
    draw = torch.Generator().manual_seed(length)
    ids = torch.randint(5, config.vocab_size - 1, (batch, length), generator=draw)
    ids[:, 0], ids[:, -1] = 1, 2
    return ids


def assert_parity(folder: Path, inputs: dict[str, Tensor], dtype: torch.dtype, within: float) -> dict[str, Tensor]:
    """Everything agrees; returns ours. Gradients of parameters are compared with the largest of them."""
    found = results(BertForMaskedLM.from_pretrained(folder).requires_grad_(True).to(dtype), inputs, DEBERTA_V2)
    expected = results(reference_of("deberta-v2", folder).to(dtype), inputs)
    assert found.keys() == expected.keys()
    largest = max(float(tensor.abs().max()) for name, tensor in expected.items() if name.endswith((".weight", ".bias")))
    for name, tensor in expected.items():
        assert_near(found[name], tensor, within, of=largest if name.endswith((".weight", ".bias")) else None, what=name)
    return found


@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_texts_of_every_length(
    folder: Path, loaded: LoadedModel, length: int, dtype: torch.dtype, within: float
) -> None:
    """States, maps, logits and all gradients, those of the table and its norm too, at the edges of buckets and far."""
    found = assert_parity(folder, {"input_ids": ids_of(loaded.config, 1, length)}, dtype, within)
    assert TABLE in found and NORM in found
    if length > 16:
        peaks = torch.cat([tensor.amax(-1).flatten() for name, tensor in found.items() if name.startswith("map")])
        assert peaks.median() > 0.2, "the maps are flat: any error would pass"


@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
def test_padding_on_both_sides(folder: Path, loaded: LoadedModel, dtype: torch.dtype, within: float) -> None:
    """Before, behind and around a text: every token has what it has in transformers, and what it has alone."""
    ids, mask = ids_of(loaded.config, 4, 40), torch.ones(4, 40, dtype=torch.long)
    mask[1, 30:] = mask[2, :7] = mask[3, :5] = mask[3, 25:] = 0
    ids[mask == 0] = loaded.config.pad_token_id
    found = assert_parity(folder, {"input_ids": ids, "attention_mask": mask}, dtype, within)
    alone = BertForMaskedLM.from_pretrained(folder).to(dtype)(ids[3:, 5:25]).logits[0]
    assert_near(found["logits"][-20:], alone, within)


def test_every_variant_of_the_attention(variant: Path) -> None:
    """Terms, projections, norms and buckets by the settings of the file, with padding on both sides."""
    config = bert_core.BertConfig.from_json(variant / "config.json")
    ids, mask = ids_of(config, 2, 270), torch.ones(2, 270, dtype=torch.long)
    mask[1, :3] = mask[1, 200:] = 0
    assert_parity(variant, {"input_ids": ids, "attention_mask": mask}, torch.float32, 1e-5)


@torch.no_grad()
def test_attention_without_maps_gives_the_same(variant: Path) -> None:
    """Fused attention with the terms as a bias, at all queries and at chosen ones, beside padding."""
    model = BertForMaskedLM.from_pretrained(variant)
    ids, mask = ids_of(model.config, 2, 200), torch.ones(2, 200, dtype=torch.long)
    mask[1, 150:] = 0
    with record():
        explicit = model.bert(ids, attention_mask=mask).last_hidden_state
    fused = model.bert(ids, attention_mask=mask).last_hidden_state
    assert_near(fused[mask == 1], explicit[mask == 1], 1e-5)
    chosen = torch.tensor([[0, 199, 77], [3, 3, 149]])
    some = model.bert(ids, attention_mask=mask, positions=chosen).last_hidden_state
    assert_near(some, explicit[torch.arange(2)[:, None], chosen], 1e-5)


def test_numpy_in_both_precisions(variant: Path) -> None:
    """The NumPy implementation agrees at every token of a padded batch, gated too."""
    config = bert_core.BertConfig.from_json(variant / "config.json")
    ids, mask = ids_of(config, 2, 140), torch.ones(2, 140, dtype=torch.long)
    mask[0, 133:] = 0
    gates = np.ones((3, 4))
    gates[0, 1], gates[2, 3] = 0, 0.5
    assert_numpy_agrees(variant, ids, mask, gates)


def test_a_long_text_in_every_form(loaded: LoadedModel, long_text: bert_core.Encoding) -> None:
    """The neuron view's scores, both walks, and a batch give the map of the captured run."""
    assert_every_form_agrees(loaded, long_text)


def test_the_terms_add_up_to_the_scores(variant: Path) -> None:
    """Each term by the formula of the paper, score by score; their sum is the score within 1e-6 of the largest."""
    loaded = bert_core.load(variant, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT, PAIR)
    attention, length = loaded.model.attention_modules[1], len(encoding)
    scheme = loaded.config.position_scheme.distances
    assert scheme is not None
    found = score_addends(loaded, encoding, 1)
    scores = walk(loaded, encoding, 1).layer_value("scores")
    assert list(found) == ["content-to-content", *(addend.name for addend in scheme.addends)]
    assert_near(sum(found.values()), scores, 1e-6)
    states = loaded.model.bert(torch.tensor([encoding.input_ids]), output_hidden_states=True).hidden_states[1][0]
    table = attention.get_submodule(scheme.table).weight
    table = table if scheme.norm is None else attention.get_submodule(scheme.norm)(table)
    size, root = attention.attention_head_size, (attention.attention_head_size * scheme.root_terms) ** 0.5
    place = np.arange(length)
    rows = scheme.rows(place[:, None] - place, loaded.config.max_position_embeddings)
    for addend in scheme.addends:
        content = getattr(attention, str(addend.factor))(states).view(length, 4, size)
        vectors = attention.get_submodule(str(addend.projection))(table).view(len(table), 4, size)[rows]
        axes = "qhd,qkhd->hqk" if addend.factor == "query" else "khd,qkhd->hqk"
        assert_near(found[addend.name], torch.einsum(axes, content, vectors) / root, what=addend.name)
    vectors_of_head = head_vectors(loaded, encoding, 1, 2)
    assert np.array_equal(vectors_of_head.addends["content-to-content"], found["content-to-content"][2])
    assert_near(sum(vectors_of_head.addends.values()), scores[2], 1e-6)


def test_the_terms_of_pruned_and_of_missing_heads(loaded: LoadedModel) -> None:
    """A pruned head has NaN, the others what they had; a layer that does not exist or has no heads is refused."""
    encoding = loaded.tokenizer.encode(TEXT)
    before = score_addends(loaded, encoding, 0)
    found = score_addends(bert_core.pruned(loaded, [(0, 1)]), encoding, 0)
    for name, term in found.items():
        assert np.isnan(term[1]).all()
        assert_near(term[[0, 2, 3]], before[name][[0, 2, 3]], 1e-6)
    with pytest.raises(bert_core.Refused, match="layer 3 does not exist"):
        score_addends(loaded, encoding, 3)
    empty = bert_core.pruned(loaded, [(0, head) for head in range(4)])
    with pytest.raises(bert_core.Refused, match="layer 0 has no heads, so it has no attention scores"):
        score_addends(empty, encoding, 0)


def test_pruned_is_the_same_as_switched_off(variant: Path, tmp_path: Path) -> None:
    """Off, pruned and taken out by hand are one thing, within 1e-6; transformers reads what is filled with zeros."""
    loaded = bert_core.load(variant, device="cpu")
    heads = [(0, 0), (1, 1), (1, 2)]
    smaller, gates = bert_core.pruned(loaded, heads), bert_core.head_mask_without(loaded.config, heads)
    encoding = loaded.tokenizer.encode(TEXT.replace("sat", "[MASK]"), PAIR)
    (position,) = encoding.mask_positions
    target = Target("mlm", position, 7)
    off, run = capture(loaded, encoding, target=target, head_mask=gates), capture(smaller, encoding, target=target)
    assert off.gradient is not None and run.gradient is not None
    for layer in range(3):
        remaining = list(smaller.config.heads_of(layer))
        assert_near(run.attention[layer, remaining], off.attention[layer, remaining], 1e-6)
        assert_near(run.gradient[layer, remaining], off.gradient[layer, remaining], 1e-5)
    assert_near(run.target_value, off.target_value, 1e-6)
    reference = reference_of("deberta-v2", variant)
    for layer, head in heads:
        size = loaded.config.attention_head_size
        part = slice(head * size, (head + 1) * size)
        reference.deberta.encoder.layer[layer].attention.output.dense.weight.data[:, part] = 0
    ids = torch.tensor([encoding.input_ids])
    expected = reference(ids).logits[0, position].log_softmax(-1)[7]
    assert_near(off.target_value, expected, 1e-5)
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    assert capture(again, encoding, target=target).target_value == run.target_value
    filled = bert_core.save(bert_core.zero_filled(smaller), tmp_path / "filled")
    assert_near(reference_of("deberta-v2", filled)(ids).logits[0, position].log_softmax(-1)[7], expected, 1e-5)
    by_torch, by_numpy = (walk(smaller, encoding, 1, engine=engine) for engine in ("torch", "numpy"))
    assert_near(by_numpy.layer_value("probabilities")[[0, 3]], by_torch.layer_value("probabilities")[[0, 3]])


def test_the_table_is_one_weight_in_memory_and_in_files(variant: Path, tmp_path: Path) -> None:
    """All layers have one table and one norm, also in copies; the file has them under transformers' names, once."""
    loaded = bert_core.load(variant, device="cpu")
    scheme = loaded.config.position_scheme.distances
    assert scheme is not None
    for model in (loaded, bert_core.pruned(loaded, [(0, 1)]), bert_core.zero_filled(loaded)):
        for name in scheme.shared_modules:
            weights = {id(module.get_submodule(name).weight) for module in model.model.attention_modules}
            assert len(weights) == 1
    saved = bert_core.save(loaded, tmp_path / "saved")
    written, source = (checkpoint.read_tensors(place / "model.safetensors") for place in (saved, variant))
    assert written.keys() == source.keys() and TABLE in source
    assert all(torch.equal(written[name], source[name]) for name in source)
    assert fingerprint(bert_core.load(saved, device="cpu")) == fingerprint(loaded)
    before, after = (json.loads((place / "config.json").read_text()) for place in (variant, saved))
    assert {name: after[name] for name in VARIANTS["small buckets"]} == {
        name: before[name] for name in VARIANTS["small buckets"]
    }


def test_a_setting_of_distances_is_part_of_the_fingerprint(folder: Path, loaded: LoadedModel, tmp_path: Path) -> None:
    """The same weights with another maximum distance are another model."""
    other = bert_core.save(loaded, tmp_path / "other")
    values = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**values, "max_relative_positions": 300}))
    assert fingerprint(bert_core.load(other, device="cpu")) != fingerprint(loaded)


def test_a_layer_can_go(loaded: LoadedModel, long_text: bert_core.Encoding, tmp_path: Path) -> None:
    """Without the first layer, whose name the table has, the others keep it and its norm, in memory and in files."""
    smaller = bert_core.pruned(loaded, [(1, 2)], neurons=[(2, 3)], layers=[0])
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    expected = capture(smaller, long_text).predictions[0].top
    assert capture(again, long_text).predictions[0].top == expected
    by_torch, by_numpy = (walk(again, long_text, 1, engine=engine) for engine in ("torch", "numpy"))
    assert_near(by_numpy.layer_value("probabilities")[[0, 1, 3]], by_torch.layer_value("probabilities")[[0, 1, 3]])
    full = bert_core.save(bert_core.zero_filled(smaller), tmp_path / "full")
    logits = reference_of("deberta-v2", full)(torch.tensor([long_text.input_ids])).logits[
        0, long_text.mask_positions[0]
    ]
    assert_near(logits.softmax(-1)[expected[0][0]], expected[0][1])


def test_training_moves_the_one_table(folder: Path) -> None:
    """After a step of an optimizer all layers still share the table, and it has moved; rows drop out in training."""
    model = BertForMaskedLM.from_pretrained(folder).train().requires_grad_(True)
    ids = torch.arange(5, 45)[None]
    before = model.attention_modules[0].get_submodule("rel_embeddings").weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    tables = [module.get_submodule("rel_embeddings").weight for module in model.attention_modules]
    assert all(table is tables[0] for table in tables) and not torch.equal(tables[0], before)


# ---------------------------------------------------------------------------- what is not supported


@pytest.mark.parametrize(
    ("name", "value"),
    [("conv_kernel_size", 3), ("position_biased_input", True), ("position_biased_input", None),
     ("relative_attention", False), ("relative_attention", None), ("embedding_size", 24), ("pos_att_type", "p2p"),
     ("norm_rel_ebd", "rms"), ("position_buckets", 3), ("pooler_hidden_act", "mish")],
)  # fmt: skip
def test_settings_that_are_not_built_are_one_sentence(folder: Path, tmp_path: Path, name: str, value: object) -> None:
    """Convolution, absolute positions and others are refused with the name of the setting; None leaves it out."""
    values = {**json.loads((folder / "config.json").read_text()), name: value}
    if value is None:
        del values[name]
    (tmp_path / "config.json").write_text(json.dumps(values))
    shown = "pooler_act" if name == "pooler_hidden_act" else name
    with pytest.raises(
        CheckpointError, match=rf"is not a configuration of BERT: {shown} (is )?[^\n]*(supported|one of|-1)"
    ):
        bert_core.load(tmp_path, device="cpu")


def test_the_first_deberta_is_refused(folder: Path, tmp_path: Path) -> None:
    """Its sentence says what is different, and names the families that can be loaded."""
    values = {**json.loads((folder / "config.json").read_text()), "model_type": "deberta"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(
        CheckpointError, match=r"type 'deberta', whose .* unlike those of DeBERTa-v2 and v3: only 'bert'"
    ):
        bert_core.load(tmp_path, device="cpu")


# ---------------------------------------------------------------------------- replaced tokens


@pytest.fixture(scope="module")
def detector_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_published_deberta(tmp_path_factory.mktemp("deberta") / "detector", **EXACT)
    weights = checkpoint.read_tensors(folder / "model.safetensors")
    for name in weights:
        if name.endswith(("query_proj.weight", "key_proj.weight")):  # for 64 steps of integrated gradients
            weights[name] = 0.4 * weights[name]
    checkpoint.save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def detector(detector_folder: Path) -> LoadedModel:
    return bert_core.load(detector_folder, device="cpu")


def reference_logits(folder: Path, states: Tensor) -> Tensor:
    """The published head, which transformers does not have, on the states (seq, hidden) of the last layer."""
    weights = checkpoint.read_tensors(folder / "model.safetensors")
    part = {name.removeprefix("mask_predictions."): weight for name, weight in weights.items()}
    normed = torch.nn.functional.layer_norm(
        states + states[:1], (48,), part["LayerNorm.weight"], part["LayerNorm.bias"], 1e-7
    )
    inner = torch.nn.functional.gelu(normed @ part["dense.weight"].T + part["dense.bias"])
    return (inner @ part["classifier.weight"].T + part["classifier.bias"])[:, 0]


def test_replaced_tokens_of_the_published_weights(detector_folder: Path, detector: LoadedModel) -> None:
    """The probabilities, a logit and the gradients of every map; the generator's head is reported and not shown."""
    assert detector.has_detector and not (detector.has_mlm or detector.has_classifier)
    assert detector.report.unexpected and all("lm_predictions" in name for name in detector.report.unexpected)
    encoding = detector.tokenizer.encode(TEXT, PAIR)
    theirs = reference_of("deberta-v2", detector_folder).deberta(
        torch.tensor([encoding.input_ids]), output_attentions=True
    )
    logits = reference_logits(detector_folder, theirs.last_hidden_state[0])
    run = capture(detector, encoding, target=Target("replaced", AT))
    assert run.replaced is not None and run.gradient is not None and run.replaced.std() > 0.05
    assert_near(run.replaced, logits.sigmoid())
    assert_near(run.target_value, logits[AT])
    gradients = torch.autograd.grad(logits[AT], theirs.attentions)
    for layer, gradient in enumerate(gradients):
        assert_near(run.gradient[layer], gradient[0], of=float(gradients[0].abs().max()))
    short = detector.tokenizer.encode("The old man.")
    for found, one in zip(captures(detector, [short, encoding]), (short, encoding), strict=True):
        assert_near(found.replaced, capture(detector, one).replaced, 1e-5)


def test_the_detector_in_files_and_in_training(detector: LoadedModel, tmp_path: Path) -> None:
    """Saved, pruned and trained under the published names."""
    encoding = detector.tokenizer.encode(TEXT)
    smaller = bert_core.pruned(detector, [(1, 2)])
    for name, one in (("whole", detector), ("pruned", smaller)):
        saved = bert_core.save(one, tmp_path / name)
        names = {key for key in checkpoint.read_tensors(saved / "model.safetensors") if "predictions" in key}
        parts = ("LayerNorm", "dense", "classifier")
        assert names == {f"mask_predictions.{part}.{kind}" for part in parts for kind in ("weight", "bias")}
        again = bert_core.load(saved, device="cpu")
        assert np.array_equal(capture(again, encoding).replaced, capture(one, encoding).replaced)
    model = BertForReplacedTokenDetection.from_pretrained(tmp_path / "whole").requires_grad_(True)
    ids = torch.tensor([encoding.input_ids])
    model(ids, labels=torch.zeros_like(ids)).loss.backward()
    assert all(parameter.grad is not None for parameter in model.discriminator_predictions.parameters())


@pytest.mark.parametrize("position", [AT, 0])
def test_replaced_tokens_are_explained(detector: LoadedModel, position: int) -> None:
    """Every method runs; parts add up to the logit, which reads the first token too, and exact changes agree."""
    encoding, target = detector.tokenizer.encode(TEXT), Target("replaced", position)
    logit = float(capture(detector, encoding, target=target).target_value or 0)
    parts = decompx(detector, encoding, target)
    assert_near(parts.scores.sum(), logit, 1e-4, of=float(np.abs(parts.scores).sum()))
    assert abs(integrated_gradients(detector, encoding, target, steps=64).gap) < 0.05 * max(1, abs(logit))
    assert np.isfinite(token_scores(detector, encoding, target)).all()
    by_torch, by_numpy = (walk(detector, encoding, 1, engine=engine) for engine in ("torch", "numpy"))
    assert by_torch.values.keys() == by_numpy.values.keys() and "detector.normed" in by_torch.values
    for name in ("detector.normed", "detector.dense", "detector.activated", "replaced_logits"):
        assert_near(by_numpy.values[name], by_torch.values[name], what=name)
    assert_near(by_torch.values["replaced_logits"][position], logit)
    swept, gates = ablate_heads(detector, encoding, target=target), np.ones((3, 4), np.float32)
    gates[1, 3] = 0
    without = capture(detector, encoding, target=target, head_mask=gates).target_value
    assert swept.values is not None
    assert_near(swept.values[1, 3], without, of=1.0)


def test_replaced_tokens_and_other_texts(detector: LoadedModel) -> None:
    """Patches, paths, blocked edges, neurons and removed words give what a pass with the change gives."""
    encoding, target = detector.tokenizer.encode(TEXT), Target("replaced", AT)
    source = detector.tokenizer.encode(TEXT.replace("old man", "man old"))
    assert len(source) == len(encoding)
    base, other = (float(capture(detector, one, target=target).target_value or 0) for one in (encoding, source))
    found = patch(detector, source, encoding, target, part_kind="state", per_position=False, layers=[0])
    assert_near(found.base_value, base, of=1.0)
    assert_near(found.source_value, other, of=1.0)
    assert_near(found.values.ravel()[0], other, of=1.0)  # every state of the first depth is the source itself
    for kind in ("head", "query", "key", "value", "pattern"):
        assert np.isfinite(patch(detector, source, encoding, target, part_kind=kind).values).all()
        assert np.isfinite(estimate_patches(detector, source, encoding, target, part_kind=kind).values).all()
    assert_near(patch_path(detector, source, encoding, target).base_value, base, of=1.0)
    assert np.isfinite(knock_out_edges(detector, encoding, target, 1, 2)).all()
    assert_near(suppress_neurons(detector, encoding, target, [(1, 3)], draws=1).base_value, base, of=1.0)
    removed = np.eye(len(encoding), dtype=bool)[1:4]
    values, probabilities = (
        values_without(detector, encoding, target, removed, probability=probability) for probability in (False, True)
    )
    assert_near(1 / (1 + np.exp(-values)), probabilities)


# ---------------------------------------------------------------------------- analyses


def test_identities_of_patches(loaded: LoadedModel, long_text: bert_core.Encoding) -> None:
    """A text patched into itself changes nothing; a head patched everywhere is the head of the source."""
    target = Target("mlm", long_text.mask_positions[0], 7)
    for kind in ("state", "head", "query", "key", "value", "pattern"):
        found = patch(loaded, long_text, long_text, target, part_kind=kind, layers=[1], per_position=False)
        values = found.values[np.isfinite(found.values)]
        assert values.size and abs(values - found.base_value).max() <= 1e-5 * abs(found.base_value)


def test_decompositions_add_up(loaded: LoadedModel) -> None:
    """Values have no position in them, so that every decomposition of values and the lens hold as for BERT."""
    encoding = loaded.tokenizer.encode(TEXT.replace("sat", "[MASK]"), PAIR)
    (position,) = encoding.mask_positions
    run = capture(loaded, encoding)
    norms = attention_norms(loaded, encoding)
    assert norms.heads is not None and norms.heads.shape == run.attention.shape
    assert (norms.maps <= norms.heads.sum(1) + 1e-5).all()
    assert_near(alti(loaded, encoding).maps.sum(-1), np.ones((3, len(encoding))), 1e-5)
    assert np.isfinite(globenc(loaded, encoding).maps).all()
    token = run.predictions[0].top[0][0]
    parts = decompx(loaded, encoding, Target("mlm", position, token))
    logit = walk(loaded, encoding, 0, position=position).values["mlm_logits"][token]
    assert_near(parts.scores.sum(), logit, 1e-4, of=float(np.abs(parts.scores).sum()))
    assert int(logit_lens(loaded, encoding, positions=[position]).top[-1, 0, 0]) == token
