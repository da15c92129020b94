"""What does BERT make of a sentence?"""

import streamlit as st

from viz_app.lessons.reading import lessons
from viz_app.shell import frame, lesson, panel, screen
from viz_app.shell.choices import GROUPS
from viz_app.shell.language import language, spoken
from viz_app.shell.markdown import as_written


def draw() -> None:
    """Draw the page."""
    frame.title(
        spoken("What does BERT make of a sentence?"),
        spoken(
            "Headlight shows how BERT, a language model, reads your sentence: what it predicts, where it looks, and "
            "why."
        ),
    )
    first = lessons(language())[0]
    with screen.picture():
        ways = st.container(horizontal=True, key="start_ways")
        with ways.container(border=True):
            st.markdown(spoken("Hide a word of a sentence, and see what the model puts in its place."))
            tries = st.button(spoken("Try it"), icon=":material/edit_note:", type="primary", key="start_try")
        with ways.container(border=True):
            question = spoken("Begin with the first lesson: {question}").format(question=as_written(first.question))
            st.markdown(question)
            st.button(
                spoken("Learn"), icon=":material/school:", type="primary", key="start_learn", on_click=panel.begin,
                args=(first,),
            )  # fmt: skip
        st.subheader(spoken("Explore"), anchor=False)
        groups = st.container(horizontal=True, key="start_groups", gap="medium")
        for group in GROUPS:
            with groups.container(gap="small"):
                st.caption(spoken(group))
                _pages(group)
    if tries:
        # With the address as it is: in the language, and in a frame, if it is in one.
        st.switch_page(frame.way_to("predict"), query_params=st.query_params.to_dict())


def _pages(group: str) -> None:
    """The pages of a group: the way to each, and under it what it answers."""
    for page in st.session_state[lesson.PAGES].values():
        if page.group == group:
            with st.container(gap=None):
                st.page_link(frame.way_to(page.path), label=f"**{spoken(page.title)}**", icon=page.icon)
                st.caption(spoken(page.asks))
