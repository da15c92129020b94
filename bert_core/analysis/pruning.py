"""What a pruning curve says: how far chance goes, and how many heads are hardly missed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from bert_core.records import CurvePoint
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_instances, validate_arguments

FIGURES = tuple(entry.name for entry in fields(CurvePoint) if entry.name not in ("order", "removed"))
RANDOM_PREFIX = "random"  # what the names of random orders begin with


@compared_by_value
class Band(NamedTuple):
    """How far random orders reach at each number of removed heads: (point,) each, the lowest, the mean, the highest."""

    removed: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    orders: int


@validate_arguments
def random_band(points: Collection[CurvePoint], figure: str) -> Band:
    """One figure of the random orders, at the points that all of those begun have reached.

    figure: "loss", "mlm", "nsp", "parameters" or "tokens_per_second". Raises Refused for another.
    """
    points = require_instances("points", points, CurvePoint)
    _check_figure(figure)
    by_removed: dict[int, list[float]] = {}
    names = {point.order for point in points if point.order.startswith(RANDOM_PREFIX)}
    for point in points:
        if point.order in names:
            by_removed.setdefault(point.removed, []).append(float(getattr(point, figure)))
    whole = {removed: values for removed, values in sorted(by_removed.items()) if len(values) == len(names)}
    values = np.array(list(whole.values())).reshape(len(whole), len(names))
    none = np.empty(0)
    if not whole:
        return Band(none, none, none, none, len(names))
    return Band(np.array(list(whole)), values.min(1), values.mean(1), values.max(1), len(names))


@validate_arguments
def curve_values(points: Collection[CurvePoint], order: str, figure: str) -> tuple[np.ndarray, np.ndarray]:
    """Heads removed, rising, and one figure of an order, as for `random_band`: (point,) each."""
    points = require_instances("points", points, CurvePoint)
    _check_figure(figure)
    own = sorted((point for point in points if point.order == order), key=lambda point: point.removed)
    return np.array([point.removed for point in own]), np.array([float(getattr(point, figure)) for point in own])


def _check_figure(figure: str) -> None:
    """Raise Refused for what is no figure of a point."""
    if figure not in FIGURES:
        raise Refused(f"figure {figure!r} is unknown: one of {', '.join(FIGURES)}")


@validate_arguments
def removable_head_count(points: Collection[CurvePoint], order: str, tolerance: float = 0.01) -> int:
    """How many heads an order takes before the loss has risen by more than a share of what it was with all.

    Counted at the points of the curve, up to the first that is above. Raises Refused without the point where none
    is gone.
    """
    removed, loss = curve_values(points, order, "loss")
    if not len(removed) or removed[0] != 0:
        raise Refused(f"the curve of {order!r} does not begin with all heads: there is nothing to compare with")
    above = np.flatnonzero(loss > (1 + tolerance) * loss[0])
    last = len(removed) - 1 if not len(above) else int(above[0]) - 1
    return int(removed[last])
