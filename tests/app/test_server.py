"""viz_app/server.py and jupyter.py: start and stop of a server, and how a notebook server starts one."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from viz_app import access, jupyter, server
from viz_app.shell import temporary
from viz_app.shell.jobs import JobQueue


def test_a_server_that_is_asked_to_stop_finishes_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM admits nobody new, waits for the job that runs, and ends the process; a second one ends it at once."""
    queue, gate = JobQueue(), threading.Event()
    handlers: list[Any] = []
    ended: list[bool] = []
    monkeypatch.setattr(server, "queue", lambda: queue)
    monkeypatch.setattr(server, "DELIVERY_SECONDS", 0.0)
    monkeypatch.setattr(access, "shutting_down", threading.Event())
    monkeypatch.setattr(signal, "getsignal", lambda _: lambda number, frame: ended.append(True))
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.append(handler))
    killed = threading.Event()
    monkeypatch.setattr(os, "kill", lambda process, number: killed.set())
    job = queue.submit("key", "label", lambda _: gate.wait(30))
    server.stop_when_idle()
    handlers[0](signal.SIGTERM, None)
    assert access.shutting_down.is_set() and not killed.wait(0.2) and not ended
    handlers[0](signal.SIGTERM, None)
    assert ended == [True]
    gate.set()
    assert killed.wait(30) and job.is_done


def test_a_notebook_server_starts_it_for_others_under_its_own_path() -> None:
    """Shared, with the path that the proxy gives, and with Streamlit's protection as it is."""
    served = jupyter.proxy_settings()
    assert served["absolute_url"] and served["command"][2:4] == ["viz_app.cli", "app"]
    assert "--shared" in served["command"] and served["command"][-2:] == ["--base-path", "{base_url}headlight"]
    assert not any("Xsrf" in part or "CORS" in part for part in served["command"])


def test_a_server_clears_up_after_one_that_was_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before its first visitor: the folder of one that is gone is not there any more."""
    monkeypatch.setattr(server, "stop_when_idle", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "LOCK_GRACE_SECONDS", -1.0)
    left = tmp_path / f"{temporary.PREFIX}abcdefgh"
    left.mkdir()
    (left / temporary.LOCK).touch()

    async def begun() -> bool:
        async with server.lifespan(None):
            return left.exists()

    # In a thread of its own: a browser test leaves a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(begun())).result() is False
