"""The numbers of a Plotly figure as columns of a table."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

_TAG = re.compile("<[^>]*>")
_ISOLATE = re.compile("[\u2068\u2069]")  # around right-to-left labels; see `style.plain`


def figure_columns(figure: go.Figure) -> dict[str, list[object]]:
    """Return the numbers of a figure as columns, with one row for each bar, point or cell.

    Columns: "series", if the figure has several traces, then the two axes, and for heatmaps the value. They have the
    names of the axes and of the colour bar where these have titles. Positions with a tick label are given by the label.
    Traces without a hover text, such as reference lines, are left out.
    """
    layout = figure.layout.to_plotly_json()
    traces = [trace.to_plotly_json() for trace in figure.data]
    traces = [trace for trace in traces if trace.get("hoverinfo") != "skip" and trace.get("visible", True) is True]
    tables = [_trace_columns(trace, layout) for trace in traces]
    names = list(dict.fromkeys(name for table in tables for name in table))
    columns: dict[str, list[object]] = {"series": []} if len(tables) > 1 else {}
    columns |= {name: [] for name in names}
    for number, (trace, table) in enumerate(zip(traces, tables, strict=True)):
        length = max(map(len, table.values()), default=0)
        if "series" in columns:
            columns["series"] += [_plain_text(trace.get("name") or str(number + 1))] * length
        for name in names:
            columns[name] += table.get(name, [None] * length)
    return columns


def _trace_columns(trace: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, list[object]]:
    axes = [layout.get(f"{axis}axis{trace.get(f'{axis}axis', axis)[1:]}", {}) for axis in "xy"]
    if "z" in trace:
        values = np.asarray(trace["z"])
        rows, columns = (axis.ravel().tolist() for axis in np.indices(values.shape))
        y, x = (
            [coordinates[index] for index in indices]
            for indices, coordinates in (
                (rows, _coordinates(trace, "y", values.shape[0])),
                (columns, _coordinates(trace, "x", values.shape[1])),
            )
        )
        bar = trace.get("colorbar", {}) or layout.get("coloraxis", {}).get("colorbar", {})
        defaults = ["row", "column", "value"]
        names = [_title(part) or name for part, name in zip((axes[1], axes[0], bar), defaults, strict=True)]
        cells = [_labels(axes[1], y), _labels(axes[0], x), values.ravel().tolist()]
    else:
        length = max((len(trace[axis]) for axis in "xy" if trace.get(axis) is not None), default=0)
        defaults = ["x", "y"]
        names = [_title(axis) or name for axis, name in zip(axes, defaults, strict=True)]
        cells = [_labels(axes["xy".index(axis)], _coordinates(trace, axis, length)) for axis in "xy"]
    if len(set(names)) < len(names):
        names = [f"{name} ({default})" for name, default in zip(names, defaults, strict=True)]
    return dict(zip(names, cells, strict=True))


def _coordinates(trace: Mapping[str, Any], axis: str, length: int) -> list[Any]:
    """Return the coordinates of a trace on an axis, which are 0, 1, ... if it has none."""
    return list(range(length)) if trace.get(axis) is None else np.asarray(trace[axis]).tolist()


def _labels(axis: Mapping[str, Any], coordinates: list[Any]) -> list[object]:
    """Return coordinates with the labels of the ticks in place of their positions."""
    ticks = dict(zip(axis.get("tickvals") or (), axis.get("ticktext") or (), strict=False))
    labels = (ticks.get(value, value) for value in coordinates)
    return [_plain_text(label) if isinstance(label, str) else label for label in labels]


def _title(part: Mapping[str, Any]) -> str:
    """Return the title of an axis or a colour bar as plain text; empty if it has none."""
    title = part.get("title") or {}
    return _plain_text(title if isinstance(title, str) else title.get("text") or "")


def _plain_text(label: str) -> str:
    return _ISOLATE.sub("", html.unescape(_TAG.sub(" ", label))).strip()
