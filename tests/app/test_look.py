"""The look of a run: figures and components follow it, fragments keep it, and threads and files do not share it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from viz_app.components.head_grid import grid_message
from viz_app.export.drawing import empty_figure
from viz_app.export.files import Files
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import DARK_PAGE, LIGHT_PAGE, Look, current_look, use_look
from viz_app.shell import downloads, frame

DARK = Look(dark=True, lecture=True)


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)


def background_and_size() -> tuple[str, int]:
    layout = prediction_bars(["mat"], [0.5]).layout.template.layout
    return layout.paper_bgcolor, layout.font.size


def test_figures_and_components_follow_the_look() -> None:
    """Colours, sizes of type and the flag of a component are those of the look inside, and the earlier ones after."""
    with use_look(DARK):
        assert background_and_size() == (DARK_PAGE.background, 20)
        assert b'"lecture":true' in grid_message(layers=1, heads=1).replace(b" ", b"")
        with use_look(Look(dark=True)):
            assert background_and_size() == (DARK_PAGE.background, 14)
        assert current_look() == DARK
    assert background_and_size() == (LIGHT_PAGE.background, 14)
    assert b'"lecture":false' in grid_message(layers=1, heads=1).replace(b" ", b"")


def test_the_look_is_reset_after_an_error() -> None:
    """A run that fails leaves the look as it was."""
    with pytest.raises(KeyError), use_look(DARK):
        raise KeyError
    assert current_look() == Look()


def test_sessions_do_not_share_a_look() -> None:
    """While one thread draws dark, another draws with its own look, and a third with that of a light page."""
    looks: dict[str, Look] = {}
    waiting, done = threading.Event(), threading.Event()

    def dark_session() -> None:
        with use_look(DARK):
            waiting.set()
            done.wait(60)
            looks["dark"] = current_look()

    def lecture_session() -> None:
        with use_look(Look(lecture=True)):
            looks["lecture"] = current_look()

    dark = threading.Thread(target=dark_session)
    dark.start()
    waiting.wait(60)
    in_thread(lecture_session)
    in_thread(lambda: looks.update(job=current_look()))
    done.set()
    dark.join(60)
    assert looks == {"dark": DARK, "lecture": Look(lecture=True), "job": Look()}


def test_a_fragment_has_the_look_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it runs in a thread of its own, and as the session's look is then."""
    session_look, looks = DARK, []
    monkeypatch.setattr(frame.st, "fragment", lambda draw, *, run_every: draw)
    monkeypatch.setattr(frame, "session_look", lambda: session_look)

    @frame.fragment
    def draw(label: str) -> None:
        looks.append((label, current_look()))

    in_thread(lambda: draw("first"))
    session_look = Look(lecture=True)
    in_thread(lambda: draw("second"))
    assert looks == [("first", DARK), ("second", Look(lecture=True))]


def test_downloads_are_light_on_a_dark_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for a paper has a light page, whether it is made in the run that draws the button or after the click."""

    class OnePicture:
        def picture(self) -> Any:
            return empty_figure(1, 1)[0]

    made: list[bytes] = []
    files: Callable[[], Files] = OnePicture  # type: ignore[assignment]
    with use_look(DARK):
        made.append(downloads._file(files, "png"))
    in_thread(lambda: made.append(downloads._file(files, "png")))
    assert made[0] == made[1]
