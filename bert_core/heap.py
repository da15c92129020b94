"""Memory that the C library holds after the program has freed it."""

from __future__ import annotations

import ctypes
import sys


def release_freed_memory() -> None:
    """Return freed memory to the operating system, if the C library supports it."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None:
            trim(0)
