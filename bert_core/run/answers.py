"""What the heads of a model say of the states that leave its last layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bert_core.analysis.spans import span_probabilities
from bert_core.config import BertConfig
from bert_core.loading import LoadedModel
from bert_core.modeling import BertModelOutput
from bert_core.records import ClassPrediction, MaskPrediction, SpanPrediction, TagPrediction
from bert_core.records.base import compared_by_value
from bert_core.run.targets import (
    choice_logits,
    class_logits,
    finds_answers,
    is_exclusive,
    is_number,
    replaced_logits,
    span_logits,
    tag_logits,
)
from bert_core.tokenizer import Encoding


@compared_by_value
class Answer(NamedTuple):
    """What a model says of one text, as `ModelRun` has it: for its gaps, of its two sentences, classes and tokens."""

    predictions: tuple[MaskPrediction, ...]
    nsp: float | None
    classes: ClassPrediction | None
    tags: TagPrediction | None
    spans: SpanPrediction | None
    replaced: np.ndarray | None
    choice: float | None


@torch.no_grad()  # what is only read needs no way back
def answers_of(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    outputs: BertModelOutput,
    positions: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    top_k: int,
) -> list[Answer]:
    """What the heads say of each text: its gaps, whether B follows A, its classes, answers, its choice, and its tokens.

    outputs: of all texts, last_hidden_state (text, some, hidden); with a tagger, a reader or a detector at every token.
    positions: where each asks for pieces; rows: which of `some` these are.
    """
    heads, states = loaded.model.cls, outputs.last_hidden_state
    texts = [text for text, of_text in enumerate(rows) for _ in of_text]
    probabilities = None
    if texts:
        probabilities = heads.predictions(states[texts, [row for of_text in rows for row in of_text]])
        probabilities = probabilities.float().softmax(-1)
    follows = heads.seq_relationship(outputs.pooler_output).float().softmax(-1)[:, 0] if loaded.has_nsp else None
    pooled = outputs.pooler_output
    logits = class_logits(loaded, pooled) if pooled is not None and loaded.has_classifier else None
    chosen = choice_logits(loaded, pooled) if pooled is not None and loaded.has_chooser else None
    replaced = replaced_logits(loaded, states).sigmoid().cpu().numpy() if loaded.has_detector else None
    answers, first = [], 0
    for text, encoding in enumerate(encodings):
        last = first + len(rows[text])
        answers.append(Answer(
            () if probabilities is None else _predictions(positions[text], probabilities[first:last], top_k),
            None if follows is None or encoding.pair is None else follows[text].item(),
            None if logits is None else _classes(loaded.config, logits[text]),
            None if not loaded.has_tagger else _tags(loaded, states[text, : len(encoding)]),
            None if not finds_answers(loaded, encoding) else _spans(loaded, encoding, states[text, : len(encoding)]),
            None if replaced is None else replaced[text, : len(encoding)].copy(),
            None if chosen is None or encoding.pair is None else chosen[text].item(),
        ))  # fmt: skip
        first = last
    return answers


def _classes(config: BertConfig, logits: Tensor) -> ClassPrediction:
    """logits: (label,)."""
    exclusive = is_exclusive(config)
    probabilities = logits.softmax(-1) if exclusive else logits.sigmoid()
    return ClassPrediction(
        config.labels,
        logits.cpu().numpy().copy(),
        None if is_number(config) else probabilities.cpu().numpy().copy(),
        exclusive,
    )


def _tags(loaded: LoadedModel, rows: Tensor) -> TagPrediction:
    """rows: (token, hidden)."""
    logits = tag_logits(loaded, rows)
    return TagPrediction(loaded.tags, logits.cpu().numpy().copy(), logits.softmax(-1).cpu().numpy().copy())


def _spans(loaded: LoadedModel, encoding: Encoding, rows: Tensor) -> SpanPrediction:
    """rows: (token, hidden)."""
    logits = span_logits(loaded, rows).T.cpu().numpy().copy()
    return SpanPrediction(*logits, *span_probabilities(logits, encoding))


def _predictions(positions: Sequence[int], probabilities: Tensor, top_k: int) -> tuple[MaskPrediction, ...]:
    """probabilities: (position, vocab)."""
    top = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
    return tuple(
        MaskPrediction(
            position,
            tuple(zip(top.indices[row].tolist(), top.values[row].tolist(), strict=True)),
            probabilities[row].cpu().numpy().copy(),
        )
        for row, position in enumerate(positions)
    )
