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
from bert_core.progress import Progress
from bert_core.refused import Refused
from bert_core.run.timing import PassTiming, measure_timing
from bert_core.unknown_tokens import count_unknown_tokens, current_counts
from viz_app.access import is_local_server
from viz_app.shell import memory
from viz_app.shell.address import end_run, publish
from viz_app.shell.identity import identity_of
from viz_app.shell.jobs import Job, JobQueue, Stopped, Together, Visitor, current_job
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_cache import begin_use, end_use, in_use, using
from viz_app.shell.model_names import shown_name
from viz_app.streamlit_compat import is_in_script_run, is_session_active, session_id

WAIT_BEFORE_PROGRESS = 2.0  # seconds a page waits before it shows the queue
POLL_INTERVAL = 0.5  # seconds between two looks at the queue
UNCONFIRMED_SECONDS = 2.0  # seconds: what takes longer is offered, not done unasked
MAX_JOB_SECONDS = 600.0  # seconds that one question may take where many share a server

_first = threading.Lock()
_STOPPED = "_stopped"
_TOOK = "_took"
_ASKED_NOW = "_asked_now"  # keys of the jobs that this run asked for: a session outlives its page, results need not
_LOOKED_AT = "_looked_at"  # of these, those that the page is drawn without, with the place where they are waited for
_NEXT = "_asked_next"  # what this run foresees that the visitor will ask for
_ROOMS = "_rooms"  # how many places in the queue this run has shown

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
    batch: Together | None = None
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
                label.format(**{name: _shown(value) for name, value in values.items()}),
                compute,
                seconds(*args, **kwargs) if callable(seconds) else seconds,
                memory=memory(*args, **kwargs) if callable(memory) else memory,
            )

        return make

    return decorate


def _shown(value: object) -> object:
    """What a label shows of an argument."""
    loaded = getattr(value, "loaded", value)
    if isinstance(loaded, LoadedModel):
        return shown_name(loaded.name)
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else value


class ResultState(Enum):
    """What there is of a piece of work: its result, an earlier one, or nothing yet."""

    READY = "ready"
    STALE = "stale"
    WAITING = "waiting"


@dataclass(frozen=True)
class PolledResult(Generic[Value]):
    """What there is of a piece of work.

    state: READY with its result; STALE with what was shown before it; WAITING with nothing.
    """

    state: ResultState
    value: Value | None


def queue() -> JobQueue:
    """The one queue of this server."""
    with _first:  # a class that comes in at once asks for it at once
        return _queue()


@cache
def _queue() -> JobQueue:
    return JobQueue(is_session_active)


@st.cache_resource(max_entries=64, show_spinner=False)
def cached_by_key(key: tuple[Hashable, ...], _make: Callable[[], Any]) -> Any:
    """What `_make` returns, made once for all visitors who ask by this key; for small results of slow functions."""
    return _make()


@st.cache_resource(max_entries=16, show_spinner=False)
def cached_of_model_by_key(key: tuple[Hashable, ...], _make: Callable[[], Any]) -> Any:
    """The same for what is true of a model whatever the text: apart, so that many texts do not push it out."""
    return _make()


def cached(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function with a small result, which is kept for all visitors by the identities of the arguments."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        result: Result = cached_by_key(_key_of_call(function, args, kwargs), lambda: function(*args, **kwargs))
        return result

    return call


def cached_per_model(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function as `cached` does, in a cache of its own, which results for many texts do not empty."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        result: Result = cached_of_model_by_key(_key_of_call(function, args, kwargs), lambda: function(*args, **kwargs))
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
    results = [poll(work, asked=slot).value for work in works]
    if any(result is None for result in results):
        return None
    return results[0] if len(results) == 1 else results


def wait_for(work: Work[Result], *, timed: bool = False) -> Result:
    """The result; until it is there, the page stands still and shows the place in the queue.

    Where there is no page any more, as in the function of a file that is made after the click on it, it only waits.
    Inside a job it is done at once, in the same thread. timed: whether the page says how long this took
    (`seconds_taken`). Raises what the work raises.
    """
    if (outer := current_job()) is not None:
        nested: Result = _result(queue().run_nested(work.key, work.label, _as_job(work), outer, kept=work.is_kept))
        return nested
    on_a_page = is_in_script_run()
    job = _finished(work) if on_a_page else _waited_for(work)
    result: Result = _result(job)
    if timed and on_a_page:
        st.session_state[_TOOK] = job.seconds
    return result


def seconds_taken() -> float | None:
    """What the answer on the page took; None where nothing was timed."""
    taken: float | None = st.session_state.get(_TOOK)
    return taken


def poll(work: Work[Result], *, slot: str = "", asked: str = "") -> PolledResult[Result]:
    """The result if it is there; else the last one of this slot, while the place in the queue is shown here.

    The page goes on, and is drawn again when the result is there. slot: the kind of question of which the visitor's
    last answer is kept; empty for none. asked: the slot of the button that asked for it; a stop takes that back.
    Raises what the work raises.
    """
    job = _submitted(work, lasting=True)
    if job.wait(WAIT_BEFORE_PROGRESS):
        if isinstance(job.error, Stopped):
            return earlier_result(slot)
        result = _result(job)
        if slot:
            remember_works(slot, work)
        return PolledResult(ResultState.READY, result)
    st.session_state.setdefault(_LOOKED_AT, []).append((job, _waiting_room(job, asked)))
    return earlier_result(slot)


def remember_works(slot: str, *works: Work[Any]) -> None:
    """Note of which works the visitor's last answer of a slot is made; the results stay with the queue."""
    st.session_state[f"_last_{slot}"] = tuple(work.key for work in works)


def earlier_results(slot: str) -> Sequence[Any]:
    """The results that the last answer of a slot is made of; none if there was none, or the queue dropped one."""
    results = [_known(key) for key in st.session_state.get(f"_last_{slot}", ())]
    return () if any(result is None for result in results) else results


def earlier_result(slot: str) -> PolledResult[Any]:
    """The last answer of a slot, where it is one result, STALE; WAITING if there is none."""
    results = earlier_results(slot)
    return PolledResult(ResultState.STALE, results[0]) if results else PolledResult(ResultState.WAITING, None)


def finished_result(work: Work[Result]) -> Result | None:
    """The result of the work, if it was done before; None if not, and nothing is started."""
    result: Result | None = _known(work.key)
    return result


def _known(key: Hashable) -> Any:
    """What the queue has of a key; None where it has nothing."""
    job = queue().known(key)
    return job.result if job is not None and job.done else None


def progress_of(work: Work[Any]) -> float | None:
    """Begin the work, or look after it, without waiting: the share that is done; None when all of it is.

    For a part of a page that comes back by itself. Raises what the work raises.
    """
    job = _submitted(work, lasting=True)
    if not job.done:
        return job.progress or 0.0
    _result(job)
    return None


def prefetch(work: Work[Any]) -> None:
    """Begin the work once the page stands, since the visitor will ask for it next; what goes wrong is said then."""
    st.session_state.setdefault(_NEXT, []).append(work)


def stop(work: Work[Any]) -> None:
    """Take the visitor off those who wait for the work; it is stopped if nobody else waits for it."""
    queue().stop(work.key, session_id())


def is_confirmed(slot: str, key: Hashable, label: str, seconds: float | None, *, quick: float | None = None) -> bool:
    """Whether to go on: with what is quick, or was asked for by the button that is drawn here until then.

    slot: the kind of question; asking for another of its kind forgets this one. seconds: what it takes, about; None
    where nobody knows. quick: seconds that nobody is asked for, if not the usual ones.
    """
    if seconds is not None and seconds <= (UNCONFIRMED_SECONDS if quick is None else quick):
        return True
    cost = "" if seconds is None else f", about {duration_text(seconds)}"
    refused = time_limit_message(seconds)
    if not is_requested(slot, key):
        if st.button(label + cost, icon=":material/play_arrow:", type="primary", disabled=refused is not None):
            request(slot, key)
            st.rerun()
        if refused is not None:
            st.caption(f"{refused}.")
    return refused is None and is_requested(slot, key)


def time_limit_message(seconds: float | None) -> str | None:
    """Why this server does not do what takes so long, about; None where it does, as always on a server of one's own."""
    if seconds is None or seconds <= MAX_JOB_SECONDS or is_local_server():
        return None
    return (
        f"This would take about {duration_text(seconds)}, and this server is for many: one question may take "
        f"{duration_text(MAX_JOB_SECONDS)}. Ask for less, with a shorter text or fewer examples, or run Headlight on a "
        "machine of your own"
    )


def request(slot: str, key: Hashable) -> None:
    """Ask for something slow, until another of its kind is asked for or it is stopped; a click on a button."""
    st.session_state[f"_asked_{slot}"] = key


def is_requested(slot: str, key: Hashable) -> bool:
    """Whether `key` is what the visitor asked for last in this slot, and did not stop."""
    return bool(st.session_state.get(f"_asked_{slot}") == key)


def withdraw_request(slot: str) -> None:
    """Forget what was asked for in this slot, since it was stopped or is over."""
    st.session_state.pop(f"_asked_{slot}", None)


# ---------------------------------------------------------------------------- what it costs


def estimate_seconds(loaded: LoadedModel, tokens: int, passes: float = 1, *, places: float = 0) -> float:
    """What so many forward passes over a text of so many tokens take here, about; a pass back counts as two.

    places: at how many the scores of all words are computed and sorted.
    """
    pace: PassTiming = cached_of_model_by_key(("pace", loaded.weights_key), lambda: measure_timing(loaded))
    return pace.estimate_seconds(tokens, passes, places)


def duration_text(seconds: float) -> str:
    """A time as people say it: "3 s", "4 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


# ---------------------------------------------------------------------------- one run of a page


def begin_run() -> None:
    """Forget what the last run of the page asked for: called before a page is drawn."""
    state = st.session_state
    state[_ASKED_NOW], state[_LOOKED_AT], state[_NEXT], state[_ROOMS] = set(), [], [], 0
    begin_use()


def end_of_run() -> None:
    """Drop what the page no longer asks for, wait for what it was drawn without, and draw it again.

    Called when a page is drawn; returns where nothing is waited for.
    """
    for work in st.session_state.pop(_NEXT, []):
        with suppress(Refused):
            _submitted(work, lasting=False)
    _leave_the_rest()
    waiting: list[tuple[Job, Any]] = st.session_state.pop(_LOOKED_AT, [])
    if not waiting:
        end_use()
        memory.MODELS.shrink()
        return
    while not any(job.done for job, _ in waiting):
        for job, bar in waiting:
            _say_place(job, bar)
        waiting[0][0].wait(POLL_INTERVAL)
    st.rerun()


def _leave_the_rest() -> None:
    queue().leave(session_id(), tuple(st.session_state.get(_ASKED_NOW, ())))


def _submitted(work: Work[Any], *, lasting: bool) -> Job:
    job = _asked(work, session_id(), lasting=lasting)
    st.session_state.setdefault(_ASKED_NOW, set()).add(job.key)
    return job


def _asked(work: Work[Any], visitor: Visitor, *, lasting: bool) -> Job:
    return queue().submit(
        work.key, work.label, _as_job(work),
        expected=work.seconds, together=work.batch, kept=work.is_kept, visitor=visitor, lasting=lasting,
    )  # fmt: skip


def _as_job(work: Work[Any]) -> Callable[[Job], Any]:
    """The function of a job that does the work. Raises Refused where the work would take too long on this server."""
    if (refused := time_limit_message(work.seconds)) is not None and queue().known(work.key) is None:
        raise Refused(refused)

    models = in_use()  # of the page or the job that asks: they stay in memory until this is done
    device = memory.model_device()

    def do(job: Job) -> Any:
        room = memory.room_for(work.memory, queue().drop_oldest, device=device)
        with using(models), room, count_unknown_tokens() as job.unknown:
            return work.compute(job.report)

    return do


def _waited_for(work: Work[Any]) -> Job:
    job = _asked(work, None, lasting=True)
    while not job.wait(POLL_INTERVAL):
        pass
    return job


def _finished(work: Work[Any]) -> Job:
    if (label := st.session_state.pop(_STOPPED, None)) is not None:
        _say_stopped(label)
    job = _submitted(work, lasting=False)
    if not job.wait(WAIT_BEFORE_PROGRESS):
        _leave_the_rest()
        place = st.empty()
        with place.container():
            bar = _waiting_room(job)
        publish()
        while not job.wait(POLL_INTERVAL):
            _say_place(job, bar)  # where the visitor went on, this ends the run
        place.empty()
    if isinstance(job.error, Stopped):
        queue().forget(job.key)
        _say_stopped(job.label)
    return job


def _say_stopped(label: str) -> NoReturn:
    st.info(with_help(f"{escape_markdown(label)} was stopped. Change anything, or reload the page, to start it again."))
    end_run()


def _result(job: Job) -> Any:
    """What a job that is done gave; what it raised is raised, and it can be asked for again."""
    if job.error is not None:
        queue().forget(job.key)
        raise job.error.with_traceback(None)  # one job may fail for several pages: no frames of another page
    if job.unknown.mostly_unknown and (read := current_counts()) is not None:
        read.add(job.unknown.token_count, job.unknown.unknown_count, job.label)
    return job.result


def _waiting_room(job: Job, asked: str | None = None) -> Any:
    bar = st.empty()
    _say_place(job, bar)
    # A run may wait several times, and Streamlit takes no key twice, also where the first button is gone again.
    number = st.session_state.get(_ROOMS, 0)
    st.session_state[_ROOMS] = number + 1
    key = f"{'stop_job' if asked is None else 'stop_here'}{number or ''}"
    st.button("Stop", key=key, on_click=_stop, args=(job.key, job.label, asked))
    return bar


def _say_place(job: Job, bar: Any) -> None:
    place = queue().place(job)
    where = "running" if place == 0 else f"waiting for {place} other {'job' if place == 1 else 'jobs'}"
    bar.progress(job.progress or 0.0, text=escape_markdown(f"{job.label}: {where}"))


def _stop(key: Hashable, label: str, asked: str | None) -> None:
    queue().stop(key, session_id())
    if asked is None:
        st.session_state[_STOPPED] = label
    else:
        withdraw_request(asked)
