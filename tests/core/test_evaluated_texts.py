"""Records and analysis of evaluated texts: every count is that of scikit-learn, and slices partition the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from bert_core.analysis import evaluation
from bert_core.records import EvaluatedTexts
from bert_core.refused import Refused

LABELS = ("positive", "negative", "neutral", "été", "日本", "🙂", "other", "=1+1", " ")


def random_table(seed: int, rows: int = 400, labels: tuple[str, ...] = LABELS, missing: float = 0.2) -> EvaluatedTexts:
    """Return a table with random answers, some of them missing, and predictions that are often correct."""
    rng = np.random.default_rng(seed)
    names = np.array(labels, object)
    answers = names[rng.integers(len(names), size=rows)]
    predictions = np.where(rng.random(rows) < 0.6, answers, names[rng.integers(len(names), size=rows)])
    answers = np.where(rng.random(rows) < missing, "", answers)
    has_answer = answers != ""
    probability = np.where(has_answer, rng.random(rows), np.nan)
    return EvaluatedTexts(
        "class",
        "nats per text",
        np.arange(2, rows + 2),
        np.array([" ".join(["word"] * count) for count in rng.integers(0, 60, size=rows)], object),
        np.array([""] * rows, object),
        np.full(rows, -1),
        answers,
        predictions,
        probability,
        rng.random(rows),
        -np.log(probability),
        {
            "source": np.array(["a", "b", "", "c"], object)[rng.integers(4, size=rows)],
            "year": np.array([str(number) for number in rng.integers(1900, 2020, size=rows)], object),
        },
    )


def small_table(**values: Any) -> EvaluatedTexts:
    """Return a table with one row for each entry of the given values."""
    rows = len(next(iter(values.values())))
    texts = [""] * rows
    numbers = [math.nan] * rows
    fields = {"row": range(rows), "position": [-1] * rows}
    fields |= dict.fromkeys(("text", "pair", "answer", "prediction"), texts)
    fields |= dict.fromkeys(("probability", "confidence", "loss"), numbers)
    return EvaluatedTexts("class", "nats per text", **(fields | values))


@pytest.mark.parametrize("value", [None, math.nan, 3, b"door"])
@pytest.mark.parametrize("field", ["text", "pair", "answer", "prediction", "the column 'source'"])
def test_a_text_that_is_not_a_str_is_refused(field: str, value: object) -> None:
    """Such a value would count as an answer; the message names the field; an empty text is no answer."""
    values = ["door", value]
    fields: dict[str, Any] = {"columns": {"source": values}} if "column" in field else {field: values}
    with pytest.raises(Refused, match=rf"^{field} has the value .* at index 1: it must be a text, empty for none$"):
        small_table(**({"row": [1, 2]} | fields))
    missing = small_table(row=[1, 2], answer=["door", ""], prediction=["door", "door"])
    assert missing.is_scored.tolist() == [True, False]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_counts_are_those_of_scikit_learn(seed: int, missing: float) -> None:
    """Accuracy, F1 and every cell of the confusion matrix, over the rows with an answer."""
    table = random_table(seed, missing=missing)
    answers = table.answer[table.is_scored].tolist()
    predictions = table.prediction[table.is_scored].tolist()
    totals = evaluation.summary(table)
    assert totals.count == 400 and totals.scored == len(answers)
    assert totals.accuracy == pytest.approx(accuracy_score(answers, predictions), rel=1e-12)
    assert totals.correct == accuracy_score(answers, predictions, normalize=False)
    assert totals.macro_f1 == pytest.approx(f1_score(answers, predictions, average="macro"), rel=1e-12)
    matrix = evaluation.confusion(table)
    assert set(matrix.labels) == set(LABELS) == set(table.labels) and not matrix.groups_rare_labels
    np.testing.assert_array_equal(matrix.counts, confusion_matrix(answers, predictions, labels=list(matrix.labels)))
    assert np.trace(matrix.counts) == totals.correct


@pytest.mark.parametrize("max_labels", [1, 3, 8, 9, 20])
def test_rare_labels_share_a_row_and_a_column(max_labels: int) -> None:
    """The matrix is scikit-learn's after all labels but the most frequent are renamed, and each cell has its rows."""
    table = random_table(7)
    matrix = evaluation.confusion(table, max_labels)
    frequent = set(matrix.labels[: -1 if matrix.groups_rare_labels else None])
    assert matrix.groups_rare_labels == (max_labels < len(LABELS)) and len(frequent) == min(max_labels, len(LABELS))
    if matrix.groups_rare_labels:
        assert matrix.labels[-1] not in frequent

    def renamed(values: np.ndarray) -> list[str]:
        return [value if value in frequent else matrix.labels[-1] for value in values[table.is_scored]]

    expected = confusion_matrix(renamed(table.answer), renamed(table.prediction), labels=list(matrix.labels))
    np.testing.assert_array_equal(matrix.counts, expected)
    selected = []
    for row, answer in enumerate(matrix.labels):
        for column, prediction in enumerate(matrix.labels):
            indices = evaluation.rows_in_cell(table, matrix, answer, prediction)
            assert len(indices) == matrix.counts[row, column]
            selected += indices.tolist()
    assert sorted(selected) == np.flatnonzero(table.is_scored).tolist()


@pytest.mark.parametrize("max_labels", [2, 3, 4, 20])
def test_a_frequent_prediction_displaces_no_answer(max_labels: int) -> None:
    """Rows are the most frequent answers of an imbalanced file; labels that are only predicted come after them."""
    answers = ["a"] * 90 + ["b"] * 6 + ["c"] * 4
    predictions = ["x"] * 60 + ["c"] * 35 + ["y"] * 5
    size = len(answers)
    table = EvaluatedTexts(
        "class", "nats per text", range(size), ["text"] * size, [""] * size, [-1] * size, answers, predictions,
        *[[0.5] * size] * 3,
    )  # fmt: skip
    matrix = evaluation.confusion(table, max_labels)
    names = ["a", "b", "c", "x", "y"][:max_labels]
    assert matrix.labels == (*names, *["other"] * (max_labels < 5))
    grouped = ([value if value in names else "other" for value in values] for values in (answers, predictions))
    np.testing.assert_array_equal(matrix.counts, confusion_matrix(*grouped, labels=list(matrix.labels)))
    assert matrix.counts.any(1).tolist() == [label in answers or max_labels == 2 for label in matrix.labels]


@pytest.mark.parametrize("column", ["answer", "prediction", "length", "correct", "source", "year"])
@pytest.mark.parametrize("max_values", [2, 50])
def test_a_slice_is_the_summary_of_its_rows(column: str, max_values: int) -> None:
    """Count, accuracy, interval, loss and its standard error of each slice are those of the selected rows."""
    table = random_table(3)
    parts = evaluation.slices(table, column, max_values)
    assert sum(part.count for part in parts) == len(table)
    assert len(parts) == len({part.value for part in parts}) > 1
    indices = [evaluation.rows_in_slice(table, column, part.value, max_values) for part in parts]
    np.testing.assert_array_equal(np.sort(np.concatenate(indices)), np.arange(len(table)))
    for part, rows in zip(parts, indices, strict=True):
        subset = evaluation.select(table, rows)
        totals = evaluation.summary(subset)
        assert (part.count, part.scored) == (totals.count, totals.scored)
        np.testing.assert_allclose(
            (part.accuracy, *part.interval, part.mean_loss),
            (totals.accuracy, *totals.interval, totals.mean_loss),
            rtol=1e-12,
        )
        losses = subset.loss[~np.isnan(subset.loss)]
        error = losses.std(ddof=1) / len(losses) ** 0.5 if len(losses) > 1 else math.nan
        assert part.loss_error == pytest.approx(error, rel=1e-9, nan_ok=True)


def test_a_column_of_many_numbers_is_sliced_into_ranges() -> None:
    """At most ten ranges of about equal size, in increasing order; few numbers and texts are no ranges."""
    years = [str(1900 + row) for row in range(200)]
    parts = evaluation.slices(small_table(row=range(200), columns={"year": years}), "year")
    assert len(parts) == 10 and {part.count for part in parts} == {20}
    assert parts[0].value == "1900 to 1919" and parts[-1].value == "2080 to 2099"
    parts = evaluation.slices(small_table(row=range(201), columns={"year": [*years, ""]}), "year")
    assert len(parts) == 11 and parts[-1].value == "" and parts[-1].count == 1
    parts = evaluation.slices(small_table(row=range(201), columns={"year": [*years, "unknown"]}), "year")
    assert len(parts) == 51 and parts[-1].value == "other" and parts[-1].count == 151
    parts = evaluation.slices(small_table(row=range(4), columns={"year": ["7", "10", "7", "7"]}), "year")
    assert [(part.value, part.count) for part in parts] == [("7", 3), ("10", 1)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=3), st.sampled_from(("", "a", "b")), st.sampled_from(("", "a", "b"))), max_size=40
    ),
    st.integers(1, 6),
)
def test_slices_partition_every_table(rows: list[tuple[str, str, str]], max_values: int) -> None:
    """For any values of a column: counts sum to the rows, and correct rows to the summary."""
    values, answers, predictions = ([row[number] for row in rows] for number in range(3))
    table = small_table(answer=answers, prediction=predictions, columns={"column": values})
    for column in evaluation.slice_columns(table):
        parts = evaluation.slices(table, column, max_values)
        assert sum(part.count for part in parts) == len(rows)
        assert sum(part.scored for part in parts) == evaluation.summary(table).scored
        correct = sum(round(part.accuracy * part.scored) for part in parts if part.scored)
        assert correct == evaluation.summary(table).correct
        members = [evaluation.rows_in_slice(table, column, part.value, max_values) for part in parts]
        assert sorted(np.concatenate([np.arange(0), *members]).tolist()) == list(range(len(rows)))


def test_rows_are_sorted_stably_with_missing_values_last() -> None:
    """In both directions: numbers by value, columns of numbers by number, other columns by text."""
    nan = math.nan
    table = small_table(
        loss=[1.0, nan, 2.0, 1.0, math.inf],
        columns={"number": ["10", "9", "", "9", "-1"], "name": ["b", "B", "é", "", "b"]},
    )
    assert evaluation.order(table).tolist() == [4, 2, 0, 3, 1]
    assert evaluation.order(table, descending=False).tolist() == [0, 3, 2, 4, 1]
    assert evaluation.order(table, "number").tolist() == [0, 1, 3, 4, 2]
    assert evaluation.order(table, "number", descending=False).tolist() == [4, 1, 3, 0, 2]
    assert evaluation.order(table, "name", descending=False).tolist() == [1, 0, 4, 2, 3]
    assert evaluation.order(table, "row").tolist() == [4, 3, 2, 1, 0]
    assert evaluation.order(table, "confidence").tolist() == [0, 1, 2, 3, 4]  # all are missing
    with pytest.raises(Refused, match="cannot be sorted by 'colour'"):
        evaluation.order(table, "colour")


def test_tables_without_answers_or_rows_have_no_accuracy() -> None:
    """A row counts only with both an answer and a prediction, and everything else is NaN or empty."""
    table = small_table(answer=["a", ""], prediction=["", "a"], loss=[0.5, math.nan])
    totals = evaluation.summary(table)
    assert not table.has_answers and totals.scored == totals.correct == 0 and totals.mean_loss == 0.5
    assert all(map(math.isnan, (totals.accuracy, *totals.interval, totals.macro_f1)))
    assert evaluation.confusion(table).counts.shape == (0, 0)
    assert [part.value for part in evaluation.slices(table, "correct")] == [evaluation.NOT_SCORED]
    empty = evaluation.select(table, [])
    assert len(empty) == 0 and evaluation.slices(empty, "answer") == evaluation.slices(empty, "length") == ()
    assert math.isnan(evaluation.summary(empty).mean_loss) and evaluation.order(empty).tolist() == []


def test_selected_rows_keep_all_values() -> None:
    """In the given order, with repetition, and equal to the table if all rows are selected."""
    table = random_table(1)
    assert evaluation.select(table, range(len(table))) == table
    subset = evaluation.select(table, np.array([3, 1, 3]))
    assert (
        subset.row.tolist() == [5, 3, 5]
        and subset.columns["year"].tolist() == table.columns["year"][[3, 1, 3]].tolist()
    )
    for indices in ([400], [-1], [0.5], [[0]], "no"):
        with pytest.raises(Refused, match=r"whole numbers|an index must be"):
            evaluation.select(table, indices)  # type: ignore[arg-type]


def test_records_are_read_only_and_checked() -> None:
    """Arrays cannot be changed; columns of another length, unusable values and reserved names are refused."""
    table = random_table(1)
    for values in (table.loss, table.answer, table.columns["year"], table.is_correct, table.is_scored):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = values[0]
    with pytest.raises(TypeError):
        table.columns["new"] = table.loss  # type: ignore[index]
    for values, message in (
        ({"loss": ["much"]}, "loss is"),
        ({"text": "abc"}, "text is 'abc'"),
        ({"loss": [[1.0]]}, "loss has 2 axes"),
        ({"row": [1], "text": ["a", "b"]}, "text has 2 rows and row has 1"),
        ({"row": [1], "columns": {"year": []}}, "year has 0 rows"),
        ({"row": [1], "columns": {"loss": ["1"]}}, "the name 'loss'"),
        ({"row": [1], "columns": ["year"]}, "a mapping"),
    ):
        with pytest.raises(Refused, match=message):
            small_table(**values)


def test_unknown_labels_and_columns_are_refused() -> None:
    """One sentence with what is allowed."""
    table = random_table(1)
    matrix = evaluation.confusion(table)
    with pytest.raises(Refused, match="no label 'missing': its labels are"):
        evaluation.rows_in_cell(table, matrix, "missing", "été")
    with pytest.raises(Refused, match="no column 'colour': slices exist by answer"):
        evaluation.slices(table, "colour")
    with pytest.raises(Refused, match="no slice 'd': its slices are"):
        evaluation.rows_in_slice(table, "source", "d")
    for call in (lambda: evaluation.confusion(table, 0), lambda: evaluation.slices(table, "source", 0)):
        with pytest.raises(Refused, match="at least 1"):
            call()
