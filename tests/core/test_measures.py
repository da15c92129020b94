"""bert_core/training/measures: what a model is good at, each figure against cases whose answer is known."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from bert_core.calibration import read_temperature
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel, load
from bert_core.run.capture import capture
from bert_core.tokenizer import Tokenizer
from bert_core.training import measures
from bert_core.training.data import Corpus
from bert_core.training.measures import (
    PROMPTS,
    Measures,
    Reliability,
    column_totals,
    count_repeated_words,
    expected_calibration_error,
    measure,
    overlap,
    read_everyday,
    read_facts,
    reliability,
    reliability_diagram,
    top_predictions,
)
from tests.families import save_family


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    """The bundled model."""
    return load("headlight-mini", device="cpu")


def noise(vocabulary: int, pieces: int = 4000) -> Corpus:
    """Random pieces in sentences of ten and documents of five."""
    tokens = np.random.default_rng(0).integers(5, vocabulary, pieces)
    return Corpus(tokens, np.arange(0, pieces + 1, 10), np.arange(0, pieces // 10 + 1, 5))


# ---------------------------------------------------------------------------- facts


def test_facts_can_be_answered_with_one_piece(mini: LoadedModel) -> None:
    """At least 300 different statements, each with a source and answers that the bundled model has as one piece."""
    facts = read_facts()
    assert len(facts) >= 300 and len({fact.statement for fact in facts}) == len(facts)
    assert len({fact.kind for fact in facts}) >= 10
    for fact in facts:
        assert fact.source
        for answer in fact.answers:
            assert mini.tokenizer.encode(answer).typed_count == 1, (fact.statement, answer)
    for prompt, answers in PROMPTS.items():
        assert prompt.count("[MASK]") == 1 and answers
        for answer in answers:
            assert mini.tokenizer.encode(answer).typed_count == 1, (prompt, answer)
    assert len(PROMPTS) == 20


def test_everyday_sentences_can_be_answered_with_one_piece(mini: LoadedModel) -> None:
    """20 different sentences in each of 10 kinds; each answer is one word piece, and none is accepted twice."""
    sentences = read_everyday()
    assert len({sentence.statement for sentence in sentences}) == len(sentences) == 200
    kinds = [sentence.kind for sentence in sentences]
    assert len(set(kinds)) == 10 and all(kinds.count(kind) == 20 for kind in kinds)
    for sentence in sentences:
        assert len(set(sentence.answers)) == len(sentence.answers)
        for answer in sentence.answers:
            assert mini.tokenizer.encode(answer).typed_count == 1, (sentence.statement, answer)


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (("kind", "statement"), ("a", "b [MASK]"), "must be kind, statement"),
        (("kind", "statement", "answers", "notes"), ("a", "b [MASK]", "c", "d"), "must be kind, statement"),
        (("kind", "statement", "answers"), ("a", "no gap", "c"), "line 2 of x.csv must have one"),
        (("kind", "statement", "answers"), ("a", "[MASK] and [MASK]", "c"), "line 2 of x.csv must have one"),
        (("kind", "statement", "answers"), ("a", "a [MASK]", ""), "line 2 of x.csv must have one"),
    ],
)
def test_a_statement_without_its_parts_is_refused(
    header: tuple[str, ...], row: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """The message names the line, and the columns that each line needs; a fact also needs a source."""
    path = tmp_path / "x.csv"
    for added, value, read in ((), (), read_everyday), (("source",), ("s",), read_facts):
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([(*header, *added), (*row, *value)])
        with pytest.raises(ValueError, match=message):
            read(path)
    path.write_text("kind,statement,answers,source\na,a [MASK],b,\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2 of x\.csv must have one .* source"):
        read_facts(path)


def test_a_guess_is_right_repeated_or_neither(tiny_loaded: LoadedModel) -> None:
    """Right where it is among the answers; repeated where it is wrong, a content word, and stands in the text."""
    text = "the king walked in the [MASK] ."
    token = capture(tiny_loaded, tiny_loaded.tokenizer.encode(text)).predictions[0].top[0][0]
    piece = tiny_loaded.tokenizer.token_of(token)
    wrong, right = top_predictions(tiny_loaded, [(text, ("nothing",)), (text, ("other", piece))])
    assert (wrong.piece, wrong.is_correct, right.is_correct) == (piece, False, True)
    assert (wrong.in_top_five, right.in_top_five) == (False, True)
    top = capture(tiny_loaded, tiny_loaded.tokenizer.encode(text)).predictions[0].top
    for place, within in ((1, True), (4, True), (5, False)):
        (guess,) = top_predictions(tiny_loaded, [(text, (tiny_loaded.tokenizer.token_of(top[place][0]),))])
        assert (guess.is_correct, guess.in_top_five) == (False, within)
    assert 0 < wrong.probability < 1
    weights = tiny_loaded.model.cls.predictions.decoder.bias
    for word, repeats in (("king", True), ("the", False), ("queen", False)):
        number = tiny_loaded.tokenizer.id_of(word)
        before = weights[number].item()
        with torch.no_grad():
            weights[number] = 1000.0
            guess = top_predictions(tiny_loaded, [(text, ("house",))])[0]
            weights[number] = before
        assert (guess.piece, guess.repeats_word) == (word, repeats)


# ---------------------------------------------------------------------------- how sure


def drawn(temperature: float, vocabulary: int = 40) -> Any:
    """In the place of a model: scores that are surer than they are right by a temperature."""

    def hidden(*_: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[set[int]]]]:
        generator = torch.Generator().manual_seed(8)
        logits = 2 * torch.randn(20_000, vocabulary, generator=generator)
        labels = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
        yield logits, labels, [set()] * len(labels)

    return hidden


@pytest.mark.parametrize("temperature", [0.8, 1.0, 1.45])
def test_the_temperature_is_found_again(
    temperature: float, tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where answers are drawn at a temperature, it is fitted to 3%, and the error is then next to nothing."""
    monkeypatch.setattr(measures, "_masked_batches", drawn(temperature))
    found = reliability(tiny_loaded, noise(100), batches=1)
    assert found is not None
    assert found.temperature == pytest.approx(temperature, rel=0.03)
    assert expected_calibration_error(found.after) < 0.015
    if temperature != 1.0:
        assert expected_calibration_error(found.before) > 3 * expected_calibration_error(found.after)
    assert sum(count for _, _, count in found.after) == 20_000


def test_a_text_too_small_to_halve_has_no_temperature(tiny_loaded: LoadedModel) -> None:
    """Three documents leave a half without a stranger, and single sentences leave none that follows."""
    tokens = np.arange(5, 155)
    assert reliability(tiny_loaded, Corpus(tokens, np.arange(0, 151, 10), np.arange(0, 16, 5)), batches=1) is None
    assert reliability(tiny_loaded, Corpus(tokens, np.arange(0, 151, 10), np.arange(16)), batches=1) is None


def test_the_expected_error_by_hand() -> None:
    """Ten guesses 0.2 too sure and thirty 0.1 not sure enough are 0.125 apart on the whole."""
    assert expected_calibration_error([(0.9, 0.7, 10), (0.5, 0.6, 30)]) == pytest.approx((10 * 0.2 + 30 * 0.1) / 40)


def test_the_picture_is_an_svg_of_all_bins() -> None:
    """A circle for every bin before and after, and both errors in words."""
    found = Reliability(1.2, ((0.9, 0.7, 10), (0.5, 0.6, 30)), ((0.8, 0.7, 40),))
    picture = ElementTree.fromstring(reliability_diagram(found))
    assert len(picture.findall("{*}circle")) == 3
    words = " ".join(text.text or "" for text in picture.findall("{*}text"))
    assert "uncalibrated, error 0.125" in words and "temperature 1.20, error 0.100" in words


# ---------------------------------------------------------------------------- overlap, repetition


def test_overlap_finds_what_stands_in_the_training_text() -> None:
    """A passage of it is found wherever it stands, one of another order is not, and a short text counts as a whole."""
    train = noise(30_000, 9_000)
    seen, strange = train.tokens[4_321:4_361], train.tokens[4_321:4_361][::-1]
    assert overlap(train, [seen]) == (1.0, 1.0)
    assert overlap(train, [strange]) == (0.0, 0.0)
    mixed = np.concatenate([strange[:10], train.tokens[100:113], strange[10:20]])
    assert overlap(train, [mixed, strange]) == (1 / (21 + 28), 0.5)
    assert overlap(train, [train.tokens[-5:], strange[:5]]) == (0.5, 0.5)
    assert overlap(train, []) == (0.0, 0.0)


def test_overlap_looks_across_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passage that begins in one block of the training text and ends in the next is found."""
    train = noise(30_000, 2_000)
    monkeypatch.setattr(measures, "_BLOCK", 100)
    assert overlap(train, [train.tokens[at : at + 13] for at in range(80, 120)]) == (1.0, 1.0)


def test_repetition_counts_what_is_seen_in_the_same_example(
    tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four guesses one is wrong and stands there; one is right, one stands elsewhere, one is no content word."""
    king, queen, the = (tiny_loaded.tokenizer.id_of(word) for word in ("king", "queen", "the"))
    logits = torch.full((4, len(tiny_loaded.tokenizer)), -9.0)
    for row, token in enumerate((king, king, king, the)):
        logits[row, token] = 9.0

    def hidden(*_: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[set[int]]]]:
        yield logits, torch.tensor([queen, king, queen, queen]), [{king}, {king}, {the}, {the}]

    monkeypatch.setattr(measures, "_masked_batches", hidden)
    assert count_repeated_words(tiny_loaded, noise(100), batches=1) == (1, 4)


# ---------------------------------------------------------------------------- all of it


def test_everything_is_measured_and_comes_back_from_json(tiny_loaded: LoadedModel) -> None:
    """Every kind and length, whole sentences, facts, prompts, repetition, calibration and overlap; asked twice, the
    figures are the same, and JSON gives them back.
    """
    corpus = noise(len(tiny_loaded.tokenizer))
    found = measure(tiny_loaded, {"noise": corpus}, train=corpus, batches=1, lengths=(16, 32))
    assert list(found.held_out["noise"]) == ["16", "32", "whole"]
    for score in found.held_out["noise"].values():
        assert set(score) == {"mlm", "hidden", "loss", "nsp", "near", "masked", "pairs"} and score["pairs"] > 0
    assert column_totals(found.facts)[-1] == len(read_facts()) and found.prompts[1] == 20
    assert all(first <= five <= asked == 20 for first, five, asked in found.everyday.values())
    assert list(found.everyday) == list(dict.fromkeys(sentence.kind for sentence in read_everyday()))
    assert {where: asked for where, (_, asked) in found.repeated.items() if where != "whole sentences"} == {
        "facts": len(read_facts()), "everyday sentences": 200,
    }  # fmt: skip
    assert set(found.overlap) == {"noise", "facts", "everyday sentences"}
    assert found.overlap["noise"] == (1.0, 1.0)
    again = Measures.from_json(found.to_json())
    assert again.to_json() == found.to_json() and again.weights == found.weights
    assert again.reliability is not None and again.facts == found.facts
    assert again.everyday == found.everyday and again.repeated == found.repeated
    with pytest.raises(ValueError, match="this is not a file of measures"):
        Measures.from_json('{"weights": 1}')
    with pytest.raises(ValueError, match="this is not a file of measures"):
        Measures.from_json("[1]")


def test_the_bundled_figures_are_of_the_bundled_weights(mini: LoadedModel) -> None:
    """The card, its figures and the temperature name the weights that they lie beside."""
    folder = Path(mini.report.source)
    stored = Measures.from_json((folder / "measures.json").read_text(encoding="utf-8"))
    assert stored.weights == fingerprint(mini)
    assert stored.reliability is not None
    assert read_temperature(mini) == pytest.approx(stored.reliability.temperature, abs=1e-3)
    card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"<!-- measures of {stored.weights} -->" in card


def test_the_tokenizer_is_enough_for_the_pieces_of_statements(tiny_model_folder: Path) -> None:
    """The answer stands where the gap was."""
    tokenizer = Tokenizer.from_folder(tiny_model_folder)
    statement = measures.MaskedStatement("k", "the [MASK] walked", ("king", "queen"), "s")
    pieces = measures.statement_pieces(tokenizer, [statement])
    assert tokenizer.decode(pieces[0].tolist()) == "the king walked"


def test_answers_are_found_among_the_pieces_of_other_vocabularies(tmp_path: Path) -> None:
    """A vocabulary that keeps the space before a word is judged by the word alone; the end of a word is no answer."""
    loaded = load(str(save_family("roberta", tmp_path, cased=True)), device="cpu")
    encoding = loaded.tokenizer.encode("the cat sat on the [MASK].")
    word, end = (encoding.input_ids[encoding.tokens.index(token)] for token in ("the", "##at"))
    assert str(loaded.tokenizer.backend.id_to_token(word)).startswith("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}")
    for number, answer, right in ((word, "the", True), (word, "cat", False), (end, "at", False)):
        with torch.no_grad():
            loaded.model.cls.predictions.decoder.bias.zero_()[number] = 1000.0
        (guess,) = top_predictions(loaded, [(encoding.text, (answer,))])
        assert (guess.is_correct, guess.in_top_five) == (right, right), (guess.piece, answer)
