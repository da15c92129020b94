"""Fine-tuning of a reader for extractive question answering, on files in the format of SQuAD."""

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
from bert_core.training.settings import AnswerSettings
from bert_core.training.tuning import (
    Task,
    batches_by_length,
    finetune_identity,
    is_unfinished,
    load_start,
    model_inputs,
    run_finetuning,
    training_width,
)

OUTPUT_LABELS = ("LABEL_0", "LABEL_1")  # names of the start and the end logits in published checkpoints
MAX_QUESTION_PIECES = 64  # as in Devlin 2019
_NO_TRUNCATION = 2**31  # as max_length


@compared_by_value
@dataclass(frozen=True)
class AnswerScores:
    """Scores of a reader on held-out questions, by the metrics of SQuAD.

    exact, f1: exact match and token F1 of each question, (question,), 0 to 1, the maximum over its reference answers.
    has_answer: whether the context contains an answer to the question, (question,).
    loss: mean over all windows of the mean cross-entropy of start and end, in nats.
    """

    exact: np.ndarray
    f1: np.ndarray
    has_answer: np.ndarray
    loss: float

    @property
    def rank(self) -> tuple[float, ...]:
        """Values by which weights are compared in order: mean F1, mean exact match, then the negative loss."""
        return float(self.f1.mean()), float(self.exact.mean()), -self.loss

    @property
    def summary(self) -> str:
        """Main metrics as text for the progress report."""
        return f"exact match {self.exact.mean():.1%}, F1 {self.f1.mean():.1%}, loss {self.loss:.3f}"

    @property
    def metrics(self) -> Mapping[str, object]:
        """Metrics as JSON values for the log."""
        return {
            "exact": round(float(self.exact.mean()), 5), "f1": round(float(self.f1.mean()), 5),
            "loss": round(self.loss, 5),
        }  # fmt: skip

    def table(self) -> list[str]:
        """Return the metrics as lines of a text table, for all questions and for those with and without an answer."""
        groups = {"all": np.ones_like(self.has_answer), "with an answer": self.has_answer, "without": ~self.has_answer}
        lines = [f"{'questions':<14}    exact      F1   number"]
        for name, group in groups.items():
            if group.any() and not (name == "with an answer" and group.all()):
                exact, f1 = self.exact[group].mean(), self.f1[group].mean()
                lines.append(f"{name:<14} {exact:>8.1%} {f1:>7.1%} {group.sum():>8,}")
        return lines


@dataclass(frozen=True)
class Window:
    """Encoded question with a part of its context.

    input_ids, token_type_ids: token and segment ids, (seq,). question: number of the question.
    start, end: positions of the first and the last token of the answer; both are 0 if there is no answer, or this
        window does not contain it completely.
    encoding: encoding of this window, which evaluation needs; None for training.
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
    """Train a reader on questions in the format of SQuAD, and save the weights with the best held-out scores.

    train: file of questions, contexts and answers. held_out: another file, or the share of contexts to hold out.
    skip_broken: whether questions whose answers do not occur in their contexts are left out instead of refused.
    If some training questions have no answer, the reader may predict that there is none; otherwise it always gives an
    answer. All other parameters, the folder and resuming are as for `finetune`.
    Returns the held-out scores of the saved weights.
    Raises Refused if a file or a question cannot be used, and as `finetune` does.
    Source: Devlin 2019, sections 4.2 and 4.3 (arXiv:1810.04805).
    """
    torch_device = best_device(device)
    questions = _read_questions(train, skip_broken, report)
    if isinstance(held_out, Path):
        held_out_questions = _read_questions(held_out, skip_broken, report)
    else:
        questions, held_out_questions = split_contexts(questions, held_out, settings.seed)

    source, _ = read_pooling(model_folder(start))
    tokenizer = Tokenizer.from_folder(source)
    torch.manual_seed(settings.seed)  # for weights that the start lacks
    origin, reader = load_start(
        source, settings, OUTPUT_LABELS, BertForQuestionAnswering, lambda family: family.question_answering,
        TASK_HEADS["reader"].is_in_checkpoint,
    )  # fmt: skip
    tokenizer.check_against(origin.config)
    identity = finetune_identity(
        settings, (origin, reader), tokenizer, train, held_out, answers=True, skip_broken=skip_broken
    )  # fmt: skip
    is_unfinished(folder, identity)  # raises Refused before the questions are encoded
    unanswerable = sum(not question.answers for question in questions)
    report(
        None,
        f"{len(questions):,} training questions, {len(held_out_questions):,} held-out questions; "
        + (f"{unanswerable:,} have no answer" if unanswerable else "each has an answer"),
    )
    if shared := len({q.context for q in held_out_questions} & {q.context for q in questions}):
        report(None, f"{shared:,} held-out contexts are also training contexts, so the scores overestimate the model")
    # Only evaluation needs the encodings.
    training = [dataclasses.replace(window, encoding=None) for window in _windows(questions, tokenizer, settings)]
    windows = list(_windows(held_out_questions, tokenizer, settings))
    if len(training) > len(questions):
        report(
            None,
            f"the training contexts are divided into {len(training):,} windows of at most {settings.max_length} tokens",
        )
    pad = tokenizer.pad_id
    task = Task(
        origin, reader, training, windows,
        partial(_loss, reader, pad=pad, device=torch_device),
        lambda: evaluate_reader(
            reader, held_out_questions, windows,
            allow_no_answer=unanswerable > 0, pad=pad, device=torch_device, batch=settings.batch,
        ),
    )  # fmt: skip
    return run_finetuning(
        task, settings, folder, source, identity, pooled=False, keep=keep, device=torch_device, report=report
    )  # fmt: skip


def reader_scores(
    loaded: LoadedModel,
    path: Path,
    *,
    stride: int = AnswerSettings.stride,
    skip_broken: bool = False,
    report: Progress = print_progress,
) -> AnswerScores:
    """Return the scores of a reader on a file of questions in the format of SQuAD, as `finetune_reader` computes them.

    path: file of questions, contexts and answers. stride: as in `AnswerSettings`. skip_broken: as for
    `finetune_reader`.
    Raises Refused for a model without a trained reader, and as `read_squad` does.
    """
    loaded.require_head("reader", "`headlight finetune` can teach it")
    questions = _read_questions(path, skip_broken, report)
    longest = min(AnswerSettings.max_length, loaded.config.max_position_embeddings)
    windows = list(_windows(questions, loaded.tokenizer, AnswerSettings(max_length=longest, stride=stride)))
    unanswerable = any(not question.answers for question in questions)
    reader = cast("BertForQuestionAnswering", loaded.task_models["reader"])
    return evaluate_reader(
        reader, questions, windows, allow_no_answer=unanswerable, pad=loaded.tokenizer.pad_id, device=loaded.device
    )


def _read_questions(path: Path, skip_broken: bool, report: Progress) -> list[SquadQuestion]:
    """Return the questions of a file, and report how many were left out."""
    questions, omitted = read_squad(path, skip_broken=skip_broken)
    if omitted:
        report(None, f"{omitted:,} questions of {path.name} are left out: their answers are not in their contexts")
    return questions


def split_contexts(
    questions: Sequence[SquadQuestion], share: float, seed: int
) -> tuple[list[SquadQuestion], list[SquadQuestion]]:
    """Split questions into training and held-out questions, with all questions of a context on the same side.

    share: share of the contexts to hold out, between 0 and 1 (both excluded). seed: random seed.
    Returns the training questions and the held-out questions, each in the original order.
    Raises Refused for a share outside this range, or a single context.
    """
    if not 0 < share < 1:
        raise Refused(f"the held-out share is {share:g}: it must be greater than 0 and less than 1")
    contexts = list(dict.fromkeys(question.context for question in questions))
    if len(contexts) < 2:
        raise Refused("there is a single context: a held-out share needs two, one for training and one for evaluation")
    size = min(max(round(share * len(contexts)), 1), len(contexts) - 1)
    numbers = np.random.default_rng([seed, 2]).permutation(len(contexts))[:size]
    held_out = {contexts[number] for number in numbers.tolist()}
    training = [question for question in questions if question.context not in held_out]
    return training, [question for question in questions if question.context in held_out]


# ---------------------------------------------------------------------------- windows


def split_into_windows(encoding: Encoding, max_length: int, stride: int) -> list[list[int]]:
    """Divide a question with a long context into windows that a model can read, and return the positions of each.

    encoding: complete encoding of the question (side A) and the context (side B). max_length: maximum number of tokens
        of a window. stride: number of word pieces between the starts of two consecutive windows; it is reduced where
        word pieces between two windows would be left out.
    A window consists of the question, truncated to 64 word pieces and half of the available length, and a part of the
    context, with their special tokens.
    Returns for each window the positions of its tokens in the encoding.
    Raises Refused if max_length has no room for one word piece of each text.
    Source: Devlin 2019 (arXiv:1810.04805), and its script run_squad.py.
    """
    context = context_positions(encoding)
    question = [position for position, side in enumerate(encoding.sides) if side == "A"]
    special_count = len(encoding) - len(question) - len(context)
    if max_length < special_count + 2:
        raise Refused(
            f"max_length is {max_length}: at least {special_count + 2} are needed for one token of each text and the "
            "special tokens"
        )
    separators, suffix = range(question[-1] + 1, context[0]), range(context[-1] + 1, len(encoding))
    prefix = [
        *range(question[0]), *question[: min(MAX_QUESTION_PIECES, (max_length - special_count) // 2)], *separators
    ]  # fmt: skip
    room = max_length - len(prefix) - len(suffix)
    step = min(stride, room)
    starts = range(0, max(1, len(context) - room + step), step)
    return [[*prefix, *context[start : start + room], *suffix] for start in starts]


def select_tokens(encoding: Encoding, positions: Sequence[int]) -> Encoding:
    """Return an encoding of the same texts that consists of the tokens at these positions only."""
    names = ("tokens", "input_ids", "token_type_ids", "offsets", "words", "sides")
    fields: dict[str, Any] = {name: tuple(map(getattr(encoding, name).__getitem__, positions)) for name in names}
    return dataclasses.replace(encoding, **fields)


def _windows(questions: Sequence[SquadQuestion], tokenizer: Tokenizer, settings: AnswerSettings) -> Iterator[Window]:
    """Yield the windows of all questions. Raises Refused with the question's id for one that cannot be encoded."""
    for number, question in enumerate(questions):
        try:
            full = tokenizer.encode(question.question, question.context, max_length=_NO_TRUNCATION)
            windows = split_into_windows(full, settings.max_length, settings.stride)
        except Refused as error:
            raise Refused(f"the question {question.id!r:.60}: {error}") from error
        answer = (0, 0)
        if question.answers:
            answer = answer_positions(full, question.start, question.start + len(question.answers[0]))
        if question.answers and answer == (0, 0):  # the label of a question without an answer
            raise Refused(
                f"no token contains a character of the answer {question.answers[0]!r:.40} to the question "
                f"{question.id!r:.60}: leave the question out, or give another answer"
            )
        for positions in windows:
            is_inside = all(position in positions for position in answer)
            start, end = (positions.index(position) if is_inside else 0 for position in answer)
            encoding = select_tokens(full, positions)
            yield Window(encoding.input_ids, encoding.token_type_ids, number, start, end, encoding)


# ---------------------------------------------------------------------------- training and evaluation


def _span_logits(
    reader: BertForQuestionAnswering,
    batch: Sequence[Window],
    pad: int,
    device: torch.device,
    width: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the start and the end logits, each (batch, seq), and the loss in nats.

    width: as for `model_inputs`. The logits and the loss cover the tokens of the longest window, whatever the width.
    """
    start, end = (torch.tensor([getattr(window, name) for window in batch], device=device) for name in ("start", "end"))
    outputs: QuestionAnsweringOutput = reader(**model_inputs(batch, reader.config, pad, device, width))
    assert outputs.start_logits is not None and outputs.end_logits is not None
    longest = max(len(window.input_ids) for window in batch)
    start_logits, end_logits = outputs.start_logits[:, :longest], outputs.end_logits[:, :longest]
    return start_logits, end_logits, span_loss(start_logits, end_logits, start, end)


def _loss(reader: BertForQuestionAnswering, batch: Sequence[Window], *, pad: int, device: torch.device) -> Tensor:
    """Return the mean of the cross-entropies of start and end over a batch, in nats."""
    return _span_logits(reader, batch, pad, device, training_width(batch, reader.config, device))[-1]


@torch.no_grad()
def evaluate_reader(
    reader: BertForQuestionAnswering,
    questions: Sequence[SquadQuestion],
    windows: Sequence[Window],
    *,
    allow_no_answer: bool,
    pad: int,
    device: torch.device,
    batch: int = 16,
) -> AnswerScores:
    """Return the scores of a reader on questions, computed in float32 as in the app.

    windows: windows of the questions, with their encodings. allow_no_answer: whether the reader may predict that a
    question has no answer. pad: id of the padding token. batch: number of windows per batch.
    The predicted answer is the span with the highest score over all windows. No answer is predicted if the null score,
    that of [CLS], is higher than this in every window.
    """
    reader.eval()
    best: dict[int, tuple[float, str]] = {}
    null_scores: dict[int, float] = {}  # the lowest of all windows, for each question
    loss = 0.0
    for batch_windows in batches_by_length(windows, batch):
        start_logits, end_logits, mean = _span_logits(reader, batch_windows, pad, device)
        loss += mean.item() * len(batch_windows)
        logits = torch.stack([start_logits, end_logits], 1).cpu().numpy()
        for row, window in enumerate(batch_windows):
            encoding, number = window.encoding, window.question
            assert encoding is not None  # windows for evaluation have one
            scores = logits[row, :, : len(encoding)]
            spans = SpanPrediction(*scores, *span_probabilities(scores, encoding))
            (span,) = best_spans(encoding, spans, 1)
            best[number] = max(best.get(number, (-np.inf, "")), (span.score, span.text))
            null_scores[number] = min(null_scores.get(number, np.inf), span_at(encoding, spans, 0, 0).score)
    answers = [
        "" if allow_no_answer and null_scores[number] > best[number][0] else best[number][1]
        for number in range(len(questions))
    ]
    pairs = list(zip(answers, (question.answers for question in questions), strict=True))
    return AnswerScores(
        np.array([exact_match(*pair) for pair in pairs]),
        np.array([token_f1(*pair) for pair in pairs]),
        np.array([bool(question.answers) for question in questions]),
        loss / len(windows),
    )
