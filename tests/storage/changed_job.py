"""The whole job without Spark, with a query whose start writes the state anew: by a function, or for other key groups.

Rows are hashed, sorted and written here by the code of Spark's tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.rewriting import NewRows
from spark_ckpt.jobs.start import JobPlan
from spark_ckpt.jobs.state import State
from spark_ckpt.protocol.events import GroupManifest, groups_from_json
from spark_ckpt.protocol.migration import Migration
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.rewriting import Rescale, Rewrite, Rewriting
from spark_ckpt.runtime.state_writing import RunFiles, WrittenTable
from spark_ckpt.storage.content import FileEntry
from tests.storage.whole_job import STATE, TOPOLOGY, UID, WholeJob, in_hash_order


class Changed(WholeJob):
    """Its function changes nothing. ``meanwhile``: what happens while the state is written."""

    migrations: tuple[Migration, ...] = (Rewrite(UID, "same"),)

    def __init__(self, root: Path, meanwhile: Callable[[], None] = lambda: None, **options: str) -> None:
        super().__init__(root, **options)
        self.meanwhile = meanwhile

    def plan(self, restore: str, location: str) -> JobPlan:
        made = super().plan(restore, location)
        return replace(
            made,
            migrations=self.migrations,
            write_rows=self._written_anew,
            own_location=lambda generation: f"{self.root}/spark-{generation}",
        )

    def rows(self, old: pa.Table) -> pa.Table:
        """What the function makes of the old rows."""
        return old

    def _written_anew(self, records: JobRecords, at: CompletionRecord, checkpoint: int, step: Rewriting) -> NewRows:
        rows = self.rows(State(records.store, at, step.table).arrow())
        files = RunFiles(WrittenTable(step.table, records.paths.state(step.table), self.form, checkpoint))
        reports = [*files.add(in_hash_order(self.form, rows)), *files.end()]
        self.meanwhile()
        (report,) = pa.Table.from_batches(reports).to_pylist()
        groups = dict.fromkeys(range(self.form.key_groups), GroupManifest())
        groups |= groups_from_json(json.loads(report["groups"]))
        return NewRows(STATE, {report["file"]: FileEntry(report["rows"], report["size_bytes"])}, groups)


class Rescaled(Changed):
    """With more key groups than the job had."""

    topology = replace(TOPOLOGY, key_groups=3, weight_total=3)
    migrations = (Rescale(),)


class Migrated(Changed):
    """Its function adds to each count, so that one that is called for its own rows shows."""

    ADDED = 100
    migrations = (Rewrite(UID, "added"),)

    def rows(self, old: pa.Table) -> pa.Table:
        return old.set_column(old.schema.get_field_index("n"), "n", pc.add(old["n"], self.ADDED))
