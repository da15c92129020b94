"""The script of the app, which Streamlit runs for every change: it draws the frame and the page."""

import gc
import threading
from functools import partial
from importlib import import_module

import streamlit as st

from viz_app.access import is_local_server
from viz_app.figures.style import current_look, use_look
from viz_app.moved_pages import FIRST_VIEW, HOME
from viz_app.pages import BY_PATH, PAGES
from viz_app.shell import address, classroom, frame, lesson, panel, saved_lessons, work
from viz_app.shell.error_boundary import error_boundary
from viz_app.shell.markdown import PAGE
from viz_app.shell.params import GROUPS, Page
from viz_app.shell.view import current_view, make_view, page_place
from viz_app.streamlit_compat import (
    StreamlitPage,
    count_script_runs,
    finish_session_writes,
    keep_generated_downloads,
)
from viz_app.texts import page_texts

finish_session_writes()
keep_generated_downloads()

TEXTS = page_texts("frame")
FIRST_PAGE = "_first_page"  # session key: path of the page that an address without one opens
EMBED = "embed"  # parameter of an address for a frame in another page
_settled = threading.Event()


def view_params() -> set[str]:
    """Return the names of the parameters with which an address without a page opens Predictions, and not Home."""
    table = frame.params_of_pages(PAGES)
    without_view = (*frame.FRAME_PARAMS, *BY_PATH[HOME].params)
    params = [param for param in table.values() if param not in without_view]
    return {EMBED} | {param.name for param in params} | {param.old_name for param in params if param.old_name}


def draw() -> None:
    """Draw the app for one visitor."""
    st.set_page_config(page_title="Headlight", page_icon=frame.LOGO, layout="wide", initial_sidebar_state=250)
    st.logo(frame.LOGO, size="large")
    notices = address.restore_params(frame.params_of_pages(PAGES))
    with use_look(frame.session_look()):
        _draw_run(notices)
    _settle()


def _draw_run(notices: list[str]) -> None:
    """Draw the frame and the open page. notices: faults of the address."""
    work.begin_run()
    pages = [page for page in PAGES if is_local_server() or not page.is_local]
    st.session_state[lesson.PAGES] = {page.path: page for page in pages}
    streamlit_pages = st.session_state[frame.STREAMLIT_PAGES] = {page.path: _streamlit_page(page) for page in pages}
    first = _first_page()
    # Streamlit needs a page for the address without a path, which the server redirects.
    unnamed = st.Page(partial(_draw, first), title=first.title, default=True, visibility="hidden")
    groups = {
        TEXTS[f"groups.{group}"] if group else "": [streamlit_pages[page.path] for page in pages if page.group == group]
        for group in ("", *GROUPS)
    }
    groups[""].append(unnamed)
    streamlit_page = st.navigation(groups, position="top" if current_look().lecture else "sidebar", expanded=True)
    page = next((page for page in pages if page.path == streamlit_page.url_path), first)
    if lesson.pending_page() in streamlit_pages.keys() - {page.path}:
        frame.go_to(str(lesson.pending_page()))
    with error_boundary():
        lesson.apply_pending_view()
        classroom.restore_teacher()
    address.open_example(page)
    panel_place = panel.place()
    embedded = address.is_embedded()
    layout = make_view(embedded=embedded)
    try:
        st.session_state[PAGE] = page.path
        is_ready = False
        with error_boundary(page_place("figure")):
            is_ready = frame.open_frame(page, pages, notices)
        with error_boundary(page_place("figure")):  # after an error above, the lesson is still drawn
            panel.draw(panel_place)
            if panel_place is not None or page.path == panel.LEARN:
                saved_lessons.draw()
            if is_ready:
                with layout.place("rest"):
                    frame.run_page(page, streamlit_page)
            if embedded:
                frame.open_in_app_link()
    finally:
        address.publish()
        work.end_of_run()


def _first_page() -> Page:
    """Return the page of an address without a path, as the server redirects it; it is decided once per session."""
    state = st.session_state
    if FIRST_PAGE not in state:
        is_view = address.is_embedded() or any(name in st.query_params for name in view_params())
        state[FIRST_PAGE] = FIRST_VIEW if is_view else HOME
    return BY_PATH[state[FIRST_PAGE]]


def _streamlit_page(page: Page) -> StreamlitPage:
    """Return a page as Streamlit's navigation takes it."""
    draw_page = partial(_draw, page)
    return st.Page(draw_page, title=page.title, icon=page.icon, url_path=page.path, help=page.line)


def _draw(page: Page) -> None:
    """Draw a page, whose module is imported when it is first opened."""
    import_module(f"viz_app.pages.{page.path}.page").draw(current_view())


def _settle() -> None:
    """After the first page, exempt imported and loaded objects from garbage collection.

    Not while another run or a job is active, whose objects would never be freed.
    """
    if _settled.is_set():  # `gc.get_freeze_count` would iterate over all frozen objects
        return
    if count_script_runs() <= 1 and work.queue().wait_until_idle(0):
        _settled.set()
        gc.collect()
        gc.freeze()
