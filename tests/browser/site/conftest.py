"""A site of a tiny model in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bert_core
from bert_core import LoadedModel
from tests.browser.static_site import StaticSite, serve_site
from tests.conftest import built_once
from viz_app.site.build import build_site


@pytest.fixture(scope="session")
def tiny_exported(tiny_loaded: LoadedModel) -> Path:
    """The tiny model as a graph with gradients."""
    return built_once("tiny-onnx", lambda folder: bert_core.export_onnx(tiny_loaded, folder, gradients=True))


@pytest.fixture(scope="session")
def site(tiny_loaded: LoadedModel, tiny_exported: Path) -> Path:
    """A site of the tiny model."""
    return built_once("tiny-site", lambda folder: build_site(tiny_loaded, folder, exported=tiny_exported))


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[StaticSite]:
    """A server of the site."""
    with serve_site(site) as server:
        yield server
