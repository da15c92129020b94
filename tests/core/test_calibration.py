"""bert_core/calibration: the temperature beside the weights, and what it does to probabilities."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from bert_core import load
from bert_core.calibration import FILE, apply_temperature, check_temperature, read_temperature, write_temperature
from bert_core.checkpoint import CheckpointError


def test_probabilities_at_a_temperature_are_those_of_divided_scores() -> None:
    """For temperatures on both sides of 1; at 1 they are as they were."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) * 4
    probabilities = logits.softmax(-1).numpy()
    for temperature in (0.5, 1.0, 1.7):
        expected = (logits / temperature).softmax(-1).numpy()
        np.testing.assert_allclose(apply_temperature(probabilities, temperature), expected, rtol=1e-4, atol=1e-7)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="it must be above 0"):
            apply_temperature(probabilities, wrong)


def test_a_temperature_belongs_to_its_weights(tiny_model_folder: Path, tmp_path: Path) -> None:
    """None without a file or for other weights, the number for its own, and an error for a broken file."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_folder, folder)
    loaded = load(str(folder), device="cpu")
    assert read_temperature(loaded) is None
    write_temperature(loaded, 1.2345, folder)
    check_temperature(loaded)
    assert read_temperature(loaded) == 1.234 or read_temperature(loaded) == 1.235
    with torch.no_grad():
        loaded.model.bert.encoder.layer[-1].output.dense.weight += 1  # type: ignore[union-attr, operator]
    assert read_temperature(loaded) is None
    with pytest.raises(CheckpointError, match=r"`headlight evaluate .* TEXT --keep-temperature` fits"):
        check_temperature(loaded)
    (folder / FILE).write_text('{"temperature": "warm"}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="must hold a temperature above 0 and the fingerprint of weights"):
        read_temperature(loaded)
    (folder / FILE).unlink()
    check_temperature(loaded)
