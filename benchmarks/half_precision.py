"""Errors of attention maps, gradients and explanations of a model in half precision.

    python benchmarks/half_precision.py            print the table
    python benchmarks/half_precision.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/half_precision.py --quick    the smallest size, to check that it works

The bundled model with weights in float16 or bfloat16 explains the words at [MASK] of some sentences. The error is the
largest difference from float32, relative to the largest value there; the median over the sentences.
"""

from __future__ import annotations

import copy
import dataclasses
import platform
from collections.abc import Callable

import numpy as np
import torch
from tables import QUICK, command

import bert_core
from bert_core import Encoding, LoadedModel, Target
from bert_core.studies.subject_verb import masked_agreement

SENTENCES = 1 if QUICK else 5
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
RESULTS: dict[str, Callable[[LoadedModel, Encoding, Target], np.ndarray]] = {
    "attention": lambda loaded, encoding, _: bert_core.capture(loaded, encoding).attention,
    "gradient of the attention": lambda loaded, encoding, target: np.asarray(
        bert_core.capture(loaded, encoding, target=target).gradient
    ),
    "ALTI": lambda loaded, encoding, _: bert_core.alti(loaded, encoding).maps,
    "input x gradient": lambda loaded, encoding, target: bert_core.input_x_gradient(loaded, encoding, target).scores,
    "value zeroing": lambda loaded, encoding, _: bert_core.value_zeroing(loaded, encoding).maps,
}


def measure() -> dict[str, dict[str, float]]:
    """Return the median error of each result in each dtype, relative to the largest value."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    questions = []
    for sentence in masked_agreement()[:SENTENCES]:
        encoding = loaded.tokenizer.encode(sentence.text)
        questions.append((encoding, Target("mlm", encoding.mask_positions[0], loaded.tokenizer.id_of(sentence.right))))
    errors: dict[str, dict[str, float]] = {name: {} for name in RESULTS}
    for dtype_name, dtype in DTYPES.items():
        half = dataclasses.replace(loaded, model=copy.deepcopy(loaded.model).to(dtype))
        for name, compute in RESULTS.items():
            relative_errors = []
            for question in questions:
                expected = compute(loaded, *question)
                difference = np.abs(compute(half, *question) - expected).max()
                relative_errors.append(difference / np.abs(expected).max())
            errors[name][dtype_name] = float(np.median(relative_errors))
    return errors


def table() -> str:
    """Return the whole measurement as Markdown."""
    lines = [
        f"{platform.machine()}; torch {torch.__version__}; headlight-mini, {SENTENCES} sentences; medians of the "
        "largest errors.\n",
        "| result | " + " | ".join(DTYPES) + " |",
        "| --- |" + " ---: |" * len(DTYPES),
    ]
    for name, errors in measure().items():
        lines.append(f"| {name} | " + " | ".join(f"{100 * errors[dtype]:.2g}%" for dtype in DTYPES) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Errors of half precision.", table, measure)
