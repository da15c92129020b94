"""Temporary folders that are removed with their server, or by the next server if theirs was killed.

A server holds a lock in each of its folders, which the system releases however the process ends. A process number would
not do: other containers have their own numbers, and numbers are reused.
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
    """A temporary folder that no other server removes while this process runs.

    path: a folder in it, which does not exist yet.
    """

    def __init__(self) -> None:
        self._whole = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path = self._whole / "index"
        self._lock = FileLock(self._whole / LOCK, thread_local=False)  # whoever removes it is another thread
        self._lock.acquire(timeout=0)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        self._lock.release()  # an open file cannot be removed everywhere
        shutil.rmtree(self._whole, ignore_errors=True)


def remove_abandoned_folders() -> None:
    """Remove this user's folders of servers that no longer run; links are not followed."""
    for folder in Path(tempfile.gettempdir()).glob(NAME):
        with suppress(OSError, Timeout):
            if _is_locked_folder(folder):
                lock = FileLock(folder / LOCK)
                lock.acquire(timeout=0)
                lock.release()
                shutil.rmtree(folder, ignore_errors=True)


def _is_locked_folder(folder: Path) -> bool:
    """Whether a server of this user made it, and not just now. Raises OSError for a folder without a lock."""
    folder_stat, lock = folder.lstat(), (folder / LOCK).lstat()
    is_mine = not hasattr(os, "getuid") or folder_stat.st_uid == lock.st_uid == os.getuid()
    is_it = stat.S_ISDIR(folder_stat.st_mode) and stat.S_ISREG(lock.st_mode)
    return is_mine and is_it and time.time() - lock.st_mtime > LOCK_GRACE_SECONDS
