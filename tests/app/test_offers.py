"""What a server that many share does not do for one of them is said before its button is pressed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bert_core.refused import Refused
from bert_core.run.timing import PassTiming
from tests.visit import settled, visited, words
from viz_app.shell import work

ADDRESS = {"text": "The cat [MASK] on the mat.", "target": "3:sat"}
# What each page offers, and seconds that are too few for it but enough for what it shows unasked.
OFFERS = {"score": ("Score both sentences", 3.0), "prune": ("Test on", 3.0), "why": ("Test the methods", 10.0)}
WHY = "this server is for many: one question may take {:.0f} s"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which a pass over ten tokens takes a fifth of a second."""
    monkeypatch.setattr(work, "measure_timing", lambda loaded: PassTiming(0.0, 0.02, 0.0))
    work._results_of_models.clear()
    yield
    work._results_of_models.clear()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("page", OFFERS)
def test_too_much_for_a_server_of_many_is_said_before(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the button is off, and says why; on a server of one's own it is on."""
    label, limit = OFFERS[page]
    monkeypatch.setattr(work, "MAX_JOB_SECONDS", limit)
    for many in (True, False):
        monkeypatch.setenv("HEADLIGHT_SHARED", "1" if many else "0")
        app = settled(visited(page, **ADDRESS))
        (button,) = (button for button in app.button if button.label.startswith(label))
        assert button.disabled == many
        assert (WHY.format(limit) in f"{button.help}\n{words(app)}") == many
        assert not app.exception and not app.error


def test_what_was_not_offered_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is asked for all the same, by a message that no button sent, is refused; what is known is given."""
    monkeypatch.setenv("HEADLIGHT_SHARED", "1")
    done = []
    too_much = work.Work(("offers", "much"), "much", lambda report: done.append(1), work.MAX_JOB_SECONDS + 1)
    with pytest.raises(Refused, match=WHY.format(600).replace("600 s", "10 min")):
        work.wait_for(too_much)
    assert done == []
    monkeypatch.setenv("HEADLIGHT_SHARED", "0")
    work.wait_for(too_much)
    monkeypatch.setenv("HEADLIGHT_SHARED", "1")
    work.wait_for(too_much)
    assert done == [1]
