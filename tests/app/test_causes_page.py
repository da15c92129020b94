"""Which activations change a prediction: the page Activation patching, and its pictures."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core.loading import LoadedModel
from bert_core.records import MeanOf, Noised, word_target
from bert_core.refused import Refused
from bert_core.run.patching import HEAD_PARTS, estimate_patches, patch, patch_band
from bert_core.tokenizer import Encoding
from tests.near import assert_near
from tests.visit import key_of, settled, visited, words
from viz_app.export.effects import effects_file
from viz_app.figures.causes import effect_map, value_bars
from viz_app.figures.style import cell_number
from viz_app.pages.causes import EXAMPLE, PARTS, SOURCE
from viz_app.pages.causes.patches import is_close, is_small
from viz_app.shell import work
from viz_app.shell.examples import REFERENCE

THEIRS = {"text": "The man lost his hat.", "masked": "3", "target": "4:her", "contrast": "his"}


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


def both(loaded: LoadedModel) -> tuple[Encoding, Encoding]:
    """The source and the text of the example, the same word hidden in both."""
    read = loaded.tokenizer
    source, text = (read.mask_words(read.encode(one), EXAMPLE.masked) for one in (SOURCE, EXAMPLE.text))
    return source, text


def start(**address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    return settled(visited("causes", **address))


def drawn(app: AppTest, kind: str) -> list[dict[str, Any]]:
    """The figures of a page whose first trace is of a kind."""
    figures = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    return [figure for figure in figures if figure["data"][0]["type"] == kind]


def shown(app: AppTest, number: int = 0) -> np.ndarray:
    """The effects that a map on the page says when it is pointed at, (row, column)."""
    map_, points = drawn(app, "heatmap")[number]["data"][:2]
    said = np.array([float(text.rpartition("<br>")[2]) for text in points["hovertext"]])
    return said.reshape(len(map_["y"]), -1)


@pytest.mark.parametrize("part", PARTS)
def test_the_map_is_what_the_library_finds(loaded: LoadedModel, part: str) -> None:
    """For each part that can be carried over, and either way."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    for direction, pair in (("into", (source, text)), ("out", (text, source))):
        app = start(**THEIRS, source=SOURCE, patched=part, direction=direction)
        assert not app.exception and not app.error
        effects = patch(loaded, *pair, target, part_kind=part).effects
        expected = effects if part in HEAD_PARTS else effects.T
        assert_near(shown(app), expected, 1e-5, of=1.0)


def test_of_a_long_text_the_tokens_around_one_are_drawn(loaded: LoadedModel) -> None:
    """Forty of them: around the largest effect, or the one that was asked for; the chosen cell has its frame."""
    rest = " and went home in the evening" * 10
    given = THEIRS | {"text": THEIRS["text"][:-1] + rest, "source": SOURCE[:-1] + rest}
    for more, first, framed in (
        ({}, 0, 2),
        ({"around": "60"}, 27, None),
        ({"around": "50", "place": "52.1"}, 27, 25),
    ):
        app = start(**given, **more)
        (figure,) = drawn(app, "heatmap")
        assert len(figure["data"][0]["y"]) == 40 and not app.exception and not app.error
        tokens = len(app.session_state["_question"].encoding)
        assert f"Tokens {first} to {first + 39} of {tokens} are shown" in words(app)
        frames = [shape["y0"] + 0.5 for shape in figure["layout"].get("shapes", [])]
        assert [round(frame) for frame in frames] == ([] if framed is None else [framed])


def test_what_is_said_of_the_example_is_so(loaded: LoadedModel) -> None:
    """The state of the one word that differs carries most at every depth but the last, and one head does most there."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    states = patch(loaded, source, text, target).effects
    assert (states[:-1, 2] > 0.8).all() and states[-1, 4] > 0.99
    heads = patch(loaded, source, text, target, part_kind="head").effects
    assert np.unravel_index(heads.argmax(), heads.shape) == (5, 8) and heads[5, 8] > 0.5
    app = start()
    assert app.session_state.text == EXAMPLE.text and app.session_state.source == SOURCE
    assert EXAMPLE.remark in words(app) and "“her” rather than “his”" in words(app)


@pytest.mark.parametrize("origin", ["noise", "mean"])
def test_a_source_may_be_no_other_text(loaded: LoadedModel, origin: str) -> None:
    """The text with noise, either way; and the mean of some texts, whose patches are told as they are."""
    _, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    if origin == "noise":
        for direction, pair in (("into", (Noised(text, 2.0), text)), ("out", (text, Noised(text, 2.0)))):
            app = start(**THEIRS, origin="noise", noise="2", direction=direction)
            assert_near(shown(app), patch(loaded, *pair, target).effects.T, 1e-5, of=1.0)
        return
    app = start(**THEIRS, origin="mean", patched="head")
    source = MeanOf(tuple(loaded.tokenizer.encode(line) for line in REFERENCE.splitlines()))
    found = patch(loaded, source, text, target, part_kind="head")
    assert_near(shown(app), found.values - found.base_value, 1e-5, of=float(np.abs(found.values).max()))
    assert "Cells show its change" in words(app)


def test_words_go_to_words_in_texts_of_other_lengths(loaded: LoadedModel) -> None:
    """The same word is hidden in both, and what has no partner is named."""
    app = start(**THEIRS, source="The old woman lost his hat.")
    drawn_rows = json.loads(app.get("plotly_chart")[0].proto.spec)["layout"]["yaxis"]["ticktext"]
    assert [row.strip() for row in drawn_rows][2:5] == ["man → none", "lost", "his (masked)"]
    app = start(**THEIRS, source="The old woman lost his hat.", place="2.3")
    assert "Nothing was patched at man → none at L2: no word of the source is aligned with it" in words(app)
    assert "only in the text: “man”" in words(app) and "only in the source: “old”, “woman”" in words(app)


def test_the_way_back_the_answer_is_read_where_its_word_is_hidden(loaded: LoadedModel) -> None:
    """In a text of another length that is at another position; where no word stands for it, that is said."""
    app = start(**THEIRS, source="The old woman lost his hat.", direction="out")
    _, source = both(loaded)
    text = loaded.tokenizer.mask_words(loaded.tokenizer.encode("The old woman lost his hat."), [4])
    target = word_target(loaded.tokenizer, text, "her", against="his")
    effects = patch(loaded, source, text, target, align="words").effects.T
    assert_near(shown(app), effects, 1e-5, of=1.0)
    app = start(**THEIRS, source="She cried.", direction="out")
    assert not app.exception and "has no partner in the other" in words(app)


def test_what_random_texts_do_is_marked(loaded: LoadedModel) -> None:
    """By a button; the marks are those of the library."""
    app = start(**THEIRS, source=SOURCE)
    (button,) = (button for button in app.button if button.label.startswith("Compare with 10 random texts"))
    settled(button.click().run(), "stop_here")
    settled(app.run(), "stop_here")
    source, text = both(loaded)
    found = patch(loaded, source, text, word_target(loaded.tokenizer, text, "her", against="his"))
    held = int(patch_band(loaded, found).contains(found).sum())
    assert f"{held} of 56 places" in words(app)


def test_the_estimate_stands_beside_what_was_found(loaded: LoadedModel) -> None:
    """Two maps, and how many of the strongest places the cheap one misses."""
    app = start(**THEIRS, source=SOURCE, patched="attention", estimated="1")
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    estimate = estimate_patches(loaded, source, text, target, part_kind="attention")
    assert_near(shown(app, 1), estimate.effects.T, 1e-5, of=1.0)
    assert "attribution patching misses" in words(app)


def is_grey(figure: dict[str, Any]) -> bool:
    """Whether no cell of a map has a colour: the numbers behind the colours are packed zeros."""
    return not np.any(np.frombuffer(base64.b64decode(figure["data"][0]["z"]["bdata"])))


SMALL = {"text": "The doctor said that he was late.", "masked": "4", "target": "5:he"}


def test_a_small_difference_is_said_first_and_the_map_is_grey(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test by random texts runs by itself where both predictions are close; no cell has a colour then."""
    monkeypatch.setattr("viz_app.pages.causes.patches.Patching.seconds", 0.1)  # on a busy machine too
    app = start(**SMALL, source="The nurse said that he was late.")
    said = words(app)
    assert said.index("The difference is small.") < said.index("with this patch")
    assert "Grey with ○: no stronger than 10 random texts" in said
    assert not any(button.label.startswith("Compare with") for button in app.button)
    (figure,) = drawn(app, "heatmap")
    assert is_grey(figure) and np.abs(shown(app)).max() > 0.9, "the numbers stay"
    read = loaded.tokenizer
    source, text = (
        read.mask_words(read.encode(one), [4]) for one in ("The nurse said that he was late.", SMALL["text"])
    )
    found = patch(loaded, source, text, word_target(read, text, "he"))
    assert is_close(found) and is_small(found, patch_band(loaded, found))
    source, text = both(loaded)
    found = patch(loaded, source, text, word_target(read, text, "her", against="his"))
    assert not is_close(found) and not is_small(found, patch_band(loaded, found))


def test_a_small_difference_that_was_not_tested_is_grey_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine the test has its button, and the map waits for it."""
    monkeypatch.setattr(work, "UNCONFIRMED_SECONDS", 1.0)
    monkeypatch.setattr("viz_app.pages.causes.patches.Patching.seconds", 0.5)
    app = start(**SMALL, source="The nurse said that he was late.")
    assert "grey until it is compared with random texts" in words(app)
    assert any(button.label.startswith("Compare with 10 random texts") for button in app.button)
    assert is_grey(drawn(app, "heatmap")[0])


def test_a_text_of_ones_own_has_a_source_with_one_word_swapped() -> None:
    """Unless it has no such word, or only a masked one."""
    app = start(text="She gave the book to her brother.", masked="5")
    assert app.session_state.source == "He gave the book to her brother." and "with this patch" in words(app)
    app.text_input(key=key_of(app, "text")).set_value("The king gave the book to her brother.").run()
    settled(app)
    assert app.session_state.source == "The queen gave the book to her brother.", "a proposal follows the text"
    app.text_input(key=key_of(app, "source")).set_value("The girl lost his hat.").run()
    app.text_input(key=key_of(app, "text")).set_value("The boy gave the book to her brother.").run()
    assert settled(app).session_state.source == "The girl lost his hat.", "a typed source stays"
    assert start(text="The dog lost his hat.", masked="3").session_state.source == ""


def test_until_the_patches_are_run_the_estimate_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is offered with what it costs."""
    monkeypatch.setattr(work, "UNCONFIRMED_SECONDS", -1.0)
    app = start(**THEIRS, source=SOURCE)
    (button,) = (button for button in app.button if button.label.startswith("Run all 56 patches"))
    assert "Until then, the estimate" in words(app) and shown(app).shape == (8, 7)
    settled(button.click().run())
    assert "the largest" in words(app)


def test_a_clicked_cell_is_looked_at_more_closely(loaded: LoadedModel) -> None:
    """A head's layer is shown token by token; of a feed-forward network its strongest neurons."""
    app = start(**THEIRS, source=SOURCE, patched="head", place="5.8")
    assert re.search(r"“her” 0\.014 → 0\.\d+, “his” 0\.8\d → 0\.\d+\*\* with this patch; effect 0\.[78]", words(app))
    assert "Head output: L5 H8" in words(app) and shown(app, 1).shape == (8, 12)
    app = start(text="She opened the door.", pair="It was dark.", target="nsp", source="He ate a door.", place="2.3")
    assert "with this patch; effect" in words(app) and not app.exception and not app.error
    app = start(**THEIRS, source=SOURCE, patched="feed_forward", place="2.3")
    for button in app.button:
        if button.label.startswith("Patch its"):
            settled(button.click().run())
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    effects = patch(loaded, source, text, target, part_kind="neuron", layers=[3], positions=[2]).effects[3, 2]
    bars = drawn(app, "bar")[-1]["data"][0]
    strongest = int(np.abs(effects).argmax())
    assert bars["hovertext"][0].startswith(f"neuron {strongest}<br>") and bars["text"][0] == cell_number(
        effects[strongest]
    )
    app = start(**THEIRS, source=SOURCE, patched="head", place="40.8")
    assert not app.exception and "Head output: L5 H8" in words(app), "no such place: the largest effect is shown"


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ({"text": "The man lost his hat."}, "There is no prediction yet that activations could change"),
        (THEIRS | {"text": "A dog lost his hat."}, "Type a second text that differs in a word or two"),
        (THEIRS | {"source": "The old woman lost his hat.", "patched": "pattern"}, "An attention pattern can only"),
        (THEIRS | {"origin": "mean", "reference": " ", "source": "no"}, "there are 0 reference texts"),
        (THEIRS | {"origin": "noise", "noise": "0", "source": "no"}, "0.1 to 10"),
        (THEIRS | {"source": "The man lost his hat."}, "for both texts: choose another target or another source"),
        (THEIRS | {"text": "The dog lost his hat.", "source": "   "}, "Type a second text"),
    ],
)  # fmt: skip
def test_what_cannot_be_patched_is_said_in_a_sentence(address: dict[str, str], sentence: str) -> None:
    """No target, no source, another length, the same text: and what was typed stays."""
    app = start(**address)
    assert not app.exception
    said = words(app)
    assert sentence.lower() in said.lower(), said
    assert app.session_state.text == address["text"]
    assert app.session_state.source == address.get("source", "")


def test_without_a_source_one_click_fills_in_an_example() -> None:
    """And the other part that is chosen has a place of its own."""
    app = start(text="A small word.", masked="1")
    (fill,) = (button for button in app.button if button.label == "Use an example")
    settled(fill.click().run())
    assert (app.session_state.text, app.session_state.source) == (EXAMPLE.text, SOURCE)
    app.session_state.place = (2, 3)
    settled(app.selectbox(key=key_of(app, "patched")).set_value("head").run())
    assert app.session_state.place is None and app.session_state.patched == "head"


def test_numbers_can_be_taken_along(loaded: LoadedModel) -> None:
    """Each place with its answer and effect, found and estimated, and both of its tokens; as CSV, NPZ and JSON."""
    source, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her", against="his")
    exact, estimate = (find(loaded, source, text, target) for find in (patch, estimate_patches))
    rows = list(csv.DictReader(effects_file(exact, estimate, "csv").decode().splitlines()))
    assert (rows[2]["token"], rows[2]["source_token"]) == ("man", "woman")
    assert (rows[9]["depth"], rows[9]["position"]) == ("1", "1")
    packed = np.load(io.BytesIO(effects_file(exact, estimate, "npz")))
    listed = json.loads(effects_file(exact, estimate, "json"))
    assert [*packed["axes"]] == listed["axes"] == ["depth", "position"] and packed["source_token"][2] == "woman"
    assert listed["what"] == "state" and packed["source_value"] == listed["source_value"] == exact.source_value
    for name, values in {
        "value": exact.values, "effect": exact.effects, "estimated_value": estimate.values,
        "estimated_effect": estimate.effects,
    }.items():  # fmt: skip
        assert_near([float(row[name]) for row in rows], values.ravel(), what=name)
        assert_near(packed[name], values, what=name)
        assert_near(listed[name], values, what=name)
    heads = [find(loaded, source, text, target, part_kind="head") for find in (patch, estimate_patches)]
    names = effects_file(*heads, "csv").decode().splitlines()[0].split(",")
    assert set(names) >= {"layer", "head", "effect"} and "token" not in names
    with pytest.raises(Refused, match="a file of kind 'txt' is unknown: one of csv, npz, json"):
        effects_file(exact, estimate, "txt")


def test_what_was_not_patched_is_empty_in_a_file(loaded: LoadedModel) -> None:
    """A word without a partner: null in JSON; and a mean has the way that the answer moves."""
    _, text = both(loaded)
    target = word_target(loaded.tokenizer, text, "her")
    source = loaded.tokenizer.encode("The old woman lost [MASK] hat.")
    found = [find(loaded, source, text, target, align="words") for find in (patch, estimate_patches)]
    listed = json.loads(effects_file(*found, "json"))
    assert listed["source_token"][2] == "" and [row[2] for row in listed["effect"]] == [None] * 7
    mean = [find(loaded, MeanOf((source,)), text, target) for find in (patch, estimate_patches)]
    listed = json.loads(effects_file(*mean, "json"))
    assert listed["source_value"] is None
    assert_near(listed["effect"], mean[0].values - mean[0].base_value)


def test_an_effect_map_says_what_does_not_fit() -> None:
    """Labels and marks have the shape of the effects; what is empty has no number."""
    effects = np.array([[0.0, 1.2], [np.nan, -0.004]])
    draw = effect_map
    figure = draw(effects, ["a", "b"], ["c", "d"], selected=(1, 0), by_chance=np.array([[True, False], [False, True]]))
    assert len(figure.layout.shapes) == 1 and len(figure.data[-1].x) == 2
    with pytest.raises(ValueError, match="expected"):
        draw(effects, ["a"], ["c", "d"])
    with pytest.raises(ValueError, match="one for each"):
        draw(effects, ["a", "b"], ["c", "d"], by_chance=np.zeros(2, bool))
    widths = [
        draw(np.zeros((1, n)), ["a" * letters], ["c"] * n).layout.meta["min_width"]
        for letters, n in ((50, 3), (20, 3), (1, 30))
    ]
    assert widths[0] == widths[1] < widths[2]
    assert list(value_bars(["4", "2"], [0.5, -0.25], title="effect").data[0].text) == ["0.50", "−0.25"]
    with pytest.raises(ValueError, match="one for each"):
        value_bars(["4"], [], title="effect")
