"""Classes, tags, answers, choices and sentence vectors of ModernBERT; transformers is the reference.

Before the outputs of each head are a dense layer, an activation function and a layer norm. A classifier of texts reads
the first token or the mean of all tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
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
from bert_core.fingerprint import fingerprint
from bert_core.methods import METHODS, token_scores
from bert_core.naming import MODERNBERT
from bert_core.pooling import Pooling
from bert_core.recording import record
from bert_core.refused import Refused
from bert_core.run.ablation import ablate_heads
from bert_core.run.capture import capture, captures
from bert_core.run.direct import direct_logit
from bert_core.run.knockouts import knock_out_edges
from bert_core.run.losses import TextExample, gate_gradients, losses_without_heads
from bert_core.run.patching import patch
from bert_core.run.paths import patch_path
from bert_core.run.perturbation import values_without
from bert_core.run.similarity import read_sentence, sentence_similarity, sentence_vector, similarity_target
from bert_core.run.walk import walk
from bert_core.task_heads import TASK_HEADS
from bert_core.training.finetune import finetune
from bert_core.training.settings import FinetuneSettings
from bert_core.training.tuning import load_start
from tests.core.test_modernbert import BIASES, PRECISIONS, in_own_precision, reference, save
from tests.core.test_pooling import folder_of_the_reference, sentences_folder
from tests.core.test_pooling import theirs as vectors_of_the_reference
from tests.core.test_pooling import vectors as vectors_of
from tests.families import reference_of, save_family, sentences
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


def test_the_pooling_is_part_of_the_fingerprint_of_a_head_that_pools(tmp_path: Path) -> None:
    """Equal weights give other classes, but the same words and tags."""
    for head, differs in (
        ("ForSequenceClassification", True),
        ("ForTokenClassification", False),
        ("ForMaskedLM", False),
    ):
        folders = [
            save_family("modernbert", tmp_path / head / mode, head, classifier_pooling=mode) for mode in ("cls", "mean")
        ]
        first, second = (fingerprint(bert_core.load(folder, device="cpu")) for folder in folders)
        assert (first != second) == differs


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


@pytest.mark.parametrize("head", HEADS)
def test_every_function_computes_the_value_of_a_target_from_the_same_positions(
    head: str, folders: dict[str, Path]
) -> None:
    """Ablation equals a gate at 0, patches from the text itself change nothing, and those of a text give its value."""
    loaded = bert_core.load(folders[head], device="cpu")
    encoding, source = (loaded.tokenizer.encode(text, B) for text in (A, A.replace("old man", "man old")))
    target, _ = target_of(head, loaded, encoding)
    gates = bert_core.head_mask_without(loaded.config, [(1, 2)])
    values = [capture(loaded, encoding, target=target, head_mask=mask).target_value for mask in (None, gates)]
    ablated = ablate_heads(loaded, encoding, target=target)
    assert ablated.values is not None
    assert_near([ablated.base_value, ablated.values[1, 2]], values, 1e-4)
    of = max(abs(values[0]), 1.0)
    for found in (
        patch(loaded, encoding, encoding, target, part_kind="head").values,
        patch_path(loaded, encoding, encoding, target).values,
    ):
        assert_near(found, np.full(found.shape, values[0]), of=of)
    assert len(source) == len(encoding)
    patched = patch(loaded, source, encoding, target, part_kind="state", per_position=False)
    assert_near(patched.source_value, capture(loaded, source, target=target).target_value, of=of)
    assert_near(patched.values[-1], patched.source_value, of=of)
    edges = knock_out_edges(loaded, encoding, target, 2, 1)
    knocked = bert_core.edited(loaded, [bert_core.AttentionKnockout((3,), (5,), (2,), (1,))])
    assert_near(edges[3, 5], capture(knocked, encoding, target=target).target_value, of=of)
    assert_near(values_without(loaded, encoding, target, np.zeros((1, len(encoding)), bool)), [values[0]], of=of)


def test_every_method_scores_the_tokens_for_a_class_or_is_refused_with_the_reason(classifier: LoadedModel) -> None:
    """DecompX alone is refused."""
    encoding = classifier.tokenizer.encode(A)
    for method in METHODS:
        if method.name == "DecompX":
            with pytest.raises(Refused, match="neurons of this model have two"):
                token_scores(classifier, encoding, Target("class", label=2), [method.name])
        else:
            scores = token_scores(classifier, encoding, Target("class", label=2), [method.name])
            assert np.isfinite(scores).all() and scores.any(), method.name


@torch.no_grad()
def test_probabilities_and_losses_of_classes_are_those_of_the_logits(classifier: LoadedModel) -> None:
    """The loss of each text of a batch, with all heads and without one, excludes the padding of the others."""
    texts = [classifier.tokenizer.encode(text) for text in (A, "A dog.", B)]
    gates = bert_core.head_mask_without(classifier.config, [(0, 3)])
    examples = [TextExample(text, label=number) for number, text in enumerate(texts)]
    found, ablated = losses_without_heads(classifier, examples)
    of_gradients, _ = gate_gradients(classifier, examples)
    for number, text in enumerate(texts):
        losses = []
        for mask in (None, gates):
            classes = capture(classifier, text, head_mask=mask).classes
            assert classes is not None
            losses.append(-torch.tensor(classes.logits).log_softmax(-1)[number].item())
        assert_near([found[number], of_gradients[number], ablated[number, 0, 3]], [losses[0], *losses], 1e-4, of=1.0)
        probability = values_without(
            classifier, text, Target("class", label=number), np.zeros((1, len(text)), bool), probability=True
        )
        assert_near(probability, [np.exp(-losses[0])], of=1.0)


@torch.no_grad()
def test_options_are_scored_as_by_transformers(folders: dict[str, Path]) -> None:
    loaded = bert_core.load(folders["ForMultipleChoice"], device="cpu")
    found = bert_core.choose(loaded, A, [B, "His dog.", "The river was cold that morning."])
    for choice, logit in zip(found.choices, found.logits, strict=True):
        encoding = loaded.tokenizer.encode(A, choice)
        assert_near(
            logit, expected_of(folders["ForMultipleChoice"], "ForMultipleChoice", encoding).logits[0, 0], of=1.0
        )


@pytest.mark.parametrize("head", HEADS)
def test_a_pruned_model_with_its_tokenizer_is_saved_and_loaded(
    head: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """The head's layers keep their weights; the whole model is read by transformers."""
    loaded = bert_core.load(folders[head], device="cpu")
    encoding = loaded.tokenizer.encode(A, B)
    target, _ = target_of(head, loaded, encoding)
    smaller = bert_core.pruned(loaded, [(1, 2)], neurons=[(0, 3)])
    again = bert_core.load(bert_core.save(smaller, tmp_path / "smaller"), device="cpu")
    value = capture(smaller, encoding, target=target).target_value
    assert capture(again, encoding, target=target).target_value == value
    gates = bert_core.head_mask_without(loaded.config, [(1, 2)])
    without = bert_core.edited(loaded, [bert_core.ScaledNeuron(0, 3, 0.0)])
    assert_near(value, capture(without, encoding, target=target, head_mask=gates).target_value, of=1.0)
    model = getattr(transformers, f"ModernBert{head}")
    bert_core.save(loaded, tmp_path / "whole")
    _, info = model.from_pretrained(tmp_path / "whole", output_loading_info=True)
    assert not any(info[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched"))


def test_a_new_classifier_starts_with_the_layers_of_the_masked_word_head(tmp_path: Path) -> None:
    """As in transformers. After training, the file holds both heads, of which transformers reads the classifier."""
    start = save_family("modernbert", tmp_path / "words", classifier_pooling="mean")
    model = bert_core.load(start, device="cpu").model
    origin, _ = load_start(
        start, FinetuneSettings(), ("a", "b"), BertForSequenceClassification, lambda family: family.classifier,
        TASK_HEADS["classifier"].is_in_checkpoint,
    )  # fmt: skip
    for name, weight in model.cls.predictions.transform.named_parameters():
        assert torch.equal(origin.bert.pooler.get_parameter(name), weight), name
    table = tmp_path / "rows.csv"
    rows = [f"{line.replace(',', ' ')},{'long' if len(line) > 40 else 'short'}" for line in sentences()]
    table.write_text("text,class\n" + "\n".join(rows) + "\n", encoding="utf-8")
    finetune(
        table, tmp_path / "made", FinetuneSettings(epochs=1, max_length=48), text="text", label="class",
        start=str(start), device="cpu", report=lambda done, what="": None,
    )  # fmt: skip
    made = bert_core.load(tmp_path / "made", device="cpu")
    encoding = made.tokenizer.encode(A)
    assert made.has_mlm and made.has_classifier and not made.report.unexpected
    assert made.config.classifier_pooling == "mean"
    pooler, transform = made.model.bert.pooler, made.model.cls.predictions.transform
    assert not torch.equal(pooler.dense.weight, transform.dense.weight)
    assert torch.equal(transform.dense.weight, model.cls.predictions.transform.dense.weight)
    classes = capture(made, encoding).classes
    assert classes is not None
    logits = expected_of(tmp_path / "made", "ForSequenceClassification", encoding).logits[0]
    assert_near(classes.logits, logits, 1e-4)


# ------------------------------------------------------------------------------------------------ sentence encoders


@pytest.mark.parametrize("normal", [True, False], ids=["normal", "plain"])
@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_sentence_vectors_are_the_pooled_states_of_transformers(
    mode: str, normal: bool, folders: dict[str, Path], tmp_path: Path
) -> None:
    """The first token's state, or the mean, divided by its length if the folder says so; the parts add up."""
    folder = sentences_folder(folders["Model"], tmp_path / "sentences", mode, normal=normal, limit=30)
    loaded = bert_core.load(folder, device="cpu")
    assert loaded.pooling == Pooling(mode, normalize=normal, max_length=30)
    reference_model, vectors = reference_of("modernbert", folders["Model"], "Model"), []
    texts = [read_sentence(loaded, text) for text in (A * 3, B)]
    assert len(texts[0]) == 30
    for text in texts:
        states = reference_model(torch.tensor([text.input_ids])).last_hidden_state[0].detach()
        vector = states[0] if mode == "cls" else states.mean(0)
        vectors.append(vector / vector.norm() if normal else vector)
        assert_near(sentence_vector(loaded, text), vectors[-1])
    found = sentence_similarity(loaded, *texts)
    cosine = torch.cosine_similarity(*vectors, dim=0)
    assert_near(found.cosine, cosine, of=1.0)
    assert_near(found.parts.sum(), found.cosine, of=1.0)
    target = similarity_target(loaded, texts[0], texts[1])
    run = capture(loaded, texts[0], target=target)
    assert_near(run.target_value, cosine, of=1.0)
    again = bert_core.load(bert_core.save(loaded, tmp_path / "written"), device="cpu")
    assert again.pooling == loaded.pooling
    assert np.array_equal(sentence_vector(again, texts[0]), sentence_vector(loaded, texts[0]))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_sentence_vectors_are_those_of_sentence_transformers(
    mode: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """It reads what we write, too."""
    folder = folder_of_the_reference(folders["Model"], tmp_path / "sentences", mode)
    loaded = bert_core.load(folder, device="cpu")
    expected = vectors_of_the_reference(folder)
    assert_near(vectors_of(loaded), expected)
    assert_near(vectors_of_the_reference(bert_core.save(loaded, tmp_path / "written")), expected)


# ------------------------------------------------------------------------------------------------ values on the way


def test_a_walk_has_the_values_between_the_last_states_and_the_classifier(classifier: LoadedModel) -> None:
    """From the first token or the mean, through the dense layer, the activation function and the layer norm."""
    encoding = classifier.tokenizer.encode(A)
    values, run = walk(classifier, encoding, 1).values, capture(classifier, encoding)
    states, pooler = torch.tensor(values["hidden_states"][-1]), classifier.model.bert.pooler
    assert pooler is not None and run.classes is not None
    state = states.mean(0) if pooler.pooling == "mean" else states[0]
    assert ("pooler_mean" in values) == (pooler.pooling == "mean")
    assert_near(values.get("pooler_mean", state), state)
    dense = pooler.dense(state)
    activated = torch.nn.functional.gelu(dense)
    for name, expected in (("_dense", dense), ("_activated", activated), ("", pooler.LayerNorm(activated))):
        assert_near(values[f"pooler{name}"], expected)
    assert_near(classifier.task_models["classifier"].classifier(torch.tensor(values["pooler"])), run.classes.logits)


@pytest.mark.parametrize("head", HEADS)
def test_direct_contributions_add_up_to_the_logit_of_each_head(head: str, folders: dict[str, Path]) -> None:
    """Also for a class that is read from the mean of all positions, and for the two ends of an answer."""
    loaded = bert_core.load(folders[head], device="cpu")
    encoding = loaded.tokenizer.encode(A, B)
    target, _ = target_of(head, loaded, encoding)
    found, value = direct_logit(loaded, encoding, target), capture(loaded, encoding, target=target).target_value
    assert_near(found.value, value, of=1.0)
    assert abs(found.gap) < 1e-5 * max(np.abs(found.heads).max(), np.abs(found.feed_forward).max(), 1.0)
