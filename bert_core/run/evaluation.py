"""Answers of task heads for many texts, in padded batches without attention maps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import SpanPrediction
from bert_core.run.arrays import to_cpu
from bert_core.run.inputs import check_text
from bert_core.run.losses import batch_by_length
from bert_core.run.memory import BYTES_AT_ONCE, copies_at_once, mlm_head_bytes
from bert_core.run.stack import PaddedTexts, pad
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding

WHOLE_TEXT = -1  # position of a target that is the text as a whole


class AnswerTarget(NamedTuple):
    """What one answer about a text is read from.

    positions: positions of the last layer at which a class is predicted, such as the pieces of a masked word.
    classes: expected class at each position; empty if the answer is not known.
    """

    positions: tuple[int, ...]
    classes: tuple[int, ...] = ()


class AnswerScore(NamedTuple):
    """Prediction for one `AnswerTarget`.

    classes: most probable class at each position.
    confidence: probability of these classes together, 0 to 1. probability: that of the expected ones; NaN without.
    loss: minus the natural logarithm of `probability`; NaN without.
    """

    classes: tuple[int, ...]
    confidence: float
    probability: float
    loss: float


@torch.no_grad()
def score_answers(
    loaded: LoadedModel,
    head_name: str,
    encodings: Sequence[Encoding],
    targets: Sequence[Sequence[AnswerTarget]],
    report: Progress = ignore_progress,
) -> list[list[AnswerScore]]:
    """Predict classes with one task head, and score the expected ones.

    head_name: key of `TASK_HEADS`, of a head whose classes exclude each other. A head of whole texts has one target for
        each text, with the position `WHOLE_TEXT`.
    targets: targets of each text.
    report: receives the number of texts that are done, see `Progress`.
    Returns the scores of each text, in the order of its targets.
    """
    head = TASK_HEADS[head_name]
    pooling = head.pooling(loaded)
    scores: list[list[AnswerScore]] = [[] for _ in encodings]
    positions = [[position for target in text_targets for position in target.positions] for text_targets in targets]
    rows = positions if pooling is None else [pooling.pooled_positions(len(encoding)) for encoding in encodings]
    row_bytes = mlm_head_bytes(loaded, 1) if head_name == "words" else 0
    for indices, states in _last_layer_states(loaded, encodings, rows, report, row_bytes):
        counts = [len(positions[index]) for index in indices]
        if pooling is None:
            owners = np.repeat(np.arange(len(indices)), counts)
            columns = np.concatenate([np.arange(0), *map(np.arange, counts)])
            logits = head.logits(loaded, states[torch.from_numpy(owners), torch.from_numpy(columns)])
        else:
            lengths = torch.tensor([len(rows[index]) for index in indices], device=states.device)
            mask = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
            logits = head.logits(loaded, head.text_states(loaded, states, mask))
        expected = [_padded_classes(target) for index in indices for target in targets[index]]
        best, best_log, expected_log = _class_scores(logits, np.concatenate([np.arange(0), *expected]))
        first = 0
        for index in indices:
            for target in targets[index]:
                part = slice(first, first := first + len(target.positions))
                loss = -float(expected_log[part].sum())
                confidence = math.exp(float(best_log[part].sum()))
                scores[index].append(AnswerScore(tuple(best[part].tolist()), confidence, math.exp(-loss), loss))
    return scores


@torch.no_grad()
def predict_spans(
    loaded: LoadedModel, encodings: Sequence[Encoding], report: Progress = ignore_progress
) -> list[SpanPrediction]:
    """Predict the answer spans of pairs of texts, see `AnswerSpanHead`. report: as for `score_answers`."""
    head = TASK_HEADS["reader"]
    predictions: dict[int, SpanPrediction] = {}
    rows = [range(len(encoding)) for encoding in encodings]
    for indices, states in _last_layer_states(loaded, encodings, rows, report):
        (logits,) = to_cpu([head.logits(loaded, states)])
        for row, index in enumerate(indices):
            outputs = {"logits": logits[row, : len(encodings[index])]}
            predictions[index] = head.prediction(loaded, encodings[index], outputs)
    return [predictions[index] for index in range(len(encodings))]


@torch.no_grad()
def mean_surprisals(
    loaded: LoadedModel, encodings: Sequence[Encoding], report: Progress = ignore_progress
) -> np.ndarray:
    """Compute the mean surprisal of the tokens of each text, when one token at a time is masked.

    encodings: texts without a typed [MASK].
    report: receives the number of masked copies that are done, see `Progress`.
    Returns (text,) float64 in nats per token: minus the pseudo-log-likelihood divided by the number of tokens. The
    added [CLS] and [SEP] are not scored; a text without other tokens is NaN.
    Source: Salazar 2020, section 2 (arXiv:1910.14659).
    """
    pairs = [
        (index, position)
        for index, encoding in enumerate(encodings)
        for position, is_special in enumerate(encoding.special)
        if not is_special
    ]
    head, mask_id = TASK_HEADS["words"], loaded.tokenizer.mask_id
    log_probabilities = np.empty(len(pairs))
    copies = [encodings[index] for index, _ in pairs]
    rows = [(position,) for _, position in pairs]
    row_bytes = mlm_head_bytes(loaded, 1)
    for numbers, states in _last_layer_states(loaded, copies, rows, report, row_bytes, mask_id):
        expected = np.array([copies[number].input_ids[rows[number][0]] for number in numbers])
        _, _, log_probabilities[numbers] = _class_scores(head.logits(loaded, states[:, 0]), expected)
    owners = np.array([index for index, _ in pairs], np.int64)
    with np.errstate(invalid="ignore"):  # texts without tokens
        return -np.bincount(owners, log_probabilities, len(encodings)) / np.bincount(owners, minlength=len(encodings))


def _last_layer_states(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    rows: Sequence[Sequence[int]],
    report: Progress,
    row_bytes: int = 0,
    replacement_id: int | None = None,
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield batches of texts of similar length: their indices, and states (text, row, hidden) of the last layer.

    rows: positions of each text that are returned, padded with 0. row_bytes: memory that the caller needs for each row.
    replacement_id: token id that replaces the tokens at the rows; None replaces none.
    """
    for encoding in {id(encoding): encoding for encoding in encodings}.values():
        check_text(loaded, encoding)
    widest = max(map(len, rows), default=0)

    def batch_size(tokens: int) -> int:
        copies = copies_at_once(loaded, tokens)
        return min(copies, max(1, BYTES_AT_ONCE // (row_bytes * widest))) if row_bytes and widest else copies

    count = 0
    for indices in batch_by_length(encodings, batch_size):
        texts = PaddedTexts.from_encodings(loaded, [encodings[index] for index in indices])
        positions = torch.from_numpy(pad([rows[index] for index in indices])).to(loaded.device)
        ids = texts.ids
        if replacement_id is not None:
            ids = ids.scatter(1, positions, replacement_id)
        if positions.shape[1]:
            yield (
                indices,
                loaded.model.bert(
                    ids, token_type_ids=texts.segments, attention_mask=texts.mask, positions=positions
                ).last_hidden_state,
            )
        count += len(indices)
        report_count(report, count, len(encodings), "texts" if replacement_id is None else "masked copies")


def _padded_classes(target: AnswerTarget) -> np.ndarray:
    """Return the expected class at each position, -1 if it is not known."""
    return np.array(target.classes or (-1,) * len(target.positions), np.int64)


def _class_scores(logits: Tensor, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the most probable classes, and the log-probabilities of these and of the expected classes.

    logits: (row, class). expected: (row,) int64, -1 for unknown.
    Returns three arrays (row,): int64, and float64 in nats, NaN for an unknown class.
    """
    classes = torch.from_numpy(expected).to(logits.device)
    normaliser = logits.logsumexp(-1)
    best = logits.max(-1)
    expected_logits = logits.gather(-1, classes.clamp(min=0)[:, None])[:, 0]
    numbers, best_log, expected_log = to_cpu([best.indices, best.values - normaliser, expected_logits - normaliser])
    return (
        numbers.numpy().astype(np.int64),
        best_log.double().numpy(),
        np.where(expected < 0, np.nan, expected_log.double().numpy()),
    )
