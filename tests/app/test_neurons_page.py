"""Which neurons are active, what they promote and support: the page MLP neurons, its pictures and its file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core.analysis.neurons import strongest_neurons
from bert_core.loading import LoadedModel
from bert_core.records import word_target
from bert_core.refused import Refused
from bert_core.run.neurons import neuron_activations, neuron_gradients, neuron_words, promoted_words, suppress_neurons
from bert_core.tokenizer import Encoding
from bert_core.translators import read_translators
from tests.near import assert_near
from tests.visit import at, key_of, settled, visited, words
from viz_app.export.neurons import neuron_columns
from viz_app.export.tables import labelled_csv
from viz_app.figures.causes import value_bars
from viz_app.figures.neurons import neuron_map
from viz_app.figures.style import Look, one_line, two_digits, use_look
from viz_app.pages.neurons import EXAMPLE, NEURON, parse_factor
from viz_app.shell import work
from viz_app.shell.params import parse_pair

HERS = {"text": "The queen gave the book to her brother.", "masked": "6", "target": "7:her"}


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


def read(loaded: LoadedModel, text: str, masked: tuple[int, ...]) -> Encoding:
    return loaded.tokenizer.mask_words(loaded.tokenizer.encode(text), masked)


def start(**address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    return settled(visited("neurons", **address))


def drawn(app: AppTest, kind: str) -> list[dict[str, Any]]:
    """The figures of a page whose first trace is of a kind."""
    figures = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    return [figure for figure in figures if figure["data"][0]["type"] == kind]


@pytest.mark.parametrize("ranked", ["added", "fires"])
def test_the_map_is_what_the_library_finds(loaded: LoadedModel, ranked: str) -> None:
    """In each cell the strongest neuron with its value; the cell and the neuron of the address are shown closer."""
    encoding = read(loaded, HERS["text"], (6,))
    run = neuron_activations(loaded, encoding)
    values = run.contributions if ranked == "added" else run.activations
    found = strongest_neurons(values, 10)
    app = start(**HERS, ranked=ranked, neuron_cell="4.2")
    assert not app.exception and not app.error
    (figure,) = drawn(app, "heatmap")
    hovers = [text.split("<br>") for text in figure["data"][1]["hovertext"]]
    assert [int(hover[1].split()[-1]) for hover in hovers] == found.neurons[..., 0].T.ravel().tolist()
    strongest = [two_digits(value) for value in found.values[..., 0].T.ravel().tolist()]
    assert [hover[3].split()[-1] for hover in hovers] == strongest
    promoted = promoted_words(loaded, encoding, found.neurons[..., 0], translators=read_translators(loaded))
    texts = [f"promotes {loaded.tokenizer.token_of(word)}" for word in promoted.T.ravel().tolist()]
    assert [hover[2] for hover in hovers] == texts, "each cell has the word that its neuron promotes"
    assert one_line(texts[7].removeprefix("promotes "), 9) in {
        text for t in figure["data"][2:] for text in t.get("text", ())
    }
    assert "L4 at “queen”" in words(app)
    listed = app.dataframe[0].value
    assert listed["neuron"].tolist() == found.neurons[4, 2].tolist()
    assert_near(listed["activation"], run.activations[4, 2, found.neurons[4, 2]])
    assert_near(listed["contribution"], run.contributions[4, 2, found.neurons[4, 2]])
    assert f"make up {found.share[4, 2]:.0%} of the layer's total" in words(app)
    first = found.neurons[4, 2, 0]
    assert f"L4 neuron {first}" in words(app)
    along = next(figure for figure in drawn(app, "bar") if figure["layout"]["xaxis"]["title"]["text"] == "activation")
    assert_near(along["data"][0]["x"], run.activations[4, :, first])


def test_the_word_of_a_cell_is_the_first_that_its_neuron_raises(loaded: LoadedModel) -> None:
    """For every cell alike: by the tuned lens below the last layer, there by the MLM head; -1 without a neuron."""
    encoding, translators = read(loaded, HERS["text"], (6,)), read_translators(loaded)
    neurons = strongest_neurons(neuron_activations(loaded, encoding).contributions, 1).neurons[..., 0].copy()
    neurons[1, 2] = -1
    found = promoted_words(loaded, encoding, neurons, translators=translators)
    assert found.shape == neurons.shape and found[1, 2] == -1
    for layer, position in ((0, 0), (1, 3), (3, 2), (5, 7)):
        lens = None if layer == 5 else translators
        one = neuron_words(loaded, encoding, layer, [int(neurons[layer, position])], [position], translators=lens)
        assert found[layer, position] == one.raised[0, 0]


def test_the_words_are_those_of_both_lenses(loaded: LoadedModel) -> None:
    """At the token where the neuron fires most, and on average; the list beside the map has them too."""
    encoding, app = read(loaded, HERS["text"], (6,)), start(**HERS, neuron="3.146")
    run = neuron_activations(loaded, encoding)
    place = int(np.abs(run.activations[3, :, 146]).argmax())
    for translators in (None, read_translators(loaded)):
        for positions in ([place], None):
            found = neuron_words(loaded, encoding, 3, [146], positions, translators=translators, top_k=8)
            for pieces in (found.raised[0], found.lowered[0]):
                assert ", ".join(loaded.tokenizer.token_of(int(piece)) for piece in pieces) in words(app)
    assert not any("\u2063" in element.value for element in app.markdown)  # the mark of foreign words
    columns = app.dataframe[0].value.columns
    assert {"promotes (tuned lens)", "promotes (logit lens)"} <= set(columns)


def test_what_is_said_of_the_example_is_so(loaded: LoadedModel) -> None:
    """Neuron 146 of L3 fires at "she", speaks for women and for "her"; 856 of L0 leads at [CLS] in other texts."""
    encoding = read(loaded, EXAMPLE.text, EXAMPLE.masked)
    run, (layer, neuron) = neuron_activations(loaded, encoding), NEURON
    along = run.activations[layer, :, neuron]
    assert (
        encoding.tokens[int(along.argmax())] == "she" and (np.delete(along, along.argmax()) < 0.1 * along.max()).all()
    )
    found = neuron_words(loaded, encoding, layer, [neuron], [int(along.argmax())])
    assert "herself" in [loaded.tokenizer.token_of(int(piece)) for piece in found.raised[0]]
    place = [int(along.argmax())]
    tuned = neuron_words(loaded, encoding, layer, [neuron], place, translators=read_translators(loaded))
    assert loaded.tokenizer.token_of(int(tuned.raised[0, 0])) == "linda"
    summed = neuron_gradients(loaded, encoding, word_target(loaded.tokenizer, encoding, "her")).neuron_scores
    assert summed.size == 9_216 and (summed > summed[layer, neuron]).sum() < 5
    for text in (EXAMPLE.text, "The river was cold.", "Nobody had seen the old house.", "Paris is a city."):
        added = neuron_activations(loaded, loaded.tokenizer.encode(text)).contributions
        assert np.abs(added[0, 0]).argmax() == 856, text
    app = start()
    assert app.session_state.text == EXAMPLE.text and app.session_state.neuron == NEURON
    assert "**L3 neuron 146** is active" in words(app) and "L3 at “she”" in words(app)


def test_the_answer_rests_on_neurons_and_is_held_against_chance(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ten strongest of all layers, what the chosen one has, the way and what is missed; then those of its layer."""
    encoding = read(loaded, HERS["text"], (6,))
    target = word_target(loaded.tokenizer, encoding, "her")
    found = neuron_gradients(loaded, encoding, target)
    monkeypatch.setattr(work, "UNCONFIRMED_SECONDS", 1e9)
    app = start(**HERS, neuron="3.146")
    bars = next(
        figure for figure in drawn(app, "bar") if "log-probability" in figure["layout"]["xaxis"]["title"]["text"]
    )
    order = np.argsort(-np.abs(found.neuron_scores), axis=None, kind="stable")[:10]
    assert_near(bars["data"][0]["x"], found.neuron_scores.ravel()[order])
    assert f"L3 neuron 146 has **{two_digits(float(found.neuron_scores[3, 146]))}**" in words(app)
    best = np.argsort(-np.abs(found.neuron_scores[3]), kind="stable")[:5].tolist()
    for among in ("all", "active"):
        without = suppress_neurons(loaded, encoding, target, [(3, neuron) for neuron in best], random_pool=among)
        low, high = (
            target.target_kind.format_value(float(end), two_digits)
            for end in (without.random.min(), without.random.max())
        )
        assert f"{low} to {high}" in words(app)
    assert f"**{target.target_kind.format_value(without.value, two_digits)}**" in words(app)
    assert f"without neurons {', '.join(map(str, best))} of L3" in words(app)


def test_a_neuron_is_switched_off_for_every_page(loaded: LoadedModel) -> None:
    """By the button, or scaled by a number; other pages say and show it, until it is put back."""
    app = start(**HERS, neuron="3.146")
    app.button(key="neuron_scale").click()
    settled(app.run())
    assert app.query_params["scaled"] == "3.146:0" and "Scaled: L3 neuron 146: off" in words(app)
    assert not drawn(app, "bar")[0]["data"][0]["x"][2]
    settled(at(app, "predict").run())
    assert "Scaled: L3 neuron 146: off" in words(app) and not app.exception
    settled(at(app, "neurons").run())
    app.number_input(key=key_of(app, "times")).set_value(2.5)
    app.run()
    assert app.button(key="neuron_scale").label == "Scale × 2.5"
    app.button(key="neuron_scale").click()
    settled(app.run())
    assert app.query_params["scaled"] == "3.146:2.5"


def test_a_neuron_that_is_switched_off_stays_selected() -> None:
    """The strongest neuron of a cell, although another one is the strongest of that cell then."""
    app = start(**HERS, neuron_cell="2.5")
    selected = next(heading.value for heading in app.subheader if heading.value.startswith("L2 neuron"))
    app.button(key="neuron_scale").click()
    settled(app.run())
    assert selected in [heading.value for heading in app.subheader]
    assert app.query_params["scaled"] == f"2.{selected.rpartition(' ')[2]}:0"


def test_any_neuron_is_chosen_by_its_numbers() -> None:
    """And its address brings it back; one that the model has not is left out."""
    app = start(**HERS)
    app.number_input(key=key_of(app, "neuron_number")).set_value(7)
    settled(app.run())
    assert app.query_params["neuron"] == "5.7" and "L5 neuron 7" in words(app)
    for neuron in ("99.1", "2.99999"):
        other = start(**HERS, neuron=neuron, neuron_cell="77.1")
        assert not other.exception and not other.error and "L5 at" in words(other)


def test_a_model_without_some_neurons_is_shown(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that was taken out has empty cells and says so; a neuron that was pruned cannot be chosen."""
    small = bert_core.pruned(tiny_loaded, layers=[0], neurons=[(1, 5)])
    bert_core.save(small, tmp_path / "small")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tmp_path / "small")]))
    given = {"model": str(tmp_path / "small"), "text": "the cat sat on the mat", "masked": "5"}
    app = start(**given, neuron_cell="0.2")
    assert not app.exception and not app.error
    assert "All neurons of L0 were pruned." in words(app)
    listed = start(**given, neuron="1.5")
    assert not listed.exception and not listed.error and "L1 neuron 5\n" not in words(listed) + "\n"


def test_without_a_gap_there_is_no_answer_to_rest_on() -> None:
    """The neurons are shown all the same, and a way to a target is offered."""
    app = start(text="The queen gave the book away.")
    assert not app.exception and not app.error
    assert "There is no prediction yet that could depend on neurons" in words(app)
    assert drawn(app, "heatmap")


def test_of_a_long_text_the_tokens_around_the_chosen_one_are_drawn() -> None:
    """Forty of them, with the frame at the right one; nothing slow is begun unasked."""
    text = "The queen gave the book to her brother and went home in the evening. " * 12
    app = start(text=text, neuron_cell="2.80")
    assert not app.exception and not app.error
    (figure,) = drawn(app, "heatmap")
    assert len(figure["data"][0]["y"]) == 40 and "Tokens 60 to 99 of" in words(app)
    assert [round(shape["y0"] + 0.5) for shape in figure["layout"]["shapes"]] == [20]


def test_the_file_has_a_line_for_each_of_the_strongest(loaded: LoadedModel) -> None:
    """In full precision, with the scores of an answer once they are known; nothing that a spreadsheet would run."""
    encoding = loaded.tokenizer.encode("=1+1 she [MASK]")
    run = neuron_activations(loaded, encoding)
    found = strongest_neurons(run.contributions, 3)
    target = word_target(loaded.tokenizer, encoding, "cat")
    scores = neuron_gradients(loaded, encoding, target, steps=2)
    for known in (None, scores):
        rows = list(csv.DictReader(io.StringIO(labelled_csv(neuron_columns(run, found, known)).decode())))
        assert len(rows) == 6 * len(encoding) * 3
        one = rows[(2 * len(encoding) + 1) * 3 + 2]
        assert (one["layer"], one["position"], one["token"], one["place"]) == ("2", "1", "'=", "3")
        neuron = int(one["neuron"])
        assert neuron == found.neurons[2, 1, 2]
        assert_near(
            [float(one["activation"]), float(one["contribution"])],
            [run.activations[2, 1, neuron], run.contributions[2, 1, neuron]],
        )
        assert ("score" in one) == (known is not None)
    assert_near(float(one["score"]), scores.scores[2, 1, neuron])


def test_figures_say_what_they_were_given() -> None:
    """Numbers in the cells, colours by the limit of their column, tags as text; what does not fit is refused."""
    neurons, values = np.array([[3, 40], [5, 6]]), np.array([[1.0, -2.0], [0.5, 4.0]])
    figure = neuron_map(
        neurons, values, ["<b>a</b>", "b"], ["L0", "L1"], value_name="adds", limits=[1.0, 4.0], selected=(1, 0)
    )
    assert np.asarray(figure.data[0].z).tolist() == [[1.0, -0.5], [0.5, 1.0]]
    assert {text for trace in figure.data[2:] for text in trace.text} == {"3", "40", "5", "6"}
    assert "&lt;b&gt;a" in figure.layout.yaxis.ticktext[0]
    named = neuron_map(
        neurons, values, ["a", "b"], ["L0", "L1"], value_name="adds", limits=[1.0, 4.0], words=[["<i>", "y"], ["z", ""]]
    )
    assert {text for trace in named.data[2:] for text in trace.text} == {"&lt;i&gt;", "y", "z", ""}
    ones, layers = np.ones((1, 24), int), [f"L{n}" for n in range(24)]
    with use_look(Look(dark=True, lecture=True)):
        wide = neuron_map(ones, ones.astype(float), ["a"], layers, value_name="adds", limits=[0.0] * 24)
    assert len(wide.data) == 2
    with pytest.raises(ValueError, match="limits"):
        neuron_map(neurons, values, ["a", "b"], ["L0", "L1"], value_name="adds", limits=[1.0])
    bars = value_bars(["<i>x", "y"], [1.0, -2.0], title="t", selected=1)
    assert list(bars.layout.yaxis.ticktext) == ["&lt;i&gt;x  ", "<b>y</b>  "]
    with pytest.raises(ValueError, match="one for each"):
        value_bars(["a"], [1.0, 2.0], title="t")


@pytest.mark.parametrize("value", ["3", "3.x", "-1.2", "1.2.3", ""])
def test_what_no_address_says_is_refused(value: str) -> None:
    """Neither is a factor that is none, or without bounds."""
    with pytest.raises(Refused):
        parse_pair(value)
    for factor in ("", "nan", "1e9", "x"):
        with pytest.raises(Refused):
            parse_factor(factor)
    assert parse_pair("3.146") == (3, 146) and parse_factor("-2.5") == -2.5
