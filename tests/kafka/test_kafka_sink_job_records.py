"""The Kafka sink in a job, without Spark: starts, commits, clean-up, with the job's own records and folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import spark_ckpt
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import RetryableError
from spark_ckpt.jobs import committer
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec, sink_place
from spark_ckpt.jobs.start import JobPlan, begin, checked_sinks
from spark_ckpt.protocol.events import Barrier, SourceAck
from spark_ckpt.protocol.records import Topology, TriggerRecord
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.testing.sink_harness import stage_table
from spark_ckpt.types import Committable, Epoch
from tests.kafka.sink_target import committed
from tests.kafka_server import KafkaServer, shared_kafka

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])


class Job:
    """Job ``orders`` into one topic; each batch is a checkpoint. ``where``: its Spark location."""

    def __init__(self, folder: Path, server: KafkaServer) -> None:
        self.folder, self.server, self.topic = folder, server, server.new_topic()
        options = {"kafka.bootstrap.servers": server.bootstrap, "topic": self.topic}
        self.sinks = checked_sinks([("kafka", options)])
        self.handle = spark_ckpt.job(f"{folder}/jobs", f"orders-{self.topic}", self.sinks)

    def start(self, where: str = "spark") -> RunSpec:
        name = self.handle.name
        config = JobConfig.from_options({"dir": f"{self.folder}/jobs", "job": name, "maxParallelism": "1"})
        topology = Topology(1, 1, ("source0",), {}, ("kafka",))
        return begin(JobPlan(name, config, f"{self.folder}/{where}", topology, self.sinks, SCHEMA))

    def sink(self, run: RunSpec) -> KafkaSink:
        made = self.sinks[0].make(sink_place(run.config, run.job))
        assert isinstance(made, KafkaSink)
        return made

    def stage(self, run: RunSpec, epoch: int, batch: int, *values: str) -> list[Committable]:
        ctx = WriterContext(run.identity, "kafka", run.generation, Epoch(epoch), batch, 0, f"a{batch}-{values}", SCHEMA)
        return stage_table(self.sink(run), ctx, pa.table([list(values)] * 2, schema=SCHEMA))

    def commit(self, run: RunSpec, batch: int, *values: str) -> None:
        records = JobRecords(run.url, run.config)
        k = records.newest_id() + 1
        records.create_trigger(TriggerRecord(k, "checkpoint", 0, "interval", None, False, None, run.generation))
        events = [SourceAck("source0", k, {"inner": k}), Barrier(k, 1, 0)]
        committer.committer_for(run, self.sinks).commit(batch, self.stage(run, k, batch, *values), events)

    def values(self) -> list[str]:
        return [m.value().decode() for m in committed(self.server, self.topic)]

    def open(self, run: RunSpec) -> int:
        return sum(self.sink(run).staged_by().values())

    def copies(self) -> list[str]:
        return sorted(p.name for p in (self.folder / "jobs").rglob("staged/*.arrow"))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path, shared_kafka())
    sink = made.sinks[0].make(sink_place(JobConfig(dir=str(tmp_path)), "none"))
    for who in sink.staged_by():
        sink.discard(who)
    return made


def test_checkpoints_are_in_the_topic_and_copies_wait_in_the_jobs_folder(job: Job) -> None:
    run = job.start()
    job.commit(run, 0, "a", "b")
    job.commit(run, 1, "c")
    assert (job.values(), job.copies()) == (["a", "b", "c"], [])
    staged = job.stage(run, 3, 2, "never committed")
    assert len(job.copies()) == len(staged) == job.open(run) == 1
    removed = job.handle.gc(min_age_s=0)
    assert len([r for r in removed if "never-committed" in r]) == 2  # a transaction and a file
    assert (job.copies(), job.open(run)) == ([], 0)
    assert job.handle.verify() == []


def test_a_task_that_was_lost_does_not_hold_back_readers_of_its_checkpoint(job: Job) -> None:
    run = job.start()
    job.stage(run, 1, 0, "of a worker that was killed")
    job.commit(run, 0, "a")
    assert (job.values(), job.open(run), job.copies()) == (["a"], 0, [])
    job.stage(run, 3, 1, "of a later epoch")
    job.commit(run, 1, "b")
    assert (job.open(run), len(job.copies())) == (1, 1)


def test_a_start_ends_open_transactions_and_keeps_those_that_records_name(job: Job) -> None:
    first = job.start()
    job.commit(first, 0, "a")
    job.stage(first, 2, 1, "of a batch that failed")
    committer.committer_for(first, job.sinks).commit(1, job.stage(first, 2, 1, "b"), [])  # recorded, not complete
    assert job.open(first) == 2
    (job.folder / "spark" / "offsets").mkdir(parents=True)
    second = job.start("elsewhere")  # restores the newest checkpoint: what is behind it comes again
    assert job.open(second) == 0
    job.commit(second, 0, "b again")
    assert job.values() == ["a", "b again"]


@pytest.mark.soak
def test_a_checkpoint_that_kafka_was_away_for_is_committed_by_the_next_start(tmp_path: Path) -> None:
    server = KafkaServer().start()
    try:
        job = Job(tmp_path, server)
        run = job.start()
        job.commit(run, 0, "a")
        staged = job.stage(run, 2, 1, "b")
        records = JobRecords(run.url, run.config)
        records.create_trigger(TriggerRecord(2, "checkpoint", 0, "interval", None, False, None, run.generation))
        server.kill()
        hasty = replace(run, config=replace(run.config, retry_timeout_ms=1000))
        events = [SourceAck("source0", 2, {"inner": 2}), Barrier(2, 1, 0)]
        with pytest.raises(RetryableError, match="Nothing is lost"):
            committer.Committer(hasty, job.sinks).commit(1, staged, events)
        server.restart()
        assert job.values() == ["a"]
        job.start("elsewhere")
        assert job.values() == ["a", "b"]
        assert job.copies() == []
    finally:
        server.stop()
