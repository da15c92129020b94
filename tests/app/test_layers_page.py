"""The page Layers & logit lens without a browser: what it opens on, its views, and bad input; and its figures."""

from __future__ import annotations

import csv
import io
import sys
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from tests.visit import at, exported_files, key_of, settled, visited, words
from viz_app.export.lens import lens_file
from viz_app.figures.lens import layer_lines, lens_grid, name_sides, short_names, similarity_matrix, state_map
from viz_app.figures.style import Look, use_look
from viz_app.pages import PAGES
from viz_app.pages.layers import EXAMPLE, lens_runs, states
from viz_app.pages.layers import words as words_part
from viz_app.pages.layers.page import PARTS
from viz_app.shell import examples
from viz_app.shell.address import ALL_PARAMS as PARAMS
from viz_app.shell.address import link_of
from viz_app.shell.frame import params_of_pages


def start(**address: str) -> AppTest:
    """The page Layers as someone sees it who follows a link."""
    return settled(visited("layers", **address))


def test_it_opens_on_a_change_of_mind_and_no_page_swaps_a_text() -> None:
    """Who opens this page first sees its own example, on every page from then on; who has typed keeps the text."""
    app = start()
    assert not app.exception and not app.error
    assert app.session_state.text == EXAMPLE.text != examples.first_example().text
    assert "#### “capital” ranks first after L5 (position 4, where “capital” is masked)" in words(app)
    assert "Before that, the lens predicts" in words(app) and "→ “part”" in words(app) and EXAMPLE.remark in words(app)
    for page in ("predict", "why"):
        at(app, page).run()
        own = EXAMPLE
        assert (app.session_state.text, app.session_state.masked) == (own.text, own.masked)
    app.text_input(key=key_of(app, "text")).set_value("A word of mine.").run()
    settled(at(app, "layers").run())
    assert not app.exception and app.session_state.text == "A word of mine."
    assert EXAMPLE.remark not in words(app)


def test_what_is_said_of_the_example_is_so() -> None:
    """The logit lens reads "part" after L2 to L4 and "capital" at the end; the tuned lens "capital" from L2 on."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    example = EXAMPLE
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(example.text), example.masked)
    (position,) = encoding.mask_positions

    def read(translators: bert_core.Translators | None) -> list[str]:
        found = bert_core.logit_lens(loaded, encoding, translators=translators).top[:, position, 0]
        return [loaded.tokenizer.token_of(int(piece)) for piece in found]

    assert read(None)[3:] == ["part", "part", "part", "capital"]
    tuned = read(bert_core.read_translators(loaded))
    assert tuned[3:] == ["capital"] * 4 and "capital" not in tuned[:3]


def test_a_typed_mask_has_no_rank() -> None:
    """What stood at a word that was hidden has a rank beside the model's word; where a [MASK] was typed, none did."""
    assert "the word of the text, ranks" in words(start(text="She opened the queen.", masked="3"))
    typed = words(start(text="She opened the [MASK]."))
    assert "The final prediction" in typed and "the word of the text" not in typed


@pytest.mark.parametrize("layers_view", PARTS)
def test_every_way_to_look_says_how_to_read_it(layers_view: str) -> None:
    """By link, with and without a mask, for two sentences; nothing fails, and nothing is left without its two lines."""
    for more in ({"masked": "3"}, {"pair": "The room was dark."}, {}):
        app = start(text="She opened the door.", layers_view=layers_view, **more)
        assert not app.exception and not app.error
        assert "How to read this" in words(app) and "How it can mislead" in words(app)
        pictures = ["Picture (SVG)", "Picture (PNG)"] if layers_view == "words" else []
        assert exported_files(app) == ["Numbers (CSV)", *pictures]


def test_states_are_laid_out_by_neighbours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By link: each depth's points, as numbers too; of a short text one sentence; without the extra, the axes.

    What lays them out stands in for UMAP, which compiles itself for long: tests/core asks UMAP itself.
    """

    class FirstTwo:
        def __init__(self, **settings: object) -> None:
            assert settings["metric"] == "cosine"

        def fit_transform(self, states: np.ndarray) -> np.ndarray:
            return states[:, :2]

    umap = ModuleType("umap")
    umap.UMAP = FirstTwo  # type: ignore[attr-defined]
    umap.__spec__ = find_spec("umap")
    monkeypatch.setitem(sys.modules, "umap", umap)
    app = start(text="She opened the door and walked in.", layers_view="states", projection="neighbours")
    assert not app.exception and not app.error and not app.info
    assert "UMAP by cosine distance, with at most 15 neighbours" in words(app)
    assert exported_files(app) == ["Numbers (CSV)"]
    app = start(text="A", layers_view="states", projection="neighbours")
    assert not app.exception and "needs at least four" in app.info[0].value
    monkeypatch.setattr(states, "find_spec", lambda name: None)
    app = start(text="She opened the door.", layers_view="states", projection="neighbours")
    assert not app.exception and app.session_state.projection == "axes"
    assert "Two principal components explain" in words(app)
    assert app.radio(key=key_of(app, "projection")).disabled


def test_a_cell_is_chosen_by_link_and_by_its_two_controls() -> None:
    """Depth and position of the address are those of the controls; a cell that is not there is the answer's."""
    app = start(text="She opened the door.", masked="3", cell="2.1", rank_by="rank")
    assert (
        app.selectbox(key=key_of(app, "cell_depth")).value == 2
        and app.selectbox(key=key_of(app, "cell_position")).value == 1
    )
    app.selectbox(key=key_of(app, "cell_position")).set_value(3).run()
    assert app.session_state.cell == (2, 3)
    app = start(text="She opened the door.", masked="3", cell="90.1")
    assert not app.exception and app.selectbox(key=key_of(app, "cell_depth")).value == 6
    assert app.selectbox(key=key_of(app, "cell_position")).value == 4


def test_one_word_in_several_sentences() -> None:
    """Each occurrence is compared; a sentence without the word is named and left out; too few, or too much, is said."""
    app = start(text="A word.", layers_view="sentences")
    assert not app.exception and not app.warning
    settled(
        app.text_area(key=key_of(app, "sentences"))
        .set_value("The bank was closed.\nNo such word.\nA bank by a BANK.")
        .run()
    )
    assert not app.exception and "Sentence 2 does not contain “bank” and is left out." in words(app)
    app.text_input(key=key_of(app, "common_word")).set_value("zebra").run()
    assert not app.exception and "Enter at least two sentences that contain the word" in words(app)
    app.text_area(key=key_of(app, "sentences")).set_value("A bank.\n" * 21).run()
    assert not app.exception
    assert "There are 21 sentences, the longest with 7 characters: at most 20 sentences of 2,000" in words(app)


def test_long_texts_stay_out_of_the_address() -> None:
    """Each group of texts longer than 2,000 characters together is left out, with what means nothing without it."""
    table = params_of_pages(PAGES)
    state = {PARAMS: table} | {name: choice.first(with_text=False) for name, choice in table.items()}
    state |= {
        "sentences": "x" * 2_001,
        "common_word": "word",
        "sentence_a": "y" * 1_001,
        "sentence_b": "z" * 999,
        "masked": (1,),
    }
    assert link_of(state) == {
        "text": state["text"], "pair": state["pair"], "masked": "1",
        "sentence_a": state["sentence_a"], "sentence_b": state["sentence_b"]
    }  # fmt: skip
    state |= {"text": "w" * 2_001, "sentence_b": "z" * 1_000, "sentences": "short", "layers_view": "kinds"}
    assert link_of(state) == {"sentences": "short", "common_word": "word", "layers_view": "kinds"}


@pytest.mark.parametrize(
    ("address", "notice"),
    [({"layers_view": "walls"}, "not possible"), ({"lens": "broken"}, "not possible"), ({"cell": "x"}, "not possible")],
)
def test_a_wrong_choice_is_said_and_left_out(address: dict[str, str], notice: str) -> None:
    """A link that names what is not there opens all the same."""
    app = start(text="A word.", **address)
    assert not app.exception and not app.error and notice in words(app)


def test_a_long_text_is_read_around_the_chosen_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the whole would take long, the part that is drawn is read at once, and all when the button is clicked."""
    monkeypatch.setattr(lens_runs, "UNCONFIRMED_SECONDS", 0.0)
    app = start(text="word " * 60 + "[MASK]", cell="3.20")

    def told() -> str:
        return next(line for line in words(app).splitlines() if "ranks first" in line and "(position 20)" in line)

    assert not app.exception and not app.error
    assert "Tokens 5 to 34 of 63, around the selected one." in words(app)
    (button,) = (
        button for button in app.button if button.label.startswith("Predict at all 63 tokens and 7 depths, about ")
    )
    before = told()
    settled(button.click().run(), "stop_here")
    assert not app.exception and not app.error and told() == before
    assert not [button for button in app.button if button.label.startswith("Predict at all")]
    app.segmented_control(key=key_of(app, "layers_view")).set_value("answer").run()
    assert not app.exception and told() == before


def test_the_numbers_are_those_of_the_library() -> None:
    """One line a cell: the word, its probability, the rank of the final word, both distances."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    encoding = loaded.tokenizer.encode("She opened the [MASK].")
    run = bert_core.logit_lens(loaded, encoding)
    rows = list(csv.DictReader(io.StringIO(lens_file(run, loaded.tokenizer.token_of, "csv").decode())))
    assert len(rows) == 7 * len(encoding)
    last = rows[6 * len(encoding) + 4]
    assert (last["depth"], last["position"], last["token"], last["rank_of_final_word"]) == ("L5", "4", "[MASK]", "1")
    assert last["word"] == last["final_word"] == loaded.tokenizer.token_of(int(run.final[4]))
    np.testing.assert_array_equal(np.array([row["entropy"] for row in rows], np.float32), run.entropy.ravel())


# ---------------------------------------------------------------------------- figures


def test_words_between_twelve_layers_can_be_read() -> None:
    """A word of eight letters stands whole in its cell, and a longer one begins with seven of its own."""
    words = [["shortage", "regrettable", *["a"] * 11]]
    figure = lens_grid(words, np.zeros((1, 13)), ["x"], [[(word,) for word in words[0]]], [0], unit="share")
    assert figure.data[2].text[:2] == ("shortage", "regrett…")
    assert figure.data[2].textfont.size >= 12


def test_the_grid_gives_positions_back_and_shows_text_as_it_is() -> None:
    """Every cell has its word once, at its own depth and position; tags stay text; the chosen cell has a frame."""
    cells = [["<b>a</b>", "b"], ["c", "d"], ["e", "f"]]
    hovers = [[(word, "two") for word in line] for line in cells]
    values = np.array([[0.1, 0.9], [0.4, 0.6], [0.0, 1.0]])
    for dark in (False, True):
        with use_look(Look(dark)):
            figure = lens_grid(
                cells, values, ["x", "<i>y</i>", "z"], hovers, [4, 5, 6], highest=1.0, selected=(5, 1), unit="share"
            )
        found = {
            (x, y): text for trace in figure.data[2:] for x, y, text in zip(trace.x, trace.y, trace.text, strict=True)
        }
        assert found == {
            (0, 4): "&lt;b&gt;a&lt;/b&gt;", (1, 4): "b", (0, 5): "c", (1, 5): "d", (0, 6): "e", (1, 6): "f"
        }  # fmt: skip
        assert figure.data[1].hovertext[0] == "&lt;b&gt;a&lt;/b&gt;<br>two"
        assert "&lt;i&gt;y&lt;/i&gt;" in figure.layout.yaxis.ticktext[1]
        (frame,) = figure.layout.shapes
        assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, 4.5, 5.5)
    with pytest.raises(ValueError, match="words do not fit 3 rows of 2 depths"):
        lens_grid(cells[:2], values, ["x", "y", "z"], hovers, [4, 5, 6], unit="share")
    with pytest.raises(ValueError, match="2 labels and 3 positions: one of each"):
        lens_grid(cells, values, ["x", "y"], hovers, [4, 5, 6], unit="share")


def test_lines_of_ranks_have_the_first_on_top() -> None:
    """A logarithmic axis that runs down; a line with too few figures is refused."""
    figure = layer_lines({"word": np.array([900, 30, 1])}, short_names(3), title="rank", ranks=True)
    low, high = figure.layout.yaxis.range
    assert figure.layout.yaxis.type == "log" and low > np.log10(900) and high < 0
    with pytest.raises(ValueError, match="'word' has 2 figures for 3 depths"):
        layer_lines({"word": np.array([1, 2])}, short_names(3), title="rank")


def test_names_stand_clear_of_each_other() -> None:
    """A name is on top, unless another point or name is there already."""
    assert name_sides(np.zeros((1, 2)), [5]) == ["top center"]
    pair = np.array([[0.0, 0.0], [0.0, 0.06]])
    assert name_sides(pair, [5, 5])[0] == "bottom center", "above it stands the other point"
    row = np.array([[0.0, 0.0], [0.05, 0.0]])
    one, other = name_sides(row, [8, 8])
    assert one == "top center" and other != "top center"


def test_points_and_similarities_need_a_label_each() -> None:
    """Figures whose parts do not fit are refused; those that do hold every point and cell."""
    points = np.random.default_rng(0).normal(size=(3, 2))
    figure = state_map(points, ["a", "b", "c"], ["one", "two", "one"])
    assert sorted(len(trace.x) for trace in figure.data) == [1, 2]
    with pytest.raises(ValueError, match="2 labels, 3 groups and 3 points: one of each"):
        state_map(points, ["a", "b"], ["one", "two", "one"])
    square = similarity_matrix(np.eye(2), ["the <bank>", "a bank"])
    assert square.layout.yaxis.ticktext[0] == "1  the &lt;bank&gt;  "
    with pytest.raises(ValueError, match="at least one of each"):
        similarity_matrix(np.eye(3), ["a"])


def test_a_list_that_names_a_token_of_another_text_chooses_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the text becomes another one the browser still says the old name, which is no position."""
    state = {"cell": (2, 1), "cell_depth": 6, "cell_position": "She, hidden (1)"}
    monkeypatch.setattr(words_part.st, "session_state", state)
    words_part._take_controls()
    assert state["cell"] == (2, 1)
    state["cell_position"] = 3
    words_part._take_controls()
    assert state["cell"] == (6, 3)
