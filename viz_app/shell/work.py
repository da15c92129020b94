"""Slow work: asked for, waited for, and kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from viz_app.shell.address import end_run
from viz_app.shell.jobs import Job, JobQueue
from viz_app.shell.markdown import as_written

PATIENCE = 2.0  # seconds a page waits before it shows the queue


@st.cache_resource
def queue() -> JobQueue:
    """The one queue of this server."""
    return JobQueue()


@st.cache_resource(max_entries=64, show_spinner=False)
def kept(key: tuple[Any, ...], _make: Callable[[], Any]) -> Any:
    """What `_make` gives, made once for everyone who asks by this key; for small things that take long to make."""
    return _make()


def asked_for(what: str, key: Hashable, label: str) -> bool:
    """Whether the visitor asked for this very thing, by the button that is drawn here until then.

    what: the kind of question; asking for another of its kind forgets this one.
    """
    slot = f"_asked_{what}"
    if st.session_state.get(slot) != key and st.button(label, icon=":material/play_arrow:", type="primary"):
        st.session_state[slot] = key
        st.rerun()
    return bool(st.session_state.get(slot) == key)


def result_of(job: Job) -> Any:
    """What a job gives; while it runs, the page shows its place in the queue instead, and comes back by itself.

    Raises what the job raised.
    """
    if (label := st.session_state.pop("_stopped", None)) is not None:
        st.info(f"{as_written(label)} was stopped. Change anything, or reload the page, to start it again.")
        end_run()
    if not job.wait(PATIENCE):
        _waiting_room(job)
        end_run()
    return given_by(job)


def given_by(job: Job) -> Any:
    """What a job that is done gave; what it raised is raised, and it can be asked for again."""
    if job.error is not None:
        queue().forget(job.key)
        raise job.error
    return job.result


def still_running(job: Job, on_stop: Callable[[], None]) -> bool:
    """Whether a job is not done yet; then its place in the queue is shown here, and the page goes on.

    The page comes back by itself when it is done. on_stop: called if the visitor stops it. Raises what the job raised.
    """
    if not job.wait(PATIENCE):
        _waiting_room(job, on_stop)
        return True
    given_by(job)
    return False


@st.fragment(run_every=0.5)
def _waiting_room(job: Job, on_stop: Callable[[], None] | None = None) -> None:
    if job.done:
        st.rerun()
    place = queue().place(job)
    where = "running" if place == 0 else f"waiting for {place} other {'job' if place == 1 else 'jobs'}"
    st.progress(job.progress or 0.0, text=as_written(f"{job.label}: {where}"))
    if st.button("Stop", key="stop_job" if on_stop is None else "stop_here"):
        queue().forget(job.key)
        if on_stop is None:
            st.session_state["_stopped"] = job.label
        else:
            on_stop()
        st.rerun()
