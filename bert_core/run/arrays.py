"""Out of torch: values as arrays of their own, each head under its first number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor


def as_array(tensor: Tensor) -> np.ndarray:
    """The values of a tensor in an array of their own, float32: a record must not change with the tensor."""
    return tensor.detach().float().cpu().numpy().copy()


def with_gaps(values: np.ndarray, heads: Sequence[int], count: int) -> np.ndarray:
    """Values of the heads that a layer has (head, ...), each under its first number; NaN for those that were pruned.

    heads: their first numbers; neurons are numbered alike. count: how many there were. Returns (count, ...) float32.
    """
    whole = np.full((count, *values.shape[1:]), np.nan, np.float32)
    whole[list(heads)] = values
    return whole
