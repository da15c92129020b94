"""The pages Attention and Compare without a browser: what they hand to their views, and what unusual models give."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from bert_core.analysis.sinks import sink_contribution
from bert_core.loading import LoadedModel, load
from bert_core.modeling import BertForPreTraining
from bert_core.pruning import pruned
from bert_core.records import ModelRun
from bert_core.run.capture import capture
from bert_core.run.vectors import head_vectors
from tests.near import assert_near
from tests.visit import at, key_of
from viz_app.components.attention_view import Vectors, ViewChoice, packing
from viz_app.components.attention_view import view as large_view
from viz_app.components.head_grid import view as grid_view
from viz_app.export import tables
from viz_app.figures.thumbnails import LARGE
from viz_app.pages.compare import page as compare_page
from viz_app.pages.compare import sides
from viz_app.shell import downloads, model_names, models, selection
from viz_app.tokens import Combined, Token

ENTRY = str(Path(__file__).parents[2] / "streamlit_app.py")
PAIR = {"text": "the cat sat on the mat", "pair": "it was red"}


class Sent:
    """What the two views of a page were given last: their headers, and the bytes behind the header of the large one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.large: dict[str, Any] = {}
        self.grid: dict[str, Any] = {}
        self.tail = b""
        monkeypatch.setattr(large_view, "_view", self._receiver(large_view._view, "large"))
        monkeypatch.setattr(grid_view, "_view", self._receiver(grid_view._view, "grid"))

    def _receiver(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def receive(*, data: bytes, **others: Any) -> Any:
            length = int.from_bytes(data[:4], "little")
            setattr(self, name, json.loads(data[4 : 4 + length]))
            if name == "large":
                self.tail = data[4 + length :]
            return real(data=data, **others)

        return receive

    def drawn(self) -> np.ndarray:
        """The first map that was sent, (query, key), as the browser will draw it."""
        rows, columns = len(self.large["queries"]), len(self.large["keys"])
        maxima = np.frombuffer(self.tail, "<f4", rows)
        codes = np.frombuffer(self.tail, np.uint8, rows * columns, 4 * rows).reshape(rows, columns)
        quantised = packing.Quantised(codes, maxima)
        return packing.restored(quantised, signed=self.large["signed"])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(monkeypatch)


@pytest.fixture
def opened(tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """`opened(page, loaded=None, **address)`: a page with the tiny model, or another, as a link gives it.

    The Export control is open on it.
    """

    def start(page: str, loaded: LoadedModel | None = None, **address: str) -> AppTest:
        monkeypatch.setattr(models, "loaded_model", lambda name: loaded or tiny_loaded)
        app = AppTest.from_file(ENTRY, default_timeout=60)
        app.query_params.update(PAIR | address)
        app.session_state[downloads.OPEN_KEY] = True
        at(app, page).run()
        assert not app.exception
        return app

    return start


def words(app: AppTest) -> str:
    """Everything that the page says."""
    kinds = (app.markdown, app.caption, app.error, app.warning, app.info, app.header)
    return "\n".join(str(element.value).replace("\\", "") for kind in kinds for element in kind)


def of_size(loaded: LoadedModel, layers: int, heads: int) -> LoadedModel:
    """An untrained model of that many layers and heads."""
    torch.manual_seed(7)
    config = loaded.config.replace(num_hidden_layers=layers, num_attention_heads=heads)
    return replace(loaded, name=f"{layers}x{heads}", model=BertForPreTraining(config).eval().requires_grad_(False))


def with_maps(monkeypatch: pytest.MonkeyPatch, make: Callable[[np.ndarray], np.ndarray]) -> None:
    """Let the page see other maps than the model's own."""

    def captured(*given: Any, **how: Any) -> ModelRun:
        run = capture(*given, **how)
        return replace(run, attention=make(run.attention.copy()))

    monkeypatch.setattr(selection, "capture", captured)


# ---------------------------------------------------------------------------- the neuron view


def test_all_heads_are_sent_once(opened: Callable[..., AppTest], sent: Sent) -> None:
    """The first message holds the heads of every layer and later ones their name, until what is shown changes."""
    page = opened("attention", text="the cat sat on the mat", view="curves")
    first = sent.large
    assert [len(layer["names"]) for layer in first["all"]["layers"]] == [first["count"]] * first["layers"]
    assert first["all"]["name"] == first["everywhere"] and first["all"]["bytes"] > 0
    page.run()
    assert sent.large["everywhere"] == first["everywhere"] and "all" not in sent.large
    page.toggle(key_of(page, "hide")).set_value(True).run()
    assert sent.large["everywhere"] != first["everywhere"] and "all" in sent.large


@pytest.mark.parametrize("asked", [{"view": "neuron"}, {"combine": "average"}, {"hide": "1", "share": "1"}])
def test_all_heads_are_not_sent_where_it_would_not_do(
    opened: Callable[..., AppTest], sent: Sent, asked: dict[str, str]
) -> None:
    """Vectors, one map of several heads, and rows whose gaps are named need the server."""
    opened("attention", text="the cat sat on the mat", **({"view": "curves"} | asked))
    assert sent.large.get("everywhere") is None


def test_the_neuron_view_gets_the_vectors_of_the_opened_head(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Exactly those of the library, queries first, and none of the filters applies to them."""
    opened("attention", view="neuron", head="1.2", part="A to B", hide="1", words="1", show="gradient")
    encoding = tiny_loaded.tokenizer.encode(*PAIR.values())
    seen = head_vectors(tiny_loaded, encoding, 1, 2)
    n, size = len(encoding), seen.queries.shape[1]
    assert len(sent.large["queries"]) == len(sent.large["keys"]) == n
    assert sent.large["vectors"]["size"] == size and sent.large["sent"] == [] and not sent.large["signed"]
    found = np.frombuffer(sent.tail, "<f4").reshape(2, n, size)
    assert np.array_equal(found[0], seen.queries) and np.array_equal(found[1], seen.keys)


def test_vectors_that_do_not_fit_are_refused() -> None:
    """The sentence says what was given and what is expected."""
    tokens = [Token("a", 0), Token("b", 1)]
    maps, choice = np.full((1, 2, 2), 0.5), ViewChoice(0, (0,))
    vectors = Vectors(np.ones((3, 4)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="vectors of 3 queries and 2 keys"):
        large_view.attention_view(
            maps, tokens, tokens, choice=choice, layers=1, mode="neuron", vectors=vectors, key="x"
        )
    with pytest.raises(ValueError, match="a combined map of shape"):
        large_view.attention_view(
            maps, tokens, tokens, choice=choice, layers=1, key="x",
            combined=Combined("both", np.ones((2, 3))),
        )  # fmt: skip
    with pytest.raises(ValueError, match="one of curves, matrix, neuron"):
        large_view.attention_view(maps, tokens, tokens, choice=choice, layers=1, mode="bars", key="x")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- the Export control


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], bytes]]:
    """What the buttons of Export make when they are clicked, by the name of the file."""
    found: dict[str, Callable[[], bytes]] = {}
    monkeypatch.setattr(downloads, "_export_button", lambda label, make, name, **_: found.update({name: make}))
    return found


def test_export_gives_the_one_map_that_the_page_shows(
    files: dict[str, Callable[[], bytes]], opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """The weighted map of the chosen heads as numbers; by importance without a gradient on the page, too."""
    attention = capture(tiny_loaded, tiny_loaded.tokenizer.encode(*PAIR.values())).attention
    opened("attention", head="1.2", also="0", combine="weighted", weights="3,1")
    with np.load(io.BytesIO(files["attention.npz"]()), allow_pickle=False) as file:
        assert_near(file["attention"], (3 * attention[1, 2] + attention[1, 0]) / 4, 1e-6)
    assert {"attention-weighted.svg", "attention-weighted.csv", "attention-weighted.py"} <= set(files)
    files.clear()
    opened("attention", combine="weighted", among="all")
    with np.load(io.BytesIO(files["attention.npz"]()), allow_pickle=False) as file:
        assert file["heads"].tolist() == ["weighted of all layers by importance"]


def test_export_of_the_neuron_view_has_the_selected_query(
    files: dict[str, Callable[[], bytes]], opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """The head and token of the address, between all pieces, whatever the filters of the other views say."""
    opened("attention", view="neuron", head="1.2", tokens="q3", part="A to B", combine="average")
    vectors = head_vectors(tiny_loaded, tiny_loaded.tokenizer.encode(*PAIR.values()), 1, 2)
    assert files["neuron-L1-H2-3.csv"]() == tables.neuron_csv(vectors, 3)
    assert {"neuron-L1-H2-3.pdf", "neuron-L1-H2.npz", "neuron-L1-H2-3.py"} <= set(files)


def test_export_of_compare_has_every_heads_change_and_the_list(
    files: dict[str, Callable[[], bytes]], opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """One head off: the difference of two captures, the list in falling size, and the chosen head as a picture."""
    opened("compare", against="heads", off="0.1", head="1.2")
    encoding = tiny_loaded.tokenizer.encode(*PAIR.values())
    gates = np.ones((2, 4), np.float32)
    gates[0, 1] = 0
    expected = capture(tiny_loaded, encoding, head_mask=gates).attention - capture(tiny_loaded, encoding).attention
    with np.load(io.BytesIO(files["change.npz"]()), allow_pickle=False) as file:
        assert_near(file["change"], expected, 1e-6)
    rows = list(csv.DictReader(io.StringIO(files["changes.csv"]().decode())))
    sizes = [abs(float(row["change"])) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert_near(sizes[0], abs(expected).max(), 1e-6)
    assert b"some off minus all heads on" in files["change-L1-H2.svg"]()
    opened("compare", against="heads", off="0.1", compare_view="heads")
    drawn = files["change.svg"]()
    assert b"some off minus all heads on" in drawn and b"all on one scale" in drawn and drawn.count(b"<image") == 8


# ---------------------------------------------------------------------------- heads together, rows renormalised


@pytest.mark.parametrize("over", ["chosen", "layer", "all"])
def test_heads_together_are_the_average_of_the_maps(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel, over: str
) -> None:
    """What is sent is the mean of the chosen heads, of their layer or of all, under a name that says so."""
    opened("attention", head="1.2", also="0", combine="average", among=over)
    attention = capture(tiny_loaded, tiny_loaded.tokenizer.encode(*PAIR.values())).attention
    of = {"chosen": attention[1, [0, 2]], "layer": attention[1], "all": attention.reshape(8, *attention.shape[2:])}
    assert sent.large["combined"].startswith("average of ") and sent.large["drawn"] == [large_view.COMBINED]
    assert np.abs(sent.drawn() - of[over].mean(0)).max() < 1 / 500


def plain(app: AppTest) -> str:
    """The words of a page without the marks of those that are explained."""
    return re.sub(r"<[^>]*>", "", words(app))


def test_what_is_brought_is_drawn_as_the_library_has_it(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Lengths, without a sign and without anything to explain, large and small; the reading says what they are."""
    app = opened("attention", head="1.2", show="brought", pair="")
    brought = capture(tiny_loaded, tiny_loaded.tokenizer.encode(PAIR["text"]), norms=True).select_map("brought")[1, 2]
    assert (
        not sent.large["signed"] and not sent.grid["signed"] and sent.large["unit"] == "value-weighted attention (norm)"
    )
    assert np.abs(sent.drawn() - brought).max() < brought.max() / 250
    assert "norm of the vector that the head adds" in plain(app)
    app = opened("attention", head="1.2", show="brought", words="1", part="A to B", share="1", view="matrix")
    assert sent.large["notes"] == [] and not app.exception


def test_the_page_says_what_heads_get_from_where_they_look(opened: Callable[..., AppTest]) -> None:
    """How many heads look mostly at [CLS], for what share of what they bring; a button shows the lengths."""
    loaded = load("headlight-mini", device="cpu")
    app = opened("attention", loaded, text="She opened the door.", pair="")
    encoding = loaded.tokenizer.encode("She opened the door.")
    run = capture(loaded, encoding, norms=True)
    found = sink_contribution(run.attention, run.select_map("brought"), [token == "[CLS]" for token in encoding.tokens])
    said = plain(app)
    assert f"{found.heads} of 72 heads give it more than half" in said and found.value_weighted < found.attention
    assert f"({found.attention:.0%} on average), but it contributes only {found.value_weighted:.0%} of their" in said
    app.button(key="show_brought").click().run()
    assert app.session_state.show == "brought" and "Why do so many heads attend to" in plain(app)
    assert not app.exception and "show_brought" not in [button.key for button in app.button]


def test_curves_are_on_one_scale_for_all_heads(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Attention is drawn from 0 to 1, other quantities to the largest of all heads; a matrix has its own scale."""
    opened("attention", head="1.2", tokens="q2")
    assert sent.large["limit"] == 1 and sent.grid["legend"][0] == "0"
    opened("attention", head="1.2", show="brought")
    run = capture(tiny_loaded, tiny_loaded.tokenizer.encode(*PAIR.values()), norms=True)
    assert sent.large["limit"] == pytest.approx(run.select_map("brought").max())
    opened("attention", head="1.2", view="matrix")
    assert sent.large["limit"] is None


def test_the_head_that_opens_attends_from_the_mask_to_a_word(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Without a choice the head with the largest attention x effect opens, and the address has no head."""
    app = opened("attention", masked="1", pair="")
    encoding = tiny_loaded.tokenizer.mask_words(tiny_loaded.tokenizer.encode(PAIR["text"]), [1])
    target = app.session_state[selection.SELECTION].target
    run = capture(tiny_loaded, encoding, target=target)
    attention = run.attention[:, :, 2].copy()
    attention[:, :, [0, 2, -1]] = 0
    expected = np.unravel_index((attention.max(-1) * np.abs(run.gate_gradient)).argmax(), (2, 4))
    assert (sent.large["layer"], sent.large["heads"]) == (expected[0], [expected[1]])
    assert sent.grid["selected"] == list(expected) and "head" not in app.query_params
    assert f"L{expected[0]} H{expected[1]}**: “cat" in words(app) and "attends most to" in words(app)


def test_export_has_the_selected_token(files: dict[str, Callable[[], bytes]], opened: Callable[..., AppTest]) -> None:
    """The picture has the curves of that token alone, the page opens with it, and the script repeats both."""
    opened("attention", head="1.2", tokens="q3")
    drawn, page = files["attention-L1-H2.svg"](), files["attention.html"]().decode()
    assert b"edges of the selected tokens above 1/200 of the strongest: " in drawn
    assert "side='query', positions=(3,)" in files["attention-L1-H2.py"]().decode() and page
    opened("compare", masked="1", head="1.2", tokens="k4")
    assert b"edges of the selected tokens above 1/200 of the strongest: " in files["change-L1-H2.svg"]()


def test_weights_by_importance_need_a_target(sent: Sent, opened: Callable[..., AppTest]) -> None:
    """Without one the page says so and draws the heads apart; with one the rows still sum to 1."""
    app = opened("attention", pair="", combine="weighted", among="layer")
    assert "need something to explain" in words(app) and sent.large["combined"] is None
    opened("attention", masked="1", combine="weighted", among="layer")
    assert "by importance" in sent.large["combined"]
    assert sent.drawn().sum(-1) == pytest.approx(np.ones(len(sent.large["queries"])), abs=0.03)


def test_weights_of_ones_own(sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """Three to one of two heads, without a target; too few, or none that are numbers, get one sentence."""
    how = {"pair": "", "head": "1.2", "also": "0", "combine": "weighted"}
    opened("attention", **how, weights="3,1")
    attention = capture(tiny_loaded, tiny_loaded.tokenizer.encode(PAIR["text"])).attention
    assert sent.large["combined"] == "weighted of L1 H2, H0 by 3, 1"
    assert np.abs(sent.drawn() - (0.75 * attention[1, 2] + 0.25 * attention[1, 0])).max() < 1 / 500
    app = opened("attention", **how, weights="3")
    assert "1 weights for 2 heads" in words(app) and sent.large["combined"] is None
    next(field for field in app.text_input if field.label == "Weights").set_value("much, more").run()
    assert not app.exception and "numbers between commas" in words(app)


def test_rows_are_renormalised_only_when_asked_and_the_page_says_which(
    sent: Sent, opened: Callable[..., AppTest]
) -> None:
    """Of A to B: as they were, or each summing to 1; never of signed values."""
    app = opened("attention", part="A to B")
    assert "rows not rescaled" in sent.large["notes"][0] and "left out is not drawn" in plain(app)
    assert sent.drawn().sum(-1).max() < 0.95
    app = opened("attention", part="A to B", share="1")
    assert sent.large["notes"] == ["rows rescaled to 1"] and "divided by its sum" in words(app)
    assert sent.drawn().sum(-1) == pytest.approx(np.ones(6), abs=0.02)
    opened("attention", part="A to B", share="1", show="gradient", masked="1")
    assert sent.large["signed"] and sent.large["notes"] == []
    opened("attention", share="1")
    assert sent.large["notes"] == []


def test_rows_with_nothing_left_are_named(
    sent: Sent, opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that looks at itself gives nothing from A to B: its rows are no numbers, not zeros."""
    with_maps(monkeypatch, lambda maps: np.broadcast_to(np.eye(maps.shape[-1], dtype=np.float32), maps.shape).copy())
    opened("attention", text="the cat ran", part="A to B", share="1")
    assert "no attention remains for “the” (1), “cat” (2), “ran” (3); these rows are empty" in sent.large["notes"][1]
    assert np.isnan(sent.drawn()).all()


# ---------------------------------------------------------------------------- unusual models and texts


@pytest.mark.parametrize("view", ["curves", "matrix", "neuron"])
@pytest.mark.parametrize(
    "address",
    [
        {"text": "a", "pair": "", "hide": "1"},
        {"text": "cat " * 600, "pair": ""},
        {"text": "שלום עולם مرحبا", "pair": ""},
        {"text": "漢字かな交じり文", "pair": "한국어"},
        {"text": "the\u200b cat\u200d\ufeff sat", "pair": ""},
    ],
    ids=["one token", "512 equal words", "right to left", "CJK", "zero width"],
)
def test_unusual_texts_are_shown(
    sent: Sent, opened: Callable[..., AppTest], view: str, address: dict[str, str]
) -> None:
    """Every view takes them; what it is handed has as many tokens as the model reads and is shown."""
    app = opened("attention", view=view, **address)
    assert not app.error
    shown = len(sent.large["queries"])
    if address["text"].startswith("cat"):
        assert shown == 512
    else:
        assert shown == (
            1 if "hide" in address and view != "neuron" else len(app.session_state[selection.SELECTION].encoding)
        )


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (24, 16)])
@pytest.mark.parametrize("page", ["attention", "compare"])
def test_models_of_any_size(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel, page: str, layers: int, heads: int
) -> None:
    """One head alone, and 24 layers of 16: the grid has them all, and the last one opens."""
    loaded = of_size(tiny_loaded, layers, heads)
    app = opened(page, loaded, masked="1", head=f"{layers - 1}.{heads - 1}", sort="entropy", rows="distance")
    assert not app.error
    assert (sent.grid["layers"], sent.grid["heads"]) == (layers, heads)
    assert sent.large["count"] == heads and sent.large["layer"] == layers - 1 and sent.large["heads"] == [heads - 1]


@pytest.mark.parametrize("view", ["curves", "matrix", "neuron"])
def test_pruned_heads_are_gaps_with_their_numbers(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel, view: str
) -> None:
    """What is gone is named as pruned, also where a whole layer is; the others keep their numbers and maps."""
    smaller = replace(pruned(tiny_loaded, [(0, 1), *((1, head) for head in range(4))]), name="smaller")
    opened("attention", smaller, view=view, head="0.1", sort="entropy", rows="entropy", combine="average")
    assert sent.grid["gone"] == [[0, 1], [1, 0], [1, 1], [1, 2], [1, 3]]
    assert (
        sent.grid["titles"][0][1] == "L0 H1: pruned" and sent.grid["order"][0][-1] == 1 and sent.grid["rows"] == [0, 1]
    )
    assert sent.large["pruned"] == [1] and (sent.large["vectors"] is None) == (view != "neuron")
    opened("attention", smaller, view=view, head="1.2")
    assert sent.large["pruned"] == [0, 1, 2, 3] and sent.large["vectors"] is None
    opened("attention", smaller, view="curves", head="0.2")
    before = capture(tiny_loaded, tiny_loaded.tokenizer.encode(*PAIR.values())).attention[0, 2]
    assert np.abs(sent.drawn() - before).max() < 1 / 255


def test_no_number_is_counted_not_drawn_as_zero(
    sent: Sent, opened: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three holes in a head are three holes in what is sent, and the head is still there."""

    def holes(maps: np.ndarray) -> np.ndarray:
        maps[0, 0, 2, :3] = np.nan
        return maps

    with_maps(monkeypatch, holes)
    opened("attention", text="the cat saw the river", head="0.0")
    assert sent.large["holes"] == {"0": 3} and sent.large["pruned"] == [] and sent.grid["gone"] == []
    assert np.isnan(sent.drawn()[2, :3]).all() and np.isfinite(sent.drawn()[3]).all()


# ---------------------------------------------------------------------------- Compare


def test_hiding_a_word_is_compared_head_by_head(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """The picture is after minus before, on the scale of the largest change of all heads, and the list begins there."""
    app = opened("compare", masked="1", head="1.0")
    original = tiny_loaded.tokenizer.encode(*PAIR.values())
    hidden = tiny_loaded.tokenizer.mask_words(original, [1])
    before, after = (capture(tiny_loaded, encoding).attention for encoding in (original, hidden))
    difference = after - before
    assert np.abs(sent.drawn() - difference[1, 0]).max() < 1 / 250
    assert sent.large["limit"] == pytest.approx(np.abs(difference).max()) and sent.large["signed"]
    assert sent.large["queries"][2][0] == "cat (masked)"
    table = app.dataframe[0].value
    first = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    assert table["head"][0] == f"L{first[0]} H{first[1]}"
    assert table["change"][0] == pytest.approx(difference[first]) and len(table) == 20
    assert table["words masked"][0] - table["words visible"][0] == pytest.approx(table["change"][0])


def test_lengths_that_are_brought_are_compared(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Chosen on the page or by a link, the picture, its unit and the reading are of the length brought."""
    app = opened("compare", masked="1", head="1.0", differs="brought")
    original = tiny_loaded.tokenizer.encode(*PAIR.values())
    texts = (original, tiny_loaded.tokenizer.mask_words(original, [1]))
    before, after = (capture(tiny_loaded, encoding, norms=True).select_map("brought") for encoding in texts)
    difference = after - before
    limit = np.abs(difference).max()
    assert np.abs(sent.drawn() - difference[1, 0]).max() < limit / 250
    assert (
        sent.large["limit"] == pytest.approx(limit)
        and sent.large["unit"] == "change in value-weighted attention (norm)"
    )
    said = re.sub(r"</?abbr[^>]*>", "", words(app))
    assert "Value-weighted attention (norm) with words masked, minus" in said and "changes of each row" not in said


def test_compare_opens_on_the_largest_change(sent: Sent, opened: Callable[..., AppTest]) -> None:
    """As long as no head was chosen, and without choosing it for the other pages; the small maps are on one scale."""
    app = opened("compare", masked="1")
    largest = app.dataframe[0].value["head"][0]
    assert f"L{sent.large['layer']} H{sent.large['heads'][0]}" == largest
    assert sent.grid["selected"] == [sent.large["layer"], sent.large["heads"][0]]
    assert app.session_state["head"] == (0, 0)
    assert sent.grid["legend"][0].startswith("≤ −") and sent.grid["legend"][1] in words(app).replace("±", "≥ ")
    opened("compare", masked="1", head="1.3")
    assert (sent.large["layer"], sent.large["heads"]) == (1, [3])


def test_a_link_to_the_first_head_opens_it(sent: Sent, opened: Callable[..., AppTest]) -> None:
    """L0 H0 that was chosen is in the address, and is what the link shows; without a choice there is none in it."""
    app = opened("compare", masked="1")
    assert "head" not in app.query_params and (sent.large["layer"], sent.large["heads"]) != (0, [0])
    app = opened("compare", masked="1", head="0.0")
    assert (sent.large["layer"], sent.large["heads"]) == (0, [0]) and app.query_params["head"] in ("0.0", ["0.0"])
    app = opened("inside", masked="1", stage="qkv", head="1.0")
    app.selectbox(key=key_of(app, "inside_layer")).set_value(0).run()
    assert app.session_state["head"] == (0, 0) and app.query_params["head"] in ("0.0", ["0.0"])
    wrong = opened("compare", masked="1", head="7.7")
    assert "head" not in wrong.query_params and (sent.large["layer"], sent.large["heads"]) != (0, [0])


@pytest.mark.parametrize("page", ["attention", "compare"])
def test_all_heads_have_the_page_for_themselves(sent: Sent, opened: Callable[..., AppTest], page: str) -> None:
    """Larger pictures, of pieces, and nothing beside them."""
    app = opened(
        page, text="the cat " * 40, masked="1", words="1", combine="maximum", view="heads", compare_view="heads"
    )
    assert not app.error and sent.large == {} and sent.grid["size"] == [LARGE, LARGE]


def test_texts_of_other_lengths_are_aligned_and_the_rest_is_named(sent: Sent, opened: Callable[..., AppTest]) -> None:
    """Equal tokens are compared; what has no partner is said of both sides."""
    app = opened("compare", against="text", pair="", other="the old cat sat on a mat")
    assert [text for text, *_ in sent.large["queries"]] == ["[CLS]", "the", "cat", "sat", "on", "mat", "[SEP]"]
    assert "Left out of this text: the (5); of the other text: old (2), a (6)." in words(app)


def difference_of(loaded: tuple[LoadedModel, LoadedModel], texts: tuple[str, str], word: int) -> np.ndarray:
    """The change of attention from one text with this word masked to another, (layer, head, query, key)."""
    before, after = (
        capture(one, one.tokenizer.mask_words(one.tokenizer.encode(text, PAIR["pair"]), [word])).attention
        for one, text in zip(loaded, texts, strict=True)
    )
    return after - before


def test_the_other_text_has_the_same_words_masked(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Only the swapped word differs; the predictions of both sides stand beside each other."""
    other = "the dog sat on the mat"
    app = opened("compare", masked="2", against="text", other=other, head="1.0")
    expected = difference_of((tiny_loaded, tiny_loaded), (PAIR["text"], other), 2)
    assert np.abs(sent.drawn() - expected[1, 0]).max() < 1 / 250
    assert "cat→dog" in [text for text, *_ in sent.large["queries"]]
    assert "sat" in words(app) and re.search("with this text|on both sides", plain(app))
    longer = opened("compare", masked="2", against="text", other="the old dog sat on the mat", head="1.0")
    assert not longer.exception and "[MASK]" not in words(longer)


def test_the_other_text_is_filled_in(opened: Callable[..., AppTest]) -> None:
    """With this one and a word swapped, again after this one changes; what is typed stays."""
    app = opened("compare", text="The man lost his hat.", masked="3", against="text", pair="")
    assert app.session_state["other"] == "The woman lost his hat." and not app.exception
    app.text_input(key="text").set_value("A boy ran quickly.").run()
    assert app.session_state["other"] == "A girl ran quickly."
    app.text_input(key="other").set_value("the dog").run()
    app.text_input(key="text").set_value("A king ran quickly.").run()
    assert app.session_state["other"] == "the dog"


def test_a_text_without_a_counterpart_gets_a_predicted_word(opened: Callable[..., AppTest]) -> None:
    """The longest word that is not masked is replaced by another one that the model predicts."""
    loaded = load("headlight-mini", device="cpu")
    app = opened("compare", loaded, text="It rained heavily.", masked="1", against="text", pair="")
    first, second, *rest = app.session_state["other"].split(" ")
    assert (first, second) == ("It", "rained") and rest and rest != ["heavily."] and not app.exception


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ({"against": "masked"}, "No word is masked"),
        ({"against": "heads"}, "All heads are on. Switch some off"),
        ({"against": "text", "text": "[MASK]", "pair": ""}, "Type another text"),
        ({"against": "model"}, "is the only model available here"),
    ],
)
def test_where_there_is_nothing_to_compare_the_page_says_what_to_do(
    opened: Callable[..., AppTest], address: dict[str, str], sentence: str
) -> None:
    """One sentence, and no error."""
    app = opened("compare", **address)
    assert sentence in words(app) and not app.error


def test_heads_off_change_what_stands_above_them(sent: Sent, opened: Callable[..., AppTest]) -> None:
    """With a head of layer 0 off, layer 0 itself does not change, and layer 1 does."""
    app = opened("compare", against="heads", off="0.1", head="0.1")
    assert not sent.drawn().any() and "all heads on" in words(app)
    opened("compare", against="heads", off="0.1", head="1.1")
    assert np.abs(sent.drawn()).max() > 0


def offer_two_models(monkeypatch: pytest.MonkeyPatch, first: LoadedModel, second: LoadedModel) -> None:
    """Offer two models named "one" and "two"."""
    for module in (model_names, models, sides, compare_page):
        monkeypatch.setattr(module, "models_on_offer", lambda: ("one", "two"))
    for module in (models, sides):
        monkeypatch.setattr(module, "loaded_model", lambda name: first if name == "one" else second)


def test_two_models_are_compared_head_by_head(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture is the other model's map minus this one's, and the page says what that is not worth."""
    other = of_size(tiny_loaded, 2, 4)
    offer_two_models(monkeypatch, tiny_loaded, other)
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update(PAIR | {"model": "one", "against": "model", "other_model": "two", "head": "1.3"})
    at(app, "compare").run()
    assert not app.exception and "have nothing in common but their number" in words(app)
    encoding = tiny_loaded.tokenizer.encode(*PAIR.values())
    before, after = (capture(loaded, encoding).attention[1, 3] for loaded in (tiny_loaded, other))
    assert np.abs(sent.drawn() - (after - before)).max() < 1 / 250


def test_the_other_model_has_the_same_words_masked_and_is_another_one(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that names the selected model twice gets the other one."""
    other = of_size(tiny_loaded, 2, 4)
    offer_two_models(monkeypatch, tiny_loaded, other)
    app = AppTest.from_file(ENTRY, default_timeout=60)
    address = {"model": "one", "against": "model", "other_model": "one", "head": "1.3", "masked": "2"}
    app.query_params.update(PAIR | address)
    at(app, "compare").run()
    assert not app.exception and app.session_state["other_model"] == "two"
    expected = difference_of((tiny_loaded, other), (PAIR["text"], PAIR["text"]), 2)[1, 3]
    assert np.abs(sent.drawn() - expected).max() < 1 / 250


def test_models_of_other_shapes_are_not_compared(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence names both shapes."""
    offer_two_models(monkeypatch, tiny_loaded, of_size(tiny_loaded, 1, 4))
    app = AppTest.from_file(ENTRY, default_timeout=60)
    app.query_params.update(PAIR | {"model": "one", "against": "model", "other_model": "two"})
    at(app, "compare").run()
    assert not app.exception and "2 layers of 4 heads before and 1 of 4 after" in words(app)


def test_one_pair_of_tokens_colours_all_heads(
    sent: Sent, opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """Each cell is the attention weight of its head, on one scale that ends at 1; the list begins with the largest."""
    app = opened("attention", edge="2.5")
    weights = capture(tiny_loaded, tiny_loaded.tokenizer.encode(PAIR["text"], PAIR["pair"])).attention[..., 2, 5]
    assert sent.grid["size"] is None and sent.grid["legend"] == ["0", "1.0"]
    assert np.allclose(sent.grid["shares"], weights, atol=1e-4)
    assert app.dataframe[0].value["head"][0] == "L{} H{}".format(*np.unravel_index(weights.argmax(), weights.shape))
    assert not opened("attention", edge="2.99").error  # a position that the text does not have
    app = opened("attention")
    assert sent.grid["size"] is not None and "Heads with the most attention" not in words(app)
