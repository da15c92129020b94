"""Local layers in views and files: what is hatched, and what is said there in place of a number."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from bert_core.analysis.patterns import possible_keys
from bert_core.records import ModelRun
from tests.families import save_family
from tests.hostile import run_of
from tests.visit import settled, visited, words
from viz_app.comparison import Comparison
from viz_app.components.attention_view.everywhere import pack_all_maps
from viz_app.components.head_grid import grid_message
from viz_app.export.page import attention_page, change_page
from viz_app.export.pictures import maps_picture
from viz_app.export.tables import maps_npz
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.thumbnails import pale_thumbnails
from viz_app.maps import Combination, MapView, map_hatching
from viz_app.windows import common_window, hatch_segments, hatching, legend

TEXT = "The old man walked along the river with his dog."
WORDS = ["The", "cat", "sat", "##s", "on", "it"]
WINDOWS = (None, 1)


def local_run(second: int | None = 3) -> ModelRun:
    """A run of two layers, of which the second attends to one token to each side."""
    run = run_of(WORDS, second=second)
    possible = possible_keys(WINDOWS, len(run.encoding))
    assert possible is not None
    maps = run.attention * possible[:, None]
    return replace(run, attention=maps / maps.sum(-1, keepdims=True), windows=WINDOWS)


def test_the_hatched_area_of_a_map_by_hand() -> None:
    """Ranges of the columns that are not hatched, and one line over each cell that is, from below left to above."""
    found = map_hatching(1, 3)
    assert found is not None and found["ranges"] == [[0, 2], [0, 3], [1, 3]]
    assert found["label"] == "hatched: outside the window of this local layer (1 tokens to each side)"
    possible = possible_keys((1,), 3)
    assert possible is not None
    assert sorted(hatch_segments(possible[0])) == [((0, 3), (1, 2)), ((2, 1), (3, 0))]
    assert map_hatching(None, 3) is None and map_hatching(2, 3) is None and hatching(None, 1) is None


def test_neighbouring_cells_share_a_line_and_a_large_map_has_few() -> None:
    possible = np.ones((3, 3), bool)
    possible[2, 0] = possible[1, 1] = False
    assert hatch_segments(possible) == [((0, 3), (2, 1))]
    assert len(hatch_segments(np.zeros((400, 400), bool), 20)) <= 20


def test_possible_pairs_follow_the_view() -> None:
    """Between words one pair of their pieces counts; parts and hidden tokens select rows and columns."""
    run = local_run()
    encoding = run.encoding
    whole = MapView().possible(WINDOWS, encoding)
    assert whole is not None and whole[0].all() and whole[1].sum() == 8 + 2 * 7
    part = MapView(part="A to B").possible(WINDOWS, encoding)
    assert part is not None and part.shape == (2, 3, 3) and np.argwhere(part[1]).tolist() == [[2, 0]]
    hidden = MapView(hide_special=True).possible(WINDOWS, encoding)
    assert hidden is not None and hidden.shape == (2, 6, 6) and (hidden == whole[:, 1:-1, 1:-1]).all()
    near = replace(encoding, words=(None, 0, 1, 2, 2, 3, 4, None))
    between_words = MapView(words=True).possible(WINDOWS, near)
    assert between_words is not None and between_words.shape == (2, 7, 7)
    assert between_words[1][3].tolist() == [0, 0, 1, 1, 1, 0, 0]
    assert MapView().possible((None, None), encoding) is None


def test_a_combined_map_has_the_largest_window_of_its_layers() -> None:
    assert common_window((None, 1)) is None and common_window((1, 4)) == 4
    for selection, expected in (("all", None), ("layer", 1), ("chosen", 1)):
        assert Combination("average", selection).window(WINDOWS, 1) == expected
    combined = MapView(layer=1, heads=(0, 1), combination=Combination("average")).maps(local_run())
    assert combined.windows == (1,) and combined.hatching(0) == map_hatching(1, 8)
    everything = MapView(combination=Combination("average", "all")).maps(local_run())
    assert everything.hatching(0) is None


def test_a_difference_is_hatched_where_no_run_has_the_pair() -> None:
    """Of texts of different lengths, a pair that is near in one of them is not hatched."""
    short, long = local_run(None), local_run(None)
    comparison = Comparison(short, replace(long, windows=(None, 2)))
    assert comparison.windows == (None, 2)
    assert comparison.difference_maps().hatching(1) == map_hatching(2, 8)
    assert Comparison(run_of(WORDS), run_of(WORDS)).possible is None
    assert '"ranges"' not in change_page(Comparison(run_of(WORDS), run_of(WORDS)))


def test_small_maps_are_hatched_where_a_whole_block_is_outside() -> None:
    possible = np.stack([np.ones((8, 8), bool), np.eye(8, dtype=bool)])
    small = pale_thumbnails(np.zeros((2, 1, 8, 8), np.float32), ["A"] * 8, 4, possible=possible)
    assert small.possible is not None and small.possible[0].all()
    assert (small.possible[1] == np.eye(4, dtype=bool)).all()
    everything = np.ones((2, 8, 8), bool)
    assert pale_thumbnails(np.zeros((2, 1, 8, 8)), ["A"] * 8, possible=everything).possible is None


def test_the_grid_says_which_rows_or_cells_are_hatched() -> None:
    possible = possible_keys((None, 0), 2)
    message = grid_message(layers=2, heads=1, thumbnails=np.zeros((2, 1, 2, 2), np.uint8), possible=possible)
    assert b'"layers": [null, [[0, 1], [1, 2]]]' in message and legend(None).encode() in message
    cells = grid_message(layers=2, heads=1, values=np.zeros((2, 1)), possible=np.array([True, False]))
    assert b'"layers": [null, []]' in cells and b'"outside": "outside the window"' in cells
    assert b'"hatching": null' in grid_message(layers=2, heads=1, values=np.zeros((2, 1)))


def test_heads_sent_early_have_the_hatching_of_their_layer() -> None:
    run = local_run()
    exists = run.existing_heads
    areas = [None, map_hatching(1, 8)]
    packed = pack_all_maps(run.attention, existing=exists, off=~exists, signed=False, hatchings=areas)
    assert packed is not None and [layer["hatching"] for layer in packed.layers] == areas


def test_files_have_the_hatching_and_the_windows() -> None:
    """The exported page, pictures of a head and of all heads, and NPZ; none of them for a model without windows."""
    run, plain = local_run(), run_of(WORDS, second=3)
    assert attention_page(run) != attention_page(plain)
    for view in (MapView(layer=1, heads=(0,), mode="matrix"), MapView(heads=())):
        for shown, expected in ((run, True), (plain, False)):
            axes = maps_picture(view.maps(shown), view).axes[0]
            lines = [part for part in axes.collections if isinstance(part, LineCollection)]
            texts = [axes.get_xlabel(), *(text.get_text() for text in axes.texts)]
            assert bool(lines) == any("hatched" in text for text in texts) == expected
    arrays = np.load(io.BytesIO(maps_npz(MapView().maps(run))))
    assert arrays["windows"].tolist() == [-1, 1]
    assert "windows" not in np.load(io.BytesIO(maps_npz(MapView().maps(plain))))


def test_a_figure_says_outside_the_window_instead_of_a_number() -> None:
    run = local_run()
    values, tokens = run.attention[1, 0], run.encoding.tokens
    figure = attention_heatmap(values, tokens, tokens, signed=False, title="L1", hatching=map_hatching(1, 8))
    trace = figure.data[0]
    assert trace.text[0][5] == "outside the window" and np.isnan(trace.z[0][5])
    assert float(trace.text[0][0]) == pytest.approx(values[0, 0], rel=1e-8)
    assert figure.layout.shapes[0].type == "path" and "hatched" in figure.layout.xaxis2.title.text
    plain = attention_heatmap(values, tokens, tokens, signed=False, title="L1")
    assert plain.data[0].text is None and not plain.layout.shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("modernbert", tmp_path_factory.mktemp("windows") / "words")


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    return str(folder)


@pytest.mark.parametrize("view", ["heads", "curves", "matrix"])
def test_attention_of_a_local_layer_says_so(model: str, view: str) -> None:
    app = settled(visited("attention", text=TEXT, model=model, view=view, head="1.2"))
    assert not app.exception and not app.error
    assert ("Layer 1 is local: each token can attend to at most 4 tokens to each side." in words(app)) == (
        view != "heads"
    )
    local = settled(visited("attention", text=TEXT, model=model, view=view, head="0.2"))
    assert "is local" not in words(local)


def test_home_and_roles_say_what_a_local_layer_cannot_do(model: str) -> None:
    """A pair outside the window has no share, its heads are left out of the list, and shares are of the window."""
    app = settled(visited("start", text=TEXT, model=model, head="1.2", edge="1.9"))
    assert not app.exception and "Outside the window: in this local layer, “the”" in words(app)
    assert "Left out: heads of local layers" in words(app) and "of this head's attention" not in words(app)
    near = settled(visited("start", text=TEXT, model=model, head="1.2", edge="1.2"))
    assert "of this head's attention" in words(near) and "Left out" not in words(near)
    roles = settled(visited("roles", text=TEXT, model=model, head="1.2"))
    assert not roles.exception and "Its shares and entropy count only tokens within this window." in words(roles)


def test_a_pair_outside_the_window_is_compared_among_other_heads(model: str) -> None:
    app = settled(visited("attention", text=TEXT, model=model, edge="1.9"))
    assert not app.exception and "Left out: heads of local layers" in words(app)


def test_changes_of_a_local_layer_are_shown(model: str) -> None:
    app = settled(visited("compare", text=TEXT, model=model, view="curves", head="1.2", against="masked", masked="2"))
    assert not app.exception and "Layer 1 is local" in words(app)
