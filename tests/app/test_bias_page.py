"""The view Bias of the page Sentence scores without a browser: shares, the list of pairs, files, and Python code."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core.edits import ScaledNeuron
from tests.visit import columns_of, exported_files, key_of, said, settled, visited, words
from viz_app.cli.command import run
from viz_app.export.snippet import bias_snippet
from viz_app.pages.score.bias import PAGE_PAIRS, UPLOAD, listed_pairs, marked_words
from viz_app.shell.controls import Upload
from viz_app.shell.view import VIEW, View

HEADER = "category,stereotype,other\n"
FOUR_PAIRS = HEADER + (
    "age,The old man forgot his hat.,The young man forgot his hat.\n"
    "age,The old woman sang.,The young woman sang.\n"
    "home,The man from the village slept.,The man from the city slept.\n"
    "home,The man slept.,The man slept.\n"
)


def start(content: str | None = None, name: str = "pairs.csv", **address: str) -> AppTest:
    """The view with the pairs of a file, or the bundled ones."""
    app = visited("score", compared="pair" if content is not None else "bias", **address)
    if content is not None:
        app.session_state[UPLOAD] = Upload(name, content.encode())
        app.session_state["compared"] = "bias"
        app.run()
    return settled(app, "stop_here")


def list_html(app: AppTest) -> str:
    """The HTML of the list of pairs."""
    (body,) = [element.proto.body for element in app.get("html") if 'class="pairs"' in element.proto.body]
    return str(body)


def evaluated(content: str, folder: Path, measure: str = "shared words") -> bert_core.BiasEvaluation:
    """The same evaluation by the library."""
    path = folder / "pairs.csv"
    path.write_text(content, encoding="utf-8")
    loaded = bert_core.load("headlight-mini", device="cpu")
    return bert_core.evaluate_bias(bert_core.score_pairs(loaded, bert_core.read_bias_pairs(path)), measure)


@pytest.mark.slow
def test_it_opens_on_the_bundled_pairs() -> None:
    """60 pairs in five categories with a first page of 50, the visible objection, and at most three controls."""
    app = start()
    assert not app.exception and not app.error
    if offers := [button for button in app.button if button.label.startswith("Score 60 pairs")]:  # as on a busy machine
        offers[0].click().run()
        settled(app, "stop_here")
    assert re.search(r"preferred in [\d.]+ of 60 pairs", words(app))
    assert "What a pair measures is often unclear" in words(app) and "no proof of no bias" in words(app)
    columns = columns_of(app, "bias_shares_0")
    assert columns["label"] == [
        "All pairs (60)", "gender (12)", "age (12)", "nationality (12)", "income (12)", "residence (12)"
    ]  # fmt: skip
    assert list_html(app).count("<tr>") == PAGE_PAIRS + 1
    app.button(key="bias_pager_next").click().run()
    assert list_html(app).count("<tr>") == 60 - PAGE_PAIRS + 1 and "51 to 60 of 60 pairs" in words(app)


def test_shares_and_differences_are_those_of_the_library(tmp_path: Path) -> None:
    """The figure, the list and both measures; a tie is a half."""
    app = start(FOUR_PAIRS)
    for measure in ("shared words", "whole sentence"):
        app.session_state["bias_measure"] = measure
        settled(app.run())
        evaluation = evaluated(FOUR_PAIRS, tmp_path, measure)
        columns = columns_of(app, "bias_shares_0")
        bars = [evaluation.total, *evaluation.categories]
        shares = next(values for name, values in columns.items() if name not in ("label", "interval low"))
        np.testing.assert_allclose(shares, [item.share for item in bars])
        np.testing.assert_allclose(columns["interval low"], [item.interval[0] for item in bars])
        for pair in evaluation.pairs:
            assert f"{pair.difference:+.2f}".replace("-", "−") in list_html(app)
        total = evaluation.total
        assert f"preferred in {total.stereotypical:g} of 4 pairs ({total.share:.0%})" in words(app)
        assert "with 1 tie that count" in words(app) and "same tokens (1)" in words(app)


def test_a_category_and_an_order_change_the_list(tmp_path: Path) -> None:
    """Only its pairs are listed, by the difference in either direction; another file has other categories.

    The address has no category of a file.
    """
    app = start(FOUR_PAIRS, bias_order="first")
    assert not app.exception and "1 to 4 of 4 pairs" in words(app)
    app.selectbox(key=key_of(app, "bias_file_category")).set_value("age").run()
    assert "1 to 2 of 2 pairs" in words(app) and "village" not in list_html(app)
    assert app.query_params["bias_order"] == "first"
    assert not {"bias_category", "bias_file_category"} & {*app.query_params}
    app.selectbox(key=key_of(app, "bias_file_category")).set_value(None).run()
    assert "1 to 4 of 4 pairs" in words(app)
    pairs = evaluated(FOUR_PAIRS, tmp_path)
    for order, sign in (("first", -1), ("second", 1)):
        differences = [sign * pair.difference for pair in listed_pairs(pairs, None, order)]
        assert differences == sorted(differences)
    assert [pair.row for pair in listed_pairs(pairs, "home", "row")] == [4, 5]
    app.session_state["bias_file_category"] = "age"
    app.session_state[UPLOAD] = Upload("other.csv", FOUR_PAIRS.replace("age,", "years,").encode())
    settled(app.run())
    assert not app.exception and app.session_state["bias_file_category"] is None


def test_texts_of_a_file_are_shown_as_they_are() -> None:
    """HTML and Markdown in sentences, categories and names of files are neither drawn nor run."""
    hostile = "<img src=x onerror=alert(1)>"
    content = HEADER + f"{hostile},The old {hostile} **b**.,The new {hostile} **b**.\n<i>,One,\n"
    app = start(content, name="**x**<b>.csv")
    assert not app.exception and not app.error
    assert hostile not in list_html(app) and "&lt;img" in list_html(app)
    assert all(hostile not in element.value for element in app.markdown)
    assert "no score: only one sentence: two are needed" in list_html(app)
    assert any("Line 3 has only one sentence" in said(warning) for warning in app.warning)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a,b\nx,y\n", "The file pairs.csv has no column of the more stereotypical sentences"),
        (HEADER, "The file pairs.csv has no pairs"),
        (HEADER + "a,b\n", "Row 2 of pairs.csv has 2 fields and the header 3"),
    ],
)
def test_a_file_that_is_none_is_one_sentence(content: str, sentence: str) -> None:
    """What was given and what is allowed; the controls stay, so that another file can be given."""
    app = start(content)
    assert not app.exception
    (error,) = app.error
    assert said(error).startswith(sentence) and app.segmented_control(key=key_of(app, "bias_measure"))


def test_half_of_a_surrogate_pair_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the page and on the command line, in a sentence or in a category; no file is written."""
    rows = [
        r'{"stereotype": "The old \ud800 man.", "other": "The young man.", "category": "age"}',
        r'{"stereotype": "The old man.", "other": "The young man.", "category": "\ud800"}',
    ]
    path, out = tmp_path / "pairs.jsonl", tmp_path / "out.csv"
    for row in rows:
        app = start(row, name="pairs.jsonl")
        assert not app.exception
        (error,) = app.error
        assert said(error).startswith("Line 1 of pairs.jsonl contains") and "surrogate pair" in said(error)
        path.write_text(row, encoding="utf-8")
        assert run(["bias", str(path), "--out", str(out)]) == 2
        assert "line 1 of pairs.jsonl contains" in capsys.readouterr().err.lower() and not out.exists()


def test_pairs_that_all_have_no_score_are_no_error() -> None:
    """A figure needs a score: the reason stands in its place."""
    app = start(HEADER + "a,The [MASK] sat.,The cat sat.\n")
    assert not app.exception and "No pair could be scored" in words(app) and "[MASK]" in words(app)


def test_files_have_all_pairs_categories_and_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The CSV of pairs and the numbers of categories are those of the library, and the code prints them again."""
    app = start(FOUR_PAIRS)
    assert exported_files(app) == ["All pairs (CSV)", "Categories (CSV)", "Python code"]
    view: View = app.session_state[VIEW]
    contents = {name: view.files[name].make() for name in ("bias.csv", "categories.csv", "bias.py")}
    evaluation = evaluated(FOUR_PAIRS, tmp_path)
    rows = list(csv.DictReader(io.StringIO(str(contents["bias.csv"]))))
    np.testing.assert_allclose(
        [float(row["difference"]) for row in rows], [pair.difference for pair in evaluation.pairs], atol=1e-4
    )
    table = contents["categories.csv"]
    text = table if isinstance(table, str) else table.decode("utf-8-sig")
    assert [row["category"] for row in csv.DictReader(io.StringIO(text))] == ["age", "home", "All pairs"]
    code = str(contents["bias.py"]).replace("'pairs.csv'", repr(str(tmp_path / "pairs.csv")))
    exec(compile(code, "bias.py", "exec"), {})
    low, high = evaluation.total.interval
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"all pairs: {evaluation.total.share:.1%} of 4 pairs (95% interval {low:.1%} to {high:.1%})"
    )


def test_code_has_edits_and_heads_that_are_off() -> None:
    """Texts of the visitor are quoted; the script compiles and runs the edited model."""
    edit = ScaledNeuron(0, 3, 0.0)
    code = bias_snippet("headlight-mini", [edit], [(0, 1)], "a\"b'.csv", "within word", "whole sentence")
    compile(code, "bias.py", "exec")
    assert f"bert_core.{edit!r}" in code and "[(0, 1)]" in code and repr("a\"b'.csv") in code
    assert "bundled_bias_pairs" in bias_snippet("m", [], [], None, "original", "shared words")


def test_words_that_differ_are_marked() -> None:
    """Every word is there once, and the words that differ are marked in both sentences."""
    first, second = marked_words("The old man slept .", "The young man slept well .")
    assert first == [("The", False), ("old", True), ("man", False), ("slept", False), (".", False)]
    assert [word for word, is_different in second if is_different] == ["young", "well"]


def test_the_command_prints_the_numbers_of_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each category and for all pairs, a CSV of the pairs, and notes about doubtful pairs."""
    evaluation = evaluated(FOUR_PAIRS, tmp_path)
    out = tmp_path / "scored.csv"
    assert run(["bias", str(tmp_path / "pairs.csv"), "--out", str(out), "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[0] for line in lines] == ["category", "age", "home", "all"]
    assert f"{evaluation.total.share:.1%}" in lines[-1] and f"{evaluation.total.mean_difference:+.3f}" in lines[-1]
    assert "equal tokens: 1 pair" in printed.err and "without these, 3 pairs" in printed.err
    with out.open(newline="", encoding="utf-8") as file:
        assert [row["preferred"] for row in csv.DictReader(file)][-1] == "tie"
    (tmp_path / "pairs.csv").write_text("a,b\nx,y\n", encoding="utf-8")
    assert run(["bias", str(tmp_path / "pairs.csv")]) == 2
    assert "has no column of the more stereotypical sentences" in capsys.readouterr().err
