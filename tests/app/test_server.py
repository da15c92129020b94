"""viz_app/server.py and jupyter.py: what a server counts, and how a notebook server starts one."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bert_core import Refused
from viz_app import jupyter, server
from viz_app.shell import temporary
from viz_app.shell.jobs import JobQueue, kind_of


def test_what_was_done_is_counted_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind with its number and seconds, as Prometheus reads it; no text and no name of a model is a kind."""
    queue = JobQueue()
    monkeypatch.setattr(server, "queue", lambda: queue)
    monkeypatch.setattr(server, "get_instance", lambda: type("", (), {"_session_mgr": Sessions()}))
    monkeypatch.setattr(server, "MODELS", type("", (), {"nbytes": 4096}))
    for number in range(3):
        assert queue.submit(("run", "a model", number), "label", lambda _: bytes(1_000)).wait(10)
    assert queue.submit(((("curve", "order"), 1), "a model"), "label", lambda _: None).wait(10)
    assert queue.wait_until_idle(10)
    registry = CollectorRegistry()
    registry.register(server.Counted())
    lines = generate_latest(registry).decode().splitlines()
    assert "headlight_visitors 7.0" in lines and "headlight_kept_bytes 3000.0" in lines
    assert "headlight_model_bytes 4096.0" in lines
    assert 'headlight_work_total{kind="run"} 3.0' in lines and 'headlight_work_total{kind="curve"} 1.0' in lines
    assert 'headlight_jobs_waiting{length="long"} 0.0' in lines and not any("a model" in line for line in lines)
    assert [kind_of(key) for key in ("a", ("b", 1), (("c", 2), 3), (4,), ())] == ["a", "b", "c", "other", "other"]


class Sessions:
    """What Streamlit knows of its visitors."""

    def num_active_sessions(self) -> int:
        return 7


def test_a_port_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, with the port."""
    monkeypatch.setattr("prometheus_client.REGISTRY.register", lambda _: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Refused) as caught:
            server.count_on(port)
    assert f"port {port} of 127.0.0.1" in str(caught.value)
    server.count_on(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"process_resident_memory_bytes" in answer.read() or answer.status == 200


def test_a_notebook_server_starts_it_for_others_under_its_own_path() -> None:
    """Shared, with the path that the proxy gives, and with Streamlit's protection as it is."""
    served = jupyter.served()
    assert served["absolute_url"] and served["command"][2:4] == ["viz_app.cli", "app"]
    assert "--shared" in served["command"] and served["command"][-2:] == ["--base-path", "{base_url}headlight"]
    assert not any("Xsrf" in part or "CORS" in part for part in served["command"])


def test_a_server_clears_up_after_one_that_was_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before its first visitor: the folder of one that is gone is not there any more."""
    monkeypatch.setattr(server, "leave_when_done", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "JUST_MADE", -1.0)
    left = tmp_path / f"{temporary.PREFIX}abcdefgh"
    left.mkdir()
    (left / temporary.LOCK).touch()

    async def begun() -> bool:
        async with server.life(None):
            return left.exists()

    # In a thread of its own: a browser test leaves a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(begun())).result() is False
