"""The page Forward pass without a browser: its stages, its address, its engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.visit import at, key_of, settled, words
from viz_app.pages.inside.stages import STAGES
from viz_app.shell import work

ENTRY = str(Path(__file__).parents[2] / "streamlit_app.py")
TEXT, PAIR = "a cat sat on the mat.", "it was red."


@pytest.fixture
def offered(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiny model, offered by the app."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    return str(tiny_model_folder)


def inside(model: str, **address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update({"text": TEXT, "pair": PAIR, "masked": "1", "model": model, **address})
    app.run()
    return at(app, "inside").run()


def title(app: AppTest) -> str:
    return app.subheader[0].value


def press(app: AppTest, key: str) -> AppTest:
    return app.button(key=key).click().run()


def test_stepping_goes_through_every_stage_and_back(offered: str) -> None:
    """Next walks the thirteen stages in order, each with its formula and its words; the ends have no further step."""
    app = inside(offered)
    assert app.button(key="back").disabled
    for number, name in enumerate(STAGES, start=1):
        assert not app.exception and not app.error
        assert title(app) == f"{number}. {STAGES[name].title}"
        assert app.selectbox(key=key_of(app, "stage")).options[number - 1] == title(app)
        assert app.session_state.stage == name
        assert STAGES[name].text in words(app)
        assert len(app.latex) == 2
        differ = any("PyTorch and NumPy differ most at" in said.value for said in app.caption)
        assert differ == (number == len(STAGES)), "said once, at the end"
        if number < len(STAGES):
            press(app, "on")
    assert app.button(key="on").disabled
    press(app, "back")
    assert title(app) == f"12. {STAGES['pooler'].title}"


def test_a_link_opens_the_stage_the_head_the_token_and_the_engine(offered: str) -> None:
    """What the address names is what the page shows."""
    app = inside(offered, stage="scores", head="1.3", token="5", engine="numpy", pads="1")
    assert title(app) == "5. Attention scores"
    assert (
        app.selectbox(key=key_of(app, "inside_layer")).value,
        app.selectbox(key=key_of(app, "inside_head")).value,
    ) == (1, 3)
    assert app.selectbox(key=key_of(app, "inside_token")).value == 5
    assert app.session_state.engine == "numpy"
    assert any("$s$ score" in said.value for said in app.caption)
    assert r"s_{5," in app.latex[1].value
    assert "4 heads × 17 queries × 17 keys" in words(app)


def test_both_engines_give_the_same_numbers_to_three_digits(offered: str) -> None:
    """Switching the engine changes what the last stage says of it and nothing else."""
    for stage in ("softmax", "heads"):
        app = inside(offered, stage=stage)
        before = app.latex[1].value
        app.session_state.engine = "numpy"
        app.run()
        assert not app.exception and app.latex[1].value == before
    assert any("All stages are computed with **NumPy**" in said.value for said in app.caption)


def test_of_a_long_text_the_engines_are_compared_when_asked(offered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is computed once; the button names the other engine, and another token needs no second click."""
    monkeypatch.setattr(work, "UNCONFIRMED_SECONDS", 0.0)
    app = inside(offered, stage="heads", engine="numpy")
    assert any("are computed with **NumPy**" in said.value for said in app.caption) and "differ" not in words(app)
    (button,) = (button for button in app.button if button.label.startswith("Compare with PyTorch, about "))
    settled(button.click().run(), "stop_here")
    assert "PyTorch and NumPy differ most at" in words(app)
    settled(app.selectbox(key=key_of(app, "inside_token")).set_value(1).run(), "stop_here")
    assert "PyTorch and NumPy differ most at" in words(app)
    settled(app.text_input(key=key_of(app, "text")).set_value("a dog ran.").run(), "stop_here")
    assert "differ" not in words(app)


def test_controls_choose_and_the_choice_stays(offered: str) -> None:
    """A head and token that were picked are the ones of the other stages too, and of the other pages."""
    app = inside(offered, stage="qkv")
    app.selectbox(key=key_of(app, "inside_layer")).set_value(1).run()
    app.selectbox(key=key_of(app, "inside_head")).set_value(2).run()
    app.selectbox(key=key_of(app, "inside_token")).set_value(4).run()
    assert app.session_state.head == (1, 2) and app.session_state.token == 4
    press(app, "on")
    assert r"s_{4," in app.latex[1].value
    assert app.selectbox(key=key_of(app, "inside_head")).value == 2


def test_the_token_is_the_hidden_one_until_another_is_chosen(offered: str) -> None:
    """Without a choice it is the first mask, without a mask the first word; one that is not there is passed over."""
    for given, expected in (({}, 2), ({"masked": ""}, 1), ({"token": "99"}, 2), ({"token": "-1"}, 2)):
        app = inside(offered, **given)
        assert app.selectbox(key=key_of(app, "inside_token")).value == expected


def test_the_next_layer_is_one_button_away(offered: str) -> None:
    """It leads to the same head's query, key and value one layer up, and the last layer has no such button."""
    app = inside(offered, stage="next", head="0.3")
    press(app, "enter")
    assert title(app) == "4. Query, key and value" and app.session_state.head == (1, 3)
    app = inside(offered, stage="next", head="1.3")
    assert not [button for button in app.button if button.key == "enter"]


@pytest.mark.parametrize("address", [{"stage": "soup"}, {"engine": "jax"}, {"token": "x"}])
def test_a_wrong_address_is_said_and_left_out(offered: str, address: dict[str, str]) -> None:
    """The page opens all the same, at its beginning."""
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update({"text": TEXT, "model": offered, **address})
    app.run()
    assert any("not possible" in said.value for said in app.warning)
    at(app, "inside").run()
    assert not app.exception and not app.error and title(app) == "1. Word pieces"


def test_a_text_that_fills_the_model_leaves_no_room_for_padding(offered: str) -> None:
    """The switch cannot be turned on, and one that came with the link does nothing."""
    app = inside(offered, text="a " * 600, pair="", masked="", stage="mask")
    assert app.toggle(key=key_of(app, "pads")).disabled and not app.exception and not app.error
    app = inside(offered, text="a " * 600, pair="", masked="", stage="mask", pads="1")
    assert not app.exception and not app.error
    assert "512 queries × 512 keys" in words(app)


def test_a_single_sentence_ends_with_the_masked_word_head_alone(offered: str) -> None:
    """There is no next-sentence verdict without a second sentence."""
    app = inside(offered, pair="", stage="heads")
    assert not app.exception and "follows}) =" not in app.latex[1].value and len(app.latex) == 2
