"""The bound of the server's memory: what it is, what goes before work is refused, and what a refusal says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bert_core import Refused, capture
from bert_core.loading import LoadedModel
from bert_core.run.memory import (
    TOKENS_AT_ONCE,
    capture_bytes,
    forward_bytes,
    free_bytes,
    gpu_bytes,
    gradient_bytes,
    mlm_head_bytes,
)
from tests.visit import settled, visited, words
from viz_app.bugs import lacks_memory
from viz_app.shell import memory
from viz_app.shell.jobs import JobQueue

MB = 1 << 20
COUNTS = """
import numpy as np
from bert_core.heap import release_freed_memory
from viz_app.shell import memory
print(memory.resident_bytes())
array = np.ones(64 << 20, np.uint8)
print(memory.resident_bytes())
del array
release_freed_memory()
print(memory.resident_bytes())
"""


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """The bound is decided once for each process: here for each test."""
    memory.base_resident_bytes.cache_clear()
    yield
    memory.base_resident_bytes.cache_clear()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many MB are resident; of 1,000 that may be."""
    monkeypatch.setenv(memory.SETTING, str(1000 / 1024))

    def hold(megabytes: int) -> None:
        monkeypatch.setattr(memory, "resident_bytes", lambda: megabytes * MB)

    hold(0)
    return hold


def test_the_bound_is_the_smaller_of_both_and_never_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GiB above the start on a large machine, 60% of a small one, and 256 MiB above the start at least."""
    monkeypatch.delenv(memory.SETTING, raising=False)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 600 * MB)
    for machine, most in ((64 << 30, (600 + 2048) * MB), (4000 * MB, 2400 * MB), (1000 * MB, 856 * MB)):
        memory.base_resident_bytes.cache_clear()
        monkeypatch.setattr(memory, "machine_memory", lambda machine=machine: machine)
        assert memory.memory_limit() == most


def test_the_bound_grows_with_the_models_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts and results have the same room beside a large model as beside a small one, where the machine has it."""

    class Models:
        nbytes = 100 * MB

    monkeypatch.delenv(memory.SETTING, raising=False)
    monkeypatch.setattr(memory, "MODELS", Models)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 600 * MB)
    monkeypatch.setattr(memory, "machine_memory", lambda: 64 << 30)
    assert memory.memory_limit() == (600 + 2048) * MB
    Models.nbytes = 1400 * MB
    assert memory.memory_limit() == (500 + 1400 + 2048) * MB
    monkeypatch.setattr(memory, "machine_memory", lambda: 4000 * MB)
    assert memory.memory_limit() == 2400 * MB
    monkeypatch.setattr(memory, "machine_memory", lambda: 2000 * MB)
    assert memory.memory_limit() == (500 + 1400 + 256) * MB


def test_models_may_take_half_of_what_the_server_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 60% of the machine or container; half of a given bound; a limit of their own where that is given."""
    for name in (memory.SETTING, memory.MODEL_SETTING):
        monkeypatch.delenv(name, raising=False)
    for machine, limit in ((4000 * MB, 1200 * MB), (24 << 30, int(7.2 * 2**30)), (sys.maxsize, 2 << 30)):
        monkeypatch.setattr(memory, "machine_memory", lambda machine=machine: machine)
        assert memory.model_limit() == limit
    monkeypatch.setenv(memory.SETTING, "3")
    assert memory.model_limit() == 3 << 29
    monkeypatch.setenv(memory.MODEL_SETTING, "2.5")
    assert memory.model_limit() == 5 << 29
    assert memory.memory_limit() == 3 << 30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, int], torch.device]:
    """A GPU of 16,000 MB as CUDA states it: MB free, and held by the allocator, of which some are in use."""
    device = torch.device("cuda", 0)

    def state(free: int, reserved: int = 0, allocated: int = 0) -> torch.device:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free * MB, 16_000 * MB))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved * MB)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: allocated * MB)
        return device

    return state


def no_room(needed: int, device: torch.device, sentence: str) -> None:
    """Assert that work is refused with this sentence."""
    with pytest.raises(Refused, match=sentence), memory.reserve_memory(needed, lambda _: 0, "Occlusion", device=device):
        raise AssertionError("it was begun")


def test_work_on_a_gpu_takes_the_memory_of_the_gpu(
    held: Callable[[int], None], gpu: Callable[..., torch.device]
) -> None:
    """What is more than this machine's memory runs where the GPU has it; of this machine it takes its results alone."""
    device, needed = gpu(12_000), 2_800 * MB  # BERT-large with gradients, 510 tokens
    no_room(needed, torch.device("cpu"), "would take about 2,800 MB of memory, and 1,000 MB of the 1,000 MB")
    with memory.reserve_memory(needed, lambda _: 0, device=device):
        assert memory._running_on_gpu == [needed] and memory._running == [needed // 3]
    assert not memory._running and not memory._running_on_gpu
    held(900)
    no_room(needed, device, "would take about 933 MB of memory, and 100 MB of the 1,000 MB")


def test_work_that_a_gpu_has_no_room_for_is_refused(
    held: Callable[[int], None], gpu: Callable[..., torch.device]
) -> None:
    """Beside what already runs there; what the allocator of PyTorch keeps of freed tensors counts as free."""
    needed, sentence = 300 * MB, "Occlusion would take about {} MB of the memory of the GPU, and {} MB are free: take a"
    no_room(needed, gpu(200), sentence.format(300, 200))
    no_room(needed, gpu(200, 5_000, 4_950), sentence.format(300, 250))
    with memory.reserve_memory(needed, lambda _: 0, device=gpu(200, 5_000, 4_600)):
        no_room(needed + MB, gpu(600), sentence.format(301, 300))


def test_models_on_a_gpu_take_half_of_it_and_none_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, gpu: Callable[..., torch.device]
) -> None:
    """The bound of texts and results does not grow with models that are not in the memory of this machine."""
    for name in (memory.SETTING, memory.MODEL_SETTING):
        monkeypatch.delenv(name, raising=False)
    device = gpu(12_000)
    monkeypatch.setattr(memory, "model_device", lambda: device)
    monkeypatch.setattr(memory, "MODELS", SimpleNamespace(nbytes=1400 * MB))
    monkeypatch.setattr(memory, "resident_bytes", lambda: 600 * MB)
    monkeypatch.setattr(memory, "machine_memory", lambda: 64 << 30)
    assert memory.model_limit() == 8_000 * MB
    assert memory.memory_limit() == (600 + 2048) * MB
    monkeypatch.setenv(memory.MODEL_SETTING, "2.5")
    assert memory.model_limit() == 5 << 29


def test_memory_on_mps_is_what_the_system_recommends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tensors hold is not free, and no number is negative."""
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 1000)
    for held, free in ((300, 700), (1200, 0)):
        monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda held=held: held)
        assert free_bytes(torch.device("mps")) == free
    assert gpu_bytes(torch.device("mps")) == 1000


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB, max allowed: 9.07 GB)."), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes."), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_an_error_that_says_that_memory_ran_out_is_known(error: Exception, lacks: bool) -> None:
    """Python's, PyTorch's of each device, and those of the libraries of a GPU; an error of another kind is a bug."""
    assert lacks_memory(error) is lacks


@pytest.mark.parametrize("setting", ["HEADLIGHT_MEMORY", "HEADLIGHT_MODEL_MEMORY"])
def test_a_setting_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """The sentence says what was given; a size is taken as it is."""
    limit = {memory.SETTING: memory.memory_limit, memory.MODEL_SETTING: memory.model_limit}[setting]
    for wrong in ("much", "-1", "0", "nan", "inf"):
        monkeypatch.setenv(setting, wrong)
        with pytest.raises(Refused, match=f"{setting} is '{wrong}'"):
            limit()
    monkeypatch.setenv(setting, "1.5")
    assert limit() == 3 << 29


@pytest.mark.parametrize(
    ("line", "place", "unlimited"),
    [
        ("0::/a/b", "memory.max", "max"),
        ("0::/", "memory.max", "max"),
        ("4:cpu,memory:/a/b", "memory/memory.limit_in_bytes", "9223372036854771712"),
        ("4:memory:/", "memory/memory.limit_in_bytes", "9223372036854771712"),
    ],
)
def test_a_container_has_less_than_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, place: str, unlimited: str
) -> None:
    """The smallest limit of the groups around the process counts, of version 1 too; one that is none does not."""
    (tmp_path / "own").write_text(f"7:cpu:/c\n{line}\n1:name=systemd:/\n")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    machine = memory.machine_memory()
    own = line.rpartition(":")[2].removeprefix("/")
    for folder in dict.fromkeys(("", own)):
        limit = tmp_path / Path(place).parent / folder / Path(place).name
        limit.parent.mkdir(parents=True, exist_ok=True)
        limit.write_text(f"{unlimited}\n")
        assert memory.machine_memory() == machine
        limit.write_text("1000000\n")
        assert memory.machine_memory() == 1_000_000
        limit.unlink()


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
    with memory.reserve_memory(100 * MB, lambda _: pytest.fail("there is room")):
        pass
    held(2000)
    with memory.reserve_memory(memory.SMALL_WORK, lambda _: pytest.fail("it is small")):
        pass


def test_results_go_before_work_is_refused(held: Callable[[int], None]) -> None:
    """As many as are missing, asked for until there is room; the work then begins."""
    asked: list[int] = []

    def drop(missing: int) -> int:
        asked.append(missing)
        held(900 - 30 * len(asked))  # less than was dropped: the heap has holes
        return missing

    held(900)
    with memory.reserve_memory(150 * MB, drop):
        pass
    assert asked == [50 * MB, 20 * MB]


def test_what_does_not_fit_is_refused_with_numbers(held: Callable[[int], None]) -> None:
    """What it would take, what is free of how much, and what to do; nothing stays held."""
    held(900)
    with pytest.raises(Refused) as caught, memory.reserve_memory(300 * MB, lambda _: 0):
        pytest.fail("there is no room")
    assert str(caught.value) == (
        "this would take about 300 MB of memory, and 100 MB of the 1,000 MB that this server may use are free: take a "
        "shorter text, or try again in a moment"
    )
    held(100)
    with memory.reserve_memory(300 * MB, lambda _: 0):
        pass


def test_what_runs_counts_until_it_is_over(held: Callable[[int], None]) -> None:
    """Two pieces of work that fit alone do not fit together; one that failed is over, too."""
    with (
        memory.reserve_memory(600 * MB, lambda _: 0),
        pytest.raises(Refused),
        memory.reserve_memory(600 * MB, lambda _: 0),
    ):
        pytest.fail("there is no room for both")
    with pytest.raises(ZeroDivisionError), memory.reserve_memory(600 * MB, lambda _: 0):
        1 / 0  # noqa: B018
    with memory.reserve_memory(600 * MB, lambda _: 0):
        pass


def test_a_system_that_says_nothing_refuses_nothing(
    held: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody knows what is resident, work begins."""
    monkeypatch.setattr(memory, "resident_bytes", lambda: None)
    with memory.reserve_memory(1 << 50, lambda _: 0):
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
    assert queue.find("b") is queue.find("c") is None
    assert queue.find("a") is not None and queue.find("nothing") is not None
    assert queue.drop_oldest(1 << 40) == 100


def test_a_text_is_said_to_take_what_it_leaves_and_more(tiny_loaded: LoadedModel) -> None:
    """The estimate is three times what a run keeps without a gradient, three and a half with one."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the blue mat")
    run = capture(tiny_loaded, encoding)
    assert capture_bytes(tiny_loaded, len(encoding)) == 3 * run.attention.nbytes
    assert capture_bytes(tiny_loaded, len(encoding), gradients=True) == 7 * run.attention.nbytes


def test_what_travels_together_is_counted_and_no_more(tiny_loaded: LoadedModel) -> None:
    """Copies count up to those that are read at once; there and back counts all, and words by their number."""
    one = forward_bytes(tiny_loaded, 16, 1)
    assert forward_bytes(tiny_loaded, 16, 5) == 5 * one > 0
    at_once = TOKENS_AT_ONCE // 16
    assert forward_bytes(tiny_loaded, 16, 9 * at_once) == forward_bytes(tiny_loaded, 16, at_once)
    assert forward_bytes(tiny_loaded, 2 * TOKENS_AT_ONCE, 3) == forward_bytes(tiny_loaded, 2 * TOKENS_AT_ONCE, 1)
    assert abs(gradient_bytes(tiny_loaded, 16, 900) - 900 * gradient_bytes(tiny_loaded, 16, 1)) <= 900
    assert mlm_head_bytes(tiny_loaded, 7) == 7 * mlm_head_bytes(tiny_loaded, 1) > 0


@pytest.mark.parametrize("page", ["inside", "prune", "score"])
def test_every_kind_of_large_work_is_refused(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """A walk, a test of what may be pruned and a score take room of their own: the page says so, and stands."""
    monkeypatch.setenv(memory.SETTING, "0.001")
    long = "She opened the door and walked in. " * 40
    drawn = settled(visited(page, **({"sentence_a": long, "sentence_b": long} if page == "score" else {"text": long})))
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
