"""Training and evaluation of an image captioner on generated scenes; no data files are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core import scenes
from bert_core.analysis.pointing import patches_in
from bert_core.modeling import IGNORED_LABEL
from bert_core.progress import Progress, print_progress
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused
from bert_core.scenes import COLOURS, MAX_CAPTION_TOKENS, SHAPE_KINDS, SIZES, VOCABULARY, CaptionCheck, Scene
from bert_core.studies.runner import exclusive_lock
from bert_core.tokenizer import CLS, MASK, PAD, SEP, Tokenizer
from bert_core.training.optimization import Metric, adamw, training_autocast, trapezoid
from bert_core.training.runs import Evaluation, RunState, Training, round_finite, run_identity, start_digests, train
from bert_core.training.settings import CaptionerSettings
from bert_core.vision import Captioner, CaptionerConfig, LoadedCaptioner, save_captioner, write_vocabulary

START_ID, END_ID, PAD_ID, MASK_ID = (VOCABULARY.index(token) for token in (CLS, SEP, PAD, MASK))
RELATION_IDS = [VOCABULARY.index(relation.split()[0]) for relation in scenes.RELATIONS]
# Classes of the patch classifiers: colour, kind and size of a shape. Class 0, the background, precedes each list.
PATCH_WORDS: tuple[Sequence[str], ...] = (tuple(COLOURS), SHAPE_KINDS, tuple(SIZES))


@compared_by_value
@dataclass(frozen=True)
class SceneBatch:
    """Batch of images with their captions and patch labels.

    images: uint8, (batch, height, width, 3). labels: token ids of the captions, -100 after their ends, (batch, seq).
    input_ids: input of the decoder, the captions with some words replaced by [MASK] and padded with [PAD],
        (batch, seq).
    patches: labels of each patch, (batch, patch, 7). The first three are the colour, kind and size of the shape in
        which the patch lies, from 1, and 0 for the background. The others are, for each relation, 1 if this shape has
        it to another one, else 0.
    """

    images: np.ndarray
    labels: np.ndarray
    input_ids: np.ndarray
    patches: np.ndarray


def scene_batch(
    rng: np.random.Generator,
    batch: int,
    config: CaptionerConfig,
    *,
    max_shapes: int = scenes.MAX_SHAPES,
    hidden_words: float = 0.0,
) -> SceneBatch:
    """Return a random batch of training scenes, with captions that name the shapes in random order.

    rng: random generator, which determines the batch. batch: number of scenes. config: sizes of the images and patches.
    max_shapes: maximum number of shapes of a scene. hidden_words: share of the input words that are masked.
    """
    counts = rng.integers(1, max_shapes + 1, batch)
    samples = [scenes.sample_scene(rng, held_out=False, count=int(count)) for count in counts]
    captions = [scenes.caption_scene(scene, rng.permutation(len(scene.shapes)).tolist()) for scene in samples]
    ids = [[START_ID, *(VOCABULARY.index(word) for word in caption.split()), END_ID] for caption in captions]
    labels = np.full((batch, max(map(len, ids))), IGNORED_LABEL, np.int64)
    for row, numbers in zip(labels, ids, strict=True):
        row[: len(numbers)] = numbers
    input_ids = np.where(labels == IGNORED_LABEL, PAD_ID, labels)
    is_masked = (rng.random(input_ids.shape) < hidden_words) & (input_ids != PAD_ID) & (input_ids != START_ID)
    return SceneBatch(
        np.stack([scenes.draw(scene, config.image_size) for scene in samples]),
        labels,
        np.where(is_masked, MASK_ID, input_ids),
        np.stack([patch_targets(scene, config.grid) for scene in samples]),
    )


def patch_targets(scene: Scene, grid: int) -> np.ndarray:
    """Return the labels of the patches of a scene, (patch, 7), as in `SceneBatch.patches`.

    grid: number of patches per row and column. A patch lies in a shape if its centre is in the bounding box.
    """
    targets = np.zeros((grid, grid, len(PATCH_WORDS) + len(scenes.RELATIONS)), np.int64)
    for shape in scene.shapes:
        words = (shape.colour, shape.kind, shape.size)
        relations = {scenes.relation_between(shape, reference) for reference in scene.shapes if reference is not shape}
        targets[patches_in(shape.box, (grid, grid))] = [
            *(1 + list(classes).index(word) for classes, word in zip(PATCH_WORDS, words, strict=True)),
            *(int(relation in relations) for relation in scenes.RELATIONS),
        ]
    return targets.reshape(grid * grid, -1)


class PatchClassifiers(nn.Module):
    """Linear classifiers of patch states for the auxiliary loss; they are discarded after training.

    hidden: size of the patch states.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, 1 + len(words)) for words in PATCH_WORDS)
        self.relations = nn.Linear(hidden, len(scenes.RELATIONS))

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss in nats, in which shapes and background have equal total weights.

        states: (batch, patch, hidden). targets: patch labels, (batch, patch, 7), as in `SceneBatch.patches`.
        """
        is_shape = targets[..., 0] > 0
        weight = torch.where(is_shape, 0.5 / is_shape.sum().clamp(min=1), 0.5 / (~is_shape).sum().clamp(min=1))
        losses = [
            F.cross_entropy(layer(states).float().flatten(0, 1), targets[..., i].flatten(), reduction="none")
            * weight.flatten()
            for i, layer in enumerate(self.layers)
        ]
        relation_losses = F.binary_cross_entropy_with_logits(
            self.relations(states).float(), targets[..., len(self.layers) :].float(), reduction="none"
        )
        return torch.stack([*(loss.sum() for loss in losses), (relation_losses.mean(-1) * weight).sum()]).mean()


class _TrainedModules(nn.Module):
    """All trained modules of a run: the captioner and the patch classifiers.

    The attribute names are keys of saved states.
    """

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner
        self.names = PatchClassifiers(captioner.config.vision.hidden_size)


def train_captioner(
    config: CaptionerConfig,
    settings: CaptionerSettings,
    folder: Path,
    *,
    device: torch.device,
    save_every: float = 120.0,
    evaluate_every: int = 500,
    report: Progress = print_progress,
) -> LoadedCaptioner:
    """Train a captioner from random weights, resuming the run in `folder` if it is the same.

    A run is the same if the configuration and the settings except the number of steps are.
    folder: folder of the run, for its state, its log with one JSON object per line, and the finished model in
        `folder / "model"`.
    save_every: seconds between saved states. evaluate_every: number of steps between evaluations.
    report: function that receives the progress.
    Returns the trained captioner.
    Raises Refused if the decoder does not fit the vocabulary and the captions of the scenes. Also raises Refused if the
    folder holds a run with other settings, or is used by a run now.
    """
    if config.text.vocab_size != len(VOCABULARY) or config.text.max_position_embeddings < MAX_CAPTION_TOKENS:
        raise Refused(
            f"the decoder has {config.text.vocab_size} words and {config.text.max_position_embeddings} positions: "
            f"the scenes need exactly {len(VOCABULARY)} words and at least {MAX_CAPTION_TOKENS} positions"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder):
        return _train(config, settings, folder, device, save_every, evaluate_every, report)


def _train(
    config: CaptionerConfig, settings: CaptionerSettings, folder: Path, device: torch.device, save_every: float,
    evaluate_every: int, report: Progress,
) -> LoadedCaptioner:  # fmt: skip
    """Train in a folder that is locked for this run."""
    torch.manual_seed(settings.seed)
    student = _TrainedModules(Captioner(config))
    identity = run_identity("train-captioner", settings, start_digests(student, config=config.to_dict()), {})
    write_vocabulary(VOCABULARY, folder)
    loaded = LoadedCaptioner(folder.name, student.to(device).captioner, Tokenizer.from_folder(folder), device)
    train(
        _CaptionerTraining(student, loaded, settings, evaluate_every), folder, identity,
        save_every=save_every, report=report,
    )  # fmt: skip
    save_captioner(loaded.model, VOCABULARY, folder / "model")
    return LoadedCaptioner(loaded.name, loaded.model.requires_grad_(False).eval(), loaded.tokenizer, device)


class _CaptionerTraining(Training):
    """Training of a captioner on random scenes."""

    units = "scenes"

    def __init__(
        self, student: _TrainedModules, loaded: LoadedCaptioner, settings: CaptionerSettings, evaluate_every: int
    ) -> None:
        self.student, self.loaded, self.settings, self.evaluate_every = student, loaded, settings, evaluate_every
        self.model, self.device = student, loaded.device
        self.steps, self.decay = settings.steps, settings.decay
        self.optimizer = adamw(list(student.parameters()), settings.learning_rate, settings.weight_decay)

    def learning_rate(self, step: int) -> float:
        settings = self.settings
        return settings.learning_rate * trapezoid(
            step, steps=settings.steps, warmup=settings.warmup, decay=settings.decay
        )

    def add_gradients(self, step: int) -> dict[str, Metric]:
        settings = self.settings
        rng = np.random.default_rng([settings.seed, step])
        max_shapes = min(1 + 3 * step // max(settings.growth, 1), scenes.MAX_SHAPES)
        batch = scene_batch(
            rng, settings.batch, self.loaded.config, max_shapes=max_shapes, hidden_words=settings.hidden_words
        )  # fmt: skip
        self.done_units += settings.batch
        return _train_step(self.student, batch, settings, self.device)

    def log_line(self, state: RunState, learning_rate: float, speed: float) -> dict[str, Any]:
        return {"step": state.step, "rate": learning_rate, **round_finite(state.means)}

    def progress(self, state: RunState) -> str:
        means = "  ".join(f"{name} {value:.3f}" for name, value in state.means.items())
        return f"step {state.step}/{self.steps}  {means}"

    def is_evaluated(self, step: int) -> bool:
        return step % self.evaluate_every == 0 or step == self.steps

    def evaluate(self, state: RunState) -> Evaluation:
        shares = {side: correct_share(self.loaded, held_out=side == "held out") for side in ("seen", "held out")}
        sentence = "correct captions: " + ", ".join(f"{share:.1%} {side}" for side, share in shares.items())
        return Evaluation({"step": state.step, "correct": shares}, sentence)


def _train_step(
    student: _TrainedModules, batch: SceneBatch, settings: CaptionerSettings, device: torch.device
) -> dict[str, Metric]:
    """Add the gradients of one batch to the parameters, and return its metrics.

    Returns "words" and "patches", the caption loss and the patch loss in nats, and "relations", the share of the
    relation words that are predicted correctly, if the batch has any.
    """
    images, labels, input_ids, patches = (
        torch.from_numpy(array).to(device) for array in (batch.images, batch.labels, batch.input_ids, batch.patches)
    )
    with training_autocast(device):
        states = student.captioner.encode(images)
        logits = student.captioner.text(input_ids, encoder_hidden_states=states, use_cache=False).logits[:, :-1]
        patch_loss = student.names(states, patches)
    targets = labels[:, 1:]
    relations = torch.isin(targets, torch.tensor(RELATION_IDS, device=device))
    weight = torch.where(relations, settings.relation_weight, 1.0) * (targets != IGNORED_LABEL)
    losses = F.cross_entropy(logits.float().transpose(1, 2), targets, ignore_index=IGNORED_LABEL, reduction="none")
    word_loss = (losses * weight).sum() / weight.sum()
    (word_loss + settings.patch_loss * patch_loss).backward()
    is_correct = (logits.argmax(-1) == targets)[relations]
    accuracy = {"relations": Metric(is_correct.float().mean())} if len(is_correct) else {}
    return {"words": Metric(word_loss.detach()), "patches": Metric(patch_loss.detach()), **accuracy}


# ---------------------------------------------------------------------------- evaluation


def correct_share(loaded: LoadedCaptioner, *, held_out: bool, total: int = 200, seed: int = 777) -> float:
    """Return the share of random scenes whose generated caption is correct, 0 to 1.

    held_out: whether the scenes contain combinations that training excludes. total: number of scenes. seed: random
    seed of the scenes.
    """
    results = caption_scenes(loaded, evaluation_scenes(total, held_out=held_out, seed=seed))
    return sum(check.correct for _, check in results) / total


def evaluation_scenes(total: int, *, held_out: bool, seed: int) -> list[Scene]:
    """Return random scenes that are in no training batch.

    total: number of scenes. held_out: whether the scenes contain combinations that training excludes.
    """
    # A seed of three numbers is never equal to that of a training batch, which has two.
    rng = np.random.default_rng([seed, int(held_out), 1])
    return [scenes.sample_scene(rng, held_out=held_out) for _ in range(total)]


def caption_scenes(
    loaded: LoadedCaptioner, samples: Sequence[Scene], batch: int = 50
) -> list[tuple[str, CaptionCheck]]:  # fmt: skip
    """Return the caption that a captioner generates for each scene, and the check of this caption.

    batch: number of scenes per batch. The training mode of the model is restored at the end.
    """
    was_training = loaded.model.training
    loaded.model.eval()
    captions: list[str] = []
    for start in range(0, len(samples), batch):
        images = np.stack([scenes.draw(scene, loaded.config.image_size) for scene in samples[start : start + batch]])
        captions += loaded.captions(images)
    loaded.model.train(was_training)
    return [(caption, scenes.check_caption(caption, scene)) for caption, scene in zip(captions, samples, strict=True)]


@dataclass(frozen=True)
class CaptionScore:
    """Scores of a captioner on one group of scenes.

    group: name of the group. scenes: number of scenes. correct: share of correct captions, 0 to 1.
    all_shapes_named: share of captions that name exactly the shapes of the scene with size, colour and kind, whatever
    relations they state, 0 to 1.
    """

    group: str
    scenes: int
    correct: float
    all_shapes_named: float


def evaluate_captioner(loaded: LoadedCaptioner, total: int, *, seed: int = 2024) -> list[CaptionScore]:
    """Return the scores of a captioner on random scenes, by group.

    total: number of scenes with the combinations of training, and number of held-out scenes, each of which contains a
    combination that training excludes. seed: random seed of the scenes.
    """
    groups: dict[str, list[tuple[bool, bool]]] = {}
    for held_out in (False, True):
        samples = evaluation_scenes(total, held_out=held_out, seed=seed)
        for scene, (caption, check) in zip(samples, caption_scenes(loaded, samples), strict=True):
            side = "held out" if held_out else "as in training"
            names = [side, f"{side}, {len(scene.shapes)} shape{'s' * (len(scene.shapes) > 1)}"]
            if held_out:
                names.append(f"{side}, {'noisy' if scene.background.noise else 'plain'} background")
            if held_out and states_unseen_combination(caption):
                names.append(f"{side}, the caption says an unseen combination")
            for name in names:
                groups.setdefault(name, []).append((check.correct, _names_all_shapes(caption, scene)))
    order = sorted(groups, key=lambda name: (name.startswith("held"), name))
    return [
        CaptionScore(name, len(groups[name]), *(float(share) for share in np.mean(groups[name], axis=0)))
        for name in order
    ]


def states_unseen_combination(caption: str) -> bool:
    """Return whether a caption states a combination that training excludes; False if it cannot be parsed."""
    try:
        parsed = scenes.parse_caption(caption)
    except Refused:
        return False
    colour, kind = parsed.shapes[0][1:]
    references = zip(parsed.shapes[1:], parsed.relations, strict=True)
    return any(
        scenes.is_unseen(colour, kind, relation) or scenes.is_unseen(*shape[1:], scenes.OPPOSITE_RELATIONS[relation])
        for shape, relation in references
    )


def _names_all_shapes(caption: str, scene: Scene) -> bool:
    """Return whether a caption names exactly the shapes of a scene; False if it cannot be parsed."""
    try:
        return sorted(scenes.parse_caption(caption).shapes) == sorted(shape.words for shape in scene.shapes)
    except Refused:
        return False
