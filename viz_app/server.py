"""Start and graceful stop of a server: a server that is asked to stop finishes the jobs that run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

from viz_app import access
from viz_app.shell.temporary import remove_abandoned_folders
from viz_app.shell.work import queue
from viz_app.streamlit_compat import log_untested_version

MAX_STOP_SECONDS = 60.0  # for which a server that was asked to stop continues its jobs
DELIVERY_SECONDS = 1.0  # in which open pages receive the last results


@asynccontextmanager
async def lifespan(app: object) -> AsyncIterator[None]:
    """Prepare the server before its first visitor.

    Temporary folders of servers that were killed are removed, an untested version of Streamlit is logged, and SIGTERM
    is handled by `stop_when_idle`.
    """
    del app
    log_untested_version()
    remove_abandoned_folders()
    stop_when_idle()
    yield


def stop_when_idle() -> None:
    """On SIGTERM, admit no new visitors and stop as soon as the queue is idle; on a second SIGTERM, stop at once."""
    stop = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        if access.shutting_down.is_set():
            if callable(stop):
                stop(number, frame)
            return
        access.shutting_down.set()
        threading.Thread(target=finish_jobs, name="headlight-stops", daemon=True).start()

    def finish_jobs() -> None:
        if not queue().wait_until_idle(0):
            queue().wait_until_idle(MAX_STOP_SECONDS)
            time.sleep(DELIVERY_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)
