"""What probes find of a file's labels, and what the model says without one: the page Probes, and its pictures."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import ProbeSettings
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import ignore_progress
from tests.near import assert_near
from tests.visit import key_of, said, settled, visited, words
from viz_app.figures.probes import depth_lines, erased_bars
from viz_app.figures.style import Look, use_look
from viz_app.pages.probes import EXAMPLE
from viz_app.pages.probes.labels import (
    AGREEMENT,
    BUNDLED,
    MAX_WORDS,
    RANDOM_ERASERS,
    SENTENCES,
    LabelledFile,
    fit_erasers,
    labels_of,
    predict_erased,
    probe_file,
)
from viz_app.pages.probes.recorded import recorded_probes
from viz_app.shell.controls import Upload
from viz_app.shell.work import queue

ROWS = ["sentence,word,kind,place"]
for _number in range(40):
    _drawn = np.random.default_rng(_number).permutation(["the", "cat", "dog", "king", "queen", "old"]).tolist()
    ROWS += [
        f"{_number},{_word},{'pet' if _word in ('cat', 'dog') else 'other'},{'early' if _place < 3 else 'late'}"
        for _place, _word in enumerate(_drawn)
    ]
TABLE = "\n".join(ROWS).encode()
FILE = LabelledFile(Upload("words.csv", TABLE))


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """The bundled model."""
    return bert_core.load("headlight-mini", device="cpu")


def start(**address: str) -> AppTest:
    """The page as someone sees it who follows a link."""
    return done(visited("probes", **address))


def done(app: AppTest) -> AppTest:
    """The page when nothing is waited for any more."""
    return settled(app, "stop_here")


def with_table(data: bytes = TABLE, name: str = "words.csv", **address: str) -> AppTest:
    """The page with a file of a visitor's own, before anything is probed."""
    app = start(**address)
    return done(app.file_uploader(key="labelled_words#file").upload(name, data, "text/csv").run())


def probed(app: AppTest) -> AppTest:
    """The page when its button was clicked, and the work is done; little work needs no button."""
    for button in app.button:
        if button.label.startswith(("Probe ", "Run it yourself")):
            return done(button.click().run())
    return app


def figures(app: AppTest, kind: str) -> list[dict[str, Any]]:
    """The figures of a page whose last trace is of a kind."""
    drawn = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    return [figure for figure in drawn if figure["data"][-1]["type"] == kind]


def lines(figure: dict[str, Any]) -> dict[str, list[float]]:
    """The lines of a figure by their names."""
    return {trace["name"]: trace["y"] for trace in figure["data"] if "name" in trace}


def csv_of(app: AppTest, loaded: LoadedModel, settings: ProbeSettings) -> str:
    """The table that the library makes of the file."""
    sentences = FILE.sentences("kind")
    return bert_core.probes_csv(bert_core.probe_points(loaded, sentences, settings))


@pytest.mark.slow
def test_the_lines_and_the_table_are_what_the_library_finds(loaded: LoadedModel) -> None:
    """Means over the seeds with the band of the probe, each line named at its end, and the rows of the command."""
    app = probed(with_table(seeds="2", erase="1"))
    assert not app.exception and not app.error
    settings = ProbeSettings(seeds=2, words=MAX_WORDS, erase=True)
    points = list(bert_core.probe_points(loaded, FILE.sentences("kind"), settings))
    found = bert_core.probe_depths(points)
    accuracy, losses = figures(app, "scatter")
    names = {
        "probe": "accuracy", "control task": "control", "word type only": "lookup", "majority class": "majority",
        "label erased": "erased",
    }  # fmt: skip
    assert set(lines(accuracy)) == set(names) == {one["text"] for one in accuracy["layout"]["annotations"]}
    for name, figure in names.items():
        assert_near(np.array(lines(accuracy)[name]), np.array([depth.figures[figure][0] for depth in found]), of=1.0)
    high, low = (np.array(trace["y"]) for trace in accuracy["data"][:2])
    assert_near(low, np.array([depth.figures["accuracy"][1] for depth in found]), of=1.0)
    assert_near(high, np.array([depth.figures["accuracy"][2] for depth in found]), of=1.0)
    for name, figure in (("original", "loss"), ("label erased", "loss_erased"), ("random directions", "loss_random")):
        assert_near(np.array(lines(losses)[name]), np.array([depth.figures[figure][0] for depth in found]))
    table = app.dataframe[0].value
    assert table["depth"].tolist() == ["emb.", *(f"L{layer}" for layer in range(6))]
    assert_near(table["selectivity"].to_numpy(), np.array([depth.figures["selectivity"][0] for depth in found]), of=1.0)
    assert "How to read this" in words(app) and "How it can mislead" in words(app)
    made = probe_file(loaded, FILE, "kind", settings).compute(ignore_progress)
    read = pd.read_csv(io.StringIO(bert_core.probes_csv(made)))
    assert list(read.columns[:3]) == ["depth", "seed", "labels"] and len(read) == len(points) == 14


def test_without_erasing_there_is_one_figure() -> None:
    """No line, no losses and no question about the text."""
    app = probed(with_table(seeds="1"))
    (accuracy,) = figures(app, "scatter")
    assert "label erased" not in lines(accuracy) and "Predictions without the label" not in words(app)
    assert not figures(app, "bar")


@pytest.mark.slow
def test_what_the_model_says_without_the_label(loaded: LoadedModel) -> None:
    """At the gap of the text: as it is, without the label, and without random directions, at the chosen depth."""
    app = probed(with_table(seeds="1", erase="1", erased_at="2", text="The cat sat down.", masked="2"))
    assert not app.exception and not app.error
    sentences = FILE.sentences("kind")
    eraser, at_random = bert_core.label_erasers(loaded, sentences, 2, ProbeSettings(words=MAX_WORDS))
    assert len(at_random) == RANDOM_ERASERS
    text = loaded.tokenizer.mask_words(loaded.tokenizer.encode("The cat sat down."), [2])
    whole, without, *others = (
        answer.predictions[0].probabilities
        for answer in bert_core.predict_with_erasers(loaded, text, 2, [None, eraser, *at_random])
    )
    (bars,) = figures(app, "bar")
    ids = [loaded.tokenizer.id_of(label.strip()) for label in bars["layout"]["yaxis"]["ticktext"]]
    expected = {"original": whole, "label erased": without, "random directions": np.mean(others, axis=0)}
    assert [trace["name"] for trace in bars["data"]] == list(expected)
    for trace, probabilities in zip(bars["data"], expected.values(), strict=True):
        assert_near(np.array(trace["x"]), probabilities[ids], of=1.0)
    app = probed(with_table(seeds="1", erase="1", text="The cat sat down."))
    assert "Click a word of the text above to mask it" in words(app) and not figures(app, "bar")


def test_what_is_said_of_the_example_is_so(loaded: LoadedModel) -> None:
    """Erased at the embeddings, number takes “were” away for “was”; at depth 2, or random directions, it does not."""
    file = AGREEMENT
    assert labels_of(file) == ["subject", "number"]
    text = loaded.tokenizer.mask_words(loaded.tokenizer.encode(EXAMPLE.text), EXAMPLE.masked)
    ids = [loaded.tokenizer.id_of(word) for word in ("were", "was")]
    for depth, likelier in ((0, False), (2, True)):
        settings = ProbeSettings(words=MAX_WORDS)
        erasers = fit_erasers(loaded, file, "number", settings, depth).compute(ignore_progress)
        (gap,) = predict_erased(loaded, text, depth, erasers).compute(ignore_progress)
        for probabilities, plural in ((gap.full, True), (gap.erased, likelier), (gap.randomly_erased, True)):
            assert (probabilities[ids[0]] > probabilities[ids[1]]) == plural
            assert probabilities.argmax() == ids[0 if plural else 1]
    app = start(label="number")
    assert app.session_state.text == EXAMPLE.text and app.session_state.label == "number"
    assert any(button.label.startswith("Probe 7 depths with 3 seeds, about ") for button in app.button)


def test_the_page_opens_on_the_recorded_probes(loaded: LoadedModel) -> None:
    """The figure of the bundled model, its date, and a button with the cost; other settings and models have none."""
    recorded = recorded_probes()
    assert recorded.fingerprint == fingerprint(loaded), "run `python -m tools.recorded_results probes` again"
    app = start()
    assert not app.exception and not app.error and app.session_state.label == "subject"
    (accuracy,) = figures(app, "scatter")
    expected = [depth.figures["accuracy"][0] for depth in bert_core.probe_depths(recorded.points)]
    np.testing.assert_allclose(lines(accuracy)["probe"], expected)
    assert f"Measured on {recorded.date}." in words(app)
    assert f"**{max(expected):.0%}** of held-out words get the correct number of the subject" in words(app)
    assert any(button.label.startswith("Run it yourself, about ") for button in app.button)
    assert not figures(start(seeds="2", label="subject"), "scatter") and not figures(start(label="number"), "scatter")
    erased = start(erase="1", label="subject")
    assert len(figures(erased, "scatter")) == 1 and "Predictions without the label" not in words(erased)
    assert any(button.label.startswith("Probe 7 depths") for button in erased.button)
    assert set(BUNDLED) == {*labels_of(SENTENCES), *labels_of(AGREEMENT)}


@pytest.mark.slow
def test_the_recorded_probes_are_those_of_the_library(loaded: LoadedModel) -> None:
    """The first depth and seed, computed again."""
    settings = ProbeSettings(seeds=1, words=MAX_WORDS)
    (point,) = bert_core.probe_points(loaded, AGREEMENT.sentences("subject"), settings, depths=[0])
    recorded = next(one for one in recorded_probes().points if (one.depth, one.seed) == (0, 0))
    assert (point.learned, point.asked, point.labels) == (recorded.learned, recorded.asked, recorded.labels)
    assert abs(point.accuracy - recorded.accuracy) < 0.02


def test_what_was_found_stays() -> None:
    """Who leaves the page and comes back finds the file, the label and the lines; another label asks anew."""
    from tests.visit import at

    app = probed(with_table(seeds="1"))
    before = lines(figures(app, "scatter")[0])
    app = done(at(app, "predict").run())
    app = done(at(app, "probes").run())
    assert lines(figures(app, "scatter")[0]) == before
    app = probed(done(app.selectbox(key=key_of(app, "label")).set_value("place").run()))
    assert not app.exception and lines(figures(app, "scatter")[0])["word type only"] != before["word type only"]


@pytest.mark.parametrize(
    ("data", "name", "sentence"),
    [
        (b"a,b\n1,2\n", "my words.csv", "The column 'sentence' is not in my_words.csv: its columns are a, b."),
        (b"sentence,word\n1,cat\n", "a.csv", "No word of a.csv has a label: a treebank has parts of speech"),
        (b"1\tThe\n", "a.conllu", "Line 1 of a.conllu has 2 columns: CoNLL-U has 10"),
        (b"\xff\xfe\x00", "a.conllu", "A.conllu is not whole UTF-16"),
        (b"sentence,word,kind\n1,cat,pet\n", "a.csv", "0 of 1 labels occur 20 times or more"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(data: bytes, name: str, sentence: str) -> None:
    """What was given and what is allowed; the control of the file stays."""
    app = probed(with_table(data, name))
    assert not app.exception and len(app.error) == 1 and sentence in said(app.error[0])
    assert app.file_uploader(key="labelled_words#file")


def test_a_file_has_a_name_that_can_be_one(tmp_path: object) -> None:
    """Whatever a browser calls it, it is read, and the name stays in its place."""
    for name in ("../../etc/words.csv", "a" * 500 + ".csv", "w\0rds.csv", "..csv", "ü.CSV"):
        assert labels_of(LabelledFile(Upload(name, TABLE))) == ["kind", "place"]


def test_probes_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is not done can be stopped between two steps, and is offered again."""
    app = with_table(seeds="3")
    work = probe_file(bert_core.load("headlight-mini"), FILE, "kind", ProbeSettings(seeds=3, words=MAX_WORDS))
    told: list[float | None] = []

    def stops(done: float | None, what: str = "") -> None:
        told.append(done)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work.compute(stops)
    assert len(told) == 3 and not app.exception
    assert queue().find(work.key) is None


def test_names_at_the_ends_of_lines_do_not_meet() -> None:
    """Also where all lines end in one place; each stays inside the picture, in the order of the lines' ends."""
    same = {name: np.array([0.2, 0.9]) for name in "abcd"} | {"e": np.array([0.2, 0.1])}
    for lecture in (False, True):
        with use_look(Look(lecture=lecture)):
            figure = depth_lines(same, ["emb.", "L0"], title="share", shares=True)
        ends = sorted(one.y for one in figure.layout.annotations)
        bottom, top = figure.layout.yaxis.range
        pixel = (top - bottom) / (figure.layout.height - 70)
        assert min(np.diff(ends)) >= 14 * pixel and bottom <= ends[0] and ends[-1] <= top + 1e-9
        assert figure.layout.annotations[4].y == ends[0]


def test_what_fits_no_figure_is_refused() -> None:
    """Lines of other lengths than there are depths, and bars without their labels."""
    with pytest.raises(ValueError, match="'a' has 2 figures for 3 depths: one for each"):
        depth_lines({"a": np.zeros(2)}, ["1", "2", "3"], title="")
    with pytest.raises(ValueError, match=r"2 labels and 1 values \(now\): one for each label"):
        erased_bars(["a", "b"], {"now": [0.5]})


def test_words_of_others_show_as_they_were_written() -> None:
    """In names of lines and in labels of bars no sign opens a tag."""
    assert "&lt;b&gt;" in erased_bars(["<b>x"], {"now": [0.5]}).to_json().replace("\\u0026", "&").replace(
        "\\u003c", "<"
    )
