"""The terms of attention scores on Attention, in Export and on the command line; transformers is the reference."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

import bert_core
from bert_core import Encoding, LoadedModel, Refused
from tests.app.test_export import headlight
from tests.core.test_walk import another
from tests.families import reference_of, save_family
from tests.near import assert_near
from tests.visit import ENTRY, at, columns_of, settled, words
from viz_app.export import FILE_KINDS
from viz_app.export.files import TermFiles, file_of
from viz_app.figures.score_terms import MAX_KEYS, TOP_KEYS, drawn_keys, term_bars, term_map
from viz_app.figures.style import Look, use_look
from viz_app.pages.attention.score_terms import MAX_ROWS
from viz_app.shell import downloads, models, selection
from viz_app.shell.view import VIEW, View

TEXT, PAIR = "The old man walked.", "It was red."
LAYER, HEAD = 1, 2
NAMES = {
    "deberta-v2": ["content-to-content", "content-to-position", "position-to-content"],
    "mpnet": ["content-to-content", "position"],
}


@pytest.fixture(scope="module", params=NAMES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose distances decide as much as its contents."""
    folder = save_family(family, tmp_path_factory.mktemp("terms") / family)
    model = reference_of(family, folder)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.endswith(("rel_embeddings.weight", "relative_attention_bias.weight")):
            parameter.data.normal_(std=2)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def encoding(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode(TEXT, PAIR)


@torch.no_grad()
def reference_terms(family: str, folder: Path, encoding: Encoding) -> dict[str, np.ndarray]:
    """The terms of one head by the published formulas, from the weights and hidden states of transformers."""
    model = reference_of(family, folder).double()
    states = model(torch.tensor([encoding.input_ids]), output_hidden_states=True).hidden_states[LAYER]
    encoder, heads, length = model.base_model.encoder, model.config.num_attention_heads, len(encoding)
    attention = encoder.layer[LAYER].attention

    def of_head(rows: torch.Tensor) -> torch.Tensor:
        return rows.view(len(rows), heads, -1)[:, HEAD]

    if family == "mpnet":
        query, key = of_head(attention.attn.q(states)[0]), of_head(attention.attn.k(states)[0])
        content = query @ key.T / query.shape[1] ** 0.5
        terms = [content, encoder.compute_position_bias(states)[0, HEAD]]
    else:
        own, table = attention.self, encoder.get_rel_embedding()
        query, key = of_head(own.query_proj(states)[0]), of_head(own.key_proj(states)[0])
        distance_key, distance_query = of_head(own.key_proj(table)), of_head(own.query_proj(table))
        span = own.pos_ebd_size
        rows = build_relative_position(states, states, own.position_buckets, own.max_relative_positions)[0] + span
        rows = rows.clamp(0, 2 * span - 1)
        root = (3 * query.shape[1]) ** 0.5
        places = range(length)
        from_query = [[query[i] @ distance_key[rows[i, j]] for j in places] for i in places]
        from_key = [[key[j] @ distance_query[rows[i, j]] for j in places] for i in places]
        terms = [query @ key.T / root, torch.tensor(from_query) / root, torch.tensor(from_key) / root]
    return dict(zip(NAMES[family], (term.numpy() for term in terms), strict=True))


def assert_terms(found: Mapping[str, np.ndarray], scores: np.ndarray, expected: Mapping[str, np.ndarray]) -> None:
    """The terms are the expected ones, and add up to the scores within 1e-6 of the largest."""
    assert_near(sum(found[name] for name in expected), scores, 1e-6)
    for name, values in expected.items():
        assert_near(found[name], values, what=name)
    assert_near(scores, sum(expected.values()))


@pytest.fixture
def opened(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """`opened(loaded=None, **address)`: the view with the model of a family, or another, Export open."""

    def start(other: LoadedModel | None = None, **address: str) -> AppTest:
        monkeypatch.setattr(models, "loaded_model", lambda name: other or loaded)
        app = AppTest.from_file(ENTRY, default_timeout=60)
        app.query_params.update({"text": TEXT, "view": "terms", "head": f"{LAYER}.{HEAD}", **address})
        app.session_state[downloads.OPEN_KEY] = True
        settled(at(app, "attention").run())
        assert not app.exception and not app.error
        return app

    return start


def bars_of(app: AppTest) -> dict[str, np.ndarray]:
    """The numbers of the bars of the page, by the name of the series."""
    columns = columns_of(app, "score_terms")
    series, values = columns["series"], columns["part of the score"]
    return {name: np.array([v for s, v in zip(series, values, strict=True) if s == name]) for name in {*series}}


# ---------------------------------------------------------------------------- the page


def test_bars_and_maps_are_the_terms(
    opened: Callable[..., AppTest], family: str, folder: Path, encoding: Encoding
) -> None:
    """Of the selected query and of all, as the formulas give them, and the sentence has the highest score."""
    app = opened(pair=PAIR, tokens="q3")
    expected, length = reference_terms(family, folder, encoding), len(encoding)
    view: View = app.session_state[VIEW]
    drawn = {
        name: np.reshape(columns_of(app, f"score_terms_{name}")[name], (-1, length)) for name in (*expected, "score")
    }
    assert_terms(drawn, drawn["score"], expected)
    bars = bars_of(app)
    scores = drawn["score"][3]
    keys = drawn_keys(scores, (3,))
    assert columns_of(app, "score_terms")["label"][: len(keys)] == [f"{encoding.labels[key]} ({key})" for key in keys]
    assert_terms(bars, bars["score"], {name: term[3, keys] for name, term in expected.items()})
    best = int(scores.argmax())
    sentence = (
        f"L1 H2: the score of “{encoding.labels[3]}” (3) → “{encoding.labels[best]}” ({best}) is {scores[best]:.2f} "
    )
    assert sentence in words(app).replace("*", "").replace("−", "-")
    limits = {view.figures[f"score_terms_{name}"].figure.data[0].zmax for name in drawn}
    assert len(limits) == 1 and limits.pop() == pytest.approx(max(np.abs(term).max() for term in drawn.values()))
    selected = view.figures["score_terms_score"].figure.layout.shapes[0]
    assert (selected.y0, selected.y1) == (2.5, 3.5)
    assert {"rows", "share", "hide", "combine", "show", "words"} & {toggle.key for toggle in app.toggle} == set()


def test_a_model_without_position_terms_says_so(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel, loaded: LoadedModel
) -> None:
    """One sentence and a button that opens Query-key; the view is then not offered any more, and comes back."""
    app = opened(tiny_loaded)
    assert "This model adds no position terms to its scores: the score is the product of query and key." in words(app)
    app.button(key=next(button.key for button in app.button if button.label == "Open Query-key")).click().run()
    assert app.query_params["view"] == "neuron" or app.query_params["view"] == ["neuron"]
    assert "terms" not in app.segmented_control(key="view").options and not app.exception
    other = opened(view="curves")
    assert "Score terms" in other.segmented_control(key="view").options


def test_pruned_and_disabled_heads(opened: Callable[..., AppTest], loaded: LoadedModel) -> None:
    """A head that is off is computed and named; a pruned one, or a whole layer, has a sentence in its place."""
    app = opened(off="1.2")
    assert "L1 H2 is switched off: it computes these scores, but its output is not used." in words(app)
    assert bars_of(app)
    smaller = replace(bert_core.pruned(loaded, [(1, head) for head in range(4)]), name="smaller")
    app = opened(smaller)
    assert "L1 H2 was pruned, so it has no scores. Choose another head." in words(app)


def test_a_text_of_512_tokens(opened: Callable[..., AppTest]) -> None:
    """The bars of the highest scores and of the selected tokens, maps around the query, and what is left out."""
    text = "The cat sat on the mat. " * 100
    app = opened(text=text, tokens="q300")
    length = len(app.session_state[selection.SELECTION].encoding)
    bars = bars_of(app)
    assert length >= 510
    assert TOP_KEYS <= len(bars["score"]) <= TOP_KEYS + 1
    assert f"The {TOP_KEYS} keys with the highest scores of {length} are drawn" in words(app)
    first = 300 - MAX_ROWS // 2
    assert f"The maps show tokens {first} to {first + MAX_ROWS - 1} of {length}, around the query." in words(app)
    assert len(columns_of(app, "score_terms_score")["score"]) == MAX_ROWS**2
    assert bars_of(opened(text="a", tokens="q99"))["score"].size == 3


@pytest.mark.parametrize("text", ["שלום עולם مرحبا", "漢字かな交じり文", "<b>*x*</b> [a](b) $y$", "{query} {0}"])
def test_unusual_texts(opened: Callable[..., AppTest], text: str) -> None:
    """They are shown as they are, in every part."""
    assert bars_of(opened(text=text))["score"].size


def test_later_tokens_of_a_decoder_are_left_out(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """They have no score, so they have no bar and no cell."""
    decoder = another(tiny_loaded, is_decoder=True, position_embedding_type="relative_key_query")
    app = opened(decoder, text="the cat sat on the mat", tokens="q2")
    assert len(bars_of(app)["score"]) == 3
    cells = np.reshape(columns_of(app, "score_terms_score")["score"], (8, 8)).astype(float)
    assert np.isnan(cells[np.triu_indices(8, 1)]).all() and np.isfinite(cells[np.tril_indices(8)]).all()
    assert "are drawn" not in words(app)


# ---------------------------------------------------------------------------- Export and the command line


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def table_of(content: bytes, names: list[str], queries: int) -> dict[str, np.ndarray]:
    """The columns of numbers of a CSV file, (query, key) each."""
    return {name: np.reshape([float(row[name]) for row in rows_of(content)], (queries, -1)) for name in names}


def test_the_files(loaded: LoadedModel, family: str, folder: Path, encoding: Encoding) -> None:
    """All queries or one: terms, scores and attention of the CSV and the NPZ, and every kind of file."""
    expected = reference_terms(family, folder, encoding)
    run, vectors = bert_core.capture(loaded, encoding), bert_core.head_vectors(loaded, encoding, LAYER, HEAD)
    whole, of_query = (TermFiles(run, vectors, query, str(folder)) for query in (None, 3))
    names = [*expected, "score", "attention"]
    assert list(rows_of(whole.csv())[0]) == ["query_position", "query", "key_position", "key", *names]
    found = table_of(whole.csv(), names, len(encoding))
    assert_terms(found, found["score"], expected)
    assert_near(found["attention"], run.attention[LAYER, HEAD])
    assert np.array_equal(table_of(of_query.csv(), names, 1)["score"][0], found["score"][3])
    with np.load(io.BytesIO(whole.npz()), allow_pickle=False) as file:
        assert_terms(file, file["scores"], expected)
        assert file["tokens"].tolist() == list(encoding.tokens) and (file["layer"], file["head"]) == (LAYER, HEAD)
    assert (whole.name("csv"), of_query.name("csv"), of_query.name("npz")) == (
        "terms-L1-H2.csv",
        "terms-L1-H2-3.csv",
        "terms-L1-H2.npz",
    )
    for files in (whole, of_query):
        for kind in FILE_KINDS:
            assert len(file_of(files, kind)) > 200
        for text in (*expected, "score", "L1 H2"):
            assert text in file_of(files, "svg").decode()


def test_the_script_makes_the_same_picture(
    loaded: LoadedModel, folder: Path, encoding: Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the text alone, with a head off: the bytes of the SVG, and terms that add up."""
    monkeypatch.chdir(tmp_path)
    gates = np.ones((3, 4), np.float32)
    gates[0, 1] = 0
    run = bert_core.capture(loaded, encoding, head_mask=gates)
    vectors = bert_core.head_vectors(loaded, encoding, LAYER, HEAD, head_mask=gates)
    for query in (None, 3):
        files, scope = TermFiles(run, vectors, query, str(folder)), dict[str, Any]()
        exec(compile(files.python(), "script", "exec"), scope)
        assert (tmp_path / "terms.svg").read_bytes() == file_of(files, "svg")
        assert_near(sum(scope["terms"].values()), scope["scores"], 1e-6)


def test_export_of_the_page(
    opened: Callable[..., AppTest], loaded: LoadedModel, encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the selected query, or of all queries; none for a model without such terms."""
    found: dict[str, Callable[[], bytes]] = {}
    monkeypatch.setattr(downloads, "_export_button", lambda label, make, name, **_: found.update({name: make}))
    app = opened(pair=PAIR, tokens="q3")
    vectors = bert_core.head_vectors(loaded, encoding, LAYER, HEAD)
    run = bert_core.capture(loaded, encoding)
    assert found["terms-L1-H2-3.csv"]() == TermFiles(run, vectors, 3, "").csv()
    app.segmented_control(key="export_which").set_value("all").run()
    assert found["terms-L1-H2.csv"]() == TermFiles(run, vectors, None, "").csv()


def test_the_command(
    capsys: pytest.CaptureFixture[str], family: str, folder: Path, encoding: Encoding, tmp_path: Path
) -> None:
    """The same terms from the command line, of all queries and of one."""
    expected = reference_terms(family, folder, encoding)
    names, out = [*expected, "score", "attention"], tmp_path / "terms.csv"
    options = (TEXT, "--pair", PAIR, "--model", folder, "--device", "cpu", "--terms", "--layer", LAYER, "--head", HEAD)
    capsys.readouterr()  # what transformers has written
    assert headlight(capsys, *options, "--out", out) == (0, "", "")
    found = table_of(out.read_bytes(), names, len(encoding))
    assert_terms(found, found["score"], expected)
    assert headlight(capsys, *options, "--query", 3, "--out", out) == (0, "", "")
    assert np.array_equal(table_of(out.read_bytes(), names, 1)["score"][0], found["score"][3])
    for ending in ("png", "svg", "npz"):
        assert headlight(capsys, *options, "--out", tmp_path / f"a.{ending}") == (0, "", "")


def test_a_query_that_does_not_exist_is_refused(loaded: LoadedModel, encoding: Encoding) -> None:
    """With the queries that exist."""
    vectors = bert_core.head_vectors(loaded, encoding, LAYER, HEAD)
    with pytest.raises(Refused, match="query 99 does not exist: the queries of this text are 0 to"):
        TermFiles(bert_core.capture(loaded, encoding), vectors, 99, "")


# ---------------------------------------------------------------------------- the figures


@pytest.mark.parametrize("look", [Look(), Look(dark=True), Look(lecture=True)])
def test_bars_of_terms_differ_without_colour(look: Look) -> None:
    """Each term has its own pattern, the mark of the score is at the sum, and each score is written."""
    terms = {"a": np.array([1.0, -2.0]), "b": np.array([0.5, 0.25]), "c": np.array([0.0, 3.0])}
    scores = sum(terms.values(), np.zeros(2))
    with use_look(look):
        figure = term_bars(["x", "y"], terms, scores)
    traces = {trace.name: trace for trace in figure.data}
    patterns = [traces[name].marker.pattern.shape or "" for name in terms]
    assert len(set(patterns)) == len(terms) and len({str(traces[name].marker.color) for name in terms}) >= 2
    assert list(traces["score"].x) == scores.tolist()
    assert {"1.50", "1.25"} <= {note.text for note in figure.layout.annotations}
    low, high = figure.layout.xaxis.range
    assert low < -2 and high > 3
    with pytest.raises(ValueError, match="one for each label"):
        term_bars(["x"], terms, scores)


def test_a_map_of_a_term_has_its_rows_and_scale() -> None:
    """The first row has its position, the selected one a frame; labels that do not fit are refused."""
    values = np.array([[1.0, np.nan], [-2.0, 0.5]])
    figure = term_map(values, ["a", "b"], ["c", "d"], name="t", limit=4.0, selected_row=1, first_row=7, width=500)
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-4.0, 4.0)
    assert (figure.layout.shapes[0].y0, figure.layout.shapes[0].y1) == (7.5, 8.5)
    assert set(figure.data[1].y) == {7, 8}
    with pytest.raises(ValueError, match="row labels"):
        term_map(values, ["a"], ["c", "d"], name="t", limit=4.0, selected_row=0, width=500)


def test_keys_with_the_highest_scores_are_drawn() -> None:
    """All of a short text; the highest of a long one, with the selected ones, in the order of the text."""
    assert drawn_keys(np.arange(MAX_KEYS)) == list(range(MAX_KEYS))
    scores = np.arange(100.0)
    scores[99] = -np.inf
    assert drawn_keys(scores, (5, 98, 99, 500)) == [5, *range(99 - TOP_KEYS, 99)]
    assert drawn_keys(np.full(3, np.nan)) == []
