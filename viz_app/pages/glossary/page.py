"""Draws the page Glossary."""

import streamlit as st

from viz_app.glossary import Term, find_terms, terms
from viz_app.pages.glossary import TEXTS, term
from viz_app.shell import frame
from viz_app.shell.language import language
from viz_app.shell.markdown import escape_markdown, mark_terms, with_help
from viz_app.shell.view import View
from viz_app.texts import ENGLISH


def draw(page: View) -> None:
    """Draw the search field and the terms that match it."""
    # The field is above the terms in a narrow window too, where controls are below the figure.
    query = term(page.figure(), label=TEXTS["find"], placeholder=TEXTS["placeholder"])
    matches = find_terms(query, language())
    with page.figure():
        if not matches:
            sentence = TEXTS["not_found"]
            st.info(with_help(sentence.format(all=len(terms()), typed=escape_markdown(query))))
        for match in matches:
            _draw_term(match)
    page.read(TEXTS["reading"])


def _draw_term(match: Term) -> None:
    """Draw a term with its meaning, its other names and its source, and a link to a page that contains it."""
    page = frame.streamlit_page(match.page)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"term_{match.name}"):
        names = f"also: {', '.join(match.forms[1:])}" if match.forms[1:] and language() == ENGLISH else match.english
        suffix = f" ({escape_markdown(names)})" if names else ""
        source = f" [{escape_markdown(match.source)}]({match.link})" if match.source else ""
        text = f"**{escape_markdown(match.name)}**{suffix}: {mark_terms(match.meaning, {match.name})}{source}"
        st.markdown(text, unsafe_allow_html=True, width="stretch")
        st.page_link(page, label=page.title, icon=page.icon, width="content")
