"""The layout of every page: a view with fixed places, and texts whose technical terms are explained.

From top to bottom: title with examples and Export, text, tokens with the target, notices, controls, figure, reading,
and the rest of the page. In lecture mode what is above the figure folds into one bar, and bar, figure and reading fill
the window at any height: style sheets decide, so that nothing runs again when the window changes. In a narrow window
the figure comes before the controls.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from viz_app.components.figure_scroll import scroll_figure
from viz_app.components.side_bar import close_on_narrow_windows
from viz_app.figures.style import current_look
from viz_app.shell.markdown import help_on_terms, mark_terms
from viz_app.shell.params import Param
from viz_app.shell.selection import Selection, current_selection
from viz_app.texts import ENGLISH, page_texts

TEXTS = page_texts("frame")
VIEW = "_screen"  # the view of the last run
# Rows from top to bottom, each with its places.
ROWS = {
    "heading": ("title", "examples", "export"),
    "text": ("text",),
    "tokens": ("strip", "target", "heads_off"),
    "notices": ("notices",),
    "controls": ("controls",),
    "figure": ("figure",),
    "reading": ("reading",),
}
STRETCHED = ("title", "strip")  # places that take the width that the others of their row leave
STACKED = ("target", "heads_off")  # places of a row that are below each other
# Places in the bar of lecture mode, from left to right, with the icons of their buttons.
FOLDED = {
    "text": ":material/edit:",
    "target": ":material/target:",
    "controls": ":material/tune:",
    "settings": ":material/settings:",
}
# Plotly's button that makes a picture; screen.css hides it, and Export presses it (components/figure_files).
PLOT_BUTTONS = {"displayModeBar": True, "displaylogo": False, "modeBarButtons": [["toImage"]]}
READING = "**How to read this:**"
MISLEADS = TEXTS.in_language(ENGLISH)["misleads"]
_FOLDER = Path(__file__).parent
STYLE, LECTURE_STYLE, EMBED_STYLE = (
    f"<style>{''.join((_FOLDER / name).read_text('utf-8') for name in names)}</style>"
    for names in (("screen.css",), ("screen.css", "lecture.css"), ("embed.css",))
)


TEXTLESS_STYLE = (
    "<style>[data-testid='stLayoutWrapper']:has(> :is("
    ".st-key-screen_text, .st-key-screen_tokens, .st-key-screen_examples)), "
    ".st-key-fold_text, .st-key-fold_target, .st-key-examples_open { display: none !important; }</style>"
)

# A run that the visitor left goes on until it draws, in a thread of its own, beside the one that took its place: what
# it then put into the other's places would count there and never arrive, and the browser would drop the whole page.
_thread = threading.local()


@dataclass(frozen=True)
class ExportFile:
    """A file that the Export control of a page offers.

    label: of its button. make: makes the file after the click; it must hold the request for a result and no result,
    because Streamlit keeps it while the page is open. disabled: whether its numbers are out of date.
    """

    label: str
    make: Callable[[], bytes | str]
    name: str
    disabled: bool = False


@dataclass(frozen=True)
class ExportFigure:
    """A figure that the Export control of a page offers as PNG, SVG, CSV and table. alt: describes the figure."""

    figure: go.Figure
    alt: str


@dataclass(frozen=True)
class View:
    """The places of one run of a page, in a fixed order whatever the page does.

    What a page draws with `st` directly is below the figure and its reading.
    places: containers by name. popovers: those that were opened in lecture mode. figures: those that were drawn, by
    the keys of their charts. files: those of the page, by their names. exports: functions that draw further parts of
    Export once it is open.
    """

    places: dict[str, DeltaGenerator]
    popovers: dict[str, DeltaGenerator] = field(default_factory=dict)
    figures: dict[str, ExportFigure] = field(default_factory=dict)
    files: dict[str, ExportFile] = field(default_factory=dict)
    exports: list[Callable[[], None]] = field(default_factory=list)

    @property
    def selection(self) -> Selection:
        """Text, model, target and heads that are selected."""
        return current_selection()

    def place(self, name: str) -> DeltaGenerator:
        """Return a place by its name: one of those of `ROWS`, "settings" or "rest". For the frame of the page."""
        if not current_look().lecture or name not in FOLDED:
            return self.places[name]
        if name not in self.popovers:
            self.popovers[name] = self.places[name].popover(
                TEXTS[f"folded.{name}"], icon=FOLDED[name], key=f"fold_{name}"
            )
        return self.popovers[name]

    def controls(self, **arguments: Any) -> DeltaGenerator:
        """Return a row for controls above the figure, at most three and `options`. arguments: of `st.container`."""
        row = {"horizontal": True, "vertical_alignment": "center", "gap": "medium"}
        return self.place("controls").container(**{**row, **arguments})

    def options(self, *params: Param[Any]) -> DeltaGenerator:
        """Return the popover of the controls that are seldom changed; call it inside `controls`.

        params: those that it contains; its label counts how many of them differ from their defaults.
        """
        changed = sum(param.value != param.first(with_text=False) for param in params)
        label = TEXTS["options"] + (f" ({changed})" if changed else "")
        return st.popover(label, icon=":material/tune:", width="content", key="options")

    def hide_text(self) -> None:
        """Hide the shared text, its tokens and the target: what the page shows now does not depend on them."""
        st.html(TEXTLESS_STYLE)

    def figure(self) -> DeltaGenerator:
        """Return the place of the figure; in lecture mode it takes the height that is left."""
        return self.place("figure")

    def show(self, figure: go.Figure, *, key: str, alt: str, **arguments: Any) -> None:
        """Draw a figure in its place; Export offers it and its numbers. arguments: of `chart`."""
        with self.figure():
            chart(figure, key=key, alt=alt, **arguments)

    def read(self, lines: str, misleads: str = "") -> None:
        """Write how to read the figure, below it, and how it can mislead, which lecture mode shows below the window.

        lines: with both headings, or without any if `misleads` is given.
        """
        # What a page says in English alone has the English heading.
        if misleads:
            lines = how_to_read(lines, misleads)
        heading = TEXTS["misleads"] if TEXTS["misleads"] in lines else MISLEADS
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
    places: dict[str, DeltaGenerator] = {}
    if lecture:
        bar = whole.container(key="screen_bar", horizontal=True, vertical_alignment="center")
        places["title"] = bar.container(key="screen_title")
        places |= {name: bar.container(width="content") for name in (*FOLDED, "examples", "export")}
    else:
        places["settings"] = st.sidebar
        with st.container(key="screen_side_bar"):
            close_on_narrow_windows()
    for row, names in ROWS.items():
        remaining = [name for name in names if name not in places]
        if len(remaining) < 2:
            places |= {name: whole.container(key=f"screen_{name}") for name in remaining}
            continue
        parent = whole.container(key=f"screen_{row}", horizontal=True, vertical_alignment="center")
        stack: DeltaGenerator | None = None
        for name in remaining:
            if name in STACKED:
                stack = stack or parent.container(key=f"screen_{row}_stack", width="content")
            width: Literal["stretch", "content"] = "stretch" if name in STRETCHED or name in STACKED else "content"
            places[name] = (stack if stack and name in STACKED else parent).container(key=f"screen_{name}", width=width)
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


def add_file(label: str, make: Callable[[], bytes | str], name: str, *, disabled: bool = False) -> None:
    """Offer a file in the Export control of the page. Arguments: as for `ExportFile`."""
    current_view().files[name] = ExportFile(label, make, name, disabled)


def write_note(line: str, place: DeltaGenerator | None = None) -> None:
    """Write a small line of Markdown with its technical terms explained. place: its container, if not that of `st`."""
    (st if place is None else place).caption(mark_terms(line), unsafe_allow_html=True)


def write_line(line: str) -> None:
    """Write a line of Markdown with its technical terms explained."""
    st.markdown(mark_terms(line), unsafe_allow_html=True)


def write_heading(line: str) -> None:
    """Write a heading with a tooltip on its technical terms."""
    st.subheader(line, anchor=False, help=help_on_terms(line))


def write_result(heading: str, line: str) -> None:
    """Write the result of a view above its figure. heading: a sentence with its numbers, without technical terms."""
    st.markdown(f"#### {heading}")
    write_line(line)


def how_to_read(reading: str, misleads: str) -> str:
    """Return how to read a figure, and how it can mislead, with their headings, which are in English."""
    return f"{READING} {reading} {MISLEADS} {misleads}"


def lazy_expander(name: str, label: str) -> Any:
    """Draw an expander that tells whether it is `open`, so that the content of a closed one is not computed."""
    return st.expander(label, key=f"open_{name}", on_change="rerun")


def key_class(key: str) -> str:
    """Return the CSS class that Streamlit gives to the element with a key."""
    return f"st-key-{re.sub(r'[^a-zA-Z0-9_-]', '-', key)}"


def chart(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    grows: bool = True,
    min_share: float = 0.5,
    min_width: int | None = None,
    side: int | None = None,
    **arguments: Any,
) -> None:
    """Draw a figure with its own height, or in lecture mode with its share of the height of the window.

    Export offers it as PNG, SVG, CSV and table.
    grows: whether its height changes in lecture mode. min_share: the share of its height that it needs there.
    min_width: pixels; in a narrower window it scrolls horizontally; by default that of the figure. It opens with the
        "center" of the figure in the middle, a share of the width, if its layout states one.
    side: pixels of a square in the figure, which is smaller in a narrower window, and so is the height of the figure.
    arguments: of `st.plotly_chart`.
    """
    current_view().figures[key] = ExportFigure(figure, alt)
    place = f".{key_class(key)}"
    min_width = min_width or (figure.layout.meta or {}).get("min_width")
    if min_width:
        st.html(f"<style>{place} {{ overflow-x: auto; }} {place} > * {{ min-width: {min_width}px; }}</style>")
    height: Literal["content", "stretch"] = "content"
    if current_look().lecture:
        if grows:
            # Streamlit stretches a figure, and lets it shrink no lower than it says.
            height = "stretch"
            figure.update_layout(height=round(min_share * figure.layout.height))
        # Drawn in its own size, and scaled with the type of the window (lecture.css).
        needed = f"calc({figure.layout.height or 0}px * var(--type))"
        frame = f"--grow: var(--type); --frame: {'100%' if grows else needed}; min-height: {needed};"
        st.html(f"<style>{place} {{ {frame} }}</style>")
    elif side is not None:
        height = "stretch"
        st.html(
            f"<style>{place} {{ height: calc(min({side}px, 100vw - 2rem) + {figure.layout.height - side}px) }}</style>"
        )
    st.plotly_chart(figure, theme=None, height=height, key=key, alt=alt, config=PLOT_BUTTONS, **arguments)
    if (center := (figure.layout.meta or {}).get("center")) is not None:
        scroll_figure(key_class(key), center, f"{center} {min_width}")
