"""A queue of jobs: short ones run first, long ones take turns by session, and results are cached for all sessions.

A rerun of a page never ends a job, and a job never blocks the page of another session. A job that needs the result of
another one computes it itself.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bert_core.refused import Refused
from bert_core.unknown_tokens import UnknownTokens

MAX_RESULT_BYTES = 1 << 30
MAX_RESULTS = 64
LONG_SECONDS = 2.0  # a job that is expected to take longer gives way to short ones
MAX_YIELD_SECONDS = 2.0  # for which a long job gives way at each report, so that it progresses on the busiest server
MAX_ABSENT_SECONDS = 60.0  # after which a job stops whose sessions are all disconnected; they may reconnect before
NICENESS = 10
MAX_BATCH_SIZE = 8
MAX_SILENT_SECONDS = 5.0  # for which a stopped job may go without a report before another worker replaces its own
MAX_ABANDONED_JOBS = 2  # stopped jobs without reports that may run beside the workers
MEASURED_SHARE = 0.02  # of a job, after which its remaining time is estimated from its progress
RECENT_SHARE = 0.5  # of the running time, over which the speed of a job is measured
MIN_REPORT_INTERVAL = 0.25  # seconds between two reports that are kept to measure the speed

SessionId = Hashable


class JobStopped(Exception):
    """Raised in a job that was stopped."""


@dataclass(frozen=True)
class Batch:
    """How to compute several jobs at once, faster than one by one.

    kind: equal for jobs that can be computed together. item: the input of this job. compute: takes the items of several
    jobs and returns one result for each.
    """

    kind: Hashable
    item: Any
    compute: Callable[[list[Any]], Sequence[Any]]


@dataclass(eq=False)
class Job:
    """A computation in the queue, its progress and its result.

    expected: estimated seconds. is_kept: whether the queue caches the result. progress: from 0 to 1, None if unknown.
    seconds: running time, without the time in which it gave way. error: the exception that it raised, without frames.
    sessions: those that wait for it; True if the session asked by a button, so that the job also runs while it shows
    another page, False if its page shows the result.
    """

    key: Hashable
    label: str
    work: Callable[[Job], Any] = field(repr=False)
    expected: float = 0.0
    batch: Batch | None = field(default=None, repr=False)
    is_kept: bool = True
    progress: float | None = None
    result: Any = field(default=None, repr=False)
    error: Exception | None = None
    unknown: UnknownTokens = field(default_factory=UnknownTokens, repr=False)
    seconds: float = 0.0
    started: float | None = None
    sessions: dict[SessionId, bool] = field(default_factory=dict, repr=False)
    _yield_to_short: Callable[[Job], float] = field(default=lambda _: 0.0, repr=False)
    _outer_job: Job | None = field(default=None, repr=False)
    _yielded_seconds: float = 0.0
    _last_attended: float = 0.0
    _reports: list[tuple[float, float]] = field(default_factory=list, repr=False)  # time and share
    _is_finished: threading.Event = field(default_factory=threading.Event, repr=False)
    _is_stopped: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def is_long(self) -> bool:
        """Whether the job is expected to take so long that it gives way to short ones."""
        return self.expected > LONG_SECONDS

    @property
    def is_done(self) -> bool:
        """Whether the job has a result or an error."""
        return self._is_finished.is_set()

    @property
    def remaining_seconds(self) -> float | None:
        """Estimated seconds until the job is done, from `expected`, later from its recent speed; None if unknown."""
        if self.started is None:
            return self.expected or None
        time_now = time.monotonic()
        elapsed, share = time_now - self.started, self.progress or 0.0
        if share < MEASURED_SHARE:
            return self.expected - elapsed if elapsed < self.expected else None
        recent_start = time_now - RECENT_SHARE * elapsed
        earlier = [report for report in self._reports if report[0] <= recent_start]
        time_then, share_then = earlier[-1] if earlier else (self.started, 0.0)
        if share_then >= share:  # nothing was reported recently
            time_then, share_then = self.started, 0.0
        return (1 - share) * (time_now - time_then) / (share - share_then)

    def wait(self, seconds: float) -> bool:
        """Wait until the job is done, for at most `seconds`; return whether it is done."""
        return self._is_finished.wait(seconds)

    def stop(self) -> None:
        """Ask the job to stop: its next call of `report` raises JobStopped."""
        self._is_stopped.set()

    def report(self, share: float | None, message: str = "") -> None:
        """Set the progress of the job, from 0 to 1; the work calls this regularly. A long job gives way here.

        Raises JobStopped if the job was stopped.
        """
        del message  # the label is shown instead
        self.progress = share
        time_now = time.monotonic()
        if share is not None and (not self._reports or time_now - self._reports[-1][0] >= MIN_REPORT_INTERVAL):
            self._reports.append((time_now, share))
        if self._outer_job is not None:
            self._outer_job.report(self._outer_job.progress)
        if not self._is_stopped.is_set():
            self._yielded_seconds += self._yield_to_short(self)
        if self._is_stopped.is_set():
            raise JobStopped(f"{self.label} was stopped")


class JobQueue:
    """Two workers, the jobs that wait for them, and the results of those that are done.

    One worker runs the short jobs in order of submission. The other runs the long ones, one session after another, at a
    lower priority and on all cores but one; at each report of a long job it waits until no short job is left.
    is_active: whether a session is connected; jobs that only disconnected sessions wait for are dropped.
    """

    def __init__(self, is_active: Callable[[SessionId], bool] = lambda _: True) -> None:
        self._is_active = is_active
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._waiting: list[Job] = []
        self._running: dict[bool, Job] = {}  # by whether it is long
        self._turns: dict[SessionId, int] = {}  # number of the last long job of each
        self._turn = itertools.count()
        self._abandoned_count = 0  # stopped jobs that run beside the workers
        self._condition = threading.Condition()
        self._closed = False
        self._workers: list[threading.Thread] = []
        for long in (False, True):
            self._start_worker(long)
        # The process crashes if Python exits while a thread is inside torch.
        atexit.register(self._close)

    def submit(
        self,
        key: Hashable,
        label: str,
        work: Callable[[Job], Any],
        *,
        expected: float = 0.0,
        batch: Batch | None = None,
        is_kept: bool = True,
        session: SessionId = None,
        is_lasting: bool = False,
    ) -> Job:
        """Return the job with this key, submitting it if there is none.

        expected: estimated seconds. batch: how to compute it together with other jobs. is_kept: whether the result is
        cached. session: the session that waits for it. is_lasting: whether it also runs while the session shows another
        page.
        """
        with self._condition:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Job(key, label, work, expected, batch, is_kept)
                if job.is_long:
                    job._yield_to_short = self._yield_to_short
                self._waiting.append(job)
                self._condition.notify_all()
            if not job.is_done:
                job.sessions[session] = job.sessions.get(session, False) or is_lasting
            self._jobs.move_to_end(key)
            return job

    def run_nested(
        self, key: Hashable, label: str, work: Callable[[Job], Any], outer: Job, *, is_kept: bool = True
    ) -> Job:
        """Run a job in the calling thread, which is the worker that runs `outer`, and cache its result.

        In the queue it could wait for the worker that waits for it. A cached result is returned at once; a waiting job
        with this key receives the result too. Raises what the work raises.
        """
        with self._condition:
            queued = self._jobs.get(key)
            if queued is not None and queued.is_done:
                self._jobs.move_to_end(key)
                return queued
        job = Job(key, label, work, is_kept=is_kept, _outer_job=outer)
        with _running_in_thread(job):
            job.result = work(job)
        job.work = _raise_finished
        job._outer_job = None
        job._is_finished.set()
        with self._condition:
            queued = self._jobs.get(key)
            if queued is None:
                self._jobs[key] = job
            elif queued in self._waiting:
                self._waiting.remove(queued)
                queued.result, queued.unknown = job.result, job.unknown
                queued.work, queued.batch = _raise_finished, None
                queued._is_finished.set()
                self._condition.notify_all()
        self._keep_within_bounds()
        return job

    def forget(self, key: Hashable) -> None:
        """Drop a job, so that it can be submitted again; one that runs is stopped."""
        with self._condition:
            self._drop(self._jobs.get(key))

    def stop(self, key: Hashable, session: SessionId) -> None:
        """Remove a session from those that wait for a job; drop and stop the job if no session is left."""
        with self._condition:
            job = self._jobs.get(key)
            if job is not None:
                job.sessions.pop(session, None)
                if not job.sessions:
                    self._drop(job)

    def find(self, key: Hashable) -> Job | None:
        """Return the job with this key; None if there is none."""
        with self._condition:
            return self._jobs.get(key)

    def withdraw(self, session: SessionId, kept_keys: tuple[Hashable, ...] = ()) -> None:
        """Drop waiting jobs that only this session's page needed, except those with `kept_keys`.

        Jobs that run continue: their results may be asked for again.
        """
        with self._condition:
            for job in list(self._waiting):
                if job.key not in kept_keys and job.sessions.get(session) is False:
                    del job.sessions[session]
                    if not job.sessions:
                        self._drop(job)

    def position(self, job: Job) -> int:
        """Return how many jobs run before this one: 0 if it is running or done.

        Also stops the running job if its sessions have been disconnected for too long.
        """
        with self._condition:
            if job not in self._waiting:
                return 0
            earlier_jobs = self._waiting[: self._waiting.index(job)]
            running = self._running.get(job.is_long)
            if running is not None:
                self._check_sessions(running)
            return sum(earlier.is_long == job.is_long for earlier in earlier_jobs) + (running is not None)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no job waits or runs, for at most `seconds`; return whether that is so."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._waiting and not self._running, seconds)

    def drop_oldest(self, nbytes: int) -> int:
        """Drop results, the least recently used first, until they held `nbytes`; return how many bytes they held."""
        dropped = 0
        with self._condition:
            for key, job in list(self._jobs.items()):
                if dropped < nbytes and job.is_done and (size := _result_bytes(job.result)):
                    del self._jobs[key]
                    dropped += size
        return dropped

    def _start_worker(self, long: bool) -> None:
        name = f"headlight-{'long' if long else 'short'}-jobs"
        worker = threading.Thread(target=self._serve, args=(long,), name=name, daemon=True)
        self._workers = [thread for thread in self._workers if thread.is_alive()] + [worker]
        worker.start()

    def _abandon(self, job: Job) -> None:
        """Start another worker in place of that of a stopped job that does not end."""
        with self._condition:
            if self._running.get(job.is_long) is not job or self._closed:
                return
            if self._abandoned_count == MAX_ABANDONED_JOBS:
                self._abandon_later(job)
                return
            del self._running[job.is_long]
            self._abandoned_count += 1
            self._start_worker(job.is_long)

    def _abandon_later(self, job: Job) -> None:
        timer = threading.Timer(MAX_SILENT_SECONDS, self._abandon, (job,))
        timer.daemon = True
        timer.start()

    def _drop(self, job: Job | None) -> None:
        if job is not None:
            self._jobs.pop(job.key, None)
            job.stop()
            if self._running.get(job.is_long) is job:
                self._abandon_later(job)
            if job in self._waiting:
                self._waiting.remove(job)
                job.error = JobStopped(f"{job.label} was stopped")
                job._is_finished.set()
            self._condition.notify_all()

    def _close(self) -> None:
        """Stop all jobs and wait up to 30 seconds for each worker."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
            for job in self._jobs.values():
                job.stop()
            self._condition.notify_all()
        for worker in self._workers:
            worker.join(timeout=30)

    def _yield_to_short(self, job: Job) -> float:
        """Wait while a short job waits or runs, and return the seconds that took."""
        start = time.monotonic()
        with self._condition:
            self._check_sessions(job)
            self._condition.wait_for(
                lambda: self._closed or (False not in self._running and all(job.is_long for job in self._waiting)),
                MAX_YIELD_SECONDS,
            )
        return time.monotonic() - start

    def _check_sessions(self, job: Job) -> None:
        """Stop a running job if all its sessions have been disconnected for MAX_ABSENT_SECONDS."""
        time_now = time.monotonic()
        if any(map(self._is_active, job.sessions)):
            job._last_attended = time_now
        elif time_now - job._last_attended > MAX_ABSENT_SECONDS:
            self._drop(job)

    def _next_job(self, long: bool) -> Job | None:
        """Return the first short job, or the long one of the session that had none for the longest time."""
        for job in [job for job in self._waiting if not any(map(self._is_active, job.sessions))]:
            self._drop(job)
        ready = [job for job in self._waiting if job.is_long == long]
        if long:
            ready.sort(key=lambda job: min(self._turns.get(session, -1) for session in job.sessions))
        return next(iter(ready), None)

    def _batch_of(self, job: Job) -> list[Job]:
        """Return the waiting jobs that can be computed together with this one."""
        if job.batch is None:
            return []
        kind = job.batch.kind
        members = (waiting for waiting in self._waiting if waiting.batch is not None and waiting.batch.kind == kind)
        return list(itertools.islice((member for member in members if member is not job), MAX_BATCH_SIZE - 1))

    def _serve(self, long: bool) -> None:
        # A call for each job: local variables of this function would keep the last job in memory.
        is_serving = self._serve_next(long, first=True)
        while is_serving:
            is_serving = self._serve_next(long)

    def _serve_next(self, long: bool, *, first: bool = False) -> bool:
        """Wait for a job and run it with its batch; return whether this worker continues.

        first: whether it is the worker's first job.
        """
        with self._condition:
            while (job := self._next_job(long)) is None and not self._closed:
                self._condition.wait()
            if job is None or self._closed:
                return False
            group = [job, *self._batch_of(job)]
            self._waiting = [waiting for waiting in self._waiting if waiting not in group]
            self._running[long] = job
            turn = next(self._turn)
            for member in group:
                self._turns.update(dict.fromkeys(member.sessions, turn))
                member.started = member._last_attended = time.monotonic()
        if first:
            _configure_thread(long)
        _run_jobs(group)
        with self._condition:
            is_replaced = self._running.get(long) is not job
            if is_replaced:
                self._abandoned_count -= 1
            else:
                del self._running[long]
            self._condition.notify_all()
        for member in group:
            member.work, member.batch = _raise_finished, None
            member._is_finished.set()
        self._keep_within_bounds()
        return not is_replaced

    def _keep_within_bounds(self) -> None:
        """Drop the least recently used results beyond MAX_RESULTS and MAX_RESULT_BYTES."""
        with self._condition:
            total_bytes = count = 0
            for key, job in reversed(list(self._jobs.items())):
                if not job.is_done:
                    continue
                if not job.is_kept:
                    del self._jobs[key]
                    continue
                count += 1
                total_bytes += _result_bytes(job.result)
                # The newest result always stays, however large: a page is waiting for it.
                if count > 1 and (count > MAX_RESULTS or total_bytes > MAX_RESULT_BYTES):
                    del self._jobs[key]


def _raise_finished(job: Job) -> NoReturn:
    """Replace the work of a finished job, so that its inputs are freed."""
    raise AssertionError(f"{job.label} is done already")


def _result_bytes(result: object) -> int:
    """Return the bytes of a result that are known: its length or its `nbytes`."""
    return len(result) if isinstance(result, bytes) else getattr(result, "nbytes", 0)


def _run_jobs(group: list[Job]) -> None:
    """Run jobs as one batch, or each by itself if there is only one or the batch fails."""
    start = time.monotonic()
    if len(group) > 1:
        batches = [job.batch for job in group if job.batch is not None]
        try:
            with _running_in_thread(group[0]):
                results = dict(zip(group, batches[0].compute([batch.item for batch in batches]), strict=True))
        except BaseException:  # a panic in Rust is no Exception
            pass
        else:
            for job, result in results.items():
                job.result, job.seconds = result, time.monotonic() - start
            return
    for job in group:
        start = time.monotonic()
        try:
            with _running_in_thread(job):
                job.report(job.progress)
                job.result = job.work(job)
        except Exception as error:
            job.error = _without_frames(error, error)
        except BaseException as error:  # the worker must continue; a panic in Rust is no Exception
            job.error = _without_frames(RuntimeError(f"{type(error).__name__}: {error}"), error)
        job.seconds = time.monotonic() - start - job._yielded_seconds


def _without_frames(error: Exception, raised: BaseException) -> Exception:
    """Return the error without frames, which would keep local variables of the work, such as tensors, in memory.

    raised: the exception that ended the work. If it is a bug, its traceback is added as a note, for the log.
    """
    if not isinstance(raised, Refused | JobStopped):
        with suppress(Exception):  # such as a lack of memory: the worker must go on
            error.add_note("In the job:\n" + "".join(traceback.format_exception(raised)).rstrip())
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


_thread_state = threading.local()  # job: the innermost job that the thread runs


def current_job() -> Job | None:
    """Return the innermost job that the calling thread runs; None if it runs none."""
    job: Job | None = getattr(_thread_state, "job", None)
    return job


@contextmanager
def _running_in_thread(job: Job) -> Iterator[None]:
    outer_job, _thread_state.job = current_job(), job
    try:
        yield
    finally:
        _thread_state.job = outer_job


_threads = threading.Lock()
_all_threads = 0


def _configure_thread(long: bool) -> None:
    """Set the cores and priority of this thread: long jobs leave one core and run at a lower priority."""
    import torch

    global _all_threads
    with _threads:
        # The first to ask: what one thread sets, threads that begin later would take for the default.
        _all_threads = _all_threads or torch.get_num_threads()
        torch.set_num_threads(max(_all_threads - 1, 1) if long else _all_threads)
    if long and sys.platform == "linux":  # elsewhere a priority is that of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
