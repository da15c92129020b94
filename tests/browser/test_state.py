"""The mask and the target stay: whatever a visitor types, clicks, opens or returns to."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import address_of, opened, settled

SENTENCE = "She gave the book to her brother."


def masked_tokens(page: Page) -> list[str]:
    """Texts of the masked words in the token strip."""
    settled(page)
    return [
        text.strip()
        for text in page.locator(".st-key-strip [role=toolbar] button").all_text_contents()
        if "masked" in text
    ]


def type_sentence(page: Page, sentence: str) -> None:
    """Type a sentence and press Enter."""
    page.get_by_label("Sentence", exact=True).fill(sentence)
    page.get_by_label("Sentence", exact=True).press("Enter")
    expect(page).to_have_url(re.compile(re.escape(sentence.split()[-1].rstrip("."))))
    settled(page)


def test_a_typed_sentence_has_a_mask_a_target_and_a_figure(app: str, page: Page) -> None:
    """The longest word of a new sentence is masked and named; the second sentence of an example disappears."""
    opened(page, app, "predict", model="headlight-mini")
    assert page.get_by_label("Second sentence", exact=True).input_value()
    type_sentence(page, "Nobody was waiting there.")
    assert masked_tokens(page) == ["waiting (masked)"]
    expect(page.get_by_text("“waiting” is masked; click another word to mask that one instead.")).to_be_visible()
    expect(page.get_by_label("Second sentence", exact=True)).to_have_value("")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.get_by_role("button", name="there").click()
    assert masked_tokens(page) == ["there (masked)"], "a mask that was not chosen moves"
    page.get_by_role("button", name="nobody").click()
    assert masked_tokens(page) == ["nobody (masked)", "there (masked)"], "one that was chosen stays"


def test_a_word_that_stays_in_the_sentence_stays_masked(app: str, page: Page) -> None:
    """An edit of another word keeps the mask, and a second sentence of one's own stays."""
    opened(page, app, "predict", model="headlight-mini", text=SENTENCE, masked="5", pair="He read it.")
    type_sentence(page, "She gave a present to her friend.")
    assert masked_tokens(page) == ["her (masked)"]
    expect(page.get_by_label("Second sentence", exact=True)).to_have_value("He read it.")


@pytest.mark.parametrize("path", ["attention", "why", "heads", "layers"])
def test_leaving_and_returning_keeps_mask_and_target(path: str, app: str, page: Page) -> None:
    """The next page has both, and so has the first after Back."""
    opened(page, app, "predict", model="headlight-mini", text=SENTENCE, masked="5", target="6:his")
    before = masked_tokens(page)
    link = page.get_by_test_id("stSidebarNavLink").and_(page.locator(f"[href$='/{path}']"))
    link.click()
    expect(page).to_have_url(re.compile(f"/{path}"))
    assert masked_tokens(page) == before == ["her (masked)"]
    assert address_of(page)["target"] == "6:his"
    page.go_back()
    expect(page).to_have_url(re.compile("/(predict)?[?]"))
    assert masked_tokens(page) == before and address_of(page)["target"] == "6:his"


def test_another_model_keeps_mask_and_target(app: str, page: Page) -> None:
    """A model with the same words predicts at the same mask."""
    opened(page, app, "predict", model="headlight-mini", text="The cat sat.", masked="1")
    assert masked_tokens(page) == ["cat (masked)"]
    page.get_by_test_id("stSidebar").get_by_role("combobox").first.click()
    page.get_by_role("option").filter(has_not_text="headlight-mini").first.click()
    settled(page)
    assert masked_tokens(page)
