"""bert_core/records/targets.py, and targets of several pieces, by an ordinary forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bert_core import Encoding, LoadedModel, Target, ablate_heads, capture, decompx, integrated_gradients
from bert_core.analysis.faithfulness import removable_units
from bert_core.methods import METHODS, token_scores
from bert_core.records import loss_target, masked_pieces, pieces_of, word_target
from bert_core.run.perturbation import values_without
from bert_core.target_kinds import CUSTOM, TARGET_KINDS
from tests.near import assert_near


@pytest.fixture(scope="module")
def original(tiny_loaded: LoadedModel) -> Encoding:
    """[CLS] the cat ##s sat on the mat [SEP] it was old [SEP]."""
    return tiny_loaded.tokenizer.encode("the cats sat on the mat", "it was old")


@pytest.fixture(scope="module")
def encoding(tiny_loaded: LoadedModel, original: Encoding) -> Encoding:
    """ "cats", two pieces at 2 and 3, and "mat" at 7 are hidden."""
    return tiny_loaded.tokenizer.mask_words(original, [1, 5])


def log_probabilities(loaded: LoadedModel, encoding: Encoding) -> torch.Tensor:
    """(seq, vocab), by an ordinary forward pass."""
    ids, segments = torch.tensor([encoding.input_ids]), torch.tensor([encoding.token_type_ids])
    return loaded.model(ids, token_type_ids=segments).prediction_logits[0].log_softmax(-1)


def several(loaded: LoadedModel, encoding: Encoding, original: Encoding) -> list[Target]:
    return [word_target(loaded.tokenizer, encoding, "cats"), loss_target(encoding, original)]


def test_the_values_are_sum_and_mean(tiny_loaded: LoadedModel, encoding: Encoding, original: Encoding) -> None:
    """A word's pieces add up; the loss is torch's cross-entropy over the hidden pieces, turned around."""
    joint, loss = several(tiny_loaded, encoding, original)
    found = log_probabilities(tiny_loaded, encoding)
    ids = tiny_loaded.tokenizer.id_of
    by_hand = float(found[2, ids("cat")] + found[3, ids("##s")])
    assert_near(capture(tiny_loaded, encoding, target=joint).target_value, by_hand)
    labels = torch.tensor([original.input_ids[place] for place in (2, 3, 7)])
    entropy = float(torch.nn.functional.nll_loss(found[[2, 3, 7]], labels))
    assert_near(capture(tiny_loaded, encoding, target=loss).target_value, -entropy)
    nothing = np.zeros((1, len(encoding)), bool)
    for target, value in ((joint, by_hand), (loss, -entropy)):
        asked = values_without(tiny_loaded, encoding, target, nothing, probability=True)
        assert_near(asked[0], np.exp(value))


def test_one_piece_alone_is_the_plain_target(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """A joint target, or a loss, of a single piece has the value and the gradient of that piece's own."""
    plain = Target("mlm", 7, tiny_loaded.tokenizer.id_of("mat"))
    run = capture(tiny_loaded, encoding, target=plain)
    for kind in ("joint", "loss"):
        other = capture(tiny_loaded, encoding, target=Target(kind, pieces=plain.target_pieces))
        assert other.target_value == run.target_value
        np.testing.assert_array_equal(other.gradient, run.gradient)


def test_every_method_answers_for_several_pieces(
    tiny_loaded: LoadedModel, encoding: Encoding, original: Encoding
) -> None:
    """One finite number a token; what is summed or averaged is what the pieces have one by one."""
    joint, loss = several(tiny_loaded, encoding, original)
    for target in (joint, loss):
        ones = np.array([token_scores(tiny_loaded, encoding, Target("mlm", *piece)) for piece in target.pieces])
        found = token_scores(tiny_loaded, encoding, target)
        assert found.shape == (len(METHODS), len(encoding)) and np.isfinite(found).all()
        for number, method in enumerate(METHODS):
            if not method.targeted:
                assert_near(found[number], ones[:, number].mean(0), what=method.name)
        total = ones.sum(0) if target is joint else ones.mean(0)
        for name in ("gradient x attention", "DecompX", "input x gradient"):
            number = [method.name for method in METHODS].index(name)
            assert_near(found[number], total[number], 2e-4, what=name)


def test_completeness_and_ablation_hold_for_several_pieces(
    tiny_loaded: LoadedModel, encoding: Encoding, original: Encoding
) -> None:
    """DecompX and integrated gradients still add up, and a head that is off gives what a masked run gives."""
    gates = np.ones((2, 4), np.float32)
    gates[1, 2] = 0
    for target in several(tiny_loaded, encoding, original):
        assert abs(decompx(tiny_loaded, encoding, target).gap or 0) < 1e-3
        assert abs(integrated_gradients(tiny_loaded, encoding, target, steps=200).gap or 0) < 1e-2
        swept = ablate_heads(tiny_loaded, encoding, target=target)
        masked = capture(tiny_loaded, encoding, target=target, head_mask=gates).target_value
        assert swept.values is not None
        assert_near(swept.values[1, 2], masked)


def test_all_of_its_own_places_stay(tiny_loaded: LoadedModel, encoding: Encoding, original: Encoding) -> None:
    """None of the masks that are asked for can be taken away; another mask can."""
    joint, loss = several(tiny_loaded, encoding, original)
    assert {place for unit in removable_units(encoding, joint) for place in unit} == {1, 4, 5, 6, 7, 9, 10, 11}
    assert {place for unit in removable_units(encoding, loss) for place in unit} == {1, 4, 5, 6, 9, 10, 11}


def test_words_become_targets(tiny_loaded: LoadedModel, encoding: Encoding, original: Encoding) -> None:
    """One piece at its mask, capitals or not; several at as many; a contrast; the place is found where it is clear."""
    tokenizer = tiny_loaded.tokenizer
    assert word_target(tokenizer, encoding, "Dog ", position=7) == Target("mlm", 7, tokenizer.id_of("dog"))
    assert word_target(tokenizer, encoding, "##ing", position=3) == Target("mlm", 3, tokenizer.id_of("##ing"))
    assert word_target(tokenizer, encoding, "dog") == Target("mlm", 7, tokenizer.id_of("dog"))
    pieces = ((2, tokenizer.id_of("dog")), (3, tokenizer.id_of("##s")))
    assert word_target(tokenizer, encoding, "dogs") == Target("joint", pieces=pieces)
    assert word_target(tokenizer, encoding, "mat", position=7, against="city") == Target(
        "contrast", 7, tokenizer.id_of("mat"), against=tokenizer.id_of("city")
    )
    assert pieces_of(tokenizer, "walked") == ("w", "##a", "##l", "##k", "##ed")
    assert masked_pieces(encoding, original) == tuple((place, original.input_ids[place]) for place in (2, 3, 7))
    typed = tokenizer.encode("the [MASK] sat")
    assert masked_pieces(tokenizer.mask_words(typed, [2]), typed) == ((3, tokenizer.id_of("sat")),)


@pytest.mark.parametrize(
    ("word", "more", "sentence"),
    [
        (
            "dogs", {"position": 7},
            "'dogs' has 2 pieces in this vocabulary, dog and ##s, but there is only one mask from position "
            "7: mask a word of 2 pieces, or choose one of these pieces",
        ),
        (
            "walks", {},
            "positions 2, 3 and 7 are masked: add the position of the word, as in 'cat at 2'",
        ),
        (
            "walks", {"position": 2},
            "'walks' has 5 pieces in this vocabulary, w, ##a, ##l, ##k and ##s, but there are only 2 masks from "
            "position 2: mask a word of 5 pieces, or choose one of these pieces",
        ),
        (
            "dog", {"position": 7, "against": "cats"},
            "'cats' has 2 pieces in this vocabulary, cat and ##s: only words of one piece can be compared",
        ),
        ("dog", {"position": 4}, "position 4 is not masked: choose 2, 3 and 7"),
        (
            "猫", {"position": 7},
            "'猫' has characters that are not in the vocabulary: choose another word",
        ),
        (
            "walk" * 15, {"position": 7},
            "'walkwalkwalkwalkwalkwalkwalkwalkwalkwalk…' has 60 pieces in this vocabulary, w, ##a, ##l, ##k, ##w, ##a, "
            "##l, … and ##k, but there is only one mask from position 7: mask a word of 60 pieces, or "
            "choose one of these pieces",
        ),
        (
            "猫" * 60, {"position": 7},
            f"'{'猫' * 40}…' has characters that are not in the vocabulary: choose another word",
        ),
        ("  ", {"position": 7}, "there is no text: type at least one word"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_one_sentence(
    tiny_loaded: LoadedModel, encoding: Encoding, word: str, more: dict[str, object], sentence: str
) -> None:
    """The pieces that a word is, the masks there are, and the way out."""
    with pytest.raises(ValueError) as caught:
        word_target(tiny_loaded.tokenizer, encoding, word, **more)  # type: ignore[arg-type]
    assert str(caught.value) == sentence


def test_without_a_mask_there_is_nothing_to_ask(tiny_loaded: LoadedModel, original: Encoding) -> None:
    """No word, and no loss."""
    with pytest.raises(ValueError, match=r"^no word is masked: mask a word first, or type \[MASK\]$"):
        word_target(tiny_loaded.tokenizer, original, "dog")
    with pytest.raises(ValueError, match=r"^no word of the text is masked, so there is no loss: mask a word$"):
        loss_target(original, original)


def test_every_kind_says_what_it_asks(tiny_loaded: LoadedModel, encoding: Encoding) -> None:
    """Every template takes the names that a page gives it; a probability is that of the sigmoid, or of the exponent."""
    names = dict.fromkeys(("word", "other", "label", "first", "last", "count", "verdict", "text"), "x")
    numbers = dict.fromkeys(("value", "probability", "loss"), "1")
    for kind in TARGET_KINDS.values():
        for said in (kind.question.format(**names), kind.supports.format(**names), kind.value_text.format(**numbers)):
            assert said and "{" not in said
        found = [kind.probability(value) for value in (-700.0, -2.0, 0.0)]
        if kind.link == "sigmoid":
            np.testing.assert_allclose(found, [0, 1 / (1 + np.exp(2)), 0.5], atol=1e-12)
        elif kind.link == "exp":
            np.testing.assert_allclose(found, np.exp([-700, -2, 0]), rtol=1e-12)
        else:
            assert found == [None] * 3 and kind.head in ("classifier", "tagger", "reader", "chooser", "pooling", CUSTOM)
