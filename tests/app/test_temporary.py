"""Temporary folders of servers: what a killed one left is removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from viz_app.shell import temporary
from viz_app.shell.temporary import LOCK, PREFIX, LockedFolder, remove_abandoned_folders

SERVER = """
from viz_app.shell.temporary import LockedFolder
place = LockedFolder()
place.path.mkdir()
(place.path / "state.npy").write_bytes(b"1")
print(place.path.parent, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made; what is there was not made just now."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "LOCK_GRACE_SECONDS", -1.0)
    return tmp_path


@pytest.fixture
def server(there: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with a folder of its own, as long as nobody kills it."""
    names = ("TMPDIR", "TEMP", "TMP")
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], env={**os.environ, **dict.fromkeys(names, str(there))},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def test_the_folder_of_a_killed_server_goes_and_that_of_a_living_one_stays(server: subprocess.Popen[str]) -> None:
    """One and the same folder: while its process lives, and once it was killed without a word."""
    assert server.stdout is not None
    folder = Path(server.stdout.readline().strip())
    assert (folder / "index" / "state.npy").exists()
    own = LockedFolder()
    remove_abandoned_folders()
    assert (folder / "index" / "state.npy").exists() and own.path.parent.exists()
    server.kill()
    server.wait()
    assert folder.exists(), "killed, it cannot have cleared up itself"
    remove_abandoned_folders()
    assert not folder.exists() and own.path.parent.exists()
    own.remove()
    assert not own.path.parent.exists()


def test_what_no_server_made_stays(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lock, by another name, behind a link, of another user, or made this moment and not yet held."""
    left = there / f"{PREFIX}abcdefgh"
    for folder in (there / f"{PREFIX}of_mine_", there / f"{PREFIX}of-somebody-else", there / "elsewhere", left):
        folder.mkdir()
        (folder / "thesis.txt").write_text("x", "utf-8")
    for folder in (there / f"{PREFIX}of-somebody-else", there / "elsewhere", left):
        (folder / LOCK).touch()
    (there / f"{PREFIX}linked__").symlink_to(there / "elsewhere")
    (there / f"{PREFIX}a_file__").touch()
    before = set(there.rglob("*"))
    with monkeypatch.context() as other:
        other.setattr(temporary, "LOCK_GRACE_SECONDS", 60.0)
        remove_abandoned_folders()
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: os.stat(there).st_uid + 1)
        remove_abandoned_folders()
    assert set(there.rglob("*")) == before
    remove_abandoned_folders()
    assert before - set(there.rglob("*")) == {left, left / LOCK, left / "thesis.txt"}
