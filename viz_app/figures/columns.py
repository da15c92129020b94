"""The numbers of a Plotly figure as columns of a table."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

_TAG = re.compile("<[^>]*>")
_ISOLATE = re.compile("[\u2068\u2069]")  # around right-to-left labels; see `style.plain`


def figure_columns(figure: go.Figure) -> dict[str, list[object]]:
    """Return the numbers of a figure as columns, with one row for each bar, point or cell.

    A trace can name its columns in its `meta`: see `bar_columns` and `cell_columns` of `primitives`. Otherwise they are
    the two axes, and for heatmaps the value, with the titles of the axes and of the colour bar as names; positions with
    a tick label are given by the label. With several named traces, the first column is "series". Traces without a hover
    text, such as reference lines, are left out.
    """
    layout = figure.layout.to_plotly_json()
    traces = [trace.to_plotly_json() for trace in figure.data]
    traces = [trace for trace in traces if trace.get("hoverinfo") != "skip" and trace.get("visible", True) is True]
    tables = [_trace_columns(trace, layout) for trace in traces]
    names = list(dict.fromkeys(name for table in tables for name in table))
    columns: dict[str, list[object]] = {"series": []} if any(trace.get("name") for trace in traces[1:]) else {}
    columns |= {name: [] for name in names}
    for number, (trace, table) in enumerate(zip(traces, tables, strict=True)):
        length = max(map(len, table.values()), default=0)
        if "series" in columns:
            columns["series"] += [_plain_text(trace.get("name") or str(number + 1))] * length
        for name in names:
            columns[name] += table.get(name, [None] * length)
    return columns


def _trace_columns(trace: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, list[object]]:
    meta = trace.get("meta") or {}
    if "cells" in meta:
        (row_name, rows), (column_name, columns), values = meta["cells"]
        repeated = {row_name: [row for row in rows for _ in columns], column_name: [*columns] * len(rows)}
        return _texts(repeated | {name: np.asarray(part).ravel().tolist() for name, part in values.items()})
    if "columns" in meta:
        return _texts(meta["columns"])
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
    if errors := (trace.get("error_x") or {}).get("array"):
        names, cells = [*names, "half length of the interval"], [*cells, list(errors)]
    return dict(zip(names, cells, strict=True))


def _coordinates(trace: Mapping[str, Any], axis: str, length: int) -> list[Any]:
    """Return the coordinates of a trace on an axis, which are 0, 1, ... if it has none."""
    return list(range(length)) if trace.get(axis) is None else np.asarray(trace[axis]).tolist()


def _labels(axis: Mapping[str, Any], coordinates: list[Any]) -> list[object]:
    """Return coordinates with the labels of the ticks in place of their positions."""
    ticks = dict(zip(axis.get("tickvals") or (), axis.get("ticktext") or (), strict=False))
    return _texts({"": [ticks.get(value, value) for value in coordinates]})[""]


def _texts(columns: Mapping[str, Iterable[object]]) -> dict[str, list[object]]:
    """Return columns with plain texts in place of HTML, in their names too."""
    return {
        _plain_text(name): [_plain_text(value) if isinstance(value, str) else value for value in column]
        for name, column in columns.items()
    }


def _title(part: Mapping[str, Any]) -> str:
    """Return the title of an axis or a colour bar as plain text; empty if it has none."""
    title = part.get("title") or {}
    return _plain_text(title if isinstance(title, str) else title.get("text") or "")


def _plain_text(label: str) -> str:
    return _ISOLATE.sub("", html.unescape(_TAG.sub(" ", label))).strip()
