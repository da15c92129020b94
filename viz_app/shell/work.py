"""Slow work: functions whose calls are jobs of the server's queue, with keys derived from their arguments.

A page that cannot go on without a result calls `wait_for`; one that can, calls `poll`, and is drawn again when the
result exists; `confirm` first shows a button with the cost. Nothing polls the server: the run of the page stays open
while it waits, and shows the place in the queue.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, wraps
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, format_duration
from bert_core.refused import Refused
from bert_core.run.timing import PassTiming, measure_timing
from bert_core.unknown_tokens import count_unknown_tokens, current_counts
from viz_app.access import is_local_server
from viz_app.shell import memory
from viz_app.shell.address import end_run, publish
from viz_app.shell.identity import identity_of
from viz_app.shell.jobs import Batch, Job, JobQueue, JobStopped, SessionId, current_job
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_cache import begin_use, end_use, in_use, using
from viz_app.shell.model_names import shown_name
from viz_app.streamlit_compat import is_in_script_run, is_session_active, session_id
from viz_app.texts import page_texts

TEXTS = page_texts("frame")
WAIT_BEFORE_PROGRESS = 2.0  # seconds that a page waits before it shows the queue
POLL_INTERVAL = 0.5  # seconds between two updates of a progress bar
UNCONFIRMED_SECONDS = 2.0  # work that takes longer is started by a button
MAX_JOB_SECONDS = 600.0  # of one job on a shared server

_queue_lock = threading.Lock()
# Session keys.
_STOPPED_LABEL = "_stopped"  # label of the job that the visitor stopped
_SECONDS_TAKEN = "_took"  # of the timed answer on the page
_REQUESTED_KEYS = "_asked_now"  # keys of the jobs that this run needs: others are dropped at its end
_POLLED_JOBS = "_looked_at"  # unfinished jobs that the page is drawn without, each with its progress bar
_PREFETCHED = "_asked_next"  # work that is started at the end of this run
_PROGRESS_COUNT = "_rooms"  # number of progress bars that this run has drawn

Result = TypeVar("Result")
Output = TypeVar("Output", covariant=True)
Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Work(Generic[Output]):
    """A call of a slow function, as a job of the queue.

    key: equal for equal calls of any visitor; begins with the kind of work.
    label: as the queue shows it. compute: the function, called with the `Progress` to which it reports.
    seconds: estimated duration. batch: how it is computed together with others of its kind that wait.
    memory: estimated bytes while it runs; if there are fewer, it does not start, and Refused is raised.
    is_kept: whether the queue keeps the result.
    """

    key: Hashable
    label: str
    compute: Callable[[Progress], Output]
    seconds: float = 0.0
    batch: Batch | None = None
    memory: int = 0
    is_kept: bool = True


def work(
    label: str,
    *,
    seconds: Callable[..., float] | float = 0.0,
    memory: Callable[..., int] | int = 0,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Work[Result]]]:
    """Return a decorator after which a call of a slow function returns it as `Work`; see `wait_for`, `poll`, `confirm`.

    The key consists of the name of the function and the identities of its arguments (`identity_of`). A parameter
    `report` is not part of it, and receives the `Progress` of the job.

    label: as the queue shows it, with the names of parameters in braces. A model, or what has one as its attribute
    `loaded`, is shown by the name of the model, an encoding or another collection by its length.
    seconds, memory: as in `Work`, or functions of the same arguments.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Work[Result]]:
        signature = inspect.signature(function)

        @wraps(function)
        def make(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Work[Result]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = {name: value for name, value in bound.arguments.items() if name != "report"}

            def compute(report: Progress) -> Result:
                reported: Any = {"report": report} if "report" in signature.parameters else {}
                return function(**values, **reported)  # type: ignore[call-arg]

            return Work(
                (f"{function.__module__}.{function.__qualname__}", *map(identity_of, values.values())),
                label.format(**{name: _label_of(value) for name, value in values.items()}),
                compute,
                seconds(*values.values()) if callable(seconds) else seconds,
                memory=memory(*values.values()) if callable(memory) else memory,
            )

        return make

    return decorate


def _label_of(value: object) -> object:
    """Return what a label shows of an argument."""
    loaded = getattr(value, "loaded", value)
    if isinstance(loaded, LoadedModel):
        return shown_name(loaded.name)
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else value


class ResultState(Enum):
    """Whether a polled result is the result, that of an earlier call, or missing."""

    READY = "ready"
    STALE = "stale"
    WAITING = "waiting"


@dataclass(frozen=True)
class PolledResult(Generic[Value]):
    """The result of `poll`: READY with its value, STALE with that of an earlier call, or WAITING with None."""

    state: ResultState
    value: Value | None


def queue() -> JobQueue:
    """Return the queue of this server."""
    with _queue_lock:  # many sessions may begin at once
        return _queue()


@cache
def _queue() -> JobQueue:
    return JobQueue(is_session_active)


@st.cache_resource(max_entries=64, show_spinner=False)
def _results(key: tuple[Hashable, ...], _compute: Callable[[], Any]) -> Any:
    """Return what `_compute` returns, computed once per key for all visitors."""
    return _compute()


@st.cache_resource(max_entries=16, show_spinner=False)
def _results_of_models(key: tuple[Hashable, ...], _compute: Callable[[], Any]) -> Any:
    """Return what `_compute` returns, computed once per key, in a cache that results for texts do not empty."""
    return _compute()


def cached(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function with a small result, which is kept for all visitors by the identities of the arguments."""
    return _cached_in(_results, function)


def cached_per_model(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function as `cached` does, in a cache of its own, which results for many texts do not empty."""
    return _cached_in(_results_of_models, function)


def _cached_in(results: Callable[..., Any], function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        result: Result = results(_key_of_call(function, args, kwargs), lambda: function(*args, **kwargs))
        return result

    return call


def _key_of_call(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Hashable, ...]:
    return f"{function.__module__}.{function.__qualname__}", identity_of(args), identity_of(kwargs)


def confirm(label: str, *works: Work[Any], quick: float | None = None, slot: str = "") -> Any:
    """Return the result of a work, or a list of several, once the visitor has pressed the button with its cost.

    Returns None before that and while a result is awaited, with the progress and a Stop button in its place. What takes
    at most `quick` seconds, by default `UNCONFIRMED_SECONDS`, needs no button. slot: work in the same slot withdraws an
    earlier request; by default the kind of the first work.
    """
    slot = slot or str(works[0].key[0] if isinstance(works[0].key, tuple) else works[0].key)
    key = tuple(work.key for work in works)
    if not is_confirmed(slot, key, label, sum(work.seconds for work in works), quick=quick):
        return None
    results = [poll(work, request_slot=slot).value for work in works]
    if any(result is None for result in results):
        return None
    return results[0] if len(results) == 1 else results


def wait_for(work: Work[Result], *, timed: bool = False) -> Result:
    """Return the result; until then, the page waits and shows the place in the queue.

    Outside of a page, as in the function of a download button, it only waits. Inside a job the work is computed at
    once in the same thread. timed: whether `seconds_taken` returns its duration. Raises what the work raises.
    """
    if (outer := current_job()) is not None:
        nested: Result = _result(queue().run_nested(work.key, work.label, _as_job(work), outer, is_kept=work.is_kept))
        return nested
    on_a_page = is_in_script_run()
    job = _await_on_page(work) if on_a_page else _await_result(work)
    result: Result = _result(job)
    if timed and on_a_page:
        st.session_state[_SECONDS_TAKEN] = job.seconds
    return result


def seconds_taken() -> float | None:
    """Return the duration of the timed answer on the page; None if there is none."""
    seconds: float | None = st.session_state.get(_SECONDS_TAKEN)
    return seconds


def poll(work: Work[Result], *, slot: str = "", request_slot: str = "") -> PolledResult[Result]:
    """Return the result if it exists; else the last one of this slot, with the place in the queue drawn here.

    The page continues, and is drawn again when the result exists. slot: where the last result of this session is
    remembered; "" for none. request_slot: that of the button that requested the work; Stop withdraws the request.
    Raises what the work raises.
    """
    job = _submit(work, is_lasting=True)
    if job.wait(WAIT_BEFORE_PROGRESS):
        if isinstance(job.error, JobStopped):
            return earlier_result(slot)
        result = _result(job)
        if slot:
            remember_works(slot, work)
        return PolledResult(ResultState.READY, result)
    st.session_state.setdefault(_POLLED_JOBS, []).append((job, _draw_progress(job, request_slot)))
    return earlier_result(slot)


def remember_works(slot: str, *works: Work[Any]) -> None:
    """Remember the works of which the last answer in a slot of this session consists; the queue keeps the results."""
    st.session_state[f"_last_{slot}"] = tuple(work.key for work in works)


def earlier_results(slot: str) -> Sequence[Any]:
    """Return the results of the last answer in a slot; none if there was none, or the queue dropped one of them."""
    results = [_find_result(key) for key in st.session_state.get(f"_last_{slot}", ())]
    return () if any(result is None for result in results) else results


def earlier_result(slot: str) -> PolledResult[Any]:
    """Return the last answer in a slot, if it is one result, as STALE; WAITING if there is none."""
    results = earlier_results(slot)
    return PolledResult(ResultState.STALE, results[0]) if results else PolledResult(ResultState.WAITING, None)


def finished_result(work: Work[Result]) -> Result | None:
    """Return the result if it exists; None otherwise, and nothing is started."""
    result: Result | None = _find_result(work.key)
    return result


def _find_result(key: Hashable) -> Any:
    """Return the result of the queue for a key; None if there is none."""
    job = queue().find(key)
    return job.result if job is not None and job.is_done else None


def progress_of(work: Work[Any]) -> tuple[float, str] | None:
    """Start the work if necessary, and return the share that is done with its text; None when it is finished.

    For fragments that run again by themselves. Raises what the work raises.
    """
    job = _submit(work, is_lasting=True)
    if not job.is_done:
        return job.progress or 0.0, _progress_text(job)
    _result(job)
    return None


def prefetch(work: Work[Any]) -> None:
    """Start the work at the end of this run, since it will be needed next; errors are reported then."""
    st.session_state.setdefault(_PREFETCHED, []).append(work)


def stop(work: Work[Any]) -> None:
    """Stop the work, unless another session waits for it."""
    queue().stop(work.key, session_id())


def is_confirmed(slot: str, key: Hashable, label: str, seconds: float | None, *, quick: float | None = None) -> bool:
    """Return whether work is quick or was requested by its button, which is drawn here until then.

    slot: a request in the same slot replaces this one. seconds: estimated duration; None if unknown.
    quick: seconds that need no request, if not `UNCONFIRMED_SECONDS`.
    """
    if seconds is not None and seconds <= (UNCONFIRMED_SECONDS if quick is None else quick):
        return True
    cost = "" if seconds is None else f", about {duration_text(seconds)}"
    message = time_limit_message(seconds)
    if not is_requested(slot, key):
        if st.button(label + cost, icon=":material/play_arrow:", type="primary", disabled=message is not None):
            request(slot, key)
            st.rerun()
        if message is not None:
            st.caption(f"{message}.")
    return message is None and is_requested(slot, key)


def time_limit_message(seconds: float | None) -> str | None:
    """Return why this server does not start work of this duration; None if it does, as a local server always does."""
    if seconds is None or seconds <= MAX_JOB_SECONDS or is_local_server():
        return None
    return (
        f"This would take about {duration_text(seconds)}, and this server is for many: one question may take "
        f"{duration_text(MAX_JOB_SECONDS)}. Ask for less, with a shorter text or fewer examples, or run Headlight on a "
        "machine of your own"
    )


def request(slot: str, key: Hashable) -> None:
    """Request slow work in a slot; callback of a button."""
    st.session_state[f"_asked_{slot}"] = key


def is_requested(slot: str, key: Hashable) -> bool:
    """Return whether `key` is the last request in a slot, and was not withdrawn."""
    return bool(st.session_state.get(f"_asked_{slot}") == key)


def withdraw_request(slot: str) -> None:
    """Withdraw the request in a slot."""
    st.session_state.pop(f"_asked_{slot}", None)


# ---------------------------------------------------------------------------- duration


def estimate_seconds(loaded: LoadedModel, tokens: int, passes: float = 1, *, places: float = 0) -> float:
    """Estimate the seconds of forward passes over a text of this many tokens; a backward pass counts as two.

    places: number of positions at which the scores of all words are computed and sorted.
    """
    timing: PassTiming = _results_of_models(("timing", loaded.weights_key), lambda: measure_timing(loaded))
    return timing.estimate_seconds(tokens, passes, places)


def duration_text(seconds: float) -> str:
    """Return an estimated duration as "3 s" or "4 min", at least 1 s."""
    return format_duration(max(1.0, seconds))


# ---------------------------------------------------------------------------- one run of a page


def begin_run() -> None:
    """Reset the state of the last run; called before a page is drawn."""
    state = st.session_state
    state[_REQUESTED_KEYS], state[_POLLED_JOBS], state[_PREFETCHED], state[_PROGRESS_COUNT] = set(), [], [], 0
    begin_use()


def end_of_run() -> None:
    """Drop the jobs that the page no longer needs, wait for the polled ones, and draw the page again.

    Called when a page is drawn; returns if no job is awaited.
    """
    for work in st.session_state.pop(_PREFETCHED, []):
        with suppress(Refused):
            _submit(work, is_lasting=False)
    _withdraw_others()
    waiting: list[tuple[Job, Any]] = st.session_state.pop(_POLLED_JOBS, [])
    if not waiting:
        end_use()
        memory.MODELS.shrink()
        return
    while not any(job.is_done for job, _ in waiting):
        for job, bar in waiting:
            _update_progress(job, bar)
        waiting[0][0].wait(POLL_INTERVAL)
    st.rerun()


def _withdraw_others() -> None:
    queue().withdraw(session_id(), tuple(st.session_state.get(_REQUESTED_KEYS, ())))


def _submit(work: Work[Any], *, is_lasting: bool) -> Job:
    job = _job_of(work, session_id(), is_lasting=is_lasting)
    st.session_state.setdefault(_REQUESTED_KEYS, set()).add(job.key)
    return job


def _job_of(work: Work[Any], session: SessionId, *, is_lasting: bool) -> Job:
    return queue().submit(
        work.key, work.label, _as_job(work),
        expected=work.seconds, batch=work.batch, is_kept=work.is_kept, session=session, is_lasting=is_lasting,
    )  # fmt: skip


def _as_job(work: Work[Any]) -> Callable[[Job], Any]:
    """Return the function of a job for this work. Raises Refused for work that would take too long on this server."""
    if (message := time_limit_message(work.seconds)) is not None and queue().find(work.key) is None:
        raise Refused(message)

    models = in_use()  # they stay in memory until the job is finished
    device = memory.model_device()

    def run(job: Job) -> Any:
        reservation = memory.reserve_memory(work.memory, queue().drop_oldest, device=device)
        with using(models), reservation, count_unknown_tokens() as job.unknown:
            return work.compute(job.report)

    return run


def _await_result(work: Work[Any]) -> Job:
    job = _job_of(work, None, is_lasting=True)
    while not job.wait(POLL_INTERVAL):
        pass
    return job


def _await_on_page(work: Work[Any]) -> Job:
    if (label := st.session_state.pop(_STOPPED_LABEL, None)) is not None:
        _end_stopped_run(label)
    job = _submit(work, is_lasting=False)
    if not job.wait(WAIT_BEFORE_PROGRESS):
        _withdraw_others()
        place = st.empty()
        with place.container():
            bar = _draw_progress(job)
        publish()
        while not job.wait(POLL_INTERVAL):
            _update_progress(job, bar)  # ends the run if the visitor has left the page
        place.empty()
    if isinstance(job.error, JobStopped):
        queue().forget(job.key)
        _end_stopped_run(job.label)
    return job


def _end_stopped_run(label: str) -> NoReturn:
    st.info(with_help(TEXTS["work.stopped"].format(label=escape_markdown(label))))
    end_run()


def _result(job: Job) -> Any:
    """Return the result of a finished job, or raise its error, after which the work can be requested again."""
    if job.error is not None:
        queue().forget(job.key)
        raise job.error.with_traceback(None)  # other sessions may wait for it: without the frames of this one
    if job.unknown.mostly_unknown and (counts := current_counts()) is not None:
        counts.add(job.unknown.token_count, job.unknown.unknown_count, job.label)
    return job.result


def _draw_progress(job: Job, request_slot: str | None = None) -> Any:
    """Draw the progress of a job with a Stop button; return the bar, for `_update_progress`."""
    bar = st.empty()
    _update_progress(job, bar)
    # A run may wait several times, and a key must not be used twice, even if the first button is gone.
    number = st.session_state.get(_PROGRESS_COUNT, 0)
    st.session_state[_PROGRESS_COUNT] = number + 1
    key = f"{'stop_job' if request_slot is None else 'stop_here'}{number or ''}"
    st.button(TEXTS["work.stop"], key=key, on_click=_stop, args=(job.key, job.label, request_slot))
    return bar


def _update_progress(job: Job, bar: Any) -> None:
    bar.progress(job.progress or 0.0, text=escape_markdown(_progress_text(job)))


def _progress_text(job: Job) -> str:
    """Return the label of a job with its place in the queue, or with the estimated time that it still takes."""
    if position := queue().position(job):
        sentence = TEXTS["work.waiting_for_one" if position == 1 else "work.waiting"]
        return sentence.format(label=job.label, jobs=position)
    remaining = job.remaining_seconds
    if remaining is not None:
        return TEXTS["work.remaining"].format(label=job.label, duration=duration_text(remaining))
    is_late = job.expected > 0 and job.started is not None
    sentence = TEXTS["work.late" if is_late else "work.running"]
    return sentence.format(label=job.label, duration=duration_text(job.expected))


def _stop(key: Hashable, label: str, request_slot: str | None) -> None:
    queue().stop(key, session_id())
    if request_slot is None:
        st.session_state[_STOPPED_LABEL] = label
    else:
        withdraw_request(request_slot)
