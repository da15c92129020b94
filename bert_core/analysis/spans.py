"""Answer spans of extractive question answering: the ranked spans of the context from start and end logits."""

from __future__ import annotations

import numpy as np

from bert_core.records import Span, SpanPrediction
from bert_core.refused import Refused, require_int, validate_arguments, validate_arrays
from bert_core.tokenizer import Encoding

MAX_ANSWER_PIECES = 30  # word pieces, as in the evaluation of Devlin 2019


def context_positions(encoding: Encoding) -> tuple[int, ...]:
    """Return the positions of the context (the second text), where an answer can start and end."""
    return tuple(position for position, side in enumerate(encoding.sides) if side == "B")


def answer_positions(encoding: Encoding, start: int, end: int) -> tuple[int, int]:
    """Return the first and the last position that overlap a range of characters of the context, (0, 0) if none does."""
    offsets = encoding.offsets
    positions = [p for p in context_positions(encoding) if offsets[p][0] < end and offsets[p][1] > start]
    return (positions[0], positions[-1]) if positions else (0, 0)


@validate_arrays(scores="two token")
def span_probabilities(scores: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Compute the probability of each token to be the start and the end of the answer.

    The softmax runs over the context and the first token, which stands for no answer. All other tokens are 0.

    scores: (2, token), start and end logits.
    Returns (2, token) float32. Each row sums to 1.
    """
    positions = [0, *context_positions(encoding)]
    logits = scores[:, positions].astype(np.float64)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = np.zeros(scores.shape, np.float32)
    probabilities[:, positions] = shares / shares.sum(1, keepdims=True)
    return probabilities


@validate_arguments
def best_spans(
    encoding: Encoding, prediction: SpanPrediction, count: int = 10, *, longest: int = MAX_ANSWER_PIECES
) -> tuple[Span, ...]:
    """Return the answers with the largest sum of start and end logit, the best first.

    An answer starts and ends in the context, and does not end before it starts.

    encoding: the question, and the context as the second text.
    count: maximum number of answers.
    longest: maximum number of word pieces of an answer.
    Raises Refused if the prediction belongs to another text, or a number is below 1.
    Source: Devlin 2019, section 4.2 (arXiv:1810.04805).
    """
    count, longest = require_int("count", count, 1), require_int("longest", longest, 1)
    if len(prediction.start_logits) != len(encoding):
        raise Refused(
            f"the prediction has {len(prediction.start_logits)} tokens and the text has {len(encoding)}: "
            "both must be of the same text"
        )
    positions = np.array(context_positions(encoding))
    # (word pieces after the first, first piece); -inf where the answer would end after the context.
    sums = np.full((min(longest, len(positions)), len(positions)), -np.inf)
    for extra, row in enumerate(sums):
        first, last = positions[: len(positions) - extra], positions[extra:]
        row[: len(first)] = prediction.start_logits[first].astype(np.float64) + prediction.end_logits[last]
    order = np.argsort(-sums, axis=None, kind="stable")[:count]
    return tuple(
        span_at(encoding, prediction, int(positions[first]), int(positions[first + extra]))
        for extra, first in zip(*np.unravel_index(order, sums.shape), strict=True)
        if np.isfinite(sums[extra, first])
    )


def span_at(encoding: Encoding, prediction: SpanPrediction, first: int, last: int) -> Span:
    """Return the answer from one position to another. Both are 0 for no answer."""
    start, end = _characters(encoding, first, last)
    return Span(
        first,
        last,
        start,
        end,
        answer_text(encoding, first, last),
        float(prediction.start_logits[first]) + float(prediction.end_logits[last]),
        float(prediction.start[first]) * float(prediction.end[last]),
    )


def answer_text(encoding: Encoding, first: int, last: int) -> str:
    """Return the original text of the answer from one position to another, empty if both are 0."""
    start, end = _characters(encoding, first, last)
    return (encoding.pair or "")[start:end].strip()


def _characters(encoding: Encoding, first: int, last: int) -> tuple[int, int]:
    """Return the range of characters in the context, (0, 0) for no answer."""
    return (encoding.offsets[first][0], encoding.offsets[last][1]) if last else (0, 0)
