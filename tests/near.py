"""Numbers are compared on their own scale: processors round differently in the last places of what they add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def apart(found: Any, expected: Any, of: float | None = None) -> float:
    """The largest difference, as a share of the largest size in `expected`, or of `of`.

    Give `of` where what is expected is no measure of the numbers it was made from: 0, or a small difference of large
    ones. Infinite unless NaN and infinities stand at the same places.
    """
    one, other = _numbers(found), _numbers(expected)
    assert not other.ndim or one.shape == other.shape, f"shapes differ: {one.shape} and {other.shape}"
    one, other = np.broadcast_arrays(one, other)
    finite = np.isfinite(other)
    if not finite.all():
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return float("inf")
        one, other = one[finite], other[finite]
    if not np.isfinite(one).all():
        return float("inf")
    if not other.size:
        return 0.0
    scale = np.abs(other).max() if of is None else abs(of)
    assert scale > 0, "there is no number but 0 to compare with: give the scale"
    return float(np.abs(one - other).max() / scale)


def assert_near(found: Any, expected: Any, within: float = 1e-5, *, of: float | None = None, what: str = "") -> None:
    """No two numbers are further apart than this share of their scale: 1e-5 is 84 times float32's precision."""
    distance = apart(found, expected, of)
    assert distance <= within, f"{what}{what and ': '}apart by {distance:.1e} of the scale, more than {within:.0e}"


def _numbers(values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, np.float64)


def assert_gradients_near(model: torch.nn.Module, reference: torch.nn.Module) -> None:
    """Both models have a gradient for the same parameters, equal relative to the largest of all."""
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters() if parameter.grad is not None}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (name not in gradients), name
        if parameter.grad is not None:
            assert_near(parameter.grad, gradients[name], of=largest, what=name)
