"""Behaviour of Streamlit that Headlight changes through undocumented parts; each change has a test."""

from __future__ import annotations

from typing import Any

from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state import SafeSessionState
from streamlit.runtime.state.session_state import Serialized

_execute_deferred = MediaFileManager.execute_deferred
_on_script_will_rerun = SafeSessionState.on_script_will_rerun


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
