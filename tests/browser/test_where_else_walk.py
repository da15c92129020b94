"""Where else in a corpus of one's own, as a person walks it: a file, its cost, its index, a match, and gone again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled

CORPUS = b"The old king saw a red door.\nA queen went to Paris. Her cat stayed at home.\n"


@pytest.mark.smoke
def test_a_corpus_is_brought_searched_and_taken_away(app: str, page: Page) -> None:
    """What it costs is said before anything is made; then the nearest token stands there, and a way to be rid of it."""
    opened(page, app, "layers", layers_view="elsewhere", text="The old cat sat.", query_position="3")
    expect(page.get_by_text("No corpus yet.")).to_be_visible()
    page.locator("input[type=file]").set_input_files({
        "name": "mine.txt", "mimeType": "text/plain", "buffer": CORPUS,
    })  # fmt: skip
    go = page.get_by_role("button", name="Index it")
    expect(go).to_be_visible()
    expect(page.get_by_text(re.compile(r"mine\.txt has 26 tokens\. Their index takes \d+ MB"))).to_be_visible()
    expect(page.get_by_test_id("stDataFrame")).to_have_count(0)
    go.click()
    away = page.get_by_role("button", name="mine.txt (26 tokens)")
    expect(away).to_be_visible()
    settled(page)
    # The table is drawn on a canvas, which holds its lines for those who cannot see it.
    listed = page.locator(".st-key-elsewhere_listed canvas[data-testid=data-grid-canvas]")
    first = listed.locator("tbody tr").first
    expect(first).to_contain_text("cat")
    expect(first).to_contain_text("mine.txt:2")
    away.click()
    expect(page.get_by_text("No corpus yet.")).to_be_visible()
    expect(page.get_by_test_id("stDataFrame")).to_have_count(0)
    assert [problem for problem in page.problems if "404" not in problem] == []
