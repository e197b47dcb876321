"""A whole job without Spark: the real start, commit, records, state table and sinks, and a stand-in for Spark's part.

It counts keys: row i has key i % 5, and what comes out is (key, count so far). Its state is written as one run a
checkpoint; its sinks append and upsert. ``Spark``'s own folder has offsets and commits as Spark writes them, and in
place of the state store what the operator knew after each batch.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import create_request, open_requests
from spark_ckpt.jobs.spec import RunSpec, SinkSpec
from spark_ckpt.jobs.start import JobPlan, begin
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import CHECKPOINT, LOST, SAVEPOINT, AbortedRecord, Topology, TriggerRecord
from spark_ckpt.sinks import memory
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.state.ipc import int64_view, one_batch
from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.storage.manifest import read_manifest
from spark_ckpt.storage.run_cache import RunCache
from spark_ckpt.storage.run_files import run_file_name, write_run_file
from spark_ckpt.types import KEY_HASH, Committable, Epoch

KEYS, ROWS, UID, JOB = 5, 7, "counts", "job"
LAYOUT = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]))
STATE, COUNTS = LAYOUT.table_schema, pa.schema([("k", pa.int64()), ("n", pa.int64())])
OUTPUT = pa.schema([("row", pa.int64()), ("k", pa.int64()), ("n", pa.int64())])
TOPOLOGY = Topology(
    1, 1, ("rows",), {UID: {"state": "n", "keys": "k", "made_of": {"n": "count"}}}, ("appended", "merged")
)


class WholeJob:
    """One process of the job below ``root``. ``start`` first; then batches."""

    topology = TOPOLOGY

    def __init__(self, root: Path, **options: str) -> None:
        """``options``: further settings of the job."""
        self.root = root
        settings = {"dir": str(root / "jobs"), "retain": "2", "history": "false"}
        self.config = JobConfig.from_options({**settings, **options})
        self.sinks = self._sinks()
        self.folder = root / "jobs" / JOB

    def _sinks(self) -> tuple[SinkSpec, ...]:
        paths = {name: str(self.root / "sinks" / name) for name in TOPOLOGY.sinks}
        return (
            SinkSpec("appended", MemorySink, {"path": paths["appended"]}),
            SinkSpec("merged", MemorySink, {"path": paths["merged"], "mergeKeys": "k"}),
        )

    @property
    def job(self) -> Job:
        return Job(self.config, JOB, self.sinks)

    @property
    def form(self) -> WrittenRows:
        """Of the state table."""
        return WrittenRows(LAYOUT, self.topology.key_groups)

    # -- a start -------------------------------------------------------------------------------------------------

    def plan(self, restore: str, location: str) -> JobPlan:
        config = JobConfig.from_options({**self.config.to_options(), "restore": restore})
        self.location = self.root / location
        return JobPlan(JOB, config, str(self.location), self.topology, self.sinks, OUTPUT, {UID: STATE})

    def start(self, restore: str = "auto", location: str = "spark") -> None:
        plan = self.plan(restore, location)
        self.run = begin(plan)
        self.records = JobRecords(self.run.url, plan.config)
        self._newest = self.records.newest_id()
        self.committer = Committer(self.run, self.sinks)
        state, storage = f"{self.run.url}/state/{UID}", self.config.storage_options()
        self.cache = RunCache(state, str(self.root / "cache"), 2**24, storage)
        self.location = Path(self.run.location)  # a changed query may go on elsewhere
        done = plan.spark_folder(self.run.location).location()
        self.batch = -1 if done.committed is None else done.committed
        self.position, self.epoch, self.counts = self._begin()
        if done.planned is not None and done.planned > self.batch:
            self._replay(json.loads((self.location / "offsets" / str(done.planned)).read_text().splitlines()[1]))

    def _begin(self) -> tuple[int, int, dict[int, int]]:
        if self.batch >= 0:
            known = json.loads((self.location / "store" / str(self.batch)).read_text())
            return known["position"], known["epoch"], {int(k): n for k, n in known["counts"].items()}
        restored = self.run.restored_from
        if restored is None:
            return 0, self.run.start_epoch, {}
        completion = self.records.completion(restored)
        assert completion is not None
        manifest = read_manifest(self.records.store, completion.tables[UID].manifest)
        counts: dict[int, int] = {}
        for number, run in ((g, run) for g, group in manifest.groups.items() for run in group.runs):
            rows = self.cache.read(run)
            assert {*key_group_of(int64_view(rows[KEY_HASH]), self.form.key_groups).tolist()} <= {number}
            counts.update(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))
        return int(completion.sources["rows"]["inner"]), self.run.start_epoch, counts

    # -- batches -------------------------------------------------------------------------------------------------

    def step(self, checkpoint: bool, savepoint: str | None = None) -> None:
        """A batch; with ``checkpoint``, its barrier comes behind the rows; ``savepoint``: of one into this folder."""
        barrier = self._trigger(savepoint) if checkpoint else None
        end = {"origin": self.run.origin, "position": self.position + ROWS, "barrier": barrier}
        self._write("offsets", self.batch + 1, f"v1\n{json.dumps(end)}\n")
        self._replay(end)

    def _next_id(self) -> int:
        """As a source has it: what is committed it looks at when it starts, and not again."""
        records = self.records
        known = (*records.ids("triggers"), *records.ids("checkpoints"), *records.ids("aborted"))
        return max((self._newest, *known)) + 1

    def _trigger(self, target: str | None = None) -> int:
        """Of a savepoint to ``target``: as somebody asks for it by the request ``r``."""
        open_requests(self.records.store)
        k = self._next_id()
        kind, request = (CHECKPOINT, None) if target is None else (SAVEPOINT, f"r{k}")
        if target is not None and target.startswith(f"{self.config.savepoint_dir}/"):
            request = None  # on the schedule
        record = TriggerRecord(
            k, kind, int(time.time() * 1000), "timer", target, False, request, self.run.generation
        )  # fmt: skip
        assert self.records.create_trigger(record)
        return k

    def _replay(self, end: dict[str, Any]) -> None:
        batch, rows = self.batch + 1, self._count(end["position"])
        staged = [c for spec in self.sinks for c in self._staged(spec, rows, batch)]
        events: list[ev.Event] = [ev.RowsRead("rows", rows.num_rows - 2), ev.RowsRead("rows", 2)]
        if end["barrier"] is not None:
            events += self._snapshot(end["barrier"], end["position"])
        self.committer.commit(batch, staged, events, rows.num_rows)
        self.epoch = self.epoch if end["barrier"] is None else end["barrier"] + 1
        self.batch, self.position = batch, end["position"]
        known = {"position": self.position, "epoch": self.epoch, "counts": self.counts}
        self._write("store", batch, json.dumps(known))
        self._write("commits", batch, "v1\n{}\n")

    def _count(self, position: int) -> pa.RecordBatch:
        out = []
        for row in range(self.position, position):
            self.counts[row % KEYS] = self.counts.get(row % KEYS, 0) + 1
            out.append({"row": row, "k": row % KEYS, "n": self.counts[row % KEYS]})
        return pa.RecordBatch.from_pylist(out, schema=OUTPUT)

    def _staged(self, spec: SinkSpec, rows: pa.RecordBatch, batch: int) -> list[Committable]:
        run: RunSpec = self.run
        ctx = WriterContext(
            run.identity, spec.id, run.generation, Epoch(self.epoch), batch, 0, uuid.uuid4().hex[:12], OUTPUT
        )
        writer = spec.make().writer(ctx)
        writer.write(rows)
        return [Committable(spec.id, Epoch(self.epoch), data) for data in writer.prepare_commit()]

    def _snapshot(self, checkpoint: int, position: int) -> list[ev.Event]:
        name = run_file_name(checkpoint, 0, uuid.uuid4().hex[:12])
        counts = pa.Table.from_pylist([{"k": k, "n": n} for k, n in self.counts.items()], schema=COUNTS)
        table = pa.Table.from_batches([self.form.stored(in_hash_order(self.form, counts))])
        file = write_run_file(f"{self.run.url}/state/{UID}", name, table, self.config.storage_options())
        runs = self.form.runs(table, name, checkpoint)
        groups = {
            g: ev.GroupManifest((runs[g],), runs[g].count) if g in runs else ev.GroupManifest()
            for g in range(self.form.key_groups)
        }
        return [
            ev.Flushed(UID, checkpoint, (file,), {}),
            ev.OperatorAck(UID, checkpoint, 0, groups),
            ev.SourceAck("rows", checkpoint, {"inner": position, "ended": False}),
            ev.Barrier(checkpoint, self.topology.weight_total, 0),
        ]

    def _write(self, log: str, batch: int, text: str) -> None:
        (self.location / log).mkdir(parents=True, exist_ok=True)
        (self.location / log / str(batch)).write_text(text)

    # -- what came out -------------------------------------------------------------------------------------------

    def check(self, doubles: bool) -> None:
        """After a batch with a checkpoint: every row is there, once unless ``doubles``, with the right count."""
        rows = memory.read(str(self.root / "sinks" / "appended")).to_pylist()
        wanted = [{"row": row, "k": row % KEYS, "n": row // KEYS + 1} for row in range(self.position)]
        distinct = sorted({tuple(row.values()) for row in rows})
        assert distinct == [tuple(row.values()) for row in wanted]
        assert doubles or len(rows) == len(wanted)
        merged = memory.read(str(self.root / "sinks" / "merged")).to_pylist()
        assert {row["k"]: row["n"] for row in merged} == self.counts


def in_hash_order(form: WrittenRows, rows: pa.Table) -> pa.RecordBatch:
    """Rows of a state table with their key hashes, as Spark's tasks get them to write."""
    hashes = pa.array(form.hashes([one_batch(rows).column(key) for key in form.keys]), pa.int64())
    return one_batch(rows.append_column(KEY_HASH, hashes).sort_by(KEY_HASH))


def finished(root: Path) -> WholeJob:
    """Two generations, open batches, an aborted checkpoint, an open trigger, a request; stopped in the middle."""
    job = WholeJob(root)
    job.start()
    for checkpoint in (True, False, True):
        job.step(checkpoint)
    job.start()
    job.step(True)
    job.step(False)
    k = job._trigger()
    job.records.abort(AbortedRecord(k, LOST, "for a test", 0, job.run.generation))
    job._trigger()
    create_request(job.records.store, CHECKPOINT)
    return job
