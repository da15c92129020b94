"""bert_core/run/capture.py: one text, once forward and at most once back."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import bert_core
from bert_core import (
    BertForPreTraining,
    BertForSequenceClassification,
    Encoding,
    LoadedModel,
    MaskPrediction,
    ModelRun,
    Target,
    capture,
)
from bert_core.run.inputs import head_mask_without
from tests.near import assert_near

GATES = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]])


@pytest.fixture
def encoding(tiny_loaded: LoadedModel) -> Encoding:
    return tiny_loaded.tokenizer.encode("the cat sat on the [MASK] .", "it was a big old house")


def word_target(loaded: LoadedModel, encoding: Encoding, word: str = "mat") -> Target:
    return Target("mlm", position=encoding.mask_positions[0], token_id=loaded.tokenizer.id_of(word))


def value_by_hand(model: BertForPreTraining, encoding: Encoding, target: Target, **arguments: Tensor) -> Tensor:
    """The target's value from a plain forward pass."""
    outputs = model(
        torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]), **arguments
    )
    if target.kind == "nsp":
        scores = outputs.seq_relationship_logits[0]
        return scores[0] - scores[1]
    return outputs.prediction_logits[0, target.position].log_softmax(-1)[target.token_id]


def backward_by_hand(
    loaded: LoadedModel, encoding: Encoding, target: Target, gates: np.ndarray | None
) -> tuple[float, list[Tensor], list[Tensor]]:
    """The value, the maps and their gradients as the modules keep them, on a copy with ordinary parameters."""
    model = copy.deepcopy(loaded.model).requires_grad_(True)
    for module in model.attention_modules:
        module.save_attention = True
    arguments = {} if gates is None else {"head_mask": torch.tensor(gates, dtype=torch.float32)}
    value = value_by_hand(model, encoding, target, **arguments)
    value.backward()
    maps = [module.get_attention_map() for module in model.attention_modules]
    gradients = [module.get_attn_gradients() for module in model.attention_modules]
    return value.item(), [m[0].detach() for m in maps], [g[0] for g in gradients]


@pytest.mark.parametrize("kind", ["mlm", "nsp"])
@pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
def test_it_equals_a_plain_backward_pass(
    tiny_loaded: LoadedModel, encoding: Encoding, kind: str, gates: np.ndarray | None
) -> None:
    """Maps, gradients and the value are those of loss.backward() on an ordinary model, for both targets."""
    target = Target("nsp") if kind == "nsp" else word_target(tiny_loaded, encoding)
    run = capture(tiny_loaded, encoding, target=target, head_mask=gates)
    value, maps, gradients = backward_by_hand(tiny_loaded, encoding, target, gates)
    assert run.gradient is not None and run.product is not None and run.target_value is not None
    assert_near(run.target_value, value)
    for layer in range(2):
        assert_near(run.attention[layer], maps[layer])
        largest = float(gradients[layer].abs().max())
        assert largest > 1e-4
        assert_near(run.gradient[layer], gradients[layer])
    np.testing.assert_array_equal(run.product, run.attention * run.gradient)
    assert_near(run.attention.sum(-1), 1)


@pytest.mark.parametrize("kind", ["mlm", "nsp"])
@pytest.mark.parametrize("gates", [np.ones((2, 4)), GATES], ids=["all at 1", "0, 1/2 and 1"])
def test_the_gradient_of_a_gate_is_a_slope(
    tiny_loaded: LoadedModel, encoding: Encoding, kind: str, gates: np.ndarray
) -> None:
    """gate_gradient is what the target changes when one gate is moved a little, in double precision."""
    target = Target("nsp") if kind == "nsp" else word_target(tiny_loaded, encoding)
    run = capture(tiny_loaded, encoding, target=target, head_mask=gates)
    model = copy.deepcopy(tiny_loaded.model).double()
    slopes = np.zeros((2, 4))
    step = 1e-5
    for layer, head in np.ndindex(2, 4):
        values = []
        for sign in (1, -1):
            moved = torch.tensor(gates)
            moved[layer, head] += sign * step
            values.append(value_by_hand(model, encoding, target, head_mask=moved).item())
        slopes[layer, head] = (values[0] - values[1]) / (2 * step)
    assert run.gate_gradient is not None
    assert_near(run.gate_gradient, slopes, 1e-4)  # central differences


def test_a_contrast_is_one_word_less_the_other(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Value and gradient are the differences of the two words' own; a contrast needs both words."""
    position, (one, other) = encoding.mask_positions[0], map(tiny_loaded.tokenizer.id_of, ("mat", "city"))
    run = capture(tiny_loaded, encoding, target=Target("contrast", position, one, against=other))
    apart = [capture(tiny_loaded, encoding, target=Target("mlm", position, word)) for word in (one, other)]
    assert run.target_value is not None and run.gradient is not None
    values = [one.target_value or 0 for one in apart]
    assert_near(run.target_value, values[0] - values[1], of=max(map(abs, values)))
    assert_near(run.gradient, apart[0].gradient - apart[1].gradient)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^a 'contrast' target needs a position, a token_id and a second token_id"):
        Target("contrast", position, one)


def test_importance_needs_no_second_pass(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Summed over queries and keys, attention x gradient is gate x gradient of the gate."""
    for gates in (None, GATES):
        run = capture(tiny_loaded, encoding, target=word_target(tiny_loaded, encoding), head_mask=gates)
        assert run.product is not None and run.gate_gradient is not None
        expected = run.head_mask * run.gate_gradient
        assert_near(run.product.sum((2, 3)), expected)


def test_predictions_are_those_of_the_model(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Probabilities sum to 1 and are the softmax of the head's scores; the best are listed, best first."""
    run = capture(tiny_loaded, encoding, top_k=7)
    outputs = tiny_loaded.model(
        torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids])
    )
    (prediction,) = run.predictions
    position = encoding.mask_positions[0]
    expected = outputs.prediction_logits[0, position].softmax(-1).numpy()
    assert prediction.position == position
    assert_near(prediction.probabilities, expected)
    assert_near(float(prediction.probabilities.sum()), 1)
    order = np.argsort(-prediction.probabilities, kind="stable")[:7]
    assert [token for token, _ in prediction.top] == order.tolist()
    assert [p for _, p in prediction.top] == prediction.probabilities[order].tolist()
    assert run.nsp is not None
    assert_near(run.nsp, outputs.seq_relationship_logits[0].softmax(-1)[0].item())


def test_positions_are_those_asked_for(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Any position can be asked for, in any order; the target's own position adds no entry."""
    target = word_target(tiny_loaded, encoding)
    run = capture(tiny_loaded, encoding, positions=[3, 1], target=target)
    assert [prediction.position for prediction in run.predictions] == [3, 1]
    masked = capture(tiny_loaded, encoding).prediction_at(encoding.mask_positions[0])
    assert masked is not None and target.token_id is not None and run.target_value is not None
    assert run.prediction_at(encoding.mask_positions[0]) is None
    assert_near(np.log(masked.probabilities[target.token_id]), run.target_value)
    assert capture(tiny_loaded, encoding, positions=[]).predictions == ()


def test_a_text_alone_has_no_next_sentence(tiny_loaded: LoadedModel) -> None:
    """Without a second sentence there is no NSP probability, and without a mask no prediction."""
    run = capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"))
    assert run.nsp is None
    assert run.predictions == ()
    assert run.target is run.target_value is run.gradient is run.gate_gradient is run.product is None


def test_more_answers_than_words_are_all_words(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """A top_k beyond the vocabulary gives the vocabulary."""
    (prediction,) = capture(tiny_loaded, encoding, top_k=10_000).predictions
    assert len(prediction.top) == tiny_loaded.config.vocab_size


def test_rank_counts_from_one() -> None:
    """The likeliest piece has rank 1, and equals share the better rank."""
    prediction = MaskPrediction(0, (), np.array([0.1, 0.4, 0.2, 0.2, 0.1], np.float32))
    assert [prediction.rank_of(token) for token in range(5)] == [4, 1, 2, 2, 4]


@pytest.mark.parametrize(
    "off", [[(0, 1)], [(1, 0), (1, 3)], [(layer, head) for layer in range(2) for head in range(4)]]
)
def test_a_head_that_is_off_is_a_head_whose_output_is_not_read(
    tiny_loaded: LoadedModel, encoding: Encoding, off: list[tuple[int, int]]
) -> None:
    """Predictions change, and are those of a model whose output projection has zeros in the head's columns."""
    gates = head_mask_without(tiny_loaded.config, off)
    cut = copy.deepcopy(tiny_loaded.model)
    width = tiny_loaded.config.attention_head_size
    for layer, head in off:
        cut.bert.encoder.layer[layer].attention.output.dense.weight[:, head * width : (head + 1) * width] = 0
    masked = capture(tiny_loaded, encoding, head_mask=gates)
    expected = capture(dataclasses.replace(tiny_loaded, model=cut), encoding)
    plain = capture(tiny_loaded, encoding)
    (one,), (other,), (before,) = masked.predictions, expected.predictions, plain.predictions
    assert_near(one.probabilities, other.probabilities)
    assert np.abs(one.probabilities - before.probabilities).max() > 1e-3
    assert masked.nsp is not None and expected.nsp is not None and plain.nsp is not None
    assert abs(masked.nsp - expected.nsp) < 1e-5 < abs(masked.nsp - plain.nsp)
    np.testing.assert_array_equal(masked.head_mask, gates)
    assert_near(masked.attention, expected.attention)


def test_gates_are_0_for_the_heads_named_and_1_for_all_others(tiny_loaded: LoadedModel) -> None:
    """Their sum is the number of heads that are left; a head that the model never had is named."""
    gates = head_mask_without(tiny_loaded.config, [(1, 3), (0, 2), (1, 3)])
    assert gates.shape == (2, 4) and gates.dtype == np.float32 and gates.sum() == 6 and not gates[[0, 1], [2, 3]].any()
    for head, sentence in (((2, 0), "layer 2 does not exist"), ((0, -1), "head -1 does not exist in layer 0")):
        with pytest.raises(ValueError, match=sentence):
            head_mask_without(tiny_loaded.config, [head])


def arrays_of(run: ModelRun) -> list[np.ndarray]:
    own = [getattr(run, entry.name) for entry in dataclasses.fields(run)]
    return [a for a in own if isinstance(a, np.ndarray)] + [p.probabilities for p in run.predictions]


def test_a_record_cannot_be_changed(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Every array refuses to be written, is nobody's view, and the record and its targets are frozen."""
    gates = GATES.copy()
    run = capture(tiny_loaded, encoding, target=word_target(tiny_loaded, encoding), head_mask=gates)
    arrays = arrays_of(run)
    assert len(arrays) == 5
    for array in arrays:
        assert array.base is None
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.nsp = 1.0  # type: ignore[misc]
    gates[0, 0] = 0.25
    assert run.head_mask[0, 0] == 1.0
    assert run.nbytes == sum(array.nbytes for array in arrays)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"positions": [16]}, "position 16 does not exist: this text has positions 0 to 15"),
        ({"positions": [-1]}, "position -1 does not exist: this text has positions 0 to 15"),
        ({"target": Target("mlm", 99, 3)}, "position 99 does not exist: this text has positions 0 to 15"),
        ({"target": Target("mlm", 3, 155)}, "token 155 does not exist: the vocabulary has 0 to 154"),
        ({"target": Target("contrast", 3, 4, against=155)}, "token 155 does not exist: the vocabulary has 0 to 154"),
        ({"head_mask": np.ones((3, 4))}, "head_mask has the shape (3, 4): this model has 2 layers of 4 heads"),
        (
            {"head_mask": np.full((2, 4), 1.5)},
            "head_mask holds a gate outside 0 to 1: 0 switches a head off and 1 leaves it on",
        ),
        (
            {"head_mask": np.full((2, 4), np.nan)},
            "head_mask holds a gate outside 0 to 1: 0 switches a head off and 1 leaves it on",
        ),
    ],
)
def test_what_does_not_exist_is_one_clear_sentence(
    tiny_loaded: LoadedModel, encoding: Encoding, arguments: dict[str, object], sentence: str
) -> None:
    """What was given and what there is."""
    with pytest.raises(ValueError) as caught:
        capture(tiny_loaded, encoding, **arguments)  # type: ignore[arg-type]
    assert str(caught.value) == sentence


def test_a_head_is_named_when_it_does_not_exist() -> None:
    """Layers and heads are counted from zero, and the sentence says to where."""
    from bert_core.config import check_head_number

    check_head_number(1, 3, layers=2, heads=4)
    with pytest.raises(ValueError, match=r"^layer 2 does not exist: this model has layers 0 to 1$"):
        check_head_number(2, 0, layers=2, heads=4)
    with pytest.raises(ValueError, match=r"^head 14 does not exist in layer 1: this model has heads 0 to 3$"):
        check_head_number(1, 14, layers=2, heads=4)


def test_a_target_needs_what_it_is_about(tiny_loaded: LoadedModel) -> None:
    """A next-sentence target needs a pair, a word target its position and piece, and the kind must be known."""
    with pytest.raises(ValueError, match=r"needs two texts: add a second sentence$"):
        capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"), target=Target("nsp"))
    with pytest.raises(ValueError, match=r"^an 'mlm' target needs a position and a token_id$"):
        Target("mlm", position=3)
    with pytest.raises(ValueError, match=r"^the target kind 'sop' is unknown: it must be one of mlm, con"):
        Target("sop")
    for kind in ("joint", "loss"):
        with pytest.raises(ValueError, match=f"^a '{kind}' target needs the masked pieces and their tokens$"):
            Target(kind)
        with pytest.raises(ValueError, match=f"^a '{kind}' target has two pieces at one position"):
            Target(kind, pieces=((2, 30), (2, 31)))


def test_a_text_longer_than_the_model_is_refused(tiny_loaded: LoadedModel) -> None:
    """An encoding that was not cut to the model's length says so instead of failing inside."""
    long = tiny_loaded.tokenizer.encode("cat " * 600, max_length=600)
    with pytest.raises(ValueError, match="the sequence has 600 tokens: this model takes at most 512"):
        capture(tiny_loaded, long)


def without(folder: Path, to: Path, part: str) -> LoadedModel:
    """The tiny checkpoint with a part of its weights left out."""
    to.mkdir()
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (to / name).write_bytes((folder / name).read_bytes())
    weights = load_file(folder / "model.safetensors")
    save_file({name: w for name, w in weights.items() if not name.startswith(part)}, to / "model.safetensors")
    return bert_core.load(str(to), device="cpu")


def test_an_untrained_head_is_never_asked(tiny_model_folder: Path, tmp_path: Path, encoding: Encoding) -> None:
    """Without a trained head there is no prediction and no target of that kind, and the rest works."""
    no_words = without(tiny_model_folder, tmp_path / "no-words", "cls.predictions.")
    run = capture(no_words, encoding, positions=[2], target=Target("nsp"))
    assert run.predictions == () and run.nsp is not None
    with pytest.raises(ValueError, match=r"no-words has no trained masked-word head: choose another target$"):
        capture(no_words, encoding, target=Target("mlm", 2, 30))
    no_sentences = without(tiny_model_folder, tmp_path / "no-sentences", "cls.seq_relationship.")
    run = capture(no_sentences, encoding, target=Target("mlm", 2, 30))
    assert run.nsp is None and len(run.predictions) == 1
    with pytest.raises(ValueError, match=r"no-sentences has no trained next-sentence head: choose another target$"):
        capture(no_sentences, encoding, target=Target("nsp"))


# ---------------------------------------------------------------------------- classes


@pytest.fixture(scope="module")
def classifier(tiny_classifier_folder: Path) -> LoadedModel:
    return bert_core.load(str(tiny_classifier_folder), device="cpu")


def test_classes_are_those_of_the_classifier(classifier: LoadedModel, encoding: Encoding) -> None:
    """Logits are those of an ordinary forward pass, probabilities their softmax, the order the likeliest first."""
    run = capture(classifier, encoding)
    assert run.classes is not None and run.classes.probabilities is not None
    inputs = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    logits = classifier.task_models["classifier"](inputs[0], token_type_ids=inputs[1]).logits[0]
    assert_near(run.classes.logits, logits)
    assert_near(run.classes.probabilities, logits.softmax(-1))
    assert run.classes.labels == classifier.labels and run.classes.exclusive
    assert list(run.classes.order) == sorted(range(3), key=lambda n: -float(logits[n]))
    assert run.nsp is not None and run.predictions, "the other heads answer as well"
    for array in (run.classes.logits, run.classes.probabilities):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    assert run.nbytes == sum(a.nbytes for a in (*arrays_of(run), run.classes.logits, run.classes.probabilities))


@pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
def test_a_class_is_a_target(classifier: LoadedModel, encoding: Encoding, gates: np.ndarray | None) -> None:
    """Its value is the logit of the class, and the gradients are those of an ordinary backward pass from it."""
    run = capture(classifier, encoding, target=Target("class", label=2), head_mask=gates)
    assert run.gradient is not None and run.classes is not None and run.target_value is not None
    model = copy.deepcopy(classifier.task_models["classifier"])
    assert model is not None
    model.requires_grad_(True)
    for module in model.attention_modules:
        module.save_attention = True
    arguments = {} if gates is None else {"head_mask": torch.tensor(gates, dtype=torch.float32)}
    inputs = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    logit = model(inputs[0], token_type_ids=inputs[1], **arguments).logits[0, 2]
    logit.backward()
    assert run.target_value == run.classes.logits[2]
    assert_near(run.target_value, logit.item())
    for layer, module in enumerate(model.attention_modules):
        expected = module.get_attn_gradients()[0]
        largest = float(expected.abs().max())
        assert largest > 1e-4
        assert_near(run.gradient[layer], expected)
    assert not np.array_equal(run.gradient, capture(classifier, encoding, target=Target("class", label=0)).gradient)


@pytest.mark.parametrize(
    ("extra", "exclusive", "has_probabilities"),
    [
        ({"problem_type": "single_label_classification"}, True, True),
        ({"problem_type": "multi_label_classification"}, False, True),
        ({"problem_type": "regression"}, True, False),
        ({"num_labels": 1}, True, False),
    ],
)
def test_outputs_mean_what_the_file_says(
    classifier: LoadedModel, encoding: Encoding, extra: dict[str, object], exclusive: bool, has_probabilities: bool
) -> None:
    """Classes that do not exclude each other have a probability each; a regression has none."""
    config = classifier.config.replace(extra={"num_labels": 3, **extra})
    model = BertForSequenceClassification(config, classifier.model.bert).eval()
    origin = copy.copy(classifier.model)
    origin.config = config
    run = capture(dataclasses.replace(classifier, model=origin, task_models={"classifier": model}), encoding)
    assert run.classes is not None and run.classes.exclusive == exclusive
    assert (run.classes.probabilities is not None) == has_probabilities
    if not exclusive and run.classes.probabilities is not None:
        np.testing.assert_allclose(run.classes.probabilities, 1 / (1 + np.exp(-run.classes.logits)), rtol=1e-5)


def test_a_class_that_is_not_there_is_one_sentence(
    classifier: LoadedModel, tiny_loaded: LoadedModel, encoding: Encoding
) -> None:
    """A number beyond the classes, a model without a classifier, and a target without its class."""
    with pytest.raises(ValueError, match=r"^class 3 does not exist: this model has 0 to 2$"):
        capture(classifier, encoding, target=Target("class", label=3))
    with pytest.raises(ValueError, match=r"has no trained classifier: choose another target$"):
        capture(tiny_loaded, encoding, target=Target("class", label=0))
    with pytest.raises(ValueError, match=r"^a 'class' target needs a label$"):
        Target("class")
    assert capture(tiny_loaded, encoding).classes is None


def test_what_is_not_asked_for_is_not_computed(tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention and gradient are the arrays of the record themselves; their product is made for whoever asks."""
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    run = capture(tiny_loaded, encoding, target=Target("mlm", 3, 5))
    with monkeypatch.context() as patched:
        patched.setattr(ModelRun, "product", property(lambda self: pytest.fail("nobody asked for the product")))
        assert run.select_map("attention") is run.attention and run.select_map("gradient") is run.gradient
    np.testing.assert_array_equal(run.select_map("product"), run.gradient * run.attention)


def test_several_texts_at_once_are_each_as_alone(tiny_classifier_folder: Path) -> None:
    """Of several lengths, with and without gaps and second sentences, heads on or off: every record, up to rounding."""
    loaded = bert_core.load(str(tiny_classifier_folder), device="cpu")
    texts = [
        ("the cat [MASK] on the mat", "it was [MASK] red"),
        ("a dog", None),
        ("the king of france had an old house by the river", "[MASK] dog ran"),
        ("the cat sat", "it was red and blue"),
    ]
    encodings = [loaded.tokenizer.encode(*text) for text in texts]
    off = bert_core.head_mask_without(loaded.config, [(0, 1), (1, 2)])
    for mask in (None, off):
        together = bert_core.captures(loaded, encodings, head_mask=mask, top_k=5)
        for encoding, run in zip(encodings, together, strict=True):
            alone = bert_core.capture(loaded, encoding, head_mask=mask, top_k=5)
            assert run.encoding is encoding and run.gradient is None and run.target is None
            assert run.attention.shape == alone.attention.shape
            assert_near(run.attention, alone.attention)
            assert (run.head_mask == alone.head_mask).all()
            assert (run.nsp is None) == (alone.nsp is None)
            assert_near(run.nsp or 0.0, alone.nsp or 0.0, of=1.0)
            assert run.classes is not None and alone.classes is not None
            assert_near(run.classes.logits, alone.classes.logits)
            assert [one.position for one in run.predictions] == [one.position for one in alone.predictions]
            for one, other in zip(run.predictions, alone.predictions, strict=True):
                assert_near(one.probabilities, other.probabilities)
    with pytest.raises(bert_core.Refused, match="encodings is empty"):
        bert_core.captures(loaded, [])


@pytest.mark.parametrize("gates", [None, GATES])
@pytest.mark.parametrize("layers", [None, [1], [1, 0]])
@pytest.mark.parametrize("token_range", [None, (2, 8), (6, 7)])
def test_kept_parts_are_those_of_the_whole_maps(
    tiny_loaded: LoadedModel,
    encoding: Encoding,
    gates: np.ndarray | None,
    layers: list[int] | None,
    token_range: tuple[int, int] | None,
) -> None:
    """Maps, gradients and norms of some layers and tokens; all other results do not change."""
    target = word_target(tiny_loaded, encoding)
    whole = capture(tiny_loaded, encoding, target=target, head_mask=gates, norms=True)
    part = capture(
        tiny_loaded, encoding, target=target, head_mask=gates, norms=True, layers=layers, token_range=token_range
    )
    rows, numbers = slice(*token_range) if token_range else slice(None), sorted(layers or (0, 1))
    for kind in ("attention", "gradient", "product", "brought"):
        assert_near(part.select_map(kind), whole.select_map(kind)[numbers][..., rows, rows], 1e-5)
    assert part.norms is not None and whole.norms is not None
    assert_near(part.norms, whole.norms[numbers][..., rows], 1e-6)
    assert_near(part.gate_gradient, whole.gate_gradient, 1e-5)
    assert part.target_value == pytest.approx(whole.target_value, abs=1e-5)
    assert_near(part.predictions[0].probabilities, whole.predictions[0].probabilities, 1e-5)
    assert (part.layers, part.token_range) == (None if layers is None else tuple(numbers), token_range)


def test_parts_of_a_pruned_and_edited_model(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Pruned heads are NaN; maps that are computed anyway, for an edge that leaves a gap, are cut to the range."""
    loaded = bert_core.pruned(tiny_loaded, [(0, 1), (1, 0), (1, 1), (1, 2), (1, 3)])
    loaded = bert_core.edited(loaded, [bert_core.AttentionKnockout((3,), (4,), (0,), (2,), renormalised=False)])
    target = word_target(loaded, encoding)
    whole = capture(loaded, encoding, target=target)
    part = capture(loaded, encoding, target=target, token_range=(3, 7))
    assert np.isnan(part.attention[0, 1]).all() and np.isnan(part.attention[1]).all()
    assert part.attention[0, 2, 0, 1] == 0
    for kind in ("attention", "gradient"):
        assert_near(part.select_map(kind)[0, [0, 2, 3]], whole.select_map(kind)[0, [0, 2, 3], 3:7, 3:7], 1e-5)
    np.testing.assert_array_equal(np.isnan(part.gate_gradient), np.isnan(whole.gate_gradient))
    assert_near(np.nan_to_num(part.gate_gradient), np.nan_to_num(whole.gate_gradient), 1e-5)


def test_no_map_is_computed_for_other_layers_and_tokens(
    tiny_loaded: LoadedModel, encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The softmax over whole maps is not reached with a range, and only once for a layer."""
    sizes: list[int] = []
    softmax = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda x, *a, **k: (sizes.append(x.shape[-2]), softmax(x, *a, **k))[1])
    capture(tiny_loaded, encoding, positions=(), token_range=(0, 4))
    assert len(encoding) not in sizes
    capture(tiny_loaded, encoding, positions=(), layers=[1])
    assert sizes.count(len(encoding)) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"layers": []}, "layers is empty: give at least one layer, or None for all"),
        ({"layers": [2]}, "layer 2 does not exist: this model has layers 0 to 1"),
        ({"layers": "all"}, "layers is 'all': it must be a list of their numbers"),
        (
            {"token_range": (3, 3)},
            "token_range is (3, 3): it must be (start, stop) with start < stop, and this text has 16 tokens",
        ),
        (
            {"token_range": (0, 17)},
            "token_range is (0, 17): it must be (start, stop) with start < stop, and this text has 16 tokens",
        ),
        ({"token_range": (-1, 2)}, "an end of token_range is -1: it must be a whole number of at least 0"),
    ],
)
def test_an_impossible_part_is_one_sentence(
    tiny_loaded: LoadedModel, encoding: Encoding, arguments: dict, sentence: str
) -> None:
    with pytest.raises(bert_core.Refused) as refusal:
        capture(tiny_loaded, encoding, **arguments)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("token_range", [None, (2, 8)])
def test_gates_have_gradients_when_the_kept_layers_have_no_heads(
    tiny_loaded: LoadedModel, encoding: Encoding, token_range: tuple[int, int] | None
) -> None:
    """The gates of the other layers do not depend on which maps are kept."""
    loaded = bert_core.pruned(tiny_loaded, [(1, head) for head in range(4)])
    target = word_target(loaded, encoding)
    whole = capture(loaded, encoding, target=target)
    part = capture(loaded, encoding, target=target, layers=[1], token_range=token_range)
    assert whole.gate_gradient.shape == part.gate_gradient.shape == (2, 4)
    assert np.isnan(part.gate_gradient[1]).all() and np.isnan(part.attention).all()
    assert_near(part.gate_gradient[0], whole.gate_gradient[0], 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_arrays_of_a_model_in_another_dtype_are_float32(
    tiny_loaded: LoadedModel, encoding: Encoding, dtype: torch.dtype
) -> None:
    """Maps, gradients and norms are float32, and near those of the model in float32; NumPy has no bfloat16."""
    converted = dataclasses.replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).to(dtype))
    target = word_target(tiny_loaded, encoding)
    for gates in (None, GATES):
        run, expected = (
            capture(model, encoding, target=target, head_mask=gates, norms=True) for model in (converted, tiny_loaded)
        )
        for name in ("attention", "gradient", "gate_gradient", "norms"):
            values = getattr(run, name)
            assert values.dtype == np.float32, name
            assert_near(values, getattr(expected, name), 0.1 if dtype.itemsize == 2 else 1e-4)
