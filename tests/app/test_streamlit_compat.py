"""viz_app/streamlit_compat.py: one test for each undocumented feature, which fails if a new version changes it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime import Runtime, media_file_manager
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner
from streamlit.runtime.scriptrunner_utils import script_run_context
from streamlit.runtime.state import SafeSessionState
from streamlit.testing.v1 import AppTest

from tests.visit import at
from viz_app import streamlit_compat
from viz_app.streamlit_compat import (
    CONTEXT_LOGGER,
    PAGE_ATTRIBUTES,
    TEST_IDS,
    TESTED_VERSION,
    SessionStateProxy,
    StreamlitPage,
    browser_message_kind,
    count_script_runs,
    finish_session_writes,
    is_in_script_run,
    is_session_active,
    keep_generated_downloads,
    log_untested_version,
    session_id,
    shorten_widget_texts,
)

ROOT = Path(__file__).parents[2]
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


# ---------------------------------------------------------------------------- version


def test_the_tested_version_is_the_pinned_one() -> None:
    """`TESTED_VERSION` is the version in constraints.txt."""
    assert f"streamlit=={TESTED_VERSION}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()


def test_another_version_is_named_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One line names both versions; nothing is logged for the tested one."""
    monkeypatch.setattr(st, "__version__", TESTED_VERSION)
    log_untested_version()
    monkeypatch.setattr(st, "__version__", "1.99.0")
    log_untested_version()
    assert caplog.messages == [f"Headlight is tested with Streamlit {TESTED_VERSION}; this is 1.99.0"]


# ---------------------------------------------------------------------------- the run of a script and its session


def test_nothing_is_known_outside_the_run_of_a_script(caplog: pytest.LogCaptureFixture) -> None:
    """A thread that runs no script has no session, and asking for one logs no warning."""
    assert not is_in_script_run() and session_id() is None and count_script_runs() == 0
    assert not streamlit_compat.is_history_navigation()
    assert streamlit_compat.requested_query() == ""
    assert not caplog.messages


def _record_run() -> None:
    import streamlit

    from viz_app import streamlit_compat

    streamlit.session_state.record = {
        name: getattr(streamlit_compat, name)()
        for name in (
            "is_in_script_run", "session_id", "count_script_runs", "is_history_navigation", "requested_query",
        )
    }  # fmt: skip


def test_a_run_knows_its_session_and_how_it_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session, its thread, whether Back or Forward started it, and the query of the address."""
    run_script = ScriptRunner._run_script

    def go_back(runner: ScriptRunner, data: RerunData) -> None:
        address = {"page_name": "attention", "query_string": "embed=1&text=a"}
        run_script(runner, replace(data, is_history_navigation=True, page_script_hash="", **address))  # type: ignore[arg-type]

    app = AppTest.from_function(_record_run).run()
    record = app.session_state.record
    assert record.pop("session_id") and record.pop("is_in_script_run") and not record["is_history_navigation"]
    monkeypatch.setattr(ScriptRunner, "_run_script", go_back)
    record = app.run().session_state.record
    assert record["is_history_navigation"] and record["requested_query"] == "embed=1&text=a"
    assert record["count_script_runs"] == 1


def _end_run() -> None:
    import streamlit

    from viz_app.streamlit_compat import end_script_run

    try:
        end_script_run()
        streamlit.write("not drawn")
    finally:
        streamlit.session_state.is_ended = True
        streamlit.write("drawn at the end")


def test_an_ended_run_may_use_the_session_while_it_ends() -> None:
    """The rest of the script is not run and no error is shown; what `finally` writes and draws stays."""
    app = AppTest.from_function(_end_run).run()
    assert not app.exception and app.session_state.is_ended
    assert [element.value for element in app.markdown] == ["drawn at the end"]


def test_a_session_is_active_while_its_page_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime is asked for names of sessions only; without a runtime each counts as active."""
    assert is_session_active("session")
    runtime = create_autospec(Runtime, instance=True)
    runtime.is_active_session.side_effect = lambda session: session == "open"
    monkeypatch.setattr(streamlit_compat, "exists", lambda: True)
    monkeypatch.setattr(streamlit_compat, "get_instance", lambda: runtime)
    assert is_session_active("open") and not is_session_active("closed") and is_session_active(None)


def test_the_logger_of_missing_contexts_is_the_one_that_is_silenced() -> None:
    """`headlight lessons check` silences it by this name."""
    assert script_run_context._LOGGER.name == CONTEXT_LOGGER


def test_types_that_streamlit_returns_and_does_not_export() -> None:
    """`st.Page` and `st.session_state` return them."""
    assert isinstance(st.Page(lambda: None, title="Page", url_path="page"), StreamlitPage)
    assert isinstance(st.session_state, SessionStateProxy)


# ---------------------------------------------------------------------------- messages of a browser and its page


def test_messages_of_a_browser_are_told_apart() -> None:
    """The kind of a message is the name of its field; what is no message has none."""
    kinds = [BackMsg(clear_cache=True), BackMsg(rerun_script={"query_string": "a=1"}), BackMsg(stop_script=True)]
    assert [browser_message_kind(message.SerializeToString()) for message in kinds] == [
        "clear_cache", "rerun_script", "stop_script",
    ]  # fmt: skip
    assert browser_message_kind(b"\xff\xff") is None


def test_texts_of_widgets_are_shortened() -> None:
    """Longer texts are cut to the given number of characters; all else stays."""
    message = BackMsg()
    message.rerun_script.widget_states.widgets.add(id="long", string_value="x" * 9)
    message.rerun_script.widget_states.widgets.add(id="short", string_value="abc")
    shortened = BackMsg.FromString(shorten_widget_texts(message.SerializeToString(), 5))
    assert [widget.string_value for widget in shortened.rerun_script.widget_states.widgets] == ["xxxxx", "abc"]


def _selected(pattern: str) -> set[str]:
    files = [path for ending in ("css", "js") for path in (ROOT / "viz_app").rglob(f"*.{ending}")]
    return {match for path in files for match in re.findall(pattern, path.read_text("utf-8"))}


def test_the_elements_that_are_selected_are_those_of_the_list() -> None:
    """Every `data-testid` in a style sheet or script is in TEST_IDS, and the reverse; so are the attributes."""
    assert _selected(r"""data-testid=\\?["']?([\w-]+)""") == TEST_IDS
    prefixes = _selected(r"""data-testid\^=["']?([\w-]+)""")
    assert all(any(name.startswith(prefix) for name in TEST_IDS) for prefix in prefixes)
    attributes = _selected(r"(data-test-[\w-]+|data-collapsed)")
    if "testScriptState" in _selected(r"dataset\.(\w+)"):
        attributes.add("data-test-script-state")
    assert attributes == set(PAGE_ATTRIBUTES)


def test_streamlit_still_writes_the_elements_and_attributes() -> None:
    """Each name is in the scripts of the installed Streamlit, the kind of a button as the end of a prefix.

    tests/browser/test_streamlit_page.py finds each in a page.
    """
    folder = Path(st.__file__).parent / "static"
    scripts = "\n".join(path.read_text("utf-8") for path in folder.rglob("*.js"))
    names = {*TEST_IDS, *PAGE_ATTRIBUTES, "history.pushState"}
    missing = {name for name in names if name not in scripts and name.rpartition("-")[0] + "-${" not in scripts}
    assert not missing


# ---------------------------------------------------------------------------- what the tests themselves use


def test_a_new_session_reads_the_metadata_of_packages_by_the_function_that_tests_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tests/app/conftest.py replaces `manifest_scanner.scan_component_manifests`."""
    calls: list[None] = []
    scan = manifest_scanner.scan_component_manifests

    def count(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return scan(*arguments, **options)

    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", count)
    AppTest.from_function(_record_run).run()
    assert calls


def _two_pages() -> None:
    import streamlit

    def second() -> None:
        streamlit.write("the second page")

    first = streamlit.Page(lambda: streamlit.write("the first page"), title="First", url_path="first", default=True)
    streamlit.navigation([first, streamlit.Page(second, title="Second", url_path="second")]).run()


def test_a_test_opens_a_page_by_its_path() -> None:
    """`tests.visit.at` sets the page of the first run by the hash of its path, as a link to it does."""
    app = at(AppTest.from_function(_two_pages), "second").run()
    assert [element.value for element in app.markdown] == ["the second page"]
