"""Buttons that save a Plotly figure of the page as PNG and as SVG; the browser makes the files."""

from __future__ import annotations

from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined
from viz_app.figures.style import current_look

_FOLDER = Path(__file__).parent
_view = component(
    "headlight.figure_files",
    html='<div class="files"></div>',
    css=(_FOLDER / "figure_files.css").read_text("utf-8"),
    js=joined(_FOLDER / "figure_files.js"),
)


def figure_files(chart_key: str, *, name: str, alt: str) -> None:
    """Draw the buttons of a figure.

    chart_key: key of its chart on the page. name: of the files, without an ending. alt: describes the figure.
    """
    data = {"chart": chart_key, "name": name, "alt": alt, "lecture": current_look().lecture}
    _view(key=f"files_{chart_key}", data=data, height="content", width="content")
