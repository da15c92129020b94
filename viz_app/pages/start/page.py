"""Draws the page Start."""

import streamlit as st

from viz_app.lessons.parsing import lessons
from viz_app.pages.start import TEXTS
from viz_app.shell import frame, lesson, panel
from viz_app.shell.language import language
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import GROUPS
from viz_app.shell.view import View
from viz_app.texts import page_texts

FRAME_TEXTS = page_texts("frame")


def draw(page: View) -> None:
    """Draw two first steps, and links to all pages."""
    first = lessons(language())[0]
    with page.figure():
        cards = st.container(horizontal=True, key="start_ways")
        with cards.container(border=True):
            st.markdown(TEXTS["mask_a_word"])
            is_clicked = st.button(TEXTS["try"], icon=":material/edit_note:", type="primary", key="start_try")
        with cards.container(border=True):
            sentence = TEXTS["first_lesson"]
            st.markdown(sentence.format(question=escape_markdown(first.question)))
            label, icon = TEXTS["learn"], ":material/school:"
            panel.button(label, "start_learn", panel.begin, first, primary=True, icon=icon)
        st.subheader(TEXTS["explore"], anchor=False)
        groups = st.container(horizontal=True, key="start_groups", gap="medium")
        for group in GROUPS:
            with groups.container(gap="small"):
                st.caption(FRAME_TEXTS[f"groups.{group}"])
                _draw_links(group)
    if is_clicked:
        # The address keeps the language, and whether the page is embedded.
        st.switch_page(frame.streamlit_page("predict"), query_params=st.query_params.to_dict())


def _draw_links(group: str) -> None:
    """Draw a link to each page of a group, with its question."""
    for page in st.session_state[lesson.PAGES].values():
        if page.group == group:
            with st.container(gap=None):
                st.page_link(frame.streamlit_page(page.path), label=f"**{page.title}**", icon=page.icon)
                st.caption(page.line)
