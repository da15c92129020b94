"""Direct contributions of heads and MLPs: `headlight direct`, its files, and the view of the page Attribution."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import Target, direct_logit, direct_score
from bert_core.records import Contribution
from tests.app.test_cli import Run, headlight
from tests.families import save_family
from tests.near import assert_near
from tests.visit import settled, visited, words

__all__ = ["headlight"]  # a fixture
TEXT = "The old man [MASK] along the river."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("modernbert", tmp_path_factory.mktemp("direct") / "words")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> bert_core.LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(scope="module")
def logit(loaded: bert_core.LoadedModel) -> bert_core.DirectLogit:
    """The contributions to the top guess."""
    encoding = loaded.tokenizer.encode(TEXT)
    (prediction,) = bert_core.capture(loaded, encoding, top_k=1).predictions
    return direct_logit(loaded, encoding, Target("mlm", prediction.position, prediction.top[0][0]))


def test_the_command_prints_what_the_library_finds(
    headlight: Run, folder: Path, logit: bert_core.DirectLogit, tmp_path: Path
) -> None:
    """The largest first, the sum of the others and of all; a table as CSV, JSON and arrays with all of them."""
    options = (TEXT, "--model", folder, "--device", "cpu", "--top", 4)
    code, printed, err = headlight("direct", *options, "--out", tmp_path / "a.csv")
    assert (code, err) == (0, "")
    heading, columns, *lines = printed.splitlines()
    assert heading.endswith(f": logit {logit.value:.4f}, the sum of 19 components")
    largest = sorted(logit.rows(), key=lambda row: -abs(row.contribution))
    assert columns.split() == ["component", "contribution"] and len(lines) == 6
    for line, row in zip(lines, largest[:4], strict=False):
        assert line.rsplit(maxsplit=1) == [row.name, f"{row.contribution:+.4f}"]
    assert lines[4].startswith("15 others") and lines[5].split() == ["sum", f"{logit.total:+.4f}"]
    table = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text("utf-8"))))
    assert tuple(table[0]) == Contribution._fields
    assert [row[3] for row in table[1:]] == [row.name for row in logit.rows()]
    assert_near([float(row[4]) for row in table[1:]], [row.contribution for row in logit.rows()])
    assert headlight("direct", *options, "--out", tmp_path / "a.npz")[0] == 0
    with np.load(tmp_path / "a.npz") as arrays:
        assert_near(arrays["heads"], logit.heads)
        total = arrays["embedding"] + arrays["heads"].sum() + arrays["feed_forward"].sum() + arrays["biases"].sum()
        assert_near(total, arrays["value"])
    assert headlight("direct", *options, "--out", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_explains_a_score_of_a_head(
    headlight: Run, folder: Path, loaded: bert_core.LoadedModel, tmp_path: Path
) -> None:
    """Of the named query and key, by components of the named side."""
    score = ("--to-head", "2.1", "--from", 5, "--to", 3)
    for side in ("key", "query"):
        out = tmp_path / f"{side}.json"
        code, printed, err = headlight(
            "direct", TEXT, *score, "--side", side, "--model", folder, "--device", "cpu", "--out", out
        )
        assert (code, err) == (0, "")
        expected = direct_score(loaded, loaded.tokenizer.encode(TEXT), (2, 1), 5, 3, side=side)
        assert f"by components of the {side}: score {expected.value:.4f}" in printed
        assert printed.startswith("L2 H1 from ") and printed.splitlines()[0].count("score") == 1
        document = json.loads(out.read_text("utf-8"))
        assert (document["receiver"], document["query"], document["key"], document["side"]) == ([2, 1], 5, 3, side)
        values = [component["contribution"] for component in document["components"]]
        assert_near(sum(values), document["score"], of=max(map(abs, values)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to-head", "2.1"), "needs --to-head, --from and --to: --from and --to missing"),
        (("--to-head", "2.*", "--from", 1, "--to", 2), "name one head, as in 2.11"),
        (("--to-head", "2.1", "--from", 1, "--to", 2, "--target", "loss"), "give no target"),
        (("--to-head", "1.1", "--from", 1, "--to", 9), "outside the window of query 1"),
        (("--against", "door"), "give both"),
        (("--word", "door", "--target", "loss"), "give one of them"),
        (("--out", "a.xlsx"), "its ending must be one of"),
    ],
)
def test_the_command_refuses(options: tuple[object, ...], message: str, headlight: Run, folder: Path) -> None:
    code, printed, err = headlight("direct", TEXT, *options, "--model", folder, "--device", "cpu")
    assert (code, printed) == (2, "") and message in err


def test_the_command_refuses_a_post_norm_model(headlight: Run) -> None:
    code, printed, err = headlight("direct", "She opened the [MASK].", "--word", "door", "--device", "cpu")
    assert (code, printed) == (2, "") and "layer norm after each part of a layer" in err and "path patching" in err


@pytest.fixture
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Opens the view with the model, by a link."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))

    def page(**address: str) -> AppTest:
        link = {"text": TEXT, "model": str(folder), "attributed": "components", **address}
        app = settled(visited("why", **link))
        assert not app.exception and not app.error
        return app

    return page


def drawn_maps(app: AppTest) -> list[np.ndarray]:
    """The numbers of each map of the page, (layer, head and MLP)."""
    specs = [json.loads(element.proto.spec) for element in app.get("plotly_chart")]
    maps = []
    for spec in specs:
        if spec["data"][0]["type"] == "heatmap":
            cells = [cell.split("<br>") for cell in spec["data"][1]["hovertext"]]
            columns = len({column for _, column, _ in cells})
            maps.append(np.array([float(number) for *_, number in cells]).reshape(-1, columns))
    return maps


def test_the_page_draws_the_contributions_and_their_sum(
    opened: Callable[..., AppTest], logit: bert_core.DirectLogit, loaded: bert_core.LoadedModel
) -> None:
    """The map has heads and MLPs by layer; below it is that of a score of the selected head."""
    app = opened(head="2.1", edge="5.3", score_side="query")
    first, second = drawn_maps(app)
    assert_near(first, np.concatenate([logit.heads, logit.feed_forward[:, None]], axis=1))
    assert f"The logit **{logit.value:.2f}** is the sum of 19 contributions" in words(app)
    score = direct_score(loaded, logit.encoding, (2, 1), 5, 3, side="query")
    assert_near(second, np.concatenate([score.heads, score.feed_forward[:, None]], axis=1))
    assert "What does L2 H1 compute its attention score from?" in words(app)
    assert "The query of this score is split" in words(app)
    assert "How to read this" in words(app) and "How it can mislead" in words(app)


def test_the_page_says_where_a_score_has_no_contributions(opened: Callable[..., AppTest]) -> None:
    """A head of the first layer, and a key outside the window of a local layer; without a target, only a score."""
    assert "This head is in layer 0" in words(opened(head="0.1"))
    app = opened(head="1.1", edge="1.9")
    assert "outside the window of query 1" in words(app) and len(drawn_maps(app)) == 1
    app = opened(text="The old man walked along the river.", head="2.1", edge="5.3")
    assert "There is no prediction to explain yet" in words(app) and len(drawn_maps(app)) == 1


def test_the_page_explains_why_a_post_norm_model_has_none() -> None:
    """A sentence with the reason, and the pages that measure effects instead."""
    app = settled(visited("why", text="She opened the door.", masked="3", attributed="components"))
    assert not app.exception and not app.error and not app.get("plotly_chart")
    assert "This model has a LayerNorm after each part of a layer" in words(app)
