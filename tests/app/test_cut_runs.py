"""A run that is ended by what the visitor does next, at whatever moment, leaves no choice half made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
from streamlit.runtime.scriptrunner import RerunData, script_runner
from streamlit.runtime.scriptrunner_utils.exceptions import RerunException

from tests.visit import key_of, visited
from viz_app.shell import view

Cut = Callable[[int], None]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """`cut(n)`: the next run is ended where Streamlit could do so for the n-th time, and another begins."""
    left, data = 0, RerunData()
    possibly_end, run = (
        script_runner.ScriptRunner._maybe_handle_execution_control_request,
        script_runner.ScriptRunner._run_script,
    )

    def begin(runner: script_runner.ScriptRunner, given: RerunData) -> None:
        nonlocal data
        data = given
        run(runner, given)

    def end_here(runner: script_runner.ScriptRunner) -> None:
        nonlocal left
        possibly_end(runner)
        if runner._execing and left:
            left -= 1
            if left == 0:
                raise RerunException(RerunData(data.query_string, None, page_script_hash=data.page_script_hash))

    monkeypatch.setattr(script_runner.ScriptRunner, "_run_script", begin)
    monkeypatch.setattr(script_runner.ScriptRunner, "_maybe_handle_execution_control_request", end_here)

    def at(moment: int) -> None:
        nonlocal left
        left = moment

    return at


@pytest.mark.parametrize("moment", [1, 2, 3, 4, 5, 8, 13, 21, 34, 55])
def test_a_visit_that_is_cut_short_is_one_all_the_same(cut: Cut, moment: int) -> None:
    """The first run of a session ends anywhere, and the next has every choice of the address."""
    cut(moment)
    app = visited("", text="The cat [MASK] on the mat.", pair="It slept.", lecture="1")
    assert not app.exception and not app.error
    state = app.session_state
    assert (state["text"], state["pair"], state["lecture"]) == ("The cat [MASK] on the mat.", "It slept.", True)


@pytest.mark.parametrize("moment", [1, 2, 3, 4, 5, 8, 13, 21, 34])
def test_what_is_typed_is_whole(cut: Cut, moment: int) -> None:
    """A sentence that is typed while another run is cut short is kept; its longest word is masked and explained."""
    app = visited("", text="The cat [MASK] on the mat.", masked="1", target="3:sat")
    cut(moment)
    app.text_input(key=key_of(app, "text")).input("The dog slept.").run()
    assert not app.exception and not app.error
    state = app.session_state
    assert (state["text"], state["masked"], state["target"].partition(":")[0]) == ("The dog slept.", (2,), "3")


def test_a_run_that_was_left_draws_nothing_into_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on for a moment beside the run that took its place: each thread finds the places that it made itself."""
    session: dict[str, object] = {}
    made = iter(range(100))
    monkeypatch.setattr(view, "close_on_narrow_windows", lambda: None)
    monkeypatch.setattr(
        view, "st", MagicMock(session_state=session, container=lambda **_: MagicMock(name=str(next(made))))
    )
    found: dict[str, object] = {}

    def next_run() -> None:
        view.make_view()
        found["next"] = view.page_place("figure")

    def left_run() -> None:
        view.make_view()
        found["left"] = view.page_place("figure")
        other = threading.Thread(target=next_run)
        other.start()
        other.join()
        found["left, later"] = view.page_place("figure")

    def part_of_a_page() -> None:
        found["part"] = view.page_place("figure")

    for run in (left_run, part_of_a_page):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert found["left, later"] is found["left"] is not found["next"]
    assert found["part"] is found["next"], "what runs alone draws into the page that stands"
