"""The job queue: short jobs first, long ones in turn and out of the way; stoppable, shared, bounded."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from streamlit.proto.BackMsg_pb2 import BackendOperationRequest
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.testing.v1 import AppTest

from bert_core.progress import Progress
from bert_core.refused import Refused
from viz_app.shell import jobs, work
from viz_app.shell.jobs import MAX_BATCH_SIZE, Batch, Job, JobQueue


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
    assert [queue.position(job) for job in (first, second, third)] == [0, 1, 2]
    go.set()
    assert third.wait(10) and queue.position(third) == 0


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
    assert isinstance(running.error, jobs.JobStopped)
    assert waiting.is_done and isinstance(waiting.error, jobs.JobStopped)  # whoever waits for it is told


def test_an_error_is_kept_and_does_not_end_the_queue() -> None:
    """A job that raises keeps its exception, and the next one runs."""
    queue = JobQueue()
    failed = queue.submit("bad", "bad", lambda _: 1 / 0)
    assert failed.wait(10) and isinstance(failed.error, ZeroDivisionError)
    assert queue.submit("good", "good", lambda _: 1).wait(10)


class Panic(BaseException):
    """As what Rust raises, which is no Exception."""


@pytest.mark.parametrize("ends", [MemoryError, SystemExit, Panic])
@pytest.mark.parametrize("expected", [0.0, jobs.LONG_SECONDS + 1])
def test_whatever_ends_a_job_the_worker_goes_on(ends: type[BaseException], expected: float) -> None:
    """A job without memory, one that wants to end the thread, and a panic are errors of that job alone."""
    queue = JobQueue()

    def end(_: Job) -> None:
        raise ends

    failed = queue.submit("bad", "bad", end, expected=expected)
    assert failed.wait(10) and isinstance(failed.error, MemoryError if ends is MemoryError else RuntimeError)
    assert queue.submit("good", "good", lambda _: 1, expected=expected).wait(10)


def test_results_that_do_not_fit_the_questions_are_not_taken() -> None:
    """Where all at once gives too few results, or panics, each is done by itself, and the worker goes on."""

    def panics(_: list[int]) -> list[int]:
        raise Panic

    for do in (lambda items: items[1:], panics):
        queue = JobQueue()
        _, go = held(queue)
        asked = [queue.submit(n, "one", lambda _, n=n: n, batch=Batch("kind", n, do)) for n in range(3)]
        go.set()
        assert all(job.wait(10) for job in asked) and [job.result for job in asked] == [0, 1, 2]


@pytest.mark.parametrize("expected", [0.0, jobs.LONG_SECONDS + 1])
def test_a_job_that_never_reports_is_left_alone_when_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, expected: float
) -> None:
    """Its visitor is told, and others are served beside it; a worker more than the bound does not begin."""
    monkeypatch.setattr(jobs, "MAX_SILENT_SECONDS", 0.05)
    queue, silent = JobQueue(), []
    for _ in range(jobs.MAX_ABANDONED_JOBS + 1):
        silent.append(held(queue, expected=expected, session="a"))
        queue.stop(silent[-1][0].key, "a")
        assert queue.find(silent[-1][0].key) is None, "it can be asked for again"
    last = queue.submit("last", "last", lambda _: "done", expected=expected, session="b")
    assert not last.wait(0.5), "as many as may be left alone are"
    silent[0][1].set()  # one of them ends after all, and its place is free for another
    assert last.wait(10) and last.result == "done"
    for job, go in silent:
        go.set()
        assert job.wait(10)
    assert queue.wait_until_idle(10) and queue._abandoned_count == 0
    assert queue.submit("after", "after", lambda _: 1, expected=expected).wait(10)


@pytest.mark.parametrize("expected", [0.0, jobs.LONG_SECONDS + 1])
def test_a_job_that_never_reports_is_left_alone_when_its_visitor_is_long_gone(
    monkeypatch: pytest.MonkeyPatch, expected: float
) -> None:
    """Whoever waits behind it is served, but not before a connection that broke had time to come back."""
    monkeypatch.setattr(jobs, "MAX_SILENT_SECONDS", 0.05)
    here = {"a", "b"}
    queue = JobQueue(here.__contains__)
    silent, go = held(queue, expected=expected, session="a")
    last = queue.submit("last", "last", lambda _: "done", expected=expected, session="b")
    monkeypatch.setattr(jobs, "MAX_ABSENT_SECONDS", 0.0)
    assert queue.position(last) == 1 and queue.find(silent.key) is silent, "its visitor is here"
    here.remove("a")
    monkeypatch.setattr(jobs, "MAX_ABSENT_SECONDS", 60.0)
    assert queue.position(last) == 1 and queue.find(silent.key) is silent, "and may come back"
    monkeypatch.setattr(jobs, "MAX_ABSENT_SECONDS", 0.0)
    assert queue.position(last) == 1 and queue.find(silent.key) is None
    assert last.wait(10) and last.result == "done"
    go.set()
    assert silent.wait(10) and queue.wait_until_idle(10) and queue._abandoned_count == 0


def test_a_job_that_reports_ends_where_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker of a job that ends in time serves on, and no other beside it."""
    monkeypatch.setattr(jobs, "MAX_SILENT_SECONDS", 0.05)
    queue = JobQueue()
    before = [*queue._workers]
    job = queue.submit("a", "a", lambda job: [job.report(0.5) for _ in iter(int, 1)], session="a")
    while job.progress is None:
        time.sleep(0.01)
    queue.stop("a", "a")
    assert job.wait(10)
    time.sleep(0.2)
    assert queue._workers == before and queue.submit("b", "b", lambda _: 1).wait(10)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_work_without_memory_is_one_sentence_on_its_page(error: Exception) -> None:
    """The page says what can be done, and not that it has a bug."""

    def page(error: Exception) -> None:
        from viz_app.shell import address, work
        from viz_app.shell.error_boundary import error_boundary

        def fail(_: object) -> None:
            raise error

        address.restore_params({})
        work.begin_run()
        with error_boundary():
            work.wait_for(work.Work(("without memory", repr(error)), "Large work", fail))

    app = AppTest.from_function(page, args=(error,), default_timeout=60).run()
    assert not app.exception and [said.value.replace("\\", "") for said in app.error] == [
        "There is not enough memory for this: take a shorter text, fewer of them, or a smaller model."
    ]


def test_who_comes_at_once_shares_one_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for the first time in one moment: else each had a model of their own."""

    class Slow(jobs.JobQueue):
        def __init__(self, is_here: Callable[[jobs.SessionId], bool]) -> None:
            time.sleep(0.1)
            super().__init__(is_here)

    monkeypatch.setattr(work, "JobQueue", Slow)
    work._queue.cache_clear()
    try:
        with ThreadPoolExecutor(8) as threads:
            assert len({id(queue) for queue in threads.map(lambda _: work.queue(), range(8))}) == 1
    finally:
        work._queue.cache_clear()


def test_a_file_that_cannot_be_made_is_not_handed_over() -> None:
    """What fails midway gives an answer without a file's address, in one sentence of Streamlit's, and no half file."""

    def fails() -> bytes:
        raise ZeroDivisionError("private")

    storage = MemoryMediaFileStorage("/media")
    files = MediaFileManager(storage)
    asked = BackendOperationRequest(request_id="1")
    asked.deferred_file.file_id = files.add_deferred(fails, "image/png", "1", "picture.png")
    handler = DeferredFileHandler(lambda: files)
    # In a thread of its own: in this one a browser's loop may be running.
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(lambda: asyncio.run(handler.handle(asked, "session"))).result()
    assert answer.error_msg == "Failed to generate file for download" and not answer.deferred_file.url
    assert not storage._files_by_id


def test_kept_results_are_bounded_by_bytes_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old results are dropped when the bytes are too many; a single one larger than the bound is kept."""
    monkeypatch.setattr(jobs, "MAX_RESULT_BYTES", 100)

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
    assert last.is_done
    ask(1, 60)
    assert calls == [1, 2, 3, 4, 5, 1]


LONG = jobs.LONG_SECONDS + 1


def held(queue: JobQueue, **how: object) -> tuple[Job, threading.Event]:
    """A job that runs until it is let go."""
    started, go = threading.Event(), threading.Event()

    def hold(_: Job) -> None:
        started.set()
        go.wait(30)

    job = queue.submit(object(), "held", hold, **how)  # type: ignore[arg-type]
    assert started.wait(10)
    return job, go


def test_a_short_job_does_not_wait_for_a_long_one() -> None:
    """What takes long is under way, and short questions are answered meanwhile."""
    queue = JobQueue()
    long, go = held(queue, expected=LONG)
    assert queue.submit("short", "short", lambda _: 1).wait(10)
    assert not long.is_done
    go.set()
    assert long.wait(10)


def test_long_work_gives_way_where_it_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a short job runs, a long one gets no further than its next report, and its own seconds stand still."""
    monkeypatch.setattr(jobs, "MAX_YIELD_SECONDS", 30.0)
    queue, reached, start = JobQueue(), [], time.monotonic()
    began, go_on = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        began.set()
        go_on.wait(10)
        for number in range(3):
            reached.append(number)
            job.report(number / 3)

    long = queue.submit("long", "long", work, expected=LONG)
    assert began.wait(10)
    short, go = held(queue)
    go_on.set()
    assert not long.wait(0.3) and reached == [0]
    go.set()
    assert short.wait(10) and long.wait(10) and reached == [0, 1, 2]
    assert long.seconds < time.monotonic() - start - 0.25, "the time in which it gave way is not its own"


def test_the_busiest_class_does_not_stop_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where short jobs never end, a long one still goes on, a step at a time."""
    monkeypatch.setattr(jobs, "MAX_YIELD_SECONDS", 0.01)
    queue = JobQueue()
    _, go = held(queue)
    long = queue.submit("long", "long", lambda job: [job.report(n / 5) for n in range(5)], expected=LONG)
    assert long.wait(10)
    go.set()


def test_visitors_take_turns_with_long_work() -> None:
    """Whoever asked for three long things waits with the second until the others had their first."""
    queue, order = JobQueue(), []
    _, go = held(queue, expected=LONG, session="first")
    for number, visitor in enumerate(("first", "first", "second", "third")):
        queue.submit(
            number,
            "job",
            lambda _, visitor=visitor: order.append(visitor),
            expected=LONG,
            session=visitor,
            is_lasting=True,
        )
    last = queue.submit("last", "job", lambda _: None, expected=LONG, session="fourth")
    go.set()
    assert last.wait(10)
    for number in range(4):
        job = queue.find(number)
        assert job is not None and job.wait(10)
    assert order == ["second", "third", "first", "first"]


def test_an_edit_that_nobody_waits_for_is_dropped() -> None:
    """Typed on, a visitor no longer waits for what was typed before; others who ask the same, and buttons, still do."""
    queue, done = JobQueue(), []
    _, go = held(queue)
    for key, visitors, lasting in (
        ("old", "a", False),
        ("shared", "ab", False),
        ("asked", "a", True),
        ("new", "a", False),
    ):
        for visitor in visitors:
            queue.submit(key, key, lambda _, key=key: done.append(key), session=visitor, is_lasting=lasting)
    new = queue.find("new")
    assert new is not None
    queue.withdraw("a", kept_keys=("new",))
    assert queue.find("old") is None
    go.set()
    assert new.wait(10) and done == ["shared", "asked", "new"]


def test_what_those_who_left_asked_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed session's jobs never run; a long one that runs ends when all who asked have been gone for a while."""
    here = {"a", "b"}
    queue, done = JobQueue(here.__contains__), []
    _, go = held(queue, session="a")
    gone = queue.submit("gone", "gone", lambda _: done.append("gone"), session="b")
    stays = queue.submit("stays", "stays", lambda _: done.append("stays"), session="a")
    endless = queue.submit(
        "endless", "endless", lambda job: [job.report(0.5) for _ in iter(int, 1)], expected=LONG, session="b"
    )
    while endless.progress is None:
        time.sleep(0.01)
    here.remove("b")
    go.set()
    assert stays.wait(10) and gone.wait(10) and done == ["stays"] and isinstance(gone.error, jobs.JobStopped)
    assert not endless.wait(0.2), "a connection may break and come back"
    monkeypatch.setattr(jobs, "MAX_ABSENT_SECONDS", 0.1)
    assert endless.wait(10) and isinstance(endless.error, jobs.JobStopped)


def test_a_stop_is_that_of_one_visitor() -> None:
    """What two visitors wait for goes on when one of them stops it, and ends when both do."""
    queue = JobQueue()
    job = None
    for visitor in ("a", "b"):
        job = queue.submit("endless", "endless", lambda job: [job.report(0.5) for _ in iter(int, 1)], session=visitor)
    assert job is not None
    queue.stop("endless", "a")
    assert not job.wait(0.2)
    queue.stop("endless", "b")
    assert job.wait(10)


def test_what_waits_together_is_done_together() -> None:
    """Jobs of one kind that wait are one call, up to so many; each gets its own result, another kind none of them."""
    queue, calls = JobQueue(), []

    def all_of(items: list[int]) -> list[int]:
        calls.append(items)
        return [10 * item for item in items]

    _, go = held(queue)
    asked = [
        queue.submit(n, "one", lambda _, n=n: 10 * n, batch=Batch("odd" if n % 2 else "even", n, all_of))
        for n in range(2 * MAX_BATCH_SIZE + 4)
    ]
    alone = queue.submit("alone", "alone", lambda _: "alone")
    go.set()
    assert all(job.wait(10) for job in (*asked, alone))
    assert [job.result for job in asked] == [10 * n for n in range(len(asked))] and alone.result == "alone"
    assert sorted(map(len, calls)) == [2, 2, MAX_BATCH_SIZE, MAX_BATCH_SIZE]
    assert all(len({item % 2 for item in items}) == 1 for items in calls)


def test_one_that_cannot_be_done_does_not_spoil_the_others() -> None:
    """Where all at once fails, each is done by itself, and the error is that of the one whose it is."""
    queue = JobQueue()

    def one(item: int) -> int:
        if item == 2:
            raise ValueError("two cannot be read")
        return item

    _, go = held(queue)
    asked = [
        queue.submit(n, "one", lambda _, n=n: one(n), batch=Batch("kind", n, lambda items: [*map(one, items)]))
        for n in range(4)
    ]
    go.set()
    assert all(job.wait(10) for job in asked)
    assert [job.result for job in asked] == [0, 1, None, 3]
    assert [str(job.error) for job in asked if job.error is not None] == ["two cannot be read"]


def test_a_page_that_draws_nothing_more_waits_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a page ends early, for want of slow work, it is drawn again by itself when the work is done."""

    def page() -> None:
        import time

        import streamlit as st

        from viz_app.shell import address, work

        address.restore_params({})
        work.begin_run()
        try:
            given = work.poll(work.Work(("early",), "Early work", lambda report: time.sleep(0.5) or "it is done"))
            if given.value is None:
                address.end_run()
            st.write(given.value)
        finally:
            address.publish()
            work.end_of_run()

    monkeypatch.setattr(work, "WAIT_BEFORE_PROGRESS", 0.05)
    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception and [said.value for said in app.markdown] == ["it is done"]


def test_what_is_foreseen_begins_when_the_page_stands_and_shows_nothing() -> None:
    """The page does not wait for it, and who asks for it then has it; what cannot be begun is said when it is asked."""

    def page() -> None:
        import streamlit as st

        from bert_core.refused import Refused
        from viz_app.shell import address, work

        address.restore_params({})
        work.begin_run()
        later = work.Work(("foreseen",), "Foreseen work", lambda report: "it is done")
        if work.finished_result(later) is None:
            work.prefetch(later)
            st.write("not yet")
        else:
            st.write(work.wait_for(later))

        def refuse(report: object) -> None:
            raise Refused("it cannot be")

        refused = work.Work(("refused",), "Refused work", refuse)
        work.prefetch(refused)
        address.publish()
        work.end_of_run()

    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception and [said.value for said in app.markdown] == ["not yet"]
    assert work.queue().wait_until_idle(10)
    app.run()
    assert not app.exception and [said.value for said in app.markdown] == ["it is done"]


@pytest.fixture
def own_queue() -> Iterator[JobQueue]:
    """The queue of the app, new for this test."""
    work._queue.cache_clear()
    yield work.queue()
    work._queue.cache_clear()


def test_jobs_that_need_other_jobs_end_while_all_workers_are_busy(own_queue: JobQueue) -> None:
    """A job inside a job, of any depth, runs in the worker that needs it; its result is kept and computed once."""
    calls: list[str] = []

    def needed(name: str, depth: int) -> work.Work[str]:
        def do(report: Progress) -> str:
            report(0.5)
            calls.append(f"{name} {depth}")
            return f"{name} {depth}" if depth == 0 else work.wait_for(needed(name, depth - 1))

        return work.Work((name, depth), "nested", do, LONG if name == "long" else 0.0)

    outer = [work._job_of(needed(name, 2), None, is_lasting=True) for name in ("short", "long")]
    assert all(job.wait(10) for job in outer)
    assert [job.result for job in outer] == ["short 0", "long 0"]
    assert sorted(calls) == sorted(f"{name} {depth}" for name in ("short", "long") for depth in range(3))
    assert work.wait_for(needed("short", 0)) == "short 0" and len(calls) == 6


def test_a_job_inside_a_job_takes_the_place_of_one_that_waits(own_queue: JobQueue) -> None:
    """Who waits for the same key gets the result of the nested job, which runs once."""
    calls: list[int] = []
    inner = work.Work(("inner",), "inner", lambda _: calls.append(1) or "done")
    go = threading.Event()
    outer = work.Work(("outer",), "outer", lambda _: go.wait(10) and work.wait_for(inner))
    first = work._job_of(outer, None, is_lasting=True)
    waiting = work._job_of(inner, None, is_lasting=True)
    go.set()
    assert first.wait(10) and waiting.wait(10) and own_queue.wait_until_idle(10)
    assert first.result == waiting.result == "done" and calls == [1]


def test_a_job_inside_a_job_is_stopped_and_refused_with_it(own_queue: JobQueue) -> None:
    """A stop of the outer job ends the nested one at its next report; what the nested one raises, the outer raises."""
    started = threading.Event()

    def endless(report: Progress) -> None:
        while True:
            started.set()
            report(0.5)

    def refuse(report: Progress) -> None:
        raise Refused("it cannot be")

    outer = work._job_of(
        work.Work(("o",), "o", lambda _: work.wait_for(work.Work(("i",), "i", endless))), "a", is_lasting=True
    )
    assert started.wait(10)
    own_queue.stop(("o",), "a")
    assert outer.wait(10) and isinstance(outer.error, jobs.JobStopped) and own_queue.find(("i",)) is None
    refused = work._job_of(
        work.Work(("p",), "p", lambda _: work.wait_for(work.Work(("q",), "q", refuse))), None, is_lasting=True
    )
    assert refused.wait(10) and str(refused.error) == "it cannot be" and own_queue.find(("q",)) is None


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("ends", [RuntimeError, Refused, Panic])
def test_a_failed_job_keeps_no_tensor_of_its_work(ends: type[BaseException], together: bool) -> None:
    """Neither the error nor what it came from reaches a variable of the function that failed."""
    queue, tensors = JobQueue(), []

    def deepest() -> None:
        local = torch.zeros(10)
        tensors.append(weakref.ref(local))
        raise KeyError("first")

    def fail(_: object) -> None:
        local = torch.zeros(10)
        tensors.append(weakref.ref(local))
        try:
            deepest()
        except KeyError as error:
            raise ends("second") from error

    gc.disable()
    try:
        _, go = held(queue)
        way = Batch("kind", 1, fail) if together else None  # type: ignore[arg-type]
        failed = [queue.submit(n, "bad", fail, batch=way) for n in range(2)]
        go.set()
        assert all(job.wait(10) for job in failed) and queue.wait_until_idle(10)
        assert all(job.error is not None and "second" in str(job.error) for job in failed)
        assert len(tensors) >= 4 and [ref() for ref in tensors] == [None] * len(tensors)
        with pytest.raises(type(failed[0].error)):  # type: ignore[arg-type]
            work._result(failed[0])
    finally:
        gc.enable()


@pytest.mark.parametrize("ends", [RuntimeError, Panic])
def test_the_log_has_the_traceback_of_a_failed_job(ends: type[BaseException]) -> None:
    """Which function failed, in which file, and what it came from, although no frame is kept."""
    queue = JobQueue()

    def the_function_that_fails(_: Job) -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ends("second") from error

    failed = queue.submit("bad", "bad", the_function_that_fails)
    assert failed.wait(10)
    with pytest.raises(RuntimeError) as caught:
        work._result(failed)
    told = "".join(traceback.format_exception(caught.value))
    for part in ("the_function_that_fails", "test_jobs.py", "KeyError: 'first'", f"{ends.__name__}: second"):
        assert part in told


def test_an_idle_worker_holds_no_result() -> None:
    """A result that was forgotten is free while the worker waits for the next job, and so is what it was made of."""
    queue = JobQueue()
    tensor = torch.zeros(10)
    seen = weakref.ref(tensor)
    gc.disable()
    try:
        way = Batch("kind", tensor, lambda items: items)
        assert queue.submit("a", "a", lambda _, made=[tensor]: made[0], batch=way).wait(10)
        assert queue.wait_until_idle(10)
        del tensor, way
        queue.forget("a")
        deadline = time.monotonic() + 10
        while seen() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert seen() is None
    finally:
        gc.enable()


def test_the_remaining_time_follows_a_job_that_slows_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the estimate less the time that passed; then the measured speed, also when it changes on the way."""
    now = [100.0]
    monkeypatch.setattr("viz_app.shell.jobs.time", SimpleNamespace(monotonic=lambda: now[0]))
    job = Job("slow", "Slow work", lambda _: None, expected=20.0)
    assert job.remaining_seconds == 20.0
    job.started = now[0]
    for second, share in ((1, 0.05), (2, 0.1), (3, 0.15), (4, 0.2)):
        now[0] = 100.0 + second
        job.report(share)
    assert job.remaining_seconds == pytest.approx(16.0), "a job as fast as estimated"
    for second, share in ((14, 0.25), (24, 0.3), (34, 0.35), (44, 0.4)):
        now[0] = 100.0 + second
        job.report(share)
    assert job.remaining_seconds == pytest.approx(120.0, rel=0.2), "ten times slower: 0.6 at 0.005 a second"
    now[0] = 100.0 + 60
    assert job.remaining_seconds > 120.0, "without a report the estimate does not fall"


def test_progress_shows_the_remaining_time(monkeypatch: pytest.MonkeyPatch, own_queue: JobQueue) -> None:
    """With the label; a job that takes longer than estimated and reports nothing shows that, and no false number."""
    now = [100.0]
    monkeypatch.setattr("viz_app.shell.jobs.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(work, "queue", lambda: own_queue)
    job = Job("slow", "Slow work", lambda _: None, expected=19.0)
    job.started = now[0]
    now[0] += 7
    assert work._progress_text(job) == "Slow work: running, about 12 s left"
    now[0] += 113
    assert work._progress_text(job) == "Slow work: running, longer than the estimated 19 s"
    job.report(0.5)
    assert work._progress_text(job) == "Slow work: running, about 2 min left"
