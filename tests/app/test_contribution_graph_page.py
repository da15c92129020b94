"""The contribution graph on the page Attribution: its edges, the selected edge, its knockout, and a long text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core.refused import Refused
from tests.near import assert_near
from tests.visit import settled, visited, words
from viz_app.figures.contribution_graph import contribution_figure
from viz_app.pages.why import parse_edge

LINK = {"text": "She opened the door and walked in.", "masked": "3", "target": "4:door", "attributed": "graph"}


def opened(**address: str) -> AppTest:
    app = settled(visited("why", **LINK, **address))
    assert not app.exception and not app.error
    return app


def figure_of(app: AppTest, traces: int) -> dict[str, Any]:
    """The first figure of a page with at least as many traces."""
    specs = (json.loads(element.proto.spec) for element in app.get("plotly_chart"))
    figure: dict[str, Any] = next(spec for spec in specs if len(spec["data"]) >= traces)
    return figure


def graph() -> bert_core.ContributionGraph:
    loaded = bert_core.load("headlight-mini", device="cpu")
    return bert_core.contribution_graph(loaded, loaded.tokenizer.encode("She opened the [MASK] and walked in."))


@pytest.mark.slow
def test_the_page_draws_the_paths_and_knocks_an_edge_out() -> None:
    """The edges are those of the library above the threshold; the button gives its effect beside random edges."""
    app = opened(graph_threshold="10", graph_edge="3.4.2")
    expected = bert_core.paths_to(graph().shares, [4], 0.1)
    dots = [trace["customdata"] for trace in figure_of(app, 12)["data"] if len(trace.get("customdata", [[]])[0]) == 3]
    assert sorted(dots[0]) == sorted(expected.tolist())
    assert f"{len(expected)} edges of at least 10%" in words(app)
    assert "Inputs of “door (masked)” in L3\nHeads of “opened” → “door (masked)” in L3" in words(app)
    app.button(key="knock_out_edge").click().run()
    settled(app)
    assert "random edges with a similar share" in words(app) and not app.exception
    assert dict(app.query_params)["graph_edge"] in ("3.4.2", ["3.4.2"])


@pytest.mark.slow
def test_a_long_text_is_drawn_around_the_target() -> None:
    """A window of 16 tokens, with a count of the edges outside."""
    text = " ".join(["She opened the door and walked in."] * 6)
    app = settled(visited("why", text=text, masked="24", attributed="graph", graph_window="16"))
    assert not app.exception and "tokens outside the window" in words(app)


@pytest.mark.slow
def test_a_long_text_has_no_empty_columns_at_its_sides_and_its_selected_edge_is_drawn() -> None:
    """The columns end one token beyond the edges; without an edge in the address, the selected one is in the window."""
    text = " ".join(["She opened the door and walked in."] * 6)
    app = settled(visited("why", text=text, masked="24", attributed="graph", graph_threshold="10"))
    assert not app.exception
    figure = figure_of(app, 12)
    points = next(trace["customdata"] for trace in figure["data"] if len(trace.get("customdata", [[]])[0]) == 3)
    (selected,) = (box.value for box in app.selectbox if str(box.key).startswith("graph_input_"))
    (row,) = (box.value[1] for box in app.selectbox if str(box.key).startswith("graph_node_"))
    ends = [*np.array(points)[:, 1:].ravel().tolist(), selected, row]
    window = range(row - 16, row + 16)
    assert selected in window
    assert len(figure["layout"]["xaxis"]["ticktext"]) == max(ends) - min(ends) + 3 < len(window)


def test_a_figure_has_a_dot_for_each_edge_and_a_wrong_length_is_an_error() -> None:
    """A graph of two tokens and one layer: each dot returns its edge, and lies on its line."""
    edges = np.array([[0, 0, 0], [0, 0, 1]])
    figure = contribution_figure(edges, np.array([0.7, 0.3]), [0, 1], ["a", "b"], 1, targets=[0], selected=(0, 0, 1))
    dots = next(trace for trace in figure.data if trace.meta is not None)
    assert [list(edge) for edge in dots.customdata] == edges.tolist()
    assert_near(np.array(dots.x)[1], 1 - np.array(dots.y)[1])
    with pytest.raises(ValueError, match="one of each"):
        contribution_figure(edges, np.array([0.7]), [0, 1], ["a", "b"], 1, targets=[0], selected=(0, 0, 1))


def test_an_edge_in_a_link_has_three_numbers() -> None:
    assert parse_edge("3.4.2") == (3, 4, 2)
    for value in ("3.4", "3.4.2.1", "a.b.c", "3.-4.2"):
        with pytest.raises(Refused):
            parse_edge(value)
