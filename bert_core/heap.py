"""Memory of the host: what is available, and what the C library holds after the program has freed it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def release_freed_memory() -> None:
    """Return freed memory to the operating system, if the C library supports it."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None:
            trim(0)


def available_bytes() -> int | None:
    """Return the memory of the host that is available for new data, in bytes; None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # the file exists only on Linux
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
