"""The page Start without a browser: when it is there, and what it offers."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.visit import ENTRY, at, settled, visited, words
from viz_app.lessons.parsing import lessons
from viz_app.pages import PAGES, layers
from viz_app.shell import examples

ASKS = "See and test what a BERT model does with your sentence"


def entered(**address: str) -> AppTest:
    """The app as someone sees it who opens its address without a page."""
    app = AppTest.from_file(ENTRY, default_timeout=120)
    app.query_params.update(address)
    return settled(app.run())


@pytest.mark.parametrize("address", [{}, {"lecture": "1"}, {"unknown": "1"}])
def test_the_bare_address_starts(monkeypatch: pytest.MonkeyPatch, address: dict[str, str]) -> None:
    """It says what this is and what each page answers, needs no model and no text, and adds nothing to the address."""
    monkeypatch.setattr("viz_app.shell.models.loaded_model", None)
    app = entered(**address)
    assert not app.exception and not app.error and not app.text_input
    assert app.title[0].value == "Home" and ("lecture" in address or ASKS in words(app))
    assert all(page.line in words(app) for page in PAGES[1:])
    assert app.query_params == ({"lecture": "1"} if "lecture" in address else {})


def test_it_speaks_german() -> None:
    """The language alone names no view, and stays in the address."""
    app = entered(lang="de")
    assert app.title[0].value == "Startseite" and app.query_params == {"lang": "de"}
    assert "Aufmerksamkeit" in [link.label.strip("*") for link in app.get("page_link")] and lessons("de")[
        0
    ].question in words(app)


@pytest.mark.parametrize(
    "address", [{"text": "The cat [MASK]."}, {"calibrated": "0"}, {"lesson": "both_sides"}, {"model": "headlight-mini"}]
)
def test_a_link_to_a_view_skips_it(address: dict[str, str]) -> None:
    """What the bare address opened before there was this page, it opens now."""
    app = entered(**address)
    assert not app.exception and ASKS not in words(app)
    assert app.session_state._page == "predict" and app.text_input
    assert app.query_params["text"] == address.get("text", examples.first_example().text)


def test_one_click_tries_it_or_begins_the_first_lesson() -> None:
    """On Predict with the first example; on the page of the first lesson with its text, and not with an example."""
    app = entered()
    settled(app.button(key="start_try").click().run())
    assert app.session_state._page == "predict" and app.query_params["text"] == examples.first_example().text
    app = entered()
    settled(app.button(key="start_learn").click().run())
    first = lessons()[0]
    assert app.session_state._page == first.predict.view.page and app.session_state.lesson == first.name
    assert app.query_params["text"] == first.predict.view.address["text"]


def test_the_first_page_from_there_begins_with_its_own_example() -> None:
    """As it does for those who open it by its address."""
    app = entered()
    settled(at(app, "layers").run())
    assert not app.exception and app.session_state.text == layers.EXAMPLE.text
    assert visited("start").title[0].value == "Home"
