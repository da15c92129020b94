"""Arrows that a reader cuts: how an address writes them, what every page then shows, and what is put back."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bert_core import AddedVector, AttentionKnockout, Refused, ScaledNeuron, capture, edited, load
from bert_core.run.vectors import head_vectors
from tests.app.test_attention_pages import Sent
from tests.near import assert_near
from tests.visit import at, key_of, settled, visited, words
from viz_app.export.snippet import snippet
from viz_app.maps import MapView, renormalised_attention
from viz_app.notation import MOST_EDITS, parse_cuts, parse_scaled, write_cuts, write_scaled

TEXT = {"text": "The cat sat on the mat.", "masked": "5"}
SHOWN = "Blocked attention: L2 H3, “[MASK]” (6) → “cat” (2), “sat” (3): the rest of the row is renormalised"


@pytest.mark.parametrize(
    ("written", "cuts"),
    [
        ("", ()),
        ("2.3:q4>k7,8:r", (AttentionKnockout((4,), (7, 8), (2,), (3,)),)),
        ("0.1,5:q>k:x", (AttentionKnockout(None, None, (0,), (1, 5), renormalised=False),)),
        (
            "4:q1,2>k3:x_all:q>k0:r",
            (AttentionKnockout((1, 2), (3,), (4,), renormalised=False), AttentionKnockout(None, (0,))),
        ),
    ],
)
def test_an_address_says_what_is_cut(written: str, cuts: tuple[AttentionKnockout, ...]) -> None:
    """Both ways: the cuts of an address, and the address of cuts."""
    assert parse_cuts(written) == cuts
    assert write_cuts(cuts) == written


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("2.3", "write a cut as layer.head:qQUERIES>kKEYS:r, such as 2.3:q4>k7,8:r"),
        ("2.3:q4>k:r", "every key is blocked, and a softmax over no keys is undefined"),
        ("_".join(["2.3:q4>k7:r"] * (MOST_EDITS + 1)), f"at most {MOST_EDITS} cuts"),
        ("2.3:q-4>k7:r", "write a cut as"),
    ],
)
def test_an_address_that_cannot_be_is_refused(written: str, sentence: str) -> None:
    """With what is allowed."""
    with pytest.raises(Refused, match=sentence):
        parse_cuts(written)


def test_an_address_says_which_neurons_are_scaled() -> None:
    """Both ways; and what cannot be is refused with what is allowed."""
    scaled = (ScaledNeuron(3, 120, 0.0), ScaledNeuron(0, 7, -1.5))
    assert parse_scaled("3.120:0_0.7:-1.5") == scaled and write_scaled(scaled) == "3.120:0_0.7:-1.5"
    for written in ("3:0", "3.120", "3.120:nan", "3.-1:0", "3.120:1e400"):
        with pytest.raises(Refused, match="write a scaled neuron as"):
            parse_scaled(written)
    with pytest.raises(Refused, match=f"at most {MOST_EDITS} neurons"):
        parse_scaled("_".join(["3.120:0"] * (MOST_EDITS + 1)))


def test_every_page_reads_the_text_with_the_neurons_that_are_scaled() -> None:
    """One address: the line, the record, another answer, the script and the notes; cuts beside it; then Restore."""
    app = settled(visited("predict", **TEXT, scaled="5.0:40_4.1:0", cut="2.3:q6>k2,3:r"))
    assert "Scaled: L5 neuron 0: × 40; L4 neuron 1: off" in words(app) and SHOWN in words(app)
    run = app.session_state["_question"].run()
    assert run.edits == (AttentionKnockout((6,), (2, 3), (2,), (3,)), ScaledNeuron(5, 0, 40.0), ScaledNeuron(4, 1, 0.0))
    expected = capture(edited(load(device="cpu"), run.edits), run.encoding)
    assert_near(run.predictions[0].probabilities, expected.predictions[0].probabilities)
    assert "bert_core.ScaledNeuron(layer=5, neuron=0, factor=40.0)" in snippet(run, MapView(), "headlight-mini")
    assert "scaled: L5 neuron 0: × 40" in MapView().maps(run).notes
    app.button(key="restore_scaled").click()
    settled(app.run())
    assert "Scaled:" not in words(app) and SHOWN in words(app) and "scaled" not in app.query_params
    missing = settled(visited("predict", **TEXT, scaled="5.99999:0", cut="2.3:q6>k2,3:r"))
    assert "neuron 99999 does not exist" in words(missing).lower() and "No neuron is scaled." in words(missing)
    assert SHOWN in words(missing)


def probability_of(app: AppTest) -> float:
    """Of the likeliest word, as the page Predict hands it to its file."""
    current = app.session_state["_question"]
    return float(current.run().predictions[0].probabilities.max())


def test_every_page_reads_the_text_without_what_is_cut() -> None:
    """One address: the line on every page about the text, another answer, its record, its script; then Restore."""
    plain = settled(visited("predict", **TEXT))
    assert "Blocked attention:" not in words(plain)
    app = settled(visited("predict", **TEXT, cut="all:q6>k1,2,3:r"))
    blocked = "all layers, “[MASK]” (6) → “the” (1), “cat” (2), “sat” (3): the rest of the row is renormalised"
    assert f"Blocked attention: {blocked}" in words(app)
    run = app.session_state["_question"].run()
    assert run.edits == (AttentionKnockout((6,), (1, 2, 3)),) and not run.attention[:, :, 6, 1:4].any()
    loaded = load(device="cpu")
    expected = capture(edited(loaded, run.edits), run.encoding)
    assert_near(run.predictions[0].probabilities, expected.predictions[0].probabilities)
    assert abs(probability_of(app) - probability_of(plain)) > 1e-3
    script = snippet(run, MapView(), "headlight-mini")
    assert (
        "loaded = bert_core.edited(loaded, [bert_core.AttentionKnockout(queries=(6,), keys=(1, 2, 3), layers=None"
        in script
    )
    assert any("blocked attention: all layers" in note for note in MapView().maps(run).notes)
    for page in ("attention", "why", "layers", "heads", "inside", "roles", "prune", "compare", "causes", "neurons"):
        settled(at(app, page).run())
        assert "Blocked attention: all layers" in words(app) and not app.exception and not app.error, page
    app.button(key="restore_cut").click()
    settled(app.run())
    assert "Blocked attention:" not in words(app) and app.session_state["_question"].loaded.edits == ()
    assert "cut" not in app.query_params


@pytest.mark.parametrize("page", ["attention", "roles", "layers", "heads", "inside", "why", "compare"])
def test_pages_live_with_rows_that_sum_to_less(page: str) -> None:
    """Arrows that are removed, a whole row and a whole head of them, break no page; figures are of what is left."""
    app = settled(visited(page, **TEXT, cut="2.3:q>k:x_1.0:q4>k:x_0.1:q>k0:x", against="heads"))
    assert not app.exception and not app.error and "Blocked attention: L2 H3, every token → every token" in words(app)
    run = app.session_state["_question"].run()
    left = renormalised_attention(run)
    assert_near(left[0, 1].sum(-1), 1.0)
    assert left[:, 4:].shape == run.attention[:, 4:].shape and not run.attention[2, 3].any()


def test_what_the_text_has_not_is_said_and_nothing_is_cut() -> None:
    """A link whose cut is beyond the text, of a head that is not there, or leaves a row nothing."""
    for cut, says in (
        ("2.3:q6>k40:r", "The knockout names position 40: the text has positions 0 to 8."),
        ("9.3:q6>k4:r", "Layer 9"),
        ("2.3:q6>k0,1,2,3,4:r_2:q6>k5,6,7,8:r", "Every key of position 6 is blocked in head 3"),
    ):
        app = settled(visited("predict", **TEXT, cut=cut))
        assert any(says in warning.value.replace("\\", "") for warning in app.warning), cut
        assert "No attention is blocked." in words(app) and app.session_state["cut"] == ()
    app = settled(visited("predict", **TEXT, cut="what"))
    assert any("The link says cut=" in warning.value.replace("\\", "") for warning in app.warning)


def test_a_new_text_is_whole() -> None:
    """What is cut belongs to its text: typing another one drops it, hiding a word does not."""
    app = settled(visited("attention", **TEXT, cut="2.3:q6>k2,3:r"))
    assert SHOWN in words(app)
    app.session_state["masked"] = ()
    settled(app.run())
    assert "Blocked attention: L2 H3, “mat” (6)" in words(app)
    app.text_input(key=key_of(app, "text")).set_value("A dog ran.")
    settled(app.run())
    assert "Blocked attention:" not in words(app) and app.session_state["cut"] == ()


def test_the_vectors_of_a_head_that_is_cut_are_refused() -> None:
    """The neuron view makes attention of queries and keys alone, which it then is not: a sentence, and no picture."""
    app = settled(visited("attention", **TEXT, cut="2.3:q6>k2,3:r", view="neuron", head="2.3"))
    assert "L2 H3 has blocked attention edges" in words(app)
    other = settled(visited("attention", **TEXT, cut="2.3:q6>k2,3:r", view="neuron", head="2.4"))
    assert "L2 H3 has blocked attention edges" not in words(other)
    loaded = load(device="cpu")
    with pytest.raises(Refused, match="L2 H3 has blocked attention edges"):
        head_vectors(edited(loaded, parse_cuts("2:q1>k2:x")), loaded.tokenizer.encode(TEXT["text"]), 2, 3)


def test_selected_tokens_are_cut_by_the_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled in with the selection; what cannot be cut has no button; after the click the map shows nothing there."""
    sent = Sent(monkeypatch)
    app = settled(visited("attention", **TEXT, view="curves", head="2.10", tokens="q6"))
    before = sent.drawn()[6].copy()
    app.session_state["cut_open"] = True
    settled(app.run())
    assert app.multiselect(key=key_of(app, "cut_from")).value == [6]
    assert app.button(key="cut_arrows").disabled and "an empty row cannot be renormalised" in words(app)
    app.multiselect(key=key_of(app, "cut_to")).set_value([2, 3])
    settled(app.run())
    app.button(key="cut_arrows").click()
    settled(app.run())
    assert SHOWN.replace("H3", "H10") in words(app) and app.query_params["cut"] in (
        "2.10:q6>k2,3:r",
        ["2.10:q6>k2,3:r"],
    )
    after = sent.drawn()[6]
    assert not after[2:4].any() and (after[[0, 1, 4]] >= before[[0, 1, 4]]).all() and before[2:4].all()


def test_predict_shows_what_the_model_says_before_and_now() -> None:
    """Where something is changed, the same words have a bar of each, and the calibration is said to be of the whole."""
    app = settled(visited("predict", **TEXT, cut="all:q6>k1,2,3:r"))
    loaded, encoding = load(device="cpu"), app.session_state["_question"].encoding
    whole, cut = (capture(model, encoding) for model in (loaded, edited(loaded, parse_cuts("all:q6>k1,2,3:r"))))
    figure = json.loads(app.get("plotly_chart")[0].proto.spec)
    before, now = figure["data"][:2]
    assert (before["name"], now["name"]) == ("before", "now")
    names = [re.sub("<[^>]*>", "", name).strip() for name in figure["layout"]["yaxis"]["ticktext"]]
    assert {loaded.tokenizer.token_of(piece) for piece, _ in cut.predictions[0].top[:10]} <= set(names)
    pieces = [loaded.tokenizer.id_of(name) for name in names]
    for bars, run in ((before, whole), (now, cut)):
        assert_near(np.array(bars["x"]), run.predictions[0].probabilities[pieces], of=1.0)
    assert "Calibration was measured on the unmodified model" in words(app) and not app.exception
    plain = settled(visited("predict", **TEXT))
    assert "Calibration was measured" not in words(plain)
    assert "before" not in [bars.get("name") for bars in json.loads(plain.get("plotly_chart")[0].proto.spec)["data"]]


def test_notes_name_an_added_vector() -> None:
    """The tokens, the depth, and the norm of the vector times its factor."""
    loaded = load(device="cpu")
    vector = np.zeros(loaded.config.hidden_size)
    vector[:2] = 3, 4
    edits = [AddedVector(0, vector, -0.5), AddedVector(4, vector, 2.0, positions=(2, 6))]
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(TEXT["text"]), (5,))
    run = capture(edited(loaded, edits), encoding)
    assert MapView().maps(run).notes[-2:] == (
        "added vector: every token, in the embeddings, norm 2.5",
        "added vector: “cat” (2), “[MASK]” (6), after L3, norm 10",
    )
