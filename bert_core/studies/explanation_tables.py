"""A table of explanations read again, and what every word says of an answer over the whole of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.csv_cells import as_csv
from bert_core.refused import Refused, validate_arguments
from bert_core.studies.explain import BASE_COLUMNS, INTEGER_COLUMNS, TARGET_COLUMNS, TEXT_COLUMNS
from bert_core.studies.files import check_file
from bert_core.studies.tables import check_table_suffix, read_batches

REQUIRED_COLUMNS = tuple(
    name for name in BASE_COLUMNS if name not in TARGET_COLUMNS
)  # of a table from before it said more


@dataclass(frozen=True)
class WordTotal:
    """What a word says of an answer over a whole file, by one method.

    asked: the answer. word: as the model reads it. texts: that have it, where this answer is explained.
    mean, error: of its score in these texts, in the method's unit, and the standard error; NaN from one text.
    """

    asked: str
    method: str
    word: str
    texts: int
    mean: float
    error: float


@validate_arguments
def explained_rows(path: Path, *, required_columns: Sequence[str] = REQUIRED_COLUMNS) -> Iterator[dict[str, list[Any]]]:
    """The rows of a table that `explain_file` wrote, some at a time, as columns; numbers as numbers.

    needed: columns that must be there, of a table by somebody else.
    Raises Refused for a file that is no such table.
    """
    check_table_suffix(path)
    check_file(path)
    for batch in read_batches(path):
        if missing := [name for name in required_columns if name not in batch]:
            raise Refused(f"{path.name} has no column {missing[0]!r}: such a table comes from `headlight explain`")
        if not batch.keys() - set(BASE_COLUMNS):
            raise Refused(f"{path.name} has no column of scores: such a table comes from `headlight explain`")
        yield {name: _typed(path, name, values) for name, values in batch.items()}


def _typed(path: Path, name: str, values: list[Any]) -> list[Any]:
    if name in TEXT_COLUMNS:
        return ["" if value is None else str(value) for value in values]
    try:
        return [int(value) for value in values] if name in INTEGER_COLUMNS else [float(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(f"the column {name!r} of {path.name} holds something else than numbers") from error


@validate_arguments
def word_totals(path: Path, *, min_texts: int = 1) -> list[WordTotal]:
    """What every word says of every answer over a table that `explain_file` wrote, by each method.

    Of a word that stands in a text several times the sum; a hidden word that is asked for, and added tokens, are left
    out. A text counts once for each thing that is asked of it, as for the tags of two words.
    least: texts that must have a word. Sorted by answer and method, what speaks for it most first.
    Raises Refused as `explained_rows`.
    """
    sums: dict[tuple[str, str], np.ndarray] = {}  # (count, sum, sum of squares; method) of an answer and a word
    methods: tuple[str, ...] = ()
    text: tuple[int, str, int] | None = None  # its number, its answer, and where that is read
    words: dict[str, np.ndarray] = {}  # of that text, (method,)

    def add() -> None:
        for word, scores in words.items():
            found = np.array([np.ones_like(scores), scores, scores**2])
            sums[text[1], word] = sums.get((text[1], word), 0) + found  # type: ignore[index]
        words.clear()

    for batch in explained_rows(path):
        methods = tuple(name for name in batch if name not in BASE_COLUMNS)
        scores = np.array([batch[name] for name in methods]).reshape(len(methods), -1)
        places = batch.get("first", [0] * len(batch["text"]))
        each = zip(batch["text"], batch["asked"], places, batch["word"], strict=True)
        for row, (number, asked, place, word) in enumerate(each):
            if text != (number, asked, place):
                add()
                text = (number, asked, place)
            if word:
                words[word] = words.get(word, 0) + scores[:, row]
    add()
    totals = []
    for (asked, word), (count, total, squares) in sums.items():
        texts = int(count[0])
        if texts < min_texts:
            continue
        mean = total / texts
        spread = np.sqrt(np.maximum(squares / texts - mean**2, 0) / max(texts - 1, 1))
        for number, method in enumerate(methods):
            error = math.nan if texts < 2 else float(spread[number])
            totals.append(WordTotal(asked, method, word, texts, float(mean[number]), error))
    order = {name: number for number, name in enumerate(methods)}
    return sorted(totals, key=lambda one: (one.asked, order[one.method], -one.mean, one.word))


def totals_csv(totals: Sequence[WordTotal]) -> str:
    """The totals as a table, a row each, in full precision."""
    names = [field.name for field in dataclasses.fields(WordTotal)]
    return as_csv([names, *map(dataclasses.astuple, totals)])


@validate_arguments
def read_totals(path: Path, *, min_texts: int = 1) -> list[WordTotal]:
    """The totals of a file that `totals_csv` wrote, or those of a table that `explain_file` wrote.

    least: texts that must have a word. Sorted as `word_totals`. Raises Refused as `explained_rows`.
    """
    check_table_suffix(path)
    check_file(path)
    names = [field.name for field in dataclasses.fields(WordTotal)]
    if path.suffix != ".csv" or next(read_batches(path), {}).keys() != set(names):
        return word_totals(path, min_texts=min_texts)
    totals = []
    for batch in read_batches(path):
        for row in zip(*(batch[name] for name in names), strict=True):
            asked, method, word, *numbers = row
            try:
                texts, mean, error = int(numbers[0]), float(numbers[1]), float(numbers[2])
            except ValueError as wrong:
                raise Refused(f"the totals of {word!r} in {path.name} are no numbers") from wrong
            if texts < 1 or not math.isfinite(mean) or error < 0:
                raise Refused(f"the totals of {word!r} in {path.name} cannot be: {texts} texts, a mean of {mean}")
            if texts >= min_texts:
                totals.append(WordTotal(asked, method, word, texts, mean, error))
    order = {name: number for number, name in enumerate(dict.fromkeys(one.method for one in totals))}
    return sorted(totals, key=lambda one: (one.asked, order[one.method], -one.mean, one.word))
