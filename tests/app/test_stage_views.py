"""viz_app/pages/inside/stages.py, its figures and files: every stage of a pass on the tiny model, and by hand."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from bert_core.analysis.walks import most_likely_tokens, next_sentence_probability, step_angles
from bert_core.loading import LoadedModel
from bert_core.records import Walk
from bert_core.run.capture import capture
from bert_core.run.lens import logit_lens
from bert_core.run.walk import walk
from tests.near import assert_near
from viz_app.export.tables import npz, tidy_csv
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.stages import (
    PassColumns,
    block_means,
    key_bars,
    pass_overview,
    piece_boxes,
    vector_panels,
    window,
)
from viz_app.figures.style import Look, use_look
from viz_app.pages.inside.overview import Overview
from viz_app.pages.inside.stages import _IN_FORMULA, STAGES, SYMBOLS, StageInput, legend, tex


def view_of(
    loaded: LoadedModel, text: str = "the cat sat on the [MASK].", pair: str = "it was red.", **how: int
) -> StageInput:
    encoding = loaded.tokenizer.encode(text, pair)
    position = next(iter(encoding.mask_positions), 1)
    return StageInput(
        trace=walk(loaded, encoding, how.pop("layer", 1), position=position, **how),  # type: ignore[arg-type]
        head=2,
        relative=False,
        hidden_act="gelu",
        word=loaded.tokenizer.token_of,
    )


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("dark", [False, True])
def test_every_stage_has_a_formula_numbers_a_shape_a_picture_and_two_sentences(
    tiny_loaded: LoadedModel, name: str, dark: bool
) -> None:
    """Whatever the stage: LaTeX whose braces match, a shape in words, tables for its rows, and figures."""
    view, stage = view_of(tiny_loaded), STAGES[name]
    for formula in (stage.formula(view), stage.live(view)):
        assert formula and formula.count("{") == formula.count("}") and "nan" not in formula
    assert re.fullmatch(r"[\d,]+ [a-z ]+( × [\d,]+ [a-z ]+)*", stage.shape(view))
    assert len(re.findall(r"[.:;] |\.$", stage.text)) >= 2
    tables = stage.tables(view)
    assert tables and all(table.ndim == 2 and len(table) == len(stage.row_labels(view)) for table in tables.values())
    with use_look(Look(dark, lecture=dark)):
        figures = stage.draw(view, tables)
    assert figures and all(isinstance(figure, go.Figure) and figure.data for figure in figures)


@pytest.mark.parametrize(("relative", "divided"), [(False, True), (True, True), (True, False)])
def test_every_letter_of_a_formula_is_in_the_legend(tiny_loaded: LoadedModel, relative: bool, divided: bool) -> None:
    """Whatever the stage: no letter stands in a formula, general or with numbers, that the legend does not explain."""
    view = replace(view_of(tiny_loaded), relative=relative, divided=divided)
    for stage in STAGES.values():
        for formula in (stage.formula(view), stage.live(view)):
            found = _IN_FORMULA.findall(formula)
            assert not [sign for sign in found if len(sign) == 1 and sign not in SYMBOLS], formula
    scores = STAGES["scores"].formula(view)
    assert "$s$ score" in legend(scores) and "$d$" in legend(scores) and "$n$" not in legend(scores)
    assert "segment" not in legend(scores), "s is a score, and nothing else"
    assert scores.endswith(r"adds}") == (relative and not divided), "a bias is not divided by the root"
    three = STAGES["scores"].formula(replace(view, root_terms=3))
    assert (r"\sqrt{3d}" in three) == divided and r"\sqrt{3" not in scores
    if not divided:  # the product and the bias, and their sum
        first, summed, score = STAGES["scores"].live(view).split(" = ")
        assert first.startswith("s_{") and re.fullmatch(rf"{re.escape(score)} [+-] .+", summed)
    assert "$g$ segment" in legend(STAGES["embeddings"].formula(view))
    assert r"$\mathrm{LN}$ layer norm" in legend(STAGES["norm"].formula(view))


def overview_of(loaded: LoadedModel, stage: str, **how: int) -> Overview:
    view = view_of(loaded, **how)
    encoding, has_words = view.trace.encoding, loaded.has_head("words")
    lens = logit_lens(loaded, encoding, positions=[view.query], top_k=1) if has_words else None
    return Overview(view, capture(loaded, encoding), lens, stage)


@pytest.mark.parametrize("stage", STAGES)
def test_the_overview_highlights_the_columns_of_the_stage(tiny_loaded: LoadedModel, stage: str) -> None:
    """Every stage has its place from left to right, a figure, and one sentence with its numbers."""
    order = [overview_of(tiny_loaded, name).highlight() for name in STAGES]
    assert order == sorted(order) and len(set(order)) == 5, "ids, embeddings, attention, layer output, outputs"
    overview = overview_of(tiny_loaded, stage)
    figure = overview.figure()
    assert list(figure.layout.xaxis.ticktext) == ["id", "emb.", "L0", "L1", "output"]
    last = figure.layout.shapes[-1]
    assert (last.x0, last.x1) == overview.highlight()
    assert re.search(r"\d", overview.finding()) and overview.finding().endswith(".")


def test_ribbons_are_the_attention_of_the_selected_token(tiny_loaded: LoadedModel) -> None:
    """The mean of the heads in every layer; in the stages of attention, the selected head in the selected layer."""
    run = overview_of(tiny_loaded, "pieces").run
    position = view_of(tiny_loaded).query
    mean = run.attention[:, :, position].mean(1)
    assert_near(overview_of(tiny_loaded, "pieces").attention(), mean, 1e-6)
    selected = overview_of(tiny_loaded, "softmax").attention()
    assert_near(selected[0], mean[0], 1e-6)
    assert_near(selected[1], run.attention[1, 2, position], 1e-6)
    figure = overview_of(tiny_loaded, "softmax").figure()
    ribbons = [shape for shape in figure.layout.shapes if shape.type == "path"]
    assert len(ribbons) == int((selected >= 0.02).sum())
    widths = sorted(ribbon.line.width for ribbon in ribbons)
    assert_near(widths, sorted(16 * selected[selected >= 0.02]), 1e-4)


def test_each_cell_of_the_overview_can_be_clicked(tiny_loaded: LoadedModel) -> None:
    """The invisible points have the column as x and the token as y, from the ids to the outputs."""
    overview = overview_of(tiny_loaded, "pieces")
    (points,) = (trace for trace in overview.figure().data if trace.type == "scatter" and trace.mode == "markers")
    length = len(overview.view.trace.encoding)
    assert set(zip(points.x, points.y, strict=True)) == {(x, y) for x in range(-1, 4) for y in range(length)}
    columns = PassColumns([1], np.ones((3, 2, 4)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="one of each"):
        pass_overview(columns, ["a", "b"], selected=0, highlight=(0, 1), remarks=())


def test_the_readouts_below_the_columns_are_those_of_the_logit_lens(tiny_loaded: LoadedModel) -> None:
    """One word for each depth; the last one is the prediction of the model. Without an MLM head there is none."""
    overview = overview_of(tiny_loaded, "heads")
    assert len(overview.readouts()) == 3
    word, share = overview.readouts()[-1]
    assert word == overview.outputs()[0][0] and share == pytest.approx(overview.outputs()[0][1], rel=1e-4)
    assert f"“{word}”" in overview.finding().replace("\\", "")
    silent = replace(overview, lens=None)
    assert silent.readouts() == [] and "no MLM head" in silent.finding()


def test_long_vectors_are_averaged_in_blocks_that_say_so() -> None:
    """384 numbers become 64 blocks of 6; NaN is left out, and a block of NaN alone stays empty."""
    vectors = np.arange(384, dtype=np.float32)[None]
    means, size = block_means(vectors, 64)
    assert size == 6 and means.shape == (1, 64) and means[0, 1] == pytest.approx(8.5)
    vectors[0, :7] = np.nan
    means, _ = block_means(vectors, 64)
    assert np.isnan(means[0, 0]) and means[0, 1] == pytest.approx(9)
    assert block_means(np.ones((2, 10)), 4)[0].shape == (2, 4), "the last block has one number"
    figure = vector_panels({"state": vectors}, ["a"])
    assert figure.data[0].colorbar.title.text == "mean of 6 numbers in each block"
    assert figure.data[0].customdata[0][1] == "mean of numbers 6 to 11"
    assert vector_panels({"x": np.ones((1, 3))}, ["a"]).data[0].customdata[0][2] == "number 2"


def test_live_numbers_are_those_of_the_walk(tiny_loaded: LoadedModel) -> None:
    """The score is the product over the root, the share is the softmax, the embedding the sum of its parts."""
    view = view_of(tiny_loaded)
    i, j = view.query, view.strongest
    query, key = view.head_value("query")[i], view.head_value("key")[j]
    assert rf"\sqrt{{8}}}} = \frac{{{tex(query @ key)}}}{{2.83}} = {tex(query @ key / 8**0.5)}" in STAGES[
        "scores"
    ].live(view)
    share = capture(tiny_loaded, view.trace.encoding).attention[1, 2, i, j]
    assert STAGES["softmax"].live(view).endswith(f"= {tex(share)}")
    total = sum(view.trace.values[f"embeddings.{part}"][i, 0] for part in ("word", "token_type", "position"))
    assert f"= {tex(total)}" in STAGES["embeddings"].live(view)
    assert tex(1.5e-7) == r"1.5 \cdot 10^{-7}" and tex(12.345) == "12.3" and tex(-0.0) == "0"


def test_padding_shows_in_the_mask(tiny_loaded: LoadedModel) -> None:
    """The masked columns are empty in the picture, and the formula takes 10000 off."""
    view = view_of(tiny_loaded, pads=3)
    stage = STAGES["mask"]
    assert "- 10000" in stage.live(view)
    heatmap, bars = stage.draw(view, stage.tables(view))
    values = np.asarray(heatmap.data[0].z, float)
    assert np.isnan(values[:, -3:]).all() and np.isfinite(values[:, :-3]).all()
    assert np.isnan(np.asarray(bars.data[0].y, float)[-3:]).all()
    assert "+ 0" in stage.live(view_of(tiny_loaded))


def test_a_part_that_was_not_trained_has_nothing_to_show(tiny_loaded: LoadedModel) -> None:
    """Without heads and pooler the last two stages give no table and no figure, instead of untrained numbers."""
    parts = ("cls.predictions.decoder.bias", "cls.seq_relationship.bias", "bert.pooler.dense.bias")
    view = view_of(replace(tiny_loaded, report=replace(tiny_loaded.report, missing=parts)))
    for name in ("pooler", "heads"):
        assert STAGES[name].tables(view) == {} and STAGES[name].draw(view, {}) == []


def test_the_pooler_of_a_head_with_a_layer_norm_has_a_row_for_it(tiny_loaded: LoadedModel) -> None:
    """And its first row is the mean of all tokens where the model reads that."""
    view, stage = view_of(tiny_loaded), STAGES["pooler"]
    values = dict(view.trace.values)
    assert stage.row_labels(view) == ("[CLS]", "dense layer", "tanh")
    for name, label, symbol in (("pooler_activated", "[CLS]", r"\mathrm{LN}"), ("pooler_mean", "mean", r"\bar{x}")):
        values[name] = np.full_like(values["pooler"], len(name))
        changed = replace(view, trace=replace(view.trace, values=values))
        assert stage.row_labels(changed) == (label, "dense layer", "tanh", "layer norm")
        assert symbol in stage.formula(changed) and symbol not in stage.formula(view)
        ((rows),) = stage.tables(changed).values()
        assert len(rows) == 4 and (rows[{"mean": 0}.get(label, 2)] == len(name)).all()


def test_the_heads_say_what_the_model_says(tiny_loaded: LoadedModel) -> None:
    """The words and shares, and whether B follows A, are those of `capture`; the steps are cosines by hand."""
    view = view_of(tiny_loaded)
    run = capture(tiny_loaded, view.trace.encoding)
    expected = run.predictions[0].top[:5]
    found = most_likely_tokens(view.trace, 5)
    assert [token for token, _ in found] == [token for token, _ in expected]
    assert_near([share for _, share in found], [share for _, share in expected], 1e-5)
    assert_near(next_sentence_probability(view.trace), run.nsp, 1e-6)
    states = np.array([[[1.0, 0.0]], [[3.0, 3.0]], [[-3.0, -3.0]]], np.float32)
    by_hand = Walk("torch", view.trace.encoding, ("a",), 0, 0, {"hidden_states": states})
    assert np.allclose(step_angles(by_hand)[:, 0], [0.5**0.5, -1])


# ---------------------------------------------------------------------------- figures


def test_a_long_text_is_drawn_around_the_chosen_row() -> None:
    """As many rows as there is room for, the chosen one always among them."""
    assert window(10, 3) == slice(0, 10)
    assert window(500, 0) == slice(0, 40) and window(500, 499) == slice(460, 500)
    assert window(500, 250) == slice(230, 270)
    figure = vector_panels({"x": np.ones((500, 4))}, [str(i) for i in range(500)], selected=499)
    assert len(figure.data[0].z) == 40 and figure.data[0].y[-1] == "499 (499)"
    (frame,) = figure.layout.shapes
    assert (frame.y0, frame.y1) == (38.5, 39.5)
    assert "x: rows 460 to 499 of 500" in figure.layout.annotations[0].text
    boxes = piece_boxes(["a"] * 500, ["1"] * 500, ["A"] * 500, selected=499)
    assert boxes.layout.annotations[0].text == "tokens 440 to 499 of 500" and len(boxes.layout.shapes) == 60


@pytest.mark.parametrize("lecture", [False, True])
def test_every_row_of_every_panel_has_its_name(lecture: bool) -> None:
    """Each row is labelled with room for the label, whatever their number; four panels stand two by two."""
    for rows, panels in ((3, 1), (20, 4), (500, 4), (500, 1)):
        labels = [f"token{row}" for row in range(rows)]
        values = {f"panel {n}": np.ones((rows, 4)) for n in range(panels)}
        with use_look(Look(lecture=lecture)):
            figure = vector_panels(values, labels, selected=1)
        drawn = len(figure.data[0].z)
        first = figure.layout.yaxis
        assert len(figure.data) == panels and list(first.ticktext) == labels[:drawn]
        low, high = first.domain
        pixels = (high - low) * (figure.layout.height - figure.layout.margin.t - figure.layout.margin.b) / drawn
        assert pixels >= 14, f"{rows} rows in {panels} panels have {pixels:.0f} pixels each"
        assert len({trace.xaxis for trace in figure.data}) == panels
        said = [note.text for note in figure.layout.annotations if f"of {rows}" in note.text]
        assert len(said) == (rows > drawn), "which part is drawn, once"
        beside = 1 if panels == 1 else 4 if lecture else 2
        assert figure.layout.xaxis.domain[1] == pytest.approx((1 - 0.03 * (beside - 1)) / beside)


def test_panels_share_one_scale_with_zero_in_the_middle() -> None:
    """The scale is symmetric and is not stretched by one number in a thousand."""
    values = np.zeros((10, 1000))
    values[:, :500], values[0, 0] = 2, -500
    panels = vector_panels({"one": values, "other": values / 2}, list("abcdefghij")).data
    assert [(panel.zmin, panel.zmax) for panel in panels] == [(-2, 2)] * 2


@pytest.mark.parametrize("across", [False, True])
def test_hostile_labels_are_text_in_every_figure(across: bool) -> None:
    """Tags in tokens and titles are escaped wherever plotly would read them."""
    bad = "<b onclick=x>"
    figures = [
        vector_panels({bad: np.ones((1, 2))}, [bad], selected=0, side_by_side=across),
        key_bars(np.ones(1), [bad], signed=False, title=bad),
        piece_boxes([bad], [bad], ["A"], selected=0),
    ]
    for figure in figures:
        assert "<b onclick" not in figure.to_json() and "\\u003cb onclick" not in figure.to_json()


def test_a_frame_stands_around_its_row() -> None:
    """Row 2 of 5 columns is framed from edge to edge."""
    options = {"signed": False, "title": "", "selected_row": 2}
    (shape,) = attention_heatmap(np.ones((5, 5)), list("abcde"), list("abcde"), **options).layout.shapes
    assert (shape.x0, shape.x1, shape.y0, shape.y1) == (-0.5, 4.5, 1.5, 2.5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: vector_panels({"x": np.ones((2, 3))}, ["a"]), r"'x' has shape \(2, 3\) for 1 labels"),
        (lambda: vector_panels({}, ["a"]), "no panel"),
        (lambda: key_bars(np.ones(2), ["a"], signed=True, title="t"), r"shape \(2,\) for 1 keys"),
        (lambda: piece_boxes(["a"], [], ["A"], selected=0), "1 pieces, 0 notes and 1 sides"),
    ],
)
def test_figures_say_what_does_not_fit(call: object, sentence: str) -> None:
    """Labels that do not fit their values are one sentence."""
    with pytest.raises(ValueError, match=sentence):
        call()  # type: ignore[operator]


# ---------------------------------------------------------------------------- files


def test_a_table_reads_back_as_the_same_numbers() -> None:
    """Every float32 survives, and a label that looks like a formula cannot run in a spreadsheet."""
    table = np.array([[0.1, -3e-7], [np.float32(1) / 3, 5]], np.float32)
    rows = list(csv.reader(io.StringIO(tidy_csv({"x, y": table}, ["=1+1", "caf\u00e9"]).decode("utf-8"))))
    assert rows[0] == ["name", "row", "label", "column", "value"]
    assert rows[1][:4] == ["x, y", "0", "'=1+1", "0"] and rows[3][2] == "caf\u00e9"
    assert np.array_equal(np.array([np.float32(row[4]) for row in rows[1:]]).reshape(2, 2), table)
    with pytest.raises(ValueError, match="x has 2 rows for 1 labels"):
        tidy_csv({"x": table}, ["a"])


def test_a_walk_reads_back_without_pickle(tiny_loaded: LoadedModel) -> None:
    """All arrays by name, and the tokens."""
    seen = view_of(tiny_loaded).trace
    with np.load(io.BytesIO(npz(seen.values, tokens=seen.tokens)), allow_pickle=False) as file:
        assert set(file.files) == {*seen.values, "tokens"} and tuple(file["tokens"]) == seen.tokens
        assert all(np.array_equal(file[name], value) for name, value in seen.values.items())
