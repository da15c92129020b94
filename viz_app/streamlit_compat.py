"""Every undocumented feature of Streamlit that Headlight uses, each with the public behaviour that it stands for.

No other module imports from `streamlit.runtime`, `streamlit.proto`, `streamlit.elements` or `streamlit.navigation`
(tests/test_architecture.py). tests/app/test_streamlit_compat.py has a test of each feature, which fails if another
version of Streamlit changes it; `log_untested_version` names such a version when the server starts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from typing import Any, NoReturn

import streamlit
from google.protobuf.message import DecodeError
from streamlit.navigation.page import StreamlitPage
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime import exists, get_instance
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.scriptrunner import StopException, get_script_run_ctx
from streamlit.runtime.state import SafeSessionState, SessionStateProxy
from streamlit.runtime.state.session_state import Serialized

__all__ = [
    "CONTEXT_LOGGER",
    "PAGE_ATTRIBUTES",
    "TESTED_VERSION",
    "TEST_IDS",
    "SessionStateProxy",
    "StreamlitPage",
    "browser_message_kind",
    "count_script_runs",
    "end_script_run",
    "finish_session_writes",
    "is_history_navigation",
    "is_in_script_run",
    "is_session_active",
    "keep_generated_downloads",
    "log_untested_version",
    "requested_query",
    "session_id",
    "shorten_widget_texts",
]

TESTED_VERSION = "1.67.0"  # as constraints.txt pins it
CONTEXT_LOGGER = "streamlit.runtime.scriptrunner_utils.script_run_context"
"""Name of the logger that warns of `st` functions that are called outside the run of a script."""

# Elements of the page, by the `data-testid` that the style sheets and scripts of viz_app select them by.
TEST_IDS = {
    "stAlertContainer", "stApp", "stBaseButton-primary", "stButtonGroup", "stCaptionContainer", "stCode", "stColumn",
    "stElementContainer", "stElementToolbar", "stExpandSidebarButton", "stExpander", "stFileUploader",
    "stFullScreenFrame", "stHeader", "stHeading", "stHorizontalBlock", "stLayoutWrapper", "stMain",
    "stMainBlockContainer", "stMarkdownContainer", "stMetric", "stMetricLabel", "stMetricValue", "stNumberInput",
    "stNumberInputClearButton", "stPageLink", "stPageLink-NavLink", "stPlotlyChart", "stPopoverBody", "stSelectbox",
    "stSidebar", "stSidebarCollapseButton", "stSidebarNavItems", "stSidebarNavLink", "stSlider", "stStatusWidget",
    "stTextInput", "stVerticalBlock", "stWidgetLabel",
}  # fmt: skip
# Attributes of the page that say whether it is connected (CONNECTED), whether a script runs (notRunning), and whether
# the side bar is closed.
PAGE_ATTRIBUTES = ("data-test-connection-state", "data-test-script-state", "data-collapsed")

_logger = logging.getLogger(__name__)
_execute_deferred = MediaFileManager.execute_deferred
_on_script_will_rerun = SafeSessionState.on_script_will_rerun


def log_untested_version() -> None:
    """Log one warning if the installed Streamlit is not the version that Headlight is tested with."""
    if streamlit.__version__ != TESTED_VERSION:
        _logger.warning("Headlight is tested with Streamlit %s; this is %s", TESTED_VERSION, streamlit.__version__)


# ---------------------------------------------------------------------------- the run of a script and its session


def is_in_script_run() -> bool:
    """Return whether the calling thread runs the script for a page, so that `st` functions have a page to draw on."""
    return get_script_run_ctx(suppress_warning=True) is not None


def session_id() -> str | None:
    """Return the identifier of the session (one open page) whose script the calling thread runs; None outside a run."""
    context = get_script_run_ctx(suppress_warning=True)
    return None if context is None else context.session_id


def is_session_active(session: Hashable) -> bool:
    """Return whether the page of a session is connected; True for anything that is no session, or without a server."""
    return not exists() or not isinstance(session, str) or get_instance().is_active_session(session)


def is_history_navigation() -> bool:
    """Return whether the browser started this run by Back or Forward."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and context.is_history_navigation


def requested_query() -> str:
    """Return the query of the address that requested this run, with the `embed` that `st.query_params` hides."""
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.query_string


def end_script_run() -> NoReturn:
    """End the run of the script, as `st.stop` does, but let it use the session state and `st` while it ends.

    After `st.stop` every later call of `st` in a `finally` block would end the run again.
    """
    raise StopException


def count_script_runs() -> int:
    """Return how many threads of this process run the script, of all sessions."""
    return sum(thread.name == "ScriptRunner.scriptThread" for thread in threading.enumerate())


# ---------------------------------------------------------------------------- messages of a browser


def browser_message_kind(data: bytes) -> str | None:
    """Return the kind of a message that a browser sent, such as "rerun_script"; None if it is none or not readable."""
    message = BackMsg()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    kind: str | None = message.backend_operation_request.WhichOneof("payload") or message.WhichOneof("type")
    return kind


def shorten_widget_texts(data: bytes, max_characters: int) -> bytes:
    """Return a message of a browser with the text of each widget cut to `max_characters`."""
    message = BackMsg()
    message.ParseFromString(data)
    for widget in message.rerun_script.widget_states.widgets:
        if len(widget.string_value) > max_characters:
            widget.string_value = widget.string_value[:max_characters]
    shortened: bytes = message.SerializeToString()
    return shortened


# ---------------------------------------------------------------------------- changed behaviour


def finish_session_writes() -> None:
    """End a run that was replaced where it draws, and not where it reads or writes the session state.

    When a visitor goes on, Streamlit ends the run that is under way at its next call that draws, and wherever it uses
    the session state. A click whose choices are half written would stay so, and a session that was left between two of
    its first choices would have no page. One place is kept: before a run applies the values that the browser has sent.
    A run that was replaced before that must not apply them after those of its successor. It only still does where they
    contain a click on a button, which no later message repeats.
    """
    SafeSessionState._yield_callback = property(lambda _: _continue, _keep_interrupt)  # type: ignore[assignment]
    SafeSessionState.on_script_will_rerun = _apply_unless_replaced  # type: ignore[assignment, method-assign]


def _continue() -> None:
    """Do nothing, in place of the callback that ends a replaced run."""


def _keep_interrupt(state: SafeSessionState, interrupt: Any) -> None:
    state.__dict__["_yield_callback"] = interrupt  # where a session that began before the change has it too


def _apply_unless_replaced(state: SafeSessionState, fresh_widget_states: WidgetStates | None, **options: Any) -> None:
    if fresh_widget_states is None or not has_click(fresh_widget_states):
        state.__dict__["_yield_callback"]()
    _on_script_will_rerun(state, fresh_widget_states, **options)


def has_click(states: WidgetStates) -> bool:
    """Whether one of the values is that of a click, which counts for one run only."""
    return any("trigger" in (widget.WhichOneof("value") or "") for widget in states.widgets)


def reported_text(key: str) -> str | None:
    """Return the text that the browser reports for the text field `key` in a run that has not drawn it yet, or None.

    After a restart of the server, an open page reports the values of all its controls to a session that knows none of
    them. Their identifiers end with their keys.
    """
    context = get_script_run_ctx()
    if context is None:
        return None
    states = context.session_state._state._new_widget_state.states
    reported = [state for name, state in states.items() if name.endswith(f"-{key}")]
    values = [state.value for state in reported if isinstance(state, Serialized)]
    return next((value.string_value for value in values if value.WhichOneof("value") == "string_value"), None)


def keep_generated_downloads() -> None:
    """Keep a file that a download button generated until the next run of its session.

    Streamlit deletes a generated file once two runs of any session have ended after the click. With several visitors
    this may happen before the browser has fetched the file, and the download fails with status 404.
    """
    MediaFileManager.execute_deferred = _execute_and_reference  # type: ignore[assignment, method-assign]


def _execute_and_reference(manager: MediaFileManager, file_id: str) -> str:
    entry = manager._deferred_callables.get(file_id)
    url = _execute_deferred(manager, file_id)
    if entry is not None:
        generated_id = url.rpartition("/")[2].partition(".")[0]
        with manager._lock:
            references = manager._files_by_session_and_coord.get(entry["session_id"])
            if references is not None and generated_id in manager._file_metadata:  # the visitor may be gone
                references[f"generated from {file_id}"] = generated_id
    return url
