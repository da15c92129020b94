"""What every test without a browser starts from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from streamlit.components.v2 import manifest_scanner

from viz_app.figures import style
from viz_app.shell import work


@pytest.fixture(scope="session", autouse=True)
def _packages_are_read_once() -> Iterator[None]:
    """Streamlit reads the metadata of every installed package for each new visitor of a test, which takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is slow, not wrong: a page waits longer for its work, as nothing here brings it back by itself."""
    monkeypatch.setattr(work, "WAIT_BEFORE_PROGRESS", 60.0)


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure that a test draws is one that plotly knows."""
    monkeypatch.setattr(style, "CHECKED", True)
