"""A captioner from drawn scenes: no file is read, every batch follows from the seed and its step."""

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
from bert_core.vision import Captioner, CaptionerConfig, LoadedCaptioner, save_captioner, write_vocabulary

START_ID, END_ID, PAD_ID, MASK_ID = (VOCABULARY.index(token) for token in (CLS, SEP, PAD, MASK))
RELATION_IDS = [VOCABULARY.index(relation.split()[0]) for relation in scenes.RELATIONS]
# What a patch can be taught to name, each with "nothing" in front.
PATCH_WORDS: tuple[Sequence[str], ...] = (tuple(COLOURS), SHAPE_KINDS, tuple(SIZES))


@dataclass(frozen=True)
class CaptionerSettings:
    """What decides the weights that come out; on the CPU of one machine equal settings give equal weights.

    steps: updates in all. The rate rises over `warmup` steps, stays, and falls to zero over the last `decay` steps.
    batch: scenes in each. growth: the first third of these steps shows one shape a scene, the second up to two.
    hidden_words: share of the words before a word that are hidden from the decoder, so that it looks at the picture
        rather than learn which words go together.
    relation_weight: of the words "above", "below", "left" and "right" in the loss, where all others count 1.
    patch_loss: weight of a second loss, used in training alone: each patch names the shape that it lies in, and where
        that shape stands.
    """

    steps: int = 20000
    batch: int = 16
    warmup: int = 200
    decay: int = 6000
    growth: int = 2000
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    hidden_words: float = 0.05
    relation_weight: float = 3.0
    patch_loss: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise Refused(f"{self.steps} steps of {self.batch} scenes: at least one of each")


@compared_by_value
@dataclass(frozen=True)
class SceneBatch:
    """Pictures and what is said of them.

    images: uint8 (batch, size, size, 3). labels: (batch, seq), the captions, -100 behind their ends.
    input_ids: the same as the decoder reads them, with some words hidden behind [MASK], filled up with [PAD].
    patches: (batch, patch, 7), what a patch is taught to name: the colour, kind and size of the shape it lies in,
        counted from 1, 0 for none; and for each relation whether that shape stands so to another one, 1 or 0.
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
    """Training scenes of up to `most` shapes, with captions that name these in a random order."""
    counts = rng.integers(1, max_shapes + 1, batch)
    drawn = [scenes.sample_scene(rng, held_out=False, count=int(count)) for count in counts]
    captions = [scenes.caption_scene(scene, rng.permutation(len(scene.shapes)).tolist()) for scene in drawn]
    ids = [[START_ID, *(VOCABULARY.index(word) for word in caption.split()), END_ID] for caption in captions]
    labels = np.full((batch, max(map(len, ids))), IGNORED_LABEL, np.int64)
    for row, numbers in zip(labels, ids, strict=True):
        row[: len(numbers)] = numbers
    input_ids = np.where(labels == IGNORED_LABEL, PAD_ID, labels)
    hide = (rng.random(input_ids.shape) < hidden_words) & (input_ids != PAD_ID) & (input_ids != START_ID)
    return SceneBatch(
        np.stack([scenes.draw(scene, config.image_size) for scene in drawn]),
        labels,
        np.where(hide, MASK_ID, input_ids),
        np.stack([patch_targets(scene, config.grid) for scene in drawn]),
    )


def patch_targets(scene: Scene, grid: int) -> np.ndarray:
    """(patch, 7): the numbers of SceneBatch.patches; a patch lies in a shape whose box holds its middle."""
    words = np.zeros((grid, grid, len(PATCH_WORDS) + len(scenes.RELATIONS)), np.int64)
    for shape in scene.shapes:
        named = (shape.colour, shape.kind, shape.size)
        relations = {scenes.relation_between(shape, other) for other in scene.shapes if other is not shape}
        words[patches_in(shape.box, (grid, grid))] = [
            *(1 + list(of).index(word) for of, word in zip(PATCH_WORDS, named, strict=True)),
            *(int(relation in relations) for relation in scenes.RELATIONS),
        ]
    return words.reshape(grid * grid, -1)


class PatchClassifiers(nn.Module):
    """One linear layer for each kind of word a patch is taught to name; thrown away after training."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, 1 + len(words)) for words in PATCH_WORDS)
        self.relations = nn.Linear(hidden, len(scenes.RELATIONS))

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """states: (batch, patch, hidden); words: (batch, patch, 7). The mean loss, shapes and background alike."""
        inside = words[..., 0] > 0
        weight = torch.where(inside, 0.5 / inside.sum().clamp(min=1), 0.5 / (~inside).sum().clamp(min=1))
        losses = [
            F.cross_entropy(layer(states).float().flatten(0, 1), words[..., i].flatten(), reduction="none")
            * weight.flatten()
            for i, layer in enumerate(self.layers)
        ]
        standing = F.binary_cross_entropy_with_logits(
            self.relations(states).float(), words[..., len(self.layers) :].float(), reduction="none"
        )
        return torch.stack([*(loss.sum() for loss in losses), (standing.mean(-1) * weight).sum()]).mean()


class _Student(nn.Module):
    """What one run trains, and its state holds: the captioner, and the names of patches beside it."""

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
    """Train a captioner from nothing, continuing where `folder` holds the state of the same run.

    The run is the same if the configuration and the settings but for the number of steps are.
    save_every: seconds between states. evaluate_every: steps between evaluations on held-out scenes.
    Progress goes to `report` and, as one JSON object a line, to the log; the finished model to `folder / "model"`.
    Raises Refused if the folder holds a run with other settings, another run writes to it now, or the decoder has
    other words than the scenes.
    """
    if config.text.vocab_size != len(VOCABULARY) or config.text.max_position_embeddings < MAX_CAPTION_TOKENS:
        raise Refused(
            f"a decoder of {config.text.vocab_size} words and {config.text.max_position_embeddings} positions: "
            f"the scenes have {len(VOCABULARY)} words, and captions of up to {MAX_CAPTION_TOKENS}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder):
        return _train(config, settings, folder, device, save_every, evaluate_every, report)


def _train(
    config: CaptionerConfig, settings: CaptionerSettings, folder: Path, device: torch.device, save_every: float,
    evaluate_every: int, report: Progress,
) -> LoadedCaptioner:  # fmt: skip
    """Train in a folder that this run alone writes to."""
    torch.manual_seed(settings.seed)
    student = _Student(Captioner(config))
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
    """Captions of scenes that are drawn for each batch."""

    units = "scenes"

    def __init__(
        self, student: _Student, loaded: LoadedCaptioner, settings: CaptionerSettings, evaluate_every: int
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
        most = min(1 + 3 * step // max(settings.growth, 1), scenes.MAX_SHAPES)
        batch = scene_batch(
            rng, settings.batch, self.loaded.config, max_shapes=most, hidden_words=settings.hidden_words
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
    student: _Student, batch: SceneBatch, settings: CaptionerSettings, device: torch.device
) -> dict[str, Metric]:
    """Add the gradient of one batch to the parameters; both losses in nats, and the share of relations got right."""
    images, labels, input_ids, patches = (
        torch.from_numpy(array).to(device) for array in (batch.images, batch.labels, batch.input_ids, batch.patches)
    )
    with training_autocast(device):
        states = student.captioner.encode(images)
        logits = student.captioner.text(input_ids, encoder_hidden_states=states, use_cache=False).logits[:, :-1]
        named = student.names(states, patches)
    following = labels[:, 1:]
    relations = torch.isin(following, torch.tensor(RELATION_IDS, device=device))
    weight = torch.where(relations, settings.relation_weight, 1.0) * (following != IGNORED_LABEL)
    losses = F.cross_entropy(logits.float().transpose(1, 2), following, ignore_index=IGNORED_LABEL, reduction="none")
    said = (losses * weight).sum() / weight.sum()
    (said + settings.patch_loss * named).backward()
    right = (logits.argmax(-1) == following)[relations]
    share = {"relations": Metric(right.float().mean())} if len(right) else {}
    return {"words": Metric(said.detach()), "patches": Metric(named.detach()), **share}


# ---------------------------------------------------------------------------- how good it is


def correct_share(loaded: LoadedCaptioner, *, held_out: bool, total: int = 200, seed: int = 777) -> float:
    """The share of scenes, drawn from a seed, whose caption is correct."""
    verdicts = caption_scenes(loaded, evaluation_scenes(total, held_out=held_out, seed=seed))
    return sum(verdict.correct for _, verdict in verdicts) / total


def evaluation_scenes(total: int, *, held_out: bool, seed: int) -> list[Scene]:
    """Scenes of no training batch: these have a seed of three numbers, a batch one of two."""
    rng = np.random.default_rng([seed, int(held_out), 1])
    return [scenes.sample_scene(rng, held_out=held_out) for _ in range(total)]


def caption_scenes(loaded: LoadedCaptioner, shown: Sequence[Scene], batch: int = 50) -> list[tuple[str, CaptionCheck]]:
    """The model's caption of every scene, and the verdict on it."""
    was_training = loaded.model.training
    loaded.model.eval()
    captions: list[str] = []
    for start in range(0, len(shown), batch):
        images = np.stack([scenes.draw(scene, loaded.config.image_size) for scene in shown[start : start + batch]])
        captions += loaded.captions(images)
    loaded.model.train(was_training)
    return [(caption, scenes.check_caption(caption, scene)) for caption, scene in zip(captions, shown, strict=True)]


@dataclass(frozen=True)
class CaptionScore:
    """How a captioner does on one group of scenes.

    correct: share of captions that are right. named: share that name every shape with size, colour and kind, and
    nothing else, whatever they say of relations.
    """

    group: str
    scenes: int
    correct: float
    all_shapes_named: float


def evaluate_captioner(loaded: LoadedCaptioner, total: int, *, seed: int = 2024) -> list[CaptionScore]:
    """Captions of `total` scenes like those of training, and of `total` that hold an unseen combination, by group."""
    groups: dict[str, list[tuple[bool, bool]]] = {}
    for held_out in (False, True):
        shown = evaluation_scenes(total, held_out=held_out, seed=seed)
        for scene, (caption, verdict) in zip(shown, caption_scenes(loaded, shown), strict=True):
            side = "held out" if held_out else "as in training"
            names = [side, f"{side}, {len(scene.shapes)} shape{'s' * (len(scene.shapes) > 1)}"]
            if held_out:
                names.append(f"{side}, {'noisy' if scene.background.noise else 'plain'} background")
            if held_out and states_unseen_combination(caption):
                names.append(f"{side}, the caption says an unseen combination")
            for name in names:
                groups.setdefault(name, []).append((verdict.correct, _names_all_shapes(caption, scene)))
    order = sorted(groups, key=lambda name: (name.startswith("held"), name))
    return [
        CaptionScore(name, len(groups[name]), *(float(share) for share in np.mean(groups[name], axis=0)))
        for name in order
    ]


def states_unseen_combination(caption: str) -> bool:
    """Whether the sentence itself, and not only the scene, holds a combination that training never showed."""
    try:
        said = scenes.parse_caption(caption)
    except Refused:
        return False
    colour, kind = said.shapes[0][1:]
    others = zip(said.shapes[1:], said.relations, strict=True)
    return any(
        scenes.is_unseen(colour, kind, relation) or scenes.is_unseen(*other[1:], scenes.OPPOSITE_RELATIONS[relation])
        for other, relation in others
    )


def _names_all_shapes(caption: str, scene: Scene) -> bool:
    try:
        return sorted(scenes.parse_caption(caption).shapes) == sorted(shape.words for shape in scene.shapes)
    except Refused:
        return False
