"""The selected depth of the hidden states, on all pages that show states of one depth."""

from __future__ import annotations

from viz_app.figures.lens import depth_names
from viz_app.shell.params import Param, parse_int

depth: Param[int | None] = Param("depth", None, parse_int)  # None: the last
_SLIDER = {"width": 230}
depth_slider: Param[int] = Param("depth_slider", 0, widget="select_slider", label="Depth", arguments=_SLIDER)


def select_depth(depths: int) -> int:
    """Draw the slider over the depths and return the selected one, by default the last."""
    is_possible = depth.value is not None and 0 <= depth.value < depths
    depth_slider.set(depth.value if depth.value is not None and is_possible else depths - 1)
    names = depth_names(depths)
    return depth_slider(options=range(depths), format_func=names.__getitem__, on_change=_take_slider)


def _take_slider() -> None:
    depth.set(depth_slider.value)
