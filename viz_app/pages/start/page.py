"""What does BERT make of a sentence?"""

import streamlit as st

from viz_app.lessons.parsing import lessons
from viz_app.shell import frame, lesson, panel
from viz_app.shell.language import language, translate
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import GROUPS
from viz_app.shell.view import View, page_place


def draw(page: View) -> None:
    """Draw the page."""
    frame.title(
        translate("What does BERT make of a sentence?"),
        translate(
            "Headlight shows how BERT, a language model, reads your sentence: what it predicts, where it looks, and "
            "why."
        ),
    )
    first = lessons(language())[0]
    with page_place("figure"):
        ways = st.container(horizontal=True, key="start_ways")
        with ways.container(border=True):
            st.markdown(translate("Hide a word of a sentence, and see what the model puts in its place."))
            tries = st.button(translate("Try it"), icon=":material/edit_note:", type="primary", key="start_try")
        with ways.container(border=True):
            question = translate("Begin with the first lesson: {question}").format(
                question=escape_markdown(first.question)
            )
            st.markdown(question)
            st.button(
                translate("Learn"), icon=":material/school:", type="primary", key="start_learn", on_click=panel.begin,
                args=(first,),
            )  # fmt: skip
        st.subheader(translate("Explore"), anchor=False)
        groups = st.container(horizontal=True, key="start_groups", gap="medium")
        for group in GROUPS:
            with groups.container(gap="small"):
                st.caption(translate(group))
                _pages(group)
    if tries:
        # With the address as it is: in the language, and in a frame, if it is in one.
        st.switch_page(frame.streamlit_page("predict"), query_params=st.query_params.to_dict())


def _pages(group: str) -> None:
    """The pages of a group: the way to each, and under it what it answers."""
    for page in st.session_state[lesson.PAGES].values():
        if page.group == group:
            with st.container(gap=None):
                st.page_link(frame.streamlit_page(page.path), label=f"**{translate(page.title)}**", icon=page.icon)
                st.caption(translate(page.question))
