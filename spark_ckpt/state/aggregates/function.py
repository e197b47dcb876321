"""Keyed aggregates, vectorised: partial results before the shuffle, merged with the stored ones behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from spark_ckpt.agg import AggSpec
from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._checks import check_families, check_names, check_options
from spark_ckpt.state.aggregates._in_families import FamilyAccumulator
from spark_ckpt.state.aggregates.kinds import Rules, make_accumulator
from spark_ckpt.state.aggregates.ordinals import ascending_order
from spark_ckpt.state.aggregates.segments import places_of_keys, segments_behind
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched
from spark_ckpt.state.ipc import plain_array
from spark_ckpt.state.keys.grouping import Segments, group_rows, rows_per_key
from spark_ckpt.state.keys.spark_hash import xxhash64
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.types import KEY_HASH

MIN_REDUCTION = 1.25
"""Rows a key below which grouping before the shuffle costs more than it saves."""


class AggregateFunction(StateFunction):
    """Running aggregates of each key, with Spark's types and treatment of null, NaN and overflow.

    ``input_schema`` are the DataFrame's columns (key columns may be among them). ``emit="update"`` yields one row for
    each touched key: keys, then aggregates in the order of the mapping. ``emit="rows"`` (Flink's rolling aggregation)
    yields every input row with the aggregates of its key up to and including that row; rows of one call are taken in
    order of ``order_by`` (ascending, nulls first, ties and None: order of arrival). ``over_everything``: there is one
    key, and it has a result before any row came. ``windows``: of keys that are starts of windows, which
    windows those are, as a reader of a message would write it: the state does not tell.

    Raises ``InvalidInputError`` for unknown columns, types an aggregate does not support, or clashing names.
    """

    kind = "aggregate"
    shown: Mapping[str, Collection[str]]
    """What comes out, as its user calls it -> the aggregates that it is computed of."""

    def __init__(
        self,
        key_schema: pa.Schema,
        input_schema: pa.Schema,
        aggregates: Mapping[str, AggSpec],
        emit: str = "update",
        order_by: str | None = None,
        rules: Rules = Rules(),  # noqa: B008 - frozen
        over_everything: bool = False,
        windows: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.key_schema, self.windows = key_schema, dict(windows)
        self.over_everything = over_everything
        self.input_schema = input_schema
        self.emit = emit
        self.order_by = order_by
        self.specs = dict(aggregates)
        self.shown = {name: [name] for name in self.specs}
        check_options(self.specs, emit, order_by, input_schema)
        self.accumulators = [make_accumulator(name, spec, input_schema, rules) for name, spec in self.specs.items()]
        self.packers = [a.packer for a in self.accumulators]
        self.state_schema = pa.schema([f for a in self.accumulators for f in a.fields])
        self.packed_schema = pa.schema([f for a in self.packers for f in a.fields])
        self.output_schema = self._make_output_schema()
        check_names(key_schema.names, self.state_schema.names, self.output_schema.names)
        self.keepers = [a for a in self.accumulators if isinstance(a, FamilyAccumulator)]
        self.families = {a.family: FamilyLayout(key_schema, a.sub_schema, a.values, nested=True) for a in self.keepers}
        check_families(self.families, [a.name for a in self.keepers])

    @property
    def can_complete(self) -> bool:
        return self.emit == "update"

    def in_mode(self, mode: str) -> AggregateFunction:
        made = copy(self)
        made.complete = mode == "complete"
        return made

    @property
    def made_of(self) -> Mapping[str, str]:
        """Column by column, so that one aggregate can be compared without the others."""
        texts = zip(self.accumulators, self.specs.values(), strict=True)
        return {field.name: a.made_of(spec) for a, spec in texts for field in a.fields} | self.windows

    @property
    def results(self) -> Mapping[str, Collection[str]]:
        fields = {a.name: [f.name for f in a.fields] for a in self.accumulators}
        return {result: [f for spec in of for f in fields[spec]] for result, of in self.shown.items()}

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        return {} if family else _of_one_row(self.accumulators)

    @property
    def packed_begins(self) -> Mapping[str, pa.Scalar]:
        return _of_one_row(self.packers)

    def first_rows(self) -> pa.Table | None:
        if not (self.over_everything and all(a.can_begin for a in self.packers)):
            return None
        keys = [pa.array([0], field.type) for field in self.key_schema]
        hashed = pa.table([*keys, pa.array(xxhash64(keys))], [*self.key_schema.names, KEY_HASH])
        return self._partial_table(hashed, [a.nothing() for a in self.packers])

    def combine(self, rows: pa.Table) -> pa.Table:
        """One row of partial aggregates a key; where keys hardly repeat, one an input row, which is cheaper."""
        if self.emit == "rows":
            return rows
        seg = self._by_key(rows)
        if seg is None:
            return self._partial_table(rows, self._lift(rows))
        columns = self._columns(rows)
        folded = [a.fold(columns.get(a.column), seg) for a in self.packers]
        return self._partial_table(self._firsts(rows, seg), folded)

    def recombine(self, parts: list[pa.Table]) -> pa.Table:
        rows = pa.concat_tables(parts)
        return rows if self.emit == "rows" or len(parts) == 1 else self._added_up(rows)

    def _added_up(self, rows: pa.Table) -> pa.Table:
        """Partial aggregates, one row a key; as they are where keys hardly repeat."""
        seg = self._by_key(rows)
        if seg is None:
            return rows
        packed = self._partials(rows, self.packed_schema, self.packers)
        merged = [a.merge([seg.arrange(c) for c in p], seg) for a, p in zip(self.packers, packed)]
        return self._partial_table(self._firsts(rows, seg), merged)

    def _by_key(self, rows: pa.Table) -> Segments | None:
        """None where keys hardly repeat, or there is no row."""
        hashes = rows[KEY_HASH].to_numpy()
        ratio = rows_per_key(hashes)
        if not len(hashes) or ratio < MIN_REDUCTION:
            return None
        return group_rows(hashes, rows.select(self.key_schema.names), ratio, whole=True)

    def _firsts(self, rows: pa.Table, seg: Segments) -> pa.Table:
        """Keys and hash of each segment."""
        return rows.select([*self.key_schema.names, KEY_HASH]).take(pa.array(seg.firsts()))

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        return self._process_rows(touched) if self.emit == "rows" else self._process_update(ctx, touched)

    def _process_update(self, ctx: CallContext, touched: Touched) -> Changed:
        """The stored state is just the first partial of its key."""
        n = touched.keys.num_rows
        if n == 0:
            return self._unchanged(touched)
        state, found = self._merged(touched, self._arrived(ctx, touched))
        if len(found) == 0:
            return self._unchanged(touched)
        has_rows = np.zeros(n, bool)
        has_rows[touched.key_index] = True
        emitted = np.flatnonzero(self._emitted(touched, has_rows)[found])
        return self._changed(self._output(ctx, touched, state, found, emitted), state, found, has_rows)

    def result(self, ctx: CallContext, every: Touched) -> pa.Table:
        found = np.arange(every.keys.num_rows)
        return self._output(ctx, every, self._partials(every.state, self.state_schema, self.accumulators), found, found)

    def _emitted(self, touched: Touched, has_rows: np.ndarray) -> np.ndarray:
        """Which of the touched keys come out."""
        return np.zeros_like(has_rows) if self.complete else has_rows

    def _merged(self, touched: Touched, parts: list[list[pa.Array]]) -> tuple[list[list[pa.Array]], np.ndarray]:
        """The new partials of the touched keys that have any, and which keys these are."""
        n, index = touched.keys.num_rows, touched.key_index
        place = places_of_keys(index, n) if touched.exists.all() else None
        if place is not None:
            stored = self._partials(touched.state, self.state_schema, self.accumulators)
            rows = pa.array(place)
            joined = [a.join(s, [c.take(rows) for c in p]) for a, s, p in zip(self.accumulators, stored, parts)]
            return joined, np.arange(n)
        parts, known = self._after_state(touched, parts)
        seg, found = segments_behind(known, index, n)
        return self._each(parts, lambda a, p: a.merge([seg.arrange(c) for c in p], seg)), found

    def _output(
        self, ctx: CallContext, touched: Touched, state: list[list[pa.Array]], found: np.ndarray, emitted: np.ndarray
    ) -> pa.Table:
        """The rows of the keys ``found[emitted]``; ``state`` is that of the keys ``found``."""
        if len(emitted) < len(found):
            found, at = found[emitted], pa.array(emitted)
            state = [[c.take(at) for c in p] for p in state]
        results = [
            a.gathered(ctx.families[a.family], found) if isinstance(a, FamilyAccumulator) and a.gathers else a.result(p)
            for a, p in zip(self.accumulators, state)
        ]
        keys = [_taken(touched.keys[k], found) for k in self.key_schema.names]
        return pa.table([*keys, *results], schema=self.output_schema)

    def _arrived(self, ctx: CallContext, touched: Touched) -> list[list[pa.Array]]:
        """The partials of the rows, as the state has them. Values that are kept in families are there now."""
        packed = self._partials(touched.rows, self.packed_schema, self.packers)
        if not self.keepers:
            return packed
        before = self._partials(touched.state, self.state_schema, self.accumulators)
        return [
            a.absorbed(ctx.families[a.family], touched.key_index, p, b) if isinstance(a, FamilyAccumulator) else p
            for a, p, b in zip(self.accumulators, packed, before)
        ]

    def _process_rows(self, touched: Touched) -> Changed:
        rows, index = touched.rows, touched.key_index
        if rows.num_rows == 0:
            return self._unchanged(touched)
        if self.order_by is not None:
            order = ascending_order(plain_array(rows[self.order_by]))
            rows, index = rows.take(pa.array(order)), index[order]
        parts, known = self._after_state(touched, self._lift(rows))
        n, before = touched.keys.num_rows, len(known)
        seg, found = segments_behind(known, index, n)
        running = self._each(parts, lambda a, p: a.running([seg.arrange(c) for c in p], seg))
        position = np.arange(seg.rows)
        if seg.order is not None:
            position[seg.order] = np.arange(seg.rows)
        at = pa.array(position[before:])
        results = [a.result(p).take(at) for a, p in zip(self.accumulators, running)]
        inputs = [rows[name] for name in self.output_schema.names[: -len(results)]]
        ends = pa.array(seg.ends - 1)
        state = [[c.take(ends) for c in p] for p in running]
        write = np.zeros(n, bool)
        write[index] = True
        return self._changed(pa.table([*inputs, *results], schema=self.output_schema), state, found, write)

    def _changed(self, out: pa.Table, state: list[list[pa.Array]], found: np.ndarray, write: np.ndarray) -> Changed:
        """``out`` comes out; ``state`` is that of the keys ``found``. Aggregates end no key and have no time-out."""
        n = len(write)
        return Changed(out, self._align(state, found, n), write, np.zeros(n, bool), np.full(n, NO_TIMEOUT, np.int64))

    def _unchanged(self, touched: Touched) -> Changed:
        n = touched.keys.num_rows
        none = np.zeros(n, bool)
        return Changed(self.output_schema.empty_table(), touched.state, none, none, np.full(n, NO_TIMEOUT, np.int64))

    def _columns(self, rows: pa.Table) -> dict[str | None, pa.Array]:
        needed = {a.column for a in self.accumulators if a.column is not None}
        return {name: plain_array(rows[name]) for name in needed}

    def _lift(self, rows: pa.Table) -> list[list[pa.Array]]:
        columns = self._columns(rows)
        return [a.lift(columns.get(a.column), rows.num_rows) for a in self.packers]

    def _each(
        self, parts: list[list[pa.Array]], step: Callable[[Accumulator, list[pa.Array]], list[pa.Array]]
    ) -> list[list[pa.Array]]:
        return [step(a, p) for a, p in zip(self.accumulators, parts)]

    def _after_state(self, touched: Touched, parts: list[list[pa.Array]]) -> tuple[list[list[pa.Array]], np.ndarray]:
        """``parts`` behind the stored partials, and the keys that have those."""
        known = np.flatnonzero(touched.exists)
        if not len(known):
            return parts, known
        stored = touched.state if len(known) == touched.state.num_rows else touched.state.take(pa.array(known))
        states = self._partials(stored, self.state_schema, self.accumulators)
        return [[pa.concat_arrays([s, p]) for s, p in zip(ss, ps)] for ss, ps in zip(states, parts)], known

    def _partials(self, rows: pa.Table, schema: pa.Schema, of: list[Accumulator]) -> list[list[pa.Array]]:
        """The columns of combined rows (``of`` the packers) or of state (``of`` the accumulators), by accumulator."""
        rest = iter([plain_array(rows[f.name]).cast(f.type) for f in schema])
        return [[next(rest) for _ in a.fields] for a in of]

    def _partial_table(self, rows: pa.Table, parts: list[list[pa.Array]]) -> pa.Table:
        schema = pa.schema([*self.key_schema, pa.field(KEY_HASH, pa.int64()), *self.packed_schema])
        keys = [rows[name] for name in [*self.key_schema.names, KEY_HASH]]
        return pa.table([*keys, *(c for p in parts for c in p)], schema=schema)

    def _align(self, state: list[list[pa.Array]], found: np.ndarray, keys: int) -> pa.Table:
        """The new state, one row for each touched key; null where a key has neither rows nor state."""
        table = pa.table([c for p in state for c in p], schema=self.state_schema)
        if len(found) == keys:
            return table
        at = np.full(keys, -1)
        at[found] = np.arange(len(found))
        return table.take(pa.array(at, mask=at < 0))

    def _make_output_schema(self) -> pa.Schema:
        results = [pa.field(a.name, a.output_type) for a in self.accumulators]
        if self.emit == "update":
            return pa.schema([*self.key_schema, *results])
        keys = [f for f in self.key_schema if f.name not in self.input_schema.names]
        return pa.schema([*keys, *self.input_schema, *results])


def _of_one_row(accumulators: list[Accumulator]) -> Mapping[str, pa.Scalar]:
    each = (
        (f.name, part[0]) for a in accumulators if a.can_begin for f, part in zip(a.fields, a.nothing(), strict=True)
    )
    return dict(each)


def _taken(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """``rows`` are distinct and ascend."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))
