"""What stands at each stage of a pass: pieces in boxes, vectors as rows of colour, one row of a map as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from viz_app.figures.style import (
    DIVERGING,
    SENTENCE_TINTS,
    SEQUENTIAL,
    current_look,
    page,
    plain,
    sized,
    styled,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 14, 160
ROWS_THAT_FIT, KEYS_THAT_FIT, ROWS_IN_LECTURE = 40, 40, 8
PIECES_A_LINE = 6
PANELS_HEIGHT = 480  # of all panels under each other, where their rows can be thin enough
LABEL_HEIGHT = 15  # of a row that has its name


def window(length: int, selected: int, room: int = ROWS_THAT_FIT) -> slice:
    """The rows of a long text that are drawn: as many as there is room for, the chosen one among them."""
    first = min(max(selected - room // 2, 0), max(length - room, 0))
    return slice(first, min(first + room, length))


def _part(rows: slice, length: int, noun: str) -> str:
    """Which of the rows or columns are drawn, in words; empty where all are."""
    whole = rows.stop - rows.start == length
    return "" if whole else f"{noun} {rows.start} to {rows.stop - 1} of {length}"


def piece_boxes(
    pieces: Sequence[str],
    notes: Sequence[str],
    sides: Sequence[str | None],
    *,
    selected: int,
) -> go.Figure:
    """Word pieces in boxes, in reading order, tinted by sentence, a note under each; `selected` has a frame.

    sides: "A", "B", or None for a piece of neither. Of a long text the part around the chosen piece is drawn.
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
        boxes.append(
            {
                "type": "rect",
                "x0": column + 0.04,
                "x1": column + 0.96,
                "y0": line + 0.08,
                "y1": line + 0.92,
                "fillcolor": tint or colours.raised,
                "line": {
                    "color": colours.accent if place == selected else colours.line,
                    "width": 3 if place == selected else 1,
                },
                "layer": "below",
            }
        )
    figure = go.Figure(layout={"shapes": boxes})  # all at once: plotly checks every shape again with each that is added
    centres = [((p - visible.start) % PIECES_A_LINE + 0.5, (p - visible.start) // PIECES_A_LINE + 0.5) for p in places]
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in centres],
            y=[y - 0.14 for _, y in centres],
            text=[f"<b>{plain(pieces[p], 10)}</b>" for p in places],
            customdata=[f"{plain(pieces[p], LONGEST_HOVER)}<br>{plain(notes[p], LONGEST_HOVER)}" for p in places],
            mode="text",
            textfont=token_font(sized(15, 19), colours.text),
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in centres],
            y=[y + 0.2 for _, y in centres],
            text=[plain(notes[p], 24) for p in places],
            mode="text",
            textfont={"size": sized(11, 15), "color": colours.faint},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    lines = -(-len(places) // PIECES_A_LINE)
    if part := _part(visible, len(pieces), "tokens"):
        figure.add_annotation(
            text=part, x=0, xref="paper", xanchor="left", y=1, yref="paper", yanchor="bottom", showarrow=False,
            font_color=colours.faint,
        )  # fmt: skip
    figure.update_layout(
        height=round(lines * sized(76, 96)) + (44 if part else 16),
        margin={"t": 36 if part else 8},
        xaxis={"range": [0, PIECES_A_LINE], "visible": False, "fixedrange": True},
        yaxis={"range": [lines, 0], "visible": False, "fixedrange": True},
    )
    return styled(figure)


def vector_panels(
    panels: Mapping[str, np.ndarray],
    row_labels: Sequence[str],
    *,
    selected: int | None = None,
    side_by_side: bool = False,
    unit: str = "number",
    figures: int = 1,
) -> go.Figure:
    """Tables of vectors, one under another or side by side: rows are `row_labels`, columns the numbers of a vector.

    Every row has its name; four panels stand two by two, in a lecture, where fewer rows fit, beside each other.
    panels: title -> (row, number). One colour scale for all, zero in the middle; it ends where all but 1 number in
        200 lie, so that a few large ones do not wash out the rest. The hover has every number in full.
    selected: the row to frame; of many rows the part around it is drawn. figures: how many share the window in a
        lecture.
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
        figure.add_trace(
            go.Heatmap(
                z=values,
                y=labels,
                coloraxis="coloraxis",
                hovertemplate=f"{plain(title)}<br>%{{y}}<br>{plain(unit)} %{{x}}: %{{z:.9g}}<extra></extra>",
            ),
            **cell,
        )
        if selected is not None:
            figure.add_shape(
                type="rect",
                x0=-0.5,
                x1=values.shape[1] - 0.5,
                y0=selected - visible.start - 0.5,
                y1=selected - visible.start + 0.5,
                line={"color": page().accent, "width": sized(2, 3)},
                **cell,
            )
        figure.update_xaxes(
            range=[-0.5, values.shape[1] - 0.5], showgrid=False, zeroline=False, nticks=9 // wide, **cell
        )
    figure.update_yaxes(
        type="category",
        autorange="reversed",
        tickmode="array",
        tickvals=labels,
        ticktext=short,
        tickfont=token_font(sized(12, 16)),
        showgrid=False,
        zeroline=False,
    )
    figure.update_annotations(font_size=sized(14, 19))
    if wide == 1:
        figure.update_annotations(x=0, xanchor="left")
    elif part:  # said once: titles beside each other have no room for it
        figure.add_annotation(
            text=part, x=0, xref="paper", xanchor="left", y=1, yref="paper", yanchor="bottom", yshift=34,
            showarrow=False, font={"color": page().faint, "size": sized(12, 16)},
        )  # fmt: skip
    figure.update_layout(
        height=height,
        margin={"t": title_height + 26, "b": 4},
        coloraxis={
            "colorscale": DIVERGING.colorscale(),
            "cmin": -limit,
            "cmax": limit,
            "colorbar": {
                "orientation": "h",
                "lenmode": "pixels",
                "len": 240,
                "thickness": 10,
                "x": 1,
                "xanchor": "right",
                "y": 1,
                "yanchor": "bottom",
                "ypad": 26,  # above the title, which a narrow page would put under it
                "xpad": 20,
                "tickvals": [-limit, 0, limit],
                "ticktext": [two_digits(-limit), "0", two_digits(limit)],
                "outlinewidth": 0,
            },
        },
    )
    return styled(figure)


def key_bars(values: np.ndarray, key_labels: Sequence[str], *, signed: bool, title: str) -> go.Figure:
    """One row of a map: what one query has for each key. A number that is not finite is left out.

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
    figure = go.Figure(
        go.Bar(
            x=labels,
            y=values,
            marker_color=[high if value >= 0 else low for value in np.nan_to_num(values)],
            text=[two_digits(float(value)) if np.isfinite(value) else "" for value in values] if has_numbers else None,
            textposition="outside",
            textangle=0,
            constraintext="none",
            cliponaxis=False,
            textfont_size=sized(11, 15),
            hovertemplate="%{x}: %{y:.9g}<extra></extra>",
        )
    )
    figure.update_layout(
        height=sized(220, 280),
        margin={"t": 40},
        bargap=0.25,
        xaxis={
            "type": "category",
            "tickmode": "array",
            "tickvals": [labels[i] for i in labelled],
            "ticktext": [plain(key_labels[i], LONGEST_LABEL) for i in labelled],
            "tickfont": token_font(sized(12, 15)),
            "tickangle": 0 if len(labels) <= 10 else -45 if has_numbers else -90,
            "showgrid": False,
        },
        yaxis={"nticks": 4},
        title={"text": f"<b>{plain(title)}</b>", "font_size": sized(14, 19), "y": 1, "yanchor": "top"}
        | {"pad": {"t": 8}},
    )
    return styled(figure)


def with_row_framed(figure: go.Figure, row: int, columns: int) -> go.Figure:
    """Put a frame around one row of a map, and return the figure."""
    return figure.add_shape(
        type="rect",
        x0=-0.5,
        x1=columns - 0.5,
        y0=row - 0.5,
        y1=row + 0.5,
        line={"color": page().accent, "width": sized(2, 3)},
    )
