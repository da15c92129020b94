"""Figures of the stages of a forward pass: pieces in boxes, vectors as rows of colours, one row of a map as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz_app.figures.style import (
    DIVERGING,
    SENTENCE_TINTS,
    SEQUENTIAL,
    annotation,
    cells,
    columns,
    current_look,
    figure_of,
    horizontal_scale,
    label_axis,
    page,
    plain,
    points,
    rectangle,
    row_frame,
    sized,
    styled,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 14, 160
ROWS_THAT_FIT, KEYS_THAT_FIT, ROWS_IN_LECTURE = 40, 40, 8
PIECES_A_LINE = 6
PANELS_HEIGHT = 480  # of all panels under each other, where their rows can be thin enough
LABEL_HEIGHT = 15  # of a row that has its label
TOP_LEFT = {"xref": "paper", "xanchor": "left", "yref": "paper", "yanchor": "bottom"}


def window(length: int, selected: int, room: int = ROWS_THAT_FIT) -> slice:
    """Return the rows of a long text that are drawn: at most `room`, the selected one among them."""
    first = min(max(selected - room // 2, 0), max(length - room, 0))
    return slice(first, min(first + room, length))


def _part(rows: slice, length: int, noun: str) -> str:
    """Return which of the rows or columns are drawn, in words; an empty text if all are."""
    whole = rows.stop - rows.start == length
    return "" if whole else f"{noun} {rows.start} to {rows.stop - 1} of {length}"


def piece_boxes(
    pieces: Sequence[str], notes: Sequence[str], sides: Sequence[str | None], *, selected: int
) -> go.Figure:
    """Draw word pieces in boxes, in reading order, tinted by sentence, a note under each; `selected` has a frame.

    sides: (piece,) "A", "B", or None for a piece of neither. A long text is cut to the part around the selected piece.
    Pieces and notes are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError unless there are as many notes and sides as pieces.
    """
    if not len(pieces) == len(notes) == len(sides) > 0:
        raise ValueError(f"{len(pieces)} pieces, {len(notes)} notes and {len(sides)} sides: one of each for each piece")
    colours, visible = page(), window(len(pieces), selected, 10 * PIECES_A_LINE)
    places = range(visible.start, visible.stop)
    boxes = []
    for place in places:
        column, line = (place - visible.start) % PIECES_A_LINE, (place - visible.start) // PIECES_A_LINE
        tint = None if sides[place] is None else SENTENCE_TINTS["A" if sides[place] == "A" else "B"].colours()[0]
        edge_style = (colours.accent, 3) if place == selected else (colours.line, 1)
        edges = ((column + 0.04, column + 0.96), (line + 0.08, line + 0.92))
        edge = dict(zip(("color", "width"), edge_style, strict=True))
        boxes.append(rectangle(*edges, edge, fillcolor=tint or colours.raised, layer="below"))
    columns = [(place - visible.start) % PIECES_A_LINE + 0.5 for place in places]
    rows = [(place - visible.start) // PIECES_A_LINE + 0.5 for place in places]
    hovers = [f"{plain(pieces[place], LONGEST_HOVER)}<br>{plain(notes[place], LONGEST_HOVER)}" for place in places]
    piece_style: dict[str, Any] = {
        "text": [f"<b>{plain(pieces[place], 10)}</b>" for place in places],
        "customdata": hovers,
    }
    piece_style["textfont"] = token_font(sized(15, 19), colours.text)
    note_style: dict[str, Any] = {"text": [plain(notes[place], 24) for place in places]}
    note_style["textfont"] = {"size": sized(11, 15), "color": colours.faint}
    shared = {"mode": "text", "showlegend": False}
    traces = [
        points(columns, [row - 0.14 for row in rows], "%{customdata}", **piece_style, **shared),
        points(columns, [row + 0.2 for row in rows], **note_style, **shared),
    ]
    line_count, part = -(-len(places) // PIECES_A_LINE), _part(visible, len(pieces), "tokens")
    layout: dict[str, Any] = {
        "shapes": boxes,
        "height": round(line_count * sized(76, 96)) + (44 if part else 16),
        "margin": {"t": 36 if part else 8},
        "xaxis": {"range": [0, PIECES_A_LINE], "visible": False, "fixedrange": True},
        "yaxis": {"range": [line_count, 0], "visible": False, "fixedrange": True},
    }
    if part:
        layout["annotations"] = [annotation(part, 0, 1, font={"color": colours.faint}, **TOP_LEFT)]
    return figure_of(traces, layout)


def vector_panels(
    panels: Mapping[str, np.ndarray],
    row_labels: Sequence[str],
    *,
    selected: int | None = None,
    side_by_side: bool = False,
    unit: str = "number",
    figures: int = 1,
) -> go.Figure:
    """Draw tables of vectors, one below another or side by side: rows are `row_labels`, columns the vector components.

    Every row has its label; four panels are arranged two by two, in lecture mode, where fewer rows fit, side by side.
    panels: title -> (row, component). All have one colour scale with 0 in the middle, which ends at the 99.5% quantile
        of the absolute values. The hover text has every number in full.
    selected: the row to frame; of many rows the part around it is drawn. figures: number of figures that share the
        window in lecture mode.
    Titles and labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if there is no panel, or one does not fit the labels.
    """
    look = current_look()
    for title, values in panels.items():
        if values.ndim != 2 or len(values) != len(row_labels) or 0 in values.shape:
            raise ValueError(f"{title!r} has shape {values.shape} for {len(row_labels)} labels: expected (row, number)")
    if not panels:
        raise ValueError("there is no panel to draw")
    count = len(panels)
    wide = count if side_by_side or (look.lecture and count > 2) else 2 if count > 2 else 1
    stacked = -(-count // wide)
    visible = window(len(row_labels), selected or 0, sized(ROWS_THAT_FIT, ROWS_IN_LECTURE // figures) // stacked)
    labels = [f"{plain(row_labels[row], LONGEST_HOVER)} ({row})" for row in range(len(row_labels))][visible]
    short = [plain(label, LONGEST_LABEL) for label in row_labels][visible]
    part = _part(visible, len(row_labels), "rows")
    after = f": {part}" if part and wide == 1 else ""
    visible_panels = {title + after: np.asarray(values[visible], np.float32) for title, values in panels.items()}
    limit = float(np.quantile(np.abs(np.concatenate([v.ravel() for v in visible_panels.values()])), 0.995)) or 1.0
    rows = len(labels)
    row_height = min(max(PANELS_HEIGHT / (rows * stacked), LABEL_HEIGHT), 22) * sized(1, 1.3)
    panel_height, title_height = max(rows * row_height, 48), sized(46, 56) + 14 * (stacked > 1)
    height = (panel_height + title_height) * stacked + 76
    figure = make_subplots(
        rows=stacked,
        cols=wide,
        subplot_titles=[f"<b>{plain(title)}</b>" for title in visible_panels],
        horizontal_spacing=0.03,
        vertical_spacing=0 if stacked == 1 else title_height / (height - 76 - title_height),
        shared_yaxes=wide > 1,
    )
    for number, (title, values) in enumerate(visible_panels.items()):
        cell = {"row": number // wide + 1, "col": number % wide + 1}
        hover = f"{plain(title)}<br>%{{y}}<br>{plain(unit)} %{{x}}: %{{z:.9g}}"
        figure.add_trace(cells(values, hover, y=labels, coloraxis="coloraxis"), **cell)
        if selected is not None:
            figure.add_shape(row_frame(selected - visible.start, values.shape[1]), **cell)
        limits = [-0.5, values.shape[1] - 0.5]
        figure.update_xaxes(range=limits, showgrid=False, zeroline=False, nticks=9 // wide, **cell)
    row_axis = label_axis(short, tickfont=token_font(sized(12, 16)), type="category", autorange="reversed")
    figure.update_yaxes(row_axis | {"tickvals": labels})
    figure.update_annotations(font_size=sized(14, 19))
    if wide == 1:
        figure.update_annotations(x=0, xanchor="left")
    elif part:  # written once: titles side by side have no room for it
        font = {"color": page().faint, "size": sized(12, 16)}
        figure.add_annotation(annotation(part, 0, 1, font=font, yshift=34, **TOP_LEFT))
    ticks = {"tickvals": [-limit, 0, limit], "ticktext": [two_digits(-limit), "0", two_digits(limit)]}
    # Above the title, below which a narrow page would place it.
    place = {"x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "ypad": 26, "xpad": 20, "thickness": 10}
    scale: dict[str, Any] = {"colorscale": DIVERGING.colorscale(), "cmin": -limit, "cmax": limit}
    scale["colorbar"] = horizontal_scale(240, **place, **ticks)
    figure.update_layout(height=height, margin={"t": title_height + 26, "b": 4}, coloraxis=scale)
    return styled(figure)


def key_bars(values: np.ndarray, key_labels: Sequence[str], *, signed: bool, title: str) -> go.Figure:
    """Draw one row of a map: the value of one query for each key. A number that is not finite is left out.

    Title and labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError unless there is one label for each value.
    """
    if values.shape != (len(key_labels),):
        raise ValueError(f"values of shape {values.shape} for {len(key_labels)} keys: one for each")
    scale = (DIVERGING if signed else SEQUENTIAL).colours()
    high, low = (scale[10], scale[2]) if signed else (scale[7], scale[7])
    labels = [f"{plain(label, LONGEST_HOVER)} ({key})" for key, label in enumerate(key_labels)]
    labelled = range(0, len(labels), -(-len(labels) // KEYS_THAT_FIT))
    has_numbers = len(labels) <= 24
    colours = [high if value >= 0 else low for value in np.nan_to_num(values)]
    texts = [two_digits(float(value)) if np.isfinite(value) else "" for value in values]
    style: dict[str, Any] = {
        "marker": {"color": colours},
        "textposition": "outside",
        "textangle": 0,
        "constraintext": "none",
    }
    style |= {"cliponaxis": False, "textfont": {"size": sized(11, 15)}}
    if has_numbers:
        style["text"] = texts
    angle = 0 if len(labels) <= 10 else -45 if has_numbers else -90
    short, ticks = [plain(key_labels[i], LONGEST_LABEL) for i in labelled], [labels[i] for i in labelled]
    tick_style = {"tickfont": token_font(sized(12, 15)), "tickangle": angle, "showgrid": False, "type": "category"}
    title_style = {"font": {"size": sized(14, 19)}, "y": 1, "yanchor": "top", "pad": {"t": 8}}
    layout = {
        "height": sized(220, 280),
        "margin": {"t": 40},
        "bargap": 0.25,
        "xaxis": {"tickmode": "array", "tickvals": ticks, "ticktext": short, **tick_style},
        "yaxis": {"nticks": 4},
        "title": {"text": f"<b>{plain(title)}</b>", **title_style},
    }
    return figure_of([columns(labels, values, "%{x}: %{y:.9g}", **style)], layout)


def with_row_framed(figure: go.Figure, row: int, columns: int) -> go.Figure:
    """Add a frame around one row to the figure of a map, and return the figure."""
    return figure.add_shape(row_frame(row, columns))
