"""Steering: a vector added to the hidden states, as hooks of transformers add it; its direction and its controls."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import bert_core
from bert_core import (
    AddedVector,
    AttentionKnockout,
    Encoding,
    LoadedModel,
    Refused,
    ScaledNeuron,
    Target,
    capture,
    edited,
    make_patch,
    steer,
)
from bert_core.run.stack import PaddedTexts, encoder_layers, run_layers
from bert_core.run.states import word_states
from tests.families import FAMILIES, reference_of, save_family
from tests.near import assert_near

TEXT = "the cat [MASK] on the mat"
TARGET = Target("mlm", 3, 70)
RNG = np.random.default_rng(0)
LABELS = np.arange(400) % 2
STATES = RNG.standard_normal((400, 12)) @ RNG.standard_normal((12, 12)) + LABELS[:, None] * RNG.standard_normal(12)


@pytest.fixture
def text(tiny_loaded: LoadedModel) -> Encoding:
    return tiny_loaded.tokenizer.encode(TEXT)


def vector_of(loaded: LoadedModel, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(loaded.config.hidden_size).astype(np.float32)


# ---------------------------------------------------------------------------- directions


def test_the_difference_of_means_by_hand() -> None:
    """Two words of each label in a plane: (0, 0), (0, 2) and (4, 1), (4, 3)."""
    states = np.array([[0.0, 0.0], [4.0, 1.0], [0.0, 2.0], [4.0, 3.0]])
    assert bert_core.steering_vector(states, np.array([0, 1, 0, 1])).tolist() == [4.0, 1.0]
    assert bert_core.steering_vector(states, np.array([1, 0, 1, 0])).tolist() == [-4.0, -1.0]


def test_directions_are_those_of_scikit_learn_and_of_the_eraser() -> None:
    """The probe is its logistic regression, the discriminant its linear discriminant; LEACE erases the means."""
    vectors = {name: bert_core.steering_vector(STATES, LABELS, name) for name in ("means", "probe", "discriminant")}
    units = {name: vector / np.linalg.norm(vector) for name, vector in vectors.items()}
    scale = STATES.std(0)
    # A penalty on each of two opposite weight vectors is half as strong as one on their difference.
    logistic = LogisticRegression(C=2 / 10, tol=1e-10, max_iter=10_000).fit((STATES - STATES.mean(0)) / scale, LABELS)
    discriminant = LinearDiscriminantAnalysis(solver="lsqr").fit(STATES, LABELS)
    for name, axis in (("probe", logistic.coef_[0] / scale), ("discriminant", discriminant.coef_[0])):
        assert units[name] @ axis / np.linalg.norm(axis) == pytest.approx(1, abs=1e-4)
    eraser = bert_core.leace(STATES, LABELS)
    assert eraser.rank == 1
    assert_near(np.abs(units["means"] @ eraser.directions[0]), np.linalg.norm(eraser.directions[0]), 1e-9)
    assert_near(np.abs(units["discriminant"] @ eraser.readout[:, 0]), np.linalg.norm(eraser.readout[:, 0]), 1e-9)


@pytest.mark.parametrize("direction", ["means", "probe", "discriminant"])
def test_a_factor_of_1_moves_one_mean_to_the_other_along_the_direction(direction: str) -> None:
    vector = bert_core.steering_vector(STATES, LABELS, direction)
    unit = vector / np.linalg.norm(vector)
    first, second = (STATES[label == LABELS].mean(0) @ unit for label in (0, 1))
    assert_near(first + vector @ unit, second, 1e-9, of=np.abs(STATES).max())
    assert second > first


def test_random_vectors_have_the_norm_and_no_common_direction() -> None:
    vector = np.array([3.0, 0, 4, *[0] * 61])
    drawn = bert_core.random_vectors(vector, 500, seed=3)
    assert_near(np.linalg.norm(drawn, axis=1), np.full(500, 5.0), 1e-12)
    assert_near(drawn.mean(0), np.zeros(64), 0.03, of=5.0)
    cosines = drawn @ vector / 25
    assert cosines.std() == pytest.approx(1 / 8, rel=0.15)  # that of equally probable directions: 1 / sqrt(64)
    assert (drawn == bert_core.random_vectors(vector, 500, seed=3)).all()
    assert (drawn != bert_core.random_vectors(vector, 500, seed=4)).any()


# ---------------------------------------------------------------------------- the edit


@contextmanager
def hooked(theirs: Any, depth: int, added: Tensor) -> Iterator[None]:
    """A model of transformers whose states at a depth have something added, by torch's own hooks.

    The states enter the layer above the depth; at the last depth they are what the encoder returns.
    """
    base = theirs.base_model
    layers, calls = layers_of(theirs), [0]

    def before(_module: object, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        calls[0] += 1
        if len(set(map(id, layers))) == 1 and calls[0] != depth + 1:  # one module that is called for every layer
            return inputs, named
        if inputs:
            return (inputs[0] + added, *inputs[1:]), named
        return inputs, {**named, "hidden_states": named["hidden_states"] + added}

    def after(_module: object, _inputs: object, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state + added
        return output

    if depth == len(layers):
        handle = base.register_forward_hook(after)
    else:
        handle = layers[depth].register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def layers_of(theirs: Any) -> list[Any]:
    """The layers in the order in which they are called."""
    base = theirs.base_model
    if hasattr(base, "layers"):
        return list(base.layers)
    encoder = base.transformer if hasattr(base, "transformer") else base.encoder
    if hasattr(encoder, "albert_layer_groups"):
        return [encoder.albert_layer_groups[0].albert_layers[0]] * theirs.config.num_hidden_layers
    return list(encoder.layer)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_vector_is_added_where_hooks_of_transformers_add_it(family: str, tmp_path: Path) -> None:
    """In every family at every depth, at all positions and at two of them."""
    loaded = bert_core.load(save_family(family, tmp_path), device="cpu")
    theirs = reference_of(family, tmp_path)
    encoding = loaded.tokenizer.encode("The old man [MASK] along the river.")
    ids, vector = torch.tensor([encoding.input_ids]), vector_of(loaded)
    with torch.no_grad():
        original = theirs(ids).logits[0].softmax(-1).numpy()
    (gap,) = encoding.mask_positions
    for depth in range(loaded.config.num_hidden_layers + 1):
        for positions in (None, (1, gap)):
            added = torch.zeros(1, len(encoding), len(vector))
            added[0, slice(None) if positions is None else list(positions)] = 0.5 * torch.from_numpy(vector)
            with torch.no_grad(), hooked(theirs, depth, added):
                expected = theirs(ids).logits[0].softmax(-1).numpy()
            run = capture(edited(loaded, [AddedVector(depth, vector, 0.5, positions)]), encoding)
            assert_near(run.predictions[0].probabilities, expected[gap], 1e-4)
            assert np.abs(expected[gap] - original[gap]).max() > 1e-4


def test_a_factor_of_0_changes_no_bit(tiny_loaded: LoadedModel, text: Encoding) -> None:
    before = capture(tiny_loaded, text, target=TARGET)
    for depth in range(3):
        model = edited(tiny_loaded, [AddedVector(depth, vector_of(tiny_loaded), 0.0, (1, 2))])
        assert replace(capture(model, text, target=TARGET), edits=()) == before
    with_vector = edited(tiny_loaded, [AddedVector(1, vector_of(tiny_loaded))])
    assert capture(with_vector, text, target=TARGET).target_value != before.target_value
    assert capture(bert_core.unedited(with_vector), text, target=TARGET) == before


def test_vectors_add_up_and_join_other_edits(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """Two vectors are their sum; a patch of the same states replaces what was added before, not what comes after."""
    first, second = vector_of(tiny_loaded, 1), vector_of(tiny_loaded, 2)
    others = (AttentionKnockout((3,), (1,)), ScaledNeuron(1, 5, 2.0))

    def value(*edits: Any) -> float:
        value = capture(edited(tiny_loaded, edits), text, target=TARGET).target_value
        assert value is not None
        return value

    both = value(*others, AddedVector(1, first), AddedVector(1, second, 2.0))
    assert_near(both, value(*others, AddedVector(1, first + 2 * second)))
    assert_near(value(AddedVector(2, first), AddedVector(2, first, -1.0)), value(), 1e-4)
    patched = make_patch(tiny_loaded, tiny_loaded.tokenizer.encode("a dog [MASK] on the mat"), text, "state", 1)
    vector = AddedVector(1, first, positions=(2, 3))
    assert value(vector, patched) == value(patched)
    assert abs(value(patched, vector) - value(patched)) > 1e-3


def test_gradients_and_padding(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """The gradient is that of the changed pass, and padding changes nothing for a text in a batch."""
    model = replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).double())
    vector = vector_of(tiny_loaded)
    changed = edited(model, [AddedVector(1, vector, 0.7, (2, 3))])
    gates, step = np.ones((2, 4), np.float32), 0.5**10
    gradient = capture(changed, text, target=TARGET).gate_gradient
    assert gradient is not None
    values = []
    for size in (1 - step, 1):
        gates[1, 2] = size
        values.append(capture(changed, text, target=TARGET, head_mask=gates).target_value)
    assert_near((values[1] - values[0]) / step, gradient[1, 2], 0.02, of=np.abs(gradient).max())
    several = edited(tiny_loaded, [AddedVector(1, vector, positions=(2,)), AddedVector(0, vector)])
    long = tiny_loaded.tokenizer.encode("the old king of england went to the city by the river")
    batch = PaddedTexts.from_encodings(several, [text, long])
    states = run_layers(encoder_layers(several), batch.embeddings, mask=batch.additive_mask)
    alone = several.model.bert(torch.tensor([text.input_ids])).last_hidden_state
    assert_near(states[0, : len(text)].detach(), alone[0].detach())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_number_types(tiny_loaded: LoadedModel, text: Encoding, dtype: torch.dtype) -> None:
    """The states keep their type, and the vector is rounded to it."""
    model = replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).to(dtype))
    vector = vector_of(tiny_loaded)
    states = edited(model, [AddedVector(2, vector)]).model.bert(torch.tensor([text.input_ids])).last_hidden_state
    before = model.model.bert(torch.tensor([text.input_ids])).last_hidden_state
    assert states.dtype == dtype
    within = torch.finfo(dtype).eps * 8 if dtype == torch.float16 else 1e-7
    assert_near((states - before)[0].detach().double(), np.tile(vector.astype(float), (len(text), 1)), within)


def test_equal_vectors_are_equal_edits() -> None:
    """By value, so that records can be compared, and the representation makes the same edit again."""
    edit = AddedVector(2, [0.5, -1.25, 1e-7], 3, (4, 2, 4))
    assert edit.positions == (2, 4) and not edit.vector.flags.writeable
    assert edit == AddedVector(2, np.array([0.5, -1.25, 1e-7]), 3.0, (2, 4)) and hash(edit) == hash(
        AddedVector(2, np.array([0.5, -1.25, 1e-7]), 3.0, (2, 4))
    )
    assert edit != AddedVector(2, [0.5, -1.25, 1e-7], 3.0) and edit != AddedVector(1, [0.5, -1.25, 1e-7], 3, (2, 4))
    assert eval(f"bert_core.{edit!r}") == edit


# ---------------------------------------------------------------------------- dose and response


def test_every_value_is_that_of_a_model_with_the_vector(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """Of the vector and of each random one; and the divergences and tokens are those of its predictions elsewhere."""
    vector, shares = vector_of(tiny_loaded) / 3, []  # type: ignore[var-annotated]
    for depth in range(3):
        steering = steer(
            tiny_loaded, text, TARGET, vector, depth, factors=(1, -2, 0), draws=2, seed=5, batch_tokens=20,
            report=lambda share, _: shares.append(share),
        )  # fmt: skip
        assert steering.factors.tolist() == [-2, 0, 1] and shares[-1] == 1 and len(shares) > 1
        assert steering.positions == (1, 2, 3, 4, 5, 6) and steering.other_positions == (1, 2, 4, 5, 6)
        drawn = bert_core.random_vectors(vector, 2, 5)
        for row, added in enumerate((vector, *drawn)):
            values = steering.values if row == 0 else steering.random_values[row - 1]
            divergences = steering.divergences if row == 0 else steering.random_divergences[row - 1]
            for column, factor in enumerate(steering.factors):
                model = edited(tiny_loaded, [AddedVector(depth, added, factor, steering.positions)])
                run = capture(model, text, target=TARGET, positions=steering.other_positions)
                base = capture(tiny_loaded, text, target=TARGET, positions=steering.other_positions)
                assert_near(values[column], run.target_value, 1e-5, of=10)
                for place in range(5):
                    before, after = (one.predictions[place].probabilities.astype(float) for one in (base, run))
                    assert_near(divergences[column, place], (before * np.log(before / after)).sum(), 1e-4, of=1)
                    if row == 0:
                        assert steering.tokens[column, place] == after.argmax()
                        assert steering.base_tokens[place] == before.argmax()


def test_nothing_is_added_at_a_factor_of_0(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """The value is the original one to the last bit, and no prediction differs."""
    steering = steer(tiny_loaded, text, TARGET, vector_of(tiny_loaded), 1, factors=[0, 1], draws=3)
    assert steering.base_value == capture(tiny_loaded, text, target=TARGET).target_value
    assert steering.values[0] == steering.base_value and (steering.random_values[:, 0] == steering.base_value).all()
    assert not steering.divergences[0].any() and not steering.random_divergences[:, 0].any()
    assert (steering.tokens[0] == steering.base_tokens).all()
    assert (steering.divergences[1] > 0).all() and steering.p_values[0] == 1


def test_the_effect_is_linear_where_nothing_follows_but_a_linear_map(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """At the last depth a classifier's logit rises by the factor times the product of its weights and the vector."""
    row = torch.nn.Linear(32, 2).weight[1].detach()
    target = Target("custom", name="linear", positions=(3,), function=lambda outputs: (outputs.states @ row)[:, 0])
    vector = row.numpy()
    factors = (-2, -1, 0.5, 3)
    steering = steer(tiny_loaded, text, target, vector, 2, factors=factors, draws=50)
    assert_near(steering.effects, np.array(factors) * (vector @ vector), 1e-4)
    # No vector of the same norm has a larger product with the weights (Cauchy-Schwarz).
    assert (steering.p_values == 1 / 51).all() and (np.diff(steering.values) > 0).all()
    assert_near(steering.random_effects[:, 1], steering.random_effects[:, 2] * -2, 1e-4, of=vector @ vector)
    elsewhere = steer(tiny_loaded, text, target, vector, 2, factors=factors, positions=[1, 2], draws=2)
    assert not elsewhere.effects.any()


def test_bands_and_shares_by_hand(text: Encoding) -> None:
    """Ten random values around a base value of 1, and two other positions."""
    random_values = 1 + np.arange(-4.5, 5.5)[:, None] * np.array([0.0, 1.0])
    steering = bert_core.Steering(
        text, TARGET, 1, (1,), 2.0, np.array([0.0, 1.0]), 1.0, np.array([1.0, 5.0]), random_values, (1, 2),
        np.array([[0.0, 0.0], [1.0, 3.0]]), np.arange(1, 11)[:, None, None] * np.array([[0.0, 0.0], [0.0, 0.5]]),
        np.array([7, 8]), np.array([[7, 8], [7, 9]]),
    )  # fmt: skip
    assert steering.effects.tolist() == [0, 4]
    assert steering.random_counts.tolist() == [10, 2]  # -4.5 and 4.5 are as large as 4
    assert steering.p_values.tolist() == [1, 3 / 11]
    assert steering.table(dose=1).iloc[0].to_dict() == {
        "dose": 1, "factor": 1.0, "value": 5.0, "effect": 4.0, "random_low": -3.5, "random_mean": 1.0,
        "random_high": 5.5, "p_value": 3 / 11, "divergence": 2.0, "random_divergence_low": 0.25,
        "random_divergence_mean": 1.375, "random_divergence_high": 2.5,
    }  # fmt: skip
    assert list(steering.table("position_divergence", dose=1)["token"]) == ["the", "cat"]


def test_a_vector_without_effect_is_outside_as_often_as_the_record_says(text: Encoding) -> None:
    """A vector like the 20 random ones: p <= 0.05 in 1 of 21 cases, outside their range in 2 of 21."""
    cases = 20_000
    values = np.random.default_rng(0).standard_normal((21, cases))  # each factor is one case
    none = np.zeros((cases, 0))
    steering = bert_core.Steering(
        text, TARGET, 1, (1,), 1.0, np.arange(cases, dtype=float), 0.0, values[0], values[1:], (), none,
        np.zeros((20, *none.shape)), np.zeros(0, np.int64), none.astype(np.int64),
    )  # fmt: skip
    within = 4 * np.sqrt(0.1 / cases)  # four standard errors
    assert (steering.p_values <= 0.05).mean() == pytest.approx(1 / 21, abs=within)
    assert (steering.p_values <= 0.5).mean() == pytest.approx(10 / 21, abs=2 * within)
    outside = (steering.values < steering.random_low) | (steering.values > steering.random_high)
    assert outside.mean() == pytest.approx(2 / 21, abs=within)


def test_a_model_without_a_word_head_predicts_nothing_elsewhere(tmp_path: Path) -> None:
    loaded = bert_core.load(save_family("electra", tmp_path, "ForSequenceClassification"), device="cpu")
    encoding = loaded.tokenizer.encode("The old man sat.")
    steering = steer(loaded, encoding, Target("class", label=1), vector_of(loaded), 1, factors=[1], draws=2)
    assert steering.other_positions == () and steering.divergences.shape == (1, 0)
    assert np.isnan([*steering.mean_divergences, *steering.random_divergence_high]).all() and steering.effects[0] != 0


def test_tokens_are_those_of_the_vector_in_every_batch_size(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """A batch ends within the vector's own copies, after them, or not before the last random vector."""
    expected = steer(tiny_loaded, text, TARGET, vector_of(tiny_loaded), 1, factors=[-2, 0, 1, 3], draws=4)
    assert (expected.tokens != expected.base_tokens).any()
    for copies in (1, 2, 4, 5):
        steering = steer(
            tiny_loaded, text, TARGET, vector_of(tiny_loaded), 1, factors=[-2, 0, 1, 3], draws=4,
            batch_tokens=copies * len(text),
        )  # fmt: skip
        assert (steering.tokens == expected.tokens).all() and steering.tokens.shape == (4, 5)


@pytest.mark.parametrize(
    ("dtype", "factor", "message"),
    [
        (torch.float32, 1e18, None),
        (torch.float32, 1e30, r"a factor of 1e\+30 is too large for a vector of norm .*: the squared norm"),
        (torch.float32, -1e30, r"a factor of -1e\+30 is too large"),
        (torch.float64, 1e30, None),
        (torch.float16, 1e3, None),
        (torch.float16, 1e5, "a factor of 100000 is too large"),
    ],
)
def test_a_factor_that_overflows_is_refused(
    tiny_loaded: LoadedModel, text: Encoding, dtype: torch.dtype, factor: float, message: str | None
) -> None:
    """Layer normalisation of infinite squares gives 0 or NaN; a factor below gives finite numbers."""
    model = replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model).to(dtype))
    if message is not None:
        with pytest.raises(Refused, match=message):
            steer(model, text, TARGET, vector_of(tiny_loaded), 1, factors=[0, factor], draws=2)
    else:
        steering = steer(model, text, TARGET, vector_of(tiny_loaded), 1, factors=[0, factor], draws=2)
        assert np.isfinite([*steering.values, *steering.random_divergence_high]).all() and steering.effects[1]


def test_predictions_that_are_not_finite_are_refused(tiny_loaded: LoadedModel, text: Encoding) -> None:
    """Of the target, and of the other words alone."""
    model = replace(tiny_loaded, model=copy.deepcopy(tiny_loaded.model))
    with torch.no_grad():
        model.model.cls.predictions.transform.dense.weight.mul_(1e21)
    constant = Target("custom", name="constant", positions=(3,), function=lambda outputs: outputs.states[:, 0, 0] * 0)
    vector = np.eye(32)[0]
    for target in (TARGET, constant):
        with pytest.raises(Refused, match=r"a factor of 1e\+18 gives predictions that are not finite: .* is 1"):
            steer(model, text, target, vector, 2, factors=[1e18], draws=1)


# ---------------------------------------------------------------------------- the vector of a label


def sentences() -> list[bert_core.LabelledSentence]:
    """Every eighteenth order of six words: a sentence that occurs twice would be used once."""
    made = []
    for words in list(itertools.permutations(["cat", "dog", "king", "queen", "the", "old"]))[::18]:
        starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        spans = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
        kinds = {"cat": "pet", "dog": "pet", "king": "person", "queen": "person"}
        made.append(
            bert_core.LabelledSentence(" ".join(words), spans, tuple(kinds.get(word, "other") for word in words))
        )
    return made


def test_the_vector_of_a_label(tiny_loaded: LoadedModel) -> None:
    """From the mean state of the words with one value to that with the other; reversed values give the opposite."""
    given, settings = sentences(), bert_core.ProbeSettings(least=1)
    vector = bert_core.label_vector(tiny_loaded, given, 1, ("pet", "person"), settings=settings)
    encodings = [tiny_loaded.tokenizer.encode(one.text) for one in given]
    states = word_states(tiny_loaded, encodings, [[(n + 1,) for n in range(6)] for _ in given], 1)
    labels = np.array([label for one in given for label in one.labels])
    expected = states[labels == "person"].mean(0) - states[labels == "pet"].mean(0)
    assert_near(vector, expected)
    back = bert_core.label_vector(tiny_loaded, given, 1, ("person", "pet"), settings=settings)
    assert_near(back, -vector)
    for direction in ("probe", "discriminant"):
        other = bert_core.label_vector(tiny_loaded, given, 1, ("pet", "person"), direction=direction, settings=settings)
        assert_near(other @ other, other @ vector, 1e-3)  # the part of the difference along its direction


# ---------------------------------------------------------------------------- what is refused


def test_what_cannot_be_steered_is_said(tiny_loaded: LoadedModel, text: Encoding) -> None:
    vector = vector_of(tiny_loaded)
    steered = edited(tiny_loaded, [AddedVector(1, vector, positions=(7,))])
    short, long = tiny_loaded.tokenizer.encode("the cat"), tiny_loaded.tokenizer.encode(" ".join([TEXT] * 3))
    cases: Sequence[tuple[Any, str]] = (
        (lambda: AddedVector(1, [[1.0]]), r"the vector is \(1, 1\): it must be \(hidden,\)"),
        (lambda: AddedVector(1, [np.nan]), "the vector holds nan"),
        (lambda: AddedVector(1, [1.0], np.inf), "the factor is inf: it must be a finite number"),
        (lambda: AddedVector(1, [1e30], 1e30), "the vector times its factor holds inf"),
        (lambda: AddedVector(-1, [1.0]), "the depth is -1"),
        (lambda: AddedVector(1, [1.0], positions=()), "positions of an added vector is empty"),
        (lambda: edited(tiny_loaded, [AddedVector(3, vector)]), "the depth of an added vector is 3: .* 0 to 2"),
        (lambda: edited(tiny_loaded, [AddedVector(1, [1.0])]), "the added vector has 1 numbers: .* have 32"),
        (lambda: capture(steered, short), "the added vector names position 7: the text has positions 0 to 3"),
        (lambda: bert_core.alti(steered, text), "a vector is added to this text's hidden states"),
        (lambda: bert_core.ablate_heads(steered, text), "a vector is added .*: remove the AddedVector"),
        (lambda: bert_core.save(steered, "nowhere"), r"\(AddedVector\), and saving "),
        (lambda: steer(tiny_loaded, text, TARGET, vector, 3), "the depth of an added vector is 3"),
        (lambda: steer(tiny_loaded, text, TARGET, vector, 1, factors=[]), "factors has 0 different numbers"),
        (lambda: steer(tiny_loaded, text, TARGET, vector, 1, factors=[0, np.inf]), "a factor is inf: .* finite number"),
        (
            lambda: steer(tiny_loaded, long, TARGET, vector, 1, factors=np.arange(1000.0).tolist() * 2, draws=1000),
            "^1,000 random vectors, 1,000 factors and 15 other words make 15,000,000 divergences",
        ),
        (lambda: steer(tiny_loaded, text, TARGET, vector, 1, positions=[]), "positions is empty"),
        (lambda: steer(tiny_loaded, text, TARGET, vector, 1, positions=[8]), "position 8 does not exist"),
        (lambda: steer(tiny_loaded, text, TARGET, vector, 1, draws=0), "draws is 0"),
        (lambda: bert_core.steering_vector(STATES, LABELS, "mean"), "the direction is 'mean': it must be one of means"),
        (lambda: bert_core.steering_vector(STATES, LABELS * 0), "every label is 0"),
        (lambda: bert_core.steering_vector(np.ones((4, 3)), np.array([0, 1, 0, 1])), "both labels have the same mean"),
        (lambda: bert_core.label_vector(tiny_loaded, sentences(), 1), r"the label has 3 values \(other, person, pet\)"),
        (
            lambda: bert_core.label_vector(tiny_loaded, sentences(), 1, ("pet", "cat")),
            r"the values are \('pet', 'cat'\): they must be two different ones of other, person, pet",
        ),
    )  # fmt: skip
    for call, message in cases:
        with pytest.raises(Refused, match=message):
            call()
