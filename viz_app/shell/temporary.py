"""Temporary folders that go with their server; what one that was killed left behind goes when another begins.

A server holds a lock in each of its folders, of which the system lets go however the process ends. The number of a
process would not say it: another container counts anew, and a number may be another's by then.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = "headlight-index-"
NAME = PREFIX + "????????"  # as `tempfile.mkdtemp` ends it
LOCK = "headlight.lock"
LOCK_GRACE_SECONDS = 60.0  # seconds in which a lock may be there and not be held yet


class LockedFolder:
    """A temporary folder that no other server removes while this one lives. path: of a folder inside, not made yet."""

    def __init__(self) -> None:
        self._whole = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path = self._whole / "index"
        self._lock = FileLock(self._whole / LOCK, thread_local=False)  # whoever removes it is another thread
        self._lock.acquire(timeout=0)

    def remove(self) -> None:
        """Remove the folder with what is in it."""
        self._lock.release()  # an open file cannot be removed everywhere
        shutil.rmtree(self._whole, ignore_errors=True)


def remove_abandoned_folders() -> None:
    """Remove the folders of servers that live no more: those of this user, and nothing that a link leads to."""
    for folder in Path(tempfile.gettempdir()).glob(NAME):
        with suppress(OSError, Timeout):
            if _is_locked_folder(folder):
                lock = FileLock(folder / LOCK)
                lock.acquire(timeout=0)
                lock.release()
                shutil.rmtree(folder, ignore_errors=True)


def _is_locked_folder(folder: Path) -> bool:
    """Whether a server of this user made it, and not just now. Raises OSError for a folder without a lock."""
    about, lock = folder.lstat(), (folder / LOCK).lstat()
    is_mine = not hasattr(os, "getuid") or about.st_uid == lock.st_uid == os.getuid()
    is_it = stat.S_ISDIR(about.st_mode) and stat.S_ISREG(lock.st_mode)
    return is_mine and is_it and time.time() - lock.st_mtime > LOCK_GRACE_SECONDS
