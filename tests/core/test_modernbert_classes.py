"""Classes, tags, answers, choices and sentence vectors of ModernBERT; transformers is the reference.

Before the outputs of each head are a dense layer, an activation function and a layer norm. A classifier of texts reads
the first token or the mean of all tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import bert_core
from bert_core import (
    BertConfig,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    LoadedModel,
    Target,
)
from bert_core.naming import MODERNBERT
from bert_core.recording import record
from bert_core.refused import Refused
from bert_core.run.capture import capture, captures
from tests.core.test_modernbert import BIASES, PRECISIONS, in_own_precision, reference, save
from tests.families import reference_of, save_family
from tests.near import assert_near

__all__ = ["in_own_precision"]
HEADS: dict[str, Any] = {
    "ForSequenceClassification": BertForSequenceClassification,
    "ForTokenClassification": BertForTokenClassification,
    "ForQuestionAnswering": BertForQuestionAnswering,
    "ForMultipleChoice": BertForMultipleChoice,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "cls": {"local_attention": 8},
    "mean": {"local_attention": 8, "classifier_pooling": "mean"},
    "biases": {**BIASES, "local_attention": 8, "classifier_pooling": "mean"},
}
A, B = "The old man walked along the river with his dog.", "Every morning he brings bread."


def batch_of(head: str, length: int) -> dict[str, Tensor]:
    """Texts with padding behind, before, and none; two choices for each question in a model of choices."""
    draw, shape = torch.Generator().manual_seed(length), (4, length)
    ids, mask = torch.randint(5, 90, shape, generator=draw), torch.ones(shape, dtype=torch.long)
    mask[1, -(length // 4) :], mask[2, : length // 3] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if head == "ForMultipleChoice":
        inputs = {name: tensor.view(2, 2, length) for name, tensor in inputs.items()}
    return inputs


def outputs_of(model: Any, head: str, inputs: dict[str, Tensor], ours: bool) -> dict[str, Tensor]:
    """Logits at tokens, the maps, and the gradient of one sum of logits for every map and every parameter, by name."""
    model.zero_grad()
    mask = inputs["attention_mask"].flatten(0, -2)
    tokens = mask.bool()
    with record() as recording:
        outputs = model(**inputs, output_attentions=True)
        maps = outputs.attentions
        for map_ in maps:
            map_.retain_grad()
        if head == "ForQuestionAnswering":
            logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)[tokens]
        else:
            logits = outputs.logits[tokens] if head == "ForTokenClassification" else outputs.logits
        (logits.flatten() * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype)).sum().backward()
    gradients = [recording.gradients[layer] for layer in range(len(maps))] if ours else [map_.grad for map_ in maps]
    found = {"logits": logits}
    for name, tensors in (("map", maps), ("gradient", gradients)):
        at_queries = [(tensor * tokens[:, None, None]).transpose(1, 2)[tokens] for tensor in tensors]
        found |= {f"{name} {number}": tensor for number, tensor in enumerate(at_queries)}
    own = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    own = MODERNBERT.from_bert_names(own, torch.cat) if ours else own
    return {name: tensor.detach() for name, tensor in {**found, **own}.items()}


def assert_equal_outputs(found: dict[str, Tensor], expected: dict[str, Tensor], within: float) -> None:
    """Each is compared on the scale of the largest of its kind."""
    assert found.keys() == expected.keys()
    largest: dict[str, float] = {}
    kinds = {name: name.split()[0] if " " in name or name == "logits" else "parameter" for name in expected}
    for name, tensor in expected.items():
        largest[kinds[name]] = max(largest.get(kinds[name], 0.0), float(tensor.abs().max()))
    for name, tensor in expected.items():
        assert_near(found[name], tensor, within, of=largest[kinds[name]], what=name)


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize(("dtype", "within"), PRECISIONS, ids=["float32", "float64"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("head", HEADS)
def test_logits_maps_and_gradients_are_those_of_transformers_beside_padding_on_both_sides(
    head: str, settings: str, dtype: torch.dtype, within: float, tmp_path: Path
) -> None:
    """Every head, with the first token or the mean, with and without biases, in both precisions."""
    folder = save(tmp_path, head, **SETTINGS[settings])
    model = HEADS[head].from_pretrained(folder).requires_grad_(True).to(dtype)
    assert not model.load_report.missing and not model.load_report.unexpected
    inputs = batch_of(head, 40)
    if head == "ForSequenceClassification" and settings == "cls":  # transformers reads the padding before a text
        inputs["attention_mask"][2] = 1
    found = outputs_of(model, head, inputs, ours=True)
    expected = outputs_of(reference(folder, head).to(dtype), head, inputs, ours=False)
    assert_equal_outputs(found, expected, within)
    assert found["map 0"].max(-1).values.mean() > 1.4 / 40


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize("length", [2, 63, 64, 65, 66, 67, 130])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_classes_agree_at_every_length_beside_the_edge_of_the_window(pooling: str, length: int, tmp_path: Path) -> None:
    """The published window ends at a distance of 64."""
    head = "ForSequenceClassification"
    folder = save(tmp_path, head, classifier_pooling=pooling)
    inputs = {"input_ids": batch_of(head, length)["input_ids"], "attention_mask": torch.ones(4, length)}
    found = outputs_of(HEADS[head].from_pretrained(folder).requires_grad_(True), head, inputs, ours=True)
    assert_equal_outputs(found, outputs_of(reference(folder, head), head, inputs, ours=False), 1e-5)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_mean_excludes_padding_and_is_not_computed_from_some_positions(pooling: str, tmp_path: Path) -> None:
    """What a text is padded with changes nothing, with each form of mask."""
    model = HEADS["ForSequenceClassification"].from_pretrained(
        save(tmp_path, "ForSequenceClassification", classifier_pooling=pooling)
    )
    ids = torch.randint(5, 90, (1, 30), generator=torch.Generator().manual_seed(1))
    alone = model(ids[:, :20]).logits
    mask = (torch.arange(30) < 20).long()[None]
    for padding in (mask, mask.bool(), mask[:, None].expand(1, 30, 30)):
        assert_near(model(ids, attention_mask=padding).logits, alone)
    some = model.bert(ids, positions=torch.tensor([[0, 3]]))
    assert (some.pooler_output is None) == (pooling == "mean")


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({"problem_type": "regression", "num_labels": 1}, torch.tensor([[0.5], [-1.0], [2.0], [0.0]])),
        ({"problem_type": "multi_label_classification", "num_labels": 3}, torch.eye(4)[:, :3]),
        ({"num_labels": 3}, torch.tensor([0, 2, 1, 1])),
        ({"num_labels": 1}, torch.tensor([[0.5], [-1.0], [2.0], [0.0]])),
    ],
    ids=["regression", "several labels", "one label", "one number"],
)
def test_losses_are_those_of_transformers(settings: dict[str, Any], labels: Tensor, tmp_path: Path) -> None:
    head, inputs = "ForSequenceClassification", batch_of("", 20)
    folder = save(tmp_path, head, classifier_pooling="mean", **settings)
    ours = HEADS[head].from_pretrained(folder)
    assert ours.problem_type == settings.get("problem_type")
    found, expected = ours(**inputs, labels=labels), reference(folder, head)(**inputs, labels=labels)
    assert_near(found.loss, expected.loss)
    assert_near(found.logits, expected.logits)


@torch.no_grad()
@pytest.mark.parametrize("settings", ["cls", "biases"])
@pytest.mark.parametrize("head", HEADS)
def test_what_is_saved_is_read_by_transformers_and_by_us(head: str, settings: str, tmp_path: Path) -> None:
    """Every tensor comes back under its name, and the logits are the same."""
    folder, inputs = save(tmp_path / "first", head, **SETTINGS[settings]), batch_of(head, 30)
    HEADS[head].from_pretrained(folder).save_pretrained(tmp_path / "second")
    kind = getattr(transformers, f"ModernBert{head}")
    again, info = kind.from_pretrained(tmp_path / "second", attn_implementation="eager", output_loading_info=True)
    assert not any(info[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched"))
    first = reference(folder, head)
    assert again.config.classifier_pooling == first.config.classifier_pooling
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert torch.equal(again.eval()(**inputs)[0], first(**inputs)[0])


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("head", HEADS)
def test_pruned_heads_neurons_and_layers_equal_masked_ones(head: str, pooling: str, tmp_path: Path) -> None:
    """In double precision; what is saved is read again."""
    inputs = batch_of(head, 30)
    model = HEADS[head].from_pretrained(save(tmp_path / "all", head, classifier_pooling=pooling)).double()
    smaller = bert_core.pruned(model, [(0, 1), (2, 3)], neurons=[(1, neuron) for neuron in range(0, 48, 5)], layers=[3])
    gates = torch.ones(4, 4)
    gates[0, 1] = gates[2, 3] = 0
    layers = model.bert.encoder.layer
    layers[1].output.dense.weight[:, ::5] = 0
    for name in ("attention.output.dense.weight", "output.dense.weight"):
        layers[3].get_parameter(name).zero_()
    expected, found = (network(**inputs, head_mask=mask)[0] for network, mask in ((model, gates), (smaller, None)))
    assert_near(found, expected, 1e-6)
    smaller.save_pretrained(tmp_path / "smaller")
    again = HEADS[head].from_pretrained(tmp_path / "smaller").double()
    assert_near(again(**inputs)[0], expected, 1e-6)


def test_a_classifier_without_an_architecture_is_one_of_texts_unless_its_labels_are_tags(tmp_path: Path) -> None:
    """The files name the layers of all heads alike."""
    save_family("modernbert", tmp_path, "ForSequenceClassification")
    values = json.loads((tmp_path / "config.json").read_text())
    del values["architectures"]
    for labels, name in ((["a", "b", "c"], "classifier"), (["O", "B-X", "I-X"], "tagger")):
        (tmp_path / "config.json").write_text(json.dumps({**values, "id2label": dict(enumerate(labels))}))
        assert set(bert_core.load(tmp_path, device="cpu").task_models) == {name}


def test_an_unknown_pooling_is_refused(tmp_path: Path) -> None:
    values = json.loads((save(tmp_path, "ForSequenceClassification") / "config.json").read_text())
    for wrong in ("max", None, 1):
        with pytest.raises(Refused, match=r"classifier_pooling is .*: it must be 'cls' or 'mean'"):
            BertConfig.from_dict({**values, "classifier_pooling": wrong})


# ------------------------------------------------------------------------------------------------ runs


@pytest.fixture(scope="module", params=["cls", "mean"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each head with its tokenizer, for one pooling."""
    root = tmp_path_factory.mktemp("classes")
    return {
        head: save_family("modernbert", root / head, head, classifier_pooling=request.param)
        for head in (*HEADS, "Model")
    }


@pytest.fixture(scope="module")
def classifier(folders: dict[str, Path]) -> LoadedModel:
    return bert_core.load(folders["ForSequenceClassification"], device="cpu")


def target_of(head: str, loaded: LoadedModel, encoding: bert_core.Encoding) -> tuple[Target, Any]:
    """A target of each head, and what it is among the outputs of transformers."""
    first, last = encoding.sides.index("B"), len(encoding) - 2
    targets: dict[str, tuple[Target, Any]] = {
        "ForSequenceClassification": (Target("class", label=1), lambda outputs: outputs.logits[0, 1]),
        "ForTokenClassification": (Target("tag", 4, label=1), lambda outputs: outputs.logits[0, 4, 1]),
        "ForQuestionAnswering": (
            Target("span", first, last=last),
            lambda outputs: outputs.start_logits[0, first] + outputs.end_logits[0, last],
        ),
        "ForMultipleChoice": (Target("choice"), lambda outputs: outputs.logits[0, 0]),
    }
    return targets[head]


def expected_of(folder: Path, head: str, encoding: bert_core.Encoding, dtype: torch.dtype = torch.float32) -> Any:
    """The outputs of transformers, with maps that have a graph."""
    ids = torch.tensor([encoding.input_ids])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if head == "ForMultipleChoice":
        inputs = {name: tensor[None] for name, tensor in inputs.items()}
    return reference_of("modernbert", folder, head).to(dtype)(**inputs, output_attentions=True)


@pytest.mark.usefixtures("in_own_precision")
@pytest.mark.parametrize("head", HEADS)
def test_targets_and_their_gradients_are_those_of_transformers(head: str, folders: dict[str, Path]) -> None:
    """The value of a target and its gradient for every map, computed in double precision."""
    loaded = bert_core.load(folders[head], device="cpu")
    for model in (loaded.model, *loaded.task_models.values()):
        model.double()
    assert len(loaded.task_models) == 1 and not loaded.report.unexpected and not loaded.has_mlm
    assert not loaded.notes, loaded.notes
    encoding = loaded.tokenizer.encode(A, B)
    target, read = target_of(head, loaded, encoding)
    outputs = expected_of(folders[head], head, encoding, torch.float64)
    value = read(outputs)
    gradients = torch.autograd.grad(value, outputs.attentions)
    run = capture(loaded, encoding, target=target)
    assert_near(run.target_value, value, of=1.0)
    assert run.gradient is not None
    assert_near(run.gradient, torch.cat(gradients), 1e-6)
    assert_near(run.attention, torch.cat(outputs.attentions), 1e-6)


@torch.no_grad()
def test_texts_of_one_batch_are_classified_as_alone(classifier: LoadedModel) -> None:
    """Padding after the shorter text is no part of its mean."""
    texts = [classifier.tokenizer.encode(text) for text in (A, "A dog.", B)]
    for run, text in zip(captures(classifier, texts), texts, strict=True):
        alone = capture(classifier, text)
        assert run.classes is not None and alone.classes is not None
        assert_near(run.classes.logits, alone.classes.logits)
        assert_near(
            alone.classes.logits, expected_of(Path(classifier.name), "ForSequenceClassification", text).logits[0]
        )
