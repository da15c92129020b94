"""Drawn scenes, the sentences that are true of them, and what training never sees."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from bert_core.scenes import (
    COLOURS,
    MAX_CAPTION_TOKENS,
    OPPOSITE_RELATIONS,
    RELATIONS,
    SHAPE_KINDS,
    SIZES,
    VOCABULARY,
    Background,
    Scene,
    Shape,
    caption_scene,
    check_caption,
    coverage,
    draw,
    is_held_out,
    is_unseen,
    parse_caption,
    random_scene,
    relation_between,
    relation_holds,
    sample_scene,
    true_combinations,
)
from bert_core.tokenizer import UNKNOWN, Tokenizer

BLACK, WHITE = (0, 0, 0), (255, 255, 255)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """Two thousand random scenes."""
    rng = np.random.default_rng(0)
    return [random_scene(rng) for _ in range(2000)]


def one(kind: str, box: tuple[float, float, float, float] = (0.25, 0.25, 0.75, 0.75)) -> Scene:
    """A single white shape on black."""
    return Scene((Shape(kind, "red", "large", box, WHITE),), Background(BLACK))


def shape_at(left: float, top: float, words: str = "small red circle") -> Shape:
    """A shape 0.2 wide, with its upper left corner at a place."""
    size, colour, kind = words.split()
    return Shape(kind, colour, size, (left, top, left + 0.2, top + 0.2), COLOURS[colour])


# ---------------------------------------------------------------------------- pictures


def test_the_same_seed_draws_the_same_picture() -> None:
    """Scene and bytes follow from the seed alone, the grain included; another seed gives another picture."""
    first, again, other = (draw(random_scene(np.random.default_rng(seed), noisy=True), 64) for seed in (3, 3, 4))
    assert first.shape == (64, 64, 3) and first.dtype == np.uint8
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("kind", SHAPE_KINDS)
def test_a_shape_fills_its_box_and_nothing_outside(kind: str) -> None:
    """The outermost painted pixels lie on the edges of the box; a star is a twentieth less high than wide."""
    painted = draw(one(kind), 200)[..., 0] > 127
    rows, columns = np.nonzero(painted.any(1))[0], np.nonzero(painted.any(0))[0]
    assert (columns[0], columns[-1]) == pytest.approx((50, 149), abs=2)
    assert (rows[0], rows[-1]) == pytest.approx((50, 149), abs=5 if kind == "star" else 1)
    assert not draw(one(kind), 200)[..., 0][:48].any()


def test_areas_are_those_of_geometry() -> None:
    """Square, circle, triangle and cross of side 1/2 cover 1/4, pi/16, 1/8 and 5/36 of the picture."""
    expected = {"square": 1 / 4, "circle": math.pi / 16, "triangle": 1 / 8, "cross": 5 / 36}
    assert {kind: coverage(one(kind)) for kind in expected} == pytest.approx(expected, rel=0.02)


def test_edges_are_blended() -> None:
    """An edge that cuts a pixel in half paints it half: no stairs."""
    values = draw(one("square", (0.25, 0.25, 0.75 + 0.5 / 64, 0.75)), 64)[32, :, 0].tolist()
    assert (values[47], values[48], values[49]) == (255, pytest.approx(127, abs=2), 0)


def test_shapes_keep_clear_of_each_other_and_cover_little(scenes: list[Scene]) -> None:
    """No two boxes overlap, all lie in the picture, and shapes cover less than a tenth of it on average."""
    for scene in scenes:
        assert all(0 <= edge <= 1 for shape in scene.shapes for edge in shape.box)
        for a, b in itertools.combinations(scene.shapes, 2):
            assert a.box[2] < b.box[0] or b.box[2] < a.box[0] or a.box[3] < b.box[1] or b.box[3] < a.box[1]
    assert 0.05 < np.mean([coverage(scene, 96) for scene in scenes]) <= 0.10


def test_scenes_use_every_word_and_both_backgrounds(scenes: list[Scene]) -> None:
    """One to three shapes, each size, colour and kind, plain and noisy: all about equally often."""
    shapes = [shape for scene in scenes for shape in scene.shapes]
    for values, allowed in (
        ([shape.size for shape in shapes], SIZES),
        ([shape.colour for shape in shapes], COLOURS),
        ([shape.kind for shape in shapes], SHAPE_KINDS),
        ([len(scene.shapes) for scene in scenes], (1, 2, 3)),
        ([scene.background.noise > 0 for scene in scenes], (False, True)),
    ):
        shares = {value: values.count(value) / len(values) for value in allowed}
        assert sum(shares.values()) == pytest.approx(1)
        assert all(abs(share * len(allowed) - 1) < 0.2 for share in shares.values()), shares


def test_a_scene_can_be_composed() -> None:
    """The shapes that were named are the shapes that are there, in that order."""
    wanted = [("small", "red", "star"), ("large", "blue", "cross")]
    scene = random_scene(np.random.default_rng(0), shape_words=wanted, noisy=False)
    assert [shape.words for shape in scene.shapes] == wanted and scene.background.noise == 0


def test_what_no_scene_can_be_is_one_sentence() -> None:
    """Too many shapes, a word that is none, two shapes of one name, a picture without room: each is said."""
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="a scene of 4 shapes is not possible: a scene has 1 to 3"):
        random_scene(rng, count=4)
    with pytest.raises(ValueError, match="'small pink star' is not a shape: write it as in 'small red circle'"):
        random_scene(rng, shape_words=[("small", "pink", "star")])
    with pytest.raises(ValueError, match="two shapes are called 'small red star'"):
        random_scene(rng, shape_words=[("small", "red", "star")] * 2)
    with pytest.raises(ValueError, match="the picture has a side of 8 pixels: it must have at least 16"):
        draw(one("circle"), 8)


# ---------------------------------------------------------------------------- sentences


def test_captions_read_as_they_should() -> None:
    """One, two and three shapes, worked by hand; the relation is the one with the widest gap."""
    circle, square = shape_at(0.1, 0.1), shape_at(0.2, 0.7, "large blue square")
    star = shape_at(0.75, 0.2, "small green star")
    ground = Background(BLACK)
    assert caption_scene(Scene((circle,), ground)) == "a small red circle"
    assert caption_scene(Scene((circle, square), ground)) == "a small red circle above a large blue square"
    assert (
        caption_scene(Scene((circle, square, star), ground))
        == "a small red circle above a large blue square and left of a small green star"
    )
    assert (
        caption_scene(Scene((circle, square, star), ground), (1, 2, 0))
        == "a large blue square left of a small green star and below a small red circle"
    )


def test_relations_come_in_opposites(scenes: list[Scene]) -> None:
    """If a is above b then b is below a, never both at once, and the easiest relation holds."""
    for scene in scenes[:500]:
        for a, b in itertools.permutations(scene.shapes, 2):
            for relation in RELATIONS:
                assert relation_holds(a, relation, b) == relation_holds(b, OPPOSITE_RELATIONS[relation], a)
                assert not (relation_holds(a, relation, b) and relation_holds(a, OPPOSITE_RELATIONS[relation], b))
            assert relation_holds(a, relation_between(a, b), b)


def test_the_judge_accepts_every_true_caption(scenes: list[Scene]) -> None:
    """In whatever order the shapes are named."""
    for scene in scenes[:500]:
        for order in itertools.permutations(range(len(scene.shapes))):
            verdict = check_caption(caption_scene(scene, order), scene)
            assert verdict.correct and verdict.shape_indices == order and verdict.reason == ""


@pytest.mark.parametrize(
    ("caption", "reason"),
    [
        ("a small red circle", "1 of 2 shapes are not named"),
        ("a small red circle below a large blue square", "the small red circle is not below the other"),
        ("a small red circle above a large blue circle", "there is no large blue circle"),
        ("a large red circle above a large blue square", "there is no large red circle"),
        ("a small red circle above a small red circle", "one shape is named twice"),
        ("a small red circle above a large blue square and above a small red star", "there is no small red star"),
        ("a small red circle and a large blue square", "not a sentence of this kind"),
        ("a small red circle above a large blue square a", "not a sentence of this kind"),
        ("", "not a sentence of this kind"),
    ],
)
def test_the_judge_says_what_is_wrong(caption: str, reason: str) -> None:
    """A shape left out, invented, named twice or mistaken, a false relation and bad grammar are each told apart."""
    scene = Scene((shape_at(0.1, 0.1), shape_at(0.2, 0.7, "large blue square")), Background(BLACK))
    verdict = check_caption(caption, scene)
    assert not verdict.correct and verdict.reason == reason


def test_a_relation_may_be_the_less_obvious_one() -> None:
    """Two shapes apart in both directions: either relation is true."""
    scene = Scene((shape_at(0.1, 0.1), shape_at(0.4, 0.7, "large blue square")), Background(BLACK))
    assert check_caption("a small red circle above a large blue square", scene).correct
    assert check_caption("a small red circle left of a large blue square", scene).correct


def test_a_caption_taken_apart_gives_its_parts() -> None:
    """Shapes in order, relations between them; anything else is a ValueError that shows a caption."""
    said = parse_caption("a small red star left of a large blue cross and below a large red square")
    assert said.shapes == (("small", "red", "star"), ("large", "blue", "cross"), ("large", "red", "square"))
    assert said.relations == ("left of", "below")
    with pytest.raises(ValueError, match="is no caption: as in 'a small red circle above a large blue square'"):
        parse_caption("hello")


def test_the_vocabulary_spells_every_caption(scenes: list[Scene], tmp_path: Path) -> None:
    """Read as a BERT's vocab.txt it has one token a word, none unknown, and captions are as long as is said."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    longest = 0
    for scene in scenes[:500]:
        encoding = tokenizer.encode(caption_scene(scene))
        assert UNKNOWN not in encoding.tokens
        assert list(encoding.tokens[1:-1]) == caption_scene(scene).split()
        longest = max(longest, len(encoding))
    assert longest == MAX_CAPTION_TOKENS


# ---------------------------------------------------------------------------- what is held out


def test_training_never_shows_a_held_out_combination() -> None:
    """The two sides of the split are disjoint in what they combine, and every scene is on one of them."""
    rng = np.random.default_rng(1)
    seen = {c for _ in range(1500) for c in true_combinations(sample_scene(rng, held_out=False))}
    assert not {c for c in seen if is_unseen(*c)}
    for _ in range(300):
        scene = sample_scene(rng, held_out=True)
        assert is_held_out(scene) and any(c not in seen for c in true_combinations(scene))


def test_the_rule_hides_combinations_of_three_and_nothing_less() -> None:
    """15 of 120 combinations of colour, kind and relation are unseen; every combination of two of them is seen."""
    triples = list(itertools.product(COLOURS, SHAPE_KINDS, RELATIONS))
    shown = [triple for triple in triples if not is_unseen(*triple)]
    assert len(triples) - len(shown) == 15
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(t[first], t[second]) for t in shown} == {(t[first], t[second]) for t in triples}
    with pytest.raises(ValueError, match="a scene of one shape cannot be held out"):
        sample_scene(np.random.default_rng(0), held_out=True, count=1)
