"""A stream's rows joined with a static side that is in Arrow, batch by batch. Executor.

Control rows match nothing, whatever their keys say, and come out once. Rows come out in the order of the stream's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Input, Tree, calls
from spark_ckpt.runtime.expressions import kept_rows, picked
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


class JoinStatic:
    """The operation. Pickled to every task."""

    def __init__(self, columns: JoinColumns, side: Side) -> None:
        self.columns, self.side = columns, side

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        side: StaticSide | None = None
        for batch in batches:
            side = side or self.side(self.columns.static_keys)
            yield from Joining(self.columns, side, batch).rows()


class JoinCarried:
    """The same over binary rows, the first of which carries the static side as this batch reads it.

    ``rows`` is the stream's schema, ``static`` that of the static side. Pickled to every task.
    """

    def __init__(self, columns: JoinColumns, rows: pa.Schema, static: pa.Schema) -> None:
        self.columns, self.rows, self.static = columns, rows, static

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        side: StaticSide | None = None
        for batch in batches:
            side = side or carried_side(batch.column("static"), self.columns.static_keys, self.static)
            for body in batch.column("body"):
                yield from Joining(self.columns, side, from_bytes(body.as_buffer(), self.rows)).rows()


class Joining:
    """One batch and the static side."""

    def __init__(self, columns: JoinColumns, side: StaticSide, batch: pa.RecordBatch) -> None:
        self._columns, self._side, self._batch = columns, side, batch
        control = batch.column(batch.schema.get_field_index(CTL))
        self._control = None if control.null_count == len(control) else control.is_valid().to_numpy(False)

    def rows(self) -> Iterator[pa.RecordBatch]:
        if self._columns.kind in (SEMI, ANTI):
            kept = kept_rows(self._batch, pa.array(self._whether_matched()))
            if kept.num_rows:
                yield self._made(kept.columns, [])
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
        for at, found in self._side.index.pairs(keys, data):
            if condition is not None:
                true = self._true(condition, at, found)
                at, found = at[true], found[true]
            yield at, found

    def _true(self, condition: Tree, at: Rows, found: Rows) -> Mask:
        width, needed = self._columns.width, _inputs(condition)
        both = [*self._batch.columns, *self._side.columns]
        columns = [
            picked(values, at if i < width else found) if i in needed else pa.nulls(len(at), values.type)
            for i, values in enumerate(both)
        ]
        return pc.fill_null(column(condition, columns, len(at)), False).to_numpy(zero_copy_only=False)

    def _joined(self, at: Rows, found: Rows) -> pa.RecordBatch:
        batch, width = self._batch, self._columns.width
        if len(at) == batch.num_rows and (at[1:] > at[:-1]).all():
            left = batch.columns
        else:
            needed = {i for _, i in self._columns.out}
            left = [picked(c, at) if i in needed else c for i, c in enumerate(batch.columns)]
        static = {i - width for _, i in self._columns.out if i >= width}
        right = [picked(c, found) if i in static else c for i, c in enumerate(self._side.columns)]
        return self._made(left, right)

    def _made(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> pa.RecordBatch:
        both = [*left, *right]
        out = self._columns.out
        return pa.RecordBatch.from_arrays([both[i] for _, i in out], [name for name, _ in out])


def _in_order(pairs: tuple[Rows, Rows], alone: Rows) -> tuple[Rows, Rows]:
    at = np.concatenate([pairs[0], alone])
    order = np.argsort(at, kind="stable")
    return at[order], np.concatenate([pairs[1], np.full(len(alone), -1)])[order]


def _inputs(tree: Tree) -> set[int]:
    parts = [tree, *(part for call in calls(tree) for part in call.parts)]
    return {part.at for part in parts if isinstance(part, Input)}
