"""How much memory this server may use, and how room is made before a piece of work would take more.

What counts is what is resident: the settings of glibc under which the app is started keep what is freed, so that it is
given back to the system first; then results that are kept for who asks again go, and only then is work refused.
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

from bert_core.heap import release_freed_memory
from bert_core.refused import Refused

SETTING = "HEADLIGHT_MEMORY"  # GB that this server may use in all
ABOVE = 2 << 30  # bytes above what is resident when the first text is read: Python, the packages and a model
SHARE = 0.6  # of the memory of the machine
LEAST = 1 << 28  # bytes above what is resident then, that the smallest machine gives too
SMALL = 1 << 24  # bytes: what takes no more is never refused
CGROUPS = Path("/sys/fs/cgroup")

_lock = threading.Lock()
_running: list[int] = []  # what the work that runs now may take


@contextmanager
def room_for(needed: int, drop: Callable[[int], int], what: str = "this") -> Iterator[None]:
    """Hold room for so many bytes while a piece of work runs. what: its name, as the beginning of a sentence.

    drop: drops results that are kept, the oldest first, until they held so many bytes, and returns how many they held.
    Raises Refused, with what the work would take and what is free, if there is no room without them either.
    """
    if needed > SMALL:
        with _lock:
            if _missing(needed) > 0:
                release_freed_memory()
            while (missing := _missing(needed)) > 0 and drop(missing):
                release_freed_memory()
            if missing > 0:
                takes, free, of = map(_megabytes, (needed, needed - missing, most()))
                raise Refused(
                    f"{what} would take about {takes} of memory, and {free} of the {of} that this server may use are "
                    "free: take a shorter text, or try again in a moment"
                )
            _running.append(needed)
    try:
        yield
    finally:
        if needed > SMALL:
            with _lock:
                _running.remove(needed)


def _missing(needed: int) -> int:
    """How many bytes are missing to so many more; what runs now counts whole, however much of it is resident yet."""
    held = resident()
    return 0 if held is None else held + sum(_running) + needed - most()


def _megabytes(count: int) -> str:
    return f"{max(count, 0) / 2**20:,.0f} MB"


@cache
def most() -> int:
    """The bytes that may be resident; decided when it is first asked, which is when a model is there to read a text.

    Raises Refused for a setting that is no number above 0.
    """
    if given := os.environ.get(SETTING):
        try:
            gigabytes = float(given)
        except ValueError:
            gigabytes = 0.0
        if not 0 < gigabytes < float("inf"):
            raise Refused(f"{SETTING} is {given!r}: it must be a number of GB above 0")
        return int(gigabytes * 2**30)
    held = resident() or 0
    return max(min(held + ABOVE, int(SHARE * whole())), held + LEAST)


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux
        pass
    try:  # what `getrusage` knows elsewhere is the most there ever was, which never falls again
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
        return int(said.stdout) * 1024
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def whole() -> int:
    """Bytes of memory of this machine, or of the container that it is."""
    limits = []
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min([*limits, *_limits_of_groups()], default=sys.maxsize)


def _limits_of_groups() -> Iterator[int]:
    """The limits of the control groups (v2) around this process, from the innermost."""
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:  # no Linux
        return
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    for group in (CGROUPS / own, *(CGROUPS / own).parents):
        try:
            limit = (group / "memory.max").read_text("ascii").strip()
        except OSError:
            continue
        if limit != "max":
            yield int(limit)
