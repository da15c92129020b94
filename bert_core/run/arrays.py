"""Conversion of tensors to NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def as_array(tensor: Tensor) -> np.ndarray:
    """Copy a tensor to a float32 array, so that a record does not change with the tensor."""
    return tensor.detach().float().cpu().numpy().copy()


def to_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Move tensors of one device to the CPU, without their graphs, with one transfer for each number type.

    A single transfer waits for the device only once. Tensors of one type are concatenated on the device, which
    temporarily takes their memory once more there. Tensors that are on the CPU already are not copied.
    """
    detached = [tensor.detach() for tensor in tensors]
    if all(tensor.device.type == "cpu" for tensor in detached):
        return detached
    copies: dict[int, Tensor] = {}
    for dtype in {tensor.dtype for tensor in detached}:
        numbers = [number for number, tensor in enumerate(detached) if tensor.dtype == dtype]
        joined = torch.cat([detached[number].flatten() for number in numbers]).cpu()
        parts = joined.split([detached[number].numel() for number in numbers])  # type: ignore[no-untyped-call]
        copies |= {number: part.view(detached[number].shape) for number, part in zip(numbers, parts, strict=True)}
    return [copies[number] for number in range(len(detached))]


def fill_pruned_with_nan(values: np.ndarray, heads: Sequence[int], count: int) -> np.ndarray:
    """Place the values of the remaining heads at their original numbers, with NaN for pruned heads.

    values: (remaining head, ...). heads: the original numbers of the remaining heads; neurons work in the same way.
    count: number of heads before pruning. Returns float32 (count, ...).
    """
    filled = np.full((count, *values.shape[1:]), np.nan, np.float32)
    filled[list(heads)] = values
    return filled
