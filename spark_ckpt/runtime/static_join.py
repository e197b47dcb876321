"""A stream's rows joined with a static side that is in Arrow, batch by batch. Executor.

Control rows match nothing, whatever their keys say, and come out once. Rows come out in the order of the stream's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions.columns import Columns, Given, Placed, at_places, where_true
from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Tree
from spark_ckpt.runtime.lazy_batch import LazyBatch, RowOperation, all_lazily
from spark_ckpt.runtime.static_sides import StaticSide, carried_side
from spark_ckpt.state.ipc import Rows, from_bytes
from spark_ckpt.state.joins.static_index import Pairs
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.types import CTL

INNER, LEFT, SEMI, ANTI = "inner", "left", "left_semi", "left_anti"
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class JoinColumns:
    """What a join does, by position: ``keys`` of the stream's rows equal ``static_keys`` of the static side's.

    ``condition`` is of the columns of both, the stream's first. ``out``: the columns that come out, counted likewise.
    """

    kind: str
    keys: tuple[Tree, ...]
    static_keys: tuple[Tree, ...]
    condition: Tree | None
    out: tuple[tuple[str, int], ...]
    width: int
    """How many columns the stream has."""


class Side(Protocol):
    """Where a task gets the static side. Called once a task; ``keys`` are what it is looked up by."""

    def __call__(self, keys: tuple[Tree, ...]) -> StaticSide: ...


class JoinStatic(RowOperation):
    """The operation. Pickled to every task."""

    def __init__(self, columns: JoinColumns, side: Side) -> None:
        self.columns, self.side = columns, side

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        side: StaticSide | None = None
        for batch in batches:
            side = side or self.side(self.columns.static_keys)
            yield from Joining(self.columns, side, batch).rows()


class JoinCarried(RowOperation):
    """The same over binary rows, the first of which carries the static side as this batch reads it.

    ``rows`` is the stream's schema, ``static`` that of the static side; ``first`` is done before. Pickled to every
    task.
    """

    def __init__(
        self, columns: JoinColumns, rows: pa.Schema, static: pa.Schema, first: Sequence[RowOperation] = ()
    ) -> None:
        self.columns, self.rows, self.static, self.first = columns, rows, static, first

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        batch = next(batches, None)
        if batch is None:
            return
        side = carried_side(batch.column("static"), self.columns.static_keys, self.static)
        for rows in all_lazily(self.first, self._disclosed(chain([batch], batches))):
            yield from Joining(self.columns, side, rows).rows()

    def _disclosed(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        for batch in batches:
            for body in batch.column("body"):
                yield LazyBatch.of(from_bytes(body.as_buffer(), self.rows))


class Joining:
    """One batch and the static side."""

    def __init__(self, columns: JoinColumns, side: StaticSide, batch: LazyBatch) -> None:
        self._columns, self._batch = columns, batch
        self._side, self._index = Given(side.columns, side.rows), side.index
        control = batch.column(CTL)
        self._control = None if control.null_count == len(control) else control.is_valid().to_numpy(False)

    def rows(self) -> Iterator[LazyBatch]:
        if self._columns.kind in (SEMI, ANTI):
            matched = where_true(pa.array(self._whether_matched()))
            if matched.count:
                yield self._made(self._batch.columns.only(matched), self._side)
            return
        yield from (self._joined(at, found) for at, found in self._with_unmatched() if len(at))

    def _whether_matched(self) -> Mask:
        wanted = np.zeros(self._batch.num_rows, bool)
        for at, _ in self._matching():
            wanted[at] = True
        if self._columns.kind == ANTI:
            return ~wanted
        return wanted if self._control is None else wanted | self._control

    def _with_unmatched(self) -> Pairs:
        """The pairs, and -1 as the static row of those that come out alone; these among the last of the pairs."""
        matched = np.zeros(self._batch.num_rows, bool)
        last = _NONE, _NONE
        for piece in self._matching():
            yield last
            last = piece
            matched[piece[0]] = True
        if self._columns.kind == LEFT:
            alone = np.flatnonzero(~matched)
        else:
            alone = _NONE if self._control is None else np.flatnonzero(self._control)
        yield _in_order(last, alone) if len(alone) else last

    def _matching(self) -> Pairs:
        batch, condition = self._batch, self._columns.condition
        keys = [column(key, batch.columns, batch.num_rows) for key in self._columns.keys]
        data = None if self._control is None else ~self._control
        for at, found in self._index.pairs(keys, data):
            if condition is not None:
                true = self._true(condition, at, found)
                at, found = at[true], found[true]
            yield at, found

    def _true(self, condition: Tree, at: Rows, found: Rows) -> Mask:
        both = [self._batch.columns.only(at_places(at)), self._side.only(at_places(found))]
        columns = Placed(both, [(i, at) for i in (0, 1) for at in range(len(both[i]))], len(at))
        return pc.fill_null(column(condition, columns, len(at)), False).to_numpy(zero_copy_only=False)

    def _joined(self, at: Rows, found: Rows) -> LazyBatch:
        left = self._batch.columns
        all_once = len(at) == left.rows and (at[1:] > at[:-1]).all()
        return self._made(left if all_once else left.only(at_places(at)), self._side.only(at_places(found)))

    def _made(self, left: Columns, right: Columns) -> LazyBatch:
        names, places = zip(*self._columns.out, strict=True)
        width = self._columns.width
        out = [(0, at) if at < width else (1, at - width) for at in places]
        return LazyBatch(names, Placed([left, right], out, left.rows))


def _in_order(pairs: tuple[Rows, Rows], alone: Rows) -> tuple[Rows, Rows]:
    at = np.concatenate([pairs[0], alone])
    order = np.argsort(at, kind="stable")
    return at[order], np.concatenate([pairs[1], np.full(len(alone), -1)])[order]
