"""A user's processor over families without Spark: batches of rows and what it puts out, flushes, restarts, rescales."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from spark_ckpt.operators.functions_with_state import variables_of
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.base import CallContext, Touched
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.keys.spark_hash import xxhash64
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.state.processors.declared import INITIAL
from spark_ckpt.state.processors.function import TIME_MODES, ProcessorFunction
from spark_ckpt.testing.memory_runs import MemoryRuns

GROUPS = 8
CTX = CallContext("tws", 3, 7, 1_000, None)


def struct(fields: dict[str, T.DataType]) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def function(
    processor: Any,
    output: T.StructType,
    time_mode: str = "None",
    pandas: bool = True,
    key: pa.Schema | None = None,
    more: pa.Schema | None = None,
    initial: pa.DataType | None = None,
) -> ProcessorFunction:
    """Of a key and the columns ``more``: ``k`` and ``v`` (long) if nothing is said."""
    key = key or pa.schema([("k", pa.int64())])
    inputs = pa.schema([*key, *(more or pa.schema([("v", pa.int64())]))])
    variables = variables_of(processor, time_mode, key.names)
    made = arrow_schema(output)
    function = ProcessorFunction(
        processor, variables, key, inputs, made, output.json(), time_mode, pandas, initial=initial is not None
    )
    function.packed = inputs if initial is None else inputs.append(pa.field(INITIAL, initial))
    return function


class Operator:
    """All tasks of one operator."""

    def __init__(self, made: ProcessorFunction, policy: CompactionPolicy | None = None, tasks: int = 1) -> None:
        self.function, self.policy = made, policy
        self.runs: dict[str, MemoryRuns] = {family: MemoryRuns() for family in made.families}
        self.now_ms, self.watermark_ms, self.epoch = 1_000, None, 1
        self.tasks: list[dict[str, KeyedState]] = [{} for _ in range(tasks)]
        self.ranges = [KeyRange(i * GROUPS // tasks, (i + 1) * GROUPS // tasks, GROUPS) for i in range(tasks)]
        self._open_all()

    def _open(self, family: str, groups: KeyRange, meta: Any = None, memtable: bytes | None = None) -> KeyedState:
        layout: FamilyLayout = self.function.families[family]
        return KeyedState.open(layout.stored, groups, meta, memtable, self.runs[family], self.policy)

    def _open_all(self) -> None:
        self.tasks = [{f: self._open(f, groups) for f in self.function.families} for groups in self.ranges]

    def batch(
        self, rows: list[tuple[Any, ...]], now_ms: int | None = None, watermark_ms: int | None = None
    ) -> list[Any]:
        """What came out, first for the rows and then for what is due, as in a task."""
        self.now_ms = self.now_ms if now_ms is None else now_ms
        self.watermark_ms = self.watermark_ms if watermark_ms is None else watermark_ms
        schema = self.function.packed
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
        out: list[Any] = []
        for states, groups in zip(self.tasks, self.ranges, strict=True):
            out += self._called(states, groups, table)
        return out

    def _called(self, states: dict[str, KeyedState], groups: KeyRange, rows: pa.Table) -> list[Any]:
        names = self.function.key_schema.names
        hashes = xxhash64([rows[n].combine_chunks() for n in names])
        group = key_group_of(hashes, GROUPS)
        mine = np.flatnonzero((group >= groups.first) & (group < groups.end))
        rows, hashes = rows.take(pa.array(mine)), hashes[mine]
        out: list[Any] = []
        if len(mine):
            seg = group_rows(hashes, rows.select(names))
            first = seg.firsts()
            keys = rows.select(names).take(pa.array(first))
            out += self._process(states, hashes[first], keys, rows, seg.places(), None)
        return out + self._due(states)

    def _due(self, states: dict[str, KeyedState]) -> list[Any]:
        now = {"None": None, "ProcessingTime": self.now_ms, "EventTime": self.watermark_ms}[self.function.time_mode]
        names = self.function.key_schema.names
        found = [state.due(now) for state in states.values()] if now is not None else []
        if not any(len(lookup) for lookup in found):
            return []
        keys = pa.concat_tables([lookup.keys.select(names) for lookup in found if len(lookup)])
        keys = keys.combine_chunks()
        hashes = xxhash64([c.chunk(0) for c in keys.columns])
        first = group_rows(hashes, keys).firsts()
        no_rows = self.function.packed.empty_table()
        return self._process(states, hashes[first], keys.take(pa.array(first)), no_rows, np.empty(0, np.int64), now)

    def _process(self, states: Any, hashes: Any, keys: Any, rows: Any, index: Any, now_ms: int | None) -> list[Any]:
        n = len(hashes)
        layouts = self.function.families.items()
        families = {name: Family(states[name], layout, hashes, keys, now_ms) for name, layout in layouts}
        watermark = self.watermark_ms
        ctx = replace(CTX, processing_time_ms=self.now_ms, watermark_ms=watermark, families=families)
        none, state = np.zeros(n, bool), pa.table({"x": np.zeros(n)}).select([])
        touched = Touched(keys, rows, index, state, none, np.full(n, now_ms is not None), np.full(n, -1))
        changed = self.function.process(ctx, touched)
        assert not changed.write.any()
        assert not changed.remove.any()
        assert changed.output.schema.equals(self.function.output_schema)
        return [tuple(row.values()) for row in changed.output.to_pylist()]

    # -- between batches ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.epoch += 1
        for i, states in enumerate(self.tasks):
            for family, state in states.items():
                appender = self.runs[family].appender(f"{family}-{i}-{self.epoch}")
                self.runs[family].bury(state.flush(appender, self.epoch).dead)
                meta, memtable = state.seal()
                appender.close()
                states[family] = self._open(family, state.groups, json.dumps(meta), memtable)

    def rescale(self, tasks: int) -> None:
        """A checkpoint, and so many tasks that adopt it."""
        self.flush()
        manifests: dict[str, dict[int, GroupManifest]] = {f: {} for f in self.function.families}
        for states in self.tasks:
            for family, state in states.items():
                manifests[family].update(state.manifests({}))
        self.ranges = [KeyRange(i * GROUPS // tasks, (i + 1) * GROUPS // tasks, GROUPS) for i in range(tasks)]
        self._open_all()
        for states in self.tasks:
            for family, state in states.items():
                state.adopt({g: manifests[family][g] for g in state.groups})

    def stored(self, family: str) -> int:
        """How many rows are left."""
        return sum(states[family].keys for states in self.tasks)

    def table(self, family: str) -> list[dict[str, Any]]:
        """As a reader of the state table sees it."""
        self.flush()
        found = self.runs[family].live_rows()
        hidden = ("_key_group", "_key_hash")
        return [] if found is None else [{k: v for k, v in r.items() if k not in hidden} for r in found.to_pylist()]


assert set(TIME_MODES) == {"None", "ProcessingTime", "EventTime"}
