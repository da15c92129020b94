"""The recorded fine-tuning run of the bundled model on example reviews, with which the page opens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bert_core.training.runs import TuningLog
from viz_app.finetuning.material import FinetuneRequest

RUN_FILE = Path(__file__).with_name("recorded.json")  # `python -m tools.recorded_results finetuning` writes it


@dataclass(frozen=True)
class RecordedRun:
    """A fine-tuning run that was measured before; matrices by the number of their kept step.

    date: of the run, as 2026-01-31. model, fingerprint: of the start. texts, tokens: numbers of the compared rows and
    of their tokens. head: layer and head whose attention changed most. text_tokens: of the review of the maps. maps:
    attention of that head, (query, key). divergence: (layer, head), nats from the start. cka: (depth, depth), of the
    start and the step.
    """

    date: str
    model: str
    fingerprint: str
    request: FinetuneRequest
    log: TuningLog
    texts: int
    tokens: int
    head: tuple[int, int]
    text_tokens: tuple[str, ...]
    maps: Mapping[int, np.ndarray]
    divergence: Mapping[int, np.ndarray]
    cka: Mapping[int, np.ndarray]


@cache
def recorded_run() -> RecordedRun:
    """Return the run that comes with the package."""
    content = json.loads(RUN_FILE.read_text("utf-8"))
    layer, head = content["head"]
    log = TuningLog(
        content["steps"],
        tuple((step, loss) for step, loss in content["losses"]),
        tuple((step, scores) for step, scores in content["held_out"]),
        tuple(content["best_steps"]),
    )
    maps, divergence, cka = (
        {int(step): np.array(values) for step, values in content[name].items()}
        for name in ("maps", "divergence", "cka")
    )
    return RecordedRun(
        content["date"], content["model"], content["fingerprint"], FinetuneRequest(**content["request"]), log,
        content["texts"], content["tokens"], (layer, head), tuple(content["text_tokens"]), maps, divergence, cka,
    )  # fmt: skip
