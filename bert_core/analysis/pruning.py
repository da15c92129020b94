"""Analysis of pruning curves: the range of random orders, and how many heads can be removed at little loss."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from bert_core.records import CurvePoint
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_instances, validate_arguments

FIGURES = tuple(entry.name for entry in fields(CurvePoint) if entry.name not in ("order", "removed"))
RANDOM_PREFIX = "random"  # of the names of random orders


@compared_by_value
class Band(NamedTuple):
    """Range of the random orders at each number of removed heads.

    removed: (point,), number of removed heads, rising.
    low, mean, high: (point,), minimum, mean and maximum over the random orders.
    orders: number of random orders.
    """

    removed: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    orders: int


@validate_arguments
def random_band(points: Collection[CurvePoint], figure: str) -> Band:
    """Compute the range of one number over the random orders, at the points that all random orders contain.

    figure: "loss", "mlm", "nsp", "parameters" or "tokens_per_second".
    Raises Refused if the figure is unknown.
    """
    points = require_instances("points", points, CurvePoint)
    _check_figure(figure)
    by_removed: dict[int, list[float]] = {}
    names = {point.order for point in points if point.order.startswith(RANDOM_PREFIX)}
    for point in points:
        if point.order in names:
            by_removed.setdefault(point.removed, []).append(float(getattr(point, figure)))
    complete = {removed: values for removed, values in sorted(by_removed.items()) if len(values) == len(names)}
    values = np.array(list(complete.values())).reshape(len(complete), len(names))
    empty = np.empty(0)
    if not complete:
        return Band(empty, empty, empty, empty, len(names))
    return Band(np.array(list(complete)), values.min(1), values.mean(1), values.max(1), len(names))


@validate_arguments
def curve_values(points: Collection[CurvePoint], order: str, figure: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pruning curve of one order as two arrays (point,).

    order: name of the order.
    figure: "loss", "mlm", "nsp", "parameters" or "tokens_per_second".
    Returns the number of removed heads, rising, and the figure at each point.
    Raises Refused if the figure is unknown.
    """
    points = require_instances("points", points, CurvePoint)
    _check_figure(figure)
    curve = sorted((point for point in points if point.order == order), key=lambda point: point.removed)
    return np.array([point.removed for point in curve]), np.array([float(getattr(point, figure)) for point in curve])


def _check_figure(figure: str) -> None:
    """Raise Refused if a `CurvePoint` has no such figure."""
    if figure not in FIGURES:
        raise Refused(f"figure {figure!r} is unknown: it must be one of {', '.join(FIGURES)}")


@validate_arguments
def removable_head_count(points: Collection[CurvePoint], order: str, tolerance: float = 0.01) -> int:
    """Return how many heads an order removes before the loss has risen by more than a share.

    Only points of the curve are counted, up to the first one above the limit.

    order: name of the order.
    tolerance: allowed rise as a share of the loss with all heads.
    Raises Refused if the curve lacks the point without removed heads.
    """
    removed, loss = curve_values(points, order, "loss")
    if not len(removed) or removed[0] != 0:
        raise Refused(f"the curve of {order!r} has no point with all heads: the rise of the loss is relative to it")
    above_limit = np.flatnonzero(loss > (1 + tolerance) * loss[0])
    last = len(removed) - 1 if not len(above_limit) else int(above_limit[0]) - 1
    return int(removed[last])
