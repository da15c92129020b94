"""Pages about a model with rotary positions, norms before the parts of a layer, and gated neurons: ModernBERT."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import LoadedModel
from bert_core.analysis.neurons import strongest_neurons
from bert_core.analysis.rotation import rotary_frequencies
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.run.neurons import neuron_activations
from bert_core.run.vectors import all_head_vectors, head_vectors
from bert_core.run.walk import walk
from bert_core.tokenizer import Encoding
from tests.families import save_family
from tests.near import assert_near
from tests.visit import ENTRY, at, columns_of, key_of, settled, words
from viz_app.export import page
from viz_app.export.bertviz import bertviz_page
from viz_app.export.neurons import neuron_columns
from viz_app.export.tables import labelled_csv, neuron_csv, tidy_csv
from viz_app.figures.columns import figure_columns
from viz_app.figures.rotation import score_by_distance, shown_pairs
from viz_app.figures.style import Look, use_look
from viz_app.maps import MapView
from viz_app.pages.attention.score_distance import scores_at_distances
from viz_app.pages.inside.designs import ALL_STAGES, stages_of
from viz_app.pages.inside.stages import _IN_FORMULA, PRE_NORM_SYMBOLS, STAGES, StageInput, legend, tex
from viz_app.shell import downloads, models
from viz_app.shell.view import VIEW

TEXT = "The old man walked along the river with his dog."
GLOBAL, LOCAL, LAST = 0, 1, 2
NAMES = [
    "pieces", "embeddings", "norm", "attention_norm", "qkv", "rotation", "scores", "mask", "softmax", "context",
    "output", "feed_forward_norm", "feed_forward", "next", "final_norm", "heads",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("modernbert", tmp_path_factory.mktemp("rotary") / "modernbert")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode(TEXT)


@pytest.fixture
def opened(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """`opened(page, **address)`: a page with this model, Export open."""

    def start(path: str, **address: str) -> AppTest:
        monkeypatch.setattr(models, "loaded_model", lambda name: loaded)
        app = AppTest.from_file(ENTRY, default_timeout=60)
        app.query_params.update({"text": TEXT, **address})
        app.session_state[downloads.OPEN_KEY] = True
        settled(at(app, path).run())
        assert not app.exception and not app.error
        return app

    return start


def view_of(loaded: LoadedModel, encoding: Encoding, layer: int, position: int = 5, **changes: Any) -> StageInput:
    rotation = loaded.config.position_scheme.rotation
    assert rotation is not None
    return StageInput(
        trace=walk(loaded, encoding, layer, position=position),
        head=2,
        relative=False,
        hidden_act="gelu",
        word=loaded.tokenizer.token_of,
        design=loaded.config.layer_design,
        rotary_base=rotation.base(layer),
        window=rotation.window(layer),
        **changes,
    )


# ---------------------------------------------------------------------------- forward pass


def test_stages_follow_the_layer(loaded: LoadedModel, tiny_loaded: LoadedModel) -> None:
    """Norms come before their parts and the rotation before the scores; a post-norm model has its own stages."""
    assert list(stages_of(loaded)) == NAMES
    assert stages_of(tiny_loaded) == STAGES
    assert set(ALL_STAGES) == {*NAMES, "pooler"}


@pytest.mark.parametrize("layer", [GLOBAL, LOCAL, LAST])
@pytest.mark.parametrize("name", NAMES)
def test_every_stage_has_a_formula_numbers_a_figure_and_a_legend(
    name: str, layer: int, loaded: LoadedModel, encoding: Encoding
) -> None:
    view, stage = view_of(loaded, encoding, layer), stages_of(loaded)[name]
    tables = stage.tables(view)
    if name == "attention_norm" and layer == 0:
        assert not tables, "the embeddings end with a norm"
        return
    for formula in (stage.formula(view), stage.live(view)):
        assert formula.count("{") == formula.count("}") and "nan" not in formula and "b_" not in formula
        found = _IN_FORMULA.findall(formula)
        assert not [sign for sign in found if len(sign) == 1 and sign not in PRE_NORM_SYMBOLS], formula
    assert re.fullmatch(r"[\d,]+ [a-z ]+( × [\d,]+ [a-z ]+)*", stage.shape(view))
    assert all(len(table) == len(stage.row_labels(view)) for table in tables.values())
    assert tidy_csv(tables, stage.row_labels(view))
    for look in (Look(), Look(dark=True, lecture=True)):
        with use_look(look):
            assert all(figure.data for figure in stage.draw(view, tables))
    assert "LN" not in stage.formula(view) or "layer norm" in legend(stage.formula(view), PRE_NORM_SYMBOLS)


@pytest.mark.parametrize(("layer", "base"), [(GLOBAL, "160{,}000"), (LOCAL, "10{,}000")])
def test_the_rotation_has_the_numbers_of_the_model(
    layer: int, base: str, loaded: LoadedModel, encoding: Encoding
) -> None:
    """The score by both positions and by the distance alone are the number of the score table."""
    view = view_of(loaded, encoding, layer)
    i, j = view.query, view.strongest
    score = tex(float(view.head_value("scores")[i, j]))
    angle, by_position, by_distance = ALL_STAGES["rotation"].live(view).split(r" \\[5pt] ")
    assert f"B = {base}" in angle and by_position.endswith(rf"= {score} = s_{{{i},{j}}}")
    assert rf"\mathrm{{R}}({j - i})" in by_distance and f"= {score}" in by_distance
    assert f"= {score}" in ALL_STAGES["scores"].live(view)
    tables = ALL_STAGES["rotation"].tables(view)
    columns = figure_columns(ALL_STAGES["rotation"].draw(view, tables)[0])
    assert columns["first number"] == [0, 0, 1, 1, 2, 2] and columns["second number"] == [4, 4, 5, 5, 6, 6]
    assert columns["position"] == [i, j] * 3 and columns["vector"] == ["query", "key"] * 3
    frequencies = rotary_frequencies(8, view.rotary_base or 0.0)
    assert_near(columns["angle"], [place * frequencies[pair] for pair in (0, 1, 2) for place in (i, j)])
    for part in ("query", "key"):
        rows = [row for row, name in enumerate(columns["vector"]) if name == part]
        place = i if part == "query" else j
        for when, values in (("before", view.head_value(part)), ("after", view.scored(part))):
            assert_near([columns[f"first {when}"][row] for row in rows], values[place, :3])
            assert_near([columns[f"second {when}"][row] for row in rows], values[place, 4:7])


@pytest.mark.parametrize("size", [2, 4, 8, 64, 128])
def test_two_or_three_different_pairs_are_drawn(size: int) -> None:
    pairs = shown_pairs(size)
    assert pairs == sorted(set(pairs)) and pairs[0] == 0 and pairs[-1] < size / 2
    assert len(pairs) == min(3, size // 2) or size == 4


def test_the_window_and_the_gate_are_in_the_formulas(loaded: LoadedModel, encoding: Encoding) -> None:
    stages = stages_of(loaded)
    local, whole = (view_of(loaded, encoding, layer) for layer in (LOCAL, GLOBAL))
    assert "|i - j| > 4" in stages["mask"].formula(local) and "|i - j|" not in stages["mask"].formula(whole)
    assert stages["mask"].live(local).endswith(r"- \infty = -\infty") and "infty" not in stages["mask"].live(whole)
    match = re.fullmatch(
        r".*u_\{5\}\[(\d+)\] = (\S+) \\cdot \((\S+)\) = (\S+?)(\\end.*)?", stages["feed_forward"].live(local)
    )
    assert match is not None
    neuron = int(match[1])
    expected = [
        local.value(name)[5, neuron] for name in ("intermediate_activated", "intermediate_gate", "intermediate")
    ]
    assert_near([float(number) for number in match.groups()[1:4]], expected, 1e-2)


def test_the_page_steps_through_all_stages_with_one_engine(opened: Callable[..., AppTest]) -> None:
    """NumPy is neither offered nor promised, also by an old link."""
    app = opened("inside", engine="numpy", head="1.2", stage="pieces")
    for number, name in enumerate(NAMES, start=1):
        assert not app.exception and not app.error
        assert app.session_state.stage == name and app.subheader[0].value.startswith(f"{number}. ")
        assert ("All stages are computed with PyTorch. The NumPy" in words(app).replace("*", "")) == (name == "heads")
        if name != "heads":
            app.button(key="on").click().run()
    assert app.session_state.engine == "torch"
    assert "engine" not in {control.key for control in (*app.segmented_control, *app.radio, *app.selectbox)}
    app = opened("inside", head="0.2", stage="attention_norm")
    assert "This layer has no layer norm before attention: the embeddings end with one." in words(app)


def test_a_link_to_a_stage_of_another_model_opens_the_last(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = opened("inside", stage="pooler")
    assert app.session_state.stage == "heads"
    monkeypatch.setattr(models, "loaded_model", lambda name: tiny_loaded)
    other = AppTest.from_file(ENTRY, default_timeout=60)
    other.query_params.update({"text": "the cat sat.", "stage": "rotation"})
    settled(at(other, "inside").run())
    assert other.session_state.stage == "heads" and not other.exception
    assert "Rotation" not in " ".join(other.selectbox(key=key_of(other, "stage")).options)


# ---------------------------------------------------------------------------- query-key


@pytest.mark.parametrize("layer", [GLOBAL, LOCAL])
def test_the_curve_has_the_score_of_the_model_at_its_distance(
    layer: int, loaded: LoadedModel, encoding: Encoding
) -> None:
    vectors, length = head_vectors(loaded, encoding, layer, 1), len(encoding)
    for query, key in ((3, 5), (length - 1, length - 4), (0, 0)):
        distances, scores = scores_at_distances(vectors, query, key)
        farthest = length - 1 if layer == GLOBAL else 4
        assert distances.tolist() == list(range(-farthest, farthest + 1))
        assert_near(scores[distances == key - query][0], vectors.scores[query, key], of=float(abs(scores).max()))
    short = head_vectors(loaded, loaded.tokenizer.encode("A"), layer, 1)
    assert scores_at_distances(short, 0, 1)[0].max() == len(short.keys) - 1 < 4
    figure = score_by_distance(distances, scores, 2, title="score")
    assert figure.layout.shapes[0].x0 == 2 and figure.data[1].x == (2,)
    with pytest.raises(ValueError, match="distance 99 is not one of"):
        score_by_distance(distances, scores, 99, title="score")


def test_the_view_shows_the_score_by_distance(
    opened: Callable[..., AppTest], loaded: LoadedModel, encoding: Encoding
) -> None:
    """Of the selected query and its strongest key, or the selected key; a key outside the window has none."""
    app = opened("attention", view="neuron", head="1.2", tokens="q5")
    vectors = head_vectors(loaded, encoding, 1, 2)
    key = int(vectors.attention[5].argmax())
    said = words(app).replace("*", "").replace("−", "-")
    assert f"(5) → “{encoding.labels[key]}” ({key}) is {vectors.scores[5, key]:.2f} at distance {key - 5:+d}." in said
    assert "dimension i and dimension i + half the head size are a pair" in said
    columns = columns_of(app, "score_distance")
    assert len(columns[next(iter(columns))]) >= 9
    app = opened("attention", view="neuron", head="1.2", tokens="k9")
    assert "is more than 4 positions from" in words(app) and "score_distance" not in app.session_state[VIEW].figures
    app = opened("attention", view="neuron", head="0.2", tokens="k9")
    assert "(9) is " in words(app).replace("*", "")


def test_other_models_have_no_such_curve(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "loaded_model", lambda name: tiny_loaded)
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update({"text": "the cat sat.", "view": "neuron"})
    settled(at(app, "attention").run())
    assert "Score by distance" not in words(app) and "rotation by position" not in words(app)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # BertViz's own
def test_files_say_that_vectors_are_rotated(loaded: LoadedModel, encoding: Encoding) -> None:
    """The page, the table with -inf outside the window, and BertViz's view refused for a longer text only."""
    run, vectors = capture(loaded, encoding), head_vectors(loaded, encoding, 1, 2)
    made = page.neuron_page(run, vectors, 5)
    assert "after their rotation by position" in made and "only the pair has a length and an angle" in made
    rows = list(csv.DictReader(io.StringIO(neuron_csv(vectors, 5).decode("utf-8-sig"))))
    far = [row for row in rows if abs(int(row["key_position"]) - 5) > 4]
    assert far and {row["score"] for row in far} == {"-inf"} and {float(row["softmax"]) for row in far} == {0.0}
    with pytest.raises(Refused, match="longer than the window of the local layers"):
        bertviz_page(MapView().maps(run), "neuron", vectors=all_head_vectors(loaded, encoding))
    short = loaded.tokenizer.encode("A man.")
    assert len(short) <= 5
    assert bertviz_page(MapView().maps(capture(loaded, short)), "neuron", vectors=all_head_vectors(loaded, short))


# ---------------------------------------------------------------------------- neurons


def test_gated_neurons_show_both_inputs(
    opened: Callable[..., AppTest], loaded: LoadedModel, encoding: Encoding
) -> None:
    """The sentence, the bars and the file have the two inputs, whose product is the activation."""
    app = opened("neurons", neuron="1.7")
    run = neuron_activations(loaded, encoding)
    assert "There its activated input is" in words(app) and "A negative gate makes an active neuron negative" in words(
        app
    )
    columns = columns_of(app, "neuron_along")
    series, (value,) = columns["series"], [name for name in columns if name not in ("label", "series")]
    drawn = {
        name: [float(v) for s, v in zip(series, columns[value], strict=True) if s == name]
        for name in dict.fromkeys(series)
    }
    assert list(drawn) == ["activated input", "gate", "activation"]
    assert_near(drawn["activation"], run.activations[1, :, 7])
    assert_near(np.multiply(drawn["activated input"], drawn["gate"]), run.activations[1, :, 7])
    (listed,) = (frame.value for frame in app.dataframe if "gate" in frame.value)
    assert_near(listed["activated input"] * listed["gate"], listed["activation"])
    table = neuron_columns(run, strongest_neurons(run.contributions, 3))
    assert_near(np.multiply(table["activated input"], table["gate"]), table["activation"])
    assert "activated input" in labelled_csv(table).decode("utf-8-sig").splitlines()[0]


def test_other_neurons_are_shown_as_before(tiny_loaded: LoadedModel) -> None:
    run = neuron_activations(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat."))
    plain = neuron_columns(run, strongest_neurons(run.contributions, 3))
    assert list(plain) == ["layer", "position", "token", "place", "neuron", "activation", "contribution"]
    assert replace(run).inputs == {}
