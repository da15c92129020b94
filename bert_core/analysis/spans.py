"""The answers that a reader's scores allow: spans of the context, ranked, as they were typed."""

from __future__ import annotations

import numpy as np

from bert_core.records import Span, SpanPrediction
from bert_core.refused import Refused, require_int, validate_arguments, validate_arrays
from bert_core.tokenizer import Encoding

MAX_ANSWER_PIECES = 30  # pieces, as in the evaluation of Devlin 2019


def context_positions(encoding: Encoding) -> tuple[int, ...]:
    """Positions at which an answer can begin and end: those of the second text."""
    return tuple(position for position, side in enumerate(encoding.sides) if side == "B")


def answer_positions(encoding: Encoding, start: int, end: int) -> tuple[int, int]:
    """Positions of the first and the last piece with some of these characters of the context; 0 and 0 if none has."""
    spans = encoding.offsets
    inside = [at for at in context_positions(encoding) if spans[at][0] < end and spans[at][1] > start]
    return (inside[0], inside[-1]) if inside else (0, 0)


@validate_arrays(scores="two token")
def span_probabilities(scores: np.ndarray, encoding: Encoding) -> np.ndarray:
    """How probable each token is as the first, and as the last, of the answer (2, token): each row sums to 1.

    scores: (2, token), logits. Only the context is asked, and the first token of all, which stands for no answer; what
    cannot be is 0.
    """
    places = [0, *context_positions(encoding)]
    of_places = scores[:, places].astype(np.float64)
    shares = np.exp(of_places - of_places.max(1, keepdims=True))
    found = np.zeros(scores.shape, np.float32)
    found[:, places] = shares / shares.sum(1, keepdims=True)
    return found


@validate_arguments
def best_spans(
    encoding: Encoding, prediction: SpanPrediction, count: int = 10, *, longest: int = MAX_ANSWER_PIECES
) -> tuple[Span, ...]:
    """The answers with the largest sum of their two logits, the best first.

    encoding: the question and, as the second text, its context. count: how many at most. longest: pieces of an answer.
    An answer begins and ends inside the context, and does not end before it begins.
    Raises Refused for scores of another text, or numbers below 1.
    Source: Devlin 2019, section 4.2 (arXiv:1810.04805).
    """
    count, longest = require_int("count", count, 1), require_int("longest", longest, 1)
    if len(prediction.start_logits) != len(encoding):
        raise Refused(f"there are scores of {len(prediction.start_logits)} tokens, and the text has {len(encoding)}")
    places = np.array(context_positions(encoding))
    # (pieces more than one, first piece); what would end behind the context cannot be.
    sums = np.full((min(longest, len(places)), len(places)), -np.inf)
    for more, row in enumerate(sums):
        first, last = places[: len(places) - more], places[more:]
        row[: len(first)] = prediction.start_logits[first].astype(np.float64) + prediction.end_logits[last]
    order = np.argsort(-sums, axis=None, kind="stable")[:count]
    return tuple(
        span_at(encoding, prediction, int(places[first]), int(places[first + more]))
        for more, first in zip(*np.unravel_index(order, sums.shape), strict=True)
        if np.isfinite(sums[more, first])
    )


def span_at(encoding: Encoding, prediction: SpanPrediction, first: int, last: int) -> Span:
    """The answer from one token to another; with 0 for both, that there is none."""
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
    """The answer from one token to another as it was typed; nothing with 0 for both."""
    start, end = _characters(encoding, first, last)
    return (encoding.pair or "")[start:end].strip()


def _characters(encoding: Encoding, first: int, last: int) -> tuple[int, int]:
    return (encoding.offsets[first][0], encoding.offsets[last][1]) if last else (0, 0)
