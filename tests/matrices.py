"""Which matrix products a computation makes, whatever the processor."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class MatrixShapes(TorchDispatchMode):
    """Collects the shapes of the operands of every matrix product inside a `with` block, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[tuple[int, ...], ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in PRODUCTS:
            self.shapes.add(tuple(tuple(operand.shape) for operand in args if isinstance(operand, torch.Tensor)))
        return func(*args, **(kwargs or {}))
