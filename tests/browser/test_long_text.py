"""A text of 3,000 tokens in a browser: the range is moved by mouse and keyboard, and Back and other pages keep it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from bert_core.loading import load
from tests.browser.conftest import ROOT, Serve, opened_tab
from tests.browser.reader import address_of, opened, settled
from tests.families import save_family, sentences


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "modernbert"
    return save_family("modernbert", folder, max_position_embeddings=8192, local_attention=8)


@pytest.fixture(scope="module")
def text(long_model: Path) -> str:
    encoding = load(str(long_model)).tokenizer.encode(" ".join(sentences()[:3] * 200), max_length=3000)
    return encoding.text[: encoding.offsets[2998][1]]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    tab = opened_tab(browser)
    yield tab
    tab.context.close()


def range_button(page: Page, label: str) -> None:
    """Wait until the page says which tokens it draws."""
    expect(page.get_by_role("button", name=re.compile(f"^{label} of 3,000"))).to_be_visible()
    settled(page)


def test_a_range_is_moved_and_kept(serve: Serve, long_model: Path, text: str, page: Page) -> None:
    """Next by keyboard, another page, a masked word there, and Back twice; the strip has the tokens of the range."""
    app = serve(ROOT / "streamlit_app.py", {"HEADLIGHT_MODELS": json.dumps([str(long_model)])})
    opened(page, app, "start", model=str(long_model), text="A word.")
    field = page.get_by_placeholder("Type a sentence")
    field.fill(text)
    field.press("Enter")
    range_button(page, "Tokens 0 to 511")
    forward = page.locator(".st-key-range_next button")
    forward.focus()
    page.keyboard.press("Enter")
    range_button(page, "Tokens 512 to 1,023")
    assert address_of(page)["token_range"] == "512.1024"
    chips = page.locator(".st-key-strip .piece")
    expect(chips).to_have_count(512)
    page.get_by_test_id("stSidebarNavItems").get_by_role("link", name="Attention", exact=True).click()
    expect(page.get_by_role("heading", name="Attention", exact=True)).to_be_visible()
    range_button(page, "Tokens 512 to 1,023")
    expect(page.locator(".column.query [role=option]").first).to_be_visible()
    page.locator(".st-key-strip button.word").nth(3).click()
    expect(page.locator(".st-key-strip .piece.masked").first).to_be_visible()
    range_button(page, "Tokens 512 to 1,023")
    forward.click()
    range_button(page, "Tokens 1,024 to 1,535")
    expect(page.get_by_role("button", name=re.compile("^Go to the mask at 51|^Go to the mask at 52"))).to_be_visible()
    page.go_back()
    range_button(page, "Tokens 512 to 1,023")
    assert page.problems == []
