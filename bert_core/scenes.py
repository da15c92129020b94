"""Synthetic pictures of one to three coloured shapes, drawn from a seed, and captions that describe them correctly.

Lengths and coordinates are shares of the picture's side, measured from the left and the top. A box is
(left, top, right, bottom).
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

# Whole words, in the order of a vocab.txt. An encoded caption starts with [CLS] and ends with [SEP].
VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "and", "of"),
    *SIZES, *COLOURS, *SHAPE_KINDS, *("above", "below", "left", "right"),
)  # fmt: skip
MAX_CAPTION_TOKENS = 2 + 4 * MAX_SHAPES + 2 * 2 + 1  # [CLS], [SEP], three shapes, two relations of two words, "and"

MARGIN = 0.02  # minimum distance of a shape to the edge of the picture
MIN_GAP = 0.05  # minimum distance between two shapes in the direction of their relation
COLOUR_JITTER = 14  # maximum difference between a shade and its colour in each channel, of 255
_ARM = 1 / 3  # thickness of a cross divided by its width
_STAR_INNER = 0.42  # radius of a star's notches divided by that of its tips


# ---------------------------------------------------------------------------- scenes


@dataclass(frozen=True)
class Shape:
    """A shape in a picture.

    kind, colour, size: words of SHAPE_KINDS, COLOURS and SIZES.
    box: the square that encloses it, (left, top, right, bottom).
    shade: its exact colour in the picture, (red, green, blue) from 0 to 255.
    """

    kind: str
    colour: str
    size: str
    box: tuple[float, float, float, float]
    shade: tuple[int, int, int]

    @property
    def words(self) -> tuple[str, str, str]:
        """Size, colour and kind, in the word order of a caption."""
        return self.size, self.colour, self.kind


@dataclass(frozen=True)
class Background:
    """The background of a picture: one colour, with a brightness gradient and noise if `noise` is above 0.

    colour: (red, green, blue) from 0 to 255.
    noise: standard deviation of the noise, in steps of 255. The gradient is proportional to it.
    seed: random seed of the noise and the gradient.
    """

    colour: tuple[int, int, int]
    noise: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Scene:
    """One to three shapes that do not touch, on a background."""

    shapes: tuple[Shape, ...]
    background: Background


def random_scene(
    rng: np.random.Generator,
    *,
    count: int | None = None,
    shape_words: Sequence[tuple[str, str, str]] | None = None,
    noisy: bool | None = None,
) -> Scene:
    """Draw a random scene in which no two shapes have the same size, colour and kind.

    count: number of shapes, 1 to 3; None draws it.
    shape_words: (size, colour, kind) of each shape, in place of `count`; None draws them.
    noisy: whether the background has noise; None draws it.
    Raises Refused for another count, an unknown word or two equal shapes.
    """
    if shape_words is None:
        count = int(rng.integers(1, MAX_SHAPES + 1)) if count is None else count
        _check_count(count)
        combinations = list(itertools.product(SIZES, COLOURS, SHAPE_KINDS))
        shape_words = [combinations[i] for i in rng.choice(len(combinations), count, replace=False)]
    else:
        _check_count(len(shape_words))
        shape_words = parse_shape_names([" ".join(words) for words in shape_words])
    boxes = None
    while boxes is None:
        boxes = _place_boxes([float(rng.uniform(*SIZES[size])) for size, _, _ in shape_words], rng)
    shapes = tuple(
        Shape(kind, colour, size, box, _shade(COLOURS[colour], rng))
        for (size, colour, kind), box in zip(shape_words, boxes, strict=True)
    )
    grey = int(rng.integers(40, 226))
    tint = rng.integers(-10, 11, 3)
    background = (int(grey + tint[0]), int(grey + tint[1]), int(grey + tint[2]))
    noisy = bool(rng.integers(2)) if noisy is None else noisy
    return Scene(
        shapes, Background(background, float(rng.uniform(4, 16)) if noisy else 0.0, int(rng.integers(1 << 31)))
    )


def _check_count(count: int) -> None:
    """Raise Refused unless a scene can have this number of shapes."""
    if not 1 <= count <= MAX_SHAPES:
        raise Refused(f"a scene of {count} shapes is not possible: a scene has 1 to {MAX_SHAPES} shapes")


def all_shape_names() -> list[str]:
    """Return the names of all possible shapes, such as "small red circle"."""
    return [" ".join(words) for words in itertools.product(SIZES, COLOURS, SHAPE_KINDS)]


def parse_shape_names(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (size, colour, kind) of shapes that may occur in one scene.

    names: such as "small red circle".
    Raises Refused for more names than a scene has shapes, a name that is not that of a shape, or two equal names.
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


def _place_boxes(sides: Sequence[float], rng: np.random.Generator) -> list[tuple[float, float, float, float]] | None:
    """Return a random box for each side length, each pair with the minimum gap; None if an attempt finds no place."""
    boxes: list[tuple[float, float, float, float]] = []
    for side in sides:
        for _ in range(30):
            left, top = (float(value) for value in rng.uniform(MARGIN, 1 - MARGIN - side, 2))
            box = (left, top, left + side, top + side)
            if all(max(_gaps(box, placed_box)) >= MIN_GAP for placed_box in boxes):
                boxes.append(box)
                break
        else:
            return None
    return boxes


def _shade(colour: tuple[int, int, int], rng: np.random.Generator) -> tuple[int, int, int]:
    """Return a random colour near the given one, (red, green, blue)."""
    red, green, blue = (
        int(np.clip(channel + offset, 0, 255))
        for channel, offset in zip(colour, rng.integers(-COLOUR_JITTER, COLOUR_JITTER + 1, 3), strict=True)
    )
    return red, green, blue


# ---------------------------------------------------------------------------- pictures


def draw(scene: Scene, size: int) -> np.ndarray:
    """Draw a scene with antialiased edges; the same scene always gives the same bytes.

    size: side of the picture in pixels.
    Returns uint8 (size, size, 3): rows, columns, and red, green and blue.
    Raises Refused for a size below 16.
    """
    if size < 16:
        raise Refused(f"the picture has a side of {size} pixels: it must have at least 16")
    canvas = _draw_background(scene.background, size)
    for shape in scene.shapes:
        left, top, right, bottom = (edge * size for edge in shape.box)
        x0, y0 = max(math.floor(left) - 1, 0), max(math.floor(top) - 1, 0)
        x1, y1 = min(math.ceil(right) + 1, size), min(math.ceil(bottom) + 1, size)
        half = (right - left) / 2
        x = np.arange(x0, x1, dtype=np.float32) + np.float32(0.5 - (left + right) / 2)
        y = np.arange(y0, y1, dtype=np.float32) + np.float32(0.5 - (top + bottom) / 2)
        # The signed distance to the outline in pixels approximates the covered share of a pixel at the edge.
        coverage_mask = np.clip(0.5 - _DISTANCE[shape.kind](x[None, :], y[:, None], half), 0, 1)[..., None]
        window = canvas[y0:y1, x0:x1]
        window += coverage_mask * (np.array(shape.shade, np.float32) - window)
    picture: np.ndarray = np.rint(canvas).clip(0, 255).astype(np.uint8)
    return picture


def coverage(scene: Scene, size: int = 192) -> float:
    """Return the share of the picture's area that the shapes themselves cover, not their boxes, from 0 to 1.

    size: side of the picture in pixels that the share is measured on.
    """
    silhouettes = Scene(
        tuple(Shape(s.kind, s.colour, s.size, s.box, (255, 255, 255)) for s in scene.shapes), Background((0, 0, 0))
    )
    return float(draw(silhouettes, size)[..., 0].mean() / 255)


def _draw_background(background: Background, size: int) -> np.ndarray:
    """Return the background as float32 (row, column, 3), from about 0 to 255."""
    canvas = np.empty((size, size, 3), np.float32)
    canvas[:] = background.colour
    if background.noise:
        rng = np.random.default_rng(background.seed)
        slope_x, slope_y = rng.uniform(-2, 2, 2) * background.noise
        ramp = np.linspace(-0.5, 0.5, size, dtype=np.float32)
        canvas += (np.float32(slope_x) * ramp[None, :] + np.float32(slope_y) * ramp[:, None])[..., None]
        canvas += np.float32(background.noise) * rng.standard_normal(canvas.shape, np.float32)
    return canvas


# The following functions return the signed distance to the outline of a shape in pixels, (rows, columns), which is
# negative inside. x: (1, columns). y: (rows, 1), downwards. Both start at the centre of the box. half: half its width.


def _circle(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    distance: np.ndarray = np.sqrt(x * x + y * y) - half
    return distance


def _square(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    distance: np.ndarray = np.maximum(np.abs(x), np.abs(y)) - half
    return distance


def _triangle(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    # The tip is at the middle of the upper edge, and each lower corner is half a width beside and a width below it.
    distance: np.ndarray = np.maximum(y - half, (2 * np.abs(x) - y - half) / math.sqrt(5))
    return distance


def _cross(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    arm, x, y = _ARM * half, np.abs(x), np.abs(y)
    distance: np.ndarray = np.minimum(np.maximum(x - half, y - arm), np.maximum(x - arm, y - half))
    return distance


def _star(x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    # The star is as wide as the box. It consists of ten wedges, mirror images of each other, each with one edge from a
    # tip to a notch.
    tip = half / math.sin(math.radians(72))
    y = y - tip * (1 - math.cos(math.radians(36))) / 2
    fifth = math.radians(72)
    angle = np.abs((np.arctan2(x, -y) + fifth / 2) % fifth - fifth / 2)
    radius = np.sqrt(x * x + y * y)
    wedge_x, wedge_y = radius * np.sin(angle), radius * np.cos(angle)
    notch_x, notch_y = _STAR_INNER * tip * math.sin(fifth / 2), _STAR_INNER * tip * math.cos(fifth / 2)
    edge_x, edge_y = notch_x, notch_y - tip
    distance: np.ndarray = (edge_x * (wedge_y - tip) - edge_y * wedge_x) / math.hypot(edge_x, edge_y)
    return distance


_DISTANCE: Mapping[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "circle": _circle, "square": _square, "triangle": _triangle, "cross": _cross, "star": _star,
}  # fmt: skip


# ---------------------------------------------------------------------------- captions


def _gaps(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the distances by which box a is above, below, left of and right of box b; negative if it is not."""
    return b[1] - a[3], a[1] - b[3], b[0] - a[2], a[0] - b[2]


def relation_holds(a: Shape, relation: str, b: Shape) -> bool:
    """Return whether all of shape a is, for example, above all of shape b. relation: one of `RELATIONS`."""
    return _gaps(a.box, b.box)[RELATIONS.index(relation)] >= 0


def relation_between(a: Shape, b: Shape) -> str:
    """Return the relation of shape a to shape b with the widest gap, which is the easiest to see."""
    gaps = _gaps(a.box, b.box)
    return RELATIONS[gaps.index(max(gaps))]


def caption_scene(scene: Scene, order: Sequence[int] | None = None) -> str:
    """Return a true sentence that names every shape.

    Examples: "a small red circle", "... above a large blue square", "... and left of a small green star". Both
    relations are those of the first shape to the others.
    order: indices of the shapes in the order of the sentence; None for the order of the scene.
    """
    first, *second_shapes = [scene.shapes[i] for i in (range(len(scene.shapes)) if order is None else order)]
    phrases = [f"{relation_between(first, shape)} a {' '.join(shape.words)}" for shape in second_shapes]
    return " ".join([f"a {' '.join(first.words)}", *[" and ".join(phrases)] * bool(phrases)])


@dataclass(frozen=True)
class CaptionCheck:
    """Whether a caption describes a scene correctly.

    correct: whether the caption names every shape by size, colour and kind, and no other, and all its relations are
        true.
    shape_indices: for each shape in the caption, its index in the scene, or None if the scene does not have it.
    reason: a short description of the mistake; empty if there is none.
    """

    correct: bool
    shape_indices: tuple[int | None, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Statement:
    """The content of a caption: (size, colour, kind) of each shape, and the relations of the first to the others."""

    shapes: tuple[tuple[str, str, str], ...]
    relations: tuple[str, ...]


def parse_caption(caption: str) -> Statement:
    """Return the content of a caption. Raises Refused if it is not a sentence as `caption_scene` writes it."""
    match = _grammar().fullmatch(" ".join(caption.split()))
    if match is None:
        raise Refused(f"{caption!r:.120} is no caption: as in 'a small red circle above a large blue square'")
    parts = match.groups()
    shapes = [part for part in parts[::2] if part is not None]
    relations = [part for part in parts[1::2] if part is not None]
    return Statement(tuple((a, b, c) for a, b, c in (shape.split() for shape in shapes)), tuple(relations))


@cache
def _grammar() -> re.Pattern[str]:
    """Return a regular expression for captions, with alternating groups for shapes and relations."""
    size, colour, kind = ("|".join(words) for words in (SIZES, COLOURS, SHAPE_KINDS))
    shape = f"a ((?:{size}) (?:{colour}) (?:{kind}))"
    relation = f"({'|'.join(RELATIONS)})"
    return re.compile(f"{shape}(?: {relation} {shape}(?: and {relation} {shape})?)?")


def check_caption(caption: str, scene: Scene) -> CaptionCheck:
    """Return whether a caption describes a scene correctly, and why not."""
    try:
        statement = parse_caption(caption)
    except Refused:
        return CaptionCheck(False, reason="not a sentence of this kind")
    index_by_words = {shape.words: index for index, shape in enumerate(scene.shapes)}
    shape_indices = tuple(index_by_words.get(words) for words in statement.shapes)
    for index, words in zip(shape_indices, statement.shapes, strict=True):
        if index is None:
            return CaptionCheck(False, shape_indices, f"there is no {' '.join(words)}")
    shapes = [scene.shapes[index] for index in shape_indices if index is not None]
    if len(set(shape_indices)) < len(shape_indices):
        return CaptionCheck(False, shape_indices, "one shape is named twice")
    if len(shapes) < len(scene.shapes):
        missing_count = len(scene.shapes) - len(shapes)
        return CaptionCheck(False, shape_indices, f"{missing_count} of {len(scene.shapes)} shapes are not named")
    for relation, second_shape in zip(statement.relations, shapes[1:], strict=True):
        if not relation_holds(shapes[0], relation, second_shape):
            reason = f"the {' '.join(shapes[0].words)} is not {relation} the other"
            return CaptionCheck(False, shape_indices, reason)
    return CaptionCheck(True, shape_indices)


# ---------------------------------------------------------------------------- held-out combinations


def is_unseen(colour: str, kind: str, relation: str) -> bool:
    """Return whether no training scene has a shape of this colour and kind in this relation to another shape.

    This holds for 15 of 120 combinations. Each colour and kind has at most one unseen relation, so that training
    includes every word and every pair of words.
    """
    c, k, r = list(COLOURS).index(colour), SHAPE_KINDS.index(kind), RELATIONS.index(relation)
    return (c + 2 * k + 3 * r) % 8 == 0


def true_combinations(scene: Scene) -> Iterator[tuple[str, str, str]]:
    """Yield (colour, kind, relation to another shape) for every relation that is true in a scene."""
    for a, b in itertools.permutations(scene.shapes, 2):
        for relation in RELATIONS:
            if relation_holds(a, relation, b):
                yield a.colour, a.kind, relation


def is_held_out(scene: Scene) -> bool:
    """Return whether a scene has a combination that no training scene has."""
    return any(is_unseen(*combination) for combination in true_combinations(scene))


def sample_scene(rng: np.random.Generator, *, held_out: bool, count: int | None = None) -> Scene:
    """Draw a random scene of the training split or of the held-out split.

    held_out: whether the scene must have an unseen combination, or must have none.
    count: number of shapes, 1 to 3; None draws it.
    Raises Refused for a held-out scene with one shape, which has no relation.
    """
    if held_out and count == 1:
        raise Refused(
            "a scene of one shape cannot be held out: an unseen combination is a relation to another shape, so count "
            f"must be 2 to {MAX_SHAPES}"
        )
    while True:
        scene = random_scene(rng, count=count)
        if is_held_out(scene) == held_out:
            return scene
