"""What the heads of a model say of the states that leave its last layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from bert_core.run.arrays import on_cpu
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
    replaced = replaced_logits(loaded, states).sigmoid() if loaded.has_detector else None
    of_texts: list[dict[str, Tensor]] = []
    first = 0
    for text, encoding in enumerate(encodings):
        last, own = first + len(rows[text]), states[text, : len(encoding)]
        parts: dict[str, Tensor] = {}
        if probabilities is not None:
            parts["pieces"] = probabilities[first:last]
        if follows is not None and encoding.pair is not None:
            parts["follows"] = follows[text]
        if logits is not None:
            parts["classes"] = logits[text]
            parts["class probabilities"] = _class_probabilities(loaded.config, logits[text])
        if loaded.has_tagger:
            parts["tags"] = tag_logits(loaded, own)
            parts["tag probabilities"] = parts["tags"].softmax(-1)
        if finds_answers(loaded, encoding):
            parts["spans"] = span_logits(loaded, own).T
        if replaced is not None:
            parts["replaced"] = replaced[text, : len(encoding)]
        if chosen is not None and encoding.pair is not None:
            parts["choice"] = chosen[text]
        of_texts.append(parts)
        first = last
    values = iter(on_cpu([tensor for parts in of_texts for tensor in parts.values()]))
    return [
        _answer(loaded, encodings[text], positions[text], {name: next(values) for name in parts}, top_k)
        for text, parts in enumerate(of_texts)
    ]


def _answer(
    loaded: LoadedModel, encoding: Encoding, positions: Sequence[int], values: Mapping[str, Tensor], top_k: int
) -> Answer:
    """The answer for one text; values: of its heads, on the CPU."""
    return Answer(
        _predictions(positions, values["pieces"], top_k) if "pieces" in values else (),
        values["follows"].item() if "follows" in values else None,
        _classes(loaded.config, values["classes"], values["class probabilities"]) if "classes" in values else None,
        TagPrediction(loaded.tags, _copied(values["tags"]), _copied(values["tag probabilities"]))
        if "tags" in values else None,
        _spans(encoding, _copied(values["spans"])) if "spans" in values else None,
        _copied(values["replaced"]) if "replaced" in values else None,
        values["choice"].item() if "choice" in values else None,
    )  # fmt: skip


def _copied(tensor: Tensor) -> np.ndarray:
    """An array of its own, in the number type of the tensor."""
    return tensor.numpy().copy()


def _class_probabilities(config: BertConfig, logits: Tensor) -> Tensor:
    """logits: (label,)."""
    return logits.softmax(-1) if is_exclusive(config) else logits.sigmoid()


def _classes(config: BertConfig, logits: Tensor, probabilities: Tensor) -> ClassPrediction:
    """logits, probabilities: (label,)."""
    return ClassPrediction(
        config.labels,
        _copied(logits),
        None if is_number(config) else _copied(probabilities),
        is_exclusive(config),
    )


def _spans(encoding: Encoding, logits: np.ndarray) -> SpanPrediction:
    """logits: (2, token)."""
    return SpanPrediction(*logits, *span_probabilities(logits, encoding))


def _predictions(positions: Sequence[int], probabilities: Tensor, top_k: int) -> tuple[MaskPrediction, ...]:
    """probabilities: (position, vocab)."""
    top = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
    return tuple(
        MaskPrediction(
            position,
            tuple(zip(top.indices[row].tolist(), top.values[row].tolist(), strict=True)),
            _copied(probabilities[row]),
        )
        for row, position in enumerate(positions)
    )
