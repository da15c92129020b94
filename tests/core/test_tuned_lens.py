"""bert_core/training/lens.py: translators from text, whether they help, and how a run stops and goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bert_core import LoadedModel, Translators, logit_lens, read_translators
from bert_core.records import Batch
from bert_core.training import lens, optimization
from bert_core.training.data import Corpus, ExampleMaker
from bert_core.training.lens import CARD_FILE, POSITION_GROUPS, compare_lenses, tune_lens
from bert_core.training.settings import LensSettings
from tests.near import assert_gradients_near, assert_near

pytestmark = pytest.mark.slow

QUICK = LensSettings(steps=30, warmup=2, decay=10, learning_rate=1e-2, examples=8, length=24)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short documents that the tiny vocabulary knows."""
    rng = np.random.default_rng(0)
    subjects, verbs, places = ["cat", "dog", "king", "woman", "child"], ["sat", "ran", "went"], ["mat", "door", "river"]
    lines = [
        "\n".join(
            f"The {rng.choice(subjects)} {rng.choice(verbs)} to the {rng.choice(places)}. It was {rng.choice(places)}."
            for _ in range(6)
        )
        for _ in range(10)
    ]
    path = tmp_path_factory.mktemp("lens") / "text.txt"
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


def examples_of(loaded: LoadedModel, text: Path, folder: Path) -> ExampleMaker:
    return ExampleMaker(Corpus.prepare(text, loaded.tokenizer, folder), loaded.tokenizer, lens._MASKING)


def test_a_trained_lens_is_nearer_to_the_end(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """At every depth and place; the file, its card and the log are there; the model is as it was before."""
    before = {name: weight.clone() for name, weight in tiny_loaded.model.state_dict().items()}
    said: list[str] = []
    tune_lens(tiny_loaded, text, QUICK, tmp_path, held_out=text, report=lambda done, what="": said.append(what))
    found = read_translators(tiny_loaded, tmp_path / "lens")
    assert found is not None
    scores = compare_lenses(tiny_loaded, found, examples_of(tiny_loaded, text, tmp_path), 24, batches=3)
    for place in POSITION_GROUPS:
        plain, tuned = scores["logit", place], scores["tuned", place]
        assert (tuned.divergence[:-1] < plain.divergence[:-1]).all()
        assert plain.divergence[-1] == tuned.divergence[-1] == 0 and tuned.agreement[-1] == 1
        assert plain.positions == tuned.positions > 50
    card = (tmp_path / "lens" / CARD_FILE).read_text(encoding="utf-8")
    assert "| seed | 0 |" in card and card.count("\n| 0 |") == card.count("\n| 1 |") == 1
    assert any(line.startswith("step 30/30") for line in said)
    for name, weight in tiny_loaded.model.state_dict().items():
        assert torch.equal(weight, before[name])
    assert all(weight.grad is None for weight in tiny_loaded.model.parameters())


def test_the_comparison_is_that_of_the_lens_itself(
    tiny_loaded: LoadedModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same KL as `logit_lens` finds on the same examples, one at a time, where a piece is hidden."""
    made = Translators(tiny_loaded.config)
    torch.nn.init.normal_(made[0].weight, std=0.05)
    examples = examples_of(tiny_loaded, text, tmp_path)
    rng = np.random.default_rng([12345, 0])
    batch = examples.batch(4, 24, rng)
    scores = compare_lenses(tiny_loaded, made.requires_grad_(False), examples, 24, batches=1, size=4)
    total, count = np.zeros(3), 0
    blank = tiny_loaded.tokenizer.encode("a")
    for row, seen in enumerate(batch.attention_mask):
        length = int(seen.sum())
        encoding = dataclasses.replace(
            blank, input_ids=tuple(batch.input_ids[row, :length].tolist()), tokens=("",) * length,
            token_type_ids=tuple(batch.token_type_ids[row, :length].tolist()),
        )  # fmt: skip
        hidden = np.nonzero(batch.labels[row] != lens.IGNORED_LABEL)[0]
        total += logit_lens(tiny_loaded, encoding, translators=made).divergence[:, hidden].sum(1)
        count += len(hidden)
    assert scores["tuned", "at [MASK]"].positions == count
    assert_near(scores["tuned", "at [MASK]"].divergence, total / count)


def divergence_of_step(loaded: LoadedModel, translators: Translators, batch: Batch) -> np.ndarray:
    """(depth,) KL in nats of one training step."""
    (figures,) = optimization.read_metrics([lens._train_step(loaded, translators, batch, np.random.default_rng(1))])
    return lens._divergence(figures)


def test_padding_changes_neither_divergence_nor_gradient(
    tiny_loaded: LoadedModel, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32, positions that only pad leave the divergence of each depth and every gradient as they are."""
    monkeypatch.setattr(optimization, "fast_dtype", lambda device: torch.float32)
    batch = examples_of(tiny_loaded, text, tmp_path).batch(8, 24, np.random.default_rng(0))
    exact, padded = (Translators(tiny_loaded.config).train() for _ in range(2))
    expected = divergence_of_step(tiny_loaded, exact, batch)
    monkeypatch.setattr(lens, "padded_size", lambda count, device: count + 13)
    found = divergence_of_step(tiny_loaded, padded, batch)
    assert_near(found, expected)
    assert_gradients_near(padded, exact)


def test_a_stopped_run_goes_on_where_it_was(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """Stopped and resumed is the same as in one go; another rate in the same folder is refused."""

    def stop(done: float | None, line: str = "") -> None:
        if line.startswith("step 10/"):
            raise KeyboardInterrupt

    longer = dataclasses.replace(QUICK, steps=14, decay=2)
    whole = tune_lens(tiny_loaded, text, longer, tmp_path / "one-go", report=lambda done, what="": None)
    with pytest.raises(KeyboardInterrupt):
        tune_lens(tiny_loaded, text, longer, tmp_path / "two", save_every=0, report=stop)
    told: list[str] = []
    again = tune_lens(tiny_loaded, text, longer, tmp_path / "two", report=lambda done, what="": told.append(what))
    assert any(line.endswith("; resuming at step 10 of 14") for line in told)
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match=r"holds a run with other settings \(learning_rate: 0.01, not 0.5\)"):
        tune_lens(tiny_loaded, text, dataclasses.replace(longer, learning_rate=0.5), tmp_path / "two")


def test_a_lens_that_cannot_be_trained_is_one_sentence(tiny_loaded: LoadedModel, text: Path, tmp_path: Path) -> None:
    """Settings, models and texts that cannot be used say so before anything runs."""
    with pytest.raises(ValueError, match=r"^steps is 0: it must be a whole number of at least 1$"):
        LensSettings(steps=0)
    with pytest.raises(ValueError, match=r"a length of 600 is too long: .* reads at most 512 tokens"):
        tune_lens(tiny_loaded, text, dataclasses.replace(QUICK, length=600), tmp_path)
    headless = dataclasses.replace(
        tiny_loaded, report=dataclasses.replace(tiny_loaded.report, missing=("cls.predictions.bias",))
    )
    with pytest.raises(ValueError, match="has no trained masked-word head"):
        tune_lens(headless, text, QUICK, tmp_path)
    lone = tmp_path / "lone.txt"
    lone.write_text("One document only. It has two sentences.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has fewer than two documents"):
        tune_lens(tiny_loaded, lone, QUICK, tmp_path)
