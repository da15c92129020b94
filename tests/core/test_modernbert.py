"""ModernBERT: norms before each part, rotated queries and keys, local layers, gated neurons; transformers is the
reference. Both sides are compared at tokens, since padding reads other padding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.modernbert import modeling_modernbert

import bert_core
from bert_core import BertConfig, BertForMaskedLM, Target, checkpoint
from bert_core.checkpoint import CheckpointError
from bert_core.naming import MODERNBERT
from bert_core.numpy_bert import BertForPretraining as NumpyBert
from bert_core.recording import record
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.run.decomposition import decompx
from bert_core.run.lens import layer_states, logit_lens
from bert_core.run.vectors import head_vectors
from tests.families import save_family, save_tokenizer
from tests.near import assert_near
from tests.parity import results

PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
# The window of the published models ends at a distance of 64.
LENGTHS = (2, 16, 63, 64, 65, 66, 67, 130)
SIZES: dict[str, Any] = {
    "vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
    "sep_token_id": 2,
}  # fmt: skip
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
VARIANTS: dict[str, dict[str, Any]] = {
    "small window": {"local_attention": 8},
    "odd window": {"local_attention": 7},
    "smallest window": {"local_attention": 2},
    "biases": {**BIASES, "local_attention": 8},
    "other layers": {"layer_types": ["sliding_attention", "full_attention"] * 2, "local_attention": 6},
    "every second layer": {"global_attn_every_n_layers": 2, "local_attention": 8},
    "other angles": {"global_rope_theta": 500.0, "local_rope_theta": 20.0},
}


def save(folder: Path, head: str = "ForMaskedLM", **sizes: Any) -> Path:
    """A model with no parameter at its neutral value, and maps that are not flat."""
    config = transformers.ModernBertConfig(**{**SIZES, **sizes})
    model = getattr(transformers, f"ModernBert{head}")(config)
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.25 if "Wqkv" in name else 0.15)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    model.save_pretrained(folder)
    return folder


def reference(folder: Path, head: str = "ForMaskedLM") -> Any:
    """The same checkpoint as transformers has it."""
    return getattr(transformers, f"ModernBert{head}").from_pretrained(folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("modernbert") / "words")


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("variants") / "words", **VARIANTS[request.param])


@pytest.fixture
def in_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers rotates and normalises scores in float32, whatever the model's precision: here in the model's."""

    def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        half = modeling_modernbert.rotate_half
        cos, sin = cos[:, None], sin[:, None]
        return query * cos + half(query) * sin, key * cos + half(key) * sin

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any) -> Any:
        scores = query @ key.transpose(2, 3) * scaling
        probs = (scores if mask is None else scores + mask).softmax(-1)
        return (probs @ value).transpose(1, 2), probs

    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotate)
    monkeypatch.setattr(modeling_modernbert, "eager_attention_forward", attend)


def ids_of(batch: int, length: int) -> Tensor:
    draw = torch.Generator().manual_seed(length)
    return torch.randint(5, SIZES["vocab_size"], (batch, length), generator=draw)


def assert_parity(folder: Path, inputs: dict[str, Tensor], dtype: torch.dtype, within: float) -> dict[str, Tensor]:
    """Everything agrees; returns ours. Gradients are compared with the largest of their kind."""
    found = results(BertForMaskedLM.from_pretrained(folder).requires_grad_(True).to(dtype), inputs, MODERNBERT)
    expected = results(reference(folder).to(dtype), inputs)
    assert found.keys() == expected.keys()
    kinds = {
        name: next((kind for kind in ("gradient", ".weight", ".bias") if kind in name), name).replace("bias", "weight")
        for name in expected
    }
    largest: dict[str, float] = {}
    for name, tensor in expected.items():
        largest[kinds[name]] = max(largest.get(kinds[name], 0.0), float(tensor.abs().max()))
    for name, tensor in expected.items():
        assert_near(found[name], tensor, within, of=largest[kinds[name]], what=name)
    return found


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_states_maps_logits_and_gradients_are_those_of_transformers(
    length: int, dtype: torch.dtype, within: float, folder: Path
) -> None:
    """At every length beside the edge of the window; a local layer's map is 0 beyond it, and nowhere else."""
    found = assert_parity(folder, {"input_ids": ids_of(2, length)}, dtype, within)
    distances = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    for layer in range(4):
        map_ = found[f"map {layer}"].view(2, length, 4, length).transpose(1, 2)
        assert torch.equal(map_ > 0, (distances <= 64 if layer % 3 else distances >= 0).expand_as(map_))
        assert map_.max(-1).values.mean() > 1.4 / length


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
def test_every_variant_is_that_of_transformers_beside_padding_on_both_sides(
    dtype: torch.dtype, within: float, variant: Path
) -> None:
    """Windows of other sizes, biases, other local layers, other angles; with padding before, behind and none."""
    ids, mask = ids_of(3, 40), torch.ones(3, 40, dtype=torch.long)
    mask[1, 33:], mask[2, :9] = 0, 0
    assert_parity(variant, {"input_ids": ids, "attention_mask": mask}, dtype, within)


@torch.no_grad()
def test_fused_attention_equals_the_explicit_map_at_all_and_at_some_positions(variant: Path) -> None:
    """Beside padding, with gates, and if the last layer is computed at some positions only."""
    bert = BertForMaskedLM.from_pretrained(variant).bert
    ids, mask = ids_of(2, 40), torch.ones(2, 40, dtype=torch.long)
    mask[1, 33:] = 0
    gates = torch.tensor([1.0, 0.5, 0.0, 1.0])
    explicit = bert(ids, attention_mask=mask, head_mask=gates, output_attentions=True).last_hidden_state
    fused = bert(ids, attention_mask=mask, head_mask=gates).last_hidden_state
    assert_near(fused[mask.bool()], explicit[mask.bool()])
    positions = torch.tensor([[3, 30], [0, 17]])
    some = bert(ids, attention_mask=mask, head_mask=gates, positions=positions).last_hidden_state
    assert_near(some, torch.stack([explicit[0, [3, 30]], explicit[1, [0, 17]]]))


def test_the_saved_folder_is_that_of_transformers(variant: Path, tmp_path: Path) -> None:
    """Every tensor and every setting that transformers reads comes back as it was."""
    model = BertForMaskedLM.from_pretrained(variant)
    assert not model.load_report.missing and not model.load_report.unexpected
    model.save_pretrained(tmp_path)
    first, second = reference(variant), reference(tmp_path)
    settings = [{**model.config.to_dict(), "_name_or_path": ""} for model in (first, second)]
    assert settings[0] == {name: settings[1][name] for name in settings[0]}
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    read = json.loads((variant / "config.json").read_text())
    written = json.loads((tmp_path / "config.json").read_text())
    defaults = transformers.ModernBertConfig().to_dict()  # a field with its default value can be left out
    assert {name: written.get(name, defaults.get(name)) for name in read} == read


@torch.no_grad()
def test_pruned_parts_equal_parts_that_are_masked(variant: Path, tmp_path: Path) -> None:
    """Heads, neurons and whole layers, the first and the last too; what is saved is read again."""
    ids = ids_of(2, 30)
    model = BertForMaskedLM.from_pretrained(variant).double()
    gates = torch.ones(4, 4)
    gates[0, 1] = gates[2, 3] = gates[2, 0] = 0
    expected = model(ids, head_mask=gates).logits
    smaller = bert_core.pruned(model, [(0, 1), (2, 3), (2, 0)])
    assert_near(smaller(ids).logits, expected, 1e-10)
    smaller = bert_core.pruned(smaller, neurons=[(1, neuron) for neuron in range(0, 48, 5)])
    for name in ("dense.weight", "gate.weight"):
        model.bert.encoder.layer[1].get_parameter(f"intermediate.{name}")[::5] = 0
    for name in ("dense", "gate"):
        if (bias := getattr(model.bert.encoder.layer[1].intermediate, name).bias) is not None:
            bias[::5] = 0
    expected = model(ids, head_mask=gates).logits
    assert_near(smaller(ids).logits, expected, 1e-10)
    smaller.save_pretrained(tmp_path / "smaller")
    again = BertForMaskedLM.from_pretrained(tmp_path / "smaller").double()
    assert torch.equal(again(ids).logits, smaller(ids).logits)
    filled = bert_core.zero_filled(smaller)
    assert_near(filled(ids).logits, expected, 1e-10)
    filled.save_pretrained(tmp_path / "filled")
    assert_near(reference(tmp_path / "filled")(ids).logits, expected, 1e-5)


@torch.no_grad()
@pytest.mark.parametrize("layers", [[1], [3], [0, 3]], ids=str)
def test_a_removed_layer_returns_its_input(layers: list[int], folder: Path, tmp_path: Path) -> None:
    """As if its updates were 0; the final norm stays, also if the last layer is removed."""
    ids = ids_of(2, 70)
    model = BertForMaskedLM.from_pretrained(folder).double()
    smaller = bert_core.pruned(model, layers=layers)
    for layer in layers:
        for name in ("attention.output.dense.weight", "output.dense.weight"):
            model.bert.encoder.layer[layer].get_parameter(name).zero_()
    expected = model(ids).logits
    assert_near(smaller(ids).logits, expected, 1e-6)
    smaller.save_pretrained(tmp_path / "smaller")
    again = BertForMaskedLM.from_pretrained(tmp_path / "smaller").double()
    assert_near(again(ids, output_attentions=True).logits, expected, 1e-6)
    filled = bert_core.zero_filled(smaller)
    filled.save_pretrained(tmp_path / "filled")
    assert_near(reference(tmp_path / "filled")(ids).logits, expected)


def test_published_fields_that_transformers_does_not_read_change_nothing(folder: Path, tmp_path: Path) -> None:
    """The files of ModernBERT state a position type, an epsilon and other fields under BERT's names too."""
    values = json.loads((folder / "config.json").read_text())
    published = {"position_embedding_type": "absolute", "layer_norm_eps": 0.3, "hidden_act": "relu"}
    first, second = BertConfig.from_dict(values), BertConfig.from_dict({**published, **values})
    third = BertConfig.from_dict({**values, **published})
    assert first == second == third
    assert first.position_scheme.rotation is not None and first.layer_design.pre_norm


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2}}}, "rope_type 'default'"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 99.0}},
            "rope_parameters has the key 'rope_type': it must have one object for each of full_attention and",
        ),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ({"layer_types": ["full_attention"]}, "layer 3 is missing"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types"),
        ({"decoder_bias": False}, "decoder_bias"),
        ({"embedding_dropout": 0.1}, "embedding_dropout"),
        ({"norm_bias": 1.5}, "norm_bias"),
        ({"num_attention_heads": 32}, "even number"),
    ],
)
def test_settings_that_are_not_supported_are_refused(changes: dict[str, Any], message: str, folder: Path) -> None:
    values = {**json.loads((folder / "config.json").read_text()), **changes}
    with pytest.raises(Refused, match=message):
        BertConfig.from_dict(values)


def test_fused_weights_of_another_shape_are_refused(folder: Path, tmp_path: Path) -> None:
    """Rows that cannot be split in three, or no axis at all, give a message instead of an error."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    for wrong in (torch.zeros(95, 32), torch.zeros(()), torch.zeros(2, 32), torch.zeros(0, 32)):
        save_file({**weights, "model.layers.1.attn.Wqkv.weight": wrong}, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match="has shape"):
            BertForMaskedLM.from_pretrained(tmp_path)
    assert checkpoint.read_config(folder).family is MODERNBERT


# ------------------------------------------------------------------------------------------------ runs


@pytest.fixture(scope="module", params=[False, True], ids=["no biases", "biases"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bert_core.LoadedModel:
    folder = tmp_path_factory.mktemp("runs") / "words"
    save_family("modernbert", folder, **(BIASES if request.param else {}))
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: bert_core.LoadedModel) -> bert_core.Encoding:
    return loaded.tokenizer.encode("The old man [MASK] along the river with his dog.")


def test_the_vectors_of_a_head_give_its_map(loaded: bert_core.LoadedModel, encoding: bert_core.Encoding) -> None:
    """Queries and keys are rotated, and a local layer has its window."""
    run = capture(loaded, encoding)
    for layer in range(3):
        assert_near(head_vectors(loaded, encoding, layer, 2).attention, run.attention[layer, 2])


def test_the_lens_applies_the_final_norm(loaded: bert_core.LoadedModel, encoding: bert_core.Encoding) -> None:
    """At every depth the head reads normalised states, and at the last one they are normalised once."""
    lens = logit_lens(loaded, encoding, top_k=3)
    states = torch.tensor(layer_states(loaded, encoding).states)
    bert, head = loaded.model.bert, loaded.model.cls.predictions
    for depth in range(4):
        read = states[depth] if depth == 3 else bert.encoder.final_norm(states[depth])
        assert_near(lens.probabilities[depth], head(read).softmax(-1).topk(3).values)


def test_methods_that_assume_other_layers_are_refused(
    loaded: bert_core.LoadedModel, encoding: bert_core.Encoding
) -> None:
    with pytest.raises(Refused, match="neurons of this model have two"):
        decompx(loaded, encoding, Target("mlm", encoding.mask_positions[0], 30))
    with pytest.raises(Refused, match="NumPy implementation"):
        NumpyBert.from_pretrained(loaded.name)


def test_too_long_a_text_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="257 tokens: this model takes at most 256"):
        BertForMaskedLM.from_pretrained(folder)(ids_of(1, 257))


@pytest.mark.parametrize("window", [2, 8, 128, 140])
@pytest.mark.parametrize("length", [257, 320, 400])
def test_blocks_of_queries_equal_whole_maps(tmp_path: Path, window: int, length: int) -> None:
    """A long text is computed in blocks in local layers; states and gradients agree with those from whole maps."""
    folder = save(tmp_path, local_attention=window, max_position_embeddings=512)
    model = BertForMaskedLM.from_pretrained(folder).double().eval()
    ids, mask = ids_of(3, length), torch.ones(3, length, dtype=torch.long)
    mask[1, : length // 3] = 0
    mask[2, -100:] = 0
    states, gradients = [], []
    for layers in (None, ()):
        with record(layers=layers):
            state = model.bert(ids, attention_mask=mask).last_hidden_state
        states.append(state[mask.bool()])
        parameters = dict(model.bert.named_parameters())
        gradients.append(torch.autograd.grad(states[-1].square().sum(), [*parameters.values()], allow_unused=True))
    assert_near(states[1], states[0], 1e-10)
    for blocks, whole in zip(*gradients, strict=True):
        assert (blocks is None) == (whole is None)
        if blocks is not None:
            assert_near(blocks, whole, 1e-9)


@pytest.mark.parametrize("token_range", [(0, 20), (150, 300), (299, 300)])
def test_a_block_of_the_maps_of_a_long_text(tmp_path: Path, token_range: tuple[int, int]) -> None:
    """Maps and gradients of a range of tokens are those of the whole maps, in local and in global layers."""
    words = save_tokenizer("modernbert", tmp_path)
    save(tmp_path, vocab_size=words, local_attention=8, max_position_embeddings=512)
    loaded = bert_core.load(tmp_path, device="cpu")
    text = loaded.tokenizer.encode("the old cat sat " * 60)
    assert len(text) >= 300
    target = Target("mlm", position=130, token_id=7)
    whole = capture(loaded, text, target=target)
    part = capture(loaded, text, target=target, token_range=token_range)
    rows = slice(*token_range)
    assert_near(part.attention, whole.attention[..., rows, rows], 1e-5)
    assert_near(part.gradient, whole.gradient[..., rows, rows], 1e-5)
    assert_near(part.gate_gradient, whole.gate_gradient, 1e-5)


def test_embeddings_have_no_dropout(tmp_path: Path) -> None:
    """The dropout of the feed-forward networks is not that of the embeddings, which is always 0."""
    model = BertForMaskedLM.from_pretrained(save(tmp_path, mlp_dropout=0.5)).train()
    peer = reference(tmp_path).train()
    ids = ids_of(2, 16)
    ours, theirs = model.bert.embeddings(ids), peer.model.embeddings(ids)
    assert_near(ours, theirs)
