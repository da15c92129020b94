"""What every run of the app draws: what is chosen, the frame, and the page that was opened."""

import gc
import threading
from functools import partial
from importlib import import_module

import streamlit as st

from viz_app.access import is_local_server
from viz_app.figures.style import current_look, use_look
from viz_app.pages import PAGES, START, UNNAMED
from viz_app.shell import address, classroom, frame, lesson, panel, saved_lessons, work
from viz_app.shell.error_boundary import PAGE, error_boundary
from viz_app.shell.language import translate
from viz_app.shell.params import GROUPS, Page
from viz_app.shell.view import current_view, make_view, page_place
from viz_app.streamlit_compat import (
    count_script_runs,
    finish_session_writes,
    keep_generated_downloads,
    requested_page_path,
)

finish_session_writes()
keep_generated_downloads()

HOME = "_starts_at_home"  # whether the address that names no page is that of the page Start
_settled = threading.Event()


def draw() -> None:
    """Draw the app, for one visitor and one moment."""
    st.set_page_config(page_title="Headlight", page_icon=frame.LOGO, layout="wide", initial_sidebar_state=250)
    st.logo(frame.LOGO, size="large")
    notices = address.restore_params(frame.params_of_pages(PAGES))
    with use_look(frame.session_look()):
        _draw_run(notices)
    _settle()


def _draw_run(notices: list[str]) -> None:
    """Draw the frame and the page that is open. notices: what the address asked for in vain."""
    work.begin_run()
    pages = [page for page in PAGES if is_local_server() or not page.own]
    st.session_state[lesson.PAGES] = {page.path: page for page in pages}
    home = _home()
    ways = st.session_state[frame.STREAMLIT_PAGES] = {
        page.path: st.Page(
            partial(_draw, page), title=translate(page.title), icon=page.icon, url_path=page.path, default=page is home,
            help=translate(page.question),
        )
        for page in pages
    }  # fmt: skip
    groups = {group: [ways[page.path] for page in pages if page.group == group] for group in ("", *GROUPS)}
    opened = st.navigation(
        {translate(group) if group else "": some for group, some in groups.items()},
        position="top" if current_look().lecture else "sidebar", expanded=True,
    )  # fmt: skip
    page = next((page for page in pages if page.path == opened.url_path), home)
    if lesson.pending_page() in ways.keys() - {page.path}:
        frame.go_to(str(lesson.pending_page()))
    with error_boundary():
        lesson.apply_pending_view()
        classroom.restore_teacher()
    if page is not START:
        address.open_example(page)
    beside = panel.place()
    embedded = address.is_embedded()
    layout = make_view(embedded=embedded)
    try:
        st.session_state[PAGE] = page.path
        stands = False
        with error_boundary(page_place("figure")):
            stands = frame.open_frame(page, pages, notices)
        with error_boundary(page_place("figure")):  # what goes wrong above takes no lesson away
            panel.draw(beside)
            if beside is not None or page.path == panel.LEARN:
                saved_lessons.draw()
            if stands:
                with layout.place("rest"):
                    frame.run_page(page, opened)
            if embedded:
                frame.open_in_app_link()
    finally:
        address.publish({param.name for param in frame.FRAME_PARAMS} if page is START else None)
        work.end_of_run()


def _home() -> Page:
    """The page of the address that names none: Start, or Predict, where that address names a view.

    It stays what it was when the visitor came, so that Back never leads to another page than it did before.
    """
    state = st.session_state
    if HOME not in state:
        named = requested_page_path()
        names = {name for name, param in state[address.ALL_PARAMS].items() if param not in frame.FRAME_PARAMS}
        is_view = any(name in st.query_params for name in names)
        state[HOME] = named == UNNAMED.path or not (named or is_view or address.is_embedded())
    return START if state[HOME] else UNNAMED


def _draw(page: Page) -> None:
    """Draw a page; what it imports waits until somebody opens it."""
    import_module(f"viz_app.pages.{page.path}.page").draw(current_view())


def _settle() -> None:
    """Once a page stands, what was imported and loaded for it is there for good, and no garbage to look through.

    Not while another run or a job is under way: what these hold would be kept for good, too.
    """
    if _settled.is_set():  # not `gc.get_freeze_count`, which walks through all that is frozen
        return
    if count_script_runs() <= 1 and work.queue().wait_until_idle(0):
        _settled.set()
        gc.collect()
        gc.freeze()
