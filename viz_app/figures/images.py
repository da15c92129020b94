"""A picture, and where on it a word looks."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from PIL import Image

from viz_app.figures.style import DIVERGING, SEQUENTIAL, figure_of, page, plain, sized

SIDE, LECTURE_SIDE = 340, 520  # pixels of a picture on the page
FAINT = 0.35  # how much of the picture is left under the heat
OPAQUE = 0.9  # the strongest heat


class Outline(NamedTuple):
    """The box of a thing: left, top, right, bottom as shares of the picture; its name; whether it is the one meant."""

    box: tuple[float, float, float, float]
    name: str
    is_target: bool = False


def picture_figure(image: np.ndarray, outlines: Sequence[Outline] = ()) -> go.Figure:
    """The picture as it is. image: uint8 (rows, columns, 3). Show with `st.plotly_chart(figure, theme=None)`."""
    return _framed([_image(image)], [], image, outlines)


def picture_heat(
    image: np.ndarray,
    heat: np.ndarray,
    outlines: Sequence[Outline] = (),
    *,
    signed: bool,
    unit: str,
) -> go.Figure:
    """The picture, faint and grey, under one value for each of its patches; the highest patch is ringed.

    image: uint8 (rows, columns, 3). heat: (row, column) of patches. signed=False starts the colours at 0; signed=True
    puts 0 in the middle. Zero lets the picture through. unit: what a value is, written on hover.
    Raises ValueError for values of another shape.
    """
    if heat.ndim != 2 or 0 in heat.shape:
        raise ValueError(f"heat of shape {heat.shape}: (row, column) of patches, at least one")
    rows, columns = heat.shape
    height, width = image.shape[:2]
    limit = float(np.abs(heat).max()) or 1.0
    step_x, step_y = width / columns, height / rows
    patches = {
        "type": "heatmap",
        "z": heat,
        "x": [(column + 0.5) * step_x - 0.5 for column in range(columns)],
        "y": [(row + 0.5) * step_y - 0.5 for row in range(rows)],
        "zmin": -limit if signed else 0,
        "zmax": limit,
        "colorscale": _see_through(signed),
        "customdata": [[f"row {row}, column {column}" for column in range(columns)] for row in range(rows)],
        "hovertemplate": f"patch in %{{customdata}}<br>{plain(unit)} %{{z:.9g}}<extra></extra>",
        "colorbar": {
            "orientation": "h", "lenmode": "pixels", "len": sized(SIDE, LECTURE_SIDE), "thickness": 12,
            "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "ypad": 8, "xpad": 0, "nticks": 4, "tickformat": "~g",
            "tickangle": 0, "outlinewidth": 1, "outlinecolor": page().line,
        },
    }  # fmt: skip
    ring = []
    if heat.max() > heat.min():
        row, column = np.unravel_index(int(heat.argmax()), heat.shape)
        # Two lines, one of which stands out whatever is under them.
        for colour, width in ((page().background, 6), (page().text, 2)):
            line = {"color": colour, "width": width * sized(1, 1.5)}
            ring.append(_rectangle(column * step_x, row * step_y, (column + 1) * step_x, (row + 1) * step_y, line))
    traces = [_image(faint(image)), patches]
    return _framed(traces, ring, image, outlines, bottom_margin=sized(44, 56))


def _image(image: np.ndarray) -> dict[str, Any]:
    # As a file: three numbers for every pixel are many times as much to send and to read.
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    source = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image", "source": source, "hoverinfo": "skip"}


def _framed(
    traces: Sequence[dict[str, Any]],
    shapes: Sequence[dict[str, Any]],
    image: np.ndarray,
    outlines: Sequence[Outline],
    bottom_margin: int = 0,
) -> go.Figure:
    height, width = image.shape[:2]
    colours = page()
    boxes, names = list(shapes), []
    for box, name, is_target in outlines:
        left, top, right, bottom = (edge * size for edge, size in zip(box, (width, height) * 2, strict=True))
        line = {"color": colours.accent, "width": 3 if is_target else 1.5, "dash": "solid" if is_target else "dot"}
        boxes.append(_rectangle(left, top, right, bottom, line))
        is_below = top < 0.12 * height
        names.append({
            "x": min(max((left + right) / 2, 0.18 * width), 0.82 * width),
            "y": bottom if is_below else top,
            "yanchor": "top" if is_below else "bottom",
            "text": plain(name),
            "showarrow": False,
            "font": {"size": sized(12, 16), "color": colours.text},
            "bgcolor": colours.background,
            "opacity": 0.9,
            "borderpad": 1,
        })  # fmt: skip
    side = sized(SIDE, LECTURE_SIDE)
    hidden = {"visible": False, "constrain": "domain", "constraintoward": "left"}
    layout = {
        "shapes": boxes,
        "annotations": names,
        "height": side + bottom_margin,
        "margin": {"l": 0, "r": 0, "t": 0, "b": bottom_margin},
        "xaxis": {**hidden, "range": [-0.5, width - 0.5]},
        "yaxis": {
            "visible": False,
            "range": [height - 0.5, -0.5],
            "scaleanchor": "x",
            "constrain": "domain",
            "constraintoward": "top",
        },
    }
    return figure_of(traces, layout)


def _rectangle(left: float, top: float, right: float, bottom: float, line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "rect", "x0": left - 0.5, "y0": top - 0.5, "x1": right - 0.5, "y1": bottom - 0.5, "line": line
    }  # fmt: skip


def faint(image: np.ndarray) -> np.ndarray:
    """A picture in grey, most of the way to the colour of the page, as it lies under a heat; uint8 as it was."""
    background = np.array(_channels(page().background), np.float32)
    grey = image.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    grey = 255 * (grey - grey.min()) / max(float(np.ptp(grey)), 1.0)
    mixed: np.ndarray = (1 - FAINT) * background + FAINT * grey[..., None]
    rounded: np.ndarray = np.rint(mixed)
    return rounded.astype(np.uint8)


def _see_through(signed: bool) -> list[tuple[float, str]]:
    """The app's scale, clear at zero and stronger with every step away from it."""
    colours = (DIVERGING if signed else SEQUENTIAL).colours()
    last = len(colours) - 1
    scale = []
    for number, colour in enumerate(colours):
        share = number / last
        strength = abs(2 * share - 1) if signed else share
        red, green, blue = _channels(colour)
        scale.append((share, f"rgba({red},{green},{blue},{OPAQUE * strength**0.6:.3f})"))
    return scale


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
