"""How the captioner learns: batches from a seed, patches that name their shape, runs that go on, scores by group."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bert_core import scenes
from bert_core.modeling import IGNORED_LABEL
from bert_core.scenes import COLOURS, RELATIONS, SHAPE_KINDS, SIZES, VOCABULARY
from bert_core.training.captioner import (
    CaptionScore,
    PatchClassifiers,
    evaluate_captioner,
    evaluation_scenes,
    patch_targets,
    scene_batch,
    states_unseen_combination,
    train_captioner,
)
from bert_core.training.runs import LOG_FILE
from bert_core.training.settings import CaptionerSettings
from bert_core.vision import CaptionerConfig, LoadedCaptioner, load_captioner
from tests.near import assert_near
from tools import captioner_card

pytestmark = pytest.mark.slow

TINY = CaptionerConfig.small(len(VOCABULARY), image_size=32, patch_size=8, hidden=16, heads=2)
SETTINGS = CaptionerSettings(steps=6, batch=4, warmup=2, decay=2, growth=3, seed=3)


def trained(folder: Path, settings: CaptionerSettings = SETTINGS, lines: list[str] | None = None) -> LoadedCaptioner:
    """A run of a few steps."""
    return train_captioner(
        TINY, settings, folder, device=torch.device("cpu"), save_every=0, evaluate_every=1000,
        report=lambda done, what="": None if lines is None else lines.append(what),
    )  # fmt: skip


def test_batches_follow_from_the_seed_and_hold_true_captions() -> None:
    """The same numbers twice; every label row spells a caption of the kind that training may show."""
    first, again = (scene_batch(np.random.default_rng([3, 1]), 8, TINY) for _ in range(2))
    assert np.array_equal(first.images, again.images) and np.array_equal(first.labels, again.labels)
    assert first.images.shape == (8, 32, 32, 3) and first.patches.shape == (8, 16, 7)
    for row in first.labels:
        words = [VOCABULARY[number] for number in row if number != IGNORED_LABEL]
        assert words[0] == "[CLS]" and words[-1] == "[SEP]"
        assert not states_unseen_combination(" ".join(words[1:-1]))
    assert all(len(scenes.parse_caption(" ".join(VOCABULARY[n] for n in row[1:5])).shapes) == 1 for row in
               scene_batch(np.random.default_rng(0), 4, TINY, max_shapes=1).labels)  # fmt: skip


def test_hidden_words_are_hidden_from_the_input_alone() -> None:
    """About the asked share is [MASK]; [CLS] never; the labels still say what stood there."""
    batch = scene_batch(np.random.default_rng(0), 200, TINY, hidden_words=0.3)
    hidden, words = batch.input_ids == VOCABULARY.index("[MASK]"), batch.labels != IGNORED_LABEL
    assert not hidden[:, 0].any() and not hidden[~words].any()
    assert hidden[:, 1:].sum() / words[:, 1:].sum() == pytest.approx(0.3, abs=0.03)
    assert (batch.labels[hidden] != VOCABULARY.index("[MASK]")).all()
    assert np.array_equal(batch.input_ids[words & ~hidden], batch.labels[words & ~hidden])


def test_patches_name_the_shape_they_lie_in() -> None:
    """Worked by hand on a grid of four: one shape in the upper left quarter, another in the lower right."""
    star = scenes.Shape("star", "blue", "large", (0.0, 0.0, 0.5, 0.5), COLOURS["blue"])
    cross = scenes.Shape("cross", "red", "small", (0.5, 0.7, 0.7, 0.9), COLOURS["red"])
    found = patch_targets(scenes.Scene((star, cross), scenes.Background((0, 0, 0))), 4).reshape(4, 4, 7)
    blue, red = 1 + list(COLOURS).index("blue"), 1 + list(COLOURS).index("red")
    above = [int(relation == "above") for relation in RELATIONS]
    below = [int(relation == "below") for relation in RELATIONS]
    assert found[0, 0].tolist() == [blue, 1 + SHAPE_KINDS.index("star"), 1 + list(SIZES).index("large"), *above]
    assert np.array_equal(found[:2, :2], np.broadcast_to(found[0, 0], (2, 2, 7)))
    assert found[3, 2].tolist() == [red, 1 + SHAPE_KINDS.index("cross"), 1 + list(SIZES).index("small"), *below]
    assert np.count_nonzero(found[..., 0]) == 5


def test_the_patch_loss_weighs_shapes_and_background_alike() -> None:
    """With scores of zero it is the mean of ln 7, ln 6, ln 3 and ln 2, however many patches are background."""
    names, words = PatchClassifiers(4), torch.zeros(1, 10, 7, dtype=torch.long)
    words[0, 0, :3] = 1
    for layer in (*names.layers, names.relations):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    loss = names(torch.randn(1, 10, 4), words)
    assert_near(loss.item(), np.log([7, 6, 3, 2]).mean())


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """Six steps in one go, and four with two more after them, give equal weights; the log names every figure."""
    level = {**SETTINGS.__dict__, "decay": 0}
    whole = trained(tmp_path / "whole", CaptionerSettings(**level))
    trained(tmp_path / "parts", CaptionerSettings(**{**level, "steps": 4}))
    lines: list[str] = []
    parts = trained(tmp_path / "parts", CaptionerSettings(**level), lines)
    assert lines[0].endswith("; resuming at step 4 of 6")
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True))
    saved = load_captioner(tmp_path / "parts" / "model", device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), saved.model.parameters(), strict=True))
    entries = [json.loads(line) for line in (tmp_path / "whole" / LOG_FILE).read_text().splitlines()]
    assert {"step", "rate", "words", "patches"} <= set(entries[0]) and "correct" in entries[1]


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    """Other settings, or a decoder of other words, are said before anything is written over."""
    trained(tmp_path)
    with pytest.raises(ValueError, match=r"holds a run with other settings \(.*seed: 3, not 4\)"):
        trained(tmp_path, CaptionerSettings(**{**SETTINGS.__dict__, "seed": 4}))
    with pytest.raises(ValueError, match="the decoder has 5 words and 32 positions: the scenes need exactly 25 words"):
        train_captioner(
            CaptionerConfig.small(5, image_size=32, patch_size=8, hidden=16, heads=2), SETTINGS, tmp_path / "x",
            device=torch.device("cpu"),
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"^steps is 0: it must be a whole number of at least 1$"):
        CaptionerSettings(steps=0)


def test_scores_count_what_they_say(tmp_path: Path) -> None:
    """Groups add up to their side; naming everything is at least as frequent as being right."""
    scores = {score.group: score for score in evaluate_captioner(trained(tmp_path), 30)}
    assert all(isinstance(score, CaptionScore) and score.correct <= score.all_shapes_named for score in scores.values())
    for side in ("as in training", "held out"):
        assert scores[side].scenes == 30
        assert sum(score.scenes for group, score in scores.items() if re_shapes(group, side)) == 30


def re_shapes(group: str, side: str) -> bool:
    """Whether a group is a number of shapes on one side."""
    return group.startswith(f"{side}, ") and group.split(", ")[1][0].isdigit()


def test_fresh_scenes_are_on_their_side() -> None:
    """Held out or not, as asked, and the same for the same seed."""
    assert all(scenes.is_held_out(scene) for scene in evaluation_scenes(20, held_out=True, seed=1))
    assert not any(scenes.is_held_out(scene) for scene in evaluation_scenes(20, held_out=False, seed=1))
    assert evaluation_scenes(5, held_out=True, seed=1) == evaluation_scenes(5, held_out=True, seed=1)


def test_a_run_becomes_a_bundle_with_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-size weights and words that load, and a card whose recipe, scores and curve are those of the run."""
    trained(tmp_path / "run")
    arguments = ["card", str(tmp_path / "run"), str(tmp_path / "bundle"), "--hardware", "one core", "--scenes", "6"]
    monkeypatch.setattr("sys.argv", arguments)
    captioner_card.main()
    card = (tmp_path / "bundle" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "from random weights, on one core" in card and "| updates | 6 |" in card and "| seed | 3 |" in card
    assert "| held out | 6 |" in card and "| 6 | 0.0" in card and "15 of 120 combinations" in card
    assert load_captioner(tmp_path / "bundle", device="cpu").config == TINY
