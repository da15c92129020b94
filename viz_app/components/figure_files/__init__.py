"""Buttons that save a Plotly figure of the page as PNG and as SVG; the browser makes the files."""

from __future__ import annotations

from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined

_FOLDER = Path(__file__).parent
_view = component(
    "headlight.figure_files",
    html='<div class="files"></div>',
    css=(_FOLDER / "figure_files.css").read_text("utf-8"),
    js=joined(_FOLDER / "figure_files.js"),
)


def figure_files(chart_class: str, *, name: str, alt: str) -> None:
    """Draw the buttons of a figure.

    chart_class: CSS class of the element that contains it. name: of the files, without an ending. alt: describes the
    figure.
    """
    data = {"chart": chart_class, "name": name, "alt": alt}
    _view(key=f"files_{chart_class}", data=data, height="content", width="content")
