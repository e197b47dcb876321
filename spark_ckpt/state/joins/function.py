"""A join of two streams: each side's rows wait, in a family of their own, for rows of the other that match.

As in Spark's ``StreamingSymmetricHashJoinExec``: a batch's rows meet all that waits and each other; behind them, the
rows end that the watermark lets match no more, and those of an outer side that found none come out, with nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched, nothing_in
from spark_ckpt.state.ipc import Rows, int64_view, one_batch
from spark_ckpt.state.joins.matching import SEMI, Found, Matching
from spark_ckpt.state.joins.predicate import Predicate
from spark_ckpt.state.joins.sides import MATCHED, ROW, Side, SideRows
from spark_ckpt.state.keys.grouping import segments_by_index
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.family import Found as Stored
from spark_ckpt.state.lsm.layout import FamilyLayout

RIGHT, MAY_MATCH = "__ckpt_right", "__ckpt_may_match"
"""Columns of the rows that arrive: whether a row is of the right side; false if its own side's conditions, which look
at no other row, leave it out."""
LEFT_FAMILY, RIGHT_FAMILY = "left", "right"
COUNTS = (LEFT_FAMILY, RIGHT_FAMILY)
NEXT = "next"
"""Of a key's own state: how many rows wait on each side, and the number of the next that does."""


@dataclass(frozen=True)
class Output:
    """A column that comes out, from a side's column; where both are named, from the one that is there."""

    field: pa.Field
    left: str | None = None
    right: str | None = None


class StreamJoin(StateFunction):
    """``how``: ``inner``, ``left``, ``right``, ``full`` or ``left_semi``. ``null_safe``: of each key, whether null
    equals null. ``condition`` says which rows of equal keys match; None: all. ``made_by``: the join as its user wrote
    it. ``computed``: of each column that is kept for the condition, by ``left.name``, the expression that it is.
    ``watermark``: a stream has one, so late rows do not count.
    """

    kind = "join"
    state_schema = pa.schema([pa.field(name, pa.int64()) for name in (*COUNTS, NEXT)])

    def __init__(
        self,
        how: str,
        key_schema: pa.Schema,
        sides: tuple[Side, Side],
        output: tuple[Output, ...],
        condition: Predicate | None = None,
        null_safe: tuple[bool, ...] = (),
        watermark: bool = False,
        made_by: str = "",
        computed: Mapping[str, str] | None = None,
    ) -> None:
        self.how, self.key_schema, self.sides, self.output = how, key_schema, sides, output
        self.condition, self.null_safe, self.made_by = condition, null_safe, made_by
        self._computed = dict(computed or {})
        self.output_schema = pa.schema([o.field for o in output])
        self.timeout = "EventTimeTimeout" if watermark else "NoTimeout"
        row = pa.schema([pa.field(ROW, pa.int64())])
        self.families = {
            name: FamilyLayout(key_schema, row, side.stored, side.expiry is not None)
            for name, side in zip(COUNTS, sides, strict=True)
        }
        # Rows wait so long that those which come out may be so much older than the watermark.
        self.output_delay_ms = max(0, *(-side.expiry.shift_ms for side in sides if side.expiry is not None), 0)

    @property
    def waits(self) -> bool:
        """Rows of an outer side, for a match."""
        return any(side.outer for side in self.sides)

    @property
    def made_of(self) -> Mapping[str, str]:
        """What the rows that wait were kept for."""
        return {**({NEXT: self.made_by} if self.made_by else {}), **self._computed}

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        """Columns of rows that wait: those that came before a column was asked for have none."""
        if not family:
            return None
        side = self.sides[COUNTS.index(family)]
        return nothing_in(pa.schema([f for f in side.stored if f.name in side.columns.names]))

    def combine(self, rows: pa.Table) -> pa.Table:
        """Without the rows that cannot come out: their event times have counted."""
        if all(side.outer for side in self.sides):
            return rows
        kept = pc.fill_null(rows[MAY_MATCH], True)
        for side, of_right in zip(self.sides, (False, True), strict=True):
            if side.outer:
                kept = pc.or_(kept, pc.equal(rows[RIGHT], of_right))
        return rows if pc.all(kept).as_py() is not False else rows.filter(kept)

    def still_needed(self, rows: pa.Table, watermark_ms: int) -> pa.Table:
        """Of all rows there are, those that matter behind ``watermark_ms``: they wait, or a row that waits has to be
        told whether it has found them. The others would meet each other, which is the square of a long history."""
        batch = one_batch(rows)
        of_right, needed = batch.column(RIGHT).to_numpy(zero_copy_only=False), np.ones(len(batch), bool)
        for place, side in enumerate(self.sides):
            told = self.sides[1 - place].outer or (self.how == SEMI and place == 1)
            if side.expiry is not None and not told:
                names, slots = side.columns.names, [*side.slots, side.expiry.column]
                at = names.index(side.expiry.column) if side.expiry.column in names else -1  # or it is a key
                timeouts = side.expiry.timeouts_ms(batch.column(slots[at]))
                needed &= (of_right != (place == 1)) | (timeouts == NO_TIMEOUT) | (timeouts >= watermark_ms)
        return rows if needed.all() else rows.filter(pa.array(needed))

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        counts = _Counts(touched)
        step = self._expired if touched.timed_out.any() else self._arrived
        pieces = [piece for piece in step(ctx, touched, counts) if piece.num_rows] or [self.output_schema.empty_table()]
        return counts.changed(pa.concat_tables(pieces), self.state_schema)

    # -- rows that arrive --------------------------------------------------------------------------------------

    def _arrived(self, ctx: CallContext, touched: Touched, counts: _Counts) -> list[pa.Table]:
        new, out = [], []
        for side, of_right in zip(self.sides, (False, True), strict=True):
            rows, may_match = self._of_side(touched, side, of_right)
            if side.outer and not may_match.all():
                out.append(self._alone(rows.only(~may_match), of_right))
                rows = rows.only(may_match)
            new.append(rows)
        live = [rows.only(mask) if not mask.all() else rows for rows, mask in zip(new, map(self._keyed, new))]
        stored = [self._waiting(ctx, counts, place, live[1 - place].key) for place in (0, 1)]
        waiting = [None if found is None else found.rows for found in stored]
        matching = Matching(self, touched.keys, live, waiting, self._ended(ctx, live[1]))
        out += matching.output()
        for place in (0, 1):
            self._kept(ctx, counts, place, stored[place], matching.found(place), new[place], live[place])
        return out

    def _ended(self, ctx: CallContext, right: SideRows) -> Mask | None:
        """The right rows whose time is over when they come. In Spark 4.2's semi joins new left rows meet the right rows
        that are kept, and these are not; left rows that wait meet them."""
        expiry = self.sides[1].expiry
        if self.how != SEMI or expiry is None or ctx.watermark_ms is None or not len(right):
            return None
        timeouts = expiry.timeouts_ms(right.column(expiry.column))
        ended = (timeouts != NO_TIMEOUT) & (timeouts < ctx.watermark_ms)
        return ended if ended.any() else None

    def _of_side(self, touched: Touched, side: Side, of_right: bool) -> tuple[SideRows, Mask]:
        """A side's rows, and which of them may match: of an inner side, only those are there."""
        rows = one_batch(touched.rows)
        may_match = rows.column(MAY_MATCH).fill_null(True).to_numpy(zero_copy_only=False)
        mine = rows.column(RIGHT).to_numpy(zero_copy_only=False) == of_right
        at = np.flatnonzero(mine if side.outer else mine & may_match)
        columns = [rows.column(slot) for slot in side.slots]
        table = pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, side.columns)], schema=side.columns)
        if len(at) < len(rows):
            table = table.take(pa.array(at))
        return SideRows(table, touched.key_index[at], touched.keys), may_match[at]

    def _keyed(self, rows: SideRows) -> Mask:
        """Null equals nothing, unless the condition says so."""
        known = np.ones(rows.keys.num_rows, bool)
        for column, safe in zip(rows.keys.columns, self.null_safe or [False] * len(self.key_schema), strict=True):
            if column.null_count and not safe:
                known &= pc.is_valid(column).to_numpy()
        return known[rows.key]

    def _waiting(self, ctx: CallContext, counts: _Counts, place: int, keys: Rows) -> _Waiting | None:
        """The rows of a side that the other's new rows, which are of ``keys``, may match."""
        looked_for = np.zeros(counts.keys.num_rows, bool)
        looked_for[keys] = True
        wanted = np.flatnonzero(looked_for & (counts.rows[place] > 0))
        if not len(wanted):
            return None
        family, side = ctx.families[COUNTS[place]], self.sides[place]
        found = family.scan(wanted)
        matched = _flags(found) if side.outer else np.zeros(len(found), bool)
        return _Waiting(family, found, SideRows(side.from_stored(found.state), found.key_index, counts.keys), matched)

    def _kept(
        self,
        ctx: CallContext,
        counts: _Counts,
        place: int,
        waiting: _Waiting | None,
        found: Found,
        new: SideRows,
        live: SideRows,
    ) -> None:
        """Keep what a side's rows found, and its new rows. A left row of a semi join is done with its first match."""
        side, done = self.sides[place], self.how == SEMI and place == 0
        if waiting is not None:
            self._note(waiting, found.known, side, done)
            if done:
                counts.less(place, waiting.found.key_index[found.known])
        rows, matched = (live, found.new) if not side.outer else (new, _spread(found.new, self._keyed(new)))
        if done:
            rows, matched = rows.only(~matched), matched[~matched]
        if not len(rows):
            return
        numbers = counts.more(place, rows.key)
        family = ctx.families[COUNTS[place]]
        put = family.get(rows.key, pa.table([pa.array(numbers)], [ROW]))
        order = np.empty(len(rows), np.int64)
        order[put.place] = np.arange(len(rows))
        timeouts = None if side.expiry is None else side.expiry.timeouts_ms(rows.column(side.expiry.column))[order]
        kept = side.to_stored(rows, matched).take(pa.array(order))
        family.write(put, kept, timeout_ms=timeouts)

    def _note(self, waiting: _Waiting, matched: Mask, side: Side, done: bool) -> None:
        if done:
            if matched.any():
                waiting.family.remove(waiting.found, matched)
            return
        first = matched & ~waiting.matched
        if side.outer and first.any():
            state = one_batch(waiting.found.state)
            at = state.schema.get_field_index(MATCHED)
            state = state.set_column(at, state.schema.field(at), pa.array(waiting.matched | matched))
            waiting.family.write(waiting.found, pa.Table.from_batches([state]), write=first)

    # -- rows whose time is over -------------------------------------------------------------------------------

    def _expired(self, ctx: CallContext, touched: Touched, counts: _Counts) -> list[pa.Table]:
        out = []
        for place, side in enumerate(self.sides):
            if side.expiry is None:
                continue
            family = ctx.families[COUNTS[place]]
            due = family.due()
            if side.outer and len(due):
                rows = SideRows(side.from_stored(due.state), due.key_index, touched.keys)
                out.append(self._alone(rows.only(~_flags(due)), place == 1))
            family.remove(due)
            counts.less(place, due.key_index)
        return out

    # -- what comes out ----------------------------------------------------------------------------------------

    def _alone(self, rows: SideRows, of_right: bool) -> pa.Table:
        """Rows without a match: null for the other side."""
        return self.joined(None if of_right else rows, rows if of_right else None)

    def joined(
        self, left: SideRows | None, right: SideRows | None, left_at: Rows | None = None, right_at: Rows | None = None
    ) -> pa.Table:
        """The output of pairs of rows, ``left_at[i]`` and ``right_at[i]``, or of all of one side."""
        rows = len(left_at) if left_at is not None else len(left if left is not None else right or ())
        columns = []
        for out in self.output:
            if left is not None and out.left is not None:
                columns.append(left.column(out.left, left_at).cast(out.field.type))
            elif right is not None and out.right is not None:
                columns.append(right.column(out.right, right_at).cast(out.field.type))
            else:
                columns.append(pa.nulls(rows, out.field.type))
        return pa.Table.from_arrays(columns, schema=self.output_schema)


@dataclass(frozen=True)
class _Waiting:
    """Rows of a side that waited already. ``matched``: of an outer side, those that had found another."""

    family: Family
    found: Stored
    rows: SideRows
    matched: Mask


class _Counts:
    """The keys' own state: how many rows wait on each side."""

    def __init__(self, touched: Touched) -> None:
        state = touched.state
        self.keys, self._exists = touched.keys, touched.exists
        self.rows = [np.array(int64_view(pc.fill_null(state[name], 0))) for name in COUNTS]
        self._next = np.array(int64_view(pc.fill_null(state[NEXT], 0)))
        self._touched = np.zeros(touched.keys.num_rows, bool)

    def more(self, place: int, keys: Rows) -> Rows:
        """A number for each new row of ``keys``."""
        seg, found = segments_by_index(keys, len(self._next))
        rank = np.arange(len(keys)) - np.repeat(seg.starts, seg.counts)
        numbers = np.empty(len(keys), np.int64)
        numbers[slice(None) if seg.order is None else seg.order] = np.repeat(self._next[found], seg.counts) + rank
        self._next[found] += seg.counts
        self.rows[place][found] += seg.counts
        self._touched[found] = True
        return numbers

    def less(self, place: int, keys: Rows) -> None:
        """The rows of ``keys`` wait no more."""
        self.rows[place] -= np.bincount(keys, minlength=len(self._next))
        self._touched[keys] = True

    def changed(self, output: pa.Table, schema: pa.Schema) -> Changed:
        empty = (self.rows[0] == 0) & (self.rows[1] == 0)
        state = pa.table([pa.array(column) for column in (*self.rows, self._next)], schema=schema)
        timeouts = np.full(len(empty), NO_TIMEOUT, np.int64)
        return Changed(output, state, self._touched & ~empty, self._exists & empty, timeouts)


def _flags(found: Stored) -> Mask:
    return np.asarray(one_batch(found.state).column(MATCHED).to_numpy(zero_copy_only=False), bool)


def _spread(flags: Mask, where: Mask) -> Mask:
    """``flags`` of the rows ``where``; false of all others."""
    spread = np.zeros(len(where), bool)
    spread[where] = flags
    return spread
