"""The address bar: a link to what is seen.

Every choice that defines a view lives in `st.session_state` under the name of its parameter.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlencode

import streamlit as st

from bert_core.refused import Refused
from viz_app.shell import examples
from viz_app.shell.params import Page, Param, current_names
from viz_app.streamlit_compat import (
    SessionStateProxy,
    end_script_run,
    is_history_navigation,
    reported_text,
    requested_query,
)

MAX_LINK_CHARACTERS = 2_000  # characters of text that the address bar takes
HEAD_CHOSEN = (
    "_head_chosen"  # whether a head was chosen, by the visitor or by the link; else pages may open on their own
)
TEXT_UNNAMED = "_unsaid"  # whether no address has named a text yet, and no page has begun with its example
PUBLISHED = "_published"  # the address that was written last
EMBEDDED = "_embedded"  # whether the address with which a visitor came asked for the picture alone
ALL_PARAMS = "_table"  # every choice of the address by its name


def restore_params(table: Mapping[str, Param[Any]]) -> list[str]:
    """Bring the choices of the address into the session: at first, and whenever the visitor goes back or forward.

    table: every choice by its name. Returns notices.
    """
    state = st.session_state
    state[ALL_PARAMS] = table
    is_new = "text" not in state
    if not is_new and not is_history_navigation():
        return []
    notices: list[str] = []
    given = current_names(st.query_params.to_dict(), table)
    state[HEAD_CHOSEN] = "head" in given
    # An address without a text is that of a new visitor, or of a text that is too long for it, and stays.
    # After a restart of the server, an open page reports its text, which may be too long for an address.
    typed = {name: reported_text(name) for name, choice in table.items() if choice.free} if is_new else {}
    unsaid = {name for name, choice in table.items() if choice.about and choice.about not in given}
    for name, choice in table.items():
        if name in unsaid and not is_new and name not in given:
            continue
        value = choice.first(with_text="text" in given)
        if name in given:
            try:
                value = choice.parse(given[name])
            except Refused as error:
                notices.append(f"The link says {name}={given[name][:60]!r}, which is not possible: {error}.")
        if (text := typed.get(name)) is not None:
            value = text
        state[name] = value
    state[TEXT_UNNAMED] = (
        "text" not in given and typed.get("text") is None and (is_new or state.get(TEXT_UNNAMED, False))
    )
    return notices


def open_example(page: Page) -> None:
    """Begin with the example of a page, where a new visitor opens it by an address that names no text."""
    state = st.session_state
    if state.pop(TEXT_UNNAMED, False):
        own = page.example or examples.first_example()
        state.text, state.pair, state.masked = own.text, own.pair, own.masked
        state.target, state.contrast = own.target, own.contrast


def is_embedded() -> bool:
    """Whether the page is shown in a frame of another one, without what stands around its picture.

    Streamlit knows `embed=true`, keeps any `embed` in the address, and tells nobody of it.
    """
    state = st.session_state
    if EMBEDDED not in state:
        said = parse_qs(requested_query()).get("embed", [""])
        state[EMBEDDED] = said[-1].lower() in ("1", "true")
    return bool(state[EMBEDDED])


def publish(only: Container[str] | None = None) -> None:
    """Write the text and what is not the default into the address bar. only: these choices, if not all."""
    state, link = st.session_state, current_params()
    if only is not None:
        link = {name: value for name, value in link.items() if name in only}
    # The browser tells its address when a run starts: what a run cut short wrote after that is known here alone.
    if link != st.query_params.to_dict() or (link and link != state.get(PUBLISHED)):
        st.query_params.from_dict(link)
        # Not before: in a run that Streamlit ends here, its message is never sent. The session already holds the
        # parameters then, and the run that follows would find nothing to write.
        state[PUBLISHED] = link


def end_run() -> NoReturn:
    """Draw nothing more, with the address bar as it should be; what the page was drawn without is still waited for.

    After `st.stop` nothing could be: it ends the run again wherever the run reads its state or draws.
    """
    publish()
    end_script_run()


def link_of(state: Mapping[str, Any] | SessionStateProxy, *, head_chosen: bool = False) -> dict[str, str]:
    """The address of some choices: the text and what is not the default, without texts that are too long for it.

    head_chosen: whether the head was chosen, which a link says of the first head too.
    """
    table: Mapping[str, Param[Any]] = state[ALL_PARAMS]
    too_long = {
        about
        for about in {choice.about for choice in table.values() if choice.free}
        if sum(len(state[name]) for name, choice in table.items() if choice.free and choice.about == about)
        > MAX_LINK_CHARACTERS
    }
    return {
        name: choice.write(state[name])
        for name, choice in table.items()
        if choice.about not in too_long
        and (state[name] != choice.first(with_text=True) or (head_chosen and name == "head"))
    }


def relative_link() -> str:
    """The address of what is shown, as a page of the app itself: relative, and not in a frame."""
    return f"?{urlencode(current_params())}"


def current_params() -> dict[str, str]:
    """The address of what is chosen now."""
    return link_of(st.session_state, head_chosen=st.session_state.get(HEAD_CHOSEN, False))


def history_params() -> tuple[str, ...]:
    """The parameters of the address that Back takes back one by one."""
    return tuple(name for name, choice in st.session_state[ALL_PARAMS].items() if choice.step)


def log_line() -> str:
    """What is chosen and is not the first choice, as "name=value" with spaces between; nothing that is typed."""
    table: Mapping[str, Param[Any]] = st.session_state.get(ALL_PARAMS, {})
    first = {name: choice.first(with_text=False) for name, choice in table.items()}
    chosen = {name: st.session_state.get(name, first[name]) for name in table}
    said = [
        f"{name}={choice.write(chosen[name])}"
        for name, choice in table.items()
        if choice.parse is not str
        and not choice.is_secret
        and not name.endswith("model")
        and chosen[name] != first[name]
    ]
    return " ".join([f"model={Path(st.session_state.get('model', '')).name}", *said])
