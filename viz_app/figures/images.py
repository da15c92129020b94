"""Figures of an image and of the attention of a word to its patches."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from PIL import Image

from viz_app.figures.primitives import annotation, colour_bar, frame, heatmap
from viz_app.figures.style import DIVERGING, SEQUENTIAL, figure_of, page, plain, rgb, sized

SIDE, LECTURE_SIDE = 540, 520  # pixels of the heat of a word
SMALL_SIDE, LECTURE_SMALL_SIDE = 190, 240  # pixels of the picture beside it
FAINT = 0.35  # how much of the picture is left under the heat
OPAQUE = 0.9  # the strongest heat


class Outline(NamedTuple):
    """The box of an object: left, top, right, bottom as shares of the image; name or ""; whether it is the target."""

    box: tuple[float, float, float, float]
    name: str
    is_target: bool = False


def picture_figure(image: np.ndarray, outlines: Sequence[Outline] = ()) -> go.Figure:
    """Draw an image. image: uint8 (rows, columns, 3). Show with `st.plotly_chart(figure, theme=None)`."""
    return _framed([_image(image)], [], image, outlines, side=sized(SMALL_SIDE, LECTURE_SMALL_SIDE))


def picture_heat(
    image: np.ndarray, heat: np.ndarray, outlines: Sequence[Outline] = (), *, signed: bool, unit: str
) -> go.Figure:
    """Draw one value for each patch over the image in pale grey; the patch with the highest value has a frame.

    image: uint8 (rows, columns, 3). heat: (row, column) of patches. signed=False starts the colours at 0; signed=True
    puts 0 in the middle. The colour of 0 is transparent. unit: of a value, in words, for the hover text.
    Raises ValueError for values of another shape.
    """
    if heat.ndim != 2 or 0 in heat.shape:
        raise ValueError(f"heat of shape {heat.shape}: (row, column) of patches, at least one")
    rows, columns = heat.shape
    height, width = image.shape[:2]
    limit = float(np.abs(heat).max()) or 1.0
    step_x, step_y = width / columns, height / rows
    x = [(column + 0.5) * step_x - 0.5 for column in range(columns)]
    y = [(row + 0.5) * step_y - 0.5 for row in range(rows)]
    names = [[f"row {row}, column {column}" for column in range(columns)] for row in range(rows)]
    outline: dict[str, Any] = {"outlinewidth": 1, "outlinecolor": page().line}
    bar = colour_bar(unit, signed=signed, limit=limit, xpad=12, **outline)
    hover = f"patch in %{{customdata}}<br>{plain(unit)} %{{z:.9g}}"
    places: dict[str, Any] = {"x": x, "y": y, "customdata": names, "colorscale": _see_through(signed)}
    patches = heatmap(heat, signed=signed, limit=limit, hover=hover, bar=bar, **places)
    ring = []
    if heat.max() > heat.min():
        row, column = np.unravel_index(int(heat.argmax()), heat.shape)
        # Two lines, one of which stands out whatever is under them.
        for colour, width in ((page().background, 6), (page().text, 2)):
            x_edges = (column * step_x - 0.5, (column + 1) * step_x - 0.5)
            y_edges = (row * step_y - 0.5, (row + 1) * step_y - 0.5)
            ring.append(frame(x_edges, y_edges, colour, width * sized(1, 1.5)))
    traces = [_image(faint(image)), patches]
    return _framed(traces, ring, image, outlines, side=sized(SIDE, LECTURE_SIDE), bottom_margin=sized(64, 80))


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
    *,
    side: int,
    bottom_margin: int = 0,
) -> go.Figure:
    height, width = image.shape[:2]
    colours = page()
    boxes, names = list(shapes), []
    for box, name, is_target in outlines:
        left, top, right, bottom = (edge * size for edge, size in zip(box, (width, height) * 2, strict=True))
        edges = (left - 0.5, right - 0.5), (top - 0.5, bottom - 0.5)
        box_frame = frame(*edges, colours.accent, 3 if is_target else 1.5)
        boxes.append(box_frame | {"line": {**box_frame["line"], "dash": "solid" if is_target else "dot"}})
        if not name:
            continue
        is_below = top < 0.12 * height
        x, y = min(max((left + right) / 2, 0.18 * width), 0.82 * width), bottom if is_below else top
        style: dict[str, Any] = {"bgcolor": colours.background, "opacity": 0.9, "borderpad": 1}
        style["font"] = {"size": sized(12, 16), "color": colours.text}
        names.append(annotation(plain(name), x, y, yanchor="top" if is_below else "bottom", **style))
    hidden = {"visible": False, "constrain": "domain", "constraintoward": "left"}
    layout = {
        "shapes": boxes,
        "annotations": names,
        "height": side + bottom_margin,
        "margin": {"l": 0, "r": 0, "t": 0, "b": bottom_margin},
        "xaxis": {**hidden, "range": [-0.5, width - 0.5]},
        "yaxis": {**hidden, "constraintoward": "top", "scaleanchor": "x", "range": [height - 0.5, -0.5]},
    }
    return figure_of(traces, layout)


def faint(image: np.ndarray) -> np.ndarray:
    """Return an image in grey, close to the colour of the page, as drawn under a heatmap; uint8 of the same shape."""
    background = np.array(rgb(page().background), np.float32)
    grey = image.max(-1).astype(np.float32)  # a coloured shape differs from a grey ground, however dark its colour
    grey = 255 * (grey - grey.min()) / max(float(np.ptp(grey)), 1.0)
    mixed: np.ndarray = (1 - FAINT) * background + FAINT * grey[..., None]
    rounded: np.ndarray = np.rint(mixed)
    return rounded.astype(np.uint8)


def _see_through(signed: bool) -> list[tuple[float, str]]:
    """Return the colour scale of the app, transparent at 0 and more opaque with the distance from 0."""
    colours = (DIVERGING if signed else SEQUENTIAL).colours()
    last = len(colours) - 1
    scale = []
    for number, colour in enumerate(colours):
        share = number / last
        strength = abs(2 * share - 1) if signed else share
        red, green, blue = rgb(colour)
        scale.append((share, f"rgba({red},{green},{blue},{OPAQUE * strength**0.6:.3f})"))
    return scale
