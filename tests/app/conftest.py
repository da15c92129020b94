"""What every test without a browser starts from."""

from __future__ import annotations

import pytest

from viz_app.figures import style
from viz_app.shell import work


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is slow, not wrong: a page waits longer for its work, as nothing here brings it back by itself."""
    monkeypatch.setattr(work, "PATIENCE", 60.0)


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure that a test draws is one that plotly knows."""
    monkeypatch.setattr(style, "CHECKED", True)
