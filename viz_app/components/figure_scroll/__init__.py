"""The horizontal scroll position at which a wide figure opens in a narrow window."""

from __future__ import annotations

from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined

_view = component(
    "headlight.figure_scroll",
    html='<div class="state"></div>',
    js=joined(Path(__file__).parent / "figure_scroll.js"),
)


def scroll_figure(place: str, center: float, identity: str) -> None:
    """Scroll a figure once so that a part of it is in the middle of its place; without effect if it fits there.

    place: CSS class of the element that scrolls. center: horizontal position in the figure, 0 to 1. identity: text
    after whose change the figure is scrolled again.
    """
    _view(key=f"figure_scroll_{place}", data={"place": place, "center": center, "identity": identity}, height=0)
