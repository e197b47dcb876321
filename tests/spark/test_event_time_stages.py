"""Event time where no Spark is needed: what the source and the pack stage send, and what a subtask makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType, TimestampType

from spark_ckpt.agg import AggSpec
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.spec import RunSpec, SourceSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import Topology
from spark_ckpt.protocol.source_time import end_stream, idle_stream
from spark_ckpt.runtime.operator._subtask_call import DATA, EVENT, SubtaskCall
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import EventTime, OperatorSpec, WatermarkSpec
from spark_ckpt.runtime.source.reader import CkptStreamReader
from spark_ckpt.runtime.stateless import MarkStream
from spark_ckpt.runtime.windows import TIME
from spark_ckpt.spark_versions.read_limits import ReadMaxRows
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.pandas_function import PandasStateFunction
from spark_ckpt.state.ipc import from_bytes, nullable_schema
from spark_ckpt.types import CTL, EVENT_TIME, KEY_HASH, TAG, make_tag

KEY = pa.schema([("k", pa.int64())])
INPUT = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
OUTPUT = pa.schema([("k", pa.int64()), ("saw", pa.string())])
LIMIT = ReadMaxRows(1000)


@pytest.fixture
def run(tmp_path: Path) -> RunSpec:
    config = JobConfig.from_options({"dir": str(tmp_path / "jobs"), "interval": "1h", "initialDelay": "1h"})
    return RunSpec("job", config, 1, 1, 1, None, None, Topology(1, 1, ("in",), {"op": {}}, ("out",)), 1)


# --- the source -----------------------------------------------------------------------------------------------------


def _reader(run: RunSpec, tmp_path: Path, **event_time: bool) -> CkptStreamReader:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [1], "t": pa.array([0], pa.timestamp("us", "UTC"))}), tmp_path / "in" / "a.parquet")
    schema = StructType().add("k", LongType()).add("t", TimestampType())
    options = {"path": str(tmp_path / "in"), "fileFormat": "parquet", "discoveryInterval": "1ms"}
    return CkptStreamReader(run, SourceSpec("in", "files", options, schema, True, (), ("op",), 1, **event_time))


def _events(reader: CkptStreamReader, start: Any, end: Any) -> list[ev.Event]:
    """But those that count what was read."""
    events = [ev.decode(e) for part in reader.partitions(start, end) for e in part.events]
    return [event for event in events if not isinstance(event, ev.RowsRead)]


def test_a_batch_without_rows_follows_rows_where_time_outs_wait_for_event_time(run: RunSpec, tmp_path: Path) -> None:
    reader = _reader(run, tmp_path, event_time=True)
    first = reader.initialOffset()
    rows = reader.latestOffset(first, LIMIT)
    none = reader.latestOffset(rows, LIMIT)
    assert rows["inner"] == none["inner"] != first["inner"]
    assert rows != none
    assert reader.latestOffset(none, LIMIT) == none
    tick = ev.Watermark(ev.NO_STREAM, 0, 1)
    assert _events(reader, first, rows) == _events(reader, rows, none) == [tick]
    assert reader.partitions(none, none) == []


@pytest.mark.parametrize("settings", [{}, {"event_time": True, "no_data_batches": False}])
def test_no_batch_without_rows_where_none_is_needed_or_wanted(
    run: RunSpec, tmp_path: Path, settings: dict[str, bool]
) -> None:
    reader = _reader(run, tmp_path, **settings)
    rows = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert reader.latestOffset(rows, LIMIT) == rows


# --- operator -------------------------------------------------------------------------------------------------------


def _sees(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    what = "timed out" if state.hasTimedOut else f"{sum(map(len, frames))} rows"
    if state.hasTimedOut:
        state.remove()
    else:
        state.update((1,))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 1)
    yield pd.DataFrame({"k": [key[0]], "saw": [f"{what} at {state.getCurrentWatermarkMs()}"]})


def _spec(run: RunSpec, time: EventTime | None = None, streams: int = 1) -> OperatorSpec:
    function = PandasStateFunction(
        _sees, KEY, INPUT, OUTPUT, pa.schema([("n", pa.int64())]), timeout="EventTimeTimeout", has_watermark=True
    )
    rows = pa.schema([*INPUT, pa.field(KEY_HASH, pa.int64()), pa.field(EVENT_TIME, pa.int64())])
    marks = tuple(WatermarkSpec(n, f"t#{n}", "t", 0) for n in range(1, streams + 1))
    names, settings = tuple(m.name for m in marks), time or EventTime()
    return OperatorSpec(run, "op", 1, function, rows, names, marks, settings, event_time="t")


class Subtask:
    """One subtask of the operator, called batch by batch as Spark would."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec, self.stored = spec, None

    def batch(
        self,
        *rows: tuple[int, int],
        stream: int = 1,
        barrier: int | None = None,
        restore: ev.Restore | None = None,
        says: tuple[ev.Event, ...] = (),
    ) -> list[str]:
        """``rows``: key, event time in microseconds. What the function saw, in order."""
        events: list[ev.Event] = [ev.Watermark(ev.NO_STREAM, 0, 1), *says]
        if barrier is not None:
            events.append(ev.Barrier(barrier, 1, 0))
        if restore is not None:
            events.append(restore)
        control = pa.array([ev.encode(e) for e in events], pa.binary())
        k = pa.array([k for k, _ in rows], pa.int64())
        t = pa.array([t for _, t in rows], pa.int64()).view(INPUT.field("t").type)
        tags = pa.repeat(pa.scalar(make_tag(1) | stream, pa.int64()), len(rows))
        batches = [
            pa.record_batch([k, t, tags, pa.nulls(len(rows), pa.binary())], names=["k", "t", TAG, CTL]),
            pa.record_batch(
                [pa.nulls(len(control), f.type) for f in INPUT] + [pa.nulls(len(control), pa.int64()), control],
                names=["k", "t", TAG, CTL],
            ),
        ]
        self.call = SubtaskCall(self.spec, 0, self.stored, 0)
        for packed in PackStage(self.spec, hashes=True)(iter(batches)):
            for row in packed.to_pylist():
                self.call.take(row["head"], row["body"])
        self.call.run()
        self.stored = self.call.sealed()
        bodies = [body for kind, _, body in self.call.out if kind == DATA]
        tables = [from_bytes(pa.py_buffer(b), nullable_schema(OUTPUT)) for b in bodies]
        return [f"{row['k']}: {row['saw']}" for table in tables for row in table.to_pylist()]

    def acknowledged(self) -> ev.GroupManifest:
        said = [ev.decode(body) for kind, _, body in self.call.out if kind == EVENT]
        (ack,) = [e for e in said if isinstance(e, ev.OperatorAck)]
        return ack.groups[0]


def test_time_outs_fire_in_the_next_batch_behind_its_rows_and_late_rows_fall_a_batch_later(run: RunSpec) -> None:
    subtask = Subtask(_spec(run))
    assert subtask.batch((1, 5_000), (2, 5_000)) == ["1: 1 rows at 0", "2: 1 rows at 0"]
    # The watermark is 5 ms now: 1 is called with its late row, and no time-out for it; 2 times out behind.
    assert sorted(subtask.batch((1, 4_000))) == ["1: 1 rows at 5", "2: timed out at 5"]
    assert subtask.batch((3, 5_000), (4, 5_001)) == ["4: 1 rows at 5"]  # 3 is late by the watermark of the batch before


def test_the_watermark_has_whole_milliseconds_and_is_never_before_1970(run: RunSpec) -> None:
    subtask = Subtask(_spec(run))
    assert subtask.batch((1, 5_999), (2, 0), (3, -1), (4, 1)) == ["1: 1 rows at 0", "4: 1 rows at 0"]
    assert subtask.batch()[-1:] == ["4: timed out at 5"]
    assert subtask.batch((5, 5_001), (6, 5_000)) == ["5: 1 rows at 5"]
    early = Subtask(_spec(run))
    early.batch((1, -315_619_200_000_000))  # 1960
    assert early.batch((1, 1)) == ["1: 1 rows at 0"]


@pytest.mark.parametrize(("policy", "expected"), [("min", "at 0"), ("max", "at 9")])
def test_one_watermark_of_several_streams(run: RunSpec, policy: str, expected: str) -> None:
    subtask = Subtask(_spec(run, EventTime(policy), streams=2))
    subtask.batch((1, 9_000))
    assert all(saw.endswith(expected) for saw in subtask.batch((2, 9_500), stream=2))


def _idle(source: str, turns: int) -> tuple[ev.Event, ...]:
    return (ev.Watermark(idle_stream(source), turns, 1),)


def _of_two_sources(run: RunSpec, idle: str | None = "1s") -> OperatorSpec:
    config = JobConfig.from_options({"dir": run.config.dir, **({"source.idleTimeout": idle} if idle else {})})
    spec = _spec(replace(run, config=config), streams=2)
    return replace(spec, sources=("a", "b"), watermark_sources=(("a",), ("b",)))


def test_an_idle_source_does_not_hold_the_watermark_and_it_does_not_go_back_when_it_wakes(run: RunSpec) -> None:
    subtask = Subtask(_of_two_sources(run))
    subtask.batch((1, 9_000))
    assert subtask.batch((2, 9_500), says=_idle("b", 1)) == ["2: 1 rows at 0"]
    assert sorted(subtask.batch()) == ["1: timed out at 9", "2: timed out at 9"]
    awake = subtask.batch((3, 1_000), (4, 20_000), stream=2, says=_idle("b", 2))
    assert awake == ["4: 1 rows at 9"], "what is older than the watermark is late"
    assert subtask.batch(stream=2) == []
    assert subtask.batch((5, 30_000)) == ["5: 1 rows at 9"], "the other one holds it now, where it was"
    assert sorted(subtask.batch()) == ["4: timed out at 20", "5: timed out at 20"]


def test_where_all_sources_are_idle_the_latest_watermark_counts_and_without_the_setting_none_is(run: RunSpec) -> None:
    subtask = Subtask(_of_two_sources(run))
    subtask.batch((1, 9_000), says=_idle("b", 1))
    subtask.batch(says=_idle("a", 1))
    assert subtask.batch((2, 9_500)) == ["2: 1 rows at 9"]
    at_once = Subtask(_of_two_sources(run))
    at_once.batch((1, 9_000), says=(*_idle("a", 1), *_idle("b", 1)))
    assert sorted(at_once.batch((2, 9_500))) == ["1: timed out at 9", "2: 1 rows at 9"]
    off = Subtask(_of_two_sources(run, None))
    off.batch((1, 9_000), says=_idle("b", 1))
    assert off.batch((2, 9_500)) == ["2: 1 rows at 0"]


def test_a_restored_subtask_knows_which_source_was_idle_and_how_far_the_watermark_was(run: RunSpec) -> None:
    spec = _of_two_sources(run)
    subtask = Subtask(spec)
    subtask.batch((1, 9_000), says=_idle("b", 1))
    subtask.batch(barrier=1)
    restore = ev.Restore("op", 1, {0: subtask.acknowledged()})
    later = Subtask(replace(spec, run=replace(spec.run, generation=2, start_epoch=2, restored_from=1)))
    assert later.batch((2, 9_000), (3, 9_001), restore=restore, says=_idle("b", 2)) == ["3: 1 rows at 9"]


def test_a_watermark_is_that_of_the_rows_that_pass_it_and_not_of_those_a_filter_leaves() -> None:
    batch = pa.record_batch(
        [pa.array([5_001, None, 900], pa.int64()).view(INPUT.field("t").type), pa.array([make_tag(3)] * 3, pa.int64()),
         pa.nulls(3, pa.binary())],
        names=["t", TAG, CTL],
    )  # fmt: skip
    rows, said = MarkStream(2, "t#2", "t", 1_000)(iter([batch]))
    assert rows.num_rows == 3
    assert [ev.decode(c) for c in said.column(CTL).to_pylist()] == [ev.Watermark("t#2", 4_000, 3)]
    assert list(MarkStream(2, "t#2", "t", 0)(iter([batch.slice(1, 1)])))[1:] == []
    control = batch.set_column(2, CTL, pa.array([ev.encode(ev.Barrier(1, 1, 0))] * 3))  # as computed columns have it
    assert list(MarkStream(2, "t#2", "t", 0)(iter([control])))[1:] == []


def test_one_watermark_where_spark_is_asked_for_one(run: RunSpec) -> None:
    subtask = Subtask(_spec(run, EventTime("min", late_a_batch_behind=False)))
    subtask.batch((1, 5_000))
    assert subtask.batch((2, 4_000), (3, 6_000)) == ["3: 1 rows at 5", "1: timed out at 5"]


def test_a_checkpoint_has_the_time_outs_of_its_batch_behind_it_and_both_watermarks(run: RunSpec) -> None:
    subtask = Subtask(_spec(run))
    subtask.batch((1, 5_000))
    assert subtask.batch((2, 7_000), barrier=1) == ["2: 1 rows at 5", "1: timed out at 5"]
    manifest = subtask.acknowledged()
    assert manifest.watermarks_us == {"t#1": 7_000, ev.NO_STREAM: 5_000}
    assert manifest.keys == 1


def test_a_subtask_restored_from_a_checkpoint_between_two_batches_goes_on_as_if_nothing_had_been(run: RunSpec) -> None:
    subtask = Subtask(_spec(run))
    subtask.batch((1, 5_000))
    subtask.batch((2, 7_000), barrier=1)
    restore = ev.Restore("op", 1, {0: subtask.acknowledged()})
    rows = [(3, 5_000), (4, 5_001), (5, 7_000)]
    expected = ["4: 1 rows at 7", "5: 1 rows at 7", "2: timed out at 7"]
    assert sorted(subtask.batch(*rows)) == sorted(expected)
    later = Subtask(_spec(replace(run, generation=2, start_epoch=2, restored_from=1)))
    assert sorted(later.batch(*rows, restore=restore)) == sorted(expected)
    assert later.stored is not None


# --- the end of bounded input ---------------------------------------------------------------------------------------

WINDOW_MS = 10


class Windows:
    """The tasks of an operator that counts rows in windows of 10 ms, of a source that knows its end."""

    def __init__(self, run: RunSpec, tasks: int, close: str = "true", **changes: Any) -> None:
        config = JobConfig.from_options({"dir": run.config.dir, "endOfInput.closeWindows": close})
        topology = replace(run.topology, key_groups=4, weight_total=4)
        run = replace(run, config=config, topology=topology, partitions=tasks, **changes)
        key = pa.schema([("w", TIME), ("k", pa.int64())])
        function = WindowedAggregate(key, pa.schema([]), {"n": AggSpec("count")}, window="w", size_us=WINDOW_MS * 1000)
        rows, mark = pa.schema([*key, pa.field(KEY_HASH, pa.int64())]), WatermarkSpec(1, "w#1", "w", 0)
        self.spec = OperatorSpec(run, "op", 1, function, rows, ("w#1",), (mark,), sources=("a",))
        self.stored: dict[int, Any] = {}
        self.tasks = tasks

    def batch(self, *rows: tuple[int, int], says: tuple[ev.Event, ...] = ()) -> list[tuple[int, int, int]]:
        """``rows``: start of the window in milliseconds, key. What came out: start, key, rows."""
        said = [ev.encode(e) for e in (ev.Watermark(ev.NO_STREAM, 0, 1), *says)]
        data: list[dict[str, Any]] = [{"w": w * 1000, "k": k, TAG: make_tag(1) | 1, CTL: None} for w, k in rows]
        data += [{"w": None, "k": None, TAG: None, CTL: c} for c in said]
        columns = {name: [row[name] for row in data] for name in ("w", "k", TAG, CTL)}
        w = pa.array(columns["w"], pa.int64()).view(TIME)
        kinds = {"k": pa.int64(), TAG: pa.int64(), CTL: pa.binary()}
        batch = pa.record_batch([w, *(pa.array(columns[n], kind) for n, kind in kinds.items())], ["w", *kinds])
        packed = [row for part in PackStage(self.spec, hashes=True)(iter([batch])) for row in part.to_pylist()]
        out, self.manifests = [], {}
        for task in range(self.tasks):
            call = SubtaskCall(self.spec, task, self.stored.get(task), 0)
            for row in packed:
                if self.spec.run.subtasks.subtask_of_route[row["route"]] == task:
                    call.take(row["head"], row["body"])
            call.run()
            self.stored[task] = call.sealed()
            for kind, _, body in call.out:
                if kind == DATA:
                    schema = nullable_schema(self.spec.function.output_schema)
                    table = from_bytes(pa.py_buffer(body), schema)
                    starts = table.column("w").cast(pa.int64()).to_pylist()
                    out += [(s // 1000, k, n) for s, k, n in zip(starts, *(table.column(c).to_pylist() for c in "kn"))]
                else:
                    event = ev.decode(body)
                    if isinstance(event, ev.OperatorAck):
                        self.manifests.update(event.groups)
        return sorted(out)


def _at_end(checkpoint: int, source: str = "a") -> tuple[ev.Event, ...]:
    return (ev.Watermark(end_stream(source), checkpoint, 1), ev.Barrier(checkpoint, 4, 0))


@pytest.mark.parametrize("tasks", [1, 3])
def test_windows_close_at_the_end_of_input_and_rows_for_them_are_late_whatever_the_tasks(
    run: RunSpec, tasks: int
) -> None:
    windows = Windows(run, 2)
    rows = [(10, k) for k in range(20)]
    assert windows.batch(*rows, (40, 1), (40, 1)) == []
    closed = windows.batch(says=_at_end(1))
    assert closed == [*((10, k, 1) for k in range(20)), (40, 1, 2)]
    assert all(m.keys == 0 for m in windows.manifests.values())
    restore = (ev.Restore("op", 1, windows.manifests),)
    later = Windows(run, tasks, generation=2, start_epoch=2, restored_from=1)
    assert later.batch((40, 5), (30, 2), (10, 3), (50, 1), says=restore) == []
    assert later.batch(says=_at_end(2)) == [(50, 1, 1)], "each key hears of the last window of all keys"
    assert windows.batch((40, 5)) == windows.batch(says=_at_end(2)) == [], "where it goes on itself, too"


def test_windows_stay_open_without_the_setting_and_at_another_barrier(run: RunSpec) -> None:
    assert Windows(run, 1, "false").batch((10, 1), says=_at_end(1)) == []
    other = Windows(run, 1)
    assert other.batch((10, 1), says=(*_at_end(1, "b"), ev.Watermark(end_stream("a"), 7, 1))) == []
    assert other.manifests[0].watermarks_us[ev.NO_STREAM] == 0


def test_windows_behind_an_operator_that_rows_wait_in_stay_open(run: RunSpec) -> None:
    windows = Windows(run, 1)
    windows.spec = replace(windows.spec, behind_waiting=True)
    assert windows.batch((10, 1), says=_at_end(1)) == []
    assert sum(m.keys for m in windows.manifests.values()) == 1


def test_the_end_of_the_input_is_passed_on_as_it_is_by_an_operator_whose_rows_come_out_later(run: RunSpec) -> None:
    spec = _spec(run)
    spec.function.output_delay_ms = 2
    subtask = Subtask(spec)
    subtask.batch((1, 9_000), says=(ev.Watermark(end_stream("a"), 7, 1), *_idle("a", 1)))
    said = [
        e for e in (ev.decode(b) for kind, _, b in subtask.call.out if kind == EVENT) if isinstance(e, ev.Watermark)
    ]
    assert {e.stream: e.micros for e in said if e.stream != ev.NO_STREAM} == {
        "t#1": 7_000,
        end_stream("a"): 7,
        idle_stream("a"): 1,
    }
