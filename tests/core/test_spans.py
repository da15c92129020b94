"""Answers made of a reader's scores: which spans there can be, their order, and their text as typed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bert_core import Encoding, LoadedModel, SpanPrediction, best_spans
from bert_core.analysis.spans import context_positions, span_at, span_probabilities
from tests.near import assert_near


@pytest.fixture(scope="module")
def encoding(tiny_loaded: LoadedModel) -> Encoding:
    """[CLS] who sat [SEP] the  Old cat ##s sat [SEP]; "who" is in pieces."""
    return tiny_loaded.tokenizer.encode("who sat?", "The  Old cats sat.")


def predicted(encoding: Encoding, seed: int = 0) -> SpanPrediction:
    scores = np.random.default_rng(seed).normal(size=(2, len(encoding))).astype(np.float32) * 3
    return SpanPrediction(*scores, *span_probabilities(scores, encoding))


def test_only_the_context_and_no_answer_have_a_probability(encoding: Encoding) -> None:
    """The question, and what stands between, cannot be an answer; the rest is a softmax that sums to 1."""
    places = context_positions(encoding)
    assert [encoding.tokens[place] for place in places] == ["the", "old", "cat", "##s", "sat", "."]
    found = predicted(encoding)
    for logits, shares in ((found.start_logits, found.start), (found.end_logits, found.end)):
        among = [0, *places]
        expected = np.exp(logits[among]) / np.exp(logits[among]).sum()
        assert_near(shares[among], expected)
        assert set(np.flatnonzero(shares)) == set(among)


@pytest.mark.parametrize("longest", [1, 2, 3, 30])
def test_the_best_answers_are_those_of_every_pair_that_can_be(encoding: Encoding, longest: int) -> None:
    """Against all pairs, one by one: begin before the end, no longer than allowed, the largest sum first."""
    for seed in range(5):
        found = predicted(encoding, seed)
        every = {
            (first, last): float(found.start_logits[first]) + float(found.end_logits[last])
            for first, last in itertools.product(context_positions(encoding), repeat=2)
            if 0 <= last - first < longest
        }
        best = best_spans(encoding, found, 1000, longest=longest)
        assert [(span.first, span.last) for span in best] == sorted(every, key=lambda pair: -every[pair])
        assert [span.score for span in best] == sorted(every.values(), reverse=True)
        assert best_spans(encoding, found, 4, longest=longest) == best[:4]
        for span in best:
            assert_near(span.probability, found.start[span.first] * found.end[span.last])
        assert sum(span.probability for span in best) <= 1


def test_an_answer_is_text_as_it_was_typed(encoding: Encoding) -> None:
    """Capitals, spaces and words of several pieces come back from the text, not from the pieces."""
    found, places = predicted(encoding), context_positions(encoding)
    assert span_at(encoding, found, places[0], places[3]).text == "The  Old cats"
    whole = span_at(encoding, found, places[1], places[2])
    assert (whole.text, whole.start, whole.end) == ("Old cat", 5, 12) and encoding.pair is not None
    assert encoding.pair[whole.start : whole.end] == whole.text
    none = span_at(encoding, found, 0, 0)
    assert (none.text, none.start, none.end) == ("", 0, 0)
    assert_near(none.probability, found.start[0] * found.end[0])


def test_what_cannot_be_asked_is_one_sentence(encoding: Encoding, tiny_loaded: LoadedModel) -> None:
    """Scores of another text, and numbers below one; without a context there is no answer."""
    with pytest.raises(
        ValueError, match=r"^the prediction has 14 tokens and the text has 17: both must be of the same text$"
    ):
        best_spans(tiny_loaded.tokenizer.encode("who sat there?", "The old cats sat."), predicted(encoding))
    for wrong in ({"count": 0}, {"longest": 0}):
        with pytest.raises(ValueError, match="0"):
            best_spans(encoding, predicted(encoding), **wrong)
    alone = tiny_loaded.tokenizer.encode("who sat?")
    assert best_spans(alone, predicted(alone)) == ()
