"""The page Attribution and the target above it, without a browser: scores, their test, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

import bert_core
from bert_core import LoadedModel, Target, capture, faithfulness, token_scores
from bert_core.methods import METHODS
from tests.near import assert_near
from tests.visit import ENTRY, at, key_of, visited, words
from viz_app.figures.style import DIVERGING, SEQUENTIAL, Look, both_shades, shade, two_digits, use_look
from viz_app.figures.why import ScoreRow, score_strip, score_table, trust_chart
from viz_app.pages.why import EXAMPLE, RANKED_METHODS, page, scores
from viz_app.shell import notices

TEXT = "the cat sat on the mat"


@pytest.fixture
def opened(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Opens the page with the tiny model, by a link."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))

    def page(**address: str) -> AppTest:
        app = AppTest.from_file(ENTRY, default_timeout=60)
        app.query_params.update({"text": TEXT, "masked": "5", "model": str(tiny_model_folder), **address})
        app.session_state["open_table"] = True
        return until(at(app.run(), "why").run(), lambda app: "depend on?" in words(app))

    return page


def until(app: AppTest, there: Callable[[AppTest], bool]) -> AppTest:
    """The page once something is there: in a browser it comes back by itself while a job runs."""
    ends = time.monotonic() + 60
    while not there(app) and time.monotonic() < ends:
        app.run()
    assert there(app) and not app.exception and not app.error
    return app


def button(app: AppTest, start: str):  # noqa: ANN201
    return next(b for b in app.button if b.label.startswith(start))


def type_target(app: AppTest, typed: str) -> None:
    """What somebody types into the control of the target."""
    control = app.selectbox(key=key_of(app, "target"))
    control.options.append(typed)
    control.set_value(typed).run()


def table_of(app: AppTest) -> list[list[list[str]]]:
    """The cells of the folded table: method, token and number of every cell, row by row."""
    specs = [json.loads(element.proto.spec) for element in app.get("plotly_chart")]
    table = next(spec for spec in specs if spec["layout"]["xaxis"].get("ticktext", [""])[-1] == "agreement")
    cells = table["data"][1]["hovertext"]
    return [list(row) for _, row in groupby((cell.split("<br>") for cell in cells), key=lambda cell: cell[0])]


def methods_of_table(app: AppTest) -> list[str]:
    """The methods of the folded table, without their ranks."""
    return [row[0][0].partition(". ")[2] for row in table_of(app)]


def test_the_table_holds_the_librarys_scores(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """Every method in its row, with its own numbers; what the chosen one measures is below the strip."""
    app = opened(target="6:mat", method="rollout")
    encoding = tiny_loaded.tokenizer.mask_words(tiny_loaded.tokenizer.encode(TEXT), [5])
    target = Target("mlm", 6, tiny_loaded.tokenizer.id_of("mat"))
    names = list(RANKED_METHODS)
    expected = token_scores(tiny_loaded, encoding, target, names)
    drawn = np.array([[float(cell[2]) for cell in row] for row in table_of(app)])
    assert_near(drawn, expected)
    assert [row[0][0] for row in table_of(app)] == [f"{rank}. {name}" for rank, name in enumerate(names, 1)]
    said = words(app)
    assert "Which words does “mat” (" in said and "Attention multiplied through all layers" in said
    strip = json.loads(app.get("plotly_chart")[0].proto.spec)["data"]
    shown = {text.split("<br>")[0]: trace for trace in strip for text in trace.get("hovertext", ())[:1]}
    assert list(shown) == [f"{names.index('rollout') + 1}. rollout", *(f"{n + 1}. {names[n]}" for n in range(3))]
    assert "rank of the method at finding the subject of a verb, measured with headlight-mini" in said
    for label, trace in shown.items():
        scores = expected[int(label.partition(".")[0]) - 1]
        assert_near([float(text.split("<br>")[2]) for text in trace["hovertext"]], scores)
    assert "It has no sign, weights all heads equally" in said


def test_trust_is_asked_for_by_a_button_and_is_the_librarys(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Nothing is taken away before the click, which names its cost; then every method has its verdict."""
    app = opened(target="6:mat", words="1")
    assert "than chance here:" not in words(app)
    ask = button(app, "Test the methods")
    assert "about" in ask.label and "forward passes" in ask.help
    ask.click().run()
    until(app, lambda app: "than chance here:" in words(app))
    encoding = tiny_loaded.tokenizer.mask_words(tiny_loaded.tokenizer.encode(TEXT), [5])
    target = Target("mlm", 6, tiny_loaded.tokenizer.id_of("mat"))
    found = faithfulness(tiny_loaded, encoding, target, token_scores(tiny_loaded, encoding, target), words=True)
    for verdict, meaning in (("better", "Better than chance here"), ("chance", "No better than chance here")):
        names = [m.name for m, said in zip(METHODS, found["aopc"].verdicts, strict=True) if said == verdict]
        assert not names or f"**{meaning}:** {', '.join(names)}." in words(app)
    rows = [row[0][0] for row in table_of(app)]
    assert all(name[-1] in "●○✕" for name in rows)
    earlier = "Result for an earlier question: Which words does “mat” depend on?"
    app.text_input(key=key_of(app, "text")).set_value("the dog sat on the mat").run()
    until(app, lambda app: table_of(app)[0][2][1] == "dog")
    assert earlier in words(app) and button(app, "Test the methods"), "the last result stays in sight"
    app.session_state["masked"] = ()
    app.run()
    assert "There is no prediction to explain yet" in words(app) and table_of(app)[0][2][1] == "dog"
    assert earlier in words(app)


def test_a_word_can_be_typed_as_the_target(opened: Callable[..., AppTest]) -> None:
    """Any word at its mask; one of several pieces, and one that the vocabulary lacks, get a sentence."""
    app = opened()
    type_target(app, "dog")
    assert app.session_state.target == "6:dog" and "Which words does “dog” (" in words(app)
    type_target(app, "dogs")
    assert "'dogs' has 2 pieces in this vocabulary, dog and ##s, but there is only one mask" in words(app)
    type_target(app, "猫")
    assert "has characters that are not in the vocabulary" in words(app)
    type_target(app, "dog at 2")
    assert "Position 2 is not masked: choose 6" in words(app)
    assert app.session_state.target == "6:dog" and "Which words does “dog” (" in words(app), (
        "what was asked before stays"
    )
    assert not app.exception and not app.error


def test_a_best_guess_ends_with_its_text(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """What nobody chose follows the text; a word that the visitor chose is asked of the next text, too."""
    app = opened(text="the cat sat on the [MASK]")
    before = app.session_state.target
    app.text_input(key=key_of(app, "text")).set_value("a dog ran to the [MASK] .").run()
    (guess,) = capture(tiny_loaded, tiny_loaded.tokenizer.encode("a dog ran to the [MASK] ."), top_k=1).predictions
    assert app.session_state.target == f"6:{tiny_loaded.tokenizer.token_of(guess.top[0][0])}" != before
    type_target(app, "queen")
    app.text_input(key=key_of(app, "text")).set_value("the cat sat on the [MASK]").run()
    assert app.session_state.target == "6:queen"


def test_several_masks_and_several_pieces(opened: Callable[..., AppTest]) -> None:
    """A hidden word of two pieces can be asked for whole; all that is hidden is one target; a word needs a place."""
    app = opened(text="the cats sat on the mat", masked="1,5", target="2:cats")
    assert "Which words does “cats” (" in words(app)
    app.selectbox(key=key_of(app, "target")).set_value("loss").run()
    until(app, lambda app: "Which words do the masked words (loss" in words(app))
    type_target(app, "dog at 7")
    until(app, lambda app: "Which words does “dog” at position 7 (" in words(app))
    type_target(app, "walks")
    assert "Positions 2, 3 and 7 are masked: add the position of the word" in words(app)


def test_one_word_against_another(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """The other word is in the address, is explained as a difference, and must be one piece."""
    app = opened(target="6:mat", contrast="city")
    assert "Which words does “mat” rather than “city” (" in words(app) and "difference of the two logits" in words(app)
    encoding = tiny_loaded.tokenizer.mask_words(tiny_loaded.tokenizer.encode(TEXT), [5])
    mat, city = map(tiny_loaded.tokenizer.id_of, ("mat", "city"))
    expected = token_scores(tiny_loaded, encoding, Target("contrast", 6, mat, against=city), ["DecompX"])
    assert_near([float(cell[2]) for cell in table_of(app)[RANKED_METHODS.index("DecompX")]], expected[0])
    type_target(app, "dog")
    until(app, lambda app: "Which words does “dog” (" in words(app))
    assert app.session_state.contrast == "", "another target has nothing to do with the last one's other word"
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update({"text": TEXT, "masked": "5", "target": "6:mat", "contrast": "playgrounds"})
    until(app.run(), lambda app: "only words of one piece can be compared" in words(app))
    assert "only words of one piece can be compared" in words(app)
    assert app.session_state.contrast == "" and not app.exception and not app.error


def test_next_sentences_say_what_each_text_holds(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """A, B and the added tokens; their sums are all there is; the headline has the probability."""
    app = opened(pair="it was old", target="nsp", method="DecompX")
    encoding = tiny_loaded.tokenizer.mask_words(tiny_loaded.tokenizer.encode(TEXT, "it was old"), [5])
    follows = capture(tiny_loaded, encoding).nsp
    assert follows is not None
    said = words(app)
    assert f"Which words does “B follows A” ({two_digits(follows)}) depend on?" in said
    assert "words of sentence A **" in said and "words of sentence B **" in said and "[CLS] and [SEP] **" in said


def test_without_a_target_there_is_a_way_to_one(opened: Callable[..., AppTest]) -> None:
    """No mask and no pair: one sentence, and no answer."""
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update({"text": TEXT})
    at(app.run(), "why").run()
    assert "There is no prediction to explain yet: click a word to mask it, or add a second sentence" in words(app)
    assert not app.exception and not app.error and not app.get("plotly_chart")


def test_what_needs_too_much_memory_is_refused_and_the_rest_answers(
    opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DecompX names the figure and a cheaper method; the others stand in the table, and one of them stands in."""
    monkeypatch.setattr("bert_core.run.memory.free_bytes", lambda device: 1000)
    app = opened(text="the cat sat on the red mat")
    said = words(app)
    assert (
        "DecompX on 9 tokens needs 0.0 MiB of memory, but only 0.0 MiB are free: shorten the text, or use "
        "integrated gradients" in said
    )
    assert f"By {page.STAND_IN}," in said
    assert methods_of_table(app) == [name for name in RANKED_METHODS if name != "DecompX"]


def test_what_has_no_room_in_the_server_is_refused_and_the_rest_answers(
    opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of the server's memory stops one method by name; the others stand in the table."""
    monkeypatch.setattr(scores, "score_bytes", lambda _, name, tokens: 1 << 60 if name == "DecompX" else 0)
    app = opened(text="the cat sat on the green mat")
    assert "DecompX would take about 1,099,511,627,776 MB of memory" in words(app)
    assert methods_of_table(app) == [name for name in RANKED_METHODS if name != "DecompX"]
    assert f"By {page.STAND_IN}," in words(app)


def methods_of_strip(app: AppTest) -> list[str]:
    """The methods of the figure, without their ranks."""
    strip = json.loads(app.get("plotly_chart")[0].proto.spec)["data"]
    labels = dict.fromkeys(text.split("<br>")[0] for trace in strip for text in trace.get("hovertext", ())[:1])
    return [label.partition(". ")[2] for label in labels]


def test_slow_methods_wait_for_a_button(opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the text is long for the model, what takes many passes is behind a button that names it and its cost.

    Until it is pressed, the figure has as many methods as ever, the best ranked ones of those that are quick.
    """
    monkeypatch.setattr(scores, "UNCONFIRMED_SECONDS", 0)
    app = opened(text="the cat sat on the blue mat", method="integrated gradients")
    assert "integrated gradients is slow on this text" in words(app)
    ask = button(app, "Compute 5 slow methods")
    assert "DecompX" in ask.help and "forward passes" in ask.help
    # In the row of controls a third button would start a second row, and the figure lower.
    parts = [part.key if isinstance(part, Button) else part.type for part in app.main]
    assert parts.index("ask_test") < parts.index("plotly_chart") < parts.index("ask_slow")
    quick = methods_of_table(app)
    assert quick == [name for name in RANKED_METHODS if name not in ask.help] and len(quick) == len(METHODS) - 5
    assert methods_of_strip(app) == [page.STAND_IN, *(name for name in quick if name != page.STAND_IN)][:4]
    ask.click().run()
    until(app, lambda app: len(table_of(app)) == len(METHODS))
    assert "By integrated gradients," in words(app)
    assert methods_of_strip(app) == ["integrated gradients", "occlusion", "gradient x attention", "DecompX"]


def test_the_button_names_a_single_slow_method(opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one method alone is slow, its name is in the button."""
    slowest = max(METHODS, key=lambda method: method.passes(12))
    monkeypatch.setattr(scores, "QUICK_PASSES", slowest.passes(12) - 1)
    monkeypatch.setattr(scores, "UNCONFIRMED_SECONDS", 0)
    app = opened(text="the cat sat on the blue mat")
    ask = button(app, "Compute")
    assert ask.label.startswith(f"Compute {slowest.name}, about") and ask.help.endswith("forward passes.")


def test_the_example_surprises_as_it_says() -> None:
    """The bundled model: every number and every sign that the remark on "milk" names."""
    loaded, example = bert_core.load("headlight-mini", device="cpu"), EXAMPLE
    original = loaded.tokenizer.encode(example.text)
    encoding = loaded.tokenizer.mask_words(original, example.masked)
    place, tea, milk = encoding.mask_positions[0], *map(loaded.tokenizer.id_of, ("tea", "milk"))
    target = Target("mlm", place, tea)
    assert example.target == f"{place}:tea" and original.tokens[place] == "tea"
    at, free = original.tokens.index("milk"), list(target.removable(encoding))
    names = ["attention", "DecompX", "gradient x attention", "occlusion"]
    attention, decompx, slopes, occlusion = token_scores(loaded, encoding, target, names)
    words = [place for place in free if original.tokens[place].isalpha()]
    assert attention[words].max() == attention[at]
    assert slopes[at] < -0.4 and occlusion[at] < -0.4
    (rather,) = token_scores(loaded, encoding, Target("mlm", place, milk), ["DecompX"])
    assert (f"{decompx[at]:.1f}", f"{rather[at]:.1f}") == ("1.5", "4.9")
    (contrast,) = token_scores(loaded, encoding, Target("contrast", place, tea, against=milk), ["DecompX"])
    assert contrast[at] == contrast.min() < -1
    shares = [
        bert_core.capture(loaded, loaded.tokenizer.mask_words(original, masked)).predictions[0].probabilities[tea]
        for masked in (example.masked, (*example.masked, original.words[at]))
    ]
    assert [f"{share:.2f}" for share in shares] == ["0.16", "0.27"]
    top = bert_core.capture(loaded, encoding).predictions[0].top[0][0]
    assert loaded.tokenizer.token_of(top) == "milk"
    said = " ".join(example.remark.split())
    assert all(number in said for number in ("0.16", "0.27", "1.5", "4.9"))


def test_the_page_opens_on_it() -> None:
    """Who opens this page first sees the example with its remark; another text has no remark."""
    app = visited("why")
    until(app, lambda app: "Look at “milk”" in words(app))
    assert app.session_state.text == EXAMPLE.text and app.session_state.target == "6:tea"
    app.text_input(key=key_of(app, "text")).set_value("The [MASK] sat.").run()
    assert "Look at “milk”" not in words(app)


def test_attention_that_is_flat_or_sunk_is_said(monkeypatch: pytest.MonkeyPatch, tiny_loaded: LoadedModel) -> None:
    """A sentence with the numbers for each, and none where neither is so."""
    said: list[str] = []
    monkeypatch.setattr(notices, "write_note", said.append)
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    run, keys = bert_core.capture(tiny_loaded, encoding), len(encoding)
    even, sunk, mixed = np.full((keys, keys), 1 / keys), np.zeros((keys, keys)), np.eye(keys)
    sunk[:, -1] = 1
    for maps, sentence in (
        (even, "8 of 8 heads spread their attention evenly"),
        (sunk, "[SEP] (100%)"),
        (mixed, ""),
    ):
        said.clear()
        notices.show_attention_cautions(
            dataclasses.replace(run, attention=np.broadcast_to(maps, run.attention.shape).copy())
        )
        assert len(said) == (1 if sentence else 0) and all(sentence in one for one in said)


def test_shades_are_those_of_the_scale() -> None:
    """The ends and the middle are the scale's own colours; what is written on them stands out."""
    assert shade(1, signed=True) == (DIVERGING.light[-1], "#ffffff")
    assert shade(0, signed=True) == (DIVERGING.light[6], "#000000")
    assert both_shades(-2, signed=True) == ((DIVERGING.light[0], "#ffffff"), (DIVERGING.dark[0], "#000000"))
    assert both_shades(0, signed=False)[1] == (SEQUENTIAL.dark[0], "#ffffff")
    assert shade(0.5 / 12, signed=False)[0] not in SEQUENTIAL.light


def test_a_clicked_row_chooses_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the cell that was clicked; a click that takes the choice back leaves the method."""
    points = [{"x": 3, "y": 1}]
    chart = SimpleNamespace(selection=SimpleNamespace(points=points))

    class State(dict):
        __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__

    state = State(method="flow", methods=chart)
    monkeypatch.setattr(page.st, "session_state", state)
    page.select_method(["flow", "rollout"], "methods")
    assert state.method == "rollout"
    points[:] = [{"x": 3, "y": 0.2, "customdata": 0}]
    page.select_method(["flow", "rollout"], "methods")
    assert state.method == "flow", "a row of bars says its number"
    points.clear()
    page.select_method(["flow", "rollout"], "methods")
    assert state.method == "flow"


def test_an_unlikely_target_is_called_unlikely_first(opened: Callable[..., AppTest]) -> None:
    """Below a probability of 0.1, above all scores; signed wording belongs to signed methods."""
    said = words(opened(target="6:queen", method="attention"))
    assert said.index("is unlikely here: its probability is only") < said.index("By attention,")
    assert "does not show whether a word supports or opposes" in said and "Orange words support" not in said
    said = words(opened(target="6:queen", method="occlusion"))
    assert "Orange words support “queen”, blue words oppose it" in said


def test_the_strip_and_its_rows_share_columns() -> None:
    """Cells of the first method, bars of the others; a long text names every word; lengths have to fit."""
    values = np.array([0.5, -1.0, 0.25])
    rows = [ScoreRow("<b>", values, 3 * values, True), ScoreRow("b", values, values, True)]
    figure = score_strip([*rows, ScoreRow("c", abs(values), abs(values), False)], ["x", "<i>", "z"])
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [list(bar.x) for bar in bars] == [[0, 1, 2]] * 2 and bars[0].marker.color[1] == DIVERGING.light[3]
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1] > figure.layout.yaxis3.domain[1]
    assert figure.layout.yaxis3.ticktext[0].strip() == "c (unsigned)" and "&lt;b&gt;" in figure.data[1].hovertext[0]
    many = score_strip([ScoreRow("a", np.zeros(60), np.zeros(60), True)] * 2, ["word"] * 60)
    assert len(many.layout.xaxis.ticktext) == 60
    with pytest.raises(ValueError, match="one of each"):
        score_strip([rows[0], ScoreRow("b", np.zeros(2), np.zeros(2), True)], ["x", "y", "z"])


def test_figures_write_texts_as_they_are_and_check_their_sizes() -> None:
    """Labels are plain text; numbers stand on hover in full; other sizes are refused."""
    values = np.array([[0.123456789, -2.0], [0.0, 1.0]])
    figure = score_table(values / 2, values, ["<b>a</b>", "b"], ["x", "<i>"], unit="share", selected=1)
    assert (
        figure.layout.yaxis.ticktext[0] == "&lt;b&gt;a&lt;/b&gt;  "
        and figure.data[1].hovertext[0] == "&lt;b&gt;a&lt;/b&gt;<br>x<br>0.123456789"
    )
    assert len(figure.layout.shapes) == 1
    cells = zip(figure.data[1].x, figure.data[1].y, figure.data[1].hovertext, strict=True)
    assert {(x, y): float(text.split("<br>")[2]) for x, y, text in cells} == {
        (x, y): values[y, x] for x in range(2) for y in range(2)
    }
    for dark in (False, True):
        with use_look(Look(dark)):
            drawn = score_table(
                np.array([[0.0, 1.0, np.nan]]), np.array([[0.0, 3.25, np.nan]]), ["a"], ["x", "y", "z"], unit="share"
            )
        inks = {number: trace.textfont.color for trace in drawn.data[2:] for number in trace.text}
        assert inks["0.00"] == both_shades(0, signed=True)[dark][1] and "nan" not in inks
        assert inks["3.25"] == both_shades(1, signed=True)[dark][1] != inks["0.00"], "what is written stands out"
    many = np.zeros((1, 30))
    assert len(score_table(many, many, ["a"], ["x"] * 30, unit="share").data) == 2, "no room for numbers"
    with pytest.raises(ValueError, match="at least one of each"):
        score_table(values, values, ["a"], ["x", "y"], unit="share")
    aside = score_table(
        values, values, ["a", "b"], ["x"] * 2, selected=1, unit="share", extra_column=("alike", np.array([1.0, -0.5]))
    )
    column = [trace for trace in aside.data if max(trace.x) > 1.5]
    assert column[0].z.tolist() == [[1.0], [-0.5]] and aside.layout.xaxis.ticktext[-1] == "alike"
    assert {text for trace in column[1:] for text in trace.text} == {"1.00", "−0.50"}
    (frame,) = aside.layout.shapes
    assert frame.x1 > column[0].x[0], "the frame includes the extra column"
    with pytest.raises(ValueError, match="beside 2 rows: one number for each"):
        score_table(values, values, ["a", "b"], ["x"] * 2, unit="share", extra_column=("alike", np.zeros(3)))
    chart = trust_chart(["a", "b"], np.array([0.1, 0.4]), ["chance", "better"], (0.0, 0.2), measure="AOPC")
    symbols = {trace.name: (trace.marker.symbol, list(trace.x)) for trace in chart.data}
    assert symbols["better than chance here"] == ("circle", [0.4])
    assert symbols["no better than chance here"] == ("circle-open", [0.1])
    with pytest.raises(ValueError, match="2 methods, 1 scores and 2 verdicts: one of each"):
        trust_chart(["a", "b"], np.array([0.1]), ["chance", "better"], (0.0, 0.2), measure="AOPC")


def test_totals_of_a_whole_file_are_opened(opened: Callable[..., AppTest]) -> None:
    """Answer, method and the least number of texts choose the words; another file is refused in a sentence."""
    app = opened(target="6:mat")
    app.session_state["open_totals"] = True
    app.run()
    assert "headlight explain" in words(app)
    rows = [
        "good,DecompX,<b>nice</b>,5,2.0,0.1",
        "good,DecompX,bad,4,-1.0,0.1",
        "good,DecompX,rare,1,9.0,nan",
        "good,gradient,nice,5,7.0,0.1",
    ]
    totals = "\n".join(["asked,method,word,texts,mean,error", *rows])
    app.file_uploader(key="totals_upload#file").upload("why.words.csv", totals.encode(), "text/csv").run()
    assert not app.exception

    def drawn() -> dict[str, list[float]]:
        charts = [json.loads(element.proto.spec) for element in app.get("plotly_chart")]
        (chart,) = (one for one in charts if "mean score by" in str(one["layout"]["xaxis"]))
        points = chart["data"][0]
        cells = [text.split("<br>") for text in points["hovertext"]]
        return {name: [int(count.split()[0]), x] for (name, _, count), x in zip(cells, points["x"], strict=True)}

    assert drawn() == {"&lt;b&gt;nice&lt;/b&gt;": [5, 2.0], "bad": [4, -1.0]}
    app.number_input(key=key_of(app, "totals_least")).set_value(1).run()
    assert "rare" in drawn()
    app.selectbox(key=key_of(app, "totals_method")).set_value("gradient").run()
    assert list(drawn().values()) == [[5, 7.0]]
    app.file_uploader(key="totals_upload#file").upload("other.csv", b"a,b\n1,2\n", "text/csv").run()
    assert "has no column 'text'" in words(app) and not app.exception
