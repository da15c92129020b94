"""What attribution of any target must add up to."""

from __future__ import annotations

import numpy as np

from bert_core import LoadedModel, Target, decompx, integrated_gradients, token_scores
from bert_core.methods import METHODS
from bert_core.run.perturbation import values_without
from bert_core.tokenizer import Encoding
from tests.near import assert_near


def assert_parts_and_paths_add_up(
    loaded: LoadedModel, encoding: Encoding, target: Target, value: float, *, of: float | None = None
) -> float:
    """DecompX's parts sum to the value, integrated gradients to its way from [PAD]; every method answers.

    of: the size that differences are held against, as for `assert_near`. Returns the value of [PAD] alone.
    """
    assert_near(decompx(loaded, encoding, target).scores.sum(), value, of=of)
    found = integrated_gradients(loaded, encoding, target, steps=300)
    everything = np.array([not special for special in encoding.special])[None]
    (empty,) = values_without(loaded, encoding, target, everything, baseline="pad")
    assert_near(found.scores.sum(), value - empty, 1e-2, of=of)
    scores = token_scores(loaded, encoding, target)
    assert scores.shape == (len(METHODS), len(encoding)) and np.isfinite(scores).all()
    return float(empty)
