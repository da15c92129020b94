"""What does this word mean?"""

import streamlit as st

from viz_app.glossary import Term, find_terms, terms
from viz_app.lessons import ENGLISH
from viz_app.pages.glossary import MAX_QUERY_LENGTH
from viz_app.shell import frame
from viz_app.shell.controls import control
from viz_app.shell.language import language, translate
from viz_app.shell.markdown import escape_markdown, mark_terms, with_help
from viz_app.shell.view import View, page_place, write_reading


def draw(page: View) -> None:
    """Draw the page."""
    frame.title(
        translate("What does this word mean?"),
        translate(
            "Every technical word of the pages, in one sentence. On the pages, such words have a dotted line: point at "
            "one or tap it."
        ),
    )
    # Before the terms on a narrow window too, where controls follow the picture.
    query = control(
        page_place("figure").text_input,
        translate("Find a word"),
        "term",
        live="50ms",
        max_chars=MAX_QUERY_LENGTH,
        width=320,
        placeholder=translate("Such as entropy"),
    )
    matches = find_terms(query, language())
    with page_place("figure"):
        if not matches:
            sentence = translate("None of the {all} words here is like “{typed}”.")
            st.info(with_help(sentence.format(all=len(terms()), typed=escape_markdown(query))))
        for term in matches:
            _term(term)
    reading = translate(
        "**How to read this:** each sentence says what a word means in this app, and the link leads to a page that "
        "uses it. **How it can mislead:** papers use some of these words otherwise, and one sentence leaves much out."
    )
    write_reading(reading)


def _term(term: Term) -> None:
    """Draw a term with its meaning, its other names and its source, and a link to a page that contains it."""
    page = frame.streamlit_page(term.page)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"term_{term.name}"):
        names = f"also: {', '.join(term.forms[1:])}" if term.forms[1:] and language() == ENGLISH else term.english
        suffix = f" ({escape_markdown(names)})" if names else ""
        source = f" [{escape_markdown(term.source)}]({term.link})" if term.source else ""
        text = f"**{escape_markdown(term.name)}**{suffix}: {mark_terms(term.meaning, {term.name})}{source}"
        st.markdown(text, unsafe_allow_html=True, width="stretch")
        st.page_link(page, label=page.title, icon=page.icon, width="content")
