"""What Headlight changes in Streamlit through its undocumented parts."""

from __future__ import annotations

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime import media_file_manager
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.state import SafeSessionState

from viz_app.streamlit_compat import finish_session_writes, keep_generated_downloads

MANAGED = "/media"


class Replaced(BaseException):
    """What ends a run that was replaced."""


class SessionValues:
    """What a session holds: the values that its runs have applied, one after another."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.choices: dict[str, int] = {}

    def on_script_will_rerun(self, widget_states: WidgetStates, **_: object) -> None:
        self.applied += [widget.string_value or "click" for widget in widget_states.widgets]

    def __contains__(self, key: str) -> bool:
        return key in self.choices

    def __getitem__(self, key: str) -> int:
        return self.choices[key]

    def __setitem__(self, key: str, value: int) -> None:
        self.choices[key] = value


def replaced_run(values: SessionValues) -> SafeSessionState:
    """The session state as a run sees it that another one has replaced."""

    def end() -> None:
        raise Replaced

    finish_session_writes()
    return SafeSessionState(values, end)  # type: ignore[arg-type]


def test_a_replaced_run_does_not_apply_its_values_after_those_of_its_successor() -> None:
    """Its text is in the message of the next run too, so it ends; the click of a button is not, so it is applied."""
    values, states = SessionValues(), WidgetStates()
    states.widgets.add(id="text", string_value="typed")
    run = replaced_run(values)
    with pytest.raises(Replaced):
        run.on_script_will_rerun(states)
    assert values.applied == []
    states.widgets.add(id="button", trigger_value=True)
    run.on_script_will_rerun(states)
    assert values.applied == ["typed", "click"]


def test_a_session_that_began_before_the_change_is_treated_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of a server creates its session state before it imports the app; a rerun of it uses that."""

    def end() -> None:
        raise Replaced

    values, states = SessionValues(), WidgetStates()
    monkeypatch.delattr(SafeSessionState, "_yield_callback", raising=False)
    run = SafeSessionState(values, end)  # type: ignore[arg-type]
    finish_session_writes()
    with pytest.raises(Replaced):
        run.on_script_will_rerun(states)
    run["layer"] = 2
    assert run["layer"] == 2


def test_a_replaced_run_finishes_its_writes() -> None:
    """Choices that belong together are written together: reading and writing the session ends no run."""
    run = replaced_run(SessionValues())
    run["layer"] = 2
    run["head"] = run["layer"] + 1
    assert (run["layer"], run["head"]) == (2, 3)


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


def test_a_download_for_a_session_that_has_ended_is_not_kept(
    manager: MediaFileManager, storage: MemoryMediaFileStorage
) -> None:
    """Its visitor is gone, so no later run of the session would let the file go."""

    def end_session() -> bytes:
        manager.clear_session_refs("visitor")
        return b"a,b\n"

    url = manager.execute_deferred(manager.add_deferred(end_session, "text/csv", "coordinates"))
    for _ in range(2):
        manager.remove_orphaned_files()
    with pytest.raises(MediaFileStorageError, match="Bad filename"):
        storage.get_file(url.removeprefix(f"{MANAGED}/"))


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
