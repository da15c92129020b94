"""Classes of labelled texts: their names, and the split into training and held-out examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_core.refused import Refused
from bert_core.studies.rows import LabelledText, format_rows


def sorted_classes(examples: Sequence[LabelledText], label: str) -> tuple[str, ...]:
    """Return the class names of the examples in alphabetical order.

    label: name of the column of the classes, for error messages.
    Raises Refused if all examples have the same class, or each of three or more has its own.
    """
    counts = Counter(example.label for example in examples)
    if len(counts) == 1:
        raise Refused(
            f"every row has the same class, {examples[0].label!r:.60}, in the column {label!r}: "
            "training needs at least two classes"
        )
    if len(counts) == len(examples) > 2:
        raise Refused(
            f"each of the {len(examples)} rows has a class of its own in the column {label!r}: "
            "training needs several rows of a class"
        )
    return tuple(sorted(counts))


def stratified_split(
    examples: Sequence[LabelledText], share: float, seed: int
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Split examples into training and held-out examples, with the same share of each class held out.

    share: share of each class to hold out, between 0 and 1 (both excluded). Each part gets at least one example of
    each class.
    seed: random seed; equal examples, shares and seeds give equal splits.
    Returns the training examples and the held-out examples, each in the original order.
    Raises Refused for a share outside this range, or a class with a single example.
    """
    if not 0 < share < 1:
        raise Refused(f"the held-out share is {share:g}: it must be greater than 0 and less than 1")
    numbers_by_class: dict[str, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        numbers_by_class[example.label].append(number)
    single = [name for name, numbers in numbers_by_class.items() if len(numbers) < 2]
    if single:
        raise Refused(
            f"the class {single[0]!r:.60} has one row: a held-out share needs two rows of each class, one for training "
            "and one for evaluation; add rows, or name a held-out file"
        )
    rng = np.random.default_rng([seed, 2])
    held_out: set[int] = set()
    for name in sorted(numbers_by_class):
        numbers = numbers_by_class[name]
        size = min(max(round(share * len(numbers)), 1), len(numbers) - 1)
        held_out.update(rng.permutation(numbers)[:size].tolist())
    training = [example for number, example in enumerate(examples) if number not in held_out]
    return training, [example for number, example in enumerate(examples) if number in held_out]


def check_known_classes(examples: Sequence[LabelledText], classes: Sequence[str], path: Path) -> None:
    """Raise Refused if held-out examples have a class that no training example has.

    path: file of the held-out examples, for the error message.
    """
    unknown = [example for example in examples if example.label not in classes]
    if unknown:
        rows = format_rows([example.row for example in unknown])
        raise Refused(
            f"{path.name} has the class {unknown[0].label!r:.60} ({rows}), which no training row has: "
            f"the classes are {', '.join(classes)}"
        )
