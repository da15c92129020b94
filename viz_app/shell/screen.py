"""Where things stand in the window: a page's title, its controls, its picture with a line on reading it, and the rest.

In lecture mode what is above the picture folds into one bar, and bar, picture and reading fill the window, however
high it is: the style sheets decide, so nothing runs again when the window changes. On a narrow window the picture
comes before the controls.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from viz_app.components.side_bar import close_on_narrow_windows
from viz_app.figures.style import current_look
from viz_app.shell.language import translate
from viz_app.shell.markdown import help_on_terms, mark_terms

SCREEN = "_screen"  # the places that this run has made
ORDER = ("text", "strip", "target", "title", "controls", "picture", "reading")
# What folds into the bar of a lecture, from left to right, and its button.
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
_own = threading.local()


@dataclass(frozen=True)
class _Screen:
    """The places of one run, by their names; folded: the buttons of those that were opened in a lecture."""

    places: dict[str, DeltaGenerator]
    folded: dict[str, DeltaGenerator] = field(default_factory=dict)


def make_places(*, embedded: bool = False) -> DeltaGenerator:
    """Make the places of a page, which show only what is put there; returns the one below them, for the rest.

    embedded: whether only the text as chips, the picture and its reading are seen.
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
    below = [name for name in ORDER if name not in places]
    places |= {name: whole.container(key=f"screen_{name}") for name in below}
    places["rest"] = st.container(key="screen_rest")
    _own.screen = st.session_state[SCREEN] = _Screen(places)
    return places["rest"]


def _screen() -> _Screen:
    """The places of this run; of a part of a page that runs alone, those of the run that drew the page."""
    screen: _Screen = getattr(_own, "screen", None) or st.session_state[SCREEN]
    return screen


def _place(name: str) -> DeltaGenerator:
    screen = _screen()
    if not current_look().lecture or name not in FOLDED:
        return screen.places[name]
    if name not in screen.folded:
        label, icon = FOLDED[name]
        screen.folded[name] = screen.places[name].popover(translate(label), icon=icon, key=f"fold_{name}")
    return screen.folded[name]


def text() -> DeltaGenerator:
    """The place where the text is typed."""
    return _place("text")


def strip() -> DeltaGenerator:
    """The place of the text as chips, and of what is to be said of it."""
    return _place("strip")


def target() -> DeltaGenerator:
    """The place where the target is chosen."""
    return _place("target")


def settings() -> DeltaGenerator:
    """The place where the model is chosen."""
    return _place("settings")


def title() -> DeltaGenerator:
    """The place of the heading: the question that a page answers."""
    return _place("title")


def controls() -> DeltaGenerator:
    """The place of a page's own controls."""
    return _place("controls")


def picture() -> DeltaGenerator:
    """The place of a page's picture; in a lecture it takes the height that is left."""
    return _place("picture")


def write_reading(lines: str) -> None:
    """Write how to read the picture under it; how it can mislead stands beside that, in a lecture below the window."""
    # What a page says in English alone has the English heading.
    heading = translate(MISLEADS) if translate(MISLEADS) in lines else MISLEADS
    reading, misleads, misleading = lines.partition(heading)
    if current_look().lecture and misleads:
        write_note(reading, _place("reading"))
        write_note(misleads + misleading, _place("rest"))
    else:
        write_note(lines, _place("reading"))


def write_note(line: str, place: DeltaGenerator | None = None) -> None:
    """Write a small line in Markdown with its technical words explained. place: where, if not where the page is."""
    (st if place is None else place).caption(mark_terms(line), unsafe_allow_html=True)


def write_line(line: str) -> None:
    """Write a line in Markdown, as large as text is, with its technical words explained."""
    st.markdown(mark_terms(line), unsafe_allow_html=True)


def write_heading(line: str) -> None:
    """Write a heading in the page; what its technical words mean stands beside it."""
    st.subheader(line, anchor=False, help=help_on_terms(line))


def chart(
    figure: go.Figure, *, key: str, alt: str, grows: bool = True, least: float = 0.5, least_width: int = 0, **more: Any
) -> None:
    """Draw a figure: as high as it was made, or in a lecture as high as its share of the picture.

    grows: False for a figure that has a height of its own everywhere. least: the share of its height that it needs at
    least. least_width: pixels; where there are fewer, the
    figure scrolls from side to side. more: what else `st.plotly_chart` takes.
    """
    if least_width:
        st.html(
            f"<style>.st-key-{key} {{ overflow-x: auto; }} .st-key-{key} > * {{ min-width: {least_width}px; }}</style>"
        )
    height: Literal["content", "stretch"] = "content"
    if grows and current_look().lecture:
        # Streamlit stretches a figure, and lets it shrink no lower than it says.
        height = "stretch"
        figure.update_layout(height=round(least * figure.layout.height))
    st.plotly_chart(figure, theme=None, height=height, key=key, alt=alt, **more)
