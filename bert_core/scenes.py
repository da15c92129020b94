"""Pictures with known answers: one to three coloured shapes from a seed, and the sentences that are true of them.

Lengths are shares of the side of the picture, from its left and its top; a box is (left, top, right, bottom).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from bert_core.refused import Refused

COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (212, 40, 40),
    "green": (40, 160, 66),
    "blue": (40, 92, 214),
    "yellow": (238, 212, 44),
    "purple": (138, 66, 182),
    "orange": (246, 138, 28),
}
SHAPE_KINDS = ("circle", "square", "triangle", "cross", "star")
SIZES: Mapping[str, tuple[float, float]] = {"small": (0.16, 0.19), "large": (0.27, 0.33)}
RELATIONS = ("above", "below", "left of", "right of")
OPPOSITE_RELATIONS: Mapping[str, str] = {
    "above": "below",
    "below": "above",
    "left of": "right of",
    "right of": "left of",
}
MAX_SHAPES = 3

# Word level, in the order of a BERT's vocab.txt: a sentence starts with [CLS] and ends with [SEP].
VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "and", "of"),
    *SIZES, *COLOURS, *SHAPE_KINDS, *("above", "below", "left", "right"),
)  # fmt: skip
MAX_CAPTION_TOKENS = 2 + 4 * MAX_SHAPES + 2 * 2 + 1  # [CLS], [SEP], three shapes, two relations of two words, "and"

MARGIN = 0.02  # to the edge of the picture
MIN_GAP = 0.05  # between two shapes, in the direction that tells them apart
COLOUR_JITTER = 14  # how far a shade may be from its colour, in each channel
_ARM = 1 / 3  # thickness of a cross, as a share of its width
_STAR_INNER = 0.42  # radius of a star's notches, as a share of that of its tips


# ---------------------------------------------------------------------------- scenes


@dataclass(frozen=True)
class Shape:
    """One thing in a picture.

    kind, colour, size: words of SHAPE_KINDS, COLOURS and SIZES. shade: the very colour it is painted in.
    box: the square it is drawn in.
    """

    kind: str
    colour: str
    size: str
    box: tuple[float, float, float, float]
    shade: tuple[int, int, int]

    @property
    def words(self) -> tuple[str, str, str]:
        """Size, colour and kind, in the order of a caption."""
        return self.size, self.colour, self.kind


@dataclass(frozen=True)
class Background:
    """What shapes stand on: one colour, and if noise is above 0 a slope of light and a grain of that strength.

    noise: standard deviation of the grain in steps of 255. seed: of the grain and the slope.
    """

    colour: tuple[int, int, int]
    noise: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Scene:
    """Shapes that do not touch, on a background."""

    shapes: tuple[Shape, ...]
    background: Background


def random_scene(
    rng: np.random.Generator,
    *,
    count: int | None = None,
    named: Sequence[tuple[str, str, str]] | None = None,
    noisy: bool | None = None,
) -> Scene:
    """A scene whose shapes can each be told from the others by size, colour and kind.

    count: shapes, 1 to 3. named: their (size, colour, kind), instead. noisy: the background; None leaves it to chance.
    Raises Refused for a count, a word or a repetition that no scene has.
    """
    if named is None:
        count = int(rng.integers(1, MAX_SHAPES + 1)) if count is None else count
        _check_count(count)
        everything = list(itertools.product(SIZES, COLOURS, SHAPE_KINDS))
        named = [everything[i] for i in rng.choice(len(everything), count, replace=False)]
    else:
        _check_count(len(named))
        named = parse_shape_names([" ".join(words) for words in named])
    boxes = None
    while boxes is None:
        boxes = _place([float(rng.uniform(*SIZES[size])) for size, _, _ in named], rng)
    shapes = tuple(
        Shape(kind, colour, size, box, _shade(COLOURS[colour], rng))
        for (size, colour, kind), box in zip(named, boxes, strict=True)
    )
    grey = int(rng.integers(40, 226))
    tint = rng.integers(-10, 11, 3)
    background = (int(grey + tint[0]), int(grey + tint[1]), int(grey + tint[2]))
    noisy = bool(rng.integers(2)) if noisy is None else noisy
    return Scene(
        shapes, Background(background, float(rng.uniform(4, 16)) if noisy else 0.0, int(rng.integers(1 << 31)))
    )


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_SHAPES:
        raise Refused(f"a scene of {count} shapes: it has 1 to {MAX_SHAPES}")


def all_shape_names() -> list[str]:
    """What a shape can be called: "small red circle", and so on."""
    return [" ".join(words) for words in itertools.product(SIZES, COLOURS, SHAPE_KINDS)]


def parse_shape_names(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """The (size, colour, kind) of shapes that can be in one scene together.

    Raises Refused for more than a scene holds, a name that is no shape's, or one that is there twice.
    """
    if len(names) > MAX_SHAPES:
        _check_count(len(names))
    words: list[tuple[str, str, str]] = []
    for name in names:
        if name not in all_shape_names():
            raise Refused(f"{name!r:.60} is not a shape: write it as in 'small red circle'")
        size, colour, kind = name.split()
        if (size, colour, kind) in words:
            raise Refused(f"two shapes are called {name!r}: a sentence could not tell them apart")
        words.append((size, colour, kind))
    return words


def _place(sides: Sequence[float], rng: np.random.Generator) -> list[tuple[float, float, float, float]] | None:
    """A box for each side, any two of them clearly apart in one direction; None where there was no room."""
    boxes: list[tuple[float, float, float, float]] = []
    for side in sides:
        for _ in range(30):
            left, top = (float(value) for value in rng.uniform(MARGIN, 1 - MARGIN - side, 2))
            box = (left, top, left + side, top + side)
            if all(max(_gaps(box, other)) >= MIN_GAP for other in boxes):
                boxes.append(box)
                break
        else:
            return None
    return boxes


def _shade(colour: tuple[int, int, int], rng: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = (
        int(np.clip(channel + offset, 0, 255))
        for channel, offset in zip(colour, rng.integers(-COLOUR_JITTER, COLOUR_JITTER + 1, 3), strict=True)
    )
    return red, green, blue


# ---------------------------------------------------------------------------- pictures


def draw(scene: Scene, size: int) -> np.ndarray:
    """The picture: uint8 (size, size, 3), red, green and blue; edges are blended with what is behind them.

    The same scene gives the same bytes every time. Raises Refused for a picture of fewer than 16 pixels.
    """
    if size < 16:
        raise Refused(f"a picture of {size} pixels a side: at least 16")
    canvas = _background(scene.background, size)
    for shape in scene.shapes:
        left, top, right, bottom = (edge * size for edge in shape.box)
        x0, y0 = max(math.floor(left) - 1, 0), max(math.floor(top) - 1, 0)
        x1, y1 = min(math.ceil(right) + 1, size), min(math.ceil(bottom) + 1, size)
        half = (right - left) / 2
        x = np.arange(x0, x1, dtype=np.float32) + np.float32(0.5 - (left + right) / 2)
        y = np.arange(y0, y1, dtype=np.float32) + np.float32(0.5 - (top + bottom) / 2)
        # Distance to the outline in pixels, negative inside: how much of the pixel is covered, near enough.
        covered = np.clip(0.5 - _DISTANCE[shape.kind](x[None, :], y[:, None], half), 0, 1)[..., None]
        window = canvas[y0:y1, x0:x1]
        window += covered * (np.array(shape.shade, np.float32) - window)
    picture: np.ndarray = np.rint(canvas).clip(0, 255).astype(np.uint8)
    return picture


def coverage(scene: Scene, size: int = 192) -> float:
    """The share of the picture that shapes cover, from 0 to 1: the outlines, not the boxes."""
    bare = Scene(
        tuple(Shape(s.kind, s.colour, s.size, s.box, (255, 255, 255)) for s in scene.shapes), Background((0, 0, 0))
    )
    return float(draw(bare, size)[..., 0].mean() / 255)


def _background(background: Background, size: int) -> np.ndarray:
    canvas = np.empty((size, size, 3), np.float32)
    canvas[:] = background.colour
    if background.noise:
        rng = np.random.default_rng(background.seed)
        across, down = rng.uniform(-2, 2, 2) * background.noise
        ramp = np.linspace(-0.5, 0.5, size, dtype=np.float32)
        canvas += (np.float32(across) * ramp[None, :] + np.float32(down) * ramp[:, None])[..., None]
        canvas += np.float32(background.noise) * rng.standard_normal(canvas.shape, np.float32)
    return canvas


# Each takes x (1, columns), y (rows, 1) from the middle of the box, y downwards, and half the width of the box.


def _circle(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    distance: np.ndarray = np.sqrt(x * x + y * y) - half
    return distance


def _square(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    distance: np.ndarray = np.maximum(np.abs(x), np.abs(y)) - half
    return distance


def _triangle(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    # The tip is at the middle of the upper edge: each flank runs half a width across for a whole one down.
    distance: np.ndarray = np.maximum(y - half, (2 * np.abs(x) - y - half) / math.sqrt(5))
    return distance


def _cross(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    arm, x, y = _ARM * half, np.abs(x), np.abs(y)
    distance: np.ndarray = np.minimum(np.maximum(x - half, y - arm), np.maximum(x - arm, y - half))
    return distance


def _star(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    # As wide as the box; ten equal wedges, mirror images of each other, each with one edge from a tip to a notch.
    tip = half / math.sin(math.radians(72))
    y = y - tip * (1 - math.cos(math.radians(36))) / 2
    fifth = math.radians(72)
    angle = np.abs((np.arctan2(x, -y) + fifth / 2) % fifth - fifth / 2)
    radius = np.sqrt(x * x + y * y)
    across, along = radius * np.sin(angle), radius * np.cos(angle)
    notch_x, notch_y = _STAR_INNER * tip * math.sin(fifth / 2), _STAR_INNER * tip * math.cos(fifth / 2)
    edge_x, edge_y = notch_x, notch_y - tip
    distance: np.ndarray = (edge_x * (along - tip) - edge_y * across) / math.hypot(edge_x, edge_y)
    return distance


_DISTANCE: Mapping[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "circle": _circle, "square": _square, "triangle": _triangle, "cross": _cross, "star": _star,
}  # fmt: skip


# ---------------------------------------------------------------------------- sentences


def _gaps(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float, float]:
    """How far box a lies above, below, left of and right of box b; negative where it does not."""
    return b[1] - a[3], a[1] - b[3], b[0] - a[2], a[0] - b[2]


def relation_holds(a: Shape, relation: str, b: Shape) -> bool:
    """Whether a stands in this relation to b: all of it, so that a is above b where it ends before b begins."""
    return _gaps(a.box, b.box)[RELATIONS.index(relation)] >= 0


def relation_between(a: Shape, b: Shape) -> str:
    """The relation of a to b that is the easiest to see: the one with the widest gap."""
    gaps = _gaps(a.box, b.box)
    return RELATIONS[gaps.index(max(gaps))]


def caption_scene(scene: Scene, order: Sequence[int] | None = None) -> str:
    """A true sentence that names every shape.

    "a small red circle", "... above a large blue square", "... and left of a small green star"; both relations are
    about the shape that is named first. order: the shapes as they are named; None takes them as they stand.
    """
    first, *others = [scene.shapes[i] for i in (range(len(scene.shapes)) if order is None else order)]
    said = [f"{relation_between(first, other)} a {' '.join(other.words)}" for other in others]
    return " ".join([f"a {' '.join(first.words)}", *[" and ".join(said)] * bool(said)])


@dataclass(frozen=True)
class CaptionCheck:
    """What a caption is worth.

    correct: it names every shape with size, colour and kind, nothing else, and each relation that it states is true.
    named: for each shape the caption names, its number in the scene, or None for one that is not there.
    reason: what is wrong, in a few words; empty if nothing is.
    """

    correct: bool
    named: tuple[int | None, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Statement:
    """A caption taken apart: (size, colour, kind) of each shape, and the relations of the first to the others."""

    shapes: tuple[tuple[str, str, str], ...]
    relations: tuple[str, ...]


def parse_caption(caption: str) -> Statement:
    """Raises Refused if the words are not a sentence of `caption_of`'s kind."""
    found = _grammar().fullmatch(" ".join(caption.split()))
    if found is None:
        raise Refused(f"{caption!r:.120} is no caption: as in 'a small red circle above a large blue square'")
    parts = found.groups()
    shapes = [part for part in parts[::2] if part is not None]
    relations = [part for part in parts[1::2] if part is not None]
    return Statement(tuple((a, b, c) for a, b, c in (shape.split() for shape in shapes)), tuple(relations))


@cache
def _grammar() -> re.Pattern[str]:
    size, colour, kind = ("|".join(words) for words in (SIZES, COLOURS, SHAPE_KINDS))
    shape = f"a ((?:{size}) (?:{colour}) (?:{kind}))"
    relation = f"({'|'.join(RELATIONS)})"
    return re.compile(f"{shape}(?: {relation} {shape}(?: and {relation} {shape})?)?")


def check_caption(caption: str, scene: Scene) -> CaptionCheck:
    """Whether a caption is right about a scene."""
    try:
        statement = parse_caption(caption)
    except Refused:
        return CaptionCheck(False, reason="not a sentence of this kind")
    there = {shape.words: number for number, shape in enumerate(scene.shapes)}
    named = tuple(there.get(words) for words in statement.shapes)
    for number, words in zip(named, statement.shapes, strict=True):
        if number is None:
            return CaptionCheck(False, named, f"there is no {' '.join(words)}")
    shapes = [scene.shapes[number] for number in named if number is not None]
    if len(set(named)) < len(named):
        return CaptionCheck(False, named, "one shape is named twice")
    if len(shapes) < len(scene.shapes):
        return CaptionCheck(
            False, named, f"{len(scene.shapes) - len(shapes)} of {len(scene.shapes)} shapes are not named"
        )
    for relation, other in zip(statement.relations, shapes[1:], strict=True):
        if not relation_holds(shapes[0], relation, other):
            return CaptionCheck(False, named, f"the {' '.join(shapes[0].words)} is not {relation} the other")
    return CaptionCheck(True, named)


# ---------------------------------------------------------------------------- what is held out


def is_unseen(colour: str, kind: str, relation: str) -> bool:
    """Whether training never shows a shape of this colour and kind in this relation to another one: 15 of 120.

    Of a colour and kind at most one relation is unseen, so that every word, and every pair of words, is seen.
    """
    c, k, r = list(COLOURS).index(colour), SHAPE_KINDS.index(kind), RELATIONS.index(relation)
    return (c + 2 * k + 3 * r) % 8 == 0


def true_combinations(scene: Scene) -> Iterator[tuple[str, str, str]]:
    """Every (colour, kind, relation to another shape) that is true of a scene."""
    for a, b in itertools.permutations(scene.shapes, 2):
        for relation in RELATIONS:
            if relation_holds(a, relation, b):
                yield a.colour, a.kind, relation


def is_held_out(scene: Scene) -> bool:
    """Whether a scene holds a combination that training never shows."""
    return any(is_unseen(*combination) for combination in true_combinations(scene))


def sample_scene(rng: np.random.Generator, *, held_out: bool, count: int | None = None) -> Scene:
    """A random scene of one side of the split: for training, or with at least one unseen combination.

    Raises Refused for one shape that is held out: it stands in no relation.
    """
    if held_out and count == 1:
        raise Refused("a scene of one shape cannot be held out: what is unseen is a relation to another shape")
    while True:
        scene = random_scene(rng, count=count)
        if is_held_out(scene) == held_out:
            return scene
