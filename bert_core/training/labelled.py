"""A table of texts and their classes -> examples to train and to ask on; whatever is wrong with it is one sentence."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LONGEST_FIELD = 10_000_000  # characters
_NAMED_ROWS = 5


@dataclass(frozen=True)
class LabelledText:
    """One text, or a pair, and its class; row: where it stands in its file, the header being row 1."""

    text: str
    pair: str | None
    label: str
    row: int


def read_labelled(path: Path, text: str, label: str, pair: str | None = None) -> list[LabelledText]:
    """The rows of a UTF-8 `.csv` file with a header, by the names of its columns; empty lines are passed over.

    Raises ValueError if a column is missing, a row has another number of fields, a text or a label is empty, the file
    is not UTF-8 or not a table, or there are no rows.
    """
    columns = [name for name in (text, pair, label) if name is not None]
    if len(set(columns)) < len(columns):
        raise ValueError(f"the columns {', '.join(columns)} are not all different: each has its own part")
    rows = _rows(path)
    header = [name.strip() for name in next(rows, (1, []))[1]]
    for name in columns:
        if header.count(name) != 1:
            found = "twice" if name in header else "not"
            there = ", ".join(header) or "none: it is empty"
            raise ValueError(f"the column {name!r} is {found} in {path.name}: its columns are {there}")
    examples: list[LabelledText] = []
    empty: dict[str, list[int]] = defaultdict(list)
    for row, values in rows:
        if len(values) != len(header):
            raise ValueError(
                f"row {row} of {path.name} has {len(values)} fields and the header {len(header)}: "
                "a text with a comma, a quote or a new line in it stands in quotes"
            )
        fields = dict(zip(header, values, strict=True))
        for name in (text, label):
            if not fields[name].strip():
                empty[name].append(row)
        examples.append(LabelledText(fields[text], None if pair is None else fields[pair], fields[label].strip(), row))
    for name, where in empty.items():
        raise ValueError(
            f"{len(where)} of {len(examples)} rows of {path.name} have nothing in the column {name!r} "
            f"({_some_rows(where)}; the header is row 1): fill them in or take them out"
        )
    if not examples:
        raise ValueError(f"{path.name} has a header and no rows: there is nothing to learn from")
    return examples


def classes_of(examples: Sequence[LabelledText], label: str) -> tuple[str, ...]:
    """The classes of the examples in alphabetical order; label: the name of their column, for the sentences.

    Raises ValueError if there is one class only, or every row has a class of its own.
    """
    counts = Counter(example.label for example in examples)
    if len(counts) == 1:
        raise ValueError(
            f"every row has the same class, {examples[0].label!r:.60}, in the column {label!r}: two are the least"
        )
    if len(counts) == len(examples) > 2:
        raise ValueError(
            f"each of the {len(examples)} rows has a class of its own in the column {label!r}: "
            "a class is learned from several rows"
        )
    return tuple(sorted(counts))


def split_off(
    examples: Sequence[LabelledText], share: float, seed: int
) -> tuple[list[LabelledText], list[LabelledText]]:
    """A share of each class, drawn with a seed, is held out: examples to train on, and those held out.

    At least one example of each class is in either part.
    Raises ValueError for a share that is not between 0 and 1, or a class with a single example.
    """
    if not 0 < share < 1:
        raise ValueError(f"the held-out share is {share:g}: it is more than 0 and less than 1")
    by_class: dict[str, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        by_class[example.label].append(number)
    alone = [name for name, members in by_class.items() if len(members) < 2]
    if alone:
        raise ValueError(
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


def check_classes(examples: Sequence[LabelledText], classes: Sequence[str], path: Path) -> None:
    """Raise ValueError if held-out examples have a class that was not trained."""
    strange = [example for example in examples if example.label not in classes]
    if strange:
        rows = _some_rows([example.row for example in strange])
        raise ValueError(
            f"{path.name} has the class {strange[0].label!r:.60} ({rows}), which no training row has: "
            f"the classes are {', '.join(classes)}"
        )


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, with their numbers from 1."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            for number, values in enumerate(csv.reader(lines, strict=True), start=1):
                if values:
                    yield number, values
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name} is not UTF-8 (byte {error.start} of a part of it): save it as CSV UTF-8"
        ) from error
    except csv.Error as error:
        raise ValueError(f"{path.name} is not a table of comma-separated values: {error}") from error
    finally:
        csv.field_size_limit(before)


def _some_rows(rows: Sequence[int]) -> str:
    named = ", ".join(map(str, rows[:_NAMED_ROWS]))
    more = f" and {len(rows) - _NAMED_ROWS} more" if len(rows) > _NAMED_ROWS else ""
    return f"row{'' if len(rows) == 1 else 's'} {named}{more}"
