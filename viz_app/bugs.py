"""Contents of a bug report: versions, and no text that a user typed."""

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
    """Return whether an error of Python, NumPy or PyTorch states that the host or the GPU has too little memory."""
    message = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(part in message for part in _MEMORY_MESSAGES)
    )


def versions() -> str:
    """Return the versions of Headlight and its dependencies, as "Headlight 0.2.0, Python 3.11.4, ..."."""
    parts = [f"Headlight {__version__}", f"Python {platform.python_version()}"]
    for name in REPORTED_PACKAGES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # run from its files, without a record of the installation
            continue
    return ", ".join(parts)
