"""Slow work, one piece at a time: a queue with one worker.

A rerun of a page never kills a job, and a job never freezes a page. Results are kept by key, up to a number of
bytes, and shared between all visitors.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

KEPT_BYTES = 1 << 30
KEPT_JOBS = 64


class Stopped(Exception):
    """The visitor stopped the job."""


@dataclass(eq=False)
class Job:
    """One piece of work: what it is called, how far it is, and what came of it.

    progress: 0 to 1, or None while unknown. seconds: how long it ran. error: what it raised.
    """

    key: Hashable
    label: str
    work: Callable[[Job], Any] = field(repr=False)
    progress: float | None = None
    result: Any = field(default=None, repr=False)
    error: Exception | None = None
    seconds: float = 0.0
    started: float | None = None
    _done: threading.Event = field(default_factory=threading.Event, repr=False)
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most this long; whether it came."""
        return self._done.wait(seconds)

    def stop(self) -> None:
        """Ask the work to end; it does at its next `report`."""
        self._stop.set()

    def report(self, progress: float | None, what: str = "") -> None:
        """Called by the work: how far it is. Raises Stopped if the visitor asked for that."""
        self.progress = progress
        if self._stop.is_set():
            raise Stopped(f"{self.label} was stopped")


class JobQueue:
    """One worker thread, the jobs that wait for it, and the results of those that are done."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._serve, name="headlight-jobs", daemon=True)
        self._worker.start()
        # A thread that is inside torch when Python goes away takes the process down with it: let it finish first.
        atexit.register(self._close)

    def submit(self, key: Hashable, label: str, work: Callable[[Job], Any]) -> Job:
        """The job with this key: the one that is known, or a new one at the end of the queue."""
        with self._changed:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Job(key, label, work)
                self._waiting.append(job)
                self._changed.notify()
            self._jobs.move_to_end(key)
            return job

    def forget(self, key: Hashable) -> None:
        """Drop a job, so that it can be asked for again; one that runs is stopped."""
        with self._changed:
            job = self._jobs.pop(key, None)
            if job is not None:
                job.stop()
                if job in self._waiting:
                    self._waiting.remove(job)

    def place(self, job: Job) -> int:
        """How many jobs run before this one: 0 if it is running or done."""
        with self._changed:
            if job not in self._waiting:
                return 0
            running = any(other.started is not None and not other.done for other in self._jobs.values())
            return self._waiting.index(job) + running

    def _close(self) -> None:
        """Run nothing more, and wait a moment for what runs now."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            for job in self._jobs.values():
                job.stop()
            self._changed.notify_all()
        self._worker.join(timeout=30)

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.started = time.monotonic()
            try:
                job.result = job.work(job)
            except Exception as error:
                job.error = error
            job.seconds = time.monotonic() - job.started
            job._done.set()
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Keep the results that were asked for last, within the bounds."""
        with self._changed:
            kept_bytes = kept = 0
            for key, job in reversed(list(self._jobs.items())):
                if not job.done:
                    continue
                kept += 1
                kept_bytes += len(job.result) if isinstance(job.result, bytes) else getattr(job.result, "nbytes", 0)
                # The newest result always stays, however large: a page is waiting for it.
                if kept > 1 and (kept > KEPT_JOBS or kept_bytes > KEPT_BYTES):
                    del self._jobs[key]
