"""Figures of lessons: the answers of a reader beside the true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from viz_app.figures.primitives import annotation, bars, require_equal_lengths, series_fill
from viz_app.figures.style import DIVERGING, page, plain, sized

MARKS = ("", "yours", "true", "both")
LONGEST_LABEL = 18


def number_written(value: float, form: str) -> str:
    """Return a number as written beside a bar. form: a format specification such as ".2f"."""
    sign, digits = form[: form.startswith("+")], form.removeprefix("+")  # no zero is written with a minus
    return f"{value:{sign}z{digits}}".replace("-", "−")


def answer_bars(
    labels: Sequence[str],
    values: Sequence[float],
    marks: Sequence[str],
    *,
    words: Mapping[str, str],
    form: str = ".2f",
    longest: int = LONGEST_LABEL,
    maximum: float | None = None,
    scale: float | None = None,
) -> go.Figure:
    """Draw answers as horizontal bars, in the order given, the first on top.

    marks: (bar,), each one of `MARKS`, written after the number, so that nothing depends on colour. form: format
        specification of the numbers. words: mark -> its text in the language of the reader; none for "". longest:
        largest number of characters of a label. maximum: the number whose bar has the full width; the largest one if
        None. scale: of font and bars; that of a panel if None.
    Raises ValueError if the lengths differ or a mark is unknown.
    """
    require_equal_lengths(labels=labels, values=values, marks=marks)
    if unknown := set(marks) - set(MARKS):
        raise ValueError(f"marks {', '.join(sorted(unknown))}: of {', '.join(MARKS)}")
    true_colour = series_fill("now")["color"]
    colours = {"": page().faint, "yours": DIVERGING.colours()[-4], "true": true_colour, "both": true_colour}
    numbers = [number_written(value, form) for value in values]
    texts = [f"<b>{number}</b>  {mark and words[mark]}".rstrip() for number, mark in zip(numbers, marks, strict=True)]
    low, high = min((*values, 0.0)), max((*values, 0.0)) if maximum is None else maximum
    scale = sized(1, 1.2) if scale is None else scale
    # The name stands above its bar: the panel is narrow.
    place = {"xref": "x domain", "xanchor": "left", "yanchor": "bottom", "align": "left"}
    font = {"color": page().text, "size": round(15 * scale)}
    return bars(
        labels,
        {"": values},
        title="",
        write=lambda value: number_written(value, form),
        fills={"": {"color": [colours[mark] for mark in marks]}},
        bar_texts=False,
        height=round(len(labels) * 44 * scale + 16),
        margin={"t": 4, "l": 4, "r": 4, "b": 4},
        bargap=0.55,
        xaxis={"visible": False, "range": [low, high + 0.02 * ((high - low) or 1.0)]},
        yaxis={"visible": False, "range": [len(labels) - 0.5, -0.62]},
        annotations=[
            annotation(f"{plain(label, longest)}  {text}".strip(), 0, row - 0.24, font=font, **place)
            for row, (label, text) in enumerate(zip(labels, texts, strict=True))
        ],
    )
