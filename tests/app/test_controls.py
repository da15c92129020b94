"""Controls without a page: whose the choice is, and when a visitor is said to have changed it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.visit import key_of


def script() -> None:
    """A text, a choice of two and a number; a box hides them, a button changes the text from elsewhere."""
    import streamlit as st

    from viz_app.shell.controls import set_choice
    from viz_app.shell.params import Param, number, select

    state = st.session_state
    state.setdefault("told", [])
    st.button("Change", key="change", on_click=set_choice, args=("word", "from elsewhere"))
    if not st.checkbox("Hide", key="hide"):
        Param("word", "first", widget="text_input", label="Word")(on_change=state.told.append, args=("word",))
        select("side", ("left", "right"), "Side")()
        number("number", "Number", default=3, minimum=0)()


@pytest.fixture
def app() -> AppTest:
    """The script, run once."""
    return AppTest.from_function(script, default_timeout=60).run()


def test_a_choice_stays_while_its_control_is_away(app: AppTest) -> None:
    """What was chosen is there when the control comes back, in the control and in the state, time after time."""
    app.text_input(key=key_of(app, "word")).set_value("mine").run()
    app.segmented_control(key=key_of(app, "side")).set_value("right").run()
    for _ in range(3):
        app.checkbox(key="hide").check().run()
        assert not app.text_input and (app.session_state.word, app.session_state.side) == ("mine", "right")
        app.checkbox(key="hide").uncheck().run()
        assert app.text_input(key=key_of(app, "word")).value == "mine"
        assert app.segmented_control(key=key_of(app, "side")).value == "right"
    assert not app.exception and app.session_state.told == ["word"]


def test_a_choice_that_is_changed_from_elsewhere_is_shown_and_is_no_visitors_change(app: AppTest) -> None:
    """The control shows the new value, and nobody is told that a visitor typed it."""
    app.text_input(key=key_of(app, "word")).set_value("mine").run()
    app.button(key="change").click().run()
    assert app.session_state.word == "from elsewhere"
    assert app.text_input(key=key_of(app, "word")).value == "from elsewhere" and app.session_state.told == ["word"]
    app.text_input(key=key_of(app, "word")).set_value("mine again").run()
    assert app.session_state.word == "mine again" and app.session_state.told == ["word", "word"]


def test_an_emptied_control_shows_its_choice_again(app: AppTest) -> None:
    """None is no choice: neither of a number that was deleted, nor of a side that the browser does not know."""
    app.number_input(key=key_of(app, "number")).set_value(None).run()
    app.segmented_control(key=key_of(app, "side")).set_value(None).run()
    assert (app.session_state.number, app.session_state.side) == (3, "left")
    assert app.number_input(key=key_of(app, "number")).value == 3
    assert app.segmented_control(key=key_of(app, "side")).value == "left"
