"""Temporary folders that are removed with their server, or at the start of the next one if it was killed.

A server holds a lock in each of its folders, which the system releases when the process ends. Process numbers would
not do: they are not unique between containers, and are reused.
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
NAME = PREFIX + "????????"  # the pattern of `tempfile.mkdtemp`
LOCK = "headlight.lock"
LOCK_GRACE_SECONDS = 60.0  # age below which a lock may not be held yet


class LockedFolder:
    """A temporary folder that no other server removes while this one runs. path: of a folder inside, to be created."""

    def __init__(self) -> None:
        self._whole = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path = self._whole / "index"
        self._lock = FileLock(self._whole / LOCK, thread_local=False)  # another thread may release it
        self._lock.acquire(timeout=0)

    def remove(self) -> None:
        """Remove the folder and its content."""
        self._lock.release()  # some systems do not remove open files
        shutil.rmtree(self._whole, ignore_errors=True)


def remove_abandoned_folders() -> None:
    """Remove the folders of servers of this user that have ended; links are not followed."""
    for folder in Path(tempfile.gettempdir()).glob(NAME):
        with suppress(OSError, Timeout):
            if _is_locked_folder(folder):
                lock = FileLock(folder / LOCK)
                lock.acquire(timeout=0)
                lock.release()
                shutil.rmtree(folder, ignore_errors=True)


def _is_locked_folder(folder: Path) -> bool:
    """Return whether a server of this user made a folder, before the grace period. Raises OSError without a lock."""
    info, lock = folder.lstat(), (folder / LOCK).lstat()
    is_own = not hasattr(os, "getuid") or info.st_uid == lock.st_uid == os.getuid()
    has_types = stat.S_ISDIR(info.st_mode) and stat.S_ISREG(lock.st_mode)
    return is_own and has_types and time.time() - lock.st_mtime > LOCK_GRACE_SECONDS
