"""Fine-tuning for questions: a reader that finds the answer in a context, learned from files of SQuAD's form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bert_core.analysis.spans import answer_positions, best_spans, context_positions, span_at, span_probabilities
from bert_core.loading import LoadedModel, best_device, model_folder
from bert_core.modeling import BertForQuestionAnswering, QuestionAnsweringOutput, span_loss
from bert_core.pooling import read_pooling
from bert_core.progress import Progress, print_progress
from bert_core.records import SpanPrediction
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.studies.squad import SquadQuestion, exact_match, read_squad, token_f1
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding, Tokenizer
from bert_core.training.tuning import (
    FinetuneSettings,
    Task,
    batches_by_length,
    finetune_identity,
    is_unfinished,
    load_start,
    model_inputs,
    run_finetuning,
    training_width,
)

OUTPUT_LABELS = ("LABEL_0", "LABEL_1")  # names of a reader's two scores, in published files
MAX_QUESTION_PIECES = 64  # pieces, as in the recipe of Devlin 2019
_NO_TRUNCATION = 2**31  # no text is cut


@dataclass(frozen=True)
class AnswerSettings(FinetuneSettings):
    """As FinetuneSettings; a question and a context that are longer than max_length are read in several windows.

    stride: pieces from the beginning of one window to that of the next.
    """

    max_length: int = 384
    stride: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1:
            raise Refused(f"stride is {self.stride}: 1 is the least")


@compared_by_value
@dataclass(frozen=True)
class AnswerScores:
    """How a reader does on questions that it was not trained on, by SQuAD's measures.

    exact, f1: (question,), of each the best over the answers that were given. answered: (question,), whether its
    context holds an answer. loss: mean of the two cross-entropies over all windows, in nats.
    """

    exact: np.ndarray
    f1: np.ndarray
    has_answer: np.ndarray
    loss: float

    @property
    def rank(self) -> tuple[float, ...]:
        """What decides which weights are better: F1, then exact matches, then the loss."""
        return float(self.f1.mean()), float(self.exact.mean()), -self.loss

    @property
    def summary(self) -> str:
        """The most telling figures, as a part of a sentence."""
        return f"exact match {self.exact.mean():.1%}, F1 {self.f1.mean():.1%}, loss {self.loss:.3f}"

    @property
    def metrics(self) -> Mapping[str, object]:
        """The figures as the log holds them."""
        return {
            "exact": round(float(self.exact.mean()), 5), "f1": round(float(self.f1.mean()), 5),
            "loss": round(self.loss, 5),
        }  # fmt: skip

    def table(self) -> list[str]:
        """The figures as lines of text: a header, then all questions, and apart those with an answer and without."""
        parts = {"all": np.ones_like(self.has_answer), "with an answer": self.has_answer, "without": ~self.has_answer}
        lines = [f"{'questions':<14}    exact      F1   number"]
        for name, which in parts.items():
            if which.any() and not (name == "with an answer" and which.all()):
                exact, shared = self.exact[which].mean(), self.f1[which].mean()
                lines.append(f"{name:<14} {exact:>8.1%} {shared:>7.1%} {which.sum():>8,}")
        return lines


@dataclass(frozen=True)
class Window:
    """A question with a part of its context, as the model reads it.

    question: its number. start, end: positions of the first and the last piece of the answer; 0 and 0 where it is not
    in this part as a whole, or not at all. encoding: the same with its texts; of windows that are judged.
    """

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    question: int
    start: int
    end: int
    encoding: Encoding | None = None


def finetune_reader(
    train: Path,
    folder: Path,
    settings: AnswerSettings,
    *,
    held_out: Path | float = 0.1,
    start: str = "headlight-mini",
    keep: int = 0,
    skip_broken: bool = False,
    device: str | None = None,
    report: Progress = print_progress,
) -> AnswerScores:
    """Train a reader on a file of questions in SQuAD's form, and keep the weights that do best on held-out questions.

    held_out: another file, or the share of contexts to hold out. skip_broken: leave out questions whose answers do not
    stand in their contexts. Where some have no answer, "there is none" is an answer that it may give; else it may not.
    The rest is as for `finetune`.
    Source: Devlin 2019, sections 4.2 and 4.3 (arXiv:1810.04805).
    """
    here = best_device(device)
    questions = _read_questions(train, skip_broken, report)
    if isinstance(held_out, Path):
        asked = _read_questions(held_out, skip_broken, report)
    else:
        questions, asked = split_contexts(questions, held_out, settings.seed)

    source, _ = read_pooling(model_folder(start))
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # the weights that the start does not have
    origin, reader = load_start(
        source, settings, OUTPUT_LABELS, BertForQuestionAnswering, lambda family: family.question_answering,
        TASK_HEADS["reader"].is_in_checkpoint,
    )  # fmt: skip
    tokenizer.check_against(origin.config)
    identity = finetune_identity(
        settings, (origin, reader), tokenizer, train, held_out, answers=True, skip_broken=skip_broken
    )  # fmt: skip
    is_unfinished(folder, identity)  # before examples are encoded
    none = sum(not one.answers for one in questions)
    report(
        None,
        f"{len(questions):,} questions to train on, {len(asked):,} held out; "
        + (f"{none:,} have no answer" if none else "each has an answer"),
    )
    if seen := len({one.context for one in asked} & {one.context for one in questions}):
        report(None, f"{seen:,} held-out contexts also stand among those to train on: the scores flatter the model")
    # The texts of windows that are learned from are needed no more.
    training = [dataclasses.replace(window, encoding=None) for window in _windows(questions, tokenizer, settings)]
    held = list(_windows(asked, tokenizer, settings))
    if len(training) > len(questions):
        report(None, f"{len(training):,} windows of at most {settings.max_length} tokens hold the training contexts")
    pad = tokenizer.pad_id
    task = Task(
        origin, reader, training, held,
        partial(_loss, reader, pad=pad, device=here),
        lambda: evaluate_reader(
            reader, asked, held, allow_no_answer=none > 0, pad=pad, device=here, batch=settings.batch
        ),
    )  # fmt: skip
    return run_finetuning(task, settings, folder, source, identity, pooled=False, keep=keep, device=here, report=report)


def reader_scores(
    loaded: LoadedModel,
    path: Path,
    *,
    stride: int = AnswerSettings.stride,
    skip_broken: bool = False,
    report: Progress = print_progress,
) -> AnswerScores:
    """How a reader does on a file of questions in SQuAD's form, as `finetune_reader` judges; long contexts in windows.

    Raises Refused for a model without a trained reader, and as `read_squad`.
    """
    loaded.require_head("reader", "`headlight finetune` can teach it")
    questions = _read_questions(path, skip_broken, report)
    longest = min(AnswerSettings.max_length, loaded.config.max_position_embeddings)
    windows = list(_windows(questions, loaded.tokenizer, AnswerSettings(max_length=longest, stride=stride)))
    none = any(not one.answers for one in questions)
    reader = cast("BertForQuestionAnswering", loaded.task_models["reader"])
    return evaluate_reader(
        reader, questions, windows, allow_no_answer=none, pad=loaded.tokenizer.pad_id, device=loaded.device
    )


def _read_questions(path: Path, skip_broken: bool, report: Progress) -> list[SquadQuestion]:
    found, left_out = read_squad(path, skip_broken=skip_broken)
    if left_out:
        report(None, f"{left_out:,} questions of {path.name} are left out: their answers are not in their contexts")
    return found


def split_contexts(
    questions: Sequence[SquadQuestion], share: float, seed: int
) -> tuple[list[SquadQuestion], list[SquadQuestion]]:
    """A share of the contexts, drawn with a seed, is held out with all their questions; those to train on come first.

    Raises Refused for a share that is not between 0 and 1, or a single context.
    """
    if not 0 < share < 1:
        raise Refused(f"the held-out share is {share:g}: it is more than 0 and less than 1")
    contexts = list(dict.fromkeys(one.context for one in questions))
    if len(contexts) < 2:
        raise Refused("there is one context: a held-out share needs two, one to train on and one to ask of")
    size = min(max(round(share * len(contexts)), 1), len(contexts) - 1)
    drawn = np.random.default_rng([seed, 2]).permutation(len(contexts))[:size]
    held = {contexts[number] for number in drawn.tolist()}
    rest = [one for one in questions if one.context not in held]
    return rest, [one for one in questions if one.context in held]


# ---------------------------------------------------------------------------- windows


def split_into_windows(encoding: Encoding, max_length: int, stride: int) -> list[list[int]]:
    """The tokens of each window over a long context: the question, and a part of the context that a model can read.

    encoding: of both, not cut. max_length: tokens of a window. stride: context pieces from one window's beginning to
    the next's; none is left out between two, so that it is at most what a window holds of the context.
    A question keeps its first pieces, at most 64 and half of the room.
    Raises Refused where there is no room for a piece of each.
    Source: Devlin 2019, and its run_squad.py.
    """
    places = context_positions(encoding)
    asked = [position for position, side in enumerate(encoding.sides) if side == "A"]
    frame = len(encoding) - len(asked) - len(places)
    if max_length < frame + 2:
        raise Refused(f"max_length {max_length} leaves no room for a token of each text: {frame + 2} is the least")
    between, behind = range(asked[-1] + 1, places[0]), range(places[-1] + 1, len(encoding))
    head = [*range(asked[0]), *asked[: min(MAX_QUESTION_PIECES, (max_length - frame) // 2)], *between]
    room = max_length - len(head) - len(behind)
    step = min(stride, room)
    starts = range(0, max(1, len(places) - room + step), step)
    return [[*head, *places[first : first + room], *behind] for first in starts]


def select_tokens(encoding: Encoding, positions: Sequence[int]) -> Encoding:
    """The same texts, of which these tokens are read."""
    names = ("tokens", "input_ids", "token_type_ids", "offsets", "words", "sides")
    some: dict[str, Any] = {name: tuple(map(getattr(encoding, name).__getitem__, positions)) for name in names}
    return dataclasses.replace(encoding, **some)


def _windows(questions: Sequence[SquadQuestion], tokenizer: Tokenizer, settings: AnswerSettings) -> Iterator[Window]:
    """The windows of all questions. Raises Refused, with its id, for one that cannot be read."""
    for number, one in enumerate(questions):
        try:
            whole = tokenizer.encode(one.question, one.context, max_length=_NO_TRUNCATION)
            windows = split_into_windows(whole, settings.max_length, settings.stride)
        except Refused as error:
            raise Refused(f"the question {one.id!r:.60}: {error}") from error
        places = answer_positions(whole, one.start, one.start + len(one.answers[0])) if one.answers else (0, 0)
        if one.answers and places == (0, 0):  # which would be learned as "there is none"
            raise Refused(
                f"the question {one.id!r:.60}: no token has a character of its answer {one.answers[0]!r:.40}: leave "
                "the question out, or give an answer that can be read"
            )
        for positions in windows:
            there = all(place in positions for place in places)
            start, end = (positions.index(place) if there else 0 for place in places)
            encoding = select_tokens(whole, positions)
            yield Window(encoding.input_ids, encoding.token_type_ids, number, start, end, encoding)


# ---------------------------------------------------------------------------- learning and judging


def _span_logits(
    reader: BertForQuestionAnswering,
    batch: Sequence[Window],
    pad: int,
    device: torch.device,
    width: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Both logits of every token (batch, longest), and the loss. width: as `inputs_of` takes it.

    The loss is over the tokens of the longest window, whatever the width.
    """
    start, end = (torch.tensor([getattr(one, name) for one in batch], device=device) for name in ("start", "end"))
    outputs: QuestionAnsweringOutput = reader(**model_inputs(batch, reader.config, pad, device, width))
    assert outputs.start_logits is not None and outputs.end_logits is not None
    longest = max(len(window.input_ids) for window in batch)
    start_logits, end_logits = outputs.start_logits[:, :longest], outputs.end_logits[:, :longest]
    return start_logits, end_logits, span_loss(start_logits, end_logits, start, end)


def _loss(reader: BertForQuestionAnswering, batch: Sequence[Window], *, pad: int, device: torch.device) -> Tensor:
    return _span_logits(reader, batch, pad, device, training_width(batch, reader.config, device))[-1]


@torch.no_grad()
def evaluate_reader(
    reader: BertForQuestionAnswering,
    questions: Sequence[SquadQuestion],
    held: Sequence[Window],
    *,
    allow_no_answer: bool,
    pad: int,
    device: torch.device,
    batch: int = 16,
) -> AnswerScores:
    """Scores on questions, in the precision in which the app runs the model.

    held: their windows. none: whether "there is no answer" may be answered. An answer is the best of all windows; there
    is none where even the window that believes so least gives that a higher score.
    """
    reader.eval()
    best: dict[int, tuple[float, str]] = {}
    nothing: dict[int, float] = {}
    loss = 0.0
    for windows in batches_by_length(held, batch):
        start_logits, end_logits, mean = _span_logits(reader, windows, pad, device)
        loss += mean.item() * len(windows)
        logits = torch.stack([start_logits, end_logits], 1).cpu().numpy()
        for row, window in enumerate(windows):
            encoding, number = window.encoding, window.question
            assert encoding is not None  # of windows that are judged
            scores = logits[row, :, : len(encoding)]
            spans = SpanPrediction(*scores, *span_probabilities(scores, encoding))
            (likeliest,) = best_spans(encoding, spans, 1)
            best[number] = max(best.get(number, (-np.inf, "")), (likeliest.score, likeliest.text))
            nothing[number] = min(nothing.get(number, np.inf), span_at(encoding, spans, 0, 0).score)
    answers = [
        "" if allow_no_answer and nothing[number] > best[number][0] else best[number][1]
        for number in range(len(questions))
    ]
    pairs = list(zip(answers, (one.answers for one in questions), strict=True))
    return AnswerScores(
        np.array([exact_match(*pair) for pair in pairs]),
        np.array([token_f1(*pair) for pair in pairs]),
        np.array([bool(one.answers) for one in questions]),
        loss / len(held),
    )
