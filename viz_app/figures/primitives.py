"""The four kinds of figures: cells, lines, bars and points, with their layout, fonts, colours, margins and hover texts.

Labels, names and titles are plain text. Show a figure with `st.plotly_chart(figure, theme=None)`. The `meta` of its
layout has the smallest width in pixels at which its texts do not overlap, as "min_width".
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    DIVERGING,
    HEAD_COLOURS,
    HEAD_DASHES,
    SEQUENTIAL,
    TOKEN_FONT,
    cell_number,
    figure_of,
    page,
    plain,
    rgb,
    shade,
    sized,
    token_font,
    two_digits,
)

WIDTH = 700  # expected width of a figure, in pixels
DIGIT_CELL, LECTURE_DIGIT_CELL = 44, 58  # smallest width of a cell with digits, in pixels
LONGEST_LABEL, LONGEST_NAME, LONGEST_HOVER = 20, 40, 160
LABELS_THAT_FIT = 36
MIN_HEIGHT = 56  # of the bars together, in pixels: with less, plotly draws the axis title over the numbers
MASKED = " (masked)"  # end of the label of a masked token
TALL_MAP = 10  # rows; in lecture mode more of them share the height of a window
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "circle-open")
SOLID = 7  # index of the colour of bars in the sequential scale
LOW, HIGH = 3, 9  # indices of the colours of bars below and above zero in the diverging scale
TOP_LEFT = {"xref": "paper", "xanchor": "left", "yref": "paper", "yanchor": "bottom"}
INVISIBLE = {"marker": {"opacity": 0, "size": 2}, "selected": {"marker": {"opacity": 0}}}  # points that take clicks
# Everywhere in a cell the nearest point is its own.
CLICKS = {"hovermode": "closest", "hoverdistance": -1, "clickmode": "event+select", "dragmode": False}


def require_equal_lengths(**parts: Sized) -> None:
    """Raise ValueError, which states the length of every part, unless all have the same length."""
    if len({len(part) for part in parts.values()}) > 1:
        *first, last = (f"{len(part)} {name.replace('_', ' ')}" for name, part in parts.items())
        raise ValueError(f"{', '.join(first)} and {last}: one of each")


def heatmap(
    values: Any,
    *,
    signed: bool,
    limit: float,
    hover: str | None = None,
    bar: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the trace of a map.

    values: (row, column). limit: value of the last colour. hover: template of the hover text. bar: the colour bar.
    """
    template = {"hoverinfo": "skip"} if hover is None else {"hovertemplate": f"{hover}<extra></extra>"}
    scale = {"zmin": -limit if signed else 0, "zmax": limit, "showscale": bar is not None, "colorbar": bar}
    colours = (DIVERGING if signed else SEQUENTIAL).colorscale()
    return {"type": "heatmap", "z": values, **scale, "colorscale": colours, **template, **options}


def colour_bar(title: str, *, signed: bool, limit: float, length: int = 0, **place: Any) -> dict[str, Any]:
    """Return a horizontal colour bar with a title, below the map at the left, where no scrolling hides it.

    length: in pixels, by default 250. place: further attributes.
    """
    ticks = [-limit, 0, limit] if signed else [0, limit / 2, limit]
    # Below 0.1, both numbers have as many digits.
    labels = [two_digits(tick) if 0 < abs(tick) < 0.1 else f"{tick:.2g}".replace("-", "−") for tick in ticks]
    font = {"size": sized(13, 17), "color": page().faint}
    size = {"orientation": "h", "lenmode": "pixels", "len": length or sized(250, 320), "thickness": 12}
    position = {"x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "xpad": 0, "ypad": 8, "outlinewidth": 0, **place}
    text = {"title": {"text": plain(title, 60), "side": "top", "font": font}, "tickangle": 0}
    return {**text, "tickvals": ticks, "ticktext": labels, **size, **position}


def annotation(text: str, x: float, y: float, /, **options: Any) -> dict[str, Any]:
    """Return a text at a place of a figure, without an arrow."""
    return {"text": text, "x": x, "y": y, "showarrow": False, **options}


def frame(x: Sequence[float], y: Sequence[float], colour: str = "", width: float = 0, **options: Any) -> dict[str, Any]:
    """Return a rectangle as a shape of a layout. x, y: its edges. colour, width: of its border, by default none."""
    line = {"color": colour, "width": width} if width else {"width": 0}
    return {"type": "rect", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], "line": line, **options}


def vertical_line(x: float, colour: str, dash: str = "solid") -> dict[str, Any]:
    """Return a vertical line over the whole height, as a shape of a layout."""
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def row_frame(row: float, columns: float, **options: Any) -> dict[str, Any]:
    """Return the frame around one row of a map, as a shape of a layout."""
    return frame((-0.5, columns - 0.5), (row - 0.5, row + 0.5), page().accent, sized(3, 4), **options)


def ticks_at(labels: Sequence[str], positions: Sequence[Any] | None = None, /, **options: Any) -> dict[str, Any]:
    """Return an axis without grid lines that has a label at each position, by default from 0 up."""
    places = list(range(len(labels)) if positions is None else positions)
    ticks = {"tickmode": "array", "tickvals": places, "ticktext": list(labels)}
    return {**ticks, "showgrid": False, "zeroline": False, **options}


def row_axis(labels: Sequence[str], longest: int = LONGEST_LABEL, /, **options: Any) -> dict[str, Any]:
    """Return a vertical axis of named rows, the first on top. longest: number of letters that are drawn."""
    limits = [len(labels) - 0.5, -0.5]
    return ticks_at([plain(label, longest) + "  " for label in labels], range=limits, fixedrange=True) | options


def scatter(x: Any, y: Any, hovers: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
    """Return a trace of points. x, y, hovers: (point,); no hover texts if None. options: of the trace."""
    hover = {"hoverinfo": "skip"} if hovers is None else on_hover(hovers)
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "showlegend": False, **hover, **options}


def text_points(x: Any, y: Any, texts: Sequence[str], font: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Return a trace of texts, which look the same whether or not a click has selected some of them."""
    colour = {"textfont": {"color": font["color"]}}
    return scatter(x, y, mode="text", text=texts, textfont=font, selected=colour, unselected=colour) | options


def on_hover(texts: Any) -> dict[str, Any]:
    """Return attributes of a trace with a hover text for each point, bar or cell."""
    return {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}


def bar_columns(labels: Sequence[object], values: Sequence[object], name: str) -> dict[str, Any]:
    """Return the `meta` of a trace with a label and a number for each bar, for exported tables.

    name: of the numbers.
    """
    return {"columns": {"label": escaped(labels), name or "value": list(values)}}


def cell_columns(
    rows: Sequence[str], columns: Sequence[str], values: Mapping[str, Any], titles: Sequence[str] = ("row", "column")
) -> dict[str, Any]:
    """Return the `meta` of a trace with numbers for each cell, for exported tables.

    values: name -> (row, column) numbers or texts. titles: of the rows and of the columns.
    """
    parts = {name: part if isinstance(part, np.ndarray) else list(map(escaped, part)) for name, part in values.items()}
    row_title, column_title = map(html.escape, titles)
    return {"cells": [[row_title, escaped(rows)], [column_title, escaped(columns)], parts]}


def escaped(labels: Sequence[object]) -> list[object]:
    """Return labels for the `meta` of a trace, where texts are HTML as in all other attributes."""
    return [html.escape(label) if isinstance(label, str) else label for label in labels]


def hatched(colour: str, *, shape: str = "/", solidity: float = 0.35) -> dict[str, Any]:
    """Return the fill of a bar that differs from a solid one also without colours."""
    pattern = {"shape": shape, "fgcolor": colour, "size": 7, "solidity": solidity}
    return {"color": page().background, "line": {"color": colour, "width": 1}, "pattern": pattern}


def cells(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    signed: bool,
    unit: str,
    limit: float | None = None,
    numbers: np.ndarray | None = None,
    write: Callable[[float], str] = cell_number,
    texts: Sequence[Sequence[str]] | None = None,
    table: Mapping[str, Any] | None = None,
    hover: Callable[[int, int], str] | None = None,
    text_width: float | None = None,
    token_size: int | None = None,
    marked: np.ndarray | None = None,
    selected: tuple[int, int] | None = None,
    selected_row: int | None = None,
    extra_column: tuple[str, np.ndarray] | None = None,
    tokens: bool = True,
    longest_row: int = LONGEST_LABEL,
    titles: tuple[str, str] | None = None,
    first_row: int = 0,
    upwards: bool = False,
    width: int = WIDTH,
    tall: bool = False,
    dense: bool = False,
) -> go.Figure:
    """Draw a map of coloured cells that can be clicked: a click returns the column as x and the row as y.

    values: (row, column) the colours; NaN leaves a cell empty. signed: whether 0 is in the middle of the scale: warm
        above, cool below. unit: title of the colour bar. limit: value of the last colour; by default the largest one.
    numbers: (row, column) written in the cells by `write` if these are wide enough, and in full on hover; by default
        the values. texts: written instead, in every cell. table: name -> (row, column) numbers or texts of the exported
        table; by default the numbers, under the name of the unit. hover: returns the hover text of a row
        and column, escaped; by default their labels and the number.
    text_width: pixels that `texts` need. token_size: size of the font of `texts`, which are tokens.
    marked: (row, column) cells with a ring. selected, selected_row: cell or row with a frame.
    extra_column: label and numbers (row,), -1 to 1, of a column at the right edge, whose numbers are always written.
    tokens: whether row labels are in the font of tokens. longest_row: number of their letters. titles: of the rows and
        of the columns.
    first_row: number of the first row. upwards: whether the first row is at the bottom. width: expected, in pixels.
    tall: whether the rows of a small map are higher than others. dense: whether rows and columns are as small as their
        labels allow, for one of several maps.
    Raises ValueError if a part does not have the shape of the values, or there is no cell.
    """
    shape = (len(rows), len(columns))
    if values.shape != shape or 0 in shape:
        raise ValueError(
            f"values of shape {values.shape} with {shape[0]} row labels and {shape[1]} column labels: expected "
            "(row, column), at least one of each"
        )
    for name, part in (("numbers", numbers), ("marks", marked)):
        if part is not None and part.shape != shape:
            raise ValueError(f"{name} of shape {part.shape} for values of {shape}: one for each")
    if extra_column is not None and extra_column[1].shape != shape[:1]:
        raise ValueError(f"a column of shape {extra_column[1].shape} beside {shape[0]} rows: one number for each")
    numbers = values if numbers is None else numbers
    limit = (float(np.abs(np.nan_to_num(values)).max()) or 1.0) if limit is None else limit or 1.0
    letter, size = (
        sized(8, 11) if tokens else sized(7, 10),
        sized(12 if dense else 13, 18 if shape[0] <= TALL_MAP else 15),
    )
    label_width = 40 + letter * min(max(map(len, rows)), longest_row)
    columns_drawn = shape[1] + (0 if extra_column is None else 1.3)
    cell_width = (width - label_width) / columns_drawn
    text_width = text_width or sized(DIGIT_CELL, LECTURE_DIGIT_CELL)
    if texts is None:
        texts = [[write(number) for number in line] for line in numbers.tolist()] if cell_width >= text_width else None
    if hover is None:
        row_hovers, column_hovers = ([plain(label, LONGEST_HOVER) for label in labels] for labels in (rows, columns))
        in_full = numbers.tolist()

        def hover(row: int, column: int) -> str:
            return f"{row_hovers[row]}<br>{column_hovers[column]}<br>{in_full[row][column]:.9g}"

    number_size = sized(13, 16) if cell_width >= 1.4 * text_width else sized(12, 14)
    font = {"size": number_size} if token_size is None else token_font(token_size)
    places, map_width = list(range(first_row, first_row + shape[0])), round(0.8 * (width - label_width))
    bar = colour_bar(unit, signed=signed, limit=limit, length=min(sized(250, 320), max(map_width, 120)))
    traces = _cell_traces(values, texts, list(range(shape[1])), places, font, signed=signed, limit=limit, bar=bar)
    # Invisible points over the map: clicks on a heatmap do not select anything.
    x, y = np.tile(np.arange(shape[1]), shape[0]), np.repeat(places, shape[1])
    exported = dict(table or {unit: numbers})
    if extra_column is not None:
        exported[extra_column[0]] = np.repeat(extra_column[1][:, None], shape[1], axis=1)
    meta = cell_columns(rows, columns, exported, titles or ("row", "column"))
    hovers = [hover(row, column) for row, column in np.ndindex(shape)]
    traces.insert(1, scatter(x, y, hovers, meta=meta, **INVISIBLE))
    step = -(-shape[1] // sized(LABELS_THAT_FIT, LABELS_THAT_FIT // 2))
    labelled: list[float] = [*range(0, shape[1], step)]
    labels = [columns[int(column)] for column in labelled]
    if extra_column is not None:
        place, digits = shape[1] + 0.3, [[write(number)] for number in extra_column[1].tolist()]
        traces += _cell_traces(extra_column[1][:, None], digits, [place], places, font, signed=True, limit=1.0)
        labels, labelled = [*labels, extra_column[0]], [*labelled, place]
    if marked is not None:
        spots = np.argwhere(marked & np.isfinite(values)).tolist()
        ink = [shade(float(values[row, column]) / limit, signed=signed)[1] for row, column in spots]
        ring = {"symbol": "circle-open", "size": sized(6, 8), "color": ink}
        x_marks, y_marks = [column + 0.38 for _, column in spots], [first_row + row - 0.28 for row, _ in spots]
        traces.append(scatter(x_marks, y_marks, marker=ring))
    frames = [] if selected_row is None else [row_frame(first_row + selected_row, columns_drawn)]
    if selected is not None:
        top_edge, left_edge = first_row + selected[0] - 0.5, selected[1] - 0.5
        frames.append(frame((left_edge, left_edge + 1), (top_edge, top_edge + 1), page().text, sized(3, 4)))
    # The label of a masked token has two lines.
    lines = [line for label in labels for line in label.split(MASKED)] + [MASKED] * any(MASKED in at for at in labels)
    is_tilted = letter * max(map(len, lines)) > max(cell_width, text_width if texts else 0) * step
    top = round(7.2 * size) if is_tilted else sized(34, 44) + round(1.3 * size) * (MASKED in lines)
    column_names = [plain(label, 12 if is_tilted else LONGEST_LABEL) for label in labels]
    if not is_tilted:
        column_names = [name.replace(MASKED, f"<br>{MASKED.strip()}") for name in column_names]
    bottom, row_height = sized(64, 80), sized(22 if dense else 40 if tall and shape[0] <= TALL_MAP else 30, 38)
    limits = [places[0] - 0.5, places[-1] + 0.5]
    row_names = [plain(label, longest_row) + "  " for label in rows]
    column_font = token_font(size) if is_tilted else {"size": size}
    row_title, column_title = ({"text": plain(title)} for title in titles or ("", ""))
    layout = {
        **CLICKS,
        "shapes": frames,
        "height": round(shape[0] * row_height + top + bottom + (24 if titles else 0)),
        "margin": {"l": 8, "r": 48 if is_tilted else 8, "t": top, "b": bottom},
        "xaxis": ticks_at(column_names, labelled)
        | {"side": "top", "tickangle": -50 if is_tilted else 0, "tickfont": column_font, "fixedrange": True}
        | {"range": [-0.5, columns_drawn - 0.5], "automargin": False if is_tilted else "height", "title": column_title},
        "yaxis": ticks_at(row_names, places, range=limits if upwards else limits[::-1], fixedrange=True)
        | {"tickfont": token_font(size) if tokens else {"size": size}, "title": row_title},
        "meta": {
            "min_width": round(label_width + columns_drawn * (text_width if texts else sized(18 if dense else 24, 30)))
        },
    }
    return figure_of(traces, layout)


def _cell_traces(
    values: np.ndarray,
    texts: Sequence[Sequence[str]] | None,
    x: Sequence[float],
    y: Sequence[float],
    font: Mapping[str, Any],
    **scale: Any,
) -> list[dict[str, Any]]:
    """Return a heatmap, and one trace for the texts in black and one for those in white, whichever can be read."""
    traces = [heatmap(values, x=x, y=y, xgap=1, ygap=1, **scale)]
    if texts is None:
        return traces
    shares = np.nan_to_num(values / scale["limit"]).tolist()
    inks = np.array([[shade(share, signed=scale["signed"])[1] for share in line] for line in shares])
    inks[~np.isfinite(values)] = page().text
    for ink in sorted(set(inks.flat)):
        spots = np.argwhere(inks == ink).tolist()
        words = [plain(texts[row][column]) for row, column in spots]
        places = [x[column] for _, column in spots], [y[row] for row, _ in spots]
        traces.append(text_points(*places, words, {**font, "color": ink}))
    return traces


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any] | None = None,
    form: str = ".9g",
    place: str = "%{x}",
    band: tuple[Sequence[float], Sequence[float], Sequence[float], str] | None = None,
    dotted: Sequence[str] = (),
    reference: float | None = None,
    point: tuple[str, float, float] | None = None,
    names_at_ends: bool = False,
    height: tuple[int, int] = (320, 420),
) -> go.Figure:
    """Draw series of numbers as lines; those of few points have markers.

    series: name -> places and numbers, (point,) each; NaN leaves a gap. title: of the vertical axis. x_axis, y_axis:
        attributes of the axes. form: of the numbers on hover. place: template of a place on hover.
    band: places, lowest and highest numbers, (point,) each, and colour of a range below the lines. dotted: names of the
        series that are grey and dotted. reference: place of a vertical line. point: name, place and number of a point.
    names_at_ends: whether each line has its name at its end instead of in a legend; `y_axis` then has a range.
    height: in pixels, and in lecture mode.
    """
    colours, size = page(), sized(14, 18)
    traces: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    y_axis = {"title": {"text": plain(title)}, "zeroline": False, "fixedrange": True, **(y_axis or {})}
    if band is not None:
        x, low, high, colour = band
        fill = {"fill": "tonexty", "fillcolor": f"rgba({', '.join(map(str, rgb(colour)))}, 0.26)"}
        edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}}
        traces = [scatter(list(x), list(high), **edge), scatter(list(x), list(low), **edge, **fill)]
    ends: Sequence[float] = ()
    if names_at_ends:
        bottom, top = y_axis["range"]
        line_height = 1.35 * size * (top - bottom) / (sized(*height) - 70)
        ends = spread([float(y[-1]) for _, y in series.values()], line_height, bottom, top)
    number = 0
    for index, (name, (x, y)) in enumerate(series.items()):
        is_dotted, label = name in dotted, plain(name, LONGEST_NAME)
        line = {"color": HEAD_COLOURS[number % 12], "dash": HEAD_DASHES[number % 12], "width": sized(2.5, 4)}
        line |= {"color": colours.faint, "dash": "dot"} if is_dotted else {}
        number += not is_dotted
        marker = {"size": sized(8, 11), "symbol": SYMBOLS[index % len(SYMBOLS)] if names_at_ends else "circle"}
        hover = {"hovertemplate": f"{plain(name, LONGEST_HOVER)}<br>{place}: %{{y:{form}}}<extra></extra>"}
        style: dict[str, Any] = {
            "mode": "lines" if len(x) > 24 or is_dotted else "lines+markers",
            "line": line,
            "marker": marker,
        }
        style |= {"name": label, "showlegend": True, "cliponaxis": False, "hoverinfo": None}
        traces.append(scatter(list(x), list(y)) | style | hover)
        if names_at_ends:
            to_name = [x[-1], x_axis["range"][1]], [y[-1], ends[index]]
            traces.append(scatter(*to_name, mode="lines", line={**line, "width": 1}))
            position = {"xref": "paper", "xanchor": "left", "xshift": 4, "yanchor": "middle"}
            notes.append(annotation(label, 1, ends[index], font={"size": size, "color": colours.text}, **position))
    if point is not None:
        name, x_point, y_point = point
        marker = {"size": sized(14, 18), "symbol": "diamond", "color": colours.accent}
        style = {"name": plain(name, LONGEST_NAME), "marker": marker, "showlegend": True, "cliponaxis": False}
        hover = {"hovertemplate": f"{plain(name)}<br>{place}: %{{y:{form}}}<extra></extra>"}
        traces.append(scatter([x_point], [y_point]) | style | hover | {"hoverinfo": None})
    end_room = round(0.56 * size * max(map(len, series), default=0) + 14)
    layout = {
        "height": sized(*height),
        "margin": {"t": 12 if names_at_ends else sized(36, 44), "r": end_room if names_at_ends else 24},
        "hovermode": "closest",
        "showlegend": not names_at_ends,
        "annotations": notes,
        "shapes": [] if reference is None else [vertical_line(reference, colours.accent, "dot")],
        "xaxis": {"zeroline": False, "fixedrange": True, **x_axis},
        "yaxis": y_axis,
    }
    return figure_of(traces, layout)


def depth_axis(names: Sequence[str], **options: Any) -> dict[str, Any]:
    """Return the horizontal axis of lines over named depths or layers."""
    return ticks_at(names, **{"showgrid": True, "tickangle": 0, **options})


def depth_series(series: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, tuple[range, list[float]]]:
    """Return series over named depths as `lines` takes them.

    series: name -> (depth,) numbers. Raises ValueError if the length of a series is not the number of depths.
    """
    for name, values in series.items():
        if len(values) != len(names):
            raise ValueError(f"{name!r} has {len(values)} figures for {len(names)} depths: one for each")
    return {name: (range(len(names)), np.asarray(values, float).tolist()) for name, values in series.items()}


def spread(places: Sequence[float], min_distance: float, bottom: float, top: float) -> list[float]:
    """Return positions in the same order, near the given ones and at least `min_distance` apart."""
    order = np.argsort(places, kind="stable")
    positions = np.array(places, float)[order]
    positions[-1] = min(positions[-1], top)
    for index in range(len(positions) - 2, -1, -1):
        positions[index] = min(positions[index], positions[index + 1] - min_distance)
    positions[0] = max(positions[0], bottom)
    for index in range(1, len(positions)):
        positions[index] = max(positions[index], positions[index - 1] + min_distance)
    back = np.empty_like(positions)
    back[order] = positions
    return back.tolist()  # type: ignore[no-any-return]


def series_fill(name: str) -> dict[str, Any]:
    """Return the fill of the bars of a series: hatched for "before", otherwise solid."""
    colour = SEQUENTIAL.colours()[SOLID]
    return hatched(colour) if name == "before" else {"color": colour}


def signed_fill(values: Sequence[float]) -> dict[str, Any]:
    """Return the fill of bars of a signed quantity: warm from zero up, cool below."""
    scale = DIVERGING.colours()
    return {"color": [scale[LOW] if value < 0 else scale[HIGH] for value in values]}


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    write: Callable[[float], str] = two_digits,
    form: str = ".9g",
    fills: Mapping[str, Mapping[str, Any]] | None = None,
    marks: tuple[str, Sequence[float]] | None = None,
    intervals: tuple[Sequence[float], Sequence[float]] | None = None,
    base: float = 0.0,
    selected: int | None = None,
    limits: tuple[float, float] | None = None,
    axis: Mapping[str, Any] | None = None,
    legend: bool | None = None,
    tokens: bool = True,
    longest: int = LONGEST_LABEL,
    bar_texts: bool = True,
    stacked: bool = False,
    **options: Any,
) -> go.Figure:
    """Draw numbers as horizontal bars, the first label on top, one bar for each series.

    series: name -> (label,) numbers. title: of the horizontal axis. write: returns the text at the end of a bar.
        form: of the numbers on hover. fills: name -> fill of the bars; by default `series_fill`.
    marks: name and places of a vertical mark in each row. intervals: lower and upper bound for each bar of one series,
        NaN for a bar without one. base: where bars begin. selected: row with a bold label.
    limits: of the horizontal axis; by default all numbers fit. axis: further attributes of it. legend: by default only
        with several series. tokens: whether labels are in the font of tokens. longest: number of their letters.
    bar_texts: whether the texts are beside the bars, or on hover only. stacked: whether each bar begins at the end of
        that of the series before, with the sum as the only text; for parts of a total. options: further attributes of
        the layout.
    Raises ValueError if the lengths differ.
    """
    for name, values in series.items():
        if len(values) != len(labels):
            raise ValueError(f"{len(labels)} labels and {len(values)} values ({name or title}): one for each label")
    legend = len(series) > 1 if legend is None else legend
    names, rows, font_size = [plain(label, LONGEST_HOVER) for label in labels], [*range(len(labels))], sized(14, 19)
    traces, ends = [], np.zeros(len(labels)) if marks is None else np.asarray(marks[1], float)
    starts, last_name = np.full(len(labels), base), list(series)[-1] if series else ""
    for name, values in series.items():
        ends_of_bars = np.add(starts, values) if stacked else np.asarray(values, float)
        texts = [write(value) for value in ends_of_bars.tolist()]
        hovers = [
            f"{label}<br>{plain(name, LONGEST_NAME)} {value:{form}}".replace("<br> ", "<br>")
            for label, value in zip(names, values, strict=True)
        ]
        trace: dict[str, Any] = {"type": "bar", "orientation": "h", "y": rows}
        if stacked:
            trace |= {"x": list(values), "base": starts.tolist()}
            starts = ends_of_bars
        else:
            trace |= {"x": [value - base for value in values], "base": base}
        has_texts = bar_texts and marks is None and (not stacked or name == last_name)
        trace |= {"meta": bar_columns(labels, values, title)}
        trace |= {"name": plain(name, LONGEST_NAME), "marker": (fills or {}).get(name) or series_fill(name)}
        trace |= {"text": texts, "textposition": "outside" if has_texts else "none"}
        style = {"constraintext": "none", "cliponaxis": False, "showlegend": legend and bool(name)}
        traces.append(trace | style | on_hover(hovers))
        if marks is not None and bar_texts:  # the text stands beyond the bar, and beyond a mark that it would cover
            reach = np.max([*values, *marks[1]], initial=0.0)
            is_covered = (ends >= values) & (ends < np.asarray(values) + 0.12 * reach)
            ends = np.where(is_covered, ends, values)
            text_place = {"textposition": "middle right", "cliponaxis": False}
            font = {"size": font_size, "color": page().text}
            traces.append(text_points(ends.tolist(), rows, [f"  {text}" for text in texts], font, **text_place))
    numbers = [float(value) for values in series.values() for value in values]
    if stacked:
        numbers = [float(end) for end in starts]
    if intervals is not None:
        numbers += _add_intervals(traces, intervals, font_size)
    if marks is not None:
        name, places = marks
        line = {"width": 3, "color": page().text}
        marker = {"symbol": "line-ns-open", "size": sized(16, 22), "color": page().text, "line": line}
        hovers = [f"{plain(name)} {place:{form}}" for place in places]
        style = {"meta": bar_columns(labels, places, title)}
        style |= {"name": plain(name), "marker": marker, "showlegend": legend, "cliponaxis": False}
        traces.insert(1, scatter(list(places), rows, hovers) | style)
        numbers += map(float, places)
    if limits is None:
        low, high = min(numbers, default=0.0), max(numbers, default=0.0)
        reach = max(-low, high) or 1.0
        # Room for the text at the end of a bar below zero, which the margin gives only at the right.
        limits = (low - 0.24 * reach if low < 0 else 0.0, max(1.02 * high, 0.1 * reach))
    row_names = [plain(label, longest) + "  " for label in labels]
    if selected is not None:
        row_names[selected] = f"<b>{row_names[selected].strip()}</b>  "
    top = sized(36, 44) if legend else 8
    thickness = (14 + 17 * (1 if stacked else len(series))) * sized(1, 1.35)
    font = {"family": TOKEN_FONT, "size": font_size} if tokens else {"size": font_size}
    title_room = 60 if title else 30
    layout = {
        "barmode": "overlay" if stacked else "group",
        "bargap": 0.3,
        "bargroupgap": 0.06,
        "showlegend": legend,
        "legend": {"traceorder": "normal"},
        "height": round(max(len(labels) * thickness, MIN_HEIGHT) + (top + title_room) * sized(1, 1.3)),
        "margin": {"l": 8, "r": 64, "t": top},
        "dragmode": False,
        # A short bar is as easily met as a long one: anywhere in its row.
        "hovermode": "y" if len(series) < 3 and marks is None else "closest",
        "xaxis": {"title": {"text": plain(title)}, "zeroline": limits[0] < 0, "nticks": 5, "range": list(limits)}
        | dict(axis or {}),
        "yaxis": ticks_at(row_names, range=[len(labels) - 0.5, -0.5], tickfont=font, fixedrange=True),
        **options,
    }
    return figure_of(traces, layout)


def _add_intervals(
    traces: list[dict[str, Any]], intervals: tuple[Sequence[float], Sequence[float]], font_size: int
) -> list[float]:
    """Draw an interval over each bar of the first trace, with the text behind it; return all bounds but NaN.

    intervals: lower and upper bounds, (bar,), which are columns of the exported table.
    """
    trace = traces[0]
    ends = np.asarray(trace["x"], float) + trace["base"]
    low, high = (np.asarray(bounds, float) for bounds in intervals)
    lengths = {"array": np.nan_to_num(high - ends).tolist(), "arrayminus": np.nan_to_num(ends - low).tolist()}
    trace["error_x"] = {
        "type": "data",
        "symmetric": False,
        "color": page().text,
        "thickness": 1.5,
        "width": 4,
        **lengths,
    }
    trace["meta"]["columns"] |= {"interval low": low.tolist(), "interval high": high.tolist()}
    texts, trace["textposition"] = [f"  {text}" for text in trace["text"]], "none"
    font, place = {"size": font_size, "color": page().text}, {"textposition": "middle right", "cliponaxis": False}
    traces.append(text_points(np.fmax(ends, high).tolist(), trace["y"], texts, font, **place))
    return [float(bound) for bound in (*low, *high) if bound == bound]


def mirrored_bars(
    series: Mapping[str, Sequence[float]],
    *,
    labels: Mapping[str, Sequence[str | None]],
    hovers: Mapping[str, Sequence[str]],
    y_axis: Mapping[str, Any],
    x_axis: Mapping[str, Any],
    fills: Mapping[str, Mapping[str, Any]] | None = None,
    texts: bool = True,
    height: int,
    **options: Any,
) -> go.Figure:
    """Draw numbers as vertical bars, from place 0 on: the first series upwards, a second one downwards and hatched.

    series: name -> (bar,) numbers; NaN for no bar. labels, hovers: name -> (bar,) labels of the exported table, and
    hover texts. y_axis, x_axis: attributes of the axes. fills: name -> fill of the bars. texts: whether the numbers are
    written. height: in pixels.
    """
    title = (y_axis.get("title") or {}).get("text", "")
    traces = []
    for (name, values), sign, fill in zip(series.items(), (1, -1), ("now", "before"), strict=False):
        trace = {"type": "bar", "x": [*range(len(values))], "y": [sign * value for value in values]}
        pairs = [pair for pair in zip(labels[name], values, strict=True) if pair[1] == pair[1]]
        style = {
            "meta": bar_columns([label for label, _ in pairs], [value for _, value in pairs], title),
            "name": plain(name),
            "textposition": "outside",
            "textangle": 0,
            "constraintext": "none",
            "cliponaxis": False,
        }
        if texts:
            style["text"] = ["" if value != value else two_digits(value) for value in values]
        marker = (fills or {}).get(name) or series_fill(fill)
        traces.append(
            trace
            | style
            | {"textfont": {"size": sized(11, 15)}, "marker": marker, "width": 0.7}
            | on_hover(hovers[name])
        )
    layout = {
        "barmode": "overlay",
        "height": height,
        "dragmode": False,
        "hovermode": "x",
        "showlegend": len(series) > 1,
        "xaxis": {
            "range": [-0.6, max(map(len, series.values())) - 0.4],
            "zeroline": False,
            "showgrid": False,
            **x_axis,
        },
        "yaxis": {"zeroline": True, "fixedrange": True, **y_axis},
        "margin": {"t": sized(36, 44)},
        **options,
    }
    return figure_of(traces, layout)


class PointGroup(NamedTuple):
    """Points of one kind.

    x, y, hovers: (point,). marker: by default a colour and a symbol for each group. name: in the legend, or empty.
    labels: (point,) texts beside the points, empty for none. clicks: (point,) what a click returns as `customdata`.
    sides: `textposition` of the labels. errors: (point,) half lengths of horizontal intervals. font: of the labels.
    """

    x: Sequence[float]
    y: Sequence[float]
    hovers: Sequence[str] | None
    marker: Mapping[str, Any] = {}
    name: str = ""
    labels: Sequence[str] = ()
    clicks: Sequence[Any] | None = None
    sides: str | Sequence[str] = "top center"
    errors: Sequence[float] | None = None
    font: Mapping[str, Any] | None = None


def points(
    groups: Sequence[PointGroup],
    *,
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
    height: int,
    diagonal: tuple[float, float] | None = None,
    band: tuple[float, float] | None = None,
    **options: Any,
) -> go.Figure:
    """Draw points, with a group of each kind.

    x_axis, y_axis: attributes of the axes. height: in pixels. diagonal: ends of the dotted line on which both axes are
    equal. band: grey range of the horizontal axis. options: further attributes of the layout.
    """
    colours, traces = page(), []
    if diagonal is not None:
        line = {"color": colours.faint, "width": sized(1, 2), "dash": "dot"}
        traces.append(scatter(list(diagonal), list(diagonal), mode="lines", line=line))
    for number, group in enumerate(groups):
        look = {"color": HEAD_COLOURS[number % 12], "symbol": SYMBOLS[number % len(SYMBOLS)]}
        marker = {"size": sized(10, 14), "opacity": 1, **look, **group.marker}
        unchanged = {"marker": {"opacity": marker["opacity"]}}
        trace = scatter(list(group.x), list(group.y), group.hovers, marker=marker, cliponaxis=False)
        trace |= {"name": plain(group.name), "selected": unchanged, "unselected": unchanged}
        trace |= {"showlegend": bool(group.name), "customdata": group.clicks}
        if any(group.labels):
            font = {"size": sized(11, 15), "color": colours.text, **(group.font or {})}
            trace |= {"mode": "markers+text", "text": list(group.labels), "textfont": font, "textposition": group.sides}
        if group.errors is not None:
            trace["error_x"] = {"array": list(group.errors), "color": colours.faint, "thickness": 1.5}
        traces.append(trace)
    grey: dict[str, Any] = {"fillcolor": colours.line, "opacity": 0.55, "layer": "below", "yref": "y domain"}
    layout = {
        "height": height,
        "dragmode": False,
        "hovermode": "closest",
        "margin": {"t": sized(36, 44) if any(group.name for group in groups) else 16, "r": 24},
        "shapes": [] if band is None else [frame(band, (0, 1), **grey)],
        "xaxis": {"zeroline": True, **x_axis},
        "yaxis": y_axis,
        **options,
    }
    return figure_of(traces, layout)
