"""Reading of a table of explanations, and the mean score of every word over a whole file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.csv_cells import as_csv
from bert_core.deprecation import renamed_parameters
from bert_core.refused import Refused, validate_arguments
from bert_core.studies.explain import BASE_COLUMNS, INTEGER_COLUMNS, TARGET_COLUMNS, TEXT_COLUMNS
from bert_core.studies.files import check_file
from bert_core.studies.tables import check_table_suffix, read_batches

# Tables of earlier versions lack the columns of the target.
REQUIRED_COLUMNS = tuple(name for name in BASE_COLUMNS if name not in TARGET_COLUMNS)


@dataclass(frozen=True)
class WordTotal:
    """Mean score of a word for one answer over a whole file, by one method.

    asked: the answer that is explained.
    word: the word as the model reads it.
    texts: number of texts that contain the word and whose explained answer is this one.
    mean, error: mean of the scores of the word in these texts, in the unit of the method, and its standard error, which
        is NaN for one text.
    """

    asked: str
    method: str
    word: str
    texts: int
    mean: float
    error: float


@renamed_parameters(needed="required_columns")
@validate_arguments
def explained_rows(path: Path, *, required_columns: Sequence[str] = REQUIRED_COLUMNS) -> Iterator[dict[str, list[Any]]]:
    """Yield the rows of a table of `explain_file` in batches, as columns of texts, integers and floats.

    required_columns: columns that a table from another source must have.
    Raises Refused for a file that is not such a table.
    """
    check_table_suffix(path)
    check_file(path)
    for batch in read_batches(path):
        if missing := [name for name in required_columns if name not in batch]:
            raise Refused(f"{path.name} has no column {missing[0]!r}: such a table comes from `headlight explain`")
        if not batch.keys() - set(BASE_COLUMNS):
            raise Refused(f"{path.name} has no column of scores: such a table comes from `headlight explain`")
        yield {name: _convert(path, name, values) for name, values in batch.items()}


def _convert(path: Path, name: str, values: list[Any]) -> list[Any]:
    """Convert the values of a column to its type. Raises Refused for a value that is not a number."""
    if name in TEXT_COLUMNS:
        return ["" if value is None else str(value) for value in values]
    try:
        return [int(value) for value in values] if name in INTEGER_COLUMNS else [float(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(f"the column {name!r} of {path.name} contains a value that is not a number") from error


@renamed_parameters(least="min_texts")
@validate_arguments
def word_totals(path: Path, *, min_texts: int = 1) -> list[WordTotal]:
    """Compute the mean score of every word for every answer over a table of `explain_file`, by each method.

    The scores of a word that occurs several times in a text are summed. Special tokens and the masked word of a target
    are left out. A text with several targets, such as the tags of two words, counts once for each.
    min_texts: minimum number of texts with the word.
    Returns the totals sorted by answer and method, and then by decreasing mean.
    Raises Refused as `explained_rows`.
    """
    sums: dict[tuple[str, str], np.ndarray] = {}  # (answer, word) -> (count, sum, sum of squares; method)
    methods: tuple[str, ...] = ()
    text: tuple[int, str, int] | None = None  # number of the text, answer, and first position of the target
    words: dict[str, np.ndarray] = {}  # summed scores (method,) of the words of this text

    def add_text() -> None:
        for word, scores in words.items():
            moments = np.array([np.ones_like(scores), scores, scores**2])
            sums[text[1], word] = sums.get((text[1], word), 0) + moments  # type: ignore[index]
        words.clear()

    for batch in explained_rows(path):
        methods = tuple(name for name in batch if name not in BASE_COLUMNS)
        scores = np.array([batch[name] for name in methods]).reshape(len(methods), -1)
        places = batch.get("first", [0] * len(batch["text"]))
        rows = zip(batch["text"], batch["asked"], places, batch["word"], strict=True)
        for row, (number, answer, place, word) in enumerate(rows):
            if text != (number, answer, place):
                add_text()
                text = (number, answer, place)
            if word:
                words[word] = words.get(word, 0) + scores[:, row]
    add_text()
    totals = []
    for (answer, word), (count, total, squares) in sums.items():
        texts = int(count[0])
        if texts < min_texts:
            continue
        mean = total / texts
        spread = np.sqrt(np.maximum(squares / texts - mean**2, 0) / max(texts - 1, 1))
        for number, method in enumerate(methods):
            error = math.nan if texts < 2 else float(spread[number])
            totals.append(WordTotal(answer, method, word, texts, float(mean[number]), error))
    order = {name: number for number, name in enumerate(methods)}
    return sorted(totals, key=lambda total: (total.asked, order[total.method], -total.mean, total.word))


def totals_csv(totals: Sequence[WordTotal]) -> str:
    """Format totals as CSV, one row per total, in full precision."""
    names = [field.name for field in dataclasses.fields(WordTotal)]
    return as_csv([names, *map(dataclasses.astuple, totals)])


@renamed_parameters(least="min_texts")
@validate_arguments
def read_totals(path: Path, *, min_texts: int = 1) -> list[WordTotal]:
    """Read the totals of a file of `totals_csv`, or compute those of a table of `explain_file`.

    min_texts: minimum number of texts with the word.
    Returns the totals in the order of `word_totals`. Raises Refused as `explained_rows`.
    """
    check_table_suffix(path)
    check_file(path)
    names = [field.name for field in dataclasses.fields(WordTotal)]
    if path.suffix.lower() != ".csv" or next(read_batches(path), {}).keys() != set(names):
        return word_totals(path, min_texts=min_texts)
    totals = []
    for batch in read_batches(path):
        for row in zip(*(batch[name] for name in names), strict=True):
            answer, method, word, *numbers = row
            try:
                texts, mean, error = int(numbers[0]), float(numbers[1]), float(numbers[2])
            except ValueError as parse_error:
                raise Refused(f"the totals of {word!r} in {path.name} are not numbers") from parse_error
            if texts < 1 or not math.isfinite(mean) or error < 0:
                raise Refused(
                    f"the totals of {word!r} in {path.name} are {texts} texts, mean {mean}, error {error}: they must "
                    "be at least one text, a finite mean and a non-negative error"
                )
            if texts >= min_texts:
                totals.append(WordTotal(answer, method, word, texts, mean, error))
    order = {name: number for number, name in enumerate(dict.fromkeys(total.method for total in totals))}
    return sorted(totals, key=lambda total: (total.asked, order[total.method], -total.mean, total.word))
