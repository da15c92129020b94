"""The layout of every page: a view with fixed places, and texts whose technical terms are explained.

From top to bottom: text, tokens, target, title, controls, figure, reading, and the rest of the page. In lecture mode
what is above the figure folds into one bar, and bar, figure and reading fill the window at any height: style sheets
decide, so that nothing runs again when the window changes. In a narrow window the figure comes before the controls.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from viz_app.components.side_bar import close_on_narrow_windows
from viz_app.figures.style import current_look
from viz_app.shell.downloads import csv_button
from viz_app.shell.language import translate
from viz_app.shell.markdown import help_on_terms, mark_terms
from viz_app.shell.selection import Selection, current_selection

VIEW = "_screen"  # the view of the last run
ORDER = ("text", "strip", "target", "title", "controls", "figure", "reading")
# Places in the bar of lecture mode, from left to right, with label and icon of their buttons.
FOLDED = {
    "text": ("Text", ":material/edit:"),
    "target": ("Target", ":material/target:"),
    "controls": ("Controls", ":material/tune:"),
    "settings": ("Settings", ":material/settings:"),
}
MISLEADS = "**How it can mislead:**"
_FOLDER = Path(__file__).parent
STYLE, LECTURE_STYLE, EMBED_STYLE = (
    f"<style>{''.join((_FOLDER / name).read_text('utf-8') for name in names)}</style>"
    for names in (("screen.css",), ("screen.css", "lecture.css"), ("embed.css",))
)


# A run that the visitor left goes on until it draws, in a thread of its own, beside the one that took its place: what
# it then put into the other's places would count there and never arrive, and the browser would drop the whole page.
_thread = threading.local()


@dataclass(frozen=True)
class View:
    """The places of one run of a page, in a fixed order whatever the page does.

    What a page draws with `st` directly is below the figure and its reading.
    places: containers by name. popovers: those that were opened in lecture mode.
    """

    places: dict[str, DeltaGenerator]
    popovers: dict[str, DeltaGenerator] = field(default_factory=dict)

    @property
    def selection(self) -> Selection:
        """Text, model, target and heads that are selected."""
        return current_selection()

    def place(self, name: str) -> DeltaGenerator:
        """Return a place by its name, one of `ORDER`, "settings" and "rest"; for the frame around the pages."""
        if not current_look().lecture or name not in FOLDED:
            return self.places[name]
        if name not in self.popovers:
            label, icon = FOLDED[name]
            self.popovers[name] = self.places[name].popover(translate(label), icon=icon, key=f"fold_{name}")
        return self.popovers[name]

    def controls(self, **arguments: Any) -> DeltaGenerator:
        """Return a row for controls above the figure. arguments: of `st.container`."""
        row = {"horizontal": True, "vertical_alignment": "bottom", "gap": "medium"}
        return self.place("controls").container(**{**row, **arguments})

    def figure(self) -> DeltaGenerator:
        """Return the place of the figure; in lecture mode it takes the height that is left."""
        return self.place("figure")

    def show(
        self,
        figure: go.Figure,
        *,
        key: str,
        alt: str,
        csv: Mapping[str, Sequence[object]] | None = None,
        **arguments: Any,
    ) -> None:
        """Draw a figure in its place, with a button for its numbers. csv: columns. arguments: of `chart`."""
        with self.figure():
            chart(figure, key=key, alt=alt, **arguments)
        if csv is not None:
            csv_button(f"{key}.csv", **csv)

    def read(self, lines: str) -> None:
        """Write how to read the figure, below it, and how it can mislead, which lecture mode shows below the window."""
        # What a page says in English alone has the English heading.
        heading = translate(MISLEADS) if translate(MISLEADS) in lines else MISLEADS
        reading, misleads, misleading = lines.partition(heading)
        if current_look().lecture and misleads:
            write_note(reading, self.place("reading"))
            write_note(misleads + misleading, self.place("rest"))
        else:
            write_note(lines, self.place("reading"))


def make_view(*, embedded: bool = False) -> View:
    """Make the places of a page, which are empty until something is drawn in them.

    embedded: whether only the tokens, the figure and its reading are visible.
    """
    lecture = current_look().lecture
    st.html(LECTURE_STYLE if lecture else STYLE)
    if embedded:
        st.html(EMBED_STYLE)
    whole = st.container(key="screen")
    if lecture:
        bar = whole.container(key="screen_bar", horizontal=True, vertical_alignment="center")
        places = {
            "title": bar.container(key="screen_title"),
            **{name: bar.container(width="content") for name in FOLDED},
        }
    else:
        places = {"settings": st.sidebar}
        with st.container(key="screen_side_bar"):
            close_on_narrow_windows()
    remaining = [name for name in ORDER if name not in places]
    places |= {name: whole.container(key=f"screen_{name}") for name in remaining}
    places["rest"] = st.container(key="screen_rest")
    view = _thread.view = st.session_state[VIEW] = View(places)
    return view


def current_view() -> View:
    """Return the view of this run; in a fragment that runs alone, that of the run that drew the page."""
    view: View = getattr(_thread, "view", None) or st.session_state[VIEW]
    return view


def page_place(name: str) -> DeltaGenerator:
    """Return a place of the current view; see `View.place`."""
    return current_view().place(name)


def write_reading(lines: str) -> None:
    """Write how to read the figure; see `View.read`."""
    current_view().read(lines)


def write_note(line: str, place: DeltaGenerator | None = None) -> None:
    """Write a small line of Markdown with its technical terms explained. place: its container, if not that of `st`."""
    (st if place is None else place).caption(mark_terms(line), unsafe_allow_html=True)


def write_line(line: str) -> None:
    """Write a line of Markdown with its technical terms explained."""
    st.markdown(mark_terms(line), unsafe_allow_html=True)


def write_heading(line: str) -> None:
    """Write a heading with a tooltip on its technical terms."""
    st.subheader(line, anchor=False, help=help_on_terms(line))


def chart(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    grows: bool = True,
    min_share: float = 0.5,
    min_width: int | None = None,
    toolbar: bool = True,
    **arguments: Any,
) -> None:
    """Draw a figure with its own height, or in lecture mode with its share of the height of the window.

    grows: whether its height changes in lecture mode. min_share: the share of its height that it needs there.
    min_width: pixels; in a narrower window it scrolls horizontally; by default that of the figure.
    toolbar: whether Plotly's buttons are shown. arguments: of `st.plotly_chart`.
    """
    min_width = min_width or (figure.layout.meta or {}).get("min_width")
    if min_width:
        st.html(
            f"<style>.st-key-{key} {{ overflow-x: auto; }} .st-key-{key} > * {{ min-width: {min_width}px; }}</style>"
        )
    height: Literal["content", "stretch"] = "content"
    if grows and current_look().lecture:
        # Streamlit stretches a figure, and lets it shrink no lower than it says.
        height = "stretch"
        figure.update_layout(height=round(min_share * figure.layout.height))
    config = None if toolbar else {"displayModeBar": False}
    st.plotly_chart(figure, theme=None, height=height, key=key, alt=alt, config=config, **arguments)
