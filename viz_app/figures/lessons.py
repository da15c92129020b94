"""What a reader expected beside what is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from viz_app.figures.style import DIVERGING, SEQUENTIAL, figure_of, page, plain, sized

MARKS = {"": "", "yours": "your guess", "true": "true", "both": "your guess, true"}
LONGEST_LABEL = 18


def number_written(value: float, form: str) -> str:
    """A number as a bar has it. form: such as ".2f"."""
    sign, digits = form[: form.startswith("+")], form.removeprefix("+")  # no zero is written with a minus
    return f"{value:{sign}z{digits}}".replace("-", "−")


def answer_bars(
    labels: Sequence[str],
    values: Sequence[float],
    marks: Sequence[str],
    *,
    form: str = ".2f",
    words: Mapping[str, str] = MARKS,
    longest: int = LONGEST_LABEL,
    maximum: float | None = None,
    scale: float | None = None,
) -> go.Figure:
    """Answers as horizontal bars, in the order given, the first on top.

    marks: of each bar one of `MARKS`, written behind it, so that nothing hangs on colour. form: of the numbers.
    words: the marks in the reader's language. longest: signs of a label. maximum: the number that fills the width,
    if not
    the largest. scale: of type and bars, if not what a panel has.
    The labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ or a mark is unknown.
    """
    if not len(labels) == len(values) == len(marks):
        raise ValueError(f"{len(labels)} labels, {len(values)} values and {len(marks)} marks: one of each for a bar")
    if unknown := set(marks) - set(MARKS):
        raise ValueError(f"marks {', '.join(sorted(unknown))}: of {', '.join(MARKS)}")
    colours = page()
    fills = {
        "": colours.faint, "yours": DIVERGING.colours()[-4], "true": SEQUENTIAL.colours()[7],
        "both": SEQUENTIAL.colours()[7],
    }  # fmt: skip
    places = list(range(len(labels)))
    numbers = [number_written(value, form) for value in values]
    texts = [f"<b>{number}</b>  {words[mark]}".rstrip() for number, mark in zip(numbers, marks, strict=True)]
    bars = {
        "type": "bar", "orientation": "h", "x": list(values), "y": places, "text": numbers,
        "marker": {"color": [fills[mark] for mark in marks]}, "textposition": "none",
        "customdata": [plain(label, 160) for label in labels],
        "hovertemplate": "%{customdata}: %{text}<extra></extra>",
    }  # fmt: skip
    minimum, maximum = min((*values, 0.0)), max((*values, 0.0)) if maximum is None else maximum
    room = (maximum - minimum) or 1.0
    scale = sized(1, 1.2) if scale is None else scale
    layout = {
        "height": round(len(labels) * 44 * scale + 16),
        "margin": {"t": 4, "l": 4, "r": 4, "b": 4},
        "bargap": 0.55,
        "dragmode": False,
        "xaxis": {"visible": False, "range": [minimum, maximum + 0.02 * room]},
        "yaxis": {"visible": False, "range": [len(labels) - 0.5, -0.62]},
        # The name stands over its bar: the panel is narrow.
        "annotations": [
            {
                "x": 0, "xref": "x domain", "xanchor": "left", "y": place - 0.24, "yanchor": "bottom",
                "text": f"{plain(label, longest)}  {number}".strip(), "showarrow": False, "align": "left",
                "font": {"color": colours.text, "size": round(15 * scale)},
            }
            for place, label, number in zip(places, labels, texts, strict=True)
        ],
    }  # fmt: skip
    return figure_of([bars], layout)
