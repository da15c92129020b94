"""Figures of the stages of a forward pass: pieces in boxes, vectors as rows of colours, one row of a map as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import (
    LONGEST_HOVER,
    TOP_LEFT,
    annotation,
    colour_bar,
    frame,
    heatmap,
    mirrored_bars,
    on_hover,
    row_frame,
    signed_fill,
    text_points,
    ticks_at,
)
from viz_app.figures.style import SENTENCE_TINTS, current_look, figure_of, page, plain, sized, token_font

LONGEST_LABEL = 14
ROWS_THAT_FIT, KEYS_THAT_FIT, ROWS_IN_LECTURE = 40, 40, 8
PIECES_A_LINE = 6
PANELS_HEIGHT = 480  # of all panels under each other, where their rows can be thin enough
LABEL_HEIGHT = 15  # of a row that has its label
PANEL_GAP = 0.03  # between panels side by side, as a share of the width
PANEL_BOTTOM = 80  # pixels below the panels: axis labels and colour bar


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
    Raises ValueError unless there are as many notes and sides as pieces.
    """
    if not len(pieces) == len(notes) == len(sides) > 0:
        raise ValueError(f"{len(pieces)} pieces, {len(notes)} notes and {len(sides)} sides: one of each for each piece")
    colours, visible = page(), window(len(pieces), selected, 10 * PIECES_A_LINE)
    boxes, x, y = [], [], []
    for place in range(visible.start, visible.stop):
        line, column = divmod(place - visible.start, PIECES_A_LINE)
        tint = None if sides[place] is None else SENTENCE_TINTS["A" if sides[place] == "A" else "B"].colours()[0]
        border = (colours.accent, 3) if place == selected else (colours.line, 1)
        edges = (column + 0.04, column + 0.96), (line + 0.08, line + 0.92)
        boxes.append(frame(*edges, *border, fillcolor=tint or colours.raised, layer="below"))
        x.append(column + 0.5)
        y.append(line + 0.5)
    part, names, short_notes = _part(visible, len(pieces), "tokens"), pieces[visible], notes[visible]
    hovers = [f"{plain(name)}<br>{plain(note)}" for name, note in zip(names, short_notes, strict=True)]
    bold, short = [f"<b>{plain(name, 10)}</b>" for name in names], [plain(note, 24) for note in short_notes]
    note_font = {"size": sized(11, 15), "color": colours.faint}
    line_count = -(-len(names) // PIECES_A_LINE)
    layout = {
        "shapes": boxes,
        "annotations": [annotation(part, 0, 1, font={"color": colours.faint}, **TOP_LEFT)] if part else [],
        "height": round(line_count * sized(76, 96)) + (44 if part else 16),
        "margin": {"t": 36 if part else 8},
        "xaxis": {"range": [0, PIECES_A_LINE], "visible": False, "fixedrange": True},
        "yaxis": {"range": [line_count, 0], "visible": False, "fixedrange": True},
    }
    traces = [
        text_points(x, [row - 0.14 for row in y], bold, token_font(sized(15, 19), colours.text), **on_hover(hovers)),
        text_points(x, [row + 0.2 for row in y], short, note_font),
    ]
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
    Raises ValueError if there is no panel, or one does not fit the labels.
    """
    for title, values in panels.items():
        if values.ndim != 2 or len(values) != len(row_labels) or 0 in values.shape:
            raise ValueError(f"{title!r} has shape {values.shape} for {len(row_labels)} labels: expected (row, number)")
    if not panels:
        raise ValueError("there is no panel to draw")
    count = len(panels)
    wide = count if side_by_side or (current_look().lecture and count > 2) else 2 if count > 2 else 1
    stacked = -(-count // wide)
    visible = window(len(row_labels), selected or 0, sized(ROWS_THAT_FIT, ROWS_IN_LECTURE // figures) // stacked)
    labels = [f"{plain(label, LONGEST_HOVER)} ({row})" for row, label in enumerate(row_labels)][visible]
    short = [plain(label, LONGEST_LABEL) for label in row_labels][visible]
    part = _part(visible, len(row_labels), "rows")
    visible_panels = {title: np.asarray(values[visible], np.float32) for title, values in panels.items()}
    limit = float(np.quantile(np.abs(np.concatenate([v.ravel() for v in visible_panels.values()])), 0.995)) or 1.0
    row_height = min(max(PANELS_HEIGHT / (len(labels) * stacked), LABEL_HEIGHT), 22) * sized(1, 1.3)
    panel_height, title_height = max(len(labels) * row_height, 48), sized(46, 56)
    plot_height = panel_height * stacked + title_height * (stacked - 1)
    traces, shapes = [], []
    axes: dict[str, Any] = {}
    notes = [annotation(part, 0, 1, font={"color": page().faint}, yshift=34, **TOP_LEFT)] if part and wide > 1 else []
    panel_width = (1 - PANEL_GAP * (wide - 1)) / wide
    for number, (title, values) in enumerate(visible_panels.items()):
        row, column = divmod(number, wide)
        left, top = column * (panel_width + PANEL_GAP), 1 - row * (panel_height + title_height) / plot_height
        suffix = "" if number == 0 else str(number + 1)
        anchors = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        hover = f"{plain(title)}<br>%{{y}}<br>{plain(unit)} %{{x}}: %{{z:.9g}}"
        bar = None if number else colour_bar(unit, signed=True, limit=limit, ypad=32)
        traces.append(heatmap(values, signed=True, limit=limit, hover=hover, bar=bar, y=labels, **anchors))
        position = {"domain": [left, left + panel_width], "anchor": anchors["yaxis"]}
        style = {"range": [-0.5, values.shape[1] - 0.5], "nticks": 9 // wide, "showgrid": False, "zeroline": False}
        axes[f"xaxis{suffix}"] = position | style
        position = {"domain": [max(top - panel_height / plot_height, 0), top], "anchor": anchors["xaxis"]}
        style = {"type": "category", "autorange": "reversed", "tickfont": token_font(sized(12, 16))}
        axes[f"yaxis{suffix}"] = ticks_at(short, labels, showticklabels=column == 0, **position, **style)
        if selected is not None:
            references = {"xref": anchors["xaxis"], "yref": anchors["yaxis"]}
            shapes.append(row_frame(selected - visible.start, values.shape[1], **references))
        text = f"<b>{plain(f'{title}: {part}' if part and wide == 1 else title)}</b>"
        notes.append(annotation(text, left, top, font={"size": sized(14, 19)}, **TOP_LEFT))
    layout = {
        "height": round(plot_height + title_height + PANEL_BOTTOM + (16 if part else 0)),
        "margin": {"t": sized(28, 36) + (24 if part and wide > 1 else 0), "b": sized(92, 112)},
        "shapes": shapes,
        "annotations": notes,
        **axes,
    }
    return figure_of(traces, layout)


def key_bars(values: np.ndarray, key_labels: Sequence[str], *, signed: bool, title: str) -> go.Figure:
    """Draw one row of a map: the value of one query for each key. A number that is not finite is left out.

    Raises ValueError unless there is one label for each value.
    """
    if values.shape != (len(key_labels),):
        raise ValueError(f"values of shape {values.shape} for {len(key_labels)} keys: one for each")
    labelled = range(0, len(key_labels), -(-len(key_labels) // KEYS_THAT_FIT))
    has_numbers = len(key_labels) <= 24
    numbers = np.where(np.isfinite(values), values, np.nan).tolist()
    angle = 0 if len(key_labels) <= 10 else -45 if has_numbers else -90
    short = [plain(key_labels[key], LONGEST_LABEL) for key in labelled]
    title_style = {"font": {"size": sized(14, 19)}, "y": 1, "yanchor": "top", "pad": {"t": 8}}
    return mirrored_bars(
        {"": numbers},
        hovers={"": [f"{plain(key_labels[key])} ({key}): {value:.9g}" for key, value in enumerate(numbers)]},
        fills={"": signed_fill(numbers)} if signed else None,
        x_axis=ticks_at(short, labelled, tickangle=angle, tickfont=token_font(sized(12, 15))),
        y_axis={"nticks": 4},
        texts=has_numbers,
        height=sized(220, 280),
        title={"text": f"<b>{plain(title)}</b>", **title_style},
    )
