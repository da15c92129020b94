"""Slow work: a queue in which short questions go first, and nobody's long ones hold up the others.

A rerun of a page never kills a job, and a job never freezes a page. A job that needs another one runs it itself.
Results are kept by key, up to a number of bytes, and shared between all visitors.
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
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bert_core.refused import Refused
from bert_core.unknown_tokens import UnknownTokens

KEPT_BYTES = 1 << 30
KEPT_JOBS = 64
LONG_SECONDS = 2.0  # seconds: what is expected to take longer gives way to all that is shorter
MOST_PATIENCE = 2.0  # seconds that long work gives way at a time: it goes on, if slowly, in the busiest class
MOST_ALONE = 60.0  # seconds that long work goes on when all who asked are gone: a connection may break and come back
NICENESS = 10
MOST_TOGETHER = 8  # jobs that are done at once
MOST_SILENT = 5.0  # seconds without a report after a stop; then others are served beside what will not end
MOST_LEFT = 2  # so many that do not end, at most

Visitor = Hashable


class Stopped(Exception):
    """The visitor stopped the job."""


@dataclass(frozen=True)
class Together:
    """A way to do several jobs of a kind at once, quicker than each by itself.

    kind: equal for those that can be. item: what this one gives to `do`, which returns a result for each item.
    """

    kind: Hashable
    item: Any
    do: Callable[[list[Any]], Sequence[Any]]


@dataclass(eq=False)
class Job:
    """One piece of work: what it is called, how far it is, and what came of it.

    expected: seconds it should take. kept: whether the queue keeps the result for who asks again. progress: 0 to 1, or
    None while unknown. seconds: how long it ran, the time in which it gave way not counted. error: what it raised,
    without frames. waited_for: by whom; True for those who asked by a button and may be elsewhere meanwhile, False for
    those whose page shows it.
    """

    key: Hashable
    label: str
    work: Callable[[Job], Any] = field(repr=False)
    expected: float = 0.0
    together: Together | None = field(default=None, repr=False)
    kept: bool = True
    progress: float | None = None
    result: Any = field(default=None, repr=False)
    error: Exception | None = None
    unknown: UnknownTokens = field(default_factory=UnknownTokens, repr=False)
    seconds: float = 0.0
    started: float | None = None
    waited_for: dict[Visitor, bool] = field(default_factory=dict, repr=False)
    _give_way: Callable[[Job], float] = field(default=lambda _: 0.0, repr=False)
    _outer: Job | None = field(default=None, repr=False)
    _gave_way: float = 0.0
    _last_seen: float = 0.0
    _done: threading.Event = field(default_factory=threading.Event, repr=False)
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def long(self) -> bool:
        """Whether the job is expected to take so long that it gives way to others."""
        return self.expected > LONG_SECONDS

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until the job is done, at most so many seconds; returns whether it is done."""
        return self._done.wait(seconds)

    def stop(self) -> None:
        """Ask the job to stop: `report` raises Stopped when the work calls it next."""
        self._stop.set()

    def report(self, done: float | None, what: str = "") -> None:
        """Called by the work: how far it is. Long work gives way here.

        Raises Stopped if the visitor asked for that.
        """
        del what  # the label says it
        self.progress = done
        if self._outer is not None:
            self._outer.report(self._outer.progress)
        if not self._stop.is_set():
            self._gave_way += self._give_way(self)
        if self._stop.is_set():
            raise Stopped(f"{self.label} was stopped")


@dataclass(frozen=True)
class Counts:
    """What a queue holds and did.

    waiting, running: by whether they are long. done: kind -> how many, and the seconds they ran.
    """

    waiting: Mapping[bool, int]
    running: Mapping[bool, int]
    done: Mapping[str, tuple[int, float]]
    kept_bytes: int


class JobQueue:
    """Two workers, the jobs that wait for them, and the results of those that are done.

    One worker takes short jobs as they come. The other takes long ones, the visitors in turn, at a lower priority and
    on all cores but one; at each of its reports it waits until no short job is left.
    is_here: whether a visitor is still there; the jobs of those who left are dropped.
    """

    def __init__(self, is_here: Callable[[Visitor], bool] = lambda _: True) -> None:
        self._is_here = is_here
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._waiting: list[Job] = []
        self._running: dict[bool, Job] = {}  # by whether it is long
        self._turns: dict[Visitor, int] = {}  # when each had a long job last, in jobs
        self._done: dict[str, tuple[int, float]] = {}  # kind -> how many, and the seconds they ran
        self._turn = itertools.count()
        self._left = 0  # stopped jobs that go on without a report, beside the workers
        self._changed = threading.Condition()
        self._closed = False
        self._workers: list[threading.Thread] = []
        for long in (False, True):
            self._begin(long)
        # A thread that is inside torch when Python goes away takes the process down with it: let it finish first.
        atexit.register(self._close)

    def submit(
        self,
        key: Hashable,
        label: str,
        work: Callable[[Job], Any],
        *,
        expected: float = 0.0,
        together: Together | None = None,
        kept: bool = True,
        visitor: Visitor = None,
        lasting: bool = False,
    ) -> Job:
        """The job with this key: the one that is known, or a new one.

        expected: seconds it should take. together: how it is done with others that wait. kept: whether its
        result is kept for who asks again. visitor: who asks. lasting: whether it is wanted also while the visitor is on
        another page.
        """
        with self._changed:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Job(key, label, work, expected, together, kept)
                if job.long:
                    job._give_way = self._give_way
                self._waiting.append(job)
                self._changed.notify_all()
            if not job.done:
                job.waited_for[visitor] = job.waited_for.get(visitor, False) or lasting
            self._jobs.move_to_end(key)
            return job

    def run_nested(
        self, key: Hashable, label: str, work: Callable[[Job], Any], outer: Job, *, kept: bool = True
    ) -> Job:
        """Run a job in the calling thread, which is a worker that runs `outer`, and keep its result like any other.

        In the queue it might wait for the worker that waits for it. A result that is known is returned, and a job with
        this key that waits in the queue gets the result too. Raises what the work raises.
        """
        with self._changed:
            known = self._jobs.get(key)
            if known is not None and known.done:
                self._jobs.move_to_end(key)
                return known
        job = Job(key, label, work, kept=kept, _outer=outer)
        with _running_in_thread(job):
            job.result = work(job)
        job.work = _over
        job._outer = None
        job._done.set()
        with self._changed:
            known = self._jobs.get(key)
            if known is None:
                self._jobs[key] = job
            elif known in self._waiting:
                self._waiting.remove(known)
                known.result, known.unknown, known.work, known.together = job.result, job.unknown, _over, None
                known._done.set()
                self._changed.notify_all()
        self._keep_within_bounds()
        return job

    def forget(self, key: Hashable) -> None:
        """Drop a job, so that it can be asked for again; one that runs is stopped."""
        with self._changed:
            self._drop(self._jobs.get(key))

    def stop(self, key: Hashable, visitor: Visitor) -> None:
        """Take a visitor off those who wait for a job, and drop and stop it if nobody else waits for it."""
        with self._changed:
            job = self._jobs.get(key)
            if job is not None:
                job.waited_for.pop(visitor, None)
                if not job.waited_for:
                    self._drop(job)

    def known(self, key: Hashable) -> Job | None:
        """The job with this key, if there is one."""
        with self._changed:
            return self._jobs.get(key)

    def leave(self, visitor: Visitor, staying: tuple[Hashable, ...] = ()) -> None:
        """Drop what waits for this visitor alone and is wanted no more; what runs goes on, it may be asked for again.

        staying: the keys of what the visitor's page waits for now.
        """
        with self._changed:
            for job in list(self._waiting):
                if job.key not in staying and job.waited_for.get(visitor) is False:
                    del job.waited_for[visitor]
                    if not job.waited_for:
                        self._drop(job)

    def place(self, job: Job) -> int:
        """How many jobs run before this one: 0 if it is running or done.

        Whoever waits looks after what runs: it is stopped when all who asked for it are long gone.
        """
        with self._changed:
            if job not in self._waiting:
                return 0
            before = self._waiting[: self._waiting.index(job)]
            running = self._running.get(job.long)
            if running is not None:
                self._look_after(running)
            return sum(other.long == job.long for other in before) + (running is not None)

    def counts(self) -> Counts:
        """What waits, runs, was done and is kept."""
        with self._changed:
            waiting = [job.long for job in self._waiting]
            kept = sum(_size(job.result) for job in self._jobs.values() if job.done)
            return Counts(
                {long: waiting.count(long) for long in (False, True)},
                {long: int(long in self._running) for long in (False, True)},
                dict(self._done), kept,
            )  # fmt: skip

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing waits or runs, at most so many seconds; whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._running, seconds)

    def drop_oldest(self, nbytes: int) -> int:
        """Drop results, those that were asked for longest ago first, until they held so many bytes; what they held."""
        dropped = 0
        with self._changed:
            for key, job in list(self._jobs.items()):
                if dropped < nbytes and job.done and (size := _size(job.result)):
                    del self._jobs[key]
                    dropped += size
        return dropped

    def _begin(self, long: bool) -> None:
        name = f"headlight-{'long' if long else 'short'}-jobs"
        worker = threading.Thread(target=self._serve, args=(long,), name=name, daemon=True)
        self._workers = [other for other in self._workers if other.is_alive()] + [worker]
        worker.start()

    def _leave_alone(self, job: Job) -> None:
        """Serve others beside a job that was stopped and still does not end."""
        with self._changed:
            if self._running.get(job.long) is not job or self._closed:
                return
            if self._left == MOST_LEFT:
                self._look_later(job)
                return
            del self._running[job.long]
            self._left += 1
            self._begin(job.long)

    def _look_later(self, job: Job) -> None:
        timer = threading.Timer(MOST_SILENT, self._leave_alone, (job,))
        timer.daemon = True
        timer.start()

    def _drop(self, job: Job | None) -> None:
        if job is not None:
            self._jobs.pop(job.key, None)
            job.stop()
            if self._running.get(job.long) is job:
                self._look_later(job)
            if job in self._waiting:
                self._waiting.remove(job)
                job.error = Stopped(f"{job.label} was stopped")
                job._done.set()
            self._changed.notify_all()

    def _close(self) -> None:
        """Run nothing more, and wait a moment for what runs now."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            for job in self._jobs.values():
                job.stop()
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(timeout=30)

    def _give_way(self, job: Job) -> float:
        """Wait while a short job waits or runs; the seconds that took. Stops a job when all who asked are long gone."""
        start = time.monotonic()
        with self._changed:
            self._look_after(job)
            self._changed.wait_for(
                lambda: self._closed or (False not in self._running and all(job.long for job in self._waiting)),
                MOST_PATIENCE,
            )
        return time.monotonic() - start

    def _look_after(self, job: Job) -> None:
        """Stop a job that runs when all who asked for it are gone for long."""
        now = time.monotonic()
        if any(map(self._is_here, job.waited_for)):
            job._last_seen = now
        elif now - job._last_seen > MOST_ALONE:
            self._drop(job)

    def _next(self, long: bool) -> Job | None:
        """The next job of this kind: of short ones the first, of long ones that of whoever had none for longest."""
        for job in [job for job in self._waiting if not any(map(self._is_here, job.waited_for))]:
            self._drop(job)
        ready = [job for job in self._waiting if job.long == long]
        if long:
            ready.sort(key=lambda job: min(self._turns.get(visitor, -1) for visitor in job.waited_for))
        return next(iter(ready), None)

    def _alike(self, job: Job) -> list[Job]:
        """Those that wait and can be done together with this one."""
        if job.together is None:
            return []
        kind = job.together.kind
        alike = (one for one in self._waiting if one.together is not None and one.together.kind == kind)
        return list(itertools.islice((one for one in alike if one is not job), MOST_TOGETHER - 1))

    def _serve(self, long: bool) -> None:
        # Each job is served by a call of its own: variables of this function would keep the last one in memory.
        goes_on = self._serve_next(long, first=True)
        while goes_on:
            goes_on = self._serve_next(long)

    def _serve_next(self, long: bool, *, first: bool = False) -> bool:
        """Wait for a job of this kind and run it with those alike; whether this worker goes on.

        first: whether it is the worker's first job.
        """
        with self._changed:
            while (job := self._next(long)) is None and not self._closed:
                self._changed.wait()
            if job is None or self._closed:
                return False
            group = [job, *self._alike(job)]
            self._waiting = [other for other in self._waiting if other not in group]
            self._running[long] = job
            turn = next(self._turn)
            for member in group:
                self._turns.update(dict.fromkeys(member.waited_for, turn))
                member.started = member._last_seen = time.monotonic()
        if first:
            _take_place(long)
        _do(group)
        with self._changed:
            another = self._running.get(long) is not job  # serves in the place of this one
            if another:
                self._left -= 1
            else:
                del self._running[long]
            for member in group:
                number, took = self._done.get(kind_of(member.key), (0, 0.0))
                self._done[kind_of(member.key)] = number + 1, took + member.seconds / len(group)
            self._changed.notify_all()
        for member in group:
            member.work, member.together = _over, None
            member._done.set()
        self._keep_within_bounds()
        return not another

    def _keep_within_bounds(self) -> None:
        """Keep the results that were asked for last, within the bounds."""
        with self._changed:
            kept_bytes = kept = 0
            for key, job in reversed(list(self._jobs.items())):
                if not job.done:
                    continue
                if not job.kept:
                    del self._jobs[key]
                    continue
                kept += 1
                kept_bytes += _size(job.result)
                # The newest result always stays, however large: a page is waiting for it.
                if kept > 1 and (kept > KEPT_JOBS or kept_bytes > KEPT_BYTES):
                    del self._jobs[key]


def _over(job: Job) -> NoReturn:
    """In the place of work that is done, which may hold what it read long after nobody needs it."""
    raise AssertionError(f"{job.label} is done already")


def kind_of(key: Hashable) -> str:
    """What kind of work a key is of: keys begin with it."""
    while isinstance(key, tuple) and key:
        key = key[0]
    return key if isinstance(key, str) else "other"


def _size(result: object) -> int:
    """Bytes that a result holds, as far as it says so."""
    return len(result) if isinstance(result, bytes) else getattr(result, "nbytes", 0)


def _do(group: list[Job]) -> None:
    """Do these jobs: all at once where they are several, or each by itself where that fails, to find whose fault it is.

    One that was stopped before it began is over; a long one gives way first.
    """
    start = time.monotonic()
    if len(group) > 1:
        together = [job.together for job in group if job.together is not None]
        try:
            with _running_in_thread(group[0]):
                results = dict(zip(group, together[0].do([one.item for one in together]), strict=True))
        except BaseException:  # what Rust raises is no Exception
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
        except BaseException as error:  # the worker goes on, whatever ends a job; what Rust raises is no Exception
            job.error = _without_frames(RuntimeError(f"{type(error).__name__}: {error}"), error)
        job.seconds = time.monotonic() - start - job._gave_way


def _without_frames(error: Exception, raised: BaseException) -> Exception:
    """An error that holds no frame of the work: they would keep its local variables, tensors among them, in memory.

    raised: what ended the work. Of a bug its traceback becomes a note of the error, as text, so that the log has it.
    """
    if not isinstance(raised, Refused | Stopped):
        with suppress(Exception):  # such as a lack of memory: the worker must go on
            error.add_note("In the job:\n" + "".join(traceback.format_exception(raised)).rstrip())
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


_of_thread = threading.local()  # job: the innermost job that the thread runs


def current_job() -> Job | None:
    """The innermost job that the calling thread runs; None in a thread that is no worker, or runs none."""
    job: Job | None = getattr(_of_thread, "job", None)
    return job


@contextmanager
def _running_in_thread(job: Job) -> Iterator[None]:
    before, _of_thread.job = current_job(), job
    try:
        yield
    finally:
        _of_thread.job = before


_threads = threading.Lock()
_all_threads = 0


def _take_place(long: bool) -> None:
    """Set what this thread may take: short work all cores; long work leaves one, and the right of way."""
    import torch

    global _all_threads
    with _threads:
        # The first to ask: what one thread sets, threads that begin later would take for the default.
        _all_threads = _all_threads or torch.get_num_threads()
        torch.set_num_threads(max(_all_threads - 1, 1) if long else _all_threads)
    if long and sys.platform == "linux":  # elsewhere a priority is that of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
