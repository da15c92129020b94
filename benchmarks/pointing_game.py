"""The pointing game on scenes that were held out: when the captioner says "blue", does it look at the blue shape?

python benchmarks/pointing_game.py            print the table
python benchmarks/pointing_game.py --write    and put it between the markers of benchmarks/README.md
python benchmarks/pointing_game.py --quick    the smallest size, to check that it works
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tables import QUICK, parse_arguments, write_table

from bert_core import scenes
from bert_core.analysis.pointing import chance_level, heat, patches_in, points_into, shape_of_word, share_in
from bert_core.run.captioning import describe
from bert_core.scenes import COLOURS, SHAPE_KINDS
from bert_core.training.captioner import evaluation_scenes
from bert_core.vision import LoadedCaptioner, load_captioner

TEST_SEED, VALIDATION_SEED = 31, 32
RESAMPLES = 2000
WORDS_OF_KIND = {"colour words": tuple(COLOURS), "shape words": SHAPE_KINDS}


@dataclass(frozen=True)
class Word:
    """A word that names a shape which is there.

    attention, gradient: (layer, head, patch). box: of the shape it names; others: of the other shapes.
    """

    scene: int
    kind: str
    attention: np.ndarray
    gradient: np.ndarray
    grid: tuple[int, int]
    box: tuple[float, float, float, float]
    others: tuple[tuple[float, float, float, float], ...]


Map = Callable[[Word], np.ndarray]


def words_of(loaded: LoadedCaptioner, samples: Sequence[scenes.Scene]) -> Iterator[Word]:
    """Every colour and shape word of the captions whose shape is in the scene; the last line says how many are not."""
    left_out = 0
    for number, scene in enumerate(samples):
        run = describe(loaded, scenes.draw(scene, loaded.config.image_size))
        shape_indices = scenes.check_caption(run.sentence, scene).shape_indices
        for position, word in enumerate(run.words):
            kind = next((kind for kind, words in WORDS_OF_KIND.items() if word in words), None)
            owner = shape_of_word(run.words, position)
            if kind is None or owner is None:
                continue
            shape = shape_indices[owner] if owner < len(shape_indices) else None
            if shape is None:
                left_out += 1
                continue
            boxes = [shape.box for shape in scene.shapes]
            yield Word(
                number, kind, run.cross_attention[position], run.cross_gradient[position], run.grid,
                boxes[shape], tuple(boxes[:shape] + boxes[shape + 1 :]),
            )  # fmt: skip
    print(f"{left_out} words left out: the shape they name is not in the scene")


def best_head(words: Sequence[Word], kind: str) -> tuple[int, int]:
    """The head whose attention alone points best."""
    layers, heads = words[0].attention.shape[:2]

    def hits(head: tuple[int, int]) -> float:
        return float(
            np.mean([points_into(heat(w.attention, w.grid, head=head), w.box) for w in words if w.kind == kind])
        )

    return max(itertools.product(range(layers), range(heads)), key=hits)


def outcome(word: Word, scores: np.ndarray) -> tuple[float, float, float]:
    """1 or 0 for: the peak is in the named box; it is in another shape's; and the share of the map in the named box."""
    return (
        float(points_into(scores, word.box)),
        float(any(points_into(scores, box) for box in word.others)),
        share_in(scores, word.box),
    )


def centred(word: Word) -> np.ndarray:
    """Attention x (gradient - its mean under the attention): what a shift of the scores before the softmax would do."""
    mean = (word.attention * word.gradient).sum(-1, keepdims=True)
    product: np.ndarray = word.attention * (word.gradient - mean)
    return product


def by_chance(word: Word) -> tuple[float, float, float]:
    """What a random patch, or a map that is the same everywhere, gets on average."""
    other_shapes = np.zeros(word.grid, bool)
    for box in word.others:
        other_shapes |= patches_in(box, word.grid)
    chance = chance_level(word.box, word.grid)
    return chance, float(other_shapes.mean()), chance


def spread(scores: np.ndarray, owners: np.ndarray) -> tuple[float, float]:
    """95% of the means when scenes are drawn anew, with replacement; words of one scene stay together."""
    rng = np.random.default_rng(0)
    totals = np.bincount(owners, scores)
    counts = np.bincount(owners)
    is_valid = counts > 0
    totals, counts = totals[is_valid], counts[is_valid]
    sample = rng.integers(0, len(totals), (RESAMPLES, len(totals)))
    means = totals[sample].sum(1) / counts[sample].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def table(test: Sequence[Word], validation: Sequence[Word]) -> str:
    """The Markdown table."""
    lines = [
        "| words | map | peak in the named box | 95% | peak in another box | share of the map in the box |",
        "| --- | --- | ---: | --- | ---: | ---: |",
    ]
    for kind in WORDS_OF_KIND:
        layer, number = best_head(validation, kind)
        maps: dict[str, Map | None] = {
            "chance: a random patch": None,
            "attention, mean of all heads": lambda w: heat(w.attention, w.grid),
            f"attention, best single head (L{layer} H{number})": lambda w, h=(layer, number): heat(  # type: ignore[misc]
                w.attention, w.grid, head=h
            ),
            "gradient x attention, clipped, mean of all heads": lambda w: heat(
                w.attention * w.gradient, w.grid, clip=True
            ),
            "the same, each gradient less its mean under the attention": lambda w: heat(centred(w), w.grid, clip=True),
            "gradient x attention, clipped, that head": lambda w, h=(layer, number): heat(  # type: ignore[misc]
                w.attention * w.gradient, w.grid, head=h, clip=True
            ),
        }
        words = [word for word in test if word.kind == kind]
        owners = np.array([word.scene for word in words])
        for name, draw in maps.items():
            outcomes = np.array([by_chance(word) if draw is None else outcome(word, draw(word)) for word in words])
            low, high = spread(outcomes[:, 0], owners)
            hit, other_share, share = outcomes.mean(0)
            lines.append(
                f"| {kind} ({len(words):,}) | {name} | {hit:.3f} | {low:.3f} to {high:.3f} "
                f"| {other_share:.3f} | {share:.3f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="headlight-shapes", help="or a folder of a captioner")
    parser.add_argument("--scenes", type=int, default=6 if QUICK else 600, help="held-out scenes that are scored")
    parser.add_argument(
        "--validation", type=int, default=4 if QUICK else 200, help="other scenes, on which the best head is chosen"
    )
    options = parse_arguments(parser)
    loaded = load_captioner(options.model)
    validation = list(words_of(loaded, evaluation_scenes(options.validation, held_out=False, seed=VALIDATION_SEED)))
    test = list(words_of(loaded, evaluation_scenes(options.scenes, held_out=True, seed=TEST_SEED)))
    scored_words = (
        f"{options.scenes} held-out scenes; the best head was chosen on {options.validation} others, of the kind that "
        f"training shows. torch {torch.__version__}.\n\n{table(test, validation)}"
    )
    print(scored_words)
    if options.write:
        write_table(__file__, scored_words)


if __name__ == "__main__":
    main()
