"""Out of torch: values as arrays of their own, each head under its first number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def as_array(tensor: Tensor) -> np.ndarray:
    """The values of a tensor in an array of their own, float32: a record must not change with the tensor."""
    return tensor.detach().float().cpu().numpy().copy()


def to_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of one device on the CPU, without their graphs, copied together so that the device is waited for once.

    Once for each number type: the tensors of one type are joined on the device, which takes their memory once more
    there. Tensors that are on the CPU are not copied.
    """
    detached = [tensor.detach() for tensor in tensors]
    if all(tensor.device.type == "cpu" for tensor in detached):
        return detached
    copies: dict[int, Tensor] = {}
    for dtype in {tensor.dtype for tensor in detached}:
        own = [number for number, tensor in enumerate(detached) if tensor.dtype == dtype]
        joined = torch.cat([detached[number].flatten() for number in own]).cpu()
        parts = joined.split([detached[number].numel() for number in own])  # type: ignore[no-untyped-call]
        copies |= {number: part.view(detached[number].shape) for number, part in zip(own, parts, strict=True)}
    return [copies[number] for number in range(len(detached))]


def fill_pruned_with_nan(values: np.ndarray, heads: Sequence[int], count: int) -> np.ndarray:
    """Values of the heads that a layer has (head, ...), each under its first number; NaN for those that were pruned.

    heads: their first numbers; neurons are numbered alike. count: how many there were. Returns (count, ...) float32.
    """
    whole = np.full((count, *values.shape[1:]), np.nan, np.float32)
    whole[list(heads)] = values
    return whole
