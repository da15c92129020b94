"""Score terms as a person walks it: click a row of a map, leave the page, press Back, choose another model."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Serve
from tests.browser.reader import address_of, click_at, opened, reaches_address, settled
from tests.families import save_family

TEXT = "The old man."


def test_a_row_is_clicked_and_kept(serve: Serve, page: Page, tmp_path: Path) -> None:
    """The row is the query of the bars and of the address; Back returns to it; a BERT has a sentence and a button."""
    folder = str(save_family("deberta-v2", tmp_path / "deberta"))
    app = serve(ROOT / "streamlit_app.py", {"HEADLIGHT_MODELS": json.dumps([folder])})
    opened(page, app, "attention", text=TEXT, model=folder, view="terms", head="1.2")
    ticks = page.locator(".st-key-score_terms_score .ytick text")
    expect(ticks.first).to_be_attached()
    click_at(page.locator(".st-key-score_terms_score .nsewdrag").first, 0.5, 3.5 / ticks.count())
    assert reaches_address(page, lambda address: address.get("tokens") == "q3")
    settled(page)
    result = page.get_by_text("L1 H2: the score of").first
    expect(result).to_contain_text("(3) → ")
    click_at(page.locator(".st-key-score_terms_content-to-content .nsewdrag").first, 0.5, 1.5 / ticks.count())
    assert reaches_address(page, lambda address: address.get("tokens") == "q1")
    settled(page)
    page.get_by_role("link", name="Predictions", exact=True).click()
    settled(page)
    page.go_back()
    settled(page)
    assert address_of(page)["tokens"] == "q1" and address_of(page)["view"] == "terms"
    expect(result).to_contain_text("(1) → ")
    opened(page, app, "attention", text=TEXT, view="terms")
    expect(page.get_by_text("This model adds no position terms to its scores")).to_be_visible()
    page.get_by_role("button", name="Open Query-key").click()
    assert reaches_address(page, lambda address: address.get("view") == "neuron")
    settled(page)
    expect(page.get_by_text("Score terms")).to_have_count(0)
    assert page.problems == []
