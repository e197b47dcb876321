"""The whole job without Spark, with a query whose start writes the state anew, by a function that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.rewriting import NewRows
from spark_ckpt.jobs.start import JobPlan
from spark_ckpt.jobs.state import State
from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.rewriting import Rewrite, Rewriting
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.run_files import write_run_file
from spark_ckpt.types import KEY_GROUP
from tests.storage.whole_job import STATE, UID, WholeJob


class Changed(WholeJob):
    """``meanwhile``: what happens while the state is written."""

    def __init__(self, root: Path, meanwhile: Callable[[], None] = lambda: None, **options: str) -> None:
        super().__init__(root, **options)
        self.meanwhile = meanwhile

    def plan(self, restore: str, location: str) -> JobPlan:
        made = super().plan(restore, location)
        return replace(
            made,
            migrations=(Rewrite(UID, "same"),),
            write_rows=self._written_anew,
            own_location=lambda generation: f"{self.root}/spark-{generation}",
        )

    def _written_anew(self, records: JobRecords, at: CompletionRecord, checkpoint: int, step: Rewriting) -> NewRows:
        rows = State(records.store, at, step.table).arrow()
        table = rows.append_column(STATE.field(KEY_GROUP), pa.array([0] * len(rows), pa.int32()))
        table = table.append_column(STATE[-1], rows["k"]).select(STATE.names)
        url = records.paths.state(step.table)
        file = write_run_file(url, f"written-{checkpoint}.parquet", table)
        self.meanwhile()
        group = GroupManifest((Run(file.file, 0, len(rows), checkpoint),), len(rows))
        return NewRows(STATE, {file.file: FileEntry(file.rows, file.size_bytes)}, {0: group})
