"""The checkpointed reader around an inner source, driven as Spark drives it, on real records; no Spark is started."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from spark_ckpt import clock
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ControlColumnsError, FencedError
from spark_ckpt.jobs.requests import Answer, answer_request, create_request, open_requests, withdraw_request
from spark_ckpt.jobs.spec import RunSpec, SourceSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import (
    AbortedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    Topology,
)
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.protocol.source_steps import ReadDrained
from spark_ckpt.protocol.source_view import LOOK_MS
from spark_ckpt.runtime.source.reader import CkptStreamReader
from spark_ckpt.spark_versions.read_limits import ReadMaxRows
from spark_ckpt.storage.job_paths import JobPaths

ROOT = Path(__file__).parents[2]
TOPOLOGY = Topology(4, 4, ("a", "b"), {}, ("s",))
LIMIT = ReadMaxRows(2**31 - 1)
NOW_MS = 1_700_000_000_000


def reader(
    tmp_path: Path, leader: bool = True, generation: int = 1, inner: Any = "rate-micro-batch", **options: str
) -> CkptStreamReader:
    settings = {"dir": str(tmp_path), "interval": "1h", "initialDelay": "1h", "triggerPollInterval": "0ms", **options}
    config = JobConfig.from_options(settings)
    run = RunSpec("job", config, generation, 1, 1, None, None, TOPOLOGY, 1)
    source = SourceSpec("a" if leader else "b", inner, {}, None, leader, (), (), 2)
    made = CkptStreamReader(run, source)
    record = GenerationRecord(generation, 1, "spark", None, 0, TOPOLOGY)
    made._coordinator().records.create_generation(record)
    return made


def ran(readers: Any, starts: Any, ends: Any, number: int) -> list[list[ev.Event]]:
    """One batch, as far as the records tell: what each source said has reached the sink."""
    events = [said(r.partitions(start, end)) for r, start, end in zip(readers, starts, ends, strict=True)]
    acks = tuple(e for found in events for e in found if isinstance(e, ev.SourceAck))
    record = BatchRecord(1, number, 1, events=acks)
    readers[0]._coordinator().records.store.replace(f"batches/{record.name}.json", "batch", record.to_json())
    return events


def said(parts: Any) -> list[ev.Event]:
    return [ev.decode(e) for part in parts for e in part.events]


def test_a_requested_checkpoint_goes_into_both_offsets_and_out_as_the_whole_weight(tmp_path: Path) -> None:
    a, b = reader(tmp_path), reader(tmp_path, leader=False)
    starts = [r.initialOffset() for r in (a, b)]
    store = a._coordinator().records.store
    create_request(store, "savepoint", "there", terminal=True)
    ends = [r.latestOffset(start, LIMIT) for r, start in zip((a, b), starts, strict=True)]
    assert [end["barrier"] for end in ends] == [1, 1]
    assert open_requests(store) == []
    # The follower's part of the barrier is still on its way to the sink.
    events_of = ran((a,), starts[:1], ends[:1], 0)
    events_of.append(said(b.partitions(starts[1], ends[1])))
    for r, end, events in zip((a, b), ends, events_of, strict=True):
        assert sum(e.weight for e in events if isinstance(e, ev.Barrier)) == 4
        assert [e.source for e in events if isinstance(e, ev.SourceAck)] == [r.source.id]
        if r is a:
            assert r.latestOffset(end, LIMIT) is end, "nothing is read behind it"
    # Whoever asked gives up: both go on, and the marker of the leader and of the follower say so.
    withdraw_request(store, ends[0]["request"], "time is over")
    gone = []
    for r, end in zip((a, b), ends, strict=True):
        after = end
        while after is end:
            after = r.latestOffset(end, LIMIT)
        gone.append(after)
    assert [after["cancel"] for after in gone] == [[1], [1]]
    assert all("terminal" not in after for after in gone)
    aborted = a._coordinator().records.aborted(1)
    assert isinstance(aborted, AbortedRecord)
    assert aborted.cause == "withdrawn"


def test_a_drained_follower_is_heard_by_the_leader_in_the_next_round(tmp_path: Path) -> None:
    a, b = reader(tmp_path), reader(tmp_path, leader=False)
    at = []
    for r in (a, b):
        start = r.initialOffset()
        r.prepareForTriggerAvailableNow()
        at.append(start)
    rounds = 0
    while True:
        ends = [r.latestOffset(start, LIMIT) for r, start in zip((a, b), at, strict=True)]
        if ends == at:
            break
        ran((a, b), at, ends, rounds)
        k = ends[0]["barrier"]
        if k is not None and k == ends[1]["barrier"]:
            done = CompletionRecord(k, "final", 1, 1, rounds, rounds + 1, {}, {}, (), TOPOLOGY, 0, 0)
            a._coordinator().records.store.create(f"checkpoints/{k:010d}.json", "checkpoint", done.to_json())
        at, rounds = ends, rounds + 1
        assert rounds < 10
    (trigger,) = [a._coordinator().records.trigger(k) for k in a._coordinator().records.ids("triggers")]
    assert trigger is not None
    assert trigger.kind == "final"
    assert [end["epoch"] for end in at] == [2, 2]


def test_a_reader_that_was_halted_leaves_what_its_successors_announce(tmp_path: Path) -> None:
    """Else a query of what is available would end before its last checkpoint."""
    old, new = reader(tmp_path), reader(tmp_path, generation=2)
    store = old._coordinator().records.store
    for generation in (1, 2):
        store.create(JobPaths.drained(generation, "b"), "drained", {})
    old.latestOffset(old.initialOffset(), LIMIT)
    assert store.names("drained") == [JobPaths.drained(g, "b").rpartition("/")[2] for g in (1, 2)]
    new.latestOffset(new.initialOffset(), LIMIT)
    assert store.names("drained") == [JobPaths.drained(2, "b").rpartition("/")[2]]


def test_what_a_source_announced_to_an_older_driver_does_not_count(tmp_path: Path) -> None:
    coordinator = reader(tmp_path, generation=2)._coordinator()
    for generation, source in ((1, "a"), (2, "b"), (3, "c")):
        coordinator.records.store.create(JobPaths.drained(generation, source), "drained", {})
    assert coordinator._io.execute(ReadDrained(2)) == {"b"}


def lost_barrier(tmp_path: Path) -> tuple[CkptStreamReader, Any]:
    """A reader whose barrier went into a batch that has ended, and did not come to the sink."""
    a = reader(tmp_path)
    start = a.initialOffset()
    create_request(a._coordinator().records.store, "savepoint", "there", terminal=False)
    end = a.latestOffset(start, LIMIT)
    assert end["barrier"] == 1
    a.partitions(start, end)
    return a, end


def test_a_lost_barrier_of_this_query_ends_it(tmp_path: Path) -> None:
    a, end = lost_barrier(tmp_path)
    with pytest.raises(ControlColumnsError, match="the barrier of checkpoint 1 that source 'a' sent has not reached"):
        a.latestOffset(end, LIMIT)


def test_a_driver_whose_batches_a_newer_start_removed_is_told_of_it_and_blames_no_operation(tmp_path: Path) -> None:
    a, end = lost_barrier(tmp_path)
    reader(tmp_path, generation=2)
    with pytest.raises(FencedError, match="expected generation 1 to be the newest, found 2"):
        a.latestOffset(end, LIMIT)


def test_a_barrier_that_an_earlier_start_lost_costs_its_checkpoint_only(tmp_path: Path) -> None:
    _, end = lost_barrier(tmp_path)
    again = reader(tmp_path, generation=2)
    again.latestOffset(end, LIMIT)
    aborted = again._coordinator().records.aborted(1)
    assert aborted is not None
    assert aborted.cause == "lost"


def test_the_leading_source_says_that_the_job_lives_until_it_is_stopped(tmp_path: Path) -> None:
    reader(tmp_path).stop()
    a, b = reader(tmp_path), reader(tmp_path, leader=False)
    store = a._coordinator().records.store
    assert store.names("alive") == ["0000000001.json"]
    b.stop()
    assert pickle.loads(pickle.dumps(a))._heart is None, "tasks have none"
    assert store.names("alive") == ["0000000001.json"]
    a.stop()
    assert store.names("alive") == []


def test_a_checkpoint_that_was_complete_and_dropped_before_a_follower_looked_is_not_taken_for_lost(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The follower takes up three checkpoints within one moment: it has not looked for the end of the second."""
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS)
    a, b = (reader(tmp_path, leader, maxConcurrent="2") for leader in (True, False))
    records = a._coordinator().records
    at = [r.initialOffset() for r in (a, b)]
    for k in (1, 2, 3):
        create_request(records.store, "savepoint", "there")
        ends = [r.latestOffset(start, LIMIT) for r, start in zip((a, b), at, strict=True)]
        assert [end["barrier"] for end in ends] == [k, k]
        ran((a, b), at, ends, k)
        done = CompletionRecord(k, "checkpoint", 1, 1, k, k, {}, {}, (), TOPOLOGY, 0, 0)
        records.store.create(JobPaths.checkpoint(k), "checkpoint", done.to_json())
        at = ends
    # What the commit of the third leaves with retain=1.
    batches = [JobPaths.listed("batches", name) for name in records.store.names("batches")]
    for path in (*map(JobPaths.checkpoint, (1, 2)), *map(JobPaths.trigger, (1, 2)), *batches):
        records.store.delete(path)
    assert [p.checkpoint for p in SourceOffset.from_json(at[1]).pending] == [2, 3]
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS + LOOK_MS)
    after = SourceOffset.from_json(b.latestOffset(at[1], LIMIT))
    assert (after.pending, after.cancel) == ((), ()), "it has seen that both are complete"


def test_a_request_that_has_its_answer_is_not_taken_up_again_though_it_could_not_be_removed(tmp_path: Path) -> None:
    """Storage failed when it was to be removed, and the trigger that took it up was dropped since."""
    a = reader(tmp_path)
    store = a._coordinator().records.store
    request = create_request(store, "savepoint", "there", terminal=True)
    answer_request(store, request, Answer(3, "it was not written"))
    start = a.initialOffset()
    assert a.latestOffset(start, LIMIT)["barrier"] is None
    assert a._coordinator().records.ids("triggers") == []


class Queue(DataSource):
    """One message a batch, as long as ``left`` says; remembers what it heard of."""

    left = 1
    heard: ClassVar[list[int]] = []

    def schema(self) -> str:
        return "n int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return QueueReader()


class QueueReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": min(Queue.left, start["at"] + 1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())

    def commit(self, end: dict[str, int]) -> None:
        Queue.heard.append(end["at"])


def test_upstream_hears_of_each_completed_checkpoint_while_nothing_comes_and_when_the_query_ends(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(Queue, "heard", [])
    a = reader(tmp_path, inner=Queue)
    store, start = a._coordinator().records.store, a.initialOffset()

    def complete(start: Any, number: int) -> Any:
        """A batch with a checkpoint; Spark hears of no other."""
        create_request(store, "checkpoint", None, terminal=False)
        monkeypatch.setattr(Queue, "left", number + 1)
        end = a.latestOffset(start, LIMIT)
        (ack,) = [e for e in ran((a,), (start,), (end,), number)[0] if isinstance(e, ev.SourceAck)]
        k = ack.checkpoint
        done = CompletionRecord(k, "checkpoint", 1, 1, number, number, {"a": ack.offset}, {}, (), TOPOLOGY, 0, 0)
        store.create(f"checkpoints/{k:010d}.json", "checkpoint", done.to_json())
        store.create(f"committed/{k:010d}.json", "committed", CommittedRecord(k, 1, 0).to_json())
        return end

    end = complete(start, 0)
    while Queue.heard != [1]:
        assert a.latestOffset(end, LIMIT) is end
    last = complete(end, 1)
    a.stop()
    assert (Queue.heard, last["inner"]) == ([1, 2], {"at": 2})


class SlowToStop(Queue):
    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return SlowReader()


class SlowReader(QueueReader):
    def stop(self) -> None:
        print("stopping", flush=True)  # noqa: T201
        time.sleep(0.5)
        print("stopped", flush=True)  # noqa: T201


PROCESS = """
import sys
from pathlib import Path
from tests.sources.test_source_reader import SlowToStop, reader

made = reader(Path(sys.argv[1]), inner=SlowToStop)
try:
    print("running", flush=True)
    sys.stdin.readline()
finally:
    made.stop()
"""


@pytest.mark.parametrize("closed_first", [False, True], ids=["signal first", "connection first"])
def test_a_source_stops_whether_its_process_sees_the_signal_or_the_end_of_its_connection_first(
    tmp_path: Path, closed_first: bool
) -> None:
    """Spark sends the one and closes the other, and waits for neither."""
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        if closed_first:
            process.stdin.close()
            assert process.stdout.readline() == "stopping\n"
        process.terminate()
        assert process.stdout.read().endswith("stopped\n")
