"""Tables to which programs and installed packages add rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from threading import RLock
from types import MappingProxyType
from typing import TypeVar

logger = logging.getLogger(__name__)

ENTRY_POINTS = "headlight.task_heads"  # group of the entry points with which installed packages add rows
Row = TypeVar("Row")
_lock = RLock()
_state = {"begun": False, "done": False}


class Table(Mapping[str, Row]):
    """A mapping that cannot be written. Before the first read of any table, installed packages add their rows.

    Not when a module is imported: the packages import this one, so at that moment one of both would be incomplete.
    """

    def __init__(self, rows: dict[str, Row]) -> None:
        """rows: not copied, so that its owner can add some."""
        self._rows = rows

    @property
    def present(self) -> Mapping[str, Row]:
        """The rows that are there now: installed packages are not asked to add theirs, which would import them."""
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
    """Call each entry point of the group `ENTRY_POINTS`, a function without arguments, once in a process.

    One that fails is logged as a warning and skipped: a package at fault must not keep models from being loaded.
    """
    if _state["done"]:
        return
    with _lock:  # other threads wait until the tables are complete; the functions themselves read tables, too
        if _state["begun"]:
            return
        _state["begun"] = True
        for entry_point in entry_points(group=ENTRY_POINTS):
            try:
                entry_point.load()()
            except Exception:
                logger.warning("the entry point %s added no task head", entry_point.value, exc_info=True)
        _state["done"] = True
