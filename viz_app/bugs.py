"""What goes into a report of a bug: versions, and never what a reader typed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from bert_core import __version__

NO_MEMORY = "there is not enough memory for this: take a shorter text, fewer of them, or a smaller model"
REPORTED_PACKAGES = ("torch", "numpy", "tokenizers", "streamlit")


# Parts of messages of errors that have no type of their own, of PyTorch and of the libraries of a GPU: where PyTorch
# holds all memory of the GPU, cuBLAS cannot make its handle, or finds no room for its workspace.
_MEMORY_MESSAGES = (
    "out of memory", "can't allocate memory", "not enough memory", "_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED",
    "cudaErrorMemoryAllocation", "OutOfMemory", "bad_alloc",
)  # fmt: skip


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, of the host or of a GPU: Python's, NumPy's, or PyTorch's."""
    message = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(part in message for part in _MEMORY_MESSAGES)
    )


def versions() -> str:
    """Headlight and what it stands on, as "Headlight 0.2.0, Python 3.11.4, torch 2.13.0, ..."."""
    found = [f"Headlight {__version__}", f"Python {platform.python_version()}"]
    for name in REPORTED_PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # run from its files, without a record of the installation
            continue
    return ", ".join(found)
