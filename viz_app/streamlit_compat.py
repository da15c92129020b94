"""Behaviour of Streamlit that Headlight changes through undocumented parts; each change has a test."""

from __future__ import annotations

from streamlit.runtime.media_file_manager import MediaFileManager

_execute_deferred = MediaFileManager.execute_deferred


def keep_generated_downloads() -> None:
    """Keep a file that a download button generated until the next run of its session.

    Streamlit deletes a generated file once two runs of any session have ended after the click. With several visitors
    this may happen before the browser has fetched the file, and the download fails with status 404.
    """
    MediaFileManager.execute_deferred = _execute_and_reference  # type: ignore[assignment, method-assign]


def _execute_and_reference(manager: MediaFileManager, file_id: str) -> str:
    entry = manager._deferred_callables.get(file_id)
    url = _execute_deferred(manager, file_id)
    if entry is not None:
        generated_id = url.rpartition("/")[2].partition(".")[0]
        with manager._lock:
            if generated_id in manager._file_metadata:
                references = manager._files_by_session_and_coord[entry["session_id"]]
                references[f"generated from {file_id}"] = generated_id
    return url
