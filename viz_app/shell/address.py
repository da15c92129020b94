"""The address bar, which contains every parameter of the view that is not the default.

The value of a parameter is `st.session_state[name]`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from viz_app.texts import page_texts

TEXTS = page_texts("frame")
MAX_LINK_CHARACTERS = 2_000  # of texts in the address bar
# Session keys.
HEAD_CHOSEN = "_head_chosen"  # whether the visitor or a link selected a head; otherwise a page may select one
TEXT_UNNAMED = "_unsaid"  # whether no address has contained a text, and no page has opened its example
PUBLISHED = "_published"  # the address that was written last
EMBEDDED = "_embedded"  # whether the first address asked for an embedded page
ALL_PARAMS = "_table"  # all parameters by name


def restore_params(table: Mapping[str, Param[Any]]) -> list[str]:
    """Copy the parameters of the address into the session: at its begin, and after Back or Forward in the browser.

    table: all parameters by name. Returns a sentence for each impossible value.
    """
    state = st.session_state
    state[ALL_PARAMS] = table
    # After a restart of the server, an open page reports its text, which may be too long for an address, to a session
    # that has not drawn the field yet. Another text than before was typed while the first run of the session drew.
    reported_texts = {
        name: text for name, param in table.items() if param.free and (text := reported_text(name)) is not None
    }
    is_new = "text" not in state or any(state.get(name, text) != text for name, text in reported_texts.items())
    if not is_new and not is_history_navigation():
        return []
    faults: list[tuple[str, str, Refused]] = []
    address = current_names(st.query_params.to_dict(), table)
    state[HEAD_CHOSEN] = "head" in address
    # An address without a text is that of a new visitor, or of a text that is too long for it, which is kept.
    has_text = "text" in address or "text" in reported_texts
    unnamed = {name for name, param in table.items() if param.text_name and param.text_name not in address}
    for name, param in table.items():
        if name in unnamed and not is_new and name not in address:
            continue
        value = param.first(with_text=has_text)
        if name in address:
            try:
                value = param.parse(address[name])
            except Refused as error:
                faults.append((name, repr(address[name][:60]), error))
        state[name] = reported_texts.get(name, value)
    state[TEXT_UNNAMED] = not has_text and (is_new or state.get(TEXT_UNNAMED, False))
    # Only now is the language of the session that of the link.
    sentence = TEXTS["link.impossible"]
    return [sentence.format(name=name, value=value, reason=reason) for name, value, reason in faults]


def open_example(page: Page) -> None:
    """Open the example of a page if a new visitor comes with an address that contains no text."""
    state = st.session_state
    if state.pop(TEXT_UNNAMED, False):
        example = page.example or examples.first_example()
        state.text, state.pair, state.masked = example.text, example.pair, example.masked
        state.target, state.contrast = example.target, example.contrast


def is_embedded() -> bool:
    """Return whether the page is embedded in another one, with its figure only.

    Streamlit interprets `embed=true`, removes `embed` from the query parameters, and does not report it.
    """
    state = st.session_state
    if EMBEDDED not in state:
        values = parse_qs(requested_query()).get("embed", [""])
        state[EMBEDDED] = values[-1].lower() in ("1", "true")
    return bool(state[EMBEDDED])


def publish() -> None:
    """Write the text and all parameters that are not the default into the address bar."""
    state, link = st.session_state, current_params()
    # The browser reports its address when a run starts; what an interrupted run wrote later is only known here.
    if link != st.query_params.to_dict() or (link and link != state.get(PUBLISHED)):
        st.query_params.from_dict(link)
        # Not before: if Streamlit ends the run here, its message is not sent, although the query parameters are set;
        # the next run has to write them again.
        state[PUBLISHED] = link


def end_run() -> NoReturn:
    """End the page here, with the address bar updated; polled jobs are still awaited.

    After `st.stop` they could not be: it ends the run again wherever the run reads its state or draws.
    """
    publish()
    end_script_run()


def link_of(state: Mapping[str, Any] | SessionStateProxy, *, head_chosen: bool = False) -> dict[str, str]:
    """Return the address of a state: the text and all parameters that are not the default, without long texts.

    head_chosen: whether to include the head even if it is the first.
    """
    table: Mapping[str, Param[Any]] = state[ALL_PARAMS]
    too_long = {
        text
        for text in {param.text_name for param in table.values() if param.free}
        if sum(len(state[name]) for name, param in table.items() if param.free and param.text_name == text)
        > MAX_LINK_CHARACTERS
    }
    return {
        name: param.write(state[name])
        for name, param in table.items()
        if param.text_name not in too_long
        and (state[name] != param.first(with_text=True) or (head_chosen and name == "head"))
    }


def relative_link() -> str:
    """Return the address of the view relative to the app, not embedded."""
    return f"?{urlencode(current_params())}"


def current_params() -> dict[str, str]:
    """Return the address of the current state."""
    return link_of(st.session_state, head_chosen=st.session_state.get(HEAD_CHOSEN, False))


def history_params() -> tuple[str, ...]:
    """Return the names of the parameters whose changes are entries of the browser's history."""
    return tuple(name for name, param in st.session_state[ALL_PARAMS].items() if param.step)


def log_line() -> str:
    """Return the parameters that are not the default as "name=value", without texts and secrets; for error reports."""
    params: Mapping[str, Param[Any]] = st.session_state.get(ALL_PARAMS, {})
    values = [f"model={Path(st.session_state.get('model', '')).name}"]
    for name, param in params.items():
        default = param.first(with_text=False)
        value = st.session_state.get(name, default)
        is_public = param.parse is not str and not param.is_secret and not name.endswith("model")
        if is_public and value != default:
            values.append(f"{name}={param.write(value)}")
    return " ".join(values)
