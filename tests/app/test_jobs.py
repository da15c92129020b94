"""The job queue: one at a time, stoppable, shared, bounded."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from viz_app.shell import jobs
from viz_app.shell.jobs import Job, JobQueue


def test_one_job_runs_at_a_time_in_the_order_asked() -> None:
    """Jobs never overlap, and start in the order in which they were submitted."""
    queue, running, order = JobQueue(), threading.Semaphore(1), []

    def work(number: int) -> int:
        assert running.acquire(blocking=False), "two jobs at once"
        order.append(number)
        running.release()
        return number * 2

    submitted = [queue.submit(n, f"job {n}", lambda _, n=n: work(n)) for n in range(20)]
    assert all(job.wait(10) for job in submitted)
    assert [job.result for job in submitted] == [n * 2 for n in range(20)]
    assert order == list(range(20))


def test_the_same_key_is_the_same_job() -> None:
    """Asking twice computes once."""
    queue, calls = JobQueue(), []
    first = queue.submit("key", "job", lambda _: calls.append(1))
    assert first.wait(10)
    assert queue.submit("key", "job", lambda _: calls.append(2)) is first
    assert calls == [1]


def test_place_in_the_queue_counts_the_jobs_before() -> None:
    """The running job has place 0, the next 1, the one after it 2."""
    queue, go = JobQueue(), threading.Event()
    started = threading.Event()

    def hold(_: Job) -> None:
        started.set()
        go.wait(10)

    first = queue.submit(0, "first", hold)
    assert started.wait(10)
    second, third = (queue.submit(n, "later", lambda _: None) for n in (1, 2))
    assert [queue.place(job) for job in (first, second, third)] == [0, 1, 2]
    go.set()
    assert third.wait(10) and queue.place(third) == 0


def test_a_stopped_job_ends_at_its_next_report_and_the_queue_goes_on() -> None:
    """`forget` stops a running job, removes a waiting one, and leaves the others alone."""
    queue, started = JobQueue(), threading.Event()

    def endless(job: Job) -> None:
        while True:
            started.set()
            job.report(0.5)

    running = queue.submit("endless", "endless", endless)
    waiting = queue.submit("waiting", "waiting", lambda _: "never")
    last = queue.submit("last", "last", lambda _: "done")
    assert started.wait(10)
    queue.forget("waiting")
    queue.forget("endless")
    assert last.wait(10) and last.result == "done"
    assert isinstance(running.error, jobs.Stopped)
    assert not waiting.done


def test_an_error_is_kept_and_does_not_end_the_queue() -> None:
    """A job that raises keeps its exception, and the next one runs."""
    queue = JobQueue()
    failed = queue.submit("bad", "bad", lambda _: 1 / 0)
    assert failed.wait(10) and isinstance(failed.error, ZeroDivisionError)
    assert queue.submit("good", "good", lambda _: 1).wait(10)


def test_kept_results_are_bounded_by_bytes_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old results are dropped when the bytes are too many; a single one larger than the bound is kept."""
    monkeypatch.setattr(jobs, "KEPT_BYTES", 100)

    @dataclass
    class Result:
        nbytes: int

    queue = JobQueue()
    calls: list[int] = []

    def ask(key: int, size: int) -> Job:
        def work(_: Job) -> Result:
            calls.append(key)
            return Result(size)

        job = queue.submit(key, "job", work)
        assert job.wait(10)
        return job

    for key in (1, 2, 3):
        ask(key, 60)
    ask(4, 500)
    last = ask(5, 1)  # by now the worker has dropped what job 4 pushed out
    assert last.done
    ask(1, 60)
    assert calls == [1, 2, 3, 4, 5, 1]
