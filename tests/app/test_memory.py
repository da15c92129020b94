"""The bound of the server's memory: what it is, what goes before work is refused, and what a refusal says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bert_core import Refused, capture
from bert_core.loading import LoadedModel
from bert_core.run.memory import TOKENS_AT_ONCE, capture_bytes, passes_bytes, slopes_bytes, words_bytes
from tests.visit import settled, visited, words
from viz_app.shell import memory
from viz_app.shell.jobs import JobQueue

MB = 1 << 20
COUNTS = """
import numpy as np
from bert_core.heap import release_freed_memory
from viz_app.shell import memory
print(memory.resident())
array = np.ones(64 << 20, np.uint8)
print(memory.resident())
del array
release_freed_memory()
print(memory.resident())
"""


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """The bound is decided once for each process: here for each test."""
    memory.most.cache_clear()
    yield
    memory.most.cache_clear()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many MB are resident; of 1,000 that may be."""
    monkeypatch.setenv(memory.SETTING, str(1000 / 1024))

    def hold(megabytes: int) -> None:
        monkeypatch.setattr(memory, "resident", lambda: megabytes * MB)

    hold(0)
    return hold


def test_the_bound_is_the_smaller_of_both_and_never_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GiB above the start on a large machine, 60% of a small one, and 256 MiB above the start at least."""
    monkeypatch.delenv(memory.SETTING, raising=False)
    monkeypatch.setattr(memory, "resident", lambda: 600 * MB)
    for machine, most in ((64 << 30, (600 + 2048) * MB), (4000 * MB, 2400 * MB), (1000 * MB, 856 * MB)):
        memory.most.cache_clear()
        monkeypatch.setattr(memory, "whole", lambda machine=machine: machine)
        assert memory.most() == most


def test_a_setting_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what was given; a size is taken as it is."""
    for wrong in ("much", "-1", "0", "nan", "inf"):
        monkeypatch.setenv(memory.SETTING, wrong)
        with pytest.raises(Refused, match=f"HEADLIGHT_MEMORY is '{wrong}'"):
            memory.most()
    monkeypatch.setenv(memory.SETTING, "1.5")
    assert memory.most() == 3 << 29


def test_a_container_has_less_than_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The smallest limit of the groups around the process counts; one that says "max" is none."""
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    group = tmp_path / own.removeprefix("0::/")
    group.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    machine = memory.whole()
    (group / "memory.max").write_text("max\n")
    assert memory.whole() == machine
    (group / "memory.max").write_text("1000000\n")
    assert memory.whole() == 1_000_000


def test_this_process_is_seen() -> None:
    """An array that is written to is resident, and no longer when it is gone and was given back."""
    # In a process of its own: one that ran a hundred tests frees what they held at any moment, this one too.
    counted = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, check=True).stdout.split()
    before, with_it, after = map(int, counted)
    assert before > 10 * MB
    assert with_it - before > 60 * MB and with_it - after > 60 * MB


def test_what_fits_drops_nothing(held: Callable[[int], None]) -> None:
    """Up to the bound, and what is small, whatever is held."""
    held(900)
    with memory.room_for(100 * MB, lambda _: pytest.fail("there is room")):
        pass
    held(2000)
    with memory.room_for(memory.SMALL, lambda _: pytest.fail("it is small")):
        pass


def test_results_go_before_work_is_refused(held: Callable[[int], None]) -> None:
    """As many as are missing, asked for until there is room; the work then begins."""
    asked: list[int] = []

    def drop(missing: int) -> int:
        asked.append(missing)
        held(900 - 30 * len(asked))  # less than was dropped: the heap has holes
        return missing

    held(900)
    with memory.room_for(150 * MB, drop):
        pass
    assert asked == [50 * MB, 20 * MB]


def test_what_does_not_fit_is_refused_with_numbers(held: Callable[[int], None]) -> None:
    """What it would take, what is free of how much, and what to do; nothing stays held."""
    held(900)
    with pytest.raises(Refused) as caught, memory.room_for(300 * MB, lambda _: 0):
        pytest.fail("there is no room")
    assert str(caught.value) == (
        "this would take about 300 MB of memory, and 100 MB of the 1,000 MB that this server may use are free: take a "
        "shorter text, or try again in a moment"
    )
    held(100)
    with memory.room_for(300 * MB, lambda _: 0):
        pass


def test_what_runs_counts_until_it_is_over(held: Callable[[int], None]) -> None:
    """Two pieces of work that fit alone do not fit together; one that failed is over, too."""
    with memory.room_for(600 * MB, lambda _: 0), pytest.raises(Refused), memory.room_for(600 * MB, lambda _: 0):
        pytest.fail("there is no room for both")
    with pytest.raises(ZeroDivisionError), memory.room_for(600 * MB, lambda _: 0):
        1 / 0  # noqa: B018
    with memory.room_for(600 * MB, lambda _: 0):
        pass


def test_a_system_that_says_nothing_refuses_nothing(
    held: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody knows what is resident, work begins."""
    monkeypatch.setattr(memory, "resident", lambda: None)
    with memory.room_for(1 << 50, lambda _: 0):
        pass


def test_the_queue_drops_what_was_asked_for_longest_ago() -> None:
    """As much as is wanted, results alone, the oldest first; at most all."""
    queue = JobQueue()
    for name in "abc":
        queue.submit(name, name, lambda _: b"0" * 100).wait(10)
    queue.submit("a", "a", lambda _: b"")
    queue.submit("nothing", "nothing", lambda _: None).wait(10)
    assert queue.wait_until_idle(10)
    assert queue.drop_oldest(150) == 200
    assert queue.known("b") is queue.known("c") is None
    assert queue.known("a") is not None and queue.known("nothing") is not None
    assert queue.drop_oldest(1 << 40) == 100


def test_a_text_is_said_to_take_what_it_leaves_and_more(tiny_loaded: LoadedModel) -> None:
    """The estimate is three times what a run keeps without a gradient, three and a half with one."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the blue mat")
    run = capture(tiny_loaded, encoding)
    assert capture_bytes(tiny_loaded, len(encoding)) == 3 * run.attention.nbytes
    assert capture_bytes(tiny_loaded, len(encoding), gradients=True) == 7 * run.attention.nbytes


def test_what_travels_together_is_counted_and_no_more(tiny_loaded: LoadedModel) -> None:
    """Copies count up to those that are read at once; there and back counts all, and words by their number."""
    one = passes_bytes(tiny_loaded, 16, 1)
    assert passes_bytes(tiny_loaded, 16, 5) == 5 * one > 0
    at_once = TOKENS_AT_ONCE // 16
    assert passes_bytes(tiny_loaded, 16, 9 * at_once) == passes_bytes(tiny_loaded, 16, at_once)
    assert passes_bytes(tiny_loaded, 2 * TOKENS_AT_ONCE, 3) == passes_bytes(tiny_loaded, 2 * TOKENS_AT_ONCE, 1)
    assert abs(slopes_bytes(tiny_loaded, 16, 900) - 900 * slopes_bytes(tiny_loaded, 16, 1)) <= 900
    assert words_bytes(tiny_loaded, 7) == 7 * words_bytes(tiny_loaded, 1) > 0


@pytest.mark.parametrize("page", ["inside", "prune", "score"])
def test_every_kind_of_large_work_is_refused(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """A walk, a test of what may be pruned and a score take room of their own: the page says so, and stands."""
    monkeypatch.setenv(memory.SETTING, "0.001")
    long = "She opened the door and walked in. " * 40
    drawn = settled(visited(page, **({"one": long, "two": long} if page == "score" else {"text": long})))
    asks = [button for button in drawn.button if str(button.label).startswith(("Test on", "Score"))]
    if asks:
        drawn = settled(asks[0].click().run())
    assert not drawn.exception
    assert "MB that this server may use are free: take a shorter text" in words(drawn)


def test_a_page_says_that_a_text_is_too_long_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence in place of the picture, and a shorter text is drawn."""
    monkeypatch.setenv(memory.SETTING, "0.001")
    long = settled(visited("attention", text="She opened the door and walked in. " * 20))
    assert not long.exception
    assert re.search(r"This would take about \d+ MB of memory, and 0 MB of the 1 MB that this server may", words(long))
    short = settled(visited("attention", text="The cat sat on the mat, out of the sun."))
    assert not short.exception and not short.error
