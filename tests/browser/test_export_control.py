"""Export in a real browser: every figure of a page is saved as PNG, SVG and CSV, and can be read as a table."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled

PNG_START = b"\x89PNG\r\n\x1a\n"
VISITS = {
    "predict": {"text": "She opened the door and walked in.", "masked": "3"},
    "layers": {"text": "She opened the door and walked in.", "masked": "3"},
    "neurons": {"text": "She opened the door and walked in.", "masked": "3"},
}


def downloaded(page: Page, button: str) -> tuple[str, bytes]:
    """Name and content of the file that a click on a button saves."""
    with page.expect_download() as download:
        page.get_by_test_id("stPopoverBody").get_by_role("button", name=button).first.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("name", VISITS)
def test_a_figure_is_saved_as_it_is_seen(name: str, app: str, page: Page) -> None:
    """The files are what their names say, the SVG has the text of the figure, and the table has the rows of the CSV."""
    opened(page, app, name, model="headlight-mini", **VISITS[name])
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    label = page.locator(".js-plotly-plot text").filter(has_text="o").first.text_content()
    expect(page.locator(".modebar-container").first).to_be_hidden()
    page.get_by_role("button", name="Export").click()
    settled(page)
    file, content = downloaded(page, "PNG")
    assert file.endswith(".png") and content.startswith(PNG_START)
    file, content = downloaded(page, "SVG")
    assert (
        file.endswith(".svg")
        and ElementTree.fromstring(content).tag.endswith("svg")
        and label is not None
        and label.strip() in content.decode()
    )
    file, content = downloaded(page, "CSV")
    assert file.endswith(".csv") and content.count(b"\n") > 2
    page.get_by_test_id("stPopoverBody").get_by_text("Table", exact=True).first.click()
    expect(page.get_by_test_id("stPopoverBody").get_by_test_id("stDataFrame").first).to_be_visible()
