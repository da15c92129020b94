"""The life of a server: what is counted while it runs, and how it stops without breaking off what runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from streamlit.runtime import get_instance

from bert_core.refused import Refused
from viz_app import access
from viz_app.shell.memory import MODELS
from viz_app.shell.temporary import remove_left
from viz_app.shell.work import queue

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LONGEST_LEAVE = 60.0  # seconds that a server which was asked to stop goes on for what runs
LAST_WORD = 1.0  # seconds in which a page is given what was done last


@asynccontextmanager
async def life(app: object) -> AsyncIterator[None]:
    """What the server does before its first visitor: it clears up after those that were killed, and learns to leave.

    It counts, where that was asked for.
    """
    del app
    remove_left()
    if port := os.environ.get("HEADLIGHT_METRICS"):
        count_on(int(port))
    leave_when_done()
    yield


def leave_when_done() -> None:
    """Asked to stop (SIGTERM), finish the jobs first, and let nobody new in; asked twice, stop at once."""
    stop = signal.getsignal(signal.SIGTERM)

    def asked(number: int, frame: Any) -> None:
        if access.shutting_down.is_set():
            if callable(stop):
                stop(number, frame)
            return
        access.shutting_down.set()
        threading.Thread(target=leave, name="headlight-leaves", daemon=True).start()

    def leave() -> None:
        if not queue().wait_until_idle(0):
            queue().wait_until_idle(LONGEST_LEAVE)
            time.sleep(LAST_WORD)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, asked)


def count_on(port: int) -> None:
    """Serve what is counted as `/metrics`, in Prometheus' text format, on a port of its own.

    Raises Refused if the port is taken, or the package is not there.
    """
    try:
        from prometheus_client import REGISTRY, start_http_server
    except ModuleNotFoundError as error:
        raise Refused("counting needs the package prometheus-client: pip install 'headlight[metrics]'") from error
    address = os.environ.get("HEADLIGHT_METRICS_ADDRESS", "127.0.0.1")
    REGISTRY.register(Counted())
    try:
        start_http_server(port, addr=address)
    except OSError as error:
        raise Refused(f"nothing can be counted on port {port} of {address}: {error.strerror}") from error


class Counted:
    """What is counted, asked anew at each look."""

    def collect(self) -> Iterator[Metric]:
        """Visitors, the queue, what was done, and what is kept."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = queue().counts()
        visitors = get_instance()._session_mgr.num_active_sessions()
        yield GaugeMetricFamily("headlight_visitors", "Pages that are open now.", visitors)
        waiting = GaugeMetricFamily("headlight_jobs_waiting", "Jobs that wait.", labels=["length"])
        running = GaugeMetricFamily("headlight_jobs_running", "Jobs that run.", labels=["length"])
        for name, long in (("short", False), ("long", True)):
            waiting.add_metric([name], counts.waiting[long])
            running.add_metric([name], counts.running[long])
        yield waiting
        yield running
        seconds = CounterMetricFamily("headlight_work_seconds", "Seconds that jobs ran, by kind.", labels=["kind"])
        jobs = CounterMetricFamily("headlight_work", "Jobs that are done, by kind.", labels=["kind"])
        for kind, (number, took) in sorted(counts.done.items()):
            jobs.add_metric([kind], number)
            seconds.add_metric([kind], took)
        yield jobs
        yield seconds
        yield GaugeMetricFamily("headlight_kept_bytes", "Results that are kept for who asks again.", counts.kept_bytes)
        yield GaugeMetricFamily("headlight_model_bytes", "Weights of the models in memory.", MODELS.nbytes)
