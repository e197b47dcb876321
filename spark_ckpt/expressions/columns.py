"""Columns that are made when they are asked for, once. Executor.

What nobody reads is not computed, and nothing is for rows that a filter leaves out, wherever it stands. So it is in
Spark, whose optimizer drops columns that are not read and moves filters in front of projections: a cast of a text that
is no number fails no query that leaves this row, or this column, out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.expressions.tree import Input, Tree, inputs_of, may_raise

_PLAIN = {
    **{kind: kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())},
    pa.date32(): pa.int32(),
    **{pa.timestamp("us", zone): pa.int64() for zone in (None, "UTC")},
}
"""Types whose values are numbers to NumPy, and those numbers' types."""
Evaluate = Callable[[Tree, Sequence[pa.Array], int], pa.Array]
"""The values of a tree for rows of these columns."""


@dataclass(frozen=True)
class Selection:
    """Some of the rows, ``count`` of them, or some of them several times; ``of`` gives theirs of a column's values."""

    count: int
    of: Callable[[pa.Array], pa.Array]


def where_true(wanted: pa.Array) -> Selection:
    """Column by column: Arrow's filter of a whole batch looks up each row."""
    wanted = wanted.fill_null(False) if wanted.null_count else wanted
    mask = wanted.to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(mask))
    return Selection(count, lambda values: _kept(values, wanted, mask, count))


def _kept(values: pa.Array, wanted: pa.Array, mask: np.ndarray, count: int) -> pa.Array:
    if values.null_count == len(values):
        return pa.nulls(count, values.type)
    if values.null_count or values.type not in _PLAIN:
        return values.filter(wanted)
    as_numbers = values.view(_PLAIN[values.type])
    return pa.array(as_numbers.to_numpy()[mask]).view(values.type)


def at_places(at: np.ndarray) -> Selection:
    """The rows at these places; nulls at -1, which is for columns that are there: what is computed of a null may be
    something else."""
    return Selection(len(at), lambda values: picked(values, at))


def picked(values: pa.Array, at: np.ndarray) -> pa.Array:
    """The values at these places; null at -1."""
    if values.null_count == len(values):
        return pa.nulls(len(at), values.type)
    alone = at < 0
    missing = alone if alone.any() else None
    if values.null_count or values.type not in _PLAIN:
        return values.take(pa.array(at, mask=missing))
    found = values.view(_PLAIN[values.type]).to_numpy().take(at)  # the last one at -1
    return pa.array(found, mask=missing).view(values.type)


class Columns(Sequence[pa.Array]):
    """Of so many ``rows``."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows, self._width = rows, width
        self._found: dict[int, pa.Array] = {}

    def __len__(self) -> int:
        return self._width

    def __getitem__(self, at: Any) -> Any:
        if at not in self._found:
            self._found[at] = self._made(at)
        return self._found[at]

    def _made(self, at: int) -> pa.Array:
        raise NotImplementedError

    def kind(self, at: int) -> pa.DataType:
        """Its type, of which it need not be made."""
        raise NotImplementedError

    def fails(self, at: int) -> bool:
        """Whether making it may fail."""
        return False

    def only(self, rows: Selection) -> Columns:
        return Some(self, rows)


def may_raise_over(tree: Tree, columns: Columns) -> bool:
    """Whether a value may make ``tree`` fail, or one of the ``columns`` that it reads and that is not made yet."""
    return may_raise(tree) or any(columns.fails(at) for at in inputs_of(tree))


class Given(Columns):
    """Those that are there."""

    def __init__(self, arrays: Sequence[pa.Array], rows: int) -> None:
        super().__init__(rows, len(arrays))
        self._arrays = arrays

    def _made(self, at: int) -> pa.Array:
        return self._arrays[at]

    def kind(self, at: int) -> pa.DataType:
        return self._arrays[at].type


class Some(Columns):
    """Those of some rows."""

    def __init__(self, whole: Columns, rows: Selection) -> None:
        super().__init__(rows.count, len(whole))
        self._whole, self._rows = whole, rows

    def _made(self, at: int) -> pa.Array:
        return self._rows.of(self._whole[at])

    def kind(self, at: int) -> pa.DataType:
        return self._whole.kind(at)


class Computed(Columns):
    """``trees`` over the columns ``inputs``. ``before``: the same of more rows, of which these are some."""

    def __init__(
        self,
        trees: Sequence[Tree],
        inputs: Columns,
        evaluate: Evaluate,
        before: tuple[Computed, Selection] | None = None,
    ) -> None:
        super().__init__(inputs.rows, len(trees))
        self._trees, self._inputs, self._evaluate, self._before = trees, inputs, evaluate, before

    def _made(self, at: int) -> pa.Array:
        if self._before is not None:
            whole, rows = self._before
            if whole.is_there(at) or (rows.count >= whole.rows and not whole.fails(at)):
                return rows.of(whole[at])
        tree = self._trees[at]
        return self._inputs[tree.at] if isinstance(tree, Input) else self._evaluate(tree, self._inputs, self.rows)

    def is_there(self, at: int) -> bool:
        return at in self._found or (self._before is not None and self._before[0].is_there(at))

    def kind(self, at: int) -> pa.DataType:
        tree = self._trees[at]
        return self._inputs.kind(tree.at) if isinstance(tree, Input) else tree.type

    def fails(self, at: int) -> bool:
        if self.is_there(at):
            return False
        return may_raise_over(self._trees[at], self._inputs)

    def only(self, rows: Selection) -> Columns:
        return Computed(self._trees, self._inputs.only(rows), self._evaluate, (self, rows))


class Placed(Columns):
    """Some of several: ``places`` are (which of them, and the column's place there)."""

    def __init__(self, several: Sequence[Columns], places: Sequence[tuple[int, int]], rows: int) -> None:
        super().__init__(rows, len(places))
        self._several, self._places = several, places

    def _made(self, at: int) -> pa.Array:
        which, place = self._places[at]
        return self._several[which][place]

    def kind(self, at: int) -> pa.DataType:
        which, place = self._places[at]
        return self._several[which].kind(place)

    def fails(self, at: int) -> bool:
        which, place = self._places[at]
        return self._several[which].fails(place)

    def only(self, rows: Selection) -> Columns:
        return Placed([columns.only(rows) for columns in self._several], self._places, rows.count)
