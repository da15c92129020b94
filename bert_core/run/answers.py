"""Predictions of all trained task heads from the output of the last layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.records import ClassPrediction, MaskPrediction, SpanPrediction, TagPrediction
from bert_core.records.base import compared_by_value
from bert_core.run.arrays import to_cpu
from bert_core.task_heads import TASK_HEADS, MaskedWordHead
from bert_core.tokenizer import Encoding


@compared_by_value
class Answer(NamedTuple):
    """The predictions of a model for one text; the fields have the names and meanings of those of `ModelRun`."""

    predictions: tuple[MaskPrediction, ...] = ()
    nsp: float | None = None
    classes: ClassPrediction | None = None
    tags: TagPrediction | None = None
    spans: SpanPrediction | None = None
    replaced: np.ndarray | None = None
    choice: float | None = None
    others: Mapping[str, Any] = MappingProxyType({})


@torch.no_grad()  # predictions need no backward pass
def predict_answers(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    states: Tensor,
    positions: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    top_k: int,
) -> list[Answer]:
    """Compute the predictions of every trained head of a model for each text.

    states: (text, row, hidden), padded: the output of the last layer at the positions that `prediction_positions`
        returns for each text.
    positions: for each text, the positions at which the MLM head predicts. rows: the rows of `states` at these
        positions.
    top_k: number of most likely tokens in each prediction of the MLM head.
    """
    words = TASK_HEADS["words"]
    assert isinstance(words, MaskedWordHead)
    outputs: dict[str, Mapping[str, Tensor]] = {}
    if texts := [text for text, text_rows in enumerate(rows) for _ in text_rows]:
        outputs["words"] = words.outputs(loaded, states[texts, [row for text_rows in rows for row in text_rows]])
    heads = [
        head for head in TASK_HEADS.values()
        if head is not words and head.gives_predictions and any(head.applies(loaded, text) for text in encodings)
    ]  # fmt: skip
    lengths = torch.tensor([len(encoding) for encoding in encodings], device=states.device)
    mask = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
    for head in heads:
        is_pooled = head.pooling(loaded) is not None
        inputs = head.text_states(loaded, states, mask)[:, None] if is_pooled else states
        outputs[head.name] = head.outputs(loaded, inputs)
    text_outputs: list[dict[tuple[str, str], Tensor]] = []  # for each text, by head and by name of the tensor
    first = 0
    for text, encoding in enumerate(encodings):
        last = first + len(rows[text])
        parts = {("words", name): tensor[first:last] for name, tensor in outputs.get("words", {}).items()}
        for head in heads:
            if head.applies(loaded, encoding):
                length = (slice(len(encoding)),) if head.every_token else ()
                parts |= {(head.name, name): tensor[(text, *length)] for name, tensor in outputs[head.name].items()}
        text_outputs.append(parts)
        first = last
    values = iter(to_cpu([tensor for parts in text_outputs for tensor in parts.values()]))
    answers = []
    for encoding, text_positions, parts in zip(encodings, positions, text_outputs, strict=True):
        head_outputs: dict[str, dict[str, Tensor]] = {}
        for head_name, name in parts:
            head_outputs.setdefault(head_name, {})[name] = next(values)
        fields: dict[str, Any] = {}
        if "words" in head_outputs:
            fields["predictions"] = words.predictions(text_positions, head_outputs["words"], top_k)
        predictions = [
            (head, head.prediction(loaded, encoding, head_outputs[head.name]))
            for head in heads if head.name in head_outputs
        ]  # fmt: skip
        fields |= {head.result: prediction for head, prediction in predictions if head.result}
        registered = {head.name: prediction for head, prediction in predictions if not head.result}
        answers.append(Answer(**fields, others=registered))
    return answers
