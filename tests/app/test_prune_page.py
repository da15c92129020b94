"""The page Prune, and every page on a model that has lost heads."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import LoadedModel
from bert_core.pruning import prune_parts
from bert_core.records import CurvePoint
from bert_core.run import costs, losses, plans
from tests.app.test_cli import text_file
from tests.app.test_pages import PAGES, start
from tests.visit import at, key_of, said, settled, words
from viz_app import access
from viz_app.pages.prune import experiment
from viz_app.pages.prune.experiment import Experiment, pruned_zip, read_plan
from viz_app.pages.prune.page import curve_sentence
from viz_app.pages.why.scores import MEASURES
from viz_app.shell.controls import Upload

__all__ = ["text_file"]  # a fixture
TEXT = {"text": "the cat sat on the mat", "pair": "it was red", "masked": "1"}


def lab_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **address: str) -> AppTest:
    """The page, for a model of one's own."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    return settled(at(start(**{**TEXT, "model": str(folder), **address}), "prune").run())


def press(app: AppTest, key: str) -> AppTest:
    settled(app.button(key=key).click().run())
    assert not app.exception and not app.error
    return app


def press_labelled(app: AppTest, label: str) -> AppTest:
    """Press the button whose label begins so, and wait for the result."""
    settled(next(button for button in app.button if button.label.startswith(label)).click().run(), "stop_here")
    assert not app.exception and not app.error
    return app


@pytest.mark.parametrize("page", ["prune", "roles", "heads"])
def test_a_model_without_heads_is_said_to_have_none(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """Every page about heads opens on it, and none offers to switch or to remove what is not there."""
    bare = tmp_path / "bare"
    bert_core.save(bert_core.pruned(tiny_loaded, np.ndindex(2, 4)), bare)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(bare)]))
    app = settled(at(start(**TEXT, model=str(bare), colour="removal"), page).run())
    assert not app.exception and not app.error
    assert "All heads of this model were pruned" in words(app)


def test_the_figures_are_those_of_the_library(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and accuracies of the text, each piece hidden once, with the heads that are off."""
    app = lab_of(tiny_model_folder, monkeypatch, off="0.1,1.2")
    gates = np.ones((2, 4))
    gates[0, 1] = gates[1, 2] = 0
    batches = losses.masked_examples(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT["text"], TEXT["pair"]))
    found = costs.score(tiny_loaded, batches, head_mask=gates)
    assert "2 of 8 heads are off" in words(app)
    assert re.search(rf"oss \(nats\) {found.loss:.2f} \([+−]\d\.\d\d\)", words(app))
    assert f"masked-token accuracy {found.mlm:.0%}" in words(app)
    assert f"sentence-pair accuracy {found.nsp:.0%}" in words(app)
    worth = plans.loss_importance(tiny_loaded, batches)
    middle = float(np.median(worth))
    app.number_input(key=key_of(app, "lab_below")).set_value(middle).run()
    assert press(app, "switch_below").session_state.off == tuple(map(tuple, np.argwhere(worth < middle).tolist()))


def test_what_takes_long_waits_for_its_button(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text is asked when the button that names the cost is pressed, another text has a button of its own."""
    monkeypatch.setattr("viz_app.pages.prune.page.OPENING_SECONDS", 0.0)
    app = lab_of(tiny_model_folder, monkeypatch)
    (button,) = (button for button in app.button if button.label.startswith("Test on "))
    assert re.fullmatch(r"Test on 9 copies of the text, about \d+ s", button.label)
    assert "heads are off" not in words(app) and "the gradient of the loss" in words(app)
    settled(button.click().run())
    assert not app.exception and not app.error and "heads are off" in words(app)
    settled(app.text_input(key=key_of(app, "text")).set_value("the dog ran").run())
    assert "heads are off" not in words(app)
    assert [button for button in app.button if button.label.startswith("Test on ")]
    monkeypatch.undo()
    assert "heads are off" in words(lab_of(tiny_model_folder, monkeypatch))


def test_a_plan_is_carried_out(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first heads of the order go off, all others on; the choice of order and share is in the link."""
    app = lab_of(tiny_model_folder, monkeypatch, off="0.1", order="ablation", pruned_percent="40")
    press(app, "carry_out")
    batches = losses.masked_examples(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT["text"], TEXT["pair"]))
    plan = bert_core.propose_plan(tiny_loaded, batches, "ablation")
    assert app.session_state.off == tuple(sorted(plan.order[:3]))
    app.selectbox(key=key_of(app, "order")).set_value("ablation-mean").run()
    settled(app.text_area(key=key_of(app, "reference")).set_value("a dog ran\nit was old").run())
    press(app, "carry_out")
    reference = [tiny_loaded.tokenizer.encode(text) for text in ("a dog ran", "it was old")]
    plan = bert_core.propose_plan(tiny_loaded, batches, "ablation-mean", reference=reference)
    assert app.session_state.off == tuple(sorted(plan.order[:3]))
    wrong = start(**TEXT, model=str(tiny_model_folder), pruned_percent="140", off="1.*")
    assert "pruned_percent='140', which is not possible: 0 to 100" in words(wrong)
    assert "off='1.*', which is not possible: write a head as layer.head, such as 2.11" in words(wrong)


def test_a_curve_grows_stops_and_goes_on(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped, it keeps its points, and the button says how many models are left; at the end there is the band."""
    app = lab_of(tiny_model_folder, monkeypatch, text="the dog ran", off="0.1")
    assert re.match(r"Draw the curve: prune \d+ times, about \d+ s", app.button(key="start_curve").label)
    whole = int(re.findall(r"\d+", app.button(key="start_curve").label)[0])
    press(app, "start_curve")
    while not [chart for chart in app.get("plotly_chart") if "random orders" in chart.proto.spec]:
        app.run()
    if any(button.key == "stop_curve" for button in app.button):
        press(app, "stop_curve")
        left = app.button(key="start_curve").label
        assert left.startswith("Resume: prune ") and int(re.findall(r"\d+", left)[0]) < whole
        press(app, "start_curve")
        while any(button.key == "stop_curve" for button in app.button):
            app.run()
    assert not app.exception and not app.error
    assert "In this order, the loss rises by at most" in words(app)
    assert not [b for b in app.button if b.key == "start_curve"]


def test_a_model_is_measured_and_taken_along(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table counts parameters; a written folder is the pruned model; a taken place gets one sentence."""
    app = lab_of(tiny_model_folder, monkeypatch, off="0.1,1.2")
    press_labelled(app, "Measure size and speed, about ")
    assert app.session_state.measure == next(iter(MEASURES))  # a choice of another page, in the same address
    assert app.table[0].value["parameters"].nunique() == 2
    assert "Switching heads off without pruning never makes a model faster" in words(app)
    place = tmp_path / "mine"
    app.text_input(key=key_of(app, "lab_place")).set_value(str(place)).run()
    press(app, "write_model")
    left = bert_core.load(str(place))
    assert dict(left.config.pruned_heads) == {0: (1,), 1: (2,)} and tiny_loaded.config.pruned_heads == {}
    app.button(key="write_model").click().run()
    assert not app.exception and "already exists: choose another name" in said(app.error[0])
    app.text_input(key=key_of(app, "lab_place")).set_value(str(place / "config.json" / "deeper")).run()
    app.button(key="write_model").click().run()
    assert not app.exception and "and nothing is left there" in said(app.error[0])


@pytest.mark.parametrize(("what", "order", "there"), [("neurons", "importance", 128), ("layers", "ablation", 2)])
def test_neurons_and_layers_are_taken_out_by_an_order(
    tiny_loaded: LoadedModel,
    tiny_model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    order: str,
    there: int,
) -> None:
    """The figures are those of the model that is really without half of them, which is measured and taken along."""
    monkeypatch.setattr(experiment, "STEPS", 2)
    app = lab_of(tiny_model_folder, monkeypatch, parts=what, pruned_percent="50", order="ablation-mean")
    assert app.session_state.order == order, "an order that only heads have gives way to the first of these"
    assert f"then remove these {what}" in words(app) and f"0 of {there} {what} are removed" in words(app)
    press(app, "carry_out")
    batches = losses.masked_examples(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT["text"], TEXT["pair"]))
    plan = plans.propose_plan(tiny_loaded, batches, order, part_kind=what)
    left = prune_parts(tiny_loaded, what, plan.first(0.5))
    assert f"{there // 2} of {there} {what} are removed" in words(app)
    assert f"oss (nats) {costs.score(left, batches).loss:.2f}" in words(app)
    press_labelled(app, "Measure size and speed, about ")
    assert app.table[0].value[""].tolist() == ["full", "pruned"]
    assert f"{sum(p.numel() for p in left.model.parameters()):,}" in app.table[0].value["parameters"].tolist()
    place = tmp_path / "mine"
    app.text_input(key=key_of(app, "lab_place")).set_value(str(place)).run()
    press(app, "write_model")
    assert bert_core.load(str(place)).config.replace(extra={}) == left.config.replace(extra={})
    press(app, "start_curve")
    while any(button.key == "stop_curve" for button in app.button):
        app.run()
    assert not app.exception and not app.error
    assert f"of {there}** removed {what}" in words(app)


def test_a_page_for_others_writes_nothing(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Served beyond this machine there is no control to write a folder; a download there is."""
    monkeypatch.setattr(access, "get_option", lambda name: "0.0.0.0" if name == "server.address" else None)
    app = lab_of(tiny_model_folder, monkeypatch, off="0.1")
    assert not app.exception and app.get("download_button")
    assert not [b for b in app.button if b.key == "write_model"]
    assert not [t for t in app.text_input if t.key == "lab_place"]


def test_the_download_is_the_pruned_model(tiny_model_folder: Path, tmp_path: Path) -> None:
    """A zip that loads, with the smaller matrices, or with zeros in the first shapes."""
    selection: Any = SimpleNamespace(loaded=bert_core.load(str(tiny_model_folder)))
    experiment = Experiment(selection, "heads", None)
    for full_shape, gone in ((False, {0: (1,), 1: (2,)}), (True, {})):
        content = pruned_zip(experiment, ((0, 1), (1, 2)), full_shape=full_shape)
        assert zipfile.is_zipfile(io.BytesIO(content))
        (tmp_path / f"{full_shape}.zip").write_bytes(content)
        assert dict(bert_core.load(str(tmp_path / f"{full_shape}.zip")).config.pruned_heads) == gone


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kind", "parts"), [("heads", ((0, 1),)), ("neurons", ((0, 3), (1, 5))), ("layers", ((1,),))])
def test_a_pruned_model_is_saved_in_the_dtype_of_its_source(
    tiny_model_folder: Path, tmp_path: Path, dtype: torch.dtype, kind: str, parts: tuple[tuple[int, ...], ...]
) -> None:
    """A model stored in half precision stays so, as the smaller model and with zeros in the original shapes."""
    folder = tmp_path / "half"
    shutil.copytree(tiny_model_folder, folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(dtype) for name, tensor in weights.items()}, folder / "model.safetensors")
    selection: Any = SimpleNamespace(loaded=bert_core.load(str(folder), device="cpu"))
    for full_shape in (False, True):
        content = pruned_zip(Experiment(selection, kind, None), parts, full_shape=full_shape)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extract("model.safetensors", tmp_path)
        assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {dtype}


def test_the_sentence_of_a_curve_tells_where_it_is_flat() -> None:
    """A loss that rises by 2% early and stays flat to two thirds: both are in the sentence, and no other claim."""
    losses = {0: 1.0, 6: 1.0, 12: 1.02, 24: 1.03, 48: 1.04, 54: 1.5, 60: 1.9, 66: 4.0, 72: 7.0}
    points = [
        CurvePoint("importance", removed, loss, 1 - removed / 80, 1.0, 100, 1.0) for removed, loss in losses.items()
    ]
    assert curve_sentence(points, "importance", "loss", "heads") == (
        "In this order, the loss rises by at most 1% up to **6 of 72** removed heads, by at most 10% up to **48**, "
        "by at most 100% up to **60** (8 steps tested)."
    )
    assert curve_sentence(points, "importance", "mlm", "heads") == (
        "Masked-token accuracy in this order: **1** with all heads, **0.4** with 48 of 72 removed, **0.1** without any."
    )
    flat = [dataclasses.replace(point, loss=1.0) for point in points]
    assert "at most 1% up to **72 of 72** removed heads (8" in curve_sentence(flat, "importance", "loss", "heads")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_works_on_a_pruned_model(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """One head of layer 0 and all of layer 1 are gone: no error, no NaN, and a head that is gone cannot be off."""
    gone = [(0, 1), *((1, head) for head in range(4))]
    folder = bert_core.save(bert_core.pruned(tiny_loaded, gone), tmp_path / "few")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    for address in ({"head": "0.1", "off": "0.1,0.2"}, {"head": "1.2", "show": "product", "colour": "removal"}):
        app = settled(at(start(**TEXT, model=str(folder), **address), page).run())
        assert not app.exception and not app.error
        assert ", 5 pruned" in words(app)
        assert not re.search(r"\bnan\b", words(app)) and (0, 1) not in app.session_state.off
    for stage in ("qkv", "scores", "softmax", "context", "output", "feed_forward") if page == "inside" else ():
        for head in ("0.0", "1.0"):
            app = start(**TEXT, model=str(folder), head=head, stage=stage)
            settled(at(app, "inside").run())
            assert not app.exception and not app.error
            assert ("were pruned" in words(app)) == (head == "1.0" and stage not in ("output", "feed_forward"))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_works_without_a_layer(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """Layer 1 and half of the neurons are gone: no error and no NaN, in the layer that is there and in the other."""
    smaller = bert_core.pruned(tiny_loaded, neurons=[(0, n) for n in range(0, 64, 2)], layers=[1])
    folder = bert_core.save(smaller, tmp_path / "short")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    for head in ("0.1", "1.2"):
        stage = {"stage": "feed_forward"} if page == "inside" else {}
        app = settled(at(start(**TEXT, model=str(folder), head=head, **stage), page).run())
        assert not app.exception and not app.error
        assert not re.search(r"\bnan\b", words(app), re.IGNORECASE)
        if page == "inside":
            assert any("of 32 numbers" in str(one.value) for one in app.latex) == (head == "0.1")
            assert ("Layer 1 was removed from this model" in words(app)) == (head == "1.2")


def test_a_file_that_cannot_be_asked_leaves_the_text(
    tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
    """A file of one document gets a sentence and the page goes on with the text; a whole one is asked."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    for text, asked in (
        ("one line", "the text above"),
        (text_file.read_text(encoding="utf-8"), "examples from the file"),
    ):
        app = at(start(**TEXT, model=str(tiny_model_folder)), "prune")
        app.session_state["lab_file"] = Upload("mine.txt", text.encode())
        app.run()
        assert not app.exception and f"Tested on {asked}" in words(app)
        errors = [said(error) for error in app.error]
        assert errors == [] or "The file cannot be used: the file.txt has fewer than two documents" in errors[0]
        assert bool(errors) == (text == "one line")


def test_a_plan_file_is_for_one_model(tiny_model_folder: Path) -> None:
    """A plan of this model is read back; another model's is refused."""
    model = bert_core.load(str(tiny_model_folder))
    plan = bert_core.PruningPlan(tiny_model_folder.name, 2, 4, "mine", ((0, 1),))
    assert read_plan(model, Upload("plan.json", plan.to_json().encode())) == plan
    with pytest.raises(ValueError, match="the plan is for other"):
        read_plan(model, Upload("plan.json", dataclasses.replace(plan, model="other").to_json().encode()))
