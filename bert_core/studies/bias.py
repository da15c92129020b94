"""Sentence pairs for `evaluate_bias`: reading of tables with categories, the bundled set, and results as CSV."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from bert_core.analysis.bias import BiasEvaluation, BiasPair
from bert_core.csv_cells import as_csv
from bert_core.loading import ASSETS
from bert_core.records import PairRow
from bert_core.refused import Refused, validate_arguments
from bert_core.studies.files import identify
from bert_core.studies.pairs import pair_rows
from bert_core.studies.rows import input_columns, join_names, read_rows

BUNDLED_SET = ASSETS / "bias.csv"
MAX_CATEGORIES, MAX_CATEGORY_CHARACTERS = 50, 100
# Names of the columns that are read, in lower case; the second of each is that of CrowS-Pairs.
STEREOTYPE_COLUMNS = ("stereotype", "sent_more")
OTHER_COLUMNS = ("other", "sent_less")
CATEGORY_COLUMNS = ("category", "bias_type")
BIAS_COLUMNS = ("row", "category", "stereotype", "other", "difference", "preferred", "cautions", "problem")
_PREFERRED = {"first": "stereotype", "second": "other", "neither": "tie", None: ""}


@validate_arguments
def read_bias_pairs(path: Path) -> list[PairRow]:
    """Read sentence pairs with categories from a table: `.csv`, `.tsv`, JSON Lines or `.json`.

    The columns are `stereotype` (the more stereotypical sentence), `other`, and optionally `category`. Further columns
    are not read. A table of CrowS-Pairs is read as it is: its columns are `sent_more`, `sent_less` and `bias_type`.
    Its `stereo_antistereo` is not needed, since `sent_more` is the more stereotypical sentence in both directions.

    Returns the pairs in order. A row that is not a pair of sentences is returned with its problem.
    Raises Refused for another kind of file, a missing column, several columns with the same contents, a row with
    another number of fields, or no rows. Raises Refused also for more than 2,000 pairs, which are not read further, for
    more than `MAX_CATEGORIES` categories, or for a category of more than `MAX_CATEGORY_CHARACTERS` characters.
    """
    columns = input_columns(identify(path))
    sentence_columns = [
        _required_column(path, columns, STEREOTYPE_COLUMNS, "the more stereotypical sentences"),
        _required_column(path, columns, OTHER_COLUMNS, "the other sentences"),
    ]
    category = _find_column(path, columns, CATEGORY_COLUMNS, "the categories")
    categories: list[str] = []

    def sentences() -> Iterator[tuple[int, list[str]]]:
        """Yield the number and both sentences of each row, and store its category."""
        for row, fields, _ in read_rows(path, [*sentence_columns, *([] if category is None else [category])]):
            name = "" if category is None else " ".join(fields[category].split())
            if len(name) > MAX_CATEGORY_CHARACTERS:
                raise Refused(
                    f"row {row} of {path.name} has a category of {len(name):,} characters: at most "
                    f"{MAX_CATEGORY_CHARACTERS}"
                )
            categories.append(name)
            yield row, [fields[name].strip() for name in sentence_columns]

    pairs = pair_rows(sentences())
    if not pairs:
        raise Refused(f"{path.name} has no pairs: give one pair of sentences in each row")
    if (count := len(set(categories))) > MAX_CATEGORIES:
        raise Refused(f"{path.name} has {count:,} categories in the column {category!r}: at most {MAX_CATEGORIES}")
    return [pair._replace(category=name) for pair, name in zip(pairs, categories, strict=True)]


def bundled_bias_pairs() -> list[PairRow]:
    """Return the 60 pairs that were written for Headlight, in five categories.

    In half of the pairs of each category the stereotype is about one of two groups, in the other half about the other.
    """
    return read_bias_pairs(BUNDLED_SET)


def _find_column(path: Path, columns: Sequence[str], names: Collection[str], contents: str) -> str | None:
    """Return the column with one of some names, in any case, or None. Raises Refused if several columns have one."""
    matches = [column for column in columns if column.lower() in names]
    if len(matches) > 1:
        raise Refused(f"{path.name} has several columns of {contents}, {join_names(matches)}: keep only one of them")
    return matches[0] if matches else None


def _required_column(path: Path, columns: Sequence[str], names: Collection[str], contents: str) -> str:
    """Return the column with one of some names. Raises Refused as `_find_column`, and if there is none."""
    column = _find_column(path, columns, names, contents)
    if column is None:
        raise Refused(
            f"{path.name} has no column of {contents}, which is called {' or '.join(names)}: its columns are "
            f"{', '.join(filter(None, columns)) or 'none'}"
        )
    return column


@validate_arguments
def bias_csv(evaluation: BiasEvaluation) -> str:
    """Format evaluated pairs as CSV with a header and one row for each pair, in the given order.

    Numbers have full precision. A sentence that a spreadsheet would read as a formula gets an apostrophe in front.
    """
    return as_csv([BIAS_COLUMNS, *map(bias_values, evaluation.pairs)])


def bias_values(pair: BiasPair) -> tuple[int | float | str | None, ...]:
    """Return the cells of an evaluated pair in the order of `BIAS_COLUMNS`, None for a missing number."""
    difference = pair.difference if pair.problem is None else None
    return (
        pair.row, pair.category, *pair.sentences, difference, _PREFERRED[pair.preferred], "; ".join(pair.cautions),
        pair.problem or "",
    )  # fmt: skip
