"""Tables of records: one row for each element of an array, with its place on each axis in columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_core.heap import available_bytes
from bert_core.refused import Refused, require_sequence, short_repr

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_LISTED = 12  # entries of an axis that a message lists
# The axes of a table, as "layer head query key", and its columns by name: arrays with these axes, or names of
# attributes that have them. A tuple is the product of such factors, which are broadcast to the table and multiplied
# only in the selected rows. A column is left out if it, or a factor of it, is None.
Columns = Mapping[str, object]
Tables = Sequence[tuple[str, Columns]]


class Tabular:
    """A record that has tables.

    TABLES: the tables, that of the main result first. Without any, the fields of the record are the columns of one row.
    """

    TABLES: ClassVar[Tables] = ()

    def table(self, column: str | None = None, **selection: int | str | Sequence[int | str]) -> DataFrame:
        """Return the record as a pandas DataFrame with one row for each element of its arrays.

        The first columns are the place of the element on each axis: numbers (int32), and the tokens of positions
        (categorical). The other columns are all arrays with these axes. A pruned head is NaN.

        column: a column of the table, for records with several tables. None means the table of the main result.
        selection: the rows to keep, one or several numbers for an axis, as in `table(layer=3, head=[0, 1])`.
        Raises Refused without pandas, for a column, an axis or a number that does not exist, and for a table that
        needs more memory than is available.

        >>> import bert_core
        >>> loaded = bert_core.load("headlight-mini")
        >>> run = bert_core.capture(loaded, loaded.tokenizer.encode("She opened the door."))
        >>> table = run.table(layer=3, head=8)
        >>> list(table.columns)
        ['layer', 'head', 'query_position', 'query', 'key_position', 'key', 'attention']
        >>> len(table) == len(run.encoding) ** 2
        True
        """
        try:
            import pandas
        except ImportError as error:
            raise Refused("a table needs the package pandas, which is not installed: pip install pandas") from error
        axes, factors = self._factors_of(column)
        whole_shape = np.broadcast_shapes(*(factor.shape for factor in next(iter(factors.values()))))
        for axis in selection:
            if axis not in axes:
                allowed = f"select by {', '.join(axes)}" if axes else "it has one row"
                raise Refused(f"this table of {type(self).__name__} has no axis {short_repr(axis)}: {allowed}")
        labels: list[dict[str, Sequence[Any] | np.ndarray]]
        labels = [self._axis_columns(axis, size, axes) for axis, size in zip(axes, whole_shape, strict=True)]
        indices = [
            _indices(axis, next(iter(columns.values())), selection[axis]) if axis in selection else np.arange(size)
            for axis, size, columns in zip(axes, whole_shape, labels, strict=True)
        ]
        shape = tuple(map(len, indices))
        if axes and whole_shape[0]:
            first = next(iter(labels[0].values()))[0]
            _check_size(shape, sum(map(len, labels)), factors, f"table({axes[0]}={first!r})")
        table: dict[str, Any] = {}
        for number, (columns, index) in enumerate(zip(labels, indices, strict=True)):
            for name, entries in columns.items():
                cells = np.asarray(entries)
                if cells.dtype.kind == "f":  # NaN where the axis has no number
                    table[name] = _spread(cells[index], number, shape)
                elif cells.dtype.kind in "iu":
                    table[name] = _spread(cells[index].astype(np.int32), number, shape)
                else:
                    categories, codes = np.unique(cells.astype(object), return_inverse=True)
                    codes = codes[index].astype(np.min_scalar_type(-len(categories) - 1))
                    table[name] = pandas.Categorical.from_codes(_spread(codes, number, shape), categories)
        for name, parts in factors.items():
            whole_parts = [np.broadcast_to(part, whole_shape) for part in parts]
            selected_parts = [part[np.ix_(*indices)] for part in whole_parts] if selection else whole_parts
            table[name] = reduce(np.multiply, selected_parts).flatten()
        return pandas.DataFrame(table, copy=False)

    def _tables(self) -> Tables:
        """Return the tables of this record."""
        return self.TABLES or (("", {entry.name: entry.name for entry in fields(self)}),)  # type: ignore[arg-type]

    def _tokens(self) -> Sequence[str] | None:
        """Return the tokens of the positions of the text, or None for a record without a text."""
        encoding = getattr(self, "encoding", None)
        return None if encoding is None else encoding.tokens

    def _numbers(self, axis: str, size: int, axes: Sequence[str]) -> Sequence[int]:
        """Return the numbers of the entries of an axis of a table with these axes, such as those of the layers."""
        return range(1, size + 1) if axis == "rank" else range(size)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        """Return the columns of an axis, with an entry for each index; the first is the one to select by."""
        numbers, tokens = self._numbers(axis, size, axes), self._tokens()
        names = (axis, "token") if axis == "position" else (f"{axis}_position", axis)
        if axis not in ("position", "query", "key") or tokens is None:
            return {axis: numbers}
        return {names[0]: numbers, names[1]: [tokens[number] for number in numbers]}

    def _factors_of(self, column: str | None) -> tuple[tuple[str, ...], dict[str, list[np.ndarray]]]:
        """Return the axes of the table with a column, and the factors of each of its columns.

        Raises Refused if there is no such table.
        """
        available: list[str] = []
        for axes, columns in self._tables():
            if column is None or column in columns:
                factors: dict[str, list[np.ndarray]] = {}
                for name, value in columns.items():
                    parts = [
                        getattr(self, part) if isinstance(part, str) else part
                        for part in (value if isinstance(value, tuple) else (value,))
                    ]
                    if not axes or all(part is not None for part in parts):
                        factors[name] = [np.asarray(part) for part in parts]
                if factors and (column is None or column in factors):
                    return tuple(axes.split()), factors
            available += columns
        raise Refused(
            f"{type(self).__name__} has no column {short_repr(column)} here: its columns are {', '.join(available)}, "
            "without those that were not computed"
        )


def _check_size(
    shape: Sequence[int], labels: int, factors: Mapping[str, Sequence[np.ndarray]], example: str
) -> None:  # fmt: skip
    """Raise Refused if a table needs more memory than is available.

    labels: number of columns of all axes. factors: those of each other column. example: a selection, for the message.
    """
    rows = math.prod(shape)
    required = rows * (4 * labels + sum(np.result_type(*parts).itemsize for parts in factors.values()))
    available = available_bytes()
    if available is not None and required > available:
        raise Refused(
            f"a table of {rows:,} rows needs {required / 2**20:,.1f} MiB of memory, but only "
            f"{available / 2**20:,.1f} MiB are free: select rows, as in {example}"
        )


def _spread(entries: np.ndarray, axis: int, shape: Sequence[int]) -> np.ndarray:
    """Return the entry of each element of an array of a shape, in the order of its rows. entries: of one axis."""
    reshaped = entries.reshape([-1 if number == axis else 1 for number in range(len(shape))])
    spread: np.ndarray = np.broadcast_to(reshaped, shape).ravel()
    return spread


def _indices(axis: str, entries: Sequence[Any] | np.ndarray, selected: int | str | Sequence[int | str]) -> np.ndarray:
    """Return the indices of selected entries of an axis. Raises Refused for an entry that does not exist."""
    values = [selected] if isinstance(selected, str | int | np.integer) else require_sequence(axis, selected, "numbers")
    indices: list[int] = []
    for value in values:
        is_valid = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
        matching = [index for index, entry in enumerate(entries) if is_valid and entry == value]
        if not matching:
            names = list(dict.fromkeys(map(str, entries)))
            choices = ", ".join(names) if len(names) <= MAX_LISTED else f"{names[0]} to {names[-1]}"
            raise Refused(f"the {axis} {short_repr(value)} does not exist: choose from {choices}")
        indices += matching
    return np.array(indices, np.intp)
