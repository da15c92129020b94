"""A model of transformers in memory gives what the saved one gives, shares its weights, and is not changed."""

from __future__ import annotations

import copy
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import bert_core
from bert_core import LoadedModel, Target
from bert_core.checkpoint import CheckpointError
from bert_core.fingerprint import fingerprint
from bert_core.refused import Refused
from bert_core.run.lens import layer_states
from bert_core.task_heads import TASK_HEADS
from tests.families import FAMILIES, reference_of, save_family
from tests.near import assert_near

WITHIN = 1e-6
TEXT, PAIR = "The old man [MASK] along the river with his dog.", "Jeden Morgen bringt er Brot."
HEADS = (
    "ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
    "ForMultipleChoice",
)  # fmt: skip
MODEL_CASES = [
    *((family, head) for family in FAMILIES for head in HEADS if (family, head) != ("modernbert", "ForMultipleChoice")),
    ("electra", "ForPreTraining"), ("albert", "ForPreTraining"), ("bert", "ForPreTraining"),
    ("bert", "ForNextSentencePrediction"), *(("bert", head) for head in HEADS), ("mmbert", "ForMaskedLM"),
]  # fmt: skip


def saved(family: str, head: str, folder: Path) -> Path:
    if family != "bert":
        return save_family(family, folder, head)
    save_family("electra", folder)  # its tokenizer is that of BERT
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for file in ("config.json", "model.safetensors"):
        (folder / file).unlink()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        id2label={0: "calm", 1: "glad", 2: "sad"} if "Classification" in head else {0: "a", 1: "b"},
        initializer_range=0.15,
    )  # fmt: skip
    torch.manual_seed(7)
    getattr(transformers, f"Bert{head}")(config).save_pretrained(folder)
    return folder


def in_memory(family: str, head: str, folder: Path) -> tuple[Any, Any]:
    model = (
        getattr(transformers, f"Bert{head}").from_pretrained(folder, attn_implementation="eager").eval()
        if family == "bert"
        else reference_of(family, folder, head)
    )
    # A copy, since the tensors of a file can have another alignment in memory.
    return copy.deepcopy(model), transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("bert", "ForMaskedLM", tmp_path_factory.mktemp("own") / "bert")


@pytest.fixture
def theirs(folder: Path) -> Any:
    return in_memory("bert", "ForMaskedLM", folder)[0]


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def storages(model: nn.Module) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in model.state_dict(keep_vars=True).values()}


def state_of(model: nn.Module) -> tuple[object, ...]:
    """Everything of a model that from_transformers must leave as it is."""
    return (
        model.training,
        [
            (name, id(parameter), parameter.requires_grad, parameter.grad, parameter._version, parameter.data_ptr())
            for name, parameter in model.named_parameters()
        ],
        [(name, buffer.tolist()) for name, buffer in model.named_buffers()],
        [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        model.config.to_dict(),  # type: ignore[operator, union-attr]
    )


def assert_same_results(ours: LoadedModel, expected: LoadedModel) -> None:
    """The same settings, tokens and heads, and the same states, maps, outputs, values and gradients to 1e-6.

    They are equal bitwise if the weights have the same alignment in memory, on which products of matrices depend.
    """
    assert (ours.config, ours.report.missing, ours.notes) == (expected.config, expected.report.missing, expected.notes)
    heads = [name for name in TASK_HEADS if expected.has_head(name)]
    assert [name for name in TASK_HEADS if ours.has_head(name)] == heads
    encoding = ours.tokenizer.encode(TEXT, PAIR)
    assert encoding == expected.tokenizer.encode(TEXT, PAIR)
    states = [layer_states(model, encoding).states for model in (ours, expected)]
    assert_near(*states, WITHIN)
    runs = [bert_core.capture(model, encoding) for model in (ours, expected)]
    assert_near(runs[0].attention, runs[1].attention, WITHIN)
    targets = [bert_core.similarity_target(expected, encoding, ours.tokenizer.encode(PAIR))]
    for head in map(TASK_HEADS.__getitem__, heads):
        last = torch.tensor(states[1][-1:])
        for output, reference in zip(
            *(head.outputs(model, last).values() for model in (ours, expected)), strict=True
        ):  # fmt: skip
            assert_near(output.double(), reference.double(), WITHIN)
        if head.applies(expected, encoding):
            targets += head.suggested_targets(expected, runs[1], encoding, None)[:1]
    for target in targets:
        results = [bert_core.capture(model, encoding, target=target) for model in (ours, expected)]
        assert_near(results[0].target_value, results[1].target_value, WITHIN)
        assert_near(results[0].gradient, results[1].gradient, WITHIN)


@pytest.mark.parametrize(("family", "head"), MODEL_CASES, ids=[f"{family}-{head}" for family, head in MODEL_CASES])
def test_results_are_those_of_the_saved_model_and_no_weight_is_copied(family: str, head: str, tmp_path: Path) -> None:
    """Every family and head: load(folder) and from_transformers agree bitwise, and all present weights are shared."""
    folder = saved(family, head, tmp_path / "saved")
    theirs, tokenizer = in_memory(family, head, folder)
    before = state_of(theirs)
    generator = torch.get_rng_state()
    ours = bert_core.from_transformers(theirs, tokenizer)
    assert state_of(theirs) == before and torch.equal(torch.get_rng_state(), generator)
    for part in (theirs, tokenizer):
        part.save_pretrained(tmp_path / "again")
    expected = bert_core.load(tmp_path / "again", device="cpu")
    assert_same_results(ours, expected)
    shared = storages(theirs)
    for name, tensor in ours.trained_parameters.items():
        assert tensor.untyped_storage().data_ptr() in shared, f"{name} is a copy"
        assert not tensor.requires_grad and not any(tensor is parameter for parameter in theirs.parameters())
    assert ours.nbytes == expected.nbytes and ours.shares_weights and not expected.shares_weights
    assert fingerprint(ours) == fingerprint(expected)


@pytest.mark.parametrize("fused", [False, True])
def test_results_follow_the_training_of_the_given_model(theirs: Any, tokenizer: Any, fused: bool) -> None:
    """After a step of an optimizer, also a fused one, which torch does not count, captures are those of a new load."""
    ours = bert_core.from_transformers(theirs, tokenizer)
    encoding = ours.tokenizer.encode(TEXT)
    key, digest = ours.identity, fingerprint(ours)
    first = bert_core.capture(ours, encoding)
    optimizer = torch.optim.AdamW(theirs.train().parameters(), lr=1e-2, fused=fused)
    ids = torch.tensor([encoding.input_ids])
    for _ in range(2):
        theirs(input_ids=ids, labels=ids).loss.backward()
        bert_core.capture(ours, encoding, target=Target("mlm", encoding.mask_positions[0], 30))
        optimizer.step()
        optimizer.zero_grad()
    assert theirs.training and all(parameter.requires_grad for parameter in theirs.parameters())
    second = bert_core.capture(ours, encoding)
    assert not np.allclose(first.attention, second.attention, rtol=1e-3)
    fresh = bert_core.from_transformers(copy.deepcopy(theirs), tokenizer)
    np.testing.assert_array_equal(second.attention, bert_core.capture(fresh, encoding).attention)
    assert ours.identity != key and fingerprint(ours) == fingerprint(fresh) != digest


def test_every_tool_of_the_library_runs_on_it(theirs: Any, tokenizer: Any, folder: Path, tmp_path: Path) -> None:
    """Ablation, patches, edits, pruning, files and views give what the loaded model gives, and change nothing."""
    from viz_app.notebook import view

    before = state_of(theirs)
    ours, expected = bert_core.from_transformers(theirs, tokenizer), bert_core.load(folder, device="cpu")
    encode = expected.tokenizer.encode
    text, source = encode(TEXT), encode(TEXT.replace("river", "street"))
    target = Target("mlm", text.mask_positions[0], 30)
    patches = [bert_core.patch(model, source, text, target, align="words") for model in (ours, expected)]
    np.testing.assert_array_equal(patches[0].values, patches[1].values)
    effects = [bert_core.ablate_heads(model, text, target=target) for model in (ours, expected)]
    assert effects[0] == effects[1]
    edit = bert_core.AttentionKnockout(keys=(0,), layers=(1,))
    edited = [bert_core.capture(bert_core.edited(model, [edit]), text) for model in (ours, expected)]
    np.testing.assert_array_equal(edited[0].attention, edited[1].attention)
    smaller = bert_core.pruned(ours, [(0, 1)])
    assert not smaller.shares_weights and not storages(smaller.model) & storages(theirs)
    np.testing.assert_array_equal(
        bert_core.capture(smaller, text).attention,
        bert_core.capture(bert_core.pruned(expected, [(0, 1)]), text).attention,
    )
    bert_core.save(ours, tmp_path / "written")
    assert_same_results(ours, bert_core.load(tmp_path / "written", device="cpu"))
    bert_core.export_onnx(ours, tmp_path / "graph")
    assert "srcdoc" in view(bert_core.capture(ours, text))._repr_html_()
    assert state_of(theirs) == before


def test_wrappers_and_hooks_of_transformers_are_accepted(theirs: Any, tokenizer: Any, folder: Path) -> None:
    """DataParallel, torch.compile and a model whose attention was recorded give the same results."""
    expected = bert_core.load(folder, device="cpu")
    theirs(input_ids=torch.tensor([[2, 5, 3]]), output_attentions=True, output_hidden_states=True)
    assert any(module._forward_hooks for module in theirs.modules())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        compiled = torch.compile(theirs)
    for model in (theirs, nn.DataParallel(theirs), compiled):
        assert_same_results(bert_core.from_transformers(model, tokenizer), expected)


def test_the_settings_of_a_tokenizer_for_batches_are_left_out(theirs: Any, folder: Path) -> None:
    """A tokenizer that was called with truncation and padding encodes as the saved one does."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer([TEXT, "a"], padding="max_length", truncation=True, max_length=9)
    ours = bert_core.from_transformers(theirs, tokenizer)
    assert ours.tokenizer.encode(TEXT) == bert_core.load(folder, device="cpu").tokenizer.encode(TEXT)


def test_the_dtype_of_the_weights_is_kept(theirs: Any, tokenizer: Any, folder: Path) -> None:
    """A model in float64 stays in it, with its new parameters, and its maps are those of float32 to its precision."""
    model = transformers.BertModel(theirs.config, add_pooling_layer=False).double()
    model.load_state_dict({**theirs.bert.state_dict()})
    ours = bert_core.from_transformers(model, tokenizer)
    assert {parameter.dtype for parameter in ours.model.parameters()} == {torch.float64}
    encoding = ours.tokenizer.encode(TEXT)
    reference = bert_core.capture(bert_core.load(folder, device="cpu"), encoding)
    assert_near(bert_core.capture(ours, encoding).attention, reference.attention, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_sentence_transformer_gives_its_pooling_and_tokenizer(
    mode: str, normalize: bool, folder: Path, tmp_path: Path
) -> None:
    """Vectors of sentences are those of sentence-transformers, and the settings those of the saved model."""
    import sentence_transformers as library
    from sentence_transformers.base import modules as base
    from sentence_transformers.sentence_transformer import modules

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = base.Transformer(str(folder), max_seq_length=20)
        pooling = modules.Pooling(32, mode)
        theirs = library.SentenceTransformer(modules=[encoder, pooling, *[base.Normalize()] * normalize], device="cpu")
        theirs.save(str(tmp_path / "saved"))
        ours, expected = bert_core.from_transformers(theirs), bert_core.load(tmp_path / "saved", device="cpu")
        assert ours.pooling == expected.pooling
        assert ours.max_sentence_tokens == 20
        encoding = bert_core.read_sentence(ours, TEXT)
        vector = bert_core.sentence_vector(ours, encoding)
        assert_near(vector, bert_core.sentence_vector(expected, encoding), WITHIN)
        reference = theirs.encode(TEXT)
        np.testing.assert_allclose(
            vector / np.linalg.norm(vector), reference / np.linalg.norm(reference), rtol=0, atol=1e-5
        )
        with pytest.raises(Refused, match="must name one of Transformer"):
            bert_core.from_transformers(
                library.SentenceTransformer(modules=[encoder, pooling, base.Dense(32, 8)], device="cpu")
            )
        theirs.prompts, theirs.default_prompt_name = {"query": "find: "}, "query"
        with pytest.raises(Refused, match="find: "):
            bert_core.from_transformers(theirs)


# --- models that are refused ---


def quantised(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def with_int8(model: Any) -> Any:
    model.bert.pooler = None
    weight = model.bert.encoder.layer[0].output.dense
    weight.weight = nn.Parameter(weight.weight.detach().to(torch.int8), requires_grad=False)
    return model


def with_adapter(model: Any) -> Any:
    model.bert.encoder.layer[0].output.lora_A = nn.Linear(32, 2)
    return model


def with_mixed_dtypes(model: Any) -> Any:
    model.bert.encoder.layer[1].half()
    return model


def with_meta_weight(model: Any) -> Any:
    model.bert.encoder.layer[1].to("meta")
    return model


def with_hook(model: Any) -> Any:
    model.bert.encoder.layer[1].register_forward_hook(lambda module, inputs, output: None)
    return model


def with_pre_hook(model: Any) -> Any:
    model.bert.encoder.layer[1].register_forward_pre_hook(lambda module, inputs: None)
    return model


def with_other_forward(model: Any) -> Any:
    model.bert.encoder.layer[1].forward = model.bert.encoder.layer[0].forward
    return model


def with_parametrization(model: Any) -> Any:
    return nn.utils.parametrizations.weight_norm(model.bert.encoder.layer[0].output.dense) and model


def in_half_precision(model: Any) -> Any:
    return model.half()


def in_bfloat16(model: Any) -> Any:
    return model.bfloat16()


def with_nan(model: Any) -> Any:
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight[0, 0] = torch.nan
    return model


def with_untied_decoder(model: Any) -> Any:
    model.cls.predictions.decoder.weight = nn.Parameter(model.cls.predictions.decoder.weight.detach().clone())
    return model


REFUSED_MODELS: dict[str, tuple[Any, str]] = {
    "quantised": (quantised, "as in quantised models"),
    "int8": (with_int8, "int8, as in quantised models"),
    "adapter": (with_adapter, "has adapters: merge them"),
    "mixed dtypes": (with_mixed_dtypes, "have 2 dtypes, float16, float32"),
    "meta": (with_meta_weight, "is on the meta device"),
    "hook": (with_hook, "encoder.layer.1 has a forward hook"),
    "pre-hook": (with_pre_hook, "encoder.layer.1 has a forward hook"),
    "forward": (with_other_forward, "encoder.layer.1 is replaced"),
    "parametrization": (with_parametrization, "computed from others"),
    "half": (in_half_precision, r"float16, .*model.float\(\)"),
    "bfloat16": (in_bfloat16, r"bfloat16, .*model.float\(\)"),
    "NaN": (with_nan, "NaN or infinite"),
    "untied": (with_untied_decoder, "the configuration ties them"),
}


@pytest.mark.parametrize("case", REFUSED_MODELS)
def test_a_model_whose_results_would_differ_is_refused_in_one_sentence(
    case: str, theirs: Any, tokenizer: Any
) -> None:  # fmt: skip
    """Each reason is named, and no message has several lines."""
    change, message = REFUSED_MODELS[case]
    with pytest.raises(Refused, match=message) as refusal:
        bert_core.from_transformers(change(theirs), tokenizer)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("change", [in_half_precision, in_bfloat16])
def test_the_line_in_the_refusal_of_half_precision_shares_the_converted_weights(
    change: Any, theirs: Any, tokenizer: Any
) -> None:
    """The line of the message runs as it is; results are those of transformers in float32, also after a change."""
    model = change(theirs)
    with pytest.raises(Refused) as refusal:
        bert_core.from_transformers(model, tokenizer)
    (line,) = re.findall(r"from_transformers\(.*\)", str(refusal.value))
    loaded = eval(f"bert_core.{line}", {"bert_core": bert_core, "model": model, "tokenizer": tokenizer})
    encoding = loaded.tokenizer.encode("the king saw the [MASK]")
    for _ in range(2):
        outputs = model.eval()(torch.tensor([encoding.input_ids]), output_attentions=True)
        expected = torch.stack(outputs.attentions)[:, 0].detach().numpy()
        assert_near(bert_core.capture(loaded, encoding).attention, expected, 1e-5)
        with torch.no_grad():
            model.bert.encoder.layer[0].attention.self.query.weight.mul_(3)


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 99}
OTHER_ARCHITECTURES: dict[str, tuple[Any, str]] = {
    "decoder": (
        lambda: transformers.BertLMHeadModel(transformers.BertConfig(**SMALL, is_decoder=True)),
        "BertLMHeadModel is a decoder",
    ),
    "GPT-2": (
        lambda: transformers.GPT2Model(transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=99)),
        "a model of type 'gpt2': only 'bert'",
    ),
    "T5": (
        lambda: transformers.T5Model(transformers.T5Config(d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8)),
        "T5Model is an encoder-decoder",
    ),
    "DeBERTa": (
        lambda: transformers.DebertaModel(transformers.DebertaConfig(**SMALL)),
        "a model of type 'deberta', whose queries",
    ),
    "text": (lambda: "headlight-mini", "with bert_core.load"),
    "path": (lambda: Path("headlight-mini"), "with bert_core.load"),
    "module": (lambda: nn.Linear(2, 2), "it must be a PyTorch model of transformers"),
    "class": (lambda: transformers.BertModel, "it must be a PyTorch model of transformers"),
    "None": (lambda: None, "it must be a PyTorch model of transformers"),
    "loaded": (lambda: bert_core.load("headlight-mini", device="cpu"), "is a LoadedModel already"),
}


@pytest.mark.parametrize("case", OTHER_ARCHITECTURES)
def test_another_architecture_or_object_is_refused_in_one_sentence(case: str, tokenizer: Any) -> None:
    """Decoders, encoder-decoders, other model types and objects without weights have each their reason."""
    make, message = OTHER_ARCHITECTURES[case]
    with pytest.raises(Refused, match=message) as refusal:
        bert_core.from_transformers(make(), tokenizer)
    assert "\n" not in str(refusal.value)


def test_several_devices_are_refused(theirs: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights on two devices are refused with both names; a fake tensor stands for the one on the second."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        other = torch.empty(2, device="cuda:1")
    monkeypatch.setattr(type(theirs), "state_dict", lambda self, **_: {"first": torch.ones(2), "second": other})
    with pytest.raises(Refused, match="have 2 devices, cpu, cuda:1"):
        bert_core.from_transformers(theirs, tokenizer)


def test_a_tokenizer_that_does_not_fit_is_refused(theirs: Any, tokenizer: Any, tmp_path: Path) -> None:
    """A larger vocabulary, no tokenizer and a tokenizer of this library are refused; no path of a file is named."""
    larger = copy.deepcopy(tokenizer)
    larger.add_tokens(["[new]"])
    for given, message in ((larger, "do not belong together"), (None, "tokenizer is None"), ("bert", "'bert'")):
        with pytest.raises(Refused, match=message) as refusal:
            bert_core.from_transformers(theirs, given)
        assert "/" not in str(refusal.value)
    assert isinstance(refusal.value, Refused) and not isinstance(refusal.value, CheckpointError)
