"""The view Steer of the page Probing: its figures, table and files have the numbers of the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import ProbeSettings
from bert_core.loading import LoadedModel
from tests.app.test_probes_page import FILE, done, with_table
from tests.near import assert_near
from tests.visit import visited, words
from viz_app.export.snippet import steering_snippet
from viz_app.export.tables import table_csv
from viz_app.figures.probes import dose_lines
from viz_app.pages.probes import FACTORS, probes_view
from viz_app.pages.probes.labels import MAX_WORDS, RANDOM_VECTORS, values_of
from viz_app.shell.params import current_names

TEXT = {"text": "The cat sat down.", "masked": "2", "target": "3:sat", "contrast": "ran"}
STEER = {"probes_view": "steer", "steer_depth": "3", **TEXT}


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return bert_core.load("headlight-mini", device="cpu")


def steered(app: AppTest) -> AppTest:
    """The page after the button was clicked; little work needs no button."""
    for button in app.button:
        if button.label.startswith("Steer"):
            return done(button.click().run())
    return app


def drawn(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def expected_steering(loaded: LoadedModel, values: tuple[str, str], depth: int) -> bert_core.Steering:
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(TEXT["text"]), [2])
    target = bert_core.word_target(loaded.tokenizer, encoding, "sat", against="ran")
    vector = bert_core.label_vector(
        loaded, FILE.sentences("kind"), depth, values, settings=ProbeSettings(words=MAX_WORDS)
    )
    return bert_core.steer(loaded, encoding, target, vector, depth, factors=FACTORS, draws=RANDOM_VECTORS)


@pytest.mark.slow
def test_figures_table_and_files_are_those_of_the_library(loaded: LoadedModel) -> None:
    """From the first value to the second, and back when the values are swapped."""
    app = steered(with_table(**STEER, steer_factor="2"))
    assert not app.exception and not app.error
    expected = expected_steering(loaded, ("other", "pet"), 3)
    target_figure, others_figure = drawn(app)
    lines = {trace["name"]: trace["y"] for trace in target_figure["data"] if "name" in trace}
    assert_near(lines["this direction"], expected.values)
    assert_near(lines["random vectors"], expected.random_values.mean(0))
    band = [trace["y"] for trace in target_figure["data"] if "name" not in trace]
    assert_near(band, [expected.random_values.max(0), expected.random_values.min(0)])
    others = {trace["name"]: trace["y"] for trace in others_figure["data"] if "name" in trace}
    assert_near(others["this direction"], expected.mean_divergences)
    assert_near(others["random vectors"], expected.random_divergences.mean((0, 2)))
    band = [trace["y"] for trace in others_figure["data"] if "name" not in trace]
    random = expected.random_divergences.mean(2)
    assert_near(band, [random.max(0), random.min(0)])
    factor = FACTORS.index(2.0)
    (table,) = app.dataframe
    assert list(table.value["word"]) == ["the (1)", "cat (2)", "down (4)", ". (5)"]
    assert_near(table.value["divergence"], expected.divergences[factor])
    assert_near(table.value["random vectors"], expected.random_divergences[:, factor].mean(0))
    count = int((np.abs(expected.random_effects) >= np.abs(expected.effects))[:, factor].sum())
    assert f"{count} of {RANDOM_VECTORS}" in words(app) and ("within chance" in words(app)) == (count > 0)
    swapped = steered(done(app.selectbox(key="steer_from").set_value("pet").run()))
    assert swapped.selectbox(key="steer_to").value == "other"
    lines = {trace["name"]: trace["y"] for trace in drawn(swapped)[0]["data"] if "name" in trace}
    assert_near(lines["this direction"], expected.values[::-1])


@pytest.mark.slow
def test_the_exported_script_computes_the_same_table(
    loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run in a folder with the file of words."""
    monkeypatch.chdir(tmp_path)
    Path("words.csv").write_bytes(FILE.data)
    expected = expected_steering(loaded, ("pet", "other"), 3)
    script = steering_snippet(expected, "words.csv", "kind", ("pet", "other"), "means", MAX_WORDS, "headlight-mini")
    names: dict[str, Any] = {}
    exec(compile(script, "steering.py", "exec"), names)
    assert_near(names["steering"].values, expected.values)
    assert_near(names["steering"].random_values, expected.random_values)
    assert table_csv(names["steering"].table()).decode().splitlines()[0] == Path("steering.csv").read_text().split()[0]


def test_without_a_target_or_two_values_the_page_says_what_to_do() -> None:
    """A click on a word gives a target; a label with one value cannot steer."""
    app = with_table(probes_view="steer", text="The cat sat down.", masked="")
    assert not app.exception and "There is no prediction to steer yet" in words(app)
    one_value = b"sentence,word,kind\n" + b"".join(b"%d,cat,pet\n" % number for number in range(30))
    app = with_table(one_value, **STEER)
    assert not app.exception and "two values with 20 words or more" in words(app)
    assert values_of(FILE, "kind", 20) == ["other", "pet"] and values_of(FILE, "kind", 100) == ["other"]


def test_addresses_of_02_still_erase() -> None:
    """The former toggle is a value of the view."""
    names = current_names({"erase": "1"}, {"probes_view": probes_view})
    assert names == {"probes_view": "1"} and probes_view.parse("1") == "erase" and probes_view.parse("0") == "probe"
    assert visited("probes", erase="1").session_state["probes_view"] == "erase"


def test_lines_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 factors and 1 now: one of each"):
        dose_lines(np.array([0.0, 1.0]), {"now": np.array([0.5])}, title="nats")
