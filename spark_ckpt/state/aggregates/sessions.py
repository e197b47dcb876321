"""Aggregates of session windows: a key's open sessions are rows of a family, merged as rows come in between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates._in_families import FamilyAccumulator
from spark_ckpt.state.aggregates._session_values import (
    OPENED,
    SessionValues,
    first_stored,
    merge_values,
    session_layout,
)
from spark_ckpt.state.aggregates.function import MIN_REDUCTION, AggregateFunction
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched
from spark_ckpt.state.ipc import Rows, plain_array
from spark_ckpt.state.keys.grouping import Segments, group_rows, packed, rows_per_key, stable_order
from spark_ckpt.state.keys.spark_hash import xxhash64
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.types import KEY_HASH

SESSIONS = "sessions"
"""The family: (key, start of a session) -> its end and its partial aggregates."""

TIME = pa.timestamp("us", "UTC")
Micros = npt.NDArray[np.int64]


class SessionAggregate(AggregateFunction):
    """``start`` and ``end`` are columns of the rows: the session that a row makes by itself, ``[time, time + gap)``.

    Sessions of a key that overlap or touch are one. As in Spark there is no output mode update. In append a session
    comes out once, when the watermark passes its end; a row is late if the session it makes by itself ended before,
    even where it would have joined one that is still open. In complete no session ends, and no row is late.
    """

    timeout = "EventTimeTimeout"
    late_by_key = True
    keys_in = SESSIONS

    def __init__(self, *args: Any, start: str, end: str, **kwargs: Any) -> None:
        self.start, self.end = start, end
        super().__init__(*args, **kwargs)
        self.partial_schema = self.state_schema
        # Where there are no values to be called by it, there is no name.
        own = [pa.field(end, TIME), *([OPENED] if self.keepers else [])]
        values = pa.schema([*own, *self.partial_schema])
        sessions = FamilyLayout(self.key_schema, pa.schema([pa.field(start, TIME)]), values, True)
        self.families = {SESSIONS: sessions, **{a.family: session_layout(self.key_schema, a) for a in self.keepers}}
        if len(self.families) <= len(self.keepers):
            raise InvalidInputError(
                f"aggregate: the name {SESSIONS!r} is that of the sessions' own table: choose another"
            )
        # Nothing is kept of a key but its sessions: its own table stays empty.
        self.state_schema = pa.schema([pa.field("_sessions", pa.bool_())])
        times, keys = [pa.field(start, TIME), pa.field(end, TIME)], len(self.key_schema)
        self.output_schema = pa.schema([*self.key_schema, *times, *list(self.output_schema)[keys:]])

    @property
    def made_of(self) -> Mapping[str, str]:
        return {**super().made_of, "_sessions": f"the sessions of {self.start}"}

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        """The aggregates of open sessions are columns of the family of sessions."""
        return super().begins() if family == SESSIONS else {}

    def event_times(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows[self.end].cast(TIME).cast(pa.int64())

    # -- in front of the shuffle -----------------------------------------------------------------------------------
    # Rows of the very same session are combined, others are not: which of them are late is known behind it only.

    def _by_key(self, rows: pa.Table) -> Segments | None:
        if rows.num_rows < 2:
            return None
        hashes = xxhash64([plain_array(rows[name]) for name in (KEY_HASH, self.start, self.end)])
        ratio = rows_per_key(hashes)
        return None if ratio < MIN_REDUCTION else group_rows(hashes, rows.select(self._identity), ratio)

    @property
    def _identity(self) -> list[str]:
        return [*self.key_schema.names, self.start, self.end]

    def _firsts(self, rows: pa.Table, seg: Segments) -> pa.Table:
        return rows.select([*self._identity, KEY_HASH]).take(pa.array(seg.firsts()))

    def _partial_table(self, rows: pa.Table, parts: list[list[pa.Array]]) -> pa.Table:
        made = super()._partial_table(rows, parts)
        for name in (self.start, self.end):
            made = made.append_column(pa.field(name, TIME), rows[name].cast(TIME))
        return made

    # -- behind it -------------------------------------------------------------------------------------------------

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        n = touched.keys.num_rows
        if touched.rows.num_rows:
            self._merge_into(ctx, touched)
        none = np.zeros(n, bool)
        output = self.output_schema.empty_table()
        if touched.timed_out.any() and self.complete:
            self._keep_open(ctx)
        elif touched.timed_out.any():
            output = self._ended(ctx, touched)
        return Changed(output, touched.state, none, none, np.full(n, NO_TIMEOUT, np.int64))

    def _merge_into(self, ctx: CallContext, touched: Touched) -> None:
        """All open sessions of the touched keys and the rows' own ones, by key and start: whatever begins before the
        end of what came before it belongs to that."""
        family, rows = ctx.families[SESSIONS], touched.rows
        scanned = family.scan()
        stored = _Sessions(scanned.key_index, _micros(scanned.sub_keys[self.start]), _micros(scanned.state[self.end]))
        new = _Sessions(touched.key_index, _micros(rows[self.start]), _micros(rows[self.end]))
        merged = merge_sessions(stored, new)
        opened = self._opened(scanned.state, merged) if self.keepers else None
        parts = self._parts(ctx, (scanned.state, rows), merged, stored.owner, opened)
        folded = [
            a.merge([merged.seg.arrange(c) for c in p], merged.seg)
            for a, p in zip(self.accumulators, parts, strict=True)
        ]
        called = [] if opened is None else [_times(opened[1])]
        self._write(family, stored, merged, [*called, *(column for part in folded for column in part)])

    def _opened(self, state: pa.Table, merged: Merged) -> tuple[Micros, Micros]:
        """What the stored sessions are called by, and what those that are made of them and of rows are."""
        known = _micros(state[OPENED.name])
        first = first_stored(merged.seg, len(known))
        return known, np.where(first < 0, merged.sessions.start, np.append(known, 0)[first])

    def _parts(
        self,
        ctx: CallContext,
        tables: tuple[pa.Table, pa.Table],
        merged: Merged,
        owner: Rows,
        opened: tuple[Micros, Micros] | None,
    ) -> list[list[pa.Array]]:
        """The partials of the stored sessions, and behind them of the rows, whose values are kept now."""
        stored = self._partials(tables[0], self.partial_schema, self.accumulators)
        rows = self._partials(tables[1], self.packed_schema, self.packers)
        found = []
        for a, old, new in zip(self.accumulators, stored, rows, strict=True):
            if isinstance(a, FamilyAccumulator) and opened is not None:
                before = SessionValues(ctx.families[a.family], a, owner, opened[0])
                after = replace(before, owner=merged.sessions.owner, opened=opened[1])
                found.append(merge_values(old, new, merged.seg, before, after))
            else:
                found.append([pa.concat_arrays(pair) for pair in zip(old, new, strict=True)])
        return found

    def _write(self, family: Family, stored: _Sessions, merged: Merged, partials: list[pa.Array]) -> None:
        """What changed, under its start; what it began with, if that was later, ends."""
        changed, absorbed = np.flatnonzero(merged.changed), stored.take(merged.absorbed)
        own = merged.sessions.take(changed)
        asked = absorbed.followed_by(own)
        found = family.get(asked.owner, pa.table({self.start: _times(asked.start)}))
        of = np.full(len(found), -1)
        of[found.place[len(absorbed.owner) :]] = np.arange(len(changed))
        rows, write = pa.array(of, mask=of < 0), of >= 0
        columns = [_times(own.end), *(column.take(pa.array(changed)) for column in partials)]
        state = pa.table(columns, schema=found.layout.value_schema).take(rows)
        ends = np.full(len(own.end), NO_TIMEOUT) if self.complete else _timeouts_ms(own.end)
        family.write(found, state, write, ~write, np.where(write, ends[of], NO_TIMEOUT))

    def _keep_open(self, ctx: CallContext) -> None:
        """Those that an earlier start's output mode had set an end for."""
        due = ctx.families[SESSIONS].due()
        ctx.families[SESSIONS].write(due, timeout_ms=np.full(len(due), NO_TIMEOUT))

    def _ended(self, ctx: CallContext, touched: Touched) -> pa.Table:
        family = ctx.families[SESSIONS]
        due = family.due()
        output = self._shown(ctx, touched, due)
        for kept in self.keepers:
            self._values(ctx, kept, due).forget()
        family.remove(due)
        return output

    def result(self, ctx: CallContext, every: Touched) -> pa.Table:
        return self._shown(ctx, every, ctx.families[SESSIONS].scan())

    def _shown(self, ctx: CallContext, touched: Touched, found: Found) -> pa.Table:
        """The rows of the sessions that were ``found``."""
        keys = touched.keys.take(pa.array(found.key_index))
        partials = self._partials(found.state, self.partial_schema, self.accumulators)
        results = [
            a.gathered(self._values(ctx, a, found), np.arange(len(found)))
            if isinstance(a, FamilyAccumulator) and a.gathers
            else a.result(p)
            for a, p in zip(self.accumulators, partials, strict=True)
        ]
        times = [found.sub_keys[self.start], found.state[self.end]]
        return pa.table([*keys.select(self.key_schema.names).columns, *times, *results], schema=self.output_schema)

    def _values(self, ctx: CallContext, of: FamilyAccumulator, found: Found) -> SessionValues:
        return SessionValues(ctx.families[of.family], of, found.key_index, _micros(found.state[OPENED.name]))


@dataclass(frozen=True)
class _Sessions:
    """Sessions of the keys ``owner``, in microseconds."""

    owner: Rows
    start: Micros
    end: Micros

    def take(self, which: npt.NDArray[Any]) -> _Sessions:
        return _Sessions(self.owner[which], self.start[which], self.end[which])

    def followed_by(self, other: _Sessions) -> _Sessions:
        pairs = ((self.owner, other.owner), (self.start, other.start), (self.end, other.end))
        return _Sessions(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class Merged:
    """``seg`` puts each session's parts side by side, stored ones first. ``sessions`` are what they make,
    ``changed`` those with anything new in them, ``absorbed`` the stored ones that began later than what they are in.
    """

    seg: Segments
    sessions: _Sessions
    changed: npt.NDArray[np.bool_]
    absorbed: npt.NDArray[np.bool_]


def merge_sessions(stored: _Sessions, new: _Sessions) -> Merged:
    """Those of one key that overlap or touch become one. The stored ones of a key do neither."""
    both, known = stored.followed_by(new), len(stored.owner)
    order = _by_owner(both)
    owner, start, end = both.owner[order], both.start[order], both.end[order]
    reach = _reach(owner, end)
    begins = np.ones(len(order), bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (start[1:] > reach[:-1])
    seg = Segments(order, np.flatnonzero(begins), len(order))
    sessions = _Sessions(owner[seg.starts], start[seg.starts], reach[seg.ends - 1])
    changed = np.logical_or.reduceat(order >= known, seg.starts)
    into = seg.places()[:known]
    return Merged(seg, sessions, changed, stored.start != sessions.start[into])


def _by_owner(sessions: _Sessions) -> Rows:
    """By owner and start; of equal ones the first stays in front."""
    both = packed(sessions.owner, sessions.start)
    if both is not None:
        return np.argsort(both.numbers, kind="stable")
    order = np.argsort(sessions.start, kind="stable")
    by_owner = stable_order(sessions.owner[order], int(sessions.owner.max(initial=0)) + 1)
    return order if by_owner is None else order[by_owner]


def _reach(owner: Rows, end: Micros) -> Micros:
    """The latest end so far, within each owner's rows, which lie side by side."""
    both = packed(owner, end)
    if both is not None:
        return both.values(np.maximum.accumulate(both.numbers))
    ends, rank = np.unique(end, return_inverse=True)
    owners = np.cumsum(np.concatenate(([0], owner[1:] != owner[:-1])))
    highest = np.maximum.accumulate(owners * len(ends) + rank.ravel())
    found: Micros = ends[highest - owners * len(ends)]
    return found


def _timeouts_ms(end_us: Micros) -> Micros:
    """Watermarks are whole milliseconds, and a time-out fires strictly before one: the first that reaches the end."""
    found: Micros = -(-end_us // 1000) - 1
    return found


def _micros(times: pa.ChunkedArray) -> Micros:
    found: Micros = plain_array(times).cast(TIME).view(pa.int64()).to_numpy()
    return found


def _times(micros: Micros) -> pa.Array:
    return pa.array(micros, pa.int64()).view(TIME)
