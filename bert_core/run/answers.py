"""What all task heads of a model predict from the states that leave its last layer."""

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
    """What a model predicts for one text, with the fields of `ModelRun`."""

    predictions: tuple[MaskPrediction, ...] = ()
    nsp: float | None = None
    classes: ClassPrediction | None = None
    tags: TagPrediction | None = None
    spans: SpanPrediction | None = None
    replaced: np.ndarray | None = None
    choice: float | None = None
    others: Mapping[str, Any] = MappingProxyType({})


@torch.no_grad()  # what is only read needs no way back
def predict_answers(
    loaded: LoadedModel,
    encodings: Sequence[Encoding],
    states: Tensor,
    positions: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    top_k: int,
) -> list[Answer]:
    """What every trained head of a model predicts for each text.

    states: (text, some, hidden), the last layer; at every token where `asked_positions` says so, padded.
    positions: where pieces are predicted in each text; rows: which of `some` these are.
    """
    words = TASK_HEADS["words"]
    assert isinstance(words, MaskedWordHead)
    outputs: dict[str, Mapping[str, Tensor]] = {}
    if texts := [text for text, of_text in enumerate(rows) for _ in of_text]:
        outputs["words"] = words.outputs(loaded, states[texts, [row for of_text in rows for row in of_text]])
    heads = [
        head for head in TASK_HEADS.values()
        if head is not words and head.gives_predictions and any(head.applies(loaded, text) for text in encodings)
    ]  # fmt: skip
    outputs |= {head.name: head.outputs(loaded, states) for head in heads}
    of_texts: list[dict[tuple[str, str], Tensor]] = []
    first = 0
    for text, encoding in enumerate(encodings):
        last = first + len(rows[text])
        parts = {("words", name): tensor[first:last] for name, tensor in outputs.get("words", {}).items()}
        for head in heads:
            if head.applies(loaded, encoding):
                length = (slice(len(encoding)),) if head.every_token else ()
                parts |= {(head.name, name): tensor[(text, *length)] for name, tensor in outputs[head.name].items()}
        of_texts.append(parts)
        first = last
    values = iter(to_cpu([tensor for parts in of_texts for tensor in parts.values()]))
    answers = []
    for encoding, at, parts in zip(encodings, positions, of_texts, strict=True):
        given: dict[str, dict[str, Tensor]] = {}
        for head_name, name in parts:
            given.setdefault(head_name, {})[name] = next(values)
        fields: dict[str, Any] = {}
        if "words" in given:
            fields["predictions"] = words.predictions(at, given["words"], top_k)
        made = [(head, head.prediction(loaded, encoding, given[head.name])) for head in heads if head.name in given]
        fields |= {head.result: prediction for head, prediction in made if head.result}
        others = {head.name: prediction for head, prediction in made if not head.result}
        answers.append(Answer(**fields, others=others))
    return answers
