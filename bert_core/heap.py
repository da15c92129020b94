"""What the C library keeps of freed memory."""

from __future__ import annotations

import ctypes
import sys


def release_freed_memory() -> None:
    """Give freed memory back to the system, where the C library can; what is in use stays."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
        if trim is not None:
            trim(0)
