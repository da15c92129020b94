"""A bug is not a mistake of the reader's: commands and pages say whose fault it is, and keep where it happened."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.models import CommandInfo

from bert_core import Refused
from tests.app.test_cli import Run, headlight
from tests.visit import settled, visited, words
from viz_app.cli.command import app

__all__ = ["headlight"]  # a fixture
PRIVATE = "a private sentence"


def broken(*_: object, **__: object) -> None:
    """What a bug of ours looks like: a ValueError, and not one for people."""
    np.zeros(2) + np.zeros(3)


ARGUMENTS = {
    "app": [], "models": [], "predict": [PRIVATE, "--pair", PRIVATE], "nsp": [PRIVATE, PRIVATE],
    "choose": [PRIVATE, PRIVATE, PRIVATE, "--model", "headlight-mini"],
    "replaced": [PRIVATE], "tags": [PRIVATE, "--model", "headlight-mini"], "score": [PRIVATE], "bias": [],
    "heads": ["FILE", "--out", "OUT.csv", "--importance"], "roles": ["FILE"],
    "faithfulness": ["FILE", "--out", "OUT.csv"], "ground-truth": ["--out", "OUT.csv"],
    "attention": [PRIVATE, "--out", "OUT.png"],
    "answer": ["--model", "headlight-mini", "--question", PRIVATE, "--context", PRIVATE],
    "patch": ["--source", PRIVATE, PRIVATE, "--word", "her"], "find-heads": [PRIVATE, "--from", "1", "--to", "2"],
    "neurons": ["FILE", "--out", "OUT.csv"], "direct": [PRIVATE, "--word", "her"],
    "lens": [PRIVATE, "--word", "her"],
    "profile": ["OUT", "--out", "OUT.json"], "dossier": ["OUT", "--out", "OUT.json"],
    "query-keys": ["FILE", "--out", "OUT.csv"],
    "compare-models": ["headlight-mini", "headlight-mini", "FILE"],
    "explain": ["FILE", "--out", "OUT.csv"], "evaluate-file": ["FILE", "--out", "OUT.csv"],
    "similarity": [PRIVATE, PRIVATE],
    "index": ["FILE", "--out", "OUT"], "search": ["OUT", PRIVATE, "--token", PRIVATE],
    "steer": ["FILE", PRIVATE, "--label", "a", "--depth", "1", "--word", PRIVATE, "--out", "OUT.csv"],
    "probe": ["FILE", "--label", "upos", "--out", "OUT.csv"], "prune": ["--out", "OUT"],
    "prune-curve": ["FILE", "--out", "OUT.csv"], "pretrain": ["FILE", "--folder", "OUT"],
    "finetune": ["FILE", "--text", "a", "--label", "b", "--folder", "OUT"], "evaluate": ["headlight-mini", "FILE"],
    "tune-lens": ["FILE", "--folder", "OUT"], "export-onnx": ["--out", "OUT"],
    "site": ["--out", "OUT"],
    "train-captioner": ["--folder", "OUT"], "evaluate-captioner": [],
    "lessons new": ["mine"], "lessons check": ["FILE"],
    "lessons export": ["both_sides", "--out", "OUT.html"],
}  # fmt: skip


def test_every_command_is_asked() -> None:
    """The table above has all of them."""
    alone = {name for name, one in typer.main.get_group(app).commands.items() if not hasattr(one, "commands")}
    assert set(ARGUMENTS) == alone | {name for name in commands() if " " in name}


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(ARGUMENTS))
def test_a_bug_in_a_command_is_ours_and_is_kept(
    headlight: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Exit code 1, one sentence without what was typed, the traceback in the log; --debug shows it."""
    (tmp_path / "file.txt").write_text("a text", encoding="utf-8")
    log = tmp_path / "headlight.log"
    monkeypatch.setenv("HEADLIGHT_LOG", str(log))
    info = commands()[command]
    assert info.callback is not None
    monkeypatch.setattr(info, "callback", functools.wraps(info.callback)(lambda **_: broken()))
    given = [str(tmp_path / ("file.txt" if one == "FILE" else one)) if one.startswith(("FILE", "OUT")) else one
             for one in ARGUMENTS[command]]  # fmt: skip
    code, printed, err = headlight(*command.split(), *given)
    assert (code, printed, err.count("\n")) == (1, "", 1), err
    assert err.startswith("headlight has a bug, it is not your fault (ValueError): ") and str(log) in err
    options = [one for one in given if one.startswith("--")]
    assert " ".join(["headlight", command, *options]) + ")" in err and "Python 3" in err
    kept = log.read_text(encoding="utf-8")
    assert "could not be broadcast together" in kept and "in broken" in kept
    for said in (err, kept):
        assert PRIVATE not in said
    assert "broadcast" not in err
    code, _, err = headlight("--debug", *command.split(), *given)
    assert code == 1 and "Traceback" in err and "could not be broadcast together" in err


def commands() -> dict[str, CommandInfo]:
    """Every command by its name, those of a group after the group's."""
    groups = [(f"{group.name} ", group.typer_instance) for group in app.registered_groups]
    return {
        f"{before}{info.name or _name_of(info.callback)}": info
        for before, some in [("", app), *groups]
        if some is not None
        for info in some.registered_commands
    }


def _name_of(callback: Callable[..., object] | None) -> str:
    return "" if callback is None else callback.__name__.replace("_", "-")


def test_a_command_without_memory_says_what_to_take_less_of(headlight: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's error and PyTorch's are one sentence and code 2, no bug."""
    for error in (MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")):

        def fails(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("bert_core.load", fails)
        code, printed, err = headlight("predict", "a [MASK]")
        assert (code, printed, err.count("\n")) == (2, "", 1) and err.startswith("there is not enough memory")


def test_a_log_that_cannot_be_written_is_no_second_bug(
    headlight: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the traceback is what --debug shows."""
    monkeypatch.setenv("HEADLIGHT_LOG", str(tmp_path / "no" / "folder"))
    monkeypatch.setattr("bert_core.loading.bundled_models", broken)
    code, printed, err = headlight("models")
    assert (code, printed) == (1, "") and "what --debug shows" in err and "Traceback" not in err


def test_a_refusal_is_an_error_of_values() -> None:
    """Whoever catches ValueError catches it too; a bug of NumPy's is none."""
    assert issubclass(Refused, ValueError)
    with pytest.raises(ValueError) as caught:
        broken()
    assert not isinstance(caught.value, Refused)


PAGES = {
    "predict": "viz_app.pages.predict.page.prediction_bars",
    "attention": "viz_app.pages.attention.page.role_figures",
    "compare": "viz_app.pages.compare.page.largest_changes",
    "why": "viz_app.pages.why.page.score_strip",
    "layers": "viz_app.pages.layers.lens_runs.logit_lens",
    "causes": "viz_app.pages.causes.page.example_button",
    "profiles": "viz_app.pages.profiles.parts.share_bars",
    "probes": "viz_app.pages.probes.page.confirm",
    "neurons": "viz_app.pages.neurons.page.neuron_map",
    "heads": "viz_app.pages.heads.page.head_grid",
    "roles": "viz_app.pages.roles.text.role_map",
    "finetune": "viz_app.pages.finetune.page.list_runs",
    "prune": "viz_app.pages.prune.experiment.masked_examples",
    "score": "viz_app.pages.score.pairs.pair_bars",
    "images": "viz_app.pages.images.page.picture_heat",
    "inside": "viz_app.pages.inside.traces.walk",
    "learn": "viz_app.pages.learn.page.groupby",
    "glossary": "viz_app.pages.glossary.page.find_terms",
    "start": "viz_app.pages.start.page.lessons",
}
TYPED = "The old lady opened the window"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_bug_on_a_page_is_calm_and_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, page: str
) -> None:
    """One message with versions, page and settings, without the text; the traceback in the log; the frame stays."""
    monkeypatch.setattr(PAGES[page], broken)
    app = settled(visited("" if page == "predict" else page, text=TYPED, masked="3", dark="1", view="heads"))
    assert not app.exception
    assert any("This page has a bug: it is not your fault" in one.value for one in app.error), words(app)
    assert "broadcast" not in words(app)
    (facts,) = {one.value for one in app.code if "Python 3" in one.value}
    assert f"page {page}: ValueError" in facts and "model=" in facts
    assert TYPED not in facts and "window" not in facts
    assert "could not be broadcast together" in caplog.text and "in broken" in caplog.text
    assert app.text_input or page in ("score", "images", "learn", "glossary", "start")
