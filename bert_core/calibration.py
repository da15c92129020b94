"""Calibration of masked-token probabilities by a temperature that is stored next to the weights of a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bert_core.checkpoint import CheckpointError, write_atomically
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.refused import Refused

FILE = "calibration.json"


def read_temperature(loaded: LoadedModel) -> float | None:
    """Return the temperature that calibrates a model: the divisor of its MLM logits before the softmax.

    It is fitted for one set of weights. Other weights, also pruned ones, have none, and `check_temperature` raises an
    error that gives the reason.
    Returns None if no temperature is stored for these weights.
    Raises CheckpointError if the file is damaged.
    """
    stored = _read_file(loaded)
    return stored[0] if stored is not None and stored[1] == fingerprint(loaded) else None


def check_temperature(loaded: LoadedModel) -> None:
    """Raise CheckpointError if a temperature is stored next to the weights, but was fitted for others."""
    stored = _read_file(loaded)
    if stored is not None and stored[1] != fingerprint(loaded):
        raise CheckpointError(
            f"the temperature in {Path(loaded.report.source) / FILE} was fitted for other weights than those of "
            f"{loaded.name}, or by an earlier version of Headlight: `headlight evaluate {loaded.name} TEXT "
            "--keep-temperature` fits it again"
        )


def _read_file(loaded: LoadedModel) -> tuple[float, object] | None:
    """Return the stored temperature and the fingerprint of the weights that it was fitted for; None without a file."""
    path = Path(loaded.report.source) / FILE
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        temperature, weights = float(stored["temperature"]), stored["weights"]
        if not 0 < temperature < float("inf"):
            raise ValueError
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read: it must hold a temperature above 0 and the fingerprint of weights"
        ) from error
    return temperature, weights


def write_temperature(loaded: LoadedModel, temperature: float, folder: Path) -> None:
    """Write a temperature to a folder, for the weights of a model."""
    text = json.dumps({"temperature": round(temperature, 3), "weights": fingerprint(loaded)}) + "\n"
    write_atomically(folder / FILE, text)


def apply_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return the probabilities that result if the logits are divided by a temperature.

    probabilities: (..., vocab), at temperature 1. temperature: above 1, the probabilities become more uniform. Their
        order does not change.
    Returns (..., vocab); each row sums to 1.
    Raises Refused if the temperature is not above 0.
    Source: Guo 2017 (arXiv:1706.04599), section 4.2.
    """
    if not temperature > 0:
        raise Refused(f"the temperature is {temperature:g}: it must be above 0")
    scaled: np.ndarray = (probabilities / probabilities.max(-1, keepdims=True)) ** (1 / temperature)
    scaled /= scaled.sum(-1, keepdims=True)
    return scaled
