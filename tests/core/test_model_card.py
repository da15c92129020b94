"""The model card's figures come from the model and the run, not from the text around them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bert_core.loading import LoadedModel
from bert_core.training.data import Corpus
from bert_core.training.measures import PROMPTS, Measures, measure
from bert_core.training.runs import RunState, run_identity, save_state
from bert_core.training.settings import MaskingRule, PretrainSettings
from tools import bundled_examples, model_card


def write_finished_state(folder: Path, settings: PretrainSettings) -> None:
    """The state that a finished run of these settings leaves, of a model with two weights."""
    model = torch.nn.Linear(1, 1)
    training: Any = SimpleNamespace(
        model=model, optimizer=torch.optim.SGD(model.parameters()), average=None, steps=settings.steps
    )
    save_state(folder, training, run_identity("pretrain", settings, {}, {}), RunState(settings.steps))


def test_a_bundle_is_half_as_large_and_gives_nearly_the_same_answers(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """float16 weights load as float32 and move no weight by more than float16's rounding."""
    loaded = model_card.bundle(tiny_model_folder, tiny_model_folder, tmp_path / "small")
    assert loaded.has_mlm and loaded.has_nsp
    full, half = (folder / "model.safetensors" for folder in (tiny_model_folder, tmp_path / "small"))
    assert half.stat().st_size < 0.6 * full.stat().st_size
    for (name, a), b in zip(tiny_loaded.model.state_dict().items(), loaded.model.state_dict().values(), strict=True):
        assert b.dtype == torch.float32
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-6), name


def test_examples_that_are_wrong_are_not_shipped(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """A model that gets fewer than ten right ships none of them."""
    with pytest.raises(ValueError, match="at least 10 are needed"):
        bundled_examples.write_examples(tiny_loaded, tmp_path)
    assert not (tmp_path / "examples.json").exists()


def test_every_candidate_names_a_word_of_its_text(tiny_loaded: LoadedModel) -> None:
    """No candidate points at a word that is not there."""
    for text, word, pair, _ in bundled_examples.CANDIDATES:
        encoding = tiny_loaded.tokenizer.encode(text, pair)
        assert encoding.word_text(bundled_examples.word_number(encoding, word)) == word


def test_the_card_holds_what_was_measured(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Scores, curve and prompts in the card are those of this model and this run."""
    rng = np.random.default_rng(0)
    corpus = Corpus(rng.integers(5, len(tiny_loaded.tokenizer), 2000), np.arange(0, 2001, 10), np.arange(0, 201, 20))
    look = {"step": 7, "held_out": {"128": {"mlm": 0.123, "nsp": 0.456}}}
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 1}) + "\n" + json.dumps(look) + "\n", encoding="utf-8")
    found = measure(tiny_loaded, {"noise": corpus}, batches=1, lengths=(32,))
    scored = found.held_out["noise"]["32"]
    assert f"| noise | 32 | {scored['mlm']:.3f} | {scored['hidden']:.3f} |" in model_card.score_table(found)
    before = replace(found, weights="before", held_out={"noise": {"32": {**scored, "mlm": 0.25}}})
    now = f"| noise | 32 | {scored['mlm']:.3f} (0.250) | {scored['hidden']:.3f} ({scored['hidden']:.3f})"
    assert now in model_card.score_table(found, before)
    section = model_card.measured_section(tiny_loaded, found, before)
    assert "Values in brackets are those of the previous weights, before." in section
    assert f"<!-- measures of {found.weights} -->" in section
    whole = model_card.replace_section("a\n<!-- measures of old -->\nold\n<!-- end of measures -->\nz\n", section)
    assert whole.startswith("a\n<!-- measures of") and whole.endswith("<!-- end of measures -->\nz\n")
    assert "old" not in whole.split() and model_card.replace_section(whole, section) == whole
    with pytest.raises(ValueError, match="has no section"):
        model_card.replace_section("a card", section)
    curve = model_card.curve_table([tmp_path, tmp_path])
    assert "| 7 | 0.123 | 0.456 |" in curve and "| 14 | 0.123 | 0.456 |" in curve
    settings = PretrainSettings(steps=1234, decay=99, lengths={32: 0.5, 64: 0.5}, masking=MaskingRule(rate=0.3))
    write_finished_state(tmp_path, settings)
    assert model_card.read_settings(tmp_path) == settings
    table = model_card.settings_table([PretrainSettings(), settings])
    assert "| updates | 4,000 | 1,234 |" in table and "last 99" in table and "30% (80% [MASK]" in table
    assert model_card.prompt_table(tiny_loaded).count("\n") == len(PROMPTS) + 1


def test_counts_stand_beside_their_shares_and_those_of_the_previous_weights() -> None:
    """A row by hand: 5 of 10 is 50% with Wilson's interval; a kind that was not asked before has an empty cell."""
    table = model_card.count_table("Kind", ("First", "Five"), {"a": (5, 10, 10), "b": (0, 0, 0)}, {"a": (0, 5, 10)})
    lines = table.split("\n")
    assert lines[0] == "| Kind | Total | First | Five | First, previous weights | Five, previous weights |"
    half, none, full = "5 (50.0%; 23.7% to 76.3%)", "0 (0.0%; 0.0% to 27.8%)", "10 (100.0%; 72.2% to 100.0%)"
    assert lines[2] == f"| a | 10 | {half} | {full} | {none} | {half} |"
    assert lines[3] == "| b | 0 | not measured | not measured |  |  |"
    assert lines[4] == f"| **all** | 10 | {half} | {full} | {none} | {half} |"
    assert model_card.count_table("Kind", ("First",), {"a": (5, 10)}, {}, sums=False).count("\n") == 2


def test_the_previous_weights_are_measured_in_the_same_run(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both models are asked, and card, figures, picture and temperature are those of the new one."""
    destination = tmp_path / "small"
    model_card.bundle(tiny_model_folder, tiny_model_folder, destination)
    model_card.write_card(tiny_loaded, "runs", 1.0, destination)
    rng = np.random.default_rng(0)
    corpus = Corpus(rng.integers(5, len(tiny_loaded.tokenizer), 2000), np.arange(0, 2001, 10), np.arange(0, 201, 20))
    asked = []

    def measured(loaded: LoadedModel, *args: Any, **options: Any) -> Measures:
        asked.append(loaded.report.source)
        return replace(measure(loaded, *args, **options, lengths=(32,)), weights=f"weights {len(asked)}")

    monkeypatch.setattr(model_card, "measure", measured)
    model_card.measure_bundle(destination, {"noise": corpus}, train=None, batches=1, before=tiny_model_folder)
    assert [Path(source) for source in asked] == [destination, tiny_model_folder]
    text = (destination / model_card.CARD_FILE).read_text(encoding="utf-8")
    assert "<!-- measures of weights 1 -->" in text and "the previous weights, weights 2." in text
    assert (
        "previous weights |" in text
        and Measures.from_json((destination / model_card.MEASURES).read_text(encoding="utf-8")).weights == "weights 1"
    )


def test_a_card_tells_of_the_runs_before(tmp_path: Path) -> None:
    """The runs of a model that was trained on come after those of the weights that it started from, which stay."""
    look = {"step": 5, "held_out": {"128": {"mlm": 0.123, "nsp": 0.456}}}
    for name, steps in (("one", 1000), ("two", 2000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(json.dumps(look) + "\n", encoding="utf-8")
        write_finished_state(tmp_path / name, PretrainSettings(steps=steps))
    first, tokens = model_card.runs_section([tmp_path / "one"], "a slow core")
    assert tokens == pytest.approx(3.072) and "The training used 3.1 M tokens, on a slow core." in first
    both, tokens = model_card.runs_section([tmp_path / "two"], "two cores", f"above\n{first}\nbelow")
    assert tokens == pytest.approx(6.144)
    assert both.count(model_card.RUNS) == both.count(model_card.RUNS_END) == 1
    assert both.index("a slow core") < both.index("Then, from those weights:") < both.index("two cores")
    assert "above" not in both and "below" not in both
    with pytest.raises(ValueError, match="the card has no section between"):
        model_card.runs_section([tmp_path / "two"], "two cores", "another card")


def test_a_new_card_has_a_place_for_what_is_measured(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """What was read in all stands in it, and the measured section is put where it belongs."""
    model_card.write_card(tiny_loaded, f"{model_card.RUNS}\nhow\n{model_card.RUNS_END}", 31.4, tmp_path)
    text = (tmp_path / model_card.CARD_FILE).read_text(encoding="utf-8")
    assert "It was trained on 31 M tokens" in text and "\nhow\n" in text
    section = "<!-- measures of 1 -->\nfound\n<!-- end of measures -->\n"
    assert "\nfound\n" in model_card.replace_section(text, section)
