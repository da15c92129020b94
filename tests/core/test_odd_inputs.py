"""What a caller may give by mistake: every public function answers rightly, or refuses in one sentence of ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_core
from bert_core import BertConfig, Encoding, LoadedModel, PruningPlan, Refused, Target, Tokenizer, loading
from tests.near import assert_near

ODD: tuple[Any, ...] = (
    None, -1, 10**9, 10**30, math.nan, math.inf, 0.5, "x", "", b"x", True, [], [[]], [None], ["x"], [-1], [10**9],
    [0.5], [True], {}, {"a": 1}, object(), np.int64(1), np.array([1, 2]), np.array([0.5]), np.zeros((3, 3)),
    np.full((2, 4), math.nan), np.array("x"), torch.zeros(2, 4), Path("nothing"), range(2), {1}, len, [(0, 0)],
    [(9, 9)], [("a", "b")], [(0,)], [(0.0, 1)], [[0, 1, 2]],
)  # fmt: skip


@dataclass
class Asked:
    """A model, a text of it, and a question of that text."""

    loaded: LoadedModel
    encoding: Encoding
    target: Target

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self.loaded.tokenizer

    @property
    def config(self) -> BertConfig:
        """The model's."""
        return self.loaded.config

    @property
    def scores(self) -> np.ndarray:
        """One of a method, for every token."""
        return np.arange(len(self.encoding), dtype=float)[None]


@pytest.fixture(scope="module")
def asked(tiny_loaded: LoadedModel) -> Asked:
    """The tiny model, asked for one hidden word."""
    encoding = tiny_loaded.tokenizer.encode("the [MASK] sat on a mat.", "it was old.")
    return Asked(tiny_loaded, encoding, Target("mlm", encoding.mask_positions[0], tiny_loaded.tokenizer.id_of("cat")))


Door = Callable[[Asked, Any], object]


def capture_for(a: Asked, target: Any) -> object:
    return bert_core.capture(a.loaded, a.encoding, target=target)


DOORS: dict[str, Door] = {
    "load": lambda a, v: bert_core.load(v, device="cpu", allow_hub=False),
    "load device": lambda a, v: bert_core.best_device(v),
    "load_decoder": lambda a, v: bert_core.load_decoder(v, allow_hub=False),
    "load_captioner": lambda a, v: bert_core.load_captioner(v),
    "save": lambda a, v: bert_core.save(v, "nowhere"),
    "save to": lambda a, v: bert_core.save(a.loaded, a.loaded.report.source if isinstance(v, str | Path) else v),
    "from_folder": lambda a, v: Tokenizer.from_folder(v),
    "from_json": lambda a, v: BertConfig.from_json(v),
    "from_dict": lambda a, v: BertConfig.from_dict(v),
    "with_labels": lambda a, v: a.config.with_labels(v),
    "encode": lambda a, v: a.tokenizer.encode(v),
    "encode pair": lambda a, v: a.tokenizer.encode("the cat", v),
    "encode max_length": lambda a, v: a.tokenizer.encode("the cat", max_length=v),
    "mask_words": lambda a, v: a.tokenizer.mask_words(a.encoding, v),
    "mask_words of": lambda a, v: a.tokenizer.mask_words(v, [0]),
    "id_of": lambda a, v: a.tokenizer.id_of(v),
    "token_of": lambda a, v: a.tokenizer.token_of(v),
    "encode_plain": lambda a, v: a.tokenizer.encode_plain(v),
    "decode": lambda a, v: a.tokenizer.decode(v),
    "pieces_of": lambda a, v: a.encoding.pieces_of(v),
    "word_text": lambda a, v: a.encoding.word_text(v),
    "hidden_piece": lambda a, v: a.encoding.hidden_piece(v),
    "target": capture_for,
    "target kind": lambda a, v: capture_for(a, Target(v, 2, 9)),
    "target position": lambda a, v: capture_for(a, Target("mlm", v, 9)),
    "target token_id": lambda a, v: capture_for(a, Target("mlm", 2, v)),
    "target against": lambda a, v: capture_for(a, Target("contrast", 2, 9, against=v)),
    "target label": lambda a, v: capture_for(a, Target("class", label=v)),
    "target pieces": lambda a, v: capture_for(a, Target("joint", pieces=v)),
    "word_target tokenizer": lambda a, v: bert_core.word_target(v, a.encoding, "cat"),
    "word_target text": lambda a, v: bert_core.word_target(a.tokenizer, v, "cat"),
    "word_target word": lambda a, v: bert_core.word_target(a.tokenizer, a.encoding, v),
    "word_target position": lambda a, v: bert_core.word_target(a.tokenizer, a.encoding, "cat", position=v),
    "word_target against": lambda a, v: bert_core.word_target(a.tokenizer, a.encoding, "cat", against=v),
    "loss_target": lambda a, v: bert_core.loss_target(a.encoding, v),
    "capture model": lambda a, v: bert_core.capture(v, a.encoding),
    "capture": lambda a, v: bert_core.capture(a.loaded, v),
    "capture positions": lambda a, v: bert_core.capture(a.loaded, a.encoding, positions=v),
    "capture head_mask": lambda a, v: bert_core.capture(a.loaded, a.encoding, head_mask=v),
    "capture top_k": lambda a, v: bert_core.capture(a.loaded, a.encoding, top_k=v),
    "captures": lambda a, v: bert_core.captures(a.loaded, v),
    "captures of": lambda a, v: bert_core.captures(a.loaded, [a.encoding, v]),
    "head_mask_without": lambda a, v: bert_core.head_mask_without(a.config, v),
    "layer_states": lambda a, v: bert_core.layer_states(a.loaded, v),
    "logit_lens": lambda a, v: bert_core.logit_lens(a.loaded, v),
    "logit_lens positions": lambda a, v: bert_core.logit_lens(a.loaded, a.encoding, positions=v),
    "logit_lens followed": lambda a, v: bert_core.logit_lens(a.loaded, a.encoding, followed=v),
    "logit_lens top_k": lambda a, v: bert_core.logit_lens(a.loaded, a.encoding, top_k=v),
    "ablate_heads": lambda a, v: bert_core.ablate_heads(a.loaded, v),
    "ablate_heads positions": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, positions=v),
    "ablate_heads method": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, method=v),
    "ablate_heads reference": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, method="mean", reference=v),
    "ablate_heads batch": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, batch_tokens=v),
    "ablate_heads report": lambda a, v: bert_core.ablate_heads(a.loaded, a.encoding, report=None if v is len else v),
    "walk": lambda a, v: bert_core.walk(a.loaded, v, 0),
    "walk layer": lambda a, v: bert_core.walk(a.loaded, a.encoding, v),
    "walk position": lambda a, v: bert_core.walk(a.loaded, a.encoding, 0, position=v),
    "walk pads": lambda a, v: bert_core.walk(a.loaded, a.encoding, 0, pads=v),
    "walk engine": lambda a, v: bert_core.walk(a.loaded, a.encoding, 0, engine=v),
    "score_pairs": lambda a, v: bert_core.score_pairs(a.loaded, v),
    "score_pairs pair": lambda a, v: bert_core.score_pairs(a.loaded, [v]),
    "score_pairs second": lambda a, v: bert_core.score_pairs(a.loaded, [("the cat", v)]),
    "token_scores": lambda a, v: bert_core.token_scores(a.loaded, v, a.target, ["saliency"]),
    "token_scores target": lambda a, v: bert_core.token_scores(a.loaded, a.encoding, v, ["attention"]),
    "token_scores methods": lambda a, v: bert_core.token_scores(a.loaded, a.encoding, a.target, v),
    "token_scores run": lambda a, v: bert_core.token_scores(a.loaded, a.encoding, a.target, ["attention"], run=v),
    "layer_scores": lambda a, v: bert_core.layer_scores(a.loaded, a.encoding, a.target, v),
    "faithfulness": lambda a, v: bert_core.faithfulness(a.loaded, a.encoding, a.target, v),
    "faithfulness baseline": lambda a, v: bert_core.faithfulness(
        a.loaded, a.encoding, a.target, a.scores, baseline=v, random_rankings=2
    ),
    "faithfulness seed": lambda a, v: bert_core.faithfulness(
        a.loaded, a.encoding, a.target, a.scores, random_rankings=2, seed=v
    ),
    "steps": lambda a, v: bert_core.integrated_gradients(a.loaded, a.encoding, a.target, steps=v),
    "saliency": lambda a, v: bert_core.saliency(a.loaded, a.encoding, v),
    "occlusion": lambda a, v: bert_core.occlusion(a.loaded, a.encoding, v),
    "decompx": lambda a, v: bert_core.decompx(a.loaded, a.encoding, v),
    "alti": lambda a, v: bert_core.alti(a.loaded, v),
    "values_without": lambda a, v: bert_core.values_without(a.loaded, a.encoding, a.target, v),
    "pseudo_log_likelihood": lambda a, v: bert_core.pseudo_log_likelihood(a.loaded, v),
    "head_vectors": lambda a, v: bert_core.head_vectors(a.loaded, v, 0, 0),
    "head_vectors layer": lambda a, v: bert_core.head_vectors(a.loaded, a.encoding, v, 0),
    "head_vectors head": lambda a, v: bert_core.head_vectors(a.loaded, a.encoding, 0, v),
    "pruned": lambda a, v: bert_core.pruned(a.loaded, v),
    "pruned model": lambda a, v: bert_core.pruned(v, []),
    "zero_filled": lambda a, v: bert_core.zero_filled(v),
    "propose_plan": lambda a, v: bert_core.propose_plan(a.loaded, v, "importance"),
    "propose_plan method": lambda a, v: bert_core.propose_plan(a.loaded, [], v),
    "plan": lambda a, v: PruningPlan.from_json(v),
    "read_table": lambda a, v: bert_core.read_table(v, "heads.csv"),
    "read_table name": lambda a, v: bert_core.read_table(b"layer,head", v),
    "read_curve": lambda a, v: bert_core.read_curve(v),
    "read_judgements": lambda a, v: bert_core.read_judgements(v),
    "read_pairs": lambda a, v: bert_core.read_pairs(v),
    "read_translators": lambda a, v: bert_core.read_translators(v),
    "rollout": lambda a, v: bert_core.attention_rollout(v),
    "flow queries": lambda a, v: bert_core.attention_flow(np.full((2, 1, 3, 3), 1 / 3), v),
    "describe": lambda a, v: bert_core.describe(v, np.zeros((8, 8, 3), np.uint8)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("door", DOORS)
def test_every_door_answers_or_refuses(
    door: str, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong type, number, shape or nothing at all: an answer, or one line of ours that names what was given."""
    monkeypatch.chdir(tmp_path)
    for value in ODD:
        try:
            DOORS[door](asked, value)
        except Refused as error:
            sentence = str(error)
        else:
            continue
        assert "\n" not in sentence and 10 < len(sentence) < 700, (value, sentence)
    assert list(tmp_path.iterdir()) == []


def test_numpy_numbers_are_numbers(asked: Asked) -> None:
    """NumPy's whole numbers and arrays stand wherever numbers and lists of them do, with the same answers."""
    loaded, encoding = asked.loaded, asked.encoding
    one, other = np.int64(1), np.array([2, 3])
    target = Target("mlm", np.int64(2), np.uint16(asked.target.token_id or 0))  # type: ignore[arg-type]
    assert target == Target("mlm", 2, asked.target.token_id) and type(target.position) is int
    assert Target("joint", pieces=np.array([[1, 2], [3, 4]])).pieces == ((1, 2), (3, 4))  # type: ignore[arg-type]
    first = bert_core.capture(loaded, encoding, target=target, positions=other, top_k=one)  # type: ignore[arg-type]
    second = bert_core.capture(loaded, encoding, target=asked.target, positions=[2, 3], top_k=1)
    assert [p.position for p in first.predictions] == [2, 3] and first.target_value == second.target_value
    assert first.predictions[0].top == second.predictions[0].top
    heads = np.array([[0, 1], [1, 3]])
    assert bert_core.head_mask_without(asked.config, heads).sum() == 6
    assert bert_core.pruned(loaded, heads).model.pruned_heads == {0: (1,), 1: (3,)}
    assert bert_core.walk(loaded, encoding, one).layer == 1  # type: ignore[arg-type]
    assert bert_core.head_vectors(loaded, encoding, one, np.array(2)).head == 2  # type: ignore[arg-type]
    assert asked.tokenizer.decode(np.array([5, 6])) == asked.tokenizer.decode([5, 6])
    assert asked.tokenizer.mask_words(encoding, np.array([0])) == asked.tokenizer.mask_words(encoding, [0])
    assert asked.config.replace(vocab_size=np.int64(200)).to_dict()["vocab_size"] == 200


def test_paths_stand_for_names(tiny_model_folder: Path, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """A model is loaded from a path, and saved to one, as by its text."""
    assert bert_core.load(tiny_model_folder, device="cpu").name == str(tiny_model_folder)
    place = bert_core.save(tiny_loaded, tmp_path / "again.zip")
    assert bert_core.load(place, device="cpu").report.missing == ()
    with pytest.raises(Refused, match="is an encoder, which reads a text as a whole"):
        bert_core.load_decoder(tiny_model_folder)
    captioner = loading.ASSETS / "headlight-shapes"
    assert bert_core.load_captioner(captioner).name == str(captioner)
    with pytest.raises(Refused, match="name is 3: it must be of type str or PathLike"):
        bert_core.load(3)  # type: ignore[arg-type]


def test_a_text_of_another_vocabulary_is_refused(asked: Asked) -> None:
    """A piece that the model has no row for is named, wherever a text is read."""
    foreign = bert_core.Tokenizer.from_folder(loading.ASSETS / "headlight-mini").encode("Paris was large.")
    for door in ("capture", "captures of", "walk", "layer_states", "head_vectors", "alti"):
        with pytest.raises(Refused, match=r"the vocabulary of .* has 0 to .* encode it with this model's tokenizer"):
            DOORS[door](asked, foreign)


# ---------------------------------------------------------------------------- drawn at random

numbers = st.one_of(
    st.integers(-3, 20), st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=3),
    st.integers(0, 12).map(np.int64), st.integers(0, 12).map(np.array), st.binary(max_size=2),
)  # fmt: skip
lists = st.one_of(
    st.lists(st.integers(0, 9), max_size=6), st.lists(numbers, max_size=4), numbers, st.lists(st.lists(numbers)),
    st.lists(st.integers(-1, 9), max_size=6).map(np.array),
)  # fmt: skip
gates = st.one_of(
    st.none(), st.lists(st.lists(st.sampled_from([0, 1, 0.5]), min_size=4, max_size=4), min_size=2, max_size=2),
    st.lists(st.lists(st.floats(), max_size=4), max_size=3), lists,
)  # fmt: skip
pairs = st.one_of(st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 150)), max_size=4), lists)
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["the cat [MASK] on a mat.", "[MASK] [MASK]", "a", " "]), numbers
)
often = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def or_refused(answer: Callable[[], Any]) -> Any:
    """What comes of it, or None where it is refused; anything else that is raised fails the test."""
    try:
        return answer()
    except Refused as error:
        sentence = str(error)
    assert "\n" not in sentence and sentence, sentence
    return None


@often
@given(text=texts, pair=texts, length=numbers)
def test_any_text_is_encoded_or_refused(asked: Asked, text: Any, pair: Any, length: Any) -> None:
    """As many of everything as there are tokens, within the length, each offset inside its text."""
    found = or_refused(lambda: asked.tokenizer.encode(text, pair, max_length=length))
    if found is not None:
        assert len(found) == len(found.input_ids) == len(found.offsets) == len(found.words) <= max(length, 3)
        assert all(0 <= number < asked.config.vocab_size for number in found.input_ids)
        for side, (start, end) in zip(found.sides, found.offsets, strict=True):
            assert 0 <= start <= end <= len({"A": text, "B": pair}.get(side, ""))


@often
@given(kind=st.sampled_from(["mlm", "contrast", "joint", "loss", "nsp", "class", "x"]), positions=lists, mask=gates,
       at=numbers, token=numbers, against=numbers, label=numbers, pieces=pairs, top=numbers)  # fmt: skip
def test_any_question_is_answered_or_refused(
    asked: Asked, kind: str, positions: Any, mask: Any, at: Any, token: Any, against: Any, label: Any, pieces: Any,
    top: Any,
) -> None:  # fmt: skip
    """Maps whose rows sum to 1, finite gradients, and probabilities of all pieces."""
    target = or_refused(lambda: Target(kind, at, token, label, against, pieces))
    for question in (None, target):
        run = or_refused(
            lambda question=question: bert_core.capture(
                asked.loaded, asked.encoding, target=question, positions=positions, head_mask=mask, top_k=top
            )
        )
        if run is not None:
            tokens = len(asked.encoding)
            assert run.attention.shape == (2, 4, tokens, tokens)
            assert_near(run.attention.sum(-1), 1.0)
            assert (run.gradient is None) == (question is None) and np.isfinite(run.target_value or 0.0)
            assert run.gradient is None or np.isfinite(run.gradient).all()
            for prediction in run.predictions:
                assert_near(prediction.probabilities.sum(), 1.0, 1e-4)


@often
@given(some=st.lists(texts, max_size=4), mask=gates)
def test_any_texts_are_captured_together_or_refused(asked: Asked, some: list[Any], mask: Any) -> None:
    """For each text that can be encoded maps of its own length, whose rows sum to 1."""
    encodings = [found for text in some if (found := or_refused(lambda text=text: asked.tokenizer.encode(text)))]
    runs = or_refused(lambda: bert_core.captures(asked.loaded, encodings, head_mask=mask))
    for run, encoding in zip(runs or [], encodings, strict=runs is not None):
        assert run.attention.shape == (2, 4, len(encoding), len(encoding))
        assert_near(run.attention.sum(-1), 1.0)


@often
@given(heads=pairs)
def test_any_heads_are_switched_off_or_refused(asked: Asked, heads: Any) -> None:
    """Gates of 0 and 1, as many zeros as there are different heads."""
    found = or_refused(lambda: bert_core.head_mask_without(asked.config, heads))
    if found is not None:
        assert found.shape == (2, 4) and (found == 0).sum() == len({tuple(map(int, head)) for head in heads})
