"""The classes of labelled texts: which there are, and which rows are held out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_core.refused import Refused
from bert_core.studies.rows import LabelledText, format_rows


def sorted_classes(examples: Sequence[LabelledText], label: str) -> tuple[str, ...]:
    """The classes of the examples in alphabetical order; label: the name of their column, for the sentences.

    Raises Refused if there is one class only, or every row has a class of its own.
    """
    counts = Counter(example.label for example in examples)
    if len(counts) == 1:
        raise Refused(
            f"every row has the same class, {examples[0].label!r:.60}, in the column {label!r}: two are the least"
        )
    if len(counts) == len(examples) > 2:
        raise Refused(
            f"each of the {len(examples)} rows has a class of its own in the column {label!r}: "
            "a class is learned from several rows"
        )
    return tuple(sorted(counts))


def stratified_split(
    examples: Sequence[LabelledText], share: float, seed: int
) -> tuple[list[LabelledText], list[LabelledText]]:
    """A share of each class, drawn with a seed, is held out: examples to train on, and those held out.

    At least one example of each class is in either part.
    Raises Refused for a share that is not between 0 and 1, or a class with a single example.
    """
    if not 0 < share < 1:
        raise Refused(f"the held-out share is {share:g}: it is more than 0 and less than 1")
    by_class: dict[str, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        by_class[example.label].append(number)
    alone = [name for name, members in by_class.items() if len(members) < 2]
    if alone:
        raise Refused(
            f"the class {alone[0]!r:.60} has one row: a held-out share needs two rows of each class, "
            "one to train on and one to ask on; add rows, or name a held-out file"
        )
    draw = np.random.default_rng([seed, 2])
    held: set[int] = set()
    for name in sorted(by_class):
        members = by_class[name]
        size = min(max(round(share * len(members)), 1), len(members) - 1)
        held.update(draw.permutation(members)[:size].tolist())
    rest = [example for number, example in enumerate(examples) if number not in held]
    return rest, [example for number, example in enumerate(examples) if number in held]


def check_known_classes(examples: Sequence[LabelledText], classes: Sequence[str], path: Path) -> None:
    """Raise Refused if held-out examples have a class that was not trained."""
    strange = [example for example in examples if example.label not in classes]
    if strange:
        rows = format_rows([example.row for example in strange])
        raise Refused(
            f"{path.name} has the class {strange[0].label!r:.60} ({rows}), which no training row has: "
            f"the classes are {', '.join(classes)}"
        )
