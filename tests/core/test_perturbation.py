"""bert_core/run/perturbation.py: what a target rests on, beside captum and beside one forward pass at a time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import bert_core
from bert_core import Encoding, LoadedModel, Target
from bert_core.run import memory, perturbation
from bert_core.run.perturbation import (
    input_x_gradient,
    integrated_gradients,
    occlusion,
    pseudo_log_likelihood,
    saliency,
    value_zeroing,
    values_without,
)
from bert_core.tokenizer import MASK
from tests.near import apart, assert_near

GATES = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0]])
ASKED_KINDS = ("mlm", "contrast", "nsp", "class")


@pytest.fixture(scope="module")
def tiny(tiny_classifier_folder: Path) -> LoadedModel:
    """The tiny model with all its heads."""
    return bert_core.load(str(tiny_classifier_folder), device="cpu")


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    return bert_core.load("headlight-mini", device="cpu")


def example(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode("the cat sat on the [MASK] .", "it was a big old house")


def target_of(kind: str, loaded: LoadedModel, encoding: Encoding) -> Target:
    one, other = map(loaded.tokenizer.id_of, ("door", "city"))
    position = encoding.mask_positions[0]
    return {
        "mlm": Target("mlm", position, one),
        "contrast": Target("contrast", position, one, against=other),
        "nsp": Target("nsp"),
        "class": Target("class", label=2),
    }[kind]


def plain(
    loaded: LoadedModel, encoding: Encoding, target: Target, gates: np.ndarray | None = None
) -> Callable[[Tensor], Tensor]:
    """Word embeddings (copies, seq, hidden) to the target (copies,), by an ordinary whole forward pass."""

    def value(words: Tensor) -> Tensor:
        segments = torch.tensor([encoding.token_type_ids])
        more = {} if gates is None else {"head_mask": torch.tensor(gates, dtype=torch.float32)}
        if target.kind == "class":
            logits: Tensor = loaded.task_models["classifier"](
                inputs_embeds=words, token_type_ids=segments, **more
            ).logits
            return logits[:, target.label]
        outputs = loaded.model(inputs_embeds=words, token_type_ids=segments, **more)
        if target.kind == "nsp":
            return outputs.seq_relationship_logits @ torch.tensor([1.0, -1.0])
        scores: Tensor = outputs.prediction_logits[:, target.position].log_softmax(-1)
        if target.kind == "contrast":
            return scores[:, target.token_id] - scores[:, target.against]
        return scores[:, target.token_id]

    return value


def words_of(loaded: LoadedModel, ids: tuple[int, ...] | list[int]) -> Tensor:
    return loaded.model.bert.embeddings.word_embeddings(torch.tensor([ids])).detach()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [*((kind, "tiny") for kind in ASKED_KINDS), *((kind, "mini") for kind in ASKED_KINDS[:3])]
)
def test_gradients_at_the_words_are_those_of_captum(kind: str, name: str, tiny: LoadedModel, mini: LoadedModel) -> None:
    """Saliency and input x gradient, every target, on the tiny model and the bundled one."""
    from captum.attr import InputXGradient, Saliency

    loaded = {"tiny": tiny, "mini": mini}[name]
    encoding = example(loaded)
    target = target_of(kind, loaded, encoding)
    value, words = plain(loaded, encoding, target), words_of(loaded, encoding.input_ids)
    found = saliency(loaded, encoding, target)
    assert_near(found.scores, Saliency(value).attribute(words.clone().requires_grad_())[0].norm(dim=-1))
    assert not found.signed and found.gap is None
    found = input_x_gradient(loaded, encoding, target)
    products = InputXGradient(value).attribute(words.clone().requires_grad_())[0].detach()
    # Products of both signs are summed: what is lost there is a share of them, not of what is left.
    assert_near(found.scores, products.sum(-1), of=float(products.abs().sum(-1).max()))
    assert found.signed
    assert_near(found.target_value, value(words).item())


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ["pad", "mask", "zero"])
@pytest.mark.parametrize("kind", ASKED_KINDS)
def test_integrated_gradients_are_those_of_captum(kind: str, baseline: str, tiny: LoadedModel) -> None:
    """Gauss-Legendre, equal steps, every baseline; kept tokens score 0."""
    encoding = example(tiny)
    target = target_of(kind, tiny, encoding)
    found = integrated_gradients(tiny, encoding, target, baseline=baseline, steps=11)
    expected = by_captum(tiny, encoding, target, baseline, 11)
    assert_near(found.scores, expected)
    kept = set(range(len(encoding))) - set(target.removable(encoding))
    assert all(found.scores[position] == 0 for position in kept) and len(kept) in (3, 4)


def by_captum(loaded: LoadedModel, encoding: Encoding, target: Target, baseline: str, steps: int) -> Tensor:
    """Scores (seq,)."""
    from captum.attr import IntegratedGradients

    words = words_of(loaded, encoding.input_ids)
    start = words.clone()
    for position in target.removable(encoding):
        token = {"pad": "[PAD]", "mask": "[MASK]"}.get(baseline)
        start[0, position] = 0 if token is None else words_of(loaded, [loaded.tokenizer.id_of(token)])[0, 0]
    captum = IntegratedGradients(plain(loaded, encoding, target))
    scores: Tensor = captum.attribute(words, start, n_steps=steps, method="gausslegendre")
    return scores[0].sum(-1).detach().float()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlm", "nsp"])
def test_integrated_gradients_of_the_bundled_model_are_those_of_captum(kind: str, mini: LoadedModel) -> None:
    """At equal steps."""
    encoding = example(mini)
    target = target_of(kind, mini, encoding)
    found = integrated_gradients(mini, encoding, target, steps=12)
    assert_near(found.scores, by_captum(mini, encoding, target, "pad", 12))


@pytest.mark.parametrize("kind", ["mlm", "nsp"])
def test_integrated_gradients_of_the_bundled_model(kind: str, mini: LoadedModel) -> None:
    """With enough steps the scores sum to the target's way from the baseline."""
    encoding = example(mini)
    target = target_of(kind, mini, encoding)
    found = integrated_gradients(mini, encoding, target, steps=100)
    assert found.gap is not None and found.baseline_value is not None
    way = found.target_value - found.baseline_value
    assert abs(found.gap) < 0.01 * abs(way)
    assert_near(found.scores.sum(), way + found.gap)


def test_more_steps_close_the_gap(tiny: LoadedModel) -> None:
    """Completeness, with nothing kept; fewer copies at once change nothing."""
    encoding = example(tiny)
    target = target_of("mlm", tiny, encoding)
    gaps = [integrated_gradients(tiny, encoding, target, steps=steps, keep=()).gap for steps in (1, 300)]
    assert gaps[0] is not None and gaps[1] is not None
    assert abs(gaps[0]) > 0.05 and abs(gaps[1]) < 1e-3


def test_batches_change_nothing(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question gives the same answer one copy at a time."""
    encoding, target = example(tiny), target_of("mlm", tiny, example(tiny))
    plain_text = tiny.tokenizer.encode("the cat sat on the xyz .")

    def answers() -> list[np.ndarray]:
        return [
            integrated_gradients(tiny, encoding, target, steps=9).scores,
            occlusion(tiny, encoding, target).scores,
            value_zeroing(tiny, encoding).maps,
            pseudo_log_likelihood(tiny, plain_text).log_probabilities,
        ]

    together = answers()
    monkeypatch.setattr(memory, "TOKENS_AT_ONCE", 1)
    for one, other in zip(answers(), together, strict=True):
        assert_near(one, other)


@pytest.mark.parametrize("kind", ASKED_KINDS)
@pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
def test_occlusion_is_one_forward_pass_a_token(kind: str, gates: np.ndarray | None, tiny: LoadedModel) -> None:
    """The fall of the target with a [MASK] in the token's place, signed; kept tokens score 0."""
    encoding = example(tiny)
    target = target_of(kind, tiny, encoding)
    value = plain(tiny, encoding, target, gates)
    whole = value(words_of(tiny, encoding.input_ids)).item()
    found = occlusion(tiny, encoding, target, head_mask=gates)
    expected = torch.zeros(len(encoding))
    for position in target.removable(encoding):
        ids = list(encoding.input_ids)
        ids[position] = tiny.tokenizer.id_of(MASK)
        expected[position] = whole - value(words_of(tiny, ids)).item()
    assert_near(found.scores, expected, 1e-5, of=whole)
    assert_near(found.target_value, whole)


def test_pieces_of_a_word_are_occluded_together(tiny: LoadedModel) -> None:
    """They share the fall of the whole word evenly; what may not go stays, also inside a unit."""
    encoding = tiny.tokenizer.encode("the xyz sat on the [MASK]")
    target = target_of("mlm", tiny, encoding)
    found = occlusion(tiny, encoding, target, baseline="pad", units=[[2, 3, 4], [5, encoding.mask_positions[0]], [0]])
    removed = np.zeros((2, len(encoding)), bool)
    removed[0, 2:5] = True
    removed[1, 5] = True
    values = values_without(tiny, encoding, target, removed, baseline="pad")
    assert_near(found.scores[2:5], [(found.target_value - values[0]) / 3] * 3, of=found.target_value)
    assert_near(found.scores[5], found.target_value - values[1], of=found.target_value)
    assert np.count_nonzero(found.scores) == 4


@pytest.mark.parametrize("kind", ASKED_KINDS)
def test_probabilities_without_words(kind: str, tiny: LoadedModel) -> None:
    """Of the word, of one word of two, of B following A, of the class: as capture finds them, copy by copy."""
    encoding = example(tiny)
    target = target_of(kind, tiny, encoding)
    run = bert_core.capture(tiny, encoding)
    words, classes = run.predictions[0].probabilities, run.classes
    assert classes is not None and classes.probabilities is not None
    one, other = target.token_id or 0, target.against or 0
    expected = {
        "mlm": words[one], "contrast": words[one] / (words[one] + words[other]),
        "nsp": run.nsp, "class": classes.probabilities[2],
    }[kind]  # fmt: skip
    removed = np.zeros((4, len(encoding)), bool)
    removed[[0, 3], 2] = True
    found = values_without(tiny, encoding, target, removed, probability=True)
    assert found[0] == found[3] != found[1] == found[2]
    # A probability is as exact as the score that it is the exponential of, and has not the scale of its own.
    assert_near(np.log(found[1]), np.log(expected), of=max(1, -np.log(expected)))


@pytest.mark.parametrize("gates", [None, GATES], ids=["all heads", "gates"])
def test_value_zeroing_is_a_value_of_zero(gates: np.ndarray | None, tiny: LoadedModel) -> None:
    """Layer by layer and token by token, with the value vectors really set to zero; rows are of queries."""
    encoding = example(tiny)
    found = value_zeroing(tiny, encoding, head_mask=gates)
    model, length = tiny.model.bert, len(encoding)
    more = {} if gates is None else {"head_mask": torch.tensor(gates, dtype=torch.float32)}
    inputs = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    states = model(inputs[0], token_type_ids=inputs[1], output_hidden_states=True, **more).hidden_states
    expected = np.empty((2, length, length))
    for layer, token in np.ndindex(2, length):
        module = copy.deepcopy(model.encoder.layer[layer])
        value = module.attention.self.value

        def zeroed(x: Tensor, value: torch.nn.Linear = value, token: int = token) -> Tensor:
            values = torch.nn.functional.linear(x, value.weight, value.bias)
            values[:, token] = 0
            return values

        value.forward = zeroed  # type: ignore[method-assign]
        gate = None if gates is None else torch.tensor(gates[layer], dtype=torch.float32)[None, :, None, None]
        changed = module(states[layer], None, gate).hidden_states[0]
        expected[layer, :, token] = 1 - torch.cosine_similarity(changed, states[layer + 1][0], dim=-1)
    assert_near(found.maps, expected, of=1)
    assert found.residual and expected.max() > 0.01


def test_zeroing_values_that_nobody_reads_turns_nothing(tiny: LoadedModel) -> None:
    """In a layer whose heads are all off the map is 0 to the last digit, and not the noise of rounding."""
    found = value_zeroing(tiny, example(tiny), head_mask=np.array([[0.0] * 4, [1.0] * 4]))
    assert not found.maps[0].any() and found.maps[1].max() > 0.01


@pytest.mark.parametrize("variant", ["original", "within word"])
def test_a_text_is_scored_one_mask_at_a_time(variant: str, tiny: LoadedModel) -> None:
    """Each piece with a forward pass of its own; the variant also hides the later pieces of its word."""
    encoding = tiny.tokenizer.encode("the xyz sat .", "cats ran")
    found = pseudo_log_likelihood(tiny, encoding, variant=variant)
    mask, segments = tiny.tokenizer.id_of(MASK), torch.tensor([encoding.token_type_ids])
    total, count = 0.0, 0
    for position, special in enumerate(encoding.special):
        if special:
            assert np.isnan(found.log_probabilities[position])
            continue
        ids = list(encoding.input_ids)
        ids[position] = mask
        later = [i for i in range(position, len(ids)) if encoding.words[i] == encoding.words[position]]
        for other in later if variant == "within word" else ():
            ids[other] = mask
        logits = tiny.model(torch.tensor([ids]), token_type_ids=segments).prediction_logits[0, position]
        expected = logits.log_softmax(-1)[encoding.input_ids[position]].item()
        assert_near(found.log_probabilities[position], expected)
        total, count = total + expected, count + 1
    assert_near(found.total, total)
    assert_near(found.perplexity, np.exp(-total / count))


def test_the_variants_differ_only_inside_words(mini: LoadedModel) -> None:
    """Last pieces and whole words score the same; an earlier piece, whose word's end is then hidden, does not."""
    encoding = mini.tokenizer.encode("The musicologist slept.")
    one, other = (pseudo_log_likelihood(mini, encoding, variant=v).log_probabilities for v in perturbation.VARIANTS)
    first = encoding.tokens.index("music")
    inner = [p for p in encoding.pieces_of(encoding.words[first] or 0) if p != encoding.pieces_of(1)[-1]]
    assert len(inner) >= 1
    outer = [p for p in range(len(encoding)) if p not in inner]
    assert_near(one[outer], other[outer])
    assert (np.abs(one[inner] - other[inner]) > 0.1).all()


def test_threads_share_a_model_that_is_left_alone(tiny: LoadedModel) -> None:
    """Answers of four threads at once are those of one; afterwards no weight has moved, or has a gradient."""
    encoding = example(tiny)
    before = {name: weight.clone() for name, weight in tiny.model.named_parameters()}

    def answer(kind: str) -> list[np.ndarray]:
        target = target_of(kind, tiny, encoding)
        asked = (integrated_gradients(tiny, encoding, target, steps=5), saliency(tiny, encoding, target))
        return [*(one.scores for one in asked), occlusion(tiny, encoding, target).scores]

    expected = [answer(kind) for kind in ASKED_KINDS]
    with ThreadPoolExecutor(4) as pool:
        for kinds in pool.map(lambda kind: answer(kind), ASKED_KINDS * 5):
            assert any(all(apart(*pair) <= 1e-5 for pair in zip(kinds, one, strict=True)) for one in expected)
    for name, weight in tiny.model.named_parameters():
        assert weight.grad is None and not weight.requires_grad and torch.equal(weight, before[name])


def test_records_cannot_be_changed(tiny: LoadedModel) -> None:
    """Arrays refuse to be written, and the records are frozen."""
    encoding = example(tiny)
    found = occlusion(tiny, encoding, target_of("nsp", tiny, encoding))
    for array in (found.scores, value_zeroing(tiny, encoding).maps):
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.method = "another"  # type: ignore[misc]


def test_bad_questions_are_one_sentence(tiny: LoadedModel) -> None:
    """What was given, and what is allowed."""
    encoding, single = example(tiny), tiny.tokenizer.encode("the cat sat on the [MASK]")
    target = target_of("mlm", tiny, encoding)
    asked: list[tuple[Callable[[], object], str]] = [
        (
            lambda: integrated_gradients(tiny, encoding, target, steps=0),
            "steps is 0: it must be from 1 to 10,000",
        ),
        (
            lambda: integrated_gradients(tiny, encoding, target, baseline="noise"),
            "baseline 'noise' is unknown: one of pad, mask, zero",
        ),
        (
            lambda: integrated_gradients(tiny, encoding, target, keep=[99]),
            "position 99 does not exist: this text has positions 0 to 15",
        ),
        (
            lambda: saliency(tiny, single, Target("nsp")),
            "next-sentence prediction needs two texts: add a second sentence",
        ),
        (
            lambda: values_without(tiny, encoding, target, np.zeros((2, 3), bool)),
            "removed has the shape (2, 3): it must be (copies, 16) for this text",
        ),
        (
            lambda: pseudo_log_likelihood(tiny, encoding),
            "the text contains [MASK] at position 6: a masked position cannot be scored",
        ),
        (
            lambda: pseudo_log_likelihood(tiny, encoding, variant="new"),
            "variant 'new' is unknown: 'original' or 'within word'",
        ),
    ]
    for question, sentence in asked:
        with pytest.raises(ValueError) as caught:
            question()
        assert str(caught.value) == sentence
