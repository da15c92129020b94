"""Reading of evaluated texts: a table of `evaluate_file`, or the targets of a table of `explain_file`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.csv_cells import FORMULA_CHARACTERS
from bert_core.records import EvaluatedTexts
from bert_core.records.evaluation import NUMBER_FIELDS
from bert_core.refused import Refused, validate_arguments
from bert_core.run.evaluation import WHOLE_TEXT
from bert_core.studies.evaluation import ROW_COLUMNS, TYPES, table_of_columns
from bert_core.studies.files import check_file
from bert_core.studies.settings import EVALUATION_LOSSES
from bert_core.studies.tables import check_table_suffix, read_column_names

MAX_ROWS = 1_000_000
CSV_BLOCK_BYTES = 1 << 24  # more than any row
# Columns of a table of `explain_file` that are read -> their types.
EXPLAINED_TYPES = {
    "text": "int64", "position": "int64", "side": "string", "token": "string", "word": "string", "start": "int64",
    "asked": "string", "kind": "string", "first": "int64", "last": "int64", "probability": "float64",
}  # fmt: skip
# Kinds of targets -> the question that they answer.
QUESTIONS_OF_KINDS = {"class": "class", "mlm": "word", "joint": "word", "nsp": "next", "tag": "tag", "span": "span"}


def is_evaluation(names: Iterable[str]) -> bool:
    """Return whether a table with these columns can be read by `read_evaluation`."""
    return any(required <= set(names) for required in (set(ROW_COLUMNS), set(EXPLAINED_TYPES)))


@validate_arguments
def read_evaluation(path: Path) -> EvaluatedTexts:
    """Read a table of `evaluate_file`, or the targets of a table of `explain_file`.

    path: a `.csv` or `.parquet` file of at most 1,000,000 rows.

    Of a table of `explain_file`, there is one row for each text and target. Its text is made of the words as the
    vocabulary spells them, and its loss is minus the logarithm of the probability of the target. The prediction is
    empty, since the table does not hold it: the target may be the answer of the file or the prediction.
    Raises Refused for any other file.
    """
    check_table_suffix(path)
    check_file(path)
    names = read_column_names(path)
    if all(name in names for name in ROW_COLUMNS):
        columns = _read_columns(path, {name: TYPES.get(name, "string") for name in names})
        questions = np.unique(columns.pop("question").astype(str)).tolist()
        if len(questions) != 1 or questions[0] not in EVALUATION_LOSSES:
            values = ", ".join(map(repr, questions[:3])) or "nothing"
            names_of_questions = ", ".join(EVALUATION_LOSSES)
            raise Refused(f"{path.name} has {values} in the column 'question': it must be one of {names_of_questions}")
        return table_of_columns(questions[0], columns)
    if all(name in names for name in EXPLAINED_TYPES):
        return _targets_of_explanations(path, _read_columns(path, EXPLAINED_TYPES))
    missing = next(name for name in ROW_COLUMNS if name not in names)
    raise Refused(
        f"{path.name} has no column {missing!r}: a table of `headlight evaluate-file` or `headlight explain` is needed"
    )


def _read_columns(path: Path, types: dict[str, str]) -> dict[str, np.ndarray]:
    """Return columns of a table: texts as objects (row,), numbers as int64 or float64. types: column -> its type.

    Raises Refused for a damaged file, a value that does not fit the type, an empty integer, and too many rows.
    """
    import pyarrow

    is_csv = path.suffix.lower() == ".csv"
    try:
        table = _read_csv(path, types) if is_csv else _read_parquet(path, types)
        if table.num_rows > MAX_ROWS:
            raise Refused(f"{path.name} has {table.num_rows:,} rows: at most {MAX_ROWS:,} are read")
        columns = {}
        for name, type_name in types.items():
            column = table.column(name).cast(pyarrow.type_for_alias(type_name))
            if type_name == "int64" and column.null_count:
                raise Refused(f"{path.name} has an empty value in the column {name!r}: it needs a whole number")
            columns[name] = _texts(column, is_csv=is_csv) if type_name == "string" else column.to_numpy()
        return columns
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        reason = " ".join(str(error).split())[:80]
        raise Refused(f"{path.name} is not a whole table of evaluated texts: {reason}") from error


def _read_csv(path: Path, types: dict[str, str]) -> Any:
    """Return an Arrow table with columns of the given types; empty fields are missing numbers, or empty texts."""
    import pyarrow
    from pyarrow import csv

    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: pyarrow.type_for_alias(type_name) for name, type_name in types.items()},
            include_columns=list(types),
            null_values=[""],
            strings_can_be_null=False,
        ),
    )


def _read_parquet(path: Path, types: dict[str, str]) -> Any:
    """Return an Arrow table with the given columns. Raises Refused for too many rows, before they are read."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        if file.metadata.num_rows > MAX_ROWS:
            raise Refused(f"{path.name} has {file.metadata.num_rows:,} rows: at most {MAX_ROWS:,} are read")
        return file.read(columns=list(types))


def _texts(column: Any, *, is_csv: bool) -> np.ndarray:
    """Return a column of texts as objects (row,); equal texts are one object. is_csv: whether cells are escaped."""
    from pyarrow import compute

    encoded = column.fill_null("").combine_chunks().dictionary_encode()
    values = encoded.dictionary
    if is_csv:  # as `original_text`
        is_escaped = compute.match_substring_regex(values, f"^'+[{''.join(map(_in_class, FORMULA_CHARACTERS))}]")
        values = compute.if_else(is_escaped, compute.utf8_slice_codeunits(values, 1), values)
    texts: np.ndarray = values.to_numpy(zero_copy_only=False)
    rows: np.ndarray = texts.astype(object)[encoded.indices.to_numpy()]
    return rows


def _in_class(character: str) -> str:
    """Return a character as it is written in a class of a regular expression."""
    return f"\\x{{{ord(character):x}}}"


# ---------------------------------------------------------------------------- tables of explanations


def _targets_of_explanations(path: Path, columns: dict[str, np.ndarray]) -> EvaluatedTexts:
    """Return one row for each text and target of a table of `explain_file`.

    columns: those of `EXPLAINED_TYPES`, with one row for each token; position 0 begins a text and target.
    Raises Refused for a table of other kinds of targets.
    """
    starts = np.flatnonzero(columns["position"] == 0)
    kinds = {str(kind) for kind in columns["kind"][starts]}
    questions = {QUESTIONS_OF_KINDS.get(kind) for kind in kinds}
    if len(questions) != 1 or None in questions or (len(starts) and starts[0] != 0):
        raise Refused(
            f"{path.name} explains {', '.join(sorted(kinds)) or 'nothing'}: only tables with one kind of "
            f"{', '.join(QUESTIONS_OF_KINDS)} can be read as evaluated texts"
        )
    (question,) = questions
    texts = _rebuild_texts(columns, starts)
    numbers = columns["text"][starts]
    probability = columns["probability"][starts]
    probability = np.where((probability >= 0) & (probability <= 1), probability, np.nan)
    with np.errstate(divide="ignore"):
        loss = -np.log(probability)
    empty = np.full(len(starts), "", object)
    is_whole = question in ("class", "next")
    return table_of_columns(
        question or "",
        {
            "row": numbers,
            "text": np.array([texts[number][0] for number in numbers.tolist()], object),
            "pair": np.array([texts[number][1] for number in numbers.tolist()], object),
            "position": np.where(is_whole, WHOLE_TEXT, columns["first"][starts]),
            "answer": columns["asked"][starts],
            "prediction": empty,
            **dict.fromkeys(NUMBER_FIELDS, probability),
            "confidence": np.full(len(starts), np.nan),
            "loss": loss,
        },
    )


def _rebuild_texts(columns: dict[str, np.ndarray], starts: np.ndarray) -> dict[int, tuple[str, str]]:
    """Return the text and the second text of each number in the column "text", from its first target.

    Each word is put where its first piece starts. A masked piece has no word in the table, so its token is used.
    """
    texts: dict[int, tuple[str, str]] = {}
    ends = [*starts[1:].tolist(), len(columns["text"])]
    for first, end in zip(starts.tolist(), ends, strict=True):
        number = int(columns["text"][first])
        if number in texts:
            continue
        rebuilt = {"A": "", "B": ""}
        part = (columns[name][first:end] for name in ("side", "token", "word", "start"))
        for side, token, word, start in zip(*part, strict=True):
            if side in rebuilt and start >= len(rebuilt[side]):
                rebuilt[side] = rebuilt[side].ljust(int(start)) + (word or token)
        texts[number] = (rebuilt["A"], rebuilt["B"])
    return texts
