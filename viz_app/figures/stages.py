"""Figures of the stages of a forward pass: pieces in boxes, vectors as rows of colours, one row of a map as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import (
    CLICKS,
    INVISIBLE,
    LONGEST_HOVER,
    TOP_LEFT,
    annotation,
    cell_columns,
    colour_bar,
    escaped,
    frame,
    heatmap,
    mirrored_bars,
    on_hover,
    row_frame,
    scatter,
    signed_fill,
    text_points,
    ticks_at,
)
from viz_app.figures.style import SENTENCE_TINTS, current_look, figure_of, page, plain, sized, token_font, two_digits

LONGEST_LABEL = 14
MAX_BLOCKS, OVERVIEW_BLOCKS = 64, 12  # drawn of a vector: in a panel, and in a cell of the overview
ROWS_THAT_FIT, KEYS_THAT_FIT, ROWS_IN_LECTURE = 40, 40, 8
OVERVIEW_ROWS, OVERVIEW_ROWS_IN_LECTURE = 26, 13
OVERVIEW_HEIGHT, OVERVIEW_GAP = 440, 8  # pixels of all rows, and empty blocks between two columns
OUTPUT_WIDTH = 2.1  # of the column of words, in columns
READOUT_ROWS = 2.2  # height of the words below the columns
THINNEST_RIBBON = 0.02  # smallest attention weight that is drawn
WORD_LETTERS = 64  # below all columns together
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
    meta = {"columns": {"token": escaped(names), "note": escaped(short_notes)}}
    font = token_font(sized(15, 19), colours.text)
    traces = [
        text_points(x, [row - 0.14 for row in y], bold, font, meta=meta, **on_hover(hovers)),
        text_points(x, [row + 0.2 for row in y], short, note_font),
    ]
    return figure_of(traces, layout)


def block_means(values: np.ndarray, max_blocks: int) -> tuple[np.ndarray, int]:
    """Average neighbouring components of vectors, so that at most `max_blocks` blocks remain.

    values: (..., component); NaN components are left out, and a block of these alone is NaN.
    Returns (..., block) and the number of components of a block; the last block may have fewer.
    """
    size = -(-values.shape[-1] // max_blocks)
    starts, is_number = range(0, values.shape[-1], size), np.isfinite(values)
    totals = np.add.reduceat(np.where(is_number, values, 0), starts, axis=-1, dtype=np.float32)
    counts = np.add.reduceat(is_number, starts, axis=-1, dtype=np.float32)
    return np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0), size


def block_name(start: int, stop: int) -> str:
    """Return the components of a block in words."""
    return f"number {start}" if stop == start + 1 else f"mean of numbers {start} to {stop - 1}"


def vector_panels(
    panels: Mapping[str, np.ndarray],
    row_labels: Sequence[str],
    *,
    selected: int | None = None,
    side_by_side: bool = False,
    figures: int = 1,
) -> go.Figure:
    """Draw tables of vectors, one below another or side by side: rows are `row_labels`, columns the vector components.

    Long vectors are averaged into `MAX_BLOCKS` blocks, which the colour bar and the hover texts state.
    Every row has its label; four panels are arranged two by two, in lecture mode, where fewer rows fit, side by side.
    panels: title -> (row, component). All have one colour scale with 0 in the middle, which ends at the 99.5% quantile
        of the absolute values.
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
    visible_panels = {title: block_means(np.asarray(values[visible]), MAX_BLOCKS) for title, values in panels.items()}
    limit = float(np.nanquantile(np.abs(np.concatenate([v.ravel() for v, _ in visible_panels.values()])), 0.995)) or 1.0
    largest = max(size for _, size in visible_panels.values())
    unit = "value" if largest == 1 else f"mean of {largest} numbers in each block"
    row_height = min(max(PANELS_HEIGHT / (len(labels) * stacked), LABEL_HEIGHT), 22) * sized(1, 1.3)
    panel_height, title_height = max(len(labels) * row_height, 48), sized(46, 56)
    plot_height = panel_height * stacked + title_height * (stacked - 1)
    traces, shapes = [], []
    axes: dict[str, Any] = {}
    notes = [annotation(part, 0, 1, font={"color": page().faint}, yshift=34, **TOP_LEFT)] if part and wide > 1 else []
    panel_width = (1 - PANEL_GAP * (wide - 1)) / wide
    for number, (title, (values, size)) in enumerate(visible_panels.items()):
        row, column = divmod(number, wide)
        left, top = column * (panel_width + PANEL_GAP), 1 - row * (panel_height + title_height) / plot_height
        suffix = "" if number == 0 else str(number + 1)
        anchors = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        column_count = panels[title].shape[1]
        hover = f"{plain(title)}<br>%{{y}}<br>%{{customdata}}: %{{z:.9g}}"
        bar = None if number else colour_bar(unit, signed=True, limit=limit, ypad=32)
        starts = range(0, column_count, size)
        names = [block_name(start, min(start + size, column_count)) for start in starts]
        places: dict[str, Any] = {"x": [start + (size - 1) / 2 for start in starts], "y": labels}
        places["customdata"] = [names] * len(labels)
        places |= {"name": plain(title), "meta": cell_columns(labels, names, {unit: values}, ("token", "components"))}
        traces.append(heatmap(values, signed=True, limit=limit, hover=hover, bar=bar, **places, **anchors))
        position = {"domain": [left, left + panel_width], "anchor": anchors["yaxis"]}
        style = {"range": [-0.5, column_count - 0.5], "nticks": 9 // wide, "showgrid": False, "zeroline": False}
        axes[f"xaxis{suffix}"] = position | style
        position = {"domain": [max(top - panel_height / plot_height, 0), top], "anchor": anchors["xaxis"]}
        style = {"type": "category", "autorange": "reversed", "tickfont": token_font(sized(12, 16))}
        axes[f"yaxis{suffix}"] = ticks_at(short, labels, showticklabels=column == 0, **position, **style)
        if selected is not None:
            references = {"xref": anchors["xaxis"], "yref": anchors["yaxis"]}
            shapes.append(row_frame(selected - visible.start, column_count, **references))
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
        labels={"": key_labels},
        hovers={"": [f"{plain(key_labels[key])} ({key}): {value:.9g}" for key, value in enumerate(numbers)]},
        fills={"": signed_fill(numbers)} if signed else None,
        x_axis=ticks_at(short, labelled, tickangle=angle, tickfont=token_font(sized(12, 15))),
        y_axis={"nticks": 4},
        texts=has_numbers,
        height=sized(220, 280),
        title={"text": f"<b>{plain(title)}</b>", **title_style},
    )


@dataclass(frozen=True)
class PassColumns:
    """What the overview of a forward pass shows from left to right.

    ids: (row,) numbers of the tokens in the vocabulary. states: (depth, row, number) hidden states, the embeddings
    first. attention: (layer, row) attention weights of the selected token. readouts: (depth,) word and probability that
    the logit lens gives at the selected token; empty without an MLM head. outputs: most probable words with their
    probabilities.
    """

    ids: Sequence[int]
    states: np.ndarray
    attention: np.ndarray
    readouts: Sequence[tuple[str, float]] = ()
    outputs: Sequence[tuple[str, float]] = ()


def _overview_columns(
    columns: PassColumns, row_labels: Sequence[str], rows: range, names: Sequence[str], means: np.ndarray
) -> dict[str, Any]:
    """Return the numbers of the overview for exported tables, with a row for each cell.

    row_labels: (row,) of the drawn rows. names: of the columns. means: (depth, row, block).
    """
    depths, count = len(means), len(rows)
    shape = count, len(names)
    ids, attention = np.full(shape, None), np.full(shape, None)
    blocks = np.full((*shape, means.shape[-1]), None)
    ids[:, 0] = columns.ids[rows.start : rows.stop]
    attention[:, 1:depths] = columns.attention[:, rows.start : rows.stop].T
    blocks[:, 1 : depths + 1] = means.swapaxes(0, 1)
    values = {"token id": ids, "attention of the selected token in the next layer": attention}
    values |= {f"mean of block {number}": blocks[..., number] for number in range(means.shape[-1])}
    labels = [f"{label} ({row})" for label, row in zip(row_labels, rows, strict=True)]
    return cell_columns(labels, names, values, ("token", "place"))


def pass_overview(
    columns: PassColumns,
    row_labels: Sequence[str],
    *,
    selected: int,
    highlight: tuple[float, float],
    remarks: Sequence[str],
) -> go.Figure:
    """Draw a forward pass: rows are tokens, columns their ids, the embeddings, the output of each layer, the outputs.

    Each cell is a vector, averaged in blocks. Ribbons end at the selected row; their widths are its attention weights.
    Below a column is what the logit lens predicts at the selected row. Of many rows, the part around it is drawn.
    A click on a cell returns column and row as x and y: -1 for the ids, 0 for the embeddings, n for the n-th layer.
    highlight: left and right end of the highlighted columns. remarks: lines on the ribbons.
    Raises ValueError unless all parts have as many rows as there are labels.
    """
    depths, length, _ = columns.states.shape
    if not length == len(row_labels) == len(columns.ids) == columns.attention.shape[1]:
        raise ValueError(f"{length} states for {len(row_labels)} labels and {len(columns.ids)} numbers: one of each")
    visible, colours = window(length, selected, sized(OVERVIEW_ROWS, OVERVIEW_ROWS_IN_LECTURE)), page()
    rows = range(visible.start, visible.stop)
    means, size = block_means(columns.states[:, visible], OVERVIEW_BLOCKS)
    limit = float(np.nanquantile(np.abs(means), 0.99)) or 1.0
    pitch = means.shape[-1] + OVERVIEW_GAP
    # One map of all columns, with empty blocks between them.
    blocks = np.full((len(rows), depths, pitch), np.nan, np.float32)
    blocks[..., : means.shape[-1]] = means.swapaxes(0, 1)
    half = means.shape[-1] / pitch / 2
    x_blocks = ((np.arange(depths * pitch) + 0.5) / pitch - half).tolist()
    names = ["id", "emb.", *(f"L{layer}" for layer in range(depths - 1)), "output"]
    full_names = ["token id", "embedding", *(f"after {name}" for name in names[2:-1]), "output"]
    bar = colour_bar(f"mean of {size} numbers in each block", signed=True, limit=limit)
    traces = [heatmap(blocks.reshape(len(rows), -1), signed=True, limit=limit, bar=bar, x=x_blocks, y=list(rows))]
    ids = [str(columns.ids[row]) for row in rows]
    traces.append(text_points([-1] * len(rows), list(rows), ids, token_font(sized(11, 14), colours.faint)))
    hovers, places = [], [(column, row) for row in rows for column in range(-1, depths + 1)]
    for column, row in places:
        hover = f"{plain(row_labels[row], LONGEST_HOVER)} ({row})<br>{full_names[column + 1]}"
        if 0 <= column < depths - 1:
            hover += f"<br>attention from the selected token in L{column}: {columns.attention[column, row]:.3g}"
        hovers.append(hover)
    meta = _overview_columns(columns, [row_labels[row] for row in rows], rows, full_names[:-1], means)
    traces.append(scatter([x for x, _ in places], [y for _, y in places], hovers, meta=meta, **INVISIBLE))
    if columns.outputs:
        first = min(selected, max(rows.stop - len(columns.outputs), 0))  # the most probable word in the selected row
        words = [f"{plain(word, 12)} {two_digits(share)}" for word, share in columns.outputs]
        font = token_font(sized(12, 14), colours.text)
        y_words = [first + number for number in range(len(words))]
        traces.append(text_points([depths - 0.42] * len(words), y_words, words, font, textposition="middle right"))
    shapes = [frame(highlight, (rows.start - 0.5, rows.stop - 0.5), fillcolor=colours.raised, layer="below")]
    for layer, row in np.argwhere(columns.attention[:, visible] >= THINNEST_RIBBON).tolist():
        weight = float(columns.attention[layer, rows.start + row])
        left, right = layer + half, layer + 1 - half
        middle, ends = (left + right) / 2, (rows.start + row, selected)
        path = f"M {left},{ends[0]} C {middle},{ends[0]} {middle},{ends[1]} {right},{ends[1]}"
        line = {"color": colours.accent, "width": weight * sized(16, 20)}
        shapes.append({"type": "path", "path": path, "line": line, "opacity": 0.6, "layer": "below"})
    right = depths + OUTPUT_WIDTH - 0.5
    shapes.append(frame((-1.45, right), (selected - 0.5, selected + 0.5), colours.accent, sized(2, 3)))
    shapes.append(frame(highlight, (rows.start - 0.5, rows.stop - 0.5), colours.accent, sized(2, 3)))
    word_style = {"yanchor": "top", "font": token_font(sized(12, 14), colours.text)}
    longest = max(4, round(WORD_LETTERS / depths))
    notes = [
        annotation(f"{plain(word, longest)}<br>{two_digits(share)}", depth, rows.stop - 0.5, **word_style)
        for depth, (word, share) in enumerate(columns.readouts)
    ]
    faint = {"size": sized(12, 15), "color": colours.faint}
    if columns.readouts:
        notes.append(annotation("logit<br>lens", -1, rows.stop - 0.5, **word_style | {"font": faint}))
    part = _part(visible, length, "tokens")
    remark_text = "<br>".join(plain(line) for line in (*remarks, part) if line)
    corner = {"xref": "paper", "xanchor": "right", "yref": "paper", "yanchor": "top", "align": "right"}
    notes.append(annotation(remark_text, 1, 0, yshift=-4, font=faint, **corner))
    row_names = [plain(row_labels[row], LONGEST_LABEL) + " " for row in rows]
    flat: dict[str, Any] = {"fixedrange": True, "tickangle": 0}
    limits = {"range": [rows.stop - 0.5 + READOUT_ROWS * bool(columns.readouts), rows.start - 0.5], "fixedrange": True}
    layout = {
        **CLICKS,
        "shapes": shapes,
        "annotations": notes,
        "height": round(min(max(OVERVIEW_HEIGHT / len(rows), 17), 30) * (len(rows) + READOUT_ROWS)) + sized(100, 130),
        "margin": {"l": 8, "r": 8, "t": sized(30, 38), "b": sized(64, 80)},
        "xaxis": ticks_at(names, range(-1, depths + 1), side="top", range=[-1.5, right + 0.05], ticks="", **flat),
        "yaxis": ticks_at(row_names, rows, tickfont=token_font(sized(12, 14)), ticks="", **limits),
        "meta": {"min_width": 130 + 46 * (depths + 2)},
    }
    return figure_of(traces, layout)
