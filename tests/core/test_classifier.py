"""A classifier of texts: against transformers, in checkpoints of every kind, and its classes in the configuration."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import bert_core
from bert_core import BertConfig, BertForPreTraining, BertForSequenceClassification, CheckpointError, checkpoint
from bert_core.recording import record
from tests.near import assert_near

SIZES = BertConfig(vocab_size=120, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
PROBLEMS: dict[str, tuple[dict[str, Any], Tensor]] = {
    "two classes by default": ({}, torch.tensor([1, 0, 1])),
    "named classes": ({"id2label": {"0": "a", "1": "b", "2": "c", "3": "d"}}, torch.tensor([3, 0, 2])),
    "a number": ({"num_labels": 1}, torch.tensor([0.5, -2.0, 3.0])),
    "several numbers": ({"num_labels": 3, "problem_type": "regression"}, torch.eye(3) * 2 - 0.5),
    "each class by itself": ({"num_labels": 3}, torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]])),
}


def batch(config: BertConfig, length: int = 21) -> dict[str, Tensor]:
    """Three random pairs, the last padded."""
    draw = torch.Generator().manual_seed(7)
    ids = torch.randint(1, config.vocab_size, (3, length), generator=draw)
    mask, segments = torch.ones_like(ids), torch.zeros_like(ids)
    mask[2, 15:] = 0
    segments[:, 8:] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def peaked(model: BertForSequenceClassification) -> BertForSequenceClassification:
    """No parameter at its neutral value, and most queries look mainly at one key."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.15)
        for module in model.attention_modules:
            for dense in (module.query, module.key):
                dense.weight.normal_(std=(9.0 / model.config.hidden_size) ** 0.5)
    return model


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_number_is_that_of_transformers(problem: str) -> None:
    """Logits, loss, attention maps, their gradients and every parameter's gradient agree, for each kind of labels."""
    extra, labels = PROBLEMS[problem]
    torch.manual_seed(3)
    ours = peaked(BertForSequenceClassification(SIZES.replace(extra=extra))).eval()
    sizes = transformers.BertConfig(**ours.config.to_dict(), attn_implementation="eager")
    theirs = transformers.BertForSequenceClassification(sizes).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    with record() as recording:
        found = ours(**batch(ours.config), labels=labels, output_attentions=True, output_hidden_states=True)
        found.loss.backward()
    expected = theirs(**batch(ours.config), labels=labels, output_attentions=True, output_hidden_states=True)
    for one in expected.attentions:
        one.retain_grad()
    expected.loss.backward()
    assert_near(found.logits, expected.logits, what="logits")
    assert_near(found.loss, expected.loss, what="loss")
    for layer, one in enumerate(expected.attentions):
        assert_near(found.attentions[layer], one, what=f"attention {layer}")
        assert_near(recording.gradients[layer], one.grad, what=f"gradient {layer}")
        assert_near(found.hidden_states[layer], expected.hidden_states[layer], what=f"hidden states {layer}")
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None and gradients[name] is not None
        assert_near(parameter.grad, gradients[name], of=largest, what=name)


def test_an_untouched_model_agrees_too() -> None:
    """At the usual initial scale the logits are those of transformers as well."""
    theirs = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES.to_dict(), attn_implementation="eager", num_labels=3)
    ).eval()
    ours = BertForSequenceClassification(SIZES.with_labels(["a", "b", "c"])).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_near(ours(**batch(SIZES)).logits, theirs(**batch(SIZES)).logits, what="logits")


def test_classifier_dropout_comes_before_hidden_dropout() -> None:
    """The share that is dropped before the classifier is its own, 0 included, or else that of the hidden states."""
    shares = [(None, 0.3, 0.3), (0.0, 0.3, 0.0), (0.5, 0.3, 0.5)]
    for own, hidden, expected in shares:
        config = SIZES.replace(classifier_dropout=own, hidden_dropout_prob=hidden)
        assert BertForSequenceClassification(config).dropout.p == expected


def test_a_shared_encoder_is_left_as_it_is() -> None:
    """Standing on another model's encoder changes none of its numbers, and training one trains both."""
    torch.manual_seed(0)
    model = BertForPreTraining(SIZES)
    before = copy.deepcopy(model.bert.state_dict())
    classifier = BertForSequenceClassification(SIZES, model.bert)
    assert classifier.bert is model.bert
    for name, tensor in model.bert.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert classifier.classifier.bias.abs().max() == 0 and classifier.classifier.weight.std() > 0.01


# ---------------------------------------------------------------------------- the classes in a configuration


@pytest.mark.parametrize(
    ("extra", "labels"),
    [
        ({}, ("LABEL_0", "LABEL_1")),
        ({"num_labels": 3}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"id2label": {"1": "b", "0": "a"}}, ("a", "b")),
        ({"id2label": {0: "a", 1: 2}, "num_labels": 2}, ("a", "2")),
    ],
)
def test_classes_are_read_as_published(extra: Mapping[str, Any], labels: tuple[str, ...]) -> None:
    """Names come from id2label, in the order of their numbers; a number alone gives the published default names."""
    config = BertConfig(extra=extra)
    assert config.labels == labels and config.num_labels == len(labels)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"id2label": {}}, "each once"),
        ({"id2label": ["a"]}, "each once"),
        ({"id2label": {"0": "a", "2": "b"}}, "each once"),
        ({"id2label": {"1": "a", "one": "b"}}, "each once"),
        ({"id2label": {"0": "a"}, "num_labels": 2}, "must agree"),
        ({"num_labels": 0}, "from 1 to 1,000,000"),
    ],
)
def test_classes_that_are_no_numbering_are_refused(extra: Mapping[str, Any], reason: str) -> None:
    """One sentence, when the classes are asked for: an encoder does not need them."""
    config = BertConfig(extra=extra)
    with pytest.raises(ValueError, match=reason):
        config.labels  # noqa: B018


def test_a_configuration_takes_names() -> None:
    """with_labels writes what published files hold, and an older count or kind does not survive it."""
    old = BertConfig(extra={"num_labels": 5, "problem_type": "regression", "model_type": "bert"})
    config = old.with_labels(["no", "yes"])
    assert config.to_dict()["id2label"] == {"0": "no", "1": "yes"} and config.labels == ("no", "yes")
    assert config.to_dict()["label2id"] == {"no": 0, "yes": 1} and config.problem_type is None
    assert config.extra["model_type"] == "bert"
    for wrong in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="there must be at least one, each once"):
            config.with_labels(wrong)
    with pytest.raises(ValueError, match="problem_type 'guess' is unknown"):
        BertConfig(extra={"problem_type": "guess"}).problem_type  # noqa: B018


# ---------------------------------------------------------------------------- checkpoints


def with_tokenizer(folder: Path, tiny: Path) -> Path:
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copyfile(tiny / name, folder / name)
    return folder


@pytest.fixture
def published(tiny_config: BertConfig, tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A classifier with three named classes as transformers saves it: no other head."""
    sizes = {**tiny_config.to_dict(), "id2label": {0: "red", 1: "green", 2: "blue"}, "initializer_range": 0.1}
    torch.manual_seed(5)
    transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)).save_pretrained(tmp_path / "theirs")
    return with_tokenizer(tmp_path / "theirs", tiny_model_folder)


def test_a_published_classifier_loads_without_the_other_heads(published: Path) -> None:
    """Its classes give the logits of transformers; the heads it lacks are reported, and no key is left over."""
    loaded = bert_core.load(str(published), device="cpu")
    assert loaded.has_classifier and loaded.labels == ("red", "green", "blue")
    assert not loaded.has_mlm and not loaded.has_nsp
    assert loaded.report.unexpected == () and all(name.startswith("cls.") for name in loaded.report.missing)
    assert loaded.task_models["classifier"].bert is loaded.model.bert
    assert not any(parameter.requires_grad for parameter in loaded.task_models["classifier"].parameters())
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(published).eval()
    with torch.no_grad():
        assert_near(
            loaded.task_models["classifier"](**batch(loaded.config)).logits,
            theirs(**batch(loaded.config)).logits,
            what="logits",
        )


def test_a_classifier_beside_the_other_heads_loads_with_them(tiny_model_folder: Path, tmp_path: Path) -> None:
    """A file with all three heads has all three, and every key is accounted for; nbytes counts each weight once."""
    weights = checkpoint.read_weights(tiny_model_folder)
    config = checkpoint.read_config(tiny_model_folder).with_labels(["a", "b", "c"])
    head = {"classifier.weight": torch.randn(3, config.hidden_size), "classifier.bias": torch.randn(3)}
    checkpoint.write_tensors({**weights, **head}, config, tmp_path)
    loaded = bert_core.load(str(with_tokenizer(tmp_path, tiny_model_folder)), device="cpu")
    assert loaded.has_classifier and loaded.has_mlm and loaded.has_nsp
    assert (loaded.report.missing, loaded.report.unexpected) == ((), ())
    plain = bert_core.load(str(tiny_model_folder), device="cpu")
    assert not plain.has_classifier and plain.labels == () and "classifier" not in plain.task_models
    assert loaded.nbytes - plain.nbytes == 4 * (3 * config.hidden_size + 3)
    alone = BertForSequenceClassification.from_pretrained(tmp_path)
    assert all(name.startswith("cls.") for name in alone.load_report.unexpected)
    assert torch.equal(alone.classifier.weight, head["classifier.weight"])


@pytest.mark.parametrize("absent", ["classifier.bias", "bert.pooler.dense.weight"])
def test_half_a_classifier_is_none(tiny_model_folder: Path, tmp_path: Path, absent: str) -> None:
    """Without its bias, or the trained pooler under it, a classifier is reported and not used."""
    weights = checkpoint.read_weights(tiny_model_folder)
    config = checkpoint.read_config(tiny_model_folder).with_labels(["a", "b"])
    head = {"classifier.weight": torch.randn(2, config.hidden_size), "classifier.bias": torch.randn(2)}
    kept = {name: tensor for name, tensor in {**weights, **head}.items() if name != absent}
    checkpoint.write_tensors(kept, config, tmp_path)
    loaded = bert_core.load(str(with_tokenizer(tmp_path, tiny_model_folder)), device="cpu")
    assert loaded.report.missing == (absent,) and not loaded.has_classifier and loaded.labels == ()


def test_a_classifier_of_tokens_is_not_one_of_texts(tiny_model_folder: Path, tmp_path: Path) -> None:
    """A checkpoint that says it classifies tokens has weights of the same name: they are a tagger's."""
    weights = checkpoint.read_weights(tiny_model_folder)
    config = checkpoint.read_config(tiny_model_folder).with_labels(["a", "b"])
    config = config.replace(extra={**config.extra, "architectures": ["BertForTokenClassification"]})
    head = {"classifier.weight": torch.randn(2, config.hidden_size), "classifier.bias": torch.randn(2)}
    checkpoint.write_tensors({**weights, **head}, config, tmp_path)
    loaded = bert_core.load(str(with_tokenizer(tmp_path, tiny_model_folder)), device="cpu")
    assert not loaded.has_classifier and "classifier" not in loaded.task_models and loaded.labels == ()
    assert loaded.has_tagger and loaded.tags == ("a", "b") and not loaded.report.unexpected


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"num_labels": 3}, "the configuration requires"),
        ({"id2label": {"0": "a", "2": "b"}}, "classes of .* cannot be read: id2label is .* each once"),
        ({"problem_type": "guess"}, "classes of .* cannot be read: problem_type 'guess' is unknown"),
    ],
)
def test_classes_that_do_not_fit_the_file_are_one_sentence(
    tiny_model_folder: Path, tmp_path: Path, extra: dict[str, Any], reason: str
) -> None:
    """A classifier of two classes under a configuration of three, or of none that can be read, is refused."""
    weights = checkpoint.read_weights(tiny_model_folder)
    config = checkpoint.read_config(tiny_model_folder).replace(extra=extra)
    head = {"classifier.weight": torch.randn(2, config.hidden_size), "classifier.bias": torch.randn(2)}
    checkpoint.write_tensors({**weights, **head}, config, tmp_path)
    with pytest.raises(CheckpointError, match=reason):
        bert_core.load(str(with_tokenizer(tmp_path, tiny_model_folder)), device="cpu")
