"""The tasks of a top-N operator, called as the runtime calls it, and what its changes make of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.state.functions.base import CallContext, Touched
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.state.topn.function import TopN
from spark_ckpt.testing.memory_runs import MemoryRuns
from spark_ckpt.types import KEY_HASH

GROUPS = 4
OWN = ""
Row = tuple[Any, ...]


class Tasks:
    """Each task has the operator's own state and its families; rows are combined in two tasks before the shuffle."""

    def __init__(self, function: TopN, tasks: int = 1) -> None:
        self.function, self.runs, self.files = function, MemoryRuns(), 0
        self.layouts = {OWN: function.layout, **{name: f.stored for name, f in function.families.items()}}
        self.tasks = [self._open(r) for r in self._ranges(tasks)]

    def _ranges(self, tasks: int) -> list[KeyRange]:
        return [KeyRange(i * GROUPS // tasks, (i + 1) * GROUPS // tasks, GROUPS) for i in range(tasks)]

    def _open(self, groups: KeyRange) -> dict[str, KeyedState]:
        return {name: KeyedState(layout, groups, self.runs) for name, layout in self.layouts.items()}

    def rescale(self, tasks: int) -> None:
        """A checkpoint, and a restore with so many tasks."""
        manifests: dict[str, dict[int, Any]] = {name: {} for name in self.layouts}
        for task in self.tasks:
            for name, state in task.items():
                self.files += 1
                appender = self.runs.appender(f"f{self.files}")
                self.runs.bury(state.flush(appender, self.files).dead)
                manifests[name].update(state.manifests({}))
                appender.close()
        self.tasks = [self._open(r) for r in self._ranges(tasks)]
        for task in self.tasks:
            for name, state in task.items():
                mine = range(state.groups.first, state.groups.end)
                state.adopt({g: m for g, m in manifests[name].items() if g in mine})

    def rows(self, rows: pa.Table) -> list[dict[str, Any]]:
        """A batch: the changes that come out."""
        keys = rows.select(self.function.key_schema.names)
        rows = rows.append_column(KEY_HASH, pa.array(xxhash64([normalised(c.combine_chunks()) for c in keys.columns])))
        half = len(rows) // 2
        portions = [rows.slice(0, half // 2), rows.slice(half // 2, half - half // 2), rows.slice(half)]
        first = self.function.recombine([self.function.combine(p) for p in portions[:2]])
        packed = pa.concat_tables([first, self.function.recombine([self.function.combine(portions[2])])])
        groups, out = key_group_of(packed[KEY_HASH].to_numpy(), GROUPS), []
        for task in self.tasks:
            own = task[OWN].groups
            mine = packed.filter(pa.array((groups >= own.first) & (groups < own.end)))
            if len(mine):
                out += self._call(task, mine).to_pylist()
        return out

    def _call(self, task: dict[str, KeyedState], rows: pa.Table) -> pa.Table:
        hashes, names = rows[KEY_HASH].to_numpy(), self.function.key_schema.names
        seg = group_rows(hashes, rows.select(names))
        first = seg.firsts()
        keys = rows.select(names).take(pa.array(first))
        keys = pa.table([normalised(c.combine_chunks()) for c in keys.columns], names)
        lookup = task[OWN].touch(hashes[first], keys)
        return self._process(task, lookup, rows.drop_columns([KEY_HASH]), seg.places(), np.zeros(len(lookup), bool))

    def _process(
        self, task: dict[str, KeyedState], lookup: Any, rows: pa.Table, index: Any, timed_out: Any
    ) -> pa.Table:
        families = {
            name: Family(task[name], layout, lookup.hashes, lookup.keys)
            for name, layout in self.function.families.items()
        }
        touched = Touched(lookup.keys, rows, index, lookup.state, lookup.exists, timed_out, lookup.timeout_ms)
        changed = self.function.process(CallContext("u", 0, 1, 0, 0, families), touched)
        timeouts = changed.timeout_ms if task[OWN].layout.with_timeout else None
        task[OWN].write(lookup, changed.state, changed.write, changed.remove, timeouts)
        for family in families.values() if changed.remove.any() else ():
            family.remove(family.scan(np.flatnonzero(changed.remove)))
        assert changed.output.schema.equals(self.function.output_schema)
        return changed.output

    def due(self, now_ms: int) -> None:
        for task in self.tasks:
            found = task[OWN].due(now_ms)
            if len(found):
                rows = self.function.columns.empty_table()
                out = self._process(task, found, rows, np.empty(0, np.int64), np.ones(len(found), bool))
                assert not len(out)

    def kept(self, state: str) -> int:
        return sum(task[state].keys for task in self.tasks)


def fold(table: dict[Row, Row], changes: Iterable[dict[str, Any]], keys: list[str], change: str = "op") -> None:
    """What a sink that merges by ``keys`` has behind ``changes``, each of which must be one of what is there."""
    for row in changes:
        values = {name: shown(value) for name, value in row.items() if name != change}
        key = tuple(values[name] for name in keys)
        if row[change] in ("+I", "+U"):
            assert key not in table, f"{row}: there is another one still"
            table[key] = tuple(values.values())
        else:
            assert table.pop(key, None) == tuple(values.values()), f"{row} was not there"


def shown(value: Any) -> Any:
    """Values to compare: NaNs equal each other, and zeros have their sign."""
    return repr(value) if isinstance(value, float) else value
