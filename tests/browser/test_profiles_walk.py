"""Profiles counted over a corpus of one's own, as a person walks it: from a neuron of a text to its heads."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect

from tests.browser.reader import address_of, opened, reaches_address, settled


def asks(page: Page, offer: Locator, answer: Locator) -> None:
    """Wait for an answer, which is offered first where it takes a moment and the server has not got it yet."""
    expect(offer.or_(answer).first).to_be_visible()
    settled(page)
    if offer.count():
        offer.click()
    expect(answer).to_be_visible()
    settled(page)


def test_a_neuron_is_counted_over_a_corpus_and_back_takes_it_back(app: str, page: Page) -> None:
    """From Neurons to its profile, the corpus asked for on the way; another neuron, a head that is alike, and Back."""
    opened(page, app, "neurons", text="She gave the book to her brother.", masked="5", neuron="3.146")
    page.get_by_role("button", name="Profile over a corpus").click()
    reads, stands = page.get_by_role("button", name="Profile "), page.get_by_role("heading", name="L3 neuron 146")
    asks(page, reads, stands)
    number = page.get_by_role("spinbutton", name="Neuron")
    expect(number).to_have_value("146")
    number.fill("777")
    number.press("Enter")
    other = page.get_by_role("heading", name="L3 neuron 777")
    asks(page, reads, other)
    page.go_back()
    expect(stands).to_be_visible()  # it was counted, and is not counted again
    settled(page)
    page.get_by_role("radio", name="Head", exact=True).click()
    counts, grid = page.get_by_role("button", name="Profile "), page.get_by_text("Pale heads attend mostly")
    asks(page, counts, grid)
    before = address_of(page).get("head")
    listed = page.locator("[class*=st-key-profile_alike]")
    page.get_by_role("tab", name="Similar heads").click()
    first = listed.locator("canvas[data-testid=data-grid-canvas] tbody tr").first.inner_text()
    listed.locator(".dvn-scroller").click(position={"x": 16, "y": 54})  # the box before the first line
    assert reaches_address(page, lambda address: address.get("head") != before)
    assert f"L{address_of(page)['head'].replace('.', ' H')}" in first
    assert page.problems == []


def test_the_old_address_of_the_page_opens_the_same_view(app: str, page: Page) -> None:
    """`/dossier` leads to `/profiles` with what it asks for, and adds no entry to the history of the browser."""
    opened(page, app, "glossary")
    opened(page, app, "dossier", about="token", piece="like", tenth="1")
    settled(page)
    assert urlsplit(page.url).path == "/profiles"
    assert {"profile_of": "token", "piece": "like", "tenth": "1"}.items() <= address_of(page).items()
    expect(page.get_by_role("heading", name="“like”")).to_be_visible()
    page.go_back()  # the page had written more into its address: the same again
    settled(page)
    page.go_back()
    assert reaches_address(page, lambda _: urlsplit(page.url).path == "/glossary")
