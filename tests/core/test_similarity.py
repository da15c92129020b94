"""How alike two texts are: parts that sum to the cosine, and the cosine as a target of every method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bert_core
from bert_core import METHODS, AttentionKnockout, LoadedModel, Refused, Target, capture, edited, token_scores
from bert_core.analysis.similarity import cosine_parts
from bert_core.pooling import POOLING_MODES, Pooling
from bert_core.run.similarity import (
    UNRELATED_SENTENCES,
    read_sentence,
    sentence_similarity,
    sentence_vector,
    similarity_target,
    unrelated_cosines,
)
from bert_core.run.targets import target_values
from tests.near import assert_near

ONE, OTHER = "the old cat sat on the mat", "a dog ran from the house of the king"


def pooled_by(loaded: LoadedModel, mode: str) -> LoadedModel:
    from dataclasses import replace

    return replace(loaded, pooling=Pooling(mode))


@pytest.fixture(params=POOLING_MODES)
def loaded(tiny_loaded: LoadedModel, request: pytest.FixtureRequest) -> LoadedModel:
    return pooled_by(tiny_loaded, request.param)


def both(loaded: LoadedModel) -> tuple[bert_core.Encoding, bert_core.Encoding]:
    return read_sentence(loaded, ONE), read_sentence(loaded, OTHER)


# ---------------------------------------------------------------------------- two texts


def test_two_tokens_against_two_by_hand() -> None:
    """(1, 0) and (0, 1) sum to (1, 1); (3, 0) and (1, 3) to (4, 3): the cosine is 7 of 5 times the root of 2."""
    parts = cosine_parts(np.array([[1, 0], [0, 1]]), np.array([[3, 0], [1, 3]]))
    lengths = 5 * 2**0.5
    assert np.allclose(parts, np.array([[3, 1], [0, 3]]) / lengths)
    assert np.isclose(parts.sum(), 7 / lengths)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            np.ones((2, 3)),
            np.ones((2, 4)),
            r"second is \(2, 4\): it must be \(second_token, hidden\), and hidden is 3",
        ),
        (np.ones(3), np.ones((2, 3)), r"first is \(3,\): it must be \(first_token, hidden\)"),
        (np.array([[1.0], [-1.0]]), np.ones((1, 1)), "vector of a text is zero"),
    ],
)
def test_what_has_no_cosine_is_refused(first: np.ndarray, second: np.ndarray, said: str) -> None:
    """Of other shapes, or of nothing, there is none."""
    with pytest.raises(Refused, match=said):
        cosine_parts(first, second)


def test_parts_sum_to_the_cosine_of_the_vectors(loaded: LoadedModel) -> None:
    """In every mode the parts sum to torch's cosine of the two vectors, and stand only where a token counts."""
    one, other = both(loaded)
    found = sentence_similarity(loaded, one, other)
    vectors = [torch.tensor(sentence_vector(loaded, text)) for text in (one, other)]
    expected = F.cosine_similarity(*vectors, dim=0).item()
    assert_near(found.cosine, expected)
    assert_near(found.parts.sum(), expected)
    assert found.parts.shape == (len(one), len(other))
    left_out = sorted(set(range(len(one))) - set(loaded.effective_pooling.pooled_positions(len(one))))
    assert not found.parts[left_out].any()
    assert_near(sentence_similarity(loaded, other, one).parts.T, found.parts)


def test_a_text_is_like_itself(loaded: LoadedModel) -> None:
    """The cosine of a text with itself is 1, whatever the mode."""
    one, _ = both(loaded)
    assert_near(sentence_similarity(loaded, one, one).cosine, 1.0)


def test_the_other_text_may_not_be_empty(tiny_loaded: LoadedModel) -> None:
    """An empty text is refused in one sentence."""
    with pytest.raises(Refused, match="there is no text: type at least one word"):
        read_sentence(tiny_loaded, "  ")


def test_texts_are_cut_where_the_file_says(tiny_loaded: LoadedModel) -> None:
    """A model that pools at most 5 tokens reads no more."""
    from dataclasses import replace

    short = replace(tiny_loaded, pooling=Pooling(max_length=5))
    assert len(read_sentence(short, ONE)) == 5
    assert len(read_sentence(tiny_loaded, ONE)) == 9


def test_unrelated_sentences_are_all_pairs_in_order(tiny_loaded: LoadedModel) -> None:
    """Each pair is there once, the least cosine first, and each is the cosine of its two texts."""
    found = unrelated_cosines(tiny_loaded)
    assert len(found) == len(UNRELATED_SENTENCES) * (len(UNRELATED_SENTENCES) - 1) // 2
    assert (np.diff(found) >= 0).all()
    first, second = (read_sentence(tiny_loaded, text) for text in UNRELATED_SENTENCES[:2])
    assert abs(found - sentence_similarity(tiny_loaded, first, second).cosine).min() < 1e-6


# ---------------------------------------------------------------------------- as a target


def test_the_targets_value_is_the_cosine(loaded: LoadedModel) -> None:
    """A capture with the target has the cosine as its value, whichever text stays as it is."""
    one, other = both(loaded)
    expected = sentence_similarity(loaded, one, other).cosine
    for text, fixed in ((one, other), (other, one)):
        run = capture(loaded, text, target=similarity_target(loaded, text, fixed))
        assert_near(run.target_value, expected)


def test_the_slope_of_a_gate_is_what_the_cosine_does(loaded: LoadedModel) -> None:
    """Turning a head down a little changes the cosine by its slope, the other text being read with all heads on."""
    loaded = bert_core.LoadedModel(**{**vars(loaded), "model": _in_float64(loaded)})
    one, other = both(loaded)
    target = similarity_target(loaded, one, other)
    run = capture(loaded, one, target=target)
    assert run.gate_gradient is not None
    for layer, head in ((0, 2), (1, 1)):
        values = []
        for gate in (1.0, 0.99):
            gates = np.ones((2, 4), np.float32)
            gates[layer, head] = gate
            values.append(capture(loaded, one, target=target, head_mask=gates).target_value)
        step = (values[0] - values[1]) / (1 - float(np.float32(0.99)))
        assert_near(step, run.gate_gradient[layer, head], within=0.05, of=abs(run.gate_gradient).max())


def _in_float64(loaded: LoadedModel) -> bert_core.BertForPreTraining:
    import copy

    return copy.deepcopy(loaded.model).double()


@pytest.mark.slow
def test_integrated_gradients_are_captums(loaded: LoadedModel) -> None:
    """captum's integrated gradients of torch's cosine, on the same way, are ours; but where the largest change hands.

    Along the way another token may have the largest number, where the slope jumps: two rules of points need not agree.
    """
    from captum.attr import IntegratedGradients

    one, other = both(loaded)
    found = bert_core.integrated_gradients(loaded, one, similarity_target(loaded, one, other), steps=50)
    bert, fixed = loaded.model.bert, torch.tensor(sentence_vector(loaded, other))
    ids = torch.tensor([one.input_ids])
    words = bert.embeddings.word_embeddings(ids)
    start = words.clone()
    start[:, 1:-1] = bert.embeddings.word_embeddings(torch.tensor(loaded.tokenizer.pad_id))

    def cosine(embedded: torch.Tensor) -> torch.Tensor:
        states = bert(inputs_embeds=embedded, token_type_ids=torch.zeros_like(ids)).last_hidden_state
        rows = states[:, list(loaded.effective_pooling.pooled_positions(len(one)))]
        return F.cosine_similarity(loaded.effective_pooling.pool(rows), fixed[None], dim=-1)

    expected = IntegratedGradients(cosine).attribute(words, start, n_steps=50, method="gausslegendre")
    assert_near(found.scores, expected[0].sum(-1), within=1e-4)
    assert found.gap is not None
    if loaded.effective_pooling.mode != "max":
        assert abs(found.gap) < 1e-3


def test_decompx_sums_to_the_cosine(loaded: LoadedModel) -> None:
    """DecompX's parts of the vector, along the other text's, sum to the cosine."""
    one, other = both(loaded)
    found = bert_core.decompx(loaded, one, similarity_target(loaded, one, other))
    assert found.gap is not None
    assert abs(found.gap) < 1e-4
    assert_near(found.target_value, sentence_similarity(loaded, one, other).cosine)


def test_occlusion_is_the_cosine_without_a_word(tiny_loaded: LoadedModel) -> None:
    """What a word is worth is the cosine less that of the text with the word hidden."""
    one, other = both(tiny_loaded)
    found = bert_core.occlusion(tiny_loaded, one, similarity_target(tiny_loaded, one, other))
    whole = sentence_similarity(tiny_loaded, one, other).cosine
    for position in range(1, len(one) - 1):
        (word,) = {one.words[position]}
        assert word is not None
        hidden = tiny_loaded.tokenizer.mask_words(one, [word])
        assert_near(found.scores[position], whole - sentence_similarity(tiny_loaded, hidden, other).cosine, of=whole)


def test_a_head_without_its_gate_is_a_head_that_is_ablated(loaded: LoadedModel) -> None:
    """Ablation gives what the gate at 0 gives, in the text alone."""
    one, other = both(loaded)
    target = similarity_target(loaded, one, other)
    sweep = bert_core.ablate_heads(loaded, one, target=target)
    assert sweep.values is not None
    for layer, head in ((0, 0), (1, 3)):
        gates = bert_core.head_mask_without(loaded.config, [(layer, head)])
        run = capture(loaded, one, target=target, head_mask=gates)
        assert_near(sweep.values[layer, head], run.target_value)
        ours, theirs = (
            torch.tensor(sentence_vector(loaded, text, head_mask=mask)) for text, mask in ((one, gates), (other, None))
        )
        assert_near(sweep.values[layer, head], F.cosine_similarity(ours, theirs, dim=0))


def test_patching_every_state_gives_the_source(loaded: LoadedModel) -> None:
    """With all states of a source put in at a depth, the text is as like the other as the source is."""
    one, other = both(loaded)
    source = read_sentence(loaded, "the red dog sat by the door")
    assert len(source) == len(one)
    target = similarity_target(loaded, one, other)
    found = bert_core.patch(loaded, source, one, target, per_position=False)
    expected = sentence_similarity(loaded, source, other).cosine
    assert_near(found.source_value, expected)
    assert_near(found.values, np.full(3, expected))
    assert_near(found.base_value, sentence_similarity(loaded, one, other).cosine)


def test_patching_by_words_asks_the_source_as_a_whole(tiny_loaded: LoadedModel) -> None:
    """A source of another length has the cosine of all its tokens, and no token of the text needs a partner."""
    one, other = both(tiny_loaded)
    source = read_sentence(tiny_loaded, "the old dog sat on the big red mat")
    target = similarity_target(tiny_loaded, one, other)
    found = bert_core.patch(tiny_loaded, source, one, target, align="words")
    assert_near(found.source_value, sentence_similarity(tiny_loaded, source, other).cosine)


def test_what_is_cut_is_cut_in_the_text_alone(tiny_loaded: LoadedModel) -> None:
    """Edits of a model change the text; the other stays as the model without them reads it."""
    one, other = both(tiny_loaded)
    target = similarity_target(tiny_loaded, one, other)
    cut = edited(tiny_loaded, [AttentionKnockout((4,), (7, 8), layers=(1,))])
    run = capture(cut, one, target=target)
    ours, theirs = sentence_vector(cut, one), sentence_vector(tiny_loaded, other)
    assert_near(run.target_value, F.cosine_similarity(torch.tensor(ours), torch.tensor(theirs), dim=0))
    assert abs(run.target_value - sentence_similarity(tiny_loaded, one, other).cosine) > 1e-6


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_every_method_answers_and_is_judged(tiny_loaded: LoadedModel, method: str) -> None:
    """Each gives a number a token, and its faithfulness follows the cosine itself."""
    one, other = both(tiny_loaded)
    target = similarity_target(tiny_loaded, one, other)
    scores = token_scores(tiny_loaded, one, target, [method])
    assert scores.shape == (1, len(one))
    assert np.isfinite(scores).all() and np.ptp(scores) > 0
    judged = bert_core.faithfulness(tiny_loaded, one, target, scores, random_rankings=10)
    assert np.isfinite(judged["aopc"].scores).all()
    removed = np.zeros((1, len(one)), bool)
    value = bert_core.values_without(tiny_loaded, one, target, removed, probability=True)
    assert_near(value, sentence_similarity(tiny_loaded, one, other).cosine)


def test_a_target_belongs_to_its_text(tiny_loaded: LoadedModel) -> None:
    """One made for another text, or another way to pool, is refused; and one without its other text."""
    one, other = both(tiny_loaded)
    target = similarity_target(tiny_loaded, one, other)
    assert hash(target) == hash(similarity_target(tiny_loaded, one, other))
    with pytest.raises(
        Refused, match=r"the target pools 9 positions, but .* pools 11 positions of this text \(mode 'mean'\)"
    ):
        capture(tiny_loaded, other, target=target)
    with pytest.raises(Refused, match="a 'similarity' target needs a second text and the pooled positions"):
        Target("similarity")
    with pytest.raises(Refused, match="the other text of a target is 'a dog': it must be an Encoding"):
        Target("similarity", other="a dog", pooled=(0,))  # type: ignore[arg-type]


def test_other_copies_of_a_text_are_asked_together(loaded: LoadedModel) -> None:
    """The target of several copies is the target of each."""
    one, other = both(loaded)
    target = similarity_target(loaded, one, other)
    torch.manual_seed(0)
    rows = torch.randn(3, len(target.rows), loaded.config.hidden_size)
    together = target_values(loaded, one, target, rows)
    assert_near(together, torch.cat([target_values(loaded, one, target, row[None]) for row in rows]))
