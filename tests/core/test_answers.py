"""Fine-tuning for questions: windows over long contexts, a reader that learns, its scores, and its folder."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bert_core
from bert_core import LoadedModel, Tokenizer, best_spans, capture, checkpoint
from bert_core.analysis.spans import answer_positions, context_positions, span_at
from bert_core.refused import Refused
from bert_core.studies.squad import SquadQuestion, exact_match, read_squad, token_f1
from bert_core.training import answers
from bert_core.training.answers import (
    AnswerScores,
    finetune_reader,
    select_tokens,
    split_contexts,
    split_into_windows,
)
from bert_core.training.settings import AnswerSettings
from tests.core.test_families import reference_inputs
from tests.families import FAMILIES, reference_of, save_family, save_tokenizer, sentences
from tests.near import assert_near
from tests.padding import assert_padding_changes_nothing

pytestmark = pytest.mark.slow

QUICK = AnswerSettings(epochs=12, learning_rate=3e-3, max_length=40, stride=8, patience=6)
WHO, WHERE = ("cat", "dog", "king", "queen", "man", "child"), ("city", "house", "river", "door", "capital")
ADJECTIVES = ("old", "new", "big", "small", "red", "blue")


def questions(count: int, seed: int, *, none: bool = False) -> list[dict[str, Any]]:
    """Paragraphs as SQuAD has them: one who ran, sat or went somewhere, asked where; of some nothing is said."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        who, where = draw.choice(WHO), draw.choice(WHERE)
        context = f"the {draw.choice(ADJECTIVES)} {who} {draw.choice(('ran', 'went', 'sat'))}"
        answers = []
        if not (none and draw.random() < 0.4):
            answers = [{"text": f"the {where}", "answer_start": len(context) + 4}]
            context += f" to the {where}"
        context += f" and {draw.choice(('he', 'she'))} was {draw.choice(ADJECTIVES)}"
        asked = {"id": f"{seed}-{number}", "question": f"where was the {who}", "answers": answers}
        found.append({"context": context, "qas": [asked]})
    return found


def write(path: Path, paragraphs: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def run(train: Path, folder: Path, start: Path | str, settings: AnswerSettings = QUICK, **more: Any) -> AnswerScores:
    said: list[str] = []
    more = {"held_out": 0.25, "report": lambda done, what="": said.append(what), **more}
    scores = finetune_reader(train, folder, settings, start=str(start), device="cpu", **more)
    (folder / "said.txt").write_text("\n".join(said), encoding="utf-8")
    return scores


def answers_by(loaded: LoadedModel, path: Path, *, none: bool) -> list[tuple[str, SquadQuestion]]:
    """What a loaded model answers to each question, by a capture each."""
    found = []
    for one in read_squad(path)[0]:
        encoding = loaded.tokenizer.encode(one.question, one.context)
        spans = capture(loaded, encoding).spans
        assert spans is not None
        (best,) = best_spans(encoding, spans, 1)
        nothing = none and span_at(encoding, spans, 0, 0).score > best.score
        found.append(("" if nothing else best.text, one))
    return found


# ---------------------------------------------------------------------------- windows


def test_padding_changes_neither_loss_nor_gradient(tiny_reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32, windows that are padded beyond the longest have the loss and the gradients that they have without."""
    exact, padded = (bert_core.load(str(tiny_reader_folder), device="cpu").task_models["reader"] for _ in range(2))
    assert exact is not None and padded is not None
    rng = np.random.default_rng(1)
    batch = [
        answers.Window(tuple(rng.integers(5, 150, n)), (0,) * n, 0, *sorted(rng.integers(0, n, 2).tolist()))
        for n in (7, 11, 20, 13)
    ]
    assert_padding_changes_nothing(answers, exact.requires_grad_(True), padded.requires_grad_(True), batch, monkeypatch)


@pytest.mark.parametrize("family", ["bert", *(family for family in FAMILIES if family != "bertweet")])
@pytest.mark.parametrize(("max_length", "overlap"), [(24, 0), (24, 5), (40, 11), (400, 3)])
def test_windows_are_those_of_transformers(
    family: str, max_length: int, overlap: int, tmp_path: Path, tiny_model_folder: Path
) -> None:
    """The same tokens and segments in every window, for contexts of ten languages; theirs count what two share."""
    if family == "bert":
        fast: Any = transformers.BertTokenizerFast.from_pretrained(tiny_model_folder)
        tokenizer = Tokenizer.from_folder(tiny_model_folder)
    else:
        save_tokenizer(family, tmp_path, cased=True)
        fast, tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path), Tokenizer.from_folder(tmp_path)
    lines = sentences()
    for number in range(0, len(lines), 7):
        question, context = lines[number][:8], " ".join(lines[number : number + 3])
        whole = tokenizer.encode(question, context, max_length=10**6)
        frame = len(whole) - len(context_positions(whole))
        if frame >= max_length - overlap or sum(side == "A" for side in whole.sides) > (max_length - 4) // 2:
            continue  # a question that we cut
        theirs = fast(
            question, context, truncation="only_second", max_length=max_length, stride=overlap,
            return_overflowing_tokens=True,
        )  # fmt: skip
        ours = split_into_windows(whole, max_length, max_length - frame - overlap)
        parts = [select_tokens(whole, positions) for positions in ours]
        assert [list(part.input_ids) for part in parts] == theirs["input_ids"]
        if "token_type_ids" in theirs:
            assert [list(part.token_type_ids) for part in parts] == theirs["token_type_ids"]


def test_windows_leave_no_piece_out_and_a_long_question_is_cut(tiny_loaded: LoadedModel) -> None:
    """However long the stride, every piece of the context is in a window, none longer than allowed."""
    whole = tiny_loaded.tokenizer.encode("the cat sat " * 50, "the dog ran to london " * 30, max_length=10**6)
    for max_length, stride in ((10, 1), (10, 500), (50, 7), (384, 128), (1000, 3)):
        windows = split_into_windows(whole, max_length, stride)
        assert {place for window in windows for place in window} >= set(context_positions(whole))
        assert max(map(len, windows)) <= max_length and len({tuple(window) for window in windows}) == len(windows)
        asked = [sum(whole.sides[place] == "A" for place in window) for window in windows]
        assert set(asked) == {min(64, (max_length - 3) // 2)}
    with pytest.raises(Refused, match=r"^max_length is 4: at least 5 are needed for one token of each text"):
        split_into_windows(whole, 4, 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_characters_become_pieces_and_come_back(family: str, tmp_path: Path) -> None:
    """Every stretch of words of every context gives pieces whose text is that stretch, or, within a piece, holds it."""
    save_tokenizer(family, tmp_path, cased=True)
    tokenizer = Tokenizer.from_folder(tmp_path)
    for line in sentences()[::5]:
        encoding = tokenizer.encode("who?", line, max_length=10**6)
        words = line.split(" ")
        for first in range(0, len(words), 3):
            text = " ".join(words[first : first + 2])
            start = len(" ".join(words[:first])) + (first > 0)
            assert line[start : start + len(text)] == text
            at = answer_positions(encoding, start, start + len(text))
            assert at[0] <= at[1] and at != (0, 0)
            (begin, _), (_, end) = (encoding.offsets[place] for place in at)
            assert line[begin:end].strip() in (text, line[begin:end].strip()) and text in line[begin:end]
    assert answer_positions(encoding, 10**6, 10**6 + 2) == (0, 0)


# ---------------------------------------------------------------------------- learning


@pytest.mark.parametrize(
    ("none", "settings", "least"),
    [(False, QUICK, 0.8), (True, QUICK, 0.8), (True, dataclasses.replace(QUICK, epochs=2, learning_rate=1e-3), 0)],
    ids=["version 1.1", "version 2.0", "hardly taught"],
)
def test_it_learns_and_the_scores_are_those_of_the_folder(
    none: bool, settings: AnswerSettings, least: float, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """On drawn contexts that it never saw most answers are right, and what is reported is what the folder answers."""
    train = write(tmp_path / "train.json", questions(160, 1, none=none))
    held = write(tmp_path / "held.json", questions(60, 2, none=none))
    scores = run(train, tmp_path / "model", tiny_model_folder, settings, held_out=held)
    loaded = bert_core.load(str(tmp_path / "model"), device="cpu")
    assert loaded.has_reader and loaded.has_mlm and loaded.has_nsp and not loaded.report.unexpected
    answers = answers_by(loaded, held, none=none)
    assert [exact_match(answer, one.answers) for answer, one in answers] == scores.exact.tolist()
    assert [token_f1(answer, one.answers) for answer, one in answers] == scores.f1.tolist()
    assert scores.has_answer.tolist() == [bool(one.answers) for _, one in answers] and scores.has_answer.all() != none
    assert scores.exact.mean() >= least, scores.table()
    assert scores.summary in (tmp_path / "model" / "said.txt").read_text(encoding="utf-8")
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model").eval()
    encoding = loaded.tokenizer.encode("where was the cat", "the old cat ran to the house and he was new")
    expected = theirs(torch.tensor([encoding.input_ids]), token_type_ids=torch.tensor([encoding.token_type_ids]))
    spans = capture(loaded, encoding).spans
    assert spans is not None
    assert_near(spans.start_logits, expected.start_logits[0])
    assert_near(spans.end_logits, expected.end_logits[0])


def test_long_contexts_are_learned_in_windows(tiny_model_folder: Path, tmp_path: Path) -> None:
    """An answer far behind what one window holds is found; windows without it count as none, and do no harm."""
    far = []
    for number, paragraph in enumerate(questions(120, 3)):
        before = "it was old and they were new and " * (number % 7)
        (asked,) = paragraph["qas"]
        (answer,) = asked["answers"]
        answer["answer_start"] += len(before)
        far.append({"context": before + paragraph["context"], "qas": [asked]})
    scores = run(write(tmp_path / "a.json", far), tmp_path / "model", tiny_model_folder)
    assert scores.exact.mean() >= 0.6
    assert "windows of at most 40 tokens" in (tmp_path / "model" / "said.txt").read_text(encoding="utf-8")


def test_two_runs_with_one_seed_are_equal_and_a_stopped_one_goes_on(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Equal weights; a run that was broken off says what it was, and only the same call goes on with it."""
    train = write(tmp_path / "train.json", questions(24, 4))
    settings = AnswerSettings(epochs=2, max_length=40)

    def stop(done: float | None, what: str = "") -> None:
        if what.startswith("epoch 2/2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(train, tmp_path / "a", tiny_model_folder, settings, report=stop)
    with pytest.raises(Refused, match=r"holds a run with other settings \(stride: 128, not 64\)"):
        run(train, tmp_path / "a", tiny_model_folder, AnswerSettings(epochs=2, max_length=40, stride=64))
    for name in ("a", "b"):
        run(train, tmp_path / name, tiny_model_folder, settings)
    one, other = (checkpoint.read_weights(tmp_path / name) for name in ("a", "b"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(Refused, match="already holds a model"):
        run(train, tmp_path / "a", tiny_model_folder, settings)


def test_a_reader_goes_on_and_a_classifier_becomes_one(
    tiny_reader_folder: Path, tiny_classifier_folder: Path, tmp_path: Path
) -> None:
    """A reader's own scores are where training begins; classes are left behind, and their names too."""
    train = write(tmp_path / "train.json", questions(8, 5))
    still = AnswerSettings(epochs=1, max_length=40, learning_rate=1e-12)
    run(train, tmp_path / "on", tiny_reader_folder, still)
    before, after = (checkpoint.read_weights(folder) for folder in (tiny_reader_folder, tmp_path / "on"))
    assert_near(after["qa_outputs.weight"], before["qa_outputs.weight"])
    run(train, tmp_path / "new", tiny_classifier_folder, still)
    loaded = bert_core.load(str(tmp_path / "new"), device="cpu")
    assert loaded.has_reader and "classifier" not in loaded.task_models and len(loaded.config.labels) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_it_goes_on_in_the_familys_own_format(family: str, tmp_path: Path) -> None:
    """A reader trained from a model of the family is one of the family, for us and for transformers."""
    folder = save_family(family, tmp_path / "start", cased=True)
    paragraphs = []
    for number, line in enumerate(sentences()[:12]):
        word = line.split(" ")[0]
        answers = [{"text": word, "answer_start": 0}]
        paragraphs.append({"context": line, "qas": [{"id": number, "question": "The first word?", "answers": answers}]})
    run(write(tmp_path / "a.json", paragraphs), tmp_path / "made", folder, AnswerSettings(epochs=1, max_length=64))
    made = bert_core.load(tmp_path / "made", device="cpu")
    assert (
        made.has_reader and made.has_mlm and made.config.family.name == reference_of(family, folder).config.model_type
    )
    encoding = made.tokenizer.encode("Who?", "The old man walked along the river.")
    theirs = reference_of(family, tmp_path / "made", "ForQuestionAnswering")(**reference_inputs(made, encoding))
    spans = capture(made, encoding).spans
    assert spans is not None
    assert_near(spans.start_logits, theirs.start_logits[0], 1e-4)


# ---------------------------------------------------------------------------- what is judged, and what is refused


def test_the_table_parts_what_has_an_answer() -> None:
    """All questions, and where some have none both kinds by themselves."""
    scores = AnswerScores(np.array([1.0, 0, 0, 1]), np.array([1.0, 0.5, 0, 1]), np.array([True] * 3 + [False]), 0.5)
    assert [line.split() for line in scores.table()] == [
        ["questions", "exact", "F1", "number"], ["all", "50.0%", "62.5%", "4"],
        ["with", "an", "answer", "33.3%", "50.0%", "3"], ["without", "100.0%", "100.0%", "1"],
    ]  # fmt: skip
    assert len(AnswerScores(np.ones(2), np.ones(2), np.ones(2, bool), 0.5).table()) == 2
    assert scores.rank == (0.625, 0.5, -0.5) and "exact match 50.0%, F1 62.5%" in scores.summary


def test_contexts_are_held_out_as_a_whole() -> None:
    """No context has questions on both sides; the draw is that of the seed, and at least one is on either side."""
    every = [SquadQuestion(f"{a}{b}", "q", f"context {a}") for a in range(10) for b in range(a + 1)]
    for share in (0.01, 0.3, 0.99):
        rest, held = split_contexts(every, share, 0)
        assert {one.context for one in rest}.isdisjoint({one.context for one in held}) and rest and held
        assert sorted([*rest, *held], key=every.index) == every
        assert split_contexts(every, share, 0) == (rest, held)
    assert split_contexts(every, 0.3, 0) != split_contexts(every, 0.3, 1)
    with pytest.raises(Refused, match=r"^there is a single context: a held-out share needs two"):
        split_contexts(every[:1], 0.5, 0)
    with pytest.raises(Refused, match=r"^the held-out share is 1: it must be greater than 0 and less than 1$"):
        split_contexts(every, 1.0, 0)


def test_what_cannot_be_used_is_refused(tiny_model_folder: Path, tmp_path: Path) -> None:
    """An answer that is not there, unless it is left out; what cannot be read; a stride of none."""
    paragraphs = questions(8, 6)
    paragraphs[3]["qas"][0]["answers"][0]["answer_start"] += 1
    train = write(tmp_path / "train.json", paragraphs)
    with pytest.raises(Refused, match=r"of '6-3'\): correct them, or leave them out with --skip-broken$"):
        run(train, tmp_path / "a", tiny_model_folder)
    run(train, tmp_path / "a", tiny_model_folder, AnswerSettings(epochs=1, max_length=40), skip_broken=True)
    said = (tmp_path / "a" / "said.txt").read_text(encoding="utf-8")
    assert "1 questions of train.json are left out: their answers are not in their contexts" in said
    paragraphs[2]["qas"][0]["question"] = "\u200b"
    with pytest.raises(Refused, match=r"^the question '6-2': "):
        run(write(train, paragraphs), tmp_path / "b", tiny_model_folder, skip_broken=True)
    unread = {"id": "none", "question": "who", "answers": [{"text": "\u200b", "answer_start": 4}]}
    odd = [*questions(8, 6), {"context": "the \u200b cat", "qas": [unread]}]
    with pytest.raises(
        Refused, match=r"^no token contains a character of the answer '.u200b' to the question 'none': leave"
    ):
        run(write(train, odd), tmp_path / "b", tiny_model_folder)
    with pytest.raises(Refused, match=r"^stride is 0: it must be a whole number of at least 1$"):
        AnswerSettings(stride=0)
    with pytest.raises(Refused, match="too long"):
        run(train, tmp_path / "b", tiny_model_folder, AnswerSettings(max_length=1000), skip_broken=True)
