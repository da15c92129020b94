"""bert_core/analysis/tags.py, by seqeval, and by hand."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bert_core
from bert_core import ModelRun, TagSpan, capture, tag_spans, tagged_spans, tagged_words
from bert_core.analysis.tags import span_counts, tags_mark_spans
from tests.conftest import TAGS

MARKS = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC-x"))]
texts = st.lists(
    st.lists(st.tuples(st.sampled_from(MARKS), st.sampled_from(MARKS)), min_size=1, max_size=9), max_size=6
)


@pytest.fixture(scope="module")
def run(tiny_tagger_folder: Path) -> ModelRun:
    """[CLS] the cat ##s sat . [SEP] it was old [SEP], with tags that are set by hand below."""
    loaded = bert_core.load(str(tiny_tagger_folder), device="cpu")
    return capture(loaded, loaded.tokenizer.encode("the cats sat.", "it was old"))


def tagged(run: ModelRun, *labels: str | None) -> ModelRun:
    """The run with these tags, one a token."""
    assert run.tags is not None
    logits = np.array([[3.0 * (label == tag) for tag in TAGS] for label in labels], np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return dataclasses.replace(run, tags=dataclasses.replace(run.tags, logits=logits, probabilities=probabilities))


@pytest.mark.slow
def test_every_row_of_tags_comes_to_the_spans_of_seqeval() -> None:
    """All rows of four tags of two kinds, whether they nest or not, as the field counts them."""
    from seqeval.metrics.sequence_labeling import get_entities

    for row in itertools.product(MARKS, repeat=4):
        assert [(one.kind, one.first, one.last) for one in tag_spans(row)] == get_entities(list(row))


@pytest.mark.slow
@given(texts=texts)
def test_precision_recall_and_f1_are_those_of_seqeval(texts: list[list[tuple[str, str]]]) -> None:
    """Over several texts, from the counts of all kinds together."""
    from seqeval.metrics import f1_score, precision_score, recall_score

    truth, guessed = ([[pair[side] for pair in text] for text in texts] for side in (0, 1))
    there, asked, right = np.sum([*span_counts(truth, guessed).values(), (0, 0, 0)], 0)
    if not texts:
        assert (there, asked, right) == (0, 0, 0)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is nothing to divide by
        assert right / max(asked, 1) == pytest.approx(precision_score(truth, guessed))
        assert right / max(there, 1) == pytest.approx(recall_score(truth, guessed))
        assert 2 * right / max(there + asked, 1) == pytest.approx(f1_score(truth, guessed))


def test_a_span_without_its_beginning_is_told_from_one_with() -> None:
    """I- after O, or after another kind, begins a span, and says that it did not say so."""
    assert tag_spans(["O", "I-PER", "I-PER", "B-PER", "I-LOC", "E-LOC", "S-LOC", "E-LOC"]) == (
        TagSpan("PER", 1, 2, False), TagSpan("PER", 3, 3), TagSpan("LOC", 4, 5, False), TagSpan("LOC", 6, 6),
        TagSpan("LOC", 7, 7, False),
    )  # fmt: skip


def test_what_marks_spans_is_told_from_what_does_not() -> None:
    """IOB and IOBES do; parts of speech, bare kinds and O alone do not."""
    assert tags_mark_spans(TAGS) and tags_mark_spans(["O", "S-X", "E-X"]) and tags_mark_spans(["I", "B"])
    for others in (["O"], ["NOUN", "VERB"], ["O", "PER"], ["B-PER", "NOUN"], ["O", "B-"], []):
        assert not tags_mark_spans(others)
    with pytest.raises(
        ValueError, match=r"^the tag 'NOUN' marks no span: it must be O, or B-, I-, E- or S- before a kind$"
    ):
        tag_spans(["O", "NOUN"])


def test_a_word_is_tagged_as_its_first_piece(run: ModelRun) -> None:
    """What a later piece says is not asked, and added tokens are no words."""
    own = tagged(run, "I-PER", "O", "B-PER", "O", "I-PER", "O", "B-PER", "I-PER", "O", "B-PER", "O")
    words = tagged_words(own)
    assert [(one.text, one.label, one.position, one.side) for one in words] == [
        ("the", "O", 1, "A"), ("cats", "B-PER", 2, "A"), ("sat", "I-PER", 4, "A"), (".", "O", 5, "A"),
        ("it", "I-PER", 7, "B"), ("was", "O", 8, "B"), ("old", "B-PER", 9, "B"),
    ]  # fmt: skip
    share = np.exp(3) / (np.exp(3) + 4)
    assert [one.probability for one in words] == pytest.approx([share] * 7)
    assert tagged_spans(own) == (TagSpan("PER", 1, 2), TagSpan("PER", 4, 4, False), TagSpan("PER", 6, 6))


def test_no_span_goes_from_one_text_into_the_other(run: ModelRun) -> None:
    """The last word of A and the first of B are two spans, whatever the tags say."""
    own = tagged(run, *["O"] * 5, "B-PER", "O", "I-PER", "I-PER", "O", "O")
    assert tagged_spans(own) == (TagSpan("PER", 3, 3), TagSpan("PER", 4, 5, False))


def test_tags_that_mark_no_spans_stand_at_each_word(run: ModelRun) -> None:
    """Of parts of speech each word is one by itself, but for what is O."""
    assert run.tags is not None
    own = tagged(run, *["O"] * 2, "B-PER", "O", "B-PER", *["O"] * 6)
    assert own.tags is not None
    named = ("O", "NOUN", "VERB", "B-ADP", "X")
    speech = dataclasses.replace(own, tags=dataclasses.replace(own.tags, labels=named))
    assert tagged_spans(speech) == (TagSpan("NOUN", 1, 1), TagSpan("NOUN", 2, 2))


def test_a_run_without_tags_is_refused(tiny_loaded: bert_core.LoadedModel) -> None:
    """One sentence for a model without a tagger."""
    plain = capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat"))
    for asked in (tagged_words, tagged_spans):
        with pytest.raises(
            ValueError, match=r"^the run is of a model without a token classifier: it must be a result of `capture`"
        ):
            asked(plain)
