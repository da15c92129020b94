"""Tables to which programs and installed packages can add rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from threading import RLock
from types import MappingProxyType
from typing import TypeVar

logger = logging.getLogger(__name__)

ENTRY_POINTS = "headlight.task_heads"  # group of entry points of installed packages that add rows
Row = TypeVar("Row")
_lock = RLock()
_state = {"started": False, "done": False}


class Table(Mapping[str, Row]):
    """A read-only mapping. The first read of any table first calls the entry points of installed packages.

    Importing this module does not call them, because these packages import this library themselves.
    """

    def __init__(self, rows: dict[str, Row]) -> None:
        """rows: the rows, which are not copied, so that their owner can add some later."""
        self._rows = rows

    @property
    def present(self) -> Mapping[str, Row]:
        """The rows at present, read without importing the installed packages that could add more."""
        return MappingProxyType(self._rows)

    def __getitem__(self, name: str) -> Row:
        add_installed_rows()
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        add_installed_rows()
        return iter(self._rows)

    def __len__(self) -> int:
        add_installed_rows()
        return len(self._rows)


def add_installed_rows() -> None:
    """Call the function of each entry point of the group `ENTRY_POINTS`, without arguments, once in a process.

    A function that fails is logged as a warning and skipped, so that a faulty package does not prevent loading models.
    """
    if _state["done"]:
        return
    with _lock:  # other threads wait for complete tables, and the called functions may read tables themselves
        if _state["started"]:
            return
        _state["started"] = True
        for entry_point in entry_points(group=ENTRY_POINTS):
            try:
                entry_point.load()()
            except Exception:
                logger.warning("the entry point %s failed and added no task head", entry_point.value, exc_info=True)
        _state["done"] = True
