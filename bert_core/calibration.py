"""How sure a model may be taken to be: a temperature that is kept beside its weights."""

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
    """What to divide the scores of this model's words by, so that it is right as often as it is sure; None if unknown.

    It is fitted for one set of weights: for others, pruned ones too, there is none, and `check_temperature` says why.
    Raises CheckpointError if the file beside the weights is broken.
    """
    stored = _stored(loaded)
    return stored[0] if stored is not None and stored[1] == fingerprint(loaded) else None


def check_temperature(loaded: LoadedModel) -> None:
    """Raise CheckpointError for a temperature beside the weights that is not of them; none at all is no mistake."""
    stored = _stored(loaded)
    if stored is not None and stored[1] != fingerprint(loaded):
        raise CheckpointError(
            f"the temperature in {Path(loaded.report.source) / FILE} was fitted for other weights than those of "
            f"{loaded.name}, or by an earlier version of Headlight: `headlight evaluate {loaded.name} TEXT "
            "--keep-temperature` fits it again"
        )


def _stored(loaded: LoadedModel) -> tuple[float, object] | None:
    """The temperature in the file beside the weights, and the fingerprint of whose it is; None without a file."""
    path = Path(loaded.report.source) / FILE
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        temperature, weights = float(stored["temperature"]), stored["weights"]
        if not 0 < temperature < float("inf"):
            raise ValueError
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: it holds no temperature and weights") from error
    return temperature, weights


def write_temperature(loaded: LoadedModel, temperature: float, folder: Path) -> None:
    """Keep a temperature in a folder, for the weights of this model."""
    text = json.dumps({"temperature": round(temperature, 3), "weights": fingerprint(loaded)}) + "\n"
    write_atomically(folder / FILE, text)


def apply_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities as if the scores had been divided by a temperature, (..., vocab); each row sums to 1.

    Above 1 they are more alike, and the order stays. Raises Refused for a temperature that is not above 0.
    Source: Guo 2017, section 4.2 (arXiv:1706.04599).
    """
    if not temperature > 0:
        raise Refused(f"the temperature is {temperature:g}: it is a number above 0")
    flat: np.ndarray = (probabilities / probabilities.max(-1, keepdims=True)) ** (1 / temperature)
    flat /= flat.sum(-1, keepdims=True)
    return flat
