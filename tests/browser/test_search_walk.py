"""Corpus search as a person walks it: an old link, a match, a corpus of one's own with its cost, and gone again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled

CORPUS = b"The old king saw a red door.\nA queen went to Paris. Her cat stayed at home.\n"


@pytest.mark.smoke
def test_a_corpus_is_uploaded_searched_and_removed(app: str, page: Page) -> None:
    """The bundled sentences first, by an old link; an upload says its cost before anything is made, and is removed."""
    opened(page, app, "layers", layers_view="elsewhere", text="The old cat sat.", query_position="3", masked="")
    expect(page.get_by_role("heading", name="Corpus search")).to_be_visible()
    assert "/search?" in page.url and "layers_view" not in page.url
    # The table is drawn on a canvas, which holds its lines for those who cannot see it.
    first = page.locator("[class*=st-key-matches_] canvas[data-testid=data-grid-canvas] tbody tr").first
    expect(first).to_contain_text("trees.conllu")
    page.get_by_role("button", name="60 sentences").click()
    page.locator("input[type=file]").set_input_files({
        "name": "mine.txt", "mimeType": "text/plain", "buffer": CORPUS,
    })  # fmt: skip
    go = page.get_by_role("button", name="Build the index")
    expect(go).to_be_visible()
    expect(page.get_by_text(re.compile(r"mine\.txt has 26 tokens\. The index needs \d+ MB"))).to_be_visible()
    expect(page.locator("[class*=st-key-matches_]")).to_have_count(0)
    page.keyboard.press("Escape")
    go.click()
    settled(page)
    expect(first).to_contain_text("cat")
    expect(first).to_contain_text("mine.txt:2")
    page.get_by_role("button", name="mine.txt").click()
    page.get_by_role("button", name=re.compile("^Remove mine|clear|delete", re.IGNORECASE)).first.click()
    expect(first).to_contain_text("trees.conllu")
    assert page.problems == []
