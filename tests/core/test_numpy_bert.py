"""bert_core/numpy_bert.py: beside the torch model value by value in forward order, by hand, and by itself."""

from __future__ import annotations

import doctest
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import bert_core
from bert_core import BertConfig, BertForPreTraining, checkpoint, numpy_bert
from bert_core.config import ACTIVATIONS
from bert_core.modeling.layers import _activation
from bert_core.numpy_bert import (
    BertForPretraining,
    BertModel,
    MultiheadAttention,
    PositionalEncoding,
    create_bert_model,
    mask_tokens,
    masked_lm_loss,
    next_sentence_loss,
)
from bert_core.positions import POSITION_SCHEMES
from tests.near import apart, assert_near

ROOT = Path(__file__).parents[2]
SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
CONFIGS = {
    "published": BertConfig(vocab_size=90, max_position_embeddings=20, **SMALL),
    "no segments": BertConfig(vocab_size=90, max_position_embeddings=20, type_vocab_size=0, **SMALL),
    "untied": BertConfig(
        vocab_size=90, max_position_embeddings=20, tie_word_embeddings=False, layer_norm_eps=1e-5, **SMALL
    ),
    "relative_key": BertConfig(
        vocab_size=90, max_position_embeddings=11, position_embedding_type="relative_key", **SMALL
    ),
    "relative_key_query": BertConfig(
        vocab_size=90, max_position_embeddings=14, position_embedding_type="relative_key_query", **SMALL
    ),
    "relative_bias": BertConfig(
        vocab_size=90, max_position_embeddings=120, position_embedding_type="relative_bias", **SMALL
    ),
    "narrow tables": BertConfig(
        vocab_size=90, max_position_embeddings=20, embedding_size=14, pooler_act="gelu", **SMALL
    ),
    "heads that do not fill": BertConfig(
        vocab_size=90, max_position_embeddings=20, embedding_size=26, **{**SMALL, "hidden_size": 26}
    ),
}


def peaked_model(config: BertConfig, dtype: torch.dtype = torch.float64) -> BertForPreTraining:
    """A seeded model in which no parameter is neutral and most queries look mainly at one key."""
    torch.manual_seed(3)
    model = BertForPreTraining(config).eval().to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3)
            if "LayerNorm.weight" in name:
                parameter.add_(1.0)
        for module in model.attention_modules:
            for dense in (module.query, module.key):
                dense.weight.normal_(std=(4.0 / config.hidden_size) ** 0.5)
    return model


def twin_of(model: BertForPreTraining) -> BertForPretraining:
    """The NumPy model with the same weights, in the same number type."""
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return BertForPretraining.from_weights(weights, model.config, weights["cls.predictions.bias"].dtype)


class Batch:
    """Two pairs of texts, the second padded, with some gates not at 1."""

    def __init__(self, config: BertConfig, length: int = 11) -> None:
        rng = np.random.default_rng(5)
        self.ids = rng.integers(5, config.vocab_size, (2, length))
        self.segments = (np.arange(length) > [[4], [3]]).astype(np.int64) if config.type_vocab_size else None
        self.mask = np.ones((2, length), np.int64)
        self.mask[1, 7:] = 0
        self.gates = rng.choice([0.0, 0.5, 1.0], (config.num_hidden_layers, config.num_attention_heads))

    def for_numpy(self) -> dict[str, Any]:
        return {"token_type_ids": self.segments, "attention_mask": self.mask, "head_mask": self.gates}

    def for_torch(self) -> dict[str, Any]:
        given = {name: value for name, value in self.for_numpy().items() if value is not None}
        return {name: torch.from_numpy(value) for name, value in given.items()}


# ---------------------------------------------------------------------------- the walk


class Overheard(TorchFunctionMode):
    """Notes what goes into every softmax: the scores, mask included."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.softmax:
            self.scores.append(args[0].clone())  # the softmax may write over them
        return func(*args, **(kwargs or {}))


@contextmanager
def hooked(module: nn.Module, hook: Callable[[nn.Module, Any, Any], None]) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def torch_walk(model: BertForPreTraining, ids: np.ndarray, **arguments: Any) -> dict[str, np.ndarray]:
    """Every value that a hook on a module can see, under the twin's name, in the order of computation."""
    seen: dict[str, Tensor] = {}
    heads = model.config.num_attention_heads

    def split(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)

    with ExitStack() as stack, Overheard() as overheard, torch.no_grad():

        def watch(module: nn.Module | None, into: str = "", out: str = "", turn: Any = lambda x: x) -> None:
            def hook(_: nn.Module, inputs: Any, output: Any) -> None:
                if into:
                    seen[into] = inputs[0]
                if out:
                    seen[out] = turn(output if isinstance(output, Tensor) else output[0])

            if module is not None:
                stack.enter_context(hooked(module, hook))

        embeddings = model.bert.embeddings
        watch(embeddings.word_embeddings, out="embeddings.word")
        watch(embeddings.token_type_embeddings, out="embeddings.token_type")
        if model.config.position_scheme.adds_vectors:
            watch(embeddings.position_embeddings, out="embeddings.position", turn=lambda x: x[0])
        narrow = embeddings.embeddings_project is not None
        watch(embeddings.LayerNorm, "embeddings.sum", "embeddings.normed" if narrow else "embeddings.output")
        watch(embeddings.embeddings_project, out="embeddings.output")
        for number, layer in enumerate(model.bert.encoder.layer):
            at, attention = f"layer.{number}.", layer.attention
            for name in ("query", "key", "value"):
                watch(getattr(attention.self, name), out=at + name, turn=split)
            watch(attention.self, out=at + "context", turn=split)
            watch(attention.output.dense, out=at + "attention_output")
            watch(attention.output.LayerNorm, at + "attention_sum", at + "attention_normed")
            watch(layer.intermediate.dense, out=at + "intermediate_dense")
            watch(layer.intermediate, out=at + "intermediate")
            watch(layer.output.dense, out=at + "output_dense")
            watch(layer.output.LayerNorm, at + "output_sum", at + "output")
        watch(model.bert.pooler.dense, out="pooler_dense")
        watch(model.bert.pooler, out="pooler")
        transform = model.cls.predictions.transform
        watch(transform.dense, out="mlm.dense")
        watch(transform.LayerNorm, "mlm.activated", "mlm.transform")
        watch(model.cls.predictions.decoder, out="mlm_logits")
        watch(model.cls.seq_relationship, out="nsp_logits")
        outputs = model(torch.from_numpy(ids), output_attentions=True, **arguments)
    for number, (scores, map_) in enumerate(zip(overheard.scores, outputs.attentions, strict=True)):
        seen[f"layer.{number}.masked_scores"], seen[f"layer.{number}.probabilities"] = scores, map_
    return {name: value.numpy() for name, value in seen.items()}


def first_difference(ours: dict[str, np.ndarray], reference: dict[str, np.ndarray], tolerance: float) -> str | None:
    """The first name, in forward order, where two walks differ by more than a share of the largest value there."""
    for name, value in ours.items():
        if name.endswith(".scores"):  # no hook sees these: they are the masked scores where nothing is masked
            expected = reference[name.replace("scores", "masked_scores")]
            value, expected = np.where(expected > -5000, value, 0), np.where(expected > -5000, expected, 0)
        else:
            expected = reference[name]
        if apart(value, expected, np.abs(expected).max() or 1) > tolerance:
            return name
    return None


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_every_value_is_that_of_the_torch_model(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """Walked in forward order, no value differs: pairs, padding, gates, both number types."""
    model = peaked_model(CONFIGS[name], dtype)
    batch = Batch(model.config)
    reference = torch_walk(model, batch.ids, **batch.for_torch())
    ours = twin_of(model).walk(batch.ids, **batch.for_numpy())
    assert {n for n in ours if not n.endswith(".scores")} == set(reference)
    assert first_difference(ours, reference, tolerance) is None


def test_the_walk_is_in_forward_order_and_names_the_first_difference() -> None:
    """An error planted in one weight is found at the first value that it reaches, though every later one differs."""
    model = peaked_model(CONFIGS["published"])
    batch = Batch(model.config)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    wrong = "bert.encoder.layer.1.output.dense.bias"
    twin = BertForPretraining.from_weights({**weights, wrong: weights[wrong] + 1e-3}, model.config, np.float64)
    ours = twin.walk(batch.ids, **batch.for_numpy())
    names = list(ours)
    at = [names.index(f"layer.1.{name}") for name in ("query", "value", "scores", "probabilities", "context", "output")]
    assert at == sorted(at) and names[0] == "embeddings.word" and names[-1] == "nsp_logits"
    reference = torch_walk(model, batch.ids, **batch.for_torch())
    assert first_difference(ours, reference, 1e-5) == "layer.1.output_dense"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_named_activation_is_torchs(activation: str) -> None:
    """All names that a configuration may hold give what torch gives, at values large and small, in both types."""
    for dtype, tolerance in ((np.float64, 1e-14), (np.float32, 1e-6)):
        x = np.concatenate([np.linspace(-9, 9, 20_011), [1e-8, -1e-8, 0, 40, -40]]).astype(dtype)
        expected = _activation(activation)(torch.from_numpy(x)).numpy()
        found = numpy_bert.ACTIVATIONS[activation](x)
        assert found.dtype == dtype and np.abs(found - expected).max() <= tolerance


def test_erf_is_exact_to_rounding() -> None:
    """The table with its Taylor step gives `math.erf`, everywhere and for both number types."""
    x = np.concatenate([np.linspace(-7, 7, 30_001), [-np.inf, np.inf, 1e-300, 1 / 128, -1 / 128]])
    expected = np.array([math.erf(value) for value in x])
    assert_near(numpy_bert.erf(x), expected, 3e-16)
    assert_near(numpy_bert.erf(x.astype(np.float32)), expected, 2e-7)


@pytest.mark.parametrize("square", [False, True])
def test_a_decoder_hides_later_positions_as_torch_does(square: bool) -> None:
    """The causal mask, and in its place one of queries and keys, gives the torch model's values."""
    model = peaked_model(CONFIGS["published"].replace(is_decoder=True))
    ids = Batch(model.config).ids
    mask = np.random.default_rng(1).integers(0, 2, (2, 11, 11)) | np.eye(11, dtype=np.int64)
    arguments = {"attention_mask": mask} if square else {}
    expected = model.bert(torch.from_numpy(ids), **{n: torch.from_numpy(v) for n, v in arguments.items()})
    walked = twin_of(model).walk(ids, **arguments)
    assert_near(walked["layer.2.output"], expected.last_hidden_state.detach().numpy(), 1e-10)
    assert (np.triu(walked["layer.0.probabilities"], 1).max() == 0) is not square


@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 2, 4)])
def test_gates_of_every_shape_are_torchs(shape: tuple[int, ...]) -> None:
    """A gate for each head, each layer and head, or each example too."""
    model = peaked_model(CONFIGS["published"])
    ids, gates = Batch(model.config).ids, np.random.default_rng(2).random(shape)
    expected = model.bert(torch.from_numpy(ids), head_mask=torch.from_numpy(gates)).last_hidden_state
    assert_near(twin_of(model).bert.forward(ids, head_mask=gates), expected.detach().numpy(), 1e-10)


def test_the_bundled_model_is_walked_without_a_difference() -> None:
    """headlight-mini, read from its folder by each side, on a pair with a mask and a head that is off."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.", "The room was dark.")
    gates = np.ones((6, 12), np.float32)
    gates[2, 8] = 0
    ids, segments = np.array([encoding.input_ids]), np.array([encoding.token_type_ids])
    twin = BertForPretraining.from_pretrained(Path(bert_core.__file__).parent / "assets" / "headlight-mini")
    reference = torch_walk(
        loaded.model, ids, token_type_ids=torch.from_numpy(segments), head_mask=torch.from_numpy(gates)
    )
    ours = twin.walk(ids, token_type_ids=segments, head_mask=gates)
    assert first_difference(ours, reference, 1e-5) is None
    word = ours["mlm_logits"][0, encoding.mask_positions[0]].argmax()
    assert loaded.tokenizer.token_of(int(word)) == "door"


# ---------------------------------------------------------------------------- relative positions, by hand

# Three tokens whose queries are 1, 2, -1 and whose keys are 2, 4, -2, in the first of four dimensions; the distances
# query - key from -2 to 2 have 3, 1, 0, -1, 5 there. The products of query and key are
#     2  4 -2 /  4  8 -4 /  -2 -4  2
# query times distance:   0 1 3 / -2 0 2 / -5 1 0; key times distance: 0 4 -6 / -2 0 -2 / 10 -4 0.
BY_HAND = {
    "absolute": [[2, 4, -2], [4, 8, -4], [-2, -4, 2]],
    "relative_key": [[2, 5, 1], [2, 8, -2], [-7, -3, 2]],
    "relative_key_query": [[2, 9, -5], [0, 8, -4], [3, -7, 2]],
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_three_tokens_with_relative_positions_worked_by_hand(kind: str) -> None:
    """The scores are the sums above, halved by the root of the head size of 4."""
    first = np.zeros((4, 4))
    first[0, 0] = 1
    column = np.zeros((5, 4))
    column[:, 0] = [3, 1, 0, -1, 5]
    weights = {
        "self.query.weight": first, "self.key.weight": 2 * first, "self.value.weight": first,
        "output.dense.weight": np.eye(4), "self.distance_embedding.weight": column,
    }  # fmt: skip
    weights |= {name.replace("weight", "bias"): np.zeros(4) for name in weights if "distance" not in name}
    x = np.zeros((1, 3, 4))
    x[0, :, 0] = [1, 2, -1]
    seen: dict[str, np.ndarray] = {}
    distances = POSITION_SCHEMES[kind].distances
    attention = MultiheadAttention(weights, 1, distances, max_length=3)
    attention.forward(x, hook=lambda name, value: seen.setdefault(name, value))
    expected = np.array(BY_HAND[kind]) / 2
    assert np.array_equal(seen["scores"][0, 0], expected)
    raised = np.exp(expected)
    mixed = (raised * [1, 2, -1]).sum(1) / raised.sum(1)
    assert np.allclose(seen["attention_output"][0, :, 0], mixed)


def test_relative_positions_take_the_place_of_absolute_ones() -> None:
    """A relative model has a table of distances in each layer and no vectors of positions."""
    config = CONFIGS["published"].replace(position_embedding_type="relative_key")
    shapes = numpy_bert.parameter_shapes(config)
    assert "bert.embeddings.position_embeddings.weight" not in shapes
    assert shapes["bert.encoder.layer.2.attention.self.distance_embedding.weight"] == (39, 6)
    rng = np.random.default_rng(0)
    twin = BertForPretraining.from_weights({n: rng.normal(size=s) for n, s in shapes.items()}, config)
    walked = twin.walk(np.array([[4, 5, 5, 5, 6]]))
    assert "embeddings.position" not in walked
    with pytest.raises(ValueError, match="21 tokens: this model takes at most 20"):
        twin.forward(np.full((1, 21), 7))


# ---------------------------------------------------------------------------- the model of the document


def test_the_documented_examples_run() -> None:
    """The module's example gives what it says, and so does every block of docs/reference/numpy.md."""
    assert doctest.testmod(numpy_bert).failed == 0
    namespace: dict[str, Any] = {}
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "reference" / "numpy.md").read_text(encoding="utf-8"), re.S
    )
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "docs/reference/numpy.md", "exec"), namespace)
    assert namespace["mlm_logits"].shape == (2, 5, 30000) and namespace["nsp_logits"].shape == (2, 2)
    assert namespace["pooled_output"].shape == (2, 768) and namespace["sequence_output"].shape == (2, 5, 64)
    assert 0 < namespace["loss"] < 20


SIZES = {"vocab_size": 200, "max_seq_length": 12, "d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2}


def test_a_seed_gives_a_model_and_another_seed_another() -> None:
    """The same seed gives the same numbers; the base model is the one inside the pre-training model."""
    ids = np.array([[5, 6, 7, 8]])
    first, again = (create_bert_model(**SIZES, seed=4).forward(ids) for _ in range(2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    base = create_bert_model(**SIZES, for_pretraining=False, seed=4)
    assert isinstance(base, BertModel)
    assert np.array_equal(base.forward(ids), first["sequence_output"])
    assert not np.allclose(create_bert_model(**SIZES, seed=5).forward(ids)["mlm_logits"], first["mlm_logits"])


def test_a_new_model_tells_words_and_places_apart() -> None:
    """Another word at a place, or the same word at another place, gives another vector."""
    model = create_bert_model(**SIZES, for_pretraining=False)
    one, other = model.forward(np.array([[5, 6, 7]])), model.forward(np.array([[5, 9, 7]]))
    assert np.abs(one[0, 1] - other[0, 1]).max() > 0.1
    same = model.forward(np.array([[5, 5, 5]]))
    assert np.abs(same[0, 0] - same[0, 2]).max() > 0.1


def test_sinusoids_worked_by_hand() -> None:
    """Place 0 is sines of 0 and cosines of 0; at place 3 dimension 2 of 4 turned by 3/100."""
    table = PositionalEncoding.sinusoidal(5, 4, np.float64).table
    assert np.array_equal(table[0], [0, 1, 0, 1])
    assert_near(table[3], [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)], 1e-15)


def test_padding_is_as_if_it_were_not_there() -> None:
    """With the mask, the vectors of the text are those without padding."""
    model = create_bert_model(**SIZES, for_pretraining=False)
    padded = model.forward(np.array([[5, 6, 7, 0, 0]]), attention_mask=np.array([[1, 1, 1, 0, 0]]))
    assert_near(padded[:, :3], model.forward(np.array([[5, 6, 7]])))


# ---------------------------------------------------------------------------- weights


def test_a_folder_gives_the_model_of_the_folder(tiny_model_folder: Path) -> None:
    """config.json and model.safetensors are all it needs; float64 is computed in float64."""
    torch_model = BertForPreTraining.from_pretrained(tiny_model_folder)
    ids = np.array([[2, 40, 41, 3]])
    outputs = BertForPretraining.from_pretrained(tiny_model_folder, np.float64).forward(ids)
    expected = torch_model.double()(torch.from_numpy(ids))
    assert outputs["mlm_logits"].dtype == np.float64
    assert_near(outputs["mlm_logits"], expected.prediction_logits.detach().numpy(), 1e-10)


def test_half_precision_and_old_names_are_understood(tiny_config: BertConfig) -> None:
    """float16 is widened; `gamma`, `beta` and names without `bert.` are today's; missing parts are left out."""
    weights = {name: tensor.numpy() for name, tensor in peaked_model(tiny_config).state_dict().items()}
    old = {
        name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma").replace("m.bias", "m.beta"): value
        for name, value in weights.items()
        if name.startswith("bert.") and "pooler" not in name
    }
    half = BertForPretraining.from_weights({n: v.astype(np.float16) for n, v in old.items()}, tiny_config)
    whole = BertForPretraining.from_weights(weights, tiny_config)
    outputs = half.forward(np.array([[2, 40, 41, 3]]))
    assert list(outputs) == ["sequence_output"] and outputs["sequence_output"].dtype == np.float32
    expected = whole.forward(np.array([[2, 40, 41, 3]]))["sequence_output"]
    assert_near(outputs["sequence_output"], expected, 0.05)


def test_a_head_that_is_not_whole_is_left_out(tiny_config: BertConfig) -> None:
    """One missing weight of a head takes that head away, and the other stays; without a pooler there is no NSP."""
    weights = {name: tensor.numpy() for name, tensor in peaked_model(tiny_config).state_dict().items()}
    ids = np.array([[2, 40, 41, 3]])

    def without(*names: str) -> set[str]:
        kept = {name: value for name, value in weights.items() if name not in names}
        return set(BertForPretraining.from_weights(kept, tiny_config).forward(ids))

    everything = {"mlm_logits", "nsp_logits", "sequence_output", "pooled_output"}
    assert without() == without("cls.predictions.decoder.weight") == without("cls.predictions.bias") == everything
    assert without("cls.predictions.transform.dense.bias") == everything - {"mlm_logits"}
    assert without("cls.seq_relationship.bias") == everything - {"nsp_logits"}
    assert without("bert.pooler.dense.bias") == everything - {"nsp_logits", "pooled_output"}


def test_a_checkpoint_that_is_not_one_gets_one_sentence(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Missing files, number types that NumPy lacks, missing weights and wrong shapes are each named."""
    config = checkpoint.read_config(tiny_model_folder)
    weights = {name: tensor.numpy() for name, tensor in checkpoint.read_weights(tiny_model_folder).items()}
    with pytest.raises(ValueError, match=r"has no config\.json"):
        BertForPretraining.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()), encoding="utf-8")
    with pytest.raises(ValueError, match=r"has no model\.safetensors"):
        BertForPretraining.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not a file of weights")
    with pytest.raises(ValueError, match="cannot be read as NumPy arrays"):
        BertForPretraining.from_pretrained(tmp_path)
    half = {name: torch.from_numpy(value).bfloat16() for name, value in weights.items()}
    checkpoint.write_tensors(half, config, tmp_path)
    with pytest.raises(ValueError, match=r"cannot be read as NumPy arrays: .*bfloat16"):
        BertForPretraining.from_pretrained(tmp_path)
    save_file({"bert.embeddings.LayerNorm.bias": np.zeros(32)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"weights are missing, the first is bert\.embeddings\.word_embeddings"):
        BertForPretraining.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is \(3,\): the configuration requires \(32,\)"):
        BertForPretraining.from_weights({**weights, "bert.pooler.dense.bias": np.zeros(3)}, config)
    with pytest.raises(ValueError, match="dtype is int64: it must be float32 or float64"):
        BertForPretraining.from_weights(weights, config, np.int64)


@pytest.mark.parametrize(
    ("ids", "arguments", "sentence"),
    [
        ([[5, 200]], {}, "token 200 does not exist: the table has 0 to 199"),
        ([[5, -1]], {}, "token -1 does not exist"),
        ([[0.5]], {}, "expected whole numbers"),
        ([5, 6], {}, r"shape \(2,\): expected whole numbers \(batch, seq\)"),
        (np.zeros((1, 0), int), {}, r"shape \(1, 0\)"),
        ([[5] * 13], {}, "13 tokens: this model takes at most 12"),
        ([[5, 6]], {"token_type_ids": np.zeros((1, 2), int)}, "it has no segments"),
        ([[5, 6]], {"attention_mask": np.ones((1, 3))}, r"attention_mask is \(1, 3\): for this input it is \(1, 2\)"),
        ([[5, 6]], {"head_mask": np.ones((2, 3))}, r"head_mask is \(2, 3\): for this input it is \(4,\), \(2, 4\)"),
    ],
)
def test_input_that_cannot_be_is_refused_in_one_sentence(ids: Any, arguments: dict[str, Any], sentence: str) -> None:
    """What was given and what is allowed, before anything is computed."""
    with pytest.raises(ValueError, match=sentence):
        create_bert_model(**SIZES).forward(np.array(ids), **arguments)


def test_a_segment_that_is_not_there_is_refused(tiny_model_folder: Path) -> None:
    """A third segment does not exist in a model of two."""
    model = BertForPretraining.from_pretrained(tiny_model_folder)
    with pytest.raises(ValueError, match="each from 0 to 1"):
        model.forward(np.array([[2, 3]]), token_type_ids=np.array([[0, 2]]))


def test_it_imports_no_torch(tiny_model_folder: Path) -> None:
    """A forward pass of a new model and of a checkpoint leaves torch out of the process."""
    code = (
        "import sys, numpy as np\n"
        "from bert_core.numpy_bert import BertForPretraining, create_bert_model\n"
        "create_bert_model(50, 8, 16, 2, 32, 1).forward(np.array([[1, 2]]))\n"
        "BertForPretraining.from_pretrained(sys.argv[1]).forward(np.array([[1, 2]]))\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules, 'scipy' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tiny_model_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]


# ---------------------------------------------------------------------------- masking and losses

MASKING: dict[str, Any] = {"mask_id": 4, "vocab_size": 60, "special_ids": (0, 1, 2, 3)}


def test_masking_hides_the_shares_it_says() -> None:
    """Of many ordinary tokens 15% are chosen; of those 80% become the mask, 10% any ordinary piece, 10% stay."""
    ids = np.random.default_rng(0).integers(5, 60, (400, 200))
    before = ids.copy()
    hidden, labels = mask_tokens(ids, **MASKING, rng=1)
    chosen = labels != -100
    assert np.array_equal(ids, before)
    assert np.array_equal(labels[chosen], ids[chosen]) and np.array_equal(hidden[~chosen], ids[~chosen])
    assert abs(chosen.mean() - 0.15) < 0.005
    masked, kept = (hidden[chosen] == 4).mean(), (hidden[chosen] == ids[chosen]).mean()
    assert abs(masked - 0.8) < 0.01 and abs(kept - (0.1 + 0.1 / 55)) < 0.01
    replaced = hidden[chosen & (hidden != 4) & (hidden != ids)]
    assert set(replaced.tolist()) == set(range(5, 60))


def test_masking_never_chooses_a_special_token_and_follows_its_seed() -> None:
    """At a rate of 1 every ordinary token is chosen and no special one; the same seed hides the same."""
    ids = np.array([[2, 10, 11, 3, 12, 4, 3, 0, 0]])
    hidden, labels = mask_tokens(ids, **MASKING, rng=3, rate=1.0, mask_share=1.0, random_share=0.0)
    assert hidden.tolist() == [[2, 4, 4, 3, 4, 4, 3, 0, 0]]
    assert labels.tolist() == [[-100, 10, 11, -100, 12, -100, -100, -100, -100]]
    many = np.full((4, 50), 20)
    first, second = mask_tokens(many, **MASKING, rng=3), mask_tokens(many, **MASKING, rng=np.random.default_rng(3))
    assert np.array_equal(first[0], second[0]) and not np.array_equal(first[0], mask_tokens(many, **MASKING, rng=4)[0])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rate": 1.5}, "rate is 1.5: it must be between 0 and 1"),
        ({"mask_share": 0.9, "random_share": 0.2}, "have a sum above 1"),
        ({"vocab_size": 4}, "all 4 tokens of the vocabulary are special"),
    ],
)
def test_masking_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Shares are shares, and there is something to predict."""
    with pytest.raises(ValueError, match=sentence):
        mask_tokens(np.array([[5]]), **{**MASKING, **changes}, rng=0)


def test_the_losses_are_torchs() -> None:
    """Both losses are torch's cross-entropy, unlabelled positions left out, however large the logits."""
    rng = np.random.default_rng(0)
    logits, labels = 300 * rng.normal(size=(2, 5, 7)), rng.integers(0, 7, (2, 5))
    labels[0, 1] = labels[1, 3] = -100
    expected = F.cross_entropy(torch.from_numpy(logits).flatten(0, 1), torch.from_numpy(labels).flatten())
    assert_near(masked_lm_loss(logits, labels), expected.item(), 1e-12)
    nsp, follows = rng.normal(size=(6, 2)), rng.integers(0, 2, 6)
    expected = F.cross_entropy(torch.from_numpy(nsp), torch.from_numpy(follows))
    assert_near(next_sentence_loss(nsp, follows), expected.item(), 1e-12)


def test_a_new_model_knows_nothing_yet() -> None:
    """Before any training the masked-word loss is that of a guess among all pieces, and NSP that of a coin."""
    model = create_bert_model(**SIZES)
    ids = np.random.default_rng(0).integers(5, 200, (40, 12))
    hidden, labels = mask_tokens(ids, mask_id=4, vocab_size=200, special_ids=range(5), rng=0)
    outputs = model.forward(hidden)
    assert masked_lm_loss(outputs["mlm_logits"], labels) == pytest.approx(math.log(200), rel=0.03)
    assert next_sentence_loss(outputs["nsp_logits"], np.arange(40) % 2) == pytest.approx(math.log(2), rel=0.05)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: masked_lm_loss(np.zeros((1, 2, 9)), np.full((1, 2), -100)), "no position has a label"),
        (lambda: masked_lm_loss(np.zeros((1, 2, 9)), np.zeros((2,), int)), r"labels are \(2,\)"),
        (lambda: masked_lm_loss(np.zeros((1, 2, 9)), np.array([[9, 0]])), "label 9 does not exist: there are 0 to 8"),
        (lambda: next_sentence_loss(np.zeros((2, 2)), np.array([0, 2])), "label 2 does not exist: there are 0 to 1"),
        (lambda: next_sentence_loss(np.zeros((2, 3)), np.array([0, 1])), r"expected \(batch, 2\)"),
    ],
)
def test_labels_that_cannot_be_are_refused(call: Callable[[], float], sentence: str) -> None:
    """A loss of nothing, or of what is not in the vocabulary, is a sentence and not a number."""
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_old_name_of_the_hook_is_accepted() -> None:
    """`keep=` of the model's `forward` is passed on as `hook=`, with a DeprecationWarning."""
    model = create_bert_model(30, 16, 8, 2, 16, 1)
    names: list[str] = []

    def collect(name: str, value: np.ndarray) -> np.ndarray:
        names.append(name)
        return value

    with pytest.warns(DeprecationWarning, match="the parameter keep of forward is now hook"):
        model.forward(np.array([[1, 2, 3]]), keep=collect)
    assert "embeddings.output" in names
