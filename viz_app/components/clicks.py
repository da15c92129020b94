"""Clicks on their way from a browser view to Python, each delivered once.

Streamlit hands over only the newest trigger of a name: when two clicks arrive while the page is still busy, the first
is lost. So a view sends with every click the ones shortly before it, each with a stamp that only grows, and the
session remembers the last stamp it has delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st


def latest(log: object) -> Any:
    """What the newest click in a view's log was on; None for no log, or one that no view of ours wrote."""
    entries = _entries(log)
    return entries[-1][1] if entries else None


def deliver(key: str, receive: Callable[[Any], None]) -> None:
    """Give every click of the view `key` that was not given before to `receive`, oldest first."""
    seen_key = f"_delivered_{key}"
    view = st.session_state.get(key)
    for stamp, target in _entries(view.get("click") if view else None):
        if stamp > st.session_state.get(seen_key, 0):
            st.session_state[seen_key] = stamp
            receive(target)


def _entries(log: object) -> list[tuple[float, Any]]:
    if not isinstance(log, list):
        return []
    return [
        (entry[0], entry[1])
        for entry in log
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], int | float)
    ]
