"""What does this word mean?"""

import streamlit as st

from viz_app.glossary import Term, find_terms, terms
from viz_app.lessons import ENGLISH
from viz_app.pages.glossary import LONGEST
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
    # Above the words on a narrow window, too, where controls come after the picture.
    typed = control(
        page_place("figure").text_input, translate("Find a word"), "term", live="50ms", max_chars=LONGEST, width=320,
        placeholder=translate("Such as entropy"),
    )  # fmt: skip
    found = find_terms(typed, language())
    with page_place("figure"):
        if not found:
            none = translate("None of the {all} words here is like “{typed}”.")
            st.info(with_help(none.format(all=len(terms()), typed=escape_markdown(typed))))
        for term in found:
            _term(term)
    write_reading(translate(
        "**How to read this:** each sentence says what a word means in this app, and the link leads to a page that "
        "uses it. **How it can mislead:** papers use some of these words otherwise, and one sentence leaves much out."
    ))  # fmt: skip


def _term(term: Term) -> None:
    """One term: its sentence, its other names, who said it first, and the way to a page that says it."""
    way = frame.streamlit_page(term.page)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"term_{term.name}"):
        others = f"also: {', '.join(term.forms[1:])}" if term.forms[1:] and language() == ENGLISH else term.english
        beside = f" ({escape_markdown(others)})" if others else ""
        source = f" [{escape_markdown(term.source)}]({term.link})" if term.source else ""
        st.markdown(
            f"**{escape_markdown(term.name)}**{beside}: {mark_terms(term.meaning, {term.name})}{source}",
            unsafe_allow_html=True, width="stretch",
        )  # fmt: skip
        st.page_link(way, label=way.title, icon=way.icon, width="content")
