"""Queries and keys in one plane: the view of the page Profiles, its figure and exports, and `headlight query-keys`."""

from __future__ import annotations

import csv
import io
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import LoadedModel, QueryKeyPlane
from bert_core.progress import ignore_progress
from tests.app.test_cli import Run, headlight
from tests.families import save_family
from tests.visit import settled, visited, words
from viz_app.export.query_keys import measures_in_words, plane_snippet, points_file
from viz_app.figures.query_keys import query_key_map
from viz_app.lessons import TREES
from viz_app.pages.profiles import FIRST_HEAD
from viz_app.pages.profiles import plane as plane_view
from viz_app.shell.controls import Upload

__all__ = ["headlight"]  # a fixture


@pytest.fixture(scope="module")
def plane() -> QueryKeyPlane:
    """The plane with which the page opens."""
    (plane,) = bert_core.query_keys_file(TREES, bert_core.load("headlight-mini", device="cpu"), [FIRST_HEAD])
    return plane


def start(**address: str) -> AppTest:
    return settled(visited("profiles", profile_of="plane", **address))


def traces(app: AppTest) -> list[dict[str, object]]:
    (element,) = app.get("plotly_chart")
    data: list[dict[str, object]] = json.loads(element.proto.spec)["data"]
    return data


def test_the_page_draws_the_plane_of_the_library(plane: QueryKeyPlane) -> None:
    """Its points and measures are those of `query_keys_file` over the same sentences; another head has another."""
    app = start()
    queries, keys = traces(app)
    assert np.allclose(np.stack([queries["x"], queries["y"]], 1), plane.queries)
    assert np.allclose(np.stack([keys["x"], keys["y"]], 1), plane.keys)
    layer, head = FIRST_HEAD
    assert f"L{layer} H{head}: correlation {plane.correlation:.2f} of nearness and dot product" in words(app)
    largest = plane.largest_shuffled_correlation, plane.largest_rotated_correlation
    assert f"Shuffled: at most {largest[0]:.2f}, rotated: at most {largest[1]:.2f}" in words(app)
    assert f"{len(plane.labels)} tokens of 60 texts" in words(app)
    assert "L1 H4: correlation" in words(start(head="1.4"))


def test_a_text_of_the_address_is_marked(plane: QueryKeyPlane) -> None:
    """Its points are larger, have labels, and are drawn last; one that does not exist marks nothing."""
    line = int(np.unique(plane.texts)[4])
    assert line > 4  # a sentence of a treebank has several lines
    data = traces(start(plane_text=str(line + 1)))
    assert len(data) == 4
    is_selected = plane.texts == line
    for trace, points in zip((data[1], data[3]), (plane.queries, plane.keys), strict=True):
        assert np.allclose(np.stack([trace["x"], trace["y"]], 1), points[is_selected])
        assert trace["text"] == [label for label, marked in zip(plane.labels, is_selected, strict=True) if marked]
    assert len(traces(start(plane_text="9999"))) == 2


def test_points_can_have_the_colours_of_their_positions(plane: QueryKeyPlane) -> None:
    """Colours are the positions, with one colour bar; queries and keys keep different symbols."""
    queries, keys = (trace["marker"] for trace in traces(start(plane_colour="position")))
    assert isinstance(queries, dict) and isinstance(keys, dict)
    assert queries["color"] == keys["color"] == plane.positions.tolist()
    assert (queries["showscale"], keys["showscale"]) == (True, False)
    assert queries["symbol"] != keys["symbol"]


def test_a_plane_that_is_not_better_is_not_drawn() -> None:
    """One sentence with the numbers is in place of the figure; another head is one click away."""
    (refused,) = bert_core.query_keys_file(TREES, bert_core.load("headlight-mini", device="cpu"), [(3, 2)])
    assert not refused.is_better_than_chance
    app = start(head="3.2")
    assert not app.get("plotly_chart") and not app.exception
    sentence = f"The plane of L3 H2 is not better than chance, so it is not drawn: {measures_in_words(refused)}"
    assert sentence in words(app)


@pytest.mark.slow
def test_a_button_compares_the_planes_of_all_heads(
    tiny_model_folder: Path, tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the grid has the correlation of each head that is better than chance, and 0 for the others."""
    drawn: list[dict[str, Any]] = []
    real = plane_view.head_grid
    monkeypatch.setattr(plane_view, "head_grid", lambda **arguments: drawn.append(arguments) or real(**arguments))
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    app = start(model=str(tiny_model_folder), head="1.1")
    assert drawn[-1]["values"] is None and "Click a head to project" in words(app)
    config = tiny_loaded.config
    count = config.num_hidden_layers * config.num_attention_heads
    (button,) = (button for button in app.button if button.label.startswith(f"Compare the planes of all {count} heads"))
    settled(button.click().run())
    planes = bert_core.query_keys_file(TREES, tiny_loaded)
    expected = [plane.correlation if plane.is_better_than_chance else 0 for plane in planes]
    assert len(planes) == count and np.allclose(drawn[-1]["values"].ravel(), expected)
    better = sum(plane.is_better_than_chance for plane in planes)
    assert 0 < better < count and f"{better} of {count} heads are better than chance" in words(app)
    assert not any(button.label.startswith("Compare") for button in app.button)
    monkeypatch.setattr(plane_view, "_fit", lambda *_: pytest.fail("this plane was fitted with all others"))
    app.session_state["head"] = 0, 1
    assert "L0 H1" in words(app.run())


@pytest.mark.slow
def test_the_planes_of_all_heads_are_those_of_each_head(tmp_path: Path) -> None:
    """Also of local layers, whose texts are parts within their window, unlike those of the other layers."""
    loaded = bert_core.load(save_family("modernbert", tmp_path / "modernbert"), device="cpu")
    assert len(set(loaded.config.windows)) > 1
    corpus = Upload("corpus.txt", b"The old man walked along the river with his dog.\nShe gave the book to him.\n" * 4)
    planes = plane_view._fit_all(loaded, corpus).compute(ignore_progress)
    assert list(planes) == [
        (layer, head) for layer in range(loaded.config.num_hidden_layers) for head in loaded.config.heads_of(layer)
    ]
    for (layer, head), plane in planes.items():
        assert plane.table().equals(plane_view._fit(loaded, corpus, layer, head).compute(ignore_progress).table())


def test_hover_texts_escape_tokens_and_name_their_neighbours() -> None:
    """The token, its position and text, and neighbours of the same text alone."""
    figure = query_key_map(
        np.zeros((4, 2)), np.ones((4, 2)), ["<b>", "cat", "a", "dog"], np.array([0, 0, 1, 1]), np.array([3, 4, 0, 1])
    )
    hovers = figure.data[0].hovertext
    assert hovers[0] == "query of &lt;b&gt;<br>position 3, text of line 1<br>[&lt;b&gt;] cat"
    assert hovers[3] == "query of dog<br>position 1, text of line 2<br>a [dog]"
    assert [*figure.data[1].customdata] == [0, 0, 1, 1]


def test_exports_have_the_points_and_code_that_runs(
    plane: QueryKeyPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CSV and NPZ have the numbers of the record; the code computes the same plane."""
    rows = list(csv.DictReader(io.StringIO(points_file(plane, "csv").decode("utf-8-sig"))))
    assert [float(row["key_y"]) for row in rows] == pytest.approx(plane.keys[:, 1].tolist(), rel=1e-6)
    with np.load(io.BytesIO(points_file(plane, "npz"))) as arrays:
        assert np.array_equal(arrays["queries"], plane.queries) and [*arrays["labels"]] == [*plane.labels]
    monkeypatch.chdir(tmp_path)
    Path(TREES.name).write_bytes(TREES.read_bytes())
    Path("code.py").write_text(plane_snippet(plane, "headlight-mini", TREES.name), encoding="utf-8")
    assert runpy.run_path("code.py")["plane"].table().equals(plane.table())


def test_the_command_writes_measures_and_points(headlight: Run, tmp_path: Path, plane: QueryKeyPlane) -> None:
    """A row for each head, the points of one, and a refusal of the points of two."""
    path = tmp_path / TREES.name
    path.write_bytes(TREES.read_bytes())
    out, points = tmp_path / "planes.csv", tmp_path / "points.csv"
    code, printed, err = headlight("query-keys", path, "--heads", "3.8", "--out", out, "--points", points)
    assert code == 0, err
    (row,) = csv.DictReader(io.StringIO(out.read_text(encoding="utf-8-sig")))
    assert float(row["correlation"]) == pytest.approx(plane.correlation, rel=1e-4)
    assert row["better"] == str(plane.is_better_than_chance)
    assert points.read_bytes() == points_file(plane, "csv")
    assert f"{len(plane.labels)} tokens; 1 of 1 heads are better than chance" in printed
    code, _, err = headlight("query-keys", path, "--heads", "3.*", "--points", points)
    assert (code, err) == (2, "--points is of one head, and --heads is '3.*': name one, as in 3.8\n")
