"""A whole job without Spark that writes to every sink which needs no server: real starts, commits and records."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

import spark_ckpt
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs import committer
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.jobs.start import JobPlan, begin, checked_sinks
from spark_ckpt.protocol.events import Barrier, SourceAck
from spark_ckpt.protocol.records import Topology, TriggerRecord
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import SCHEMA, stage_table, table_of
from spark_ckpt.types import Committable, Epoch

Rows = list[tuple[int, str]]


class Job:
    """Job ``orders`` of one source into every sink; each batch is a checkpoint. ``k`` is unique in the database."""

    def __init__(self, folder: Path, jobs: str = "jobs") -> None:
        self.folder, self.jobs = folder, f"{folder}/{jobs}"
        url = f"sqlite:///{folder}/out.db"
        self.sinks = checked_sinks([
            ("delta", {"path": f"{folder}/delta"}),
            ("delta", {"path": f"{folder}/merged", "mergeKeys": "k", "uid": "merged"}),
            ("sql", {"url": url, "table": "appended"}),
            ("sql", {"url": url, "table": "merged", "mergeKeys": "k", "uid": "upserted"}),
            ("files", {"path": f"{folder}/files"}),
        ])  # fmt: skip
        self.starts = 0

    def start(self, **options: str) -> RunSpec:
        """At an empty Spark location each time: the newest checkpoint is restored."""
        self.starts += 1
        config = JobConfig.from_options({"dir": self.jobs, "job": "orders", "maxParallelism": "1", **options})
        topology = Topology(1, 1, ("source0",), {}, tuple(s.id for s in self.sinks))
        location = f"{self.folder}/spark-{self.jobs.rsplit('/')[-1]}-{self.starts}"
        return begin(JobPlan("orders", config, location, topology, self.sinks, SCHEMA))

    def stage(
        self, run: RunSpec, checkpoint: int, rows: Rows, batch: int = 0, into: tuple[str, ...] | None = None
    ) -> list[Committable]:
        staged: list[Committable] = []
        for spec in (s for s in self.sinks if into is None or s.id in into):
            attempt = f"{run.generation}-{batch}-{len(staged)}"
            ctx = WriterContext(
                run.identity, spec.id, run.generation, Epoch(checkpoint), batch, 0, attempt, SCHEMA
            )  # fmt: skip
            staged += stage_table(create_sink(spec.cls, spec.options), ctx, table_of(rows))
        return staged

    def commit(self, run: RunSpec, rows: Rows, batch: int = 0, into: tuple[str, ...] | None = None) -> int:
        """One checkpoint; ``into``: the sinks that get rows (None: all)."""
        records = JobRecords(run.url, run.config)
        k = records.newest_id() + 1
        records.create_trigger(TriggerRecord(k, "checkpoint", 0, "interval", None, False, None, run.generation))
        events = [SourceAck("source0", k, {"inner": k}), Barrier(k, 1, 0)]
        committer.committer_for(run, self.sinks).commit(batch, self.stage(run, k, rows, batch, into), events)
        return k

    def check(self, appended: Rows, merged: Rows, but: dict[str, Rows] | None = None) -> None:
        """What each sink shows; ``but``: sinks that show something else."""
        want = {"delta": appended, "sql": appended, "files": appended, "merged": merged, "upserted": merged}
        assert self.rows() == {name: sorted(rows) for name, rows in {**want, **(but or {})}.items()}

    def rows(self) -> dict[str, Rows]:
        files = ds.dataset(f"{self.folder}/files", format="parquet", schema=SCHEMA).to_table()
        return {
            "delta": _rows(DeltaTable(f"{self.folder}/delta").to_pyarrow_table()),
            "sql": sorted(self.query("select k, v from appended")),
            "files": _rows(files),
            "merged": _rows(DeltaTable(f"{self.folder}/merged").to_pyarrow_table()),
            "upserted": sorted(self.query("select k, v from merged")),
        }

    def query(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.folder / "out.db")
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()

    @property
    def handle(self) -> Any:
        return spark_ckpt.job(self.jobs, "orders", self.sinks)


def _rows(table: pa.Table) -> Rows:
    return sorted((row["k"], row["v"]) for row in table.to_pylist())
