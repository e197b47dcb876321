"""A keyed operator over files, and queries that follow one another: each goes on from the last one's checkpoint."""

from __future__ import annotations

import re
from itertools import cycle
from types import SimpleNamespace
from typing import Any

from spark_ckpt.api._migrations import Migrations, StateMigration, moved
from spark_ckpt.execution.build import query_topology
from spark_ckpt.execution.lineage import Lineage, OperatorNode
from spark_ckpt.operators.keyed_operator import addable
from spark_ckpt.protocol.evolution import carried_over
from spark_ckpt.protocol.migration import migrated, restored_table
from spark_ckpt.protocol.records import CompletionRecord, TableRef, Topology
from spark_ckpt.protocol.topology import Refuse, fit_topology
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.state.lsm.stored_form import FormReader, StoredForm
from spark_ckpt.testing.memory_runs import MemoryRuns
from tests.state.topn_harness import GROUPS, Tasks


def topology_of(function: StateFunction, uid: str) -> Topology:
    node = OperatorNode(
        uid,
        function.layout,
        (),
        function.timeout,
        function.made_of,
        families=function.families,
        kind=function.kind,
        begins=addable(function),
        results=function.results,
    )
    return query_topology(Lineage(operators=(node,)), {}, (), GROUPS, {node: uid})


def lines_of(refused: Any) -> list[str]:
    """What a message says to write."""
    return re.findall(r"`(ckpt\.[^`]*)`", str(refused))


class Changing(Tasks):
    """Starts with ``function`` under ``uid``. Each state table has files of its own, which are never written again.
    Every start has another number of tasks than the one before: more, then fewer."""

    def __init__(self, function: StateFunction, uid: str = "u") -> None:
        self.uid, self.checkpoint, self.tables, self.lines = uid, 0, dict[str, MemoryRuns](), Migrations()
        self.topology = topology_of(function, uid)
        self._begin(function)
        self._parallelism = cycle([2, 1, 3, 2, 4])
        self._open_tasks()

    def _open_tasks(self) -> None:
        self.tasks = [self._opened(r) for r in self._ranges(next(self._parallelism))]

    def _adopt(self, name: str, manifests: dict[int, Any]) -> None:
        for task in self.tasks:
            mine = range(task[name].groups.first, task[name].groups.end)
            task[name].adopt({g: m for g, m in manifests.items() if g in mine})

    def _begin(self, function: Any) -> None:
        self.function, self.uid = function, next(t for t, f in self.topology.operators.items() if "family_of" not in f)
        self.layouts = {"": function.layout, **{name: f.stored for name, f in function.families.items()}}
        for name in self.layouts:
            self.tables.setdefault(self._table(name), MemoryRuns())

    def _table(self, family: str) -> str:
        return f"{self.uid}.{family}" if family else self.uid

    def form(self, family: str) -> StoredForm:
        facts = self.topology.operators[self._table(family)]
        return StoredForm.told(self.layouts[family], facts, lambda: self.function.begins(family) or {})

    def _opened(self, groups: KeyRange) -> dict[str, KeyedState]:
        return {
            name: KeyedState(layout, groups, FormReader(self.tables[self._table(name)], self.form(name)))
            for name, layout in self.layouts.items()
        }

    def _checkpoint(self) -> dict[str, Any]:
        """Everything in files; the manifests of each table."""
        self.checkpoint += 1
        manifests: dict[str, Any] = {self._table(name): {} for name in self.layouts}
        for number, task in enumerate(self.tasks):
            for name, state in task.items():
                runs, file = self.tables[self._table(name)], f"f{self.checkpoint}-{number}"
                appender = runs.appender(file)
                runs.bury(state.flush(appender, self.checkpoint).dead)
                manifests[self._table(name)].update(state.manifests({}))
                appender.close()
                if file in runs.files:
                    runs.files[file] = self.form(name).written(runs.files[file])
        return manifests

    def write(self, line: str) -> None:
        """A line beside the query, as users write it."""
        ckpt = SimpleNamespace(
            migrate=lambda table: StateMigration(None, self.lines, table),  # type: ignore[arg-type]
            moved=lambda old, new: moved(self.lines, old, new),
        )
        exec(line, {"ckpt": ckpt})

    def change(self, function: StateFunction, uid: str = "u", allow: bool = False) -> None:
        """The query becomes another one. Raises what its start would."""
        new, old = topology_of(function, uid), self.topology
        fit = fit_topology(old, new, allow, self.lines.steps(), self.checkpoint + 1)
        if isinstance(fit, Refuse):
            raise fit.error()
        manifests, before = self._checkpoint(), dict(self.tables)
        self.topology = carried_over(migrated(old, new, self.lines.steps(), self.checkpoint), new, None)
        done = completion(self.checkpoint, old, manifests)
        self._begin(function)
        for table, facts in self.topology.operators.items():
            ref = restored_table(facts, table, done)
            self.tables[table] = MemoryRuns() if ref is None else before[ref.manifest]
        self._open_tasks()
        for name in self.layouts:
            ref = restored_table(self.topology.operators[self._table(name)], self._table(name), done)
            if ref is not None:
                self._adopt(name, manifests[ref.manifest])

    def follow(self, function: StateFunction, refused: Any, which: str) -> None:
        """Write the line that the message names, the one with ``which``, and start."""
        line = next(line for line in lines_of(refused) if which in line)
        self.write(line)
        self.change(function)

    def merged(self) -> None:
        """A checkpoint, read again: what was merged and what was not."""
        manifests = self._checkpoint()
        self._open_tasks()
        for name in self.layouts:
            self._adopt(name, manifests[self._table(name)])


def completion(checkpoint: int, topology: Topology, tables: dict[str, Any]) -> CompletionRecord:
    refs = {table: TableRef(0, table) for table in tables}
    return CompletionRecord(checkpoint, "checkpoint", 1, 1, 0, 0, {}, refs, (), topology, 0, 0)
