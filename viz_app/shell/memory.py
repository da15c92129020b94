"""Limits on the memory of the server, and their enforcement before a computation starts.

Models have a limit of their own (`model_limit`), so that results and models do not displace each other. All other
computations are limited by the resident memory. If there is too little, memory that was freed but not returned to the
system is released first, then cached results are dropped, and finally the computation is refused. Computations on a
GPU need GPU memory, and memory of this machine for their results only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from bert_core.heap import release_freed_memory
from bert_core.loading import best_device
from bert_core.refused import Refused
from bert_core.run.memory import free_bytes, gpu_bytes
from viz_app.shell.model_cache import ModelCache

CPU = torch.device("cpu")
DEVICE_SETTING = "HEADLIGHT_DEVICE"  # device of the models
SETTING = "HEADLIGHT_MEMORY"  # limit of the server in GB
MODEL_SETTING = "HEADLIGHT_MODEL_MEMORY"  # limit of its models in GB
RESULT_MEMORY = 2 << 30  # bytes for texts and results, in addition to Python, the packages and the models
SHARE = 0.6  # of the memory of the machine
MIN_RESULT_MEMORY = 1 << 28  # minimum of RESULT_MEMORY on a small machine
MODEL_SHARE = 0.5  # of the limit of the server
SMALL_WORK = 1 << 24  # bytes; smaller computations are never refused
RESULT_SHARE = 1 / 3  # upper bound of the share of the result in the memory of a computation: see `capture_bytes`
CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")

_lock = threading.Lock()
_running: list[int] = []  # bytes reserved by running computations in the memory of this machine
_running_on_gpu: list[int] = []  # and in that of the GPU


@contextmanager
def reserve_memory(
    nbytes: int, drop: Callable[[int], int], label: str = "this", *, device: torch.device = CPU
) -> Iterator[None]:
    """Reserve memory for a computation while the context is active.

    nbytes: bytes that it needs. drop: drops cached results, the oldest first, until they held the given number of
    bytes, and returns how many bytes they held. label: name of the computation, as the beginning of a sentence.
    device: where it runs; on a GPU only its results take memory of this machine.
    Raises Refused, with the needed and the free memory, if dropping results does not free enough.
    """
    if nbytes <= SMALL_WORK:
        yield
        return
    machine_bytes = nbytes if device.type == "cpu" else int(RESULT_SHARE * nbytes)
    gpu_needed = 0 if device.type == "cpu" else nbytes
    with _lock:
        free_on_gpu = free_bytes(device) if gpu_needed else None
        if free_on_gpu is not None and gpu_needed > (free_on_gpu := free_on_gpu - sum(_running_on_gpu)):
            raise Refused(
                f"{label} would take about {_megabytes(gpu_needed)} of the memory of the GPU, and "
                f"{_megabytes(free_on_gpu)} are free: take a shorter text, or try again in a moment"
            )
        if _missing(machine_bytes) > 0:
            release_freed_memory()
        while (missing := _missing(machine_bytes)) > 0 and drop(missing):
            release_freed_memory()
        if missing > 0:
            free, limit = machine_bytes - missing, memory_limit()
            raise Refused(
                f"{label} would take about {_megabytes(machine_bytes)} of memory, and {_megabytes(free)} of the "
                f"{_megabytes(limit)} that this server may use are free: take a shorter text, or try again in a moment"
            )
        _running.append(machine_bytes)
        _running_on_gpu.append(gpu_needed)
    try:
        yield
    finally:
        with _lock:
            _running.remove(machine_bytes)
            _running_on_gpu.remove(gpu_needed)


def _missing(nbytes: int) -> int:
    """Return how many bytes are missing for a computation; running ones count with all the bytes they reserved."""
    current_bytes = resident_bytes()
    return 0 if current_bytes is None else current_bytes + sum(_running) + nbytes - memory_limit()


def _megabytes(count: int) -> str:
    return f"{max(count, 0) / 2**20:,.0f} MB"


def memory_limit() -> int:
    """Return the maximum number of resident bytes, which increases with the models that are loaded.

    Raises Refused for a setting that is not a number above 0.
    """
    if (setting := _setting(SETTING)) is not None:
        return setting
    current_bytes = base_resident_bytes() + resident_model_bytes()
    return max(min(current_bytes + RESULT_MEMORY, int(SHARE * machine_memory())), current_bytes + MIN_RESULT_MEMORY)


def model_limit() -> int:
    """Return the maximum number of bytes of all models: by default half of the limit of the server, or of the GPU.

    Raises Refused for a setting that is not a number above 0.
    """
    if (setting := _setting(MODEL_SETTING)) is not None:
        return setting
    if (device := model_device()).type != "cpu":
        return int(MODEL_SHARE * gpu_bytes(device))
    if (in_all := _setting(SETTING)) is None:
        machine = machine_memory()
        in_all = 2 * RESULT_MEMORY if machine == sys.maxsize else int(SHARE * machine)
    return int(MODEL_SHARE * in_all)


MODELS = ModelCache(model_limit)  # the models of this server


def model_device() -> torch.device:
    """Return the device of the models of this server. Raises Refused for a device that this machine does not have."""
    return best_device(os.environ.get(DEVICE_SETTING))


def resident_model_bytes() -> int:
    """Return the bytes of the models in the memory of this machine, which is 0 if they are on a GPU."""
    return MODELS.nbytes if model_device().type == "cpu" else 0


@cache
def base_resident_bytes() -> int:
    """Return the resident bytes without models at the first call, which are those of Python and the packages."""
    return max((resident_bytes() or 0) - resident_model_bytes(), 0)


def _setting(name: str) -> int | None:
    """Return the bytes that an environment variable states in GB; None if it is not set.

    Raises Refused for a value that is not a number above 0.
    """
    setting = os.environ.get(name)
    if not setting:
        return None
    try:
        gigabytes = float(setting)
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < float("inf"):
        raise Refused(f"{name} is {setting!r}: it must be a number of GB above 0")
    return int(gigabytes * 2**30)


def resident_bytes() -> int | None:
    """Return the resident bytes of this process; None if the operating system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux
        pass
    try:  # `getrusage` reports the maximum since the start of the process only
        process = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True
        )
        return int(process.stdout) * 1024
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def machine_memory() -> int:
    """Return the bytes of memory of this machine or container."""
    limits = []
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min([*limits, *_control_group_limits()], default=sys.maxsize)


def _control_group_limits() -> Iterator[int]:
    """Yield the memory limits of the control groups (version 1 and 2) of this process, the innermost first."""
    try:
        lines = OWN_GROUPS.read_text("utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, group_path = line.split(":", 2)
        if not controllers:
            root, file = CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        innermost = root / group_path.removeprefix("/")
        for group in (innermost, *innermost.parents):
            try:
                limit = (group / file).read_text("ascii").strip()
            except OSError:
                continue
            if limit != "max":
                yield int(limit)
