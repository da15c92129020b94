"""What goes into a report of a bug: versions, and never what a reader typed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from bert_core import __version__

NO_MEMORY = "there is not enough memory for this: take a shorter text, fewer of them, or a smaller model"
TOLD = ("torch", "numpy", "tokenizers", "streamlit")


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's and NumPy's, or one of PyTorch's, which have no type."""
    said = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("out of memory" in said or "can't allocate memory" in said)
    )


def versions() -> str:
    """Headlight and what it stands on, as "Headlight 0.2.0, Python 3.11.4, torch 2.13.0, ..."."""
    found = [f"Headlight {__version__}", f"Python {platform.python_version()}"]
    for name in TOLD:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # run from its files, without a record of the installation
            continue
    return ", ".join(found)
