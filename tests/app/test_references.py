"""The reference documents that scripts in docs/ write are those of today's declarations."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("script", ["make_cli", "make_glossary", "make_url_parameters"])
def test_a_reference_is_made_of_the_declarations(script: str) -> None:
    """The committed document is what its script writes today."""
    spec = importlib.util.spec_from_file_location(script, DOCS / f"{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.DOCUMENT.read_text("utf-8") == module.document()
