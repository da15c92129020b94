"""The page Image captions in a real browser."""

from __future__ import annotations

import io
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Page, expect


def opened(page: Page, address: str) -> Page:
    """The page, once it has drawn both pictures."""
    page.goto(address)
    expect(page.get_by_test_id("stPlotlyChart")).to_have_count(2)
    return page


def test_a_word_and_a_head_are_clicked_and_stay_in_the_address(app: str, page: Page) -> None:
    """Each click changes the picture's title and the address; a reload shows the same."""
    opened(page, f"{app}/images?picture=composed&shapes=large-blue-star")
    words = page.get_by_role("toolbar", name=re.compile("^The caption")).get_by_role("button")
    word = words.last.inner_text()
    words.last.click()
    expect(page.get_by_text(f"“{word}”").first).to_be_visible()
    page.get_by_role("button", name=re.compile(r"^L1 H2\b")).click()
    expect(page.get_by_text("L1 H2").first).to_be_visible()
    page.wait_for_url(re.compile(r"look=1\.2"))
    address = parse_qs(urlsplit(page.url).query)
    assert address["look"] == ["1.2"] and address["shapes"] == ["large-blue-star"] and "word" in address
    page.reload()
    expect(page.get_by_text("L1 H2").first).to_be_visible()
    assert not page.problems


@pytest.mark.smoke
def test_an_uploaded_picture_is_described_and_a_broken_one_is_said(app: str, page: Page, tmp_path: Path) -> None:
    """The warning stands before and after; a file that only calls itself a picture gets one sentence."""
    out = io.BytesIO()
    Image.new("RGB", (300, 200), (40, 92, 214)).save(out, "PNG")
    (tmp_path / "blue.png").write_bytes(out.getvalue())
    (tmp_path / "text.png").write_text("hello", encoding="utf-8")
    page.goto(f"{app}/images?picture=uploaded")
    expect(page.get_by_text("This model was trained only on drawn circles")).to_be_visible()
    page.locator("input[type=file]").set_input_files(tmp_path / "blue.png")
    expect(page.get_by_test_id("stPlotlyChart")).to_have_count(2)
    expect(page.get_by_text("This model was trained only on drawn circles")).to_be_visible()
    page.goto(f"{app}/images?picture=uploaded")
    expect(page.get_by_text("This model was trained only on drawn circles")).to_be_visible()
    page.locator("input[type=file]").set_input_files(tmp_path / "text.png")
    expect(page.get_by_text("The file is not a picture that can be read: give a PNG or a JPEG.")).to_be_visible()
