"""What Headlight changes in Streamlit through its undocumented parts."""

from __future__ import annotations

import pytest
from streamlit.runtime import media_file_manager
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from viz_app.streamlit_compat import keep_generated_downloads

MANAGED = "/media"


@pytest.fixture
def storage() -> MemoryMediaFileStorage:
    return MemoryMediaFileStorage(MANAGED)


@pytest.fixture
def manager(storage: MemoryMediaFileStorage, monkeypatch: pytest.MonkeyPatch) -> MediaFileManager:
    """With one session that shows a download button."""
    monkeypatch.setattr(media_file_manager, "_get_session_id", lambda: "visitor")
    keep_generated_downloads()
    return MediaFileManager(storage)


def test_a_generated_download_stays_while_runs_of_others_end(
    manager: MediaFileManager, storage: MemoryMediaFileStorage
) -> None:
    """The file is there after any number of runs of other sessions, and goes after the next run of its own session."""
    placeholder = manager.add_deferred(lambda: b"a,b\n", "text/csv", "coordinates", "numbers.csv")
    name = manager.execute_deferred(placeholder).removeprefix(f"{MANAGED}/")
    for _ in range(5):
        manager.remove_orphaned_files()
        assert storage.get_file(name).content == b"a,b\n"
    manager.clear_session_refs("visitor")
    for _ in range(2):
        manager.remove_orphaned_files()
    with pytest.raises(MediaFileStorageError, match="Bad filename"):
        storage.get_file(name)


def test_two_downloads_of_one_button_are_both_kept(manager: MediaFileManager, storage: MemoryMediaFileStorage) -> None:
    """Another click that generates another file takes nothing from the first session's other button."""
    contents = {"first": b"1\n", "second": b"2\n"}
    urls = [
        manager.execute_deferred(manager.add_deferred(lambda name=name: contents[name], "text/csv", name))
        for name in contents
    ]
    for _ in range(3):
        manager.remove_orphaned_files()
    assert [storage.get_file(url.removeprefix(f"{MANAGED}/")).content for url in urls] == list(contents.values())
