"""De-duplication where no Spark is needed: pack stage and subtask against Spark's rules in plain Python.

Any cut of the rows into tasks and batches, with flushes in between, gives what a loop over the rows gives.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import Topology
from spark_ckpt.runtime.operator._subtask_call import DATA, SubtaskCall
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec, WatermarkSpec
from spark_ckpt.state.functions.distinct_rows import DistinctRows, Expiry
from spark_ckpt.state.ipc import from_bytes, nullable_schema
from spark_ckpt.types import CTL, EVENT_TIME, KEY_HASH, TAG, make_tag
from tests.how_many import some

ROWS = pa.schema([("id", pa.int64()), ("k", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DELAY_US = 2_000
WITHIN = {"within watermark": DELAY_US, "within no delay": 0}

Row = tuple[int, float | None, int | None]
"""Number, key, event time in microseconds."""

MODES = ("no watermark", "key without time", "key with time", *WITHIN)


def function(mode: str) -> DistinctRows:
    names = ["k", "t"] if mode == "key with time" else ["k"]
    expiry = Expiry("t", WITHIN.get(mode)) if mode in ("key with time", *WITHIN) else None
    key = pa.schema([ROWS.field(n) for n in names])
    return DistinctRows("dropDuplicates", key, ROWS, mode != "no watermark", expiry)


class Spark:
    """What ``StreamingDeduplicateExec`` and ``StreamingDeduplicateWithinWatermarkExec`` do, batch by batch."""

    def __init__(self, mode: str) -> None:
        self.mode, self.delay_us = mode, WITHIN.get(mode, DELAY_US)
        self.until: dict[Any, int | None] = {}
        self.highest: int | None = None
        self.watermark = self.late = 0

    def batch(self, rows: list[Row]) -> list[int]:
        came = [row[0] for row in rows if not self._is_late(row) and self._is_new(row)]
        if self.mode != "no watermark":
            self.until = {k: u for k, u in self.until.items() if u is None or u > self.watermark}
            self.late = self.watermark
            known = [t for _, _, t in rows if t is not None] + ([] if self.highest is None else [self.highest])
            self.highest = max(known, default=None)
            if self.highest is not None:
                self.watermark = max(0, (self.highest // 1000 * 1000 - self.delay_us) // 1000 * 1000)
        return came

    def _is_late(self, row: Row) -> bool:
        return self.mode != "no watermark" and row[2] is not None and row[2] <= self.late

    def _is_new(self, row: Row) -> bool:
        _, k, t = row
        value = "NaN" if k is not None and k != k else k
        key = (value, t) if self.mode == "key with time" else value
        if key in self.until:
            return False
        self.until[key] = {"key with time": t, "no watermark": None, "key without time": None}.get(
            self.mode, (t or 0) + self.delay_us
        )
        return True


class Subtask:
    """One subtask of the operator, called batch by batch as Spark would."""

    def __init__(self, folder: str, mode: str) -> None:
        config = JobConfig.from_options({"dir": folder, "interval": "1h", "cache.dir": f"{folder}/cache"})
        run = RunSpec("job", config, 1, 1, 1, None, None, Topology(1, 1, ("in",), {"op": {}}, ("out",)), 1)
        self.function = function(mode)
        late = [pa.field(EVENT_TIME, pa.int64())] if mode != "no watermark" else []
        marks = (WatermarkSpec(1, "t#1", "t", WITHIN.get(mode, DELAY_US)),) if late else ()
        schema = pa.schema([*ROWS, pa.field(KEY_HASH, pa.int64()), *late])
        names, time = tuple(m.name for m in marks), "t" if late else None
        self.spec = OperatorSpec(run, "op", 1, self.function, schema, names, marks, event_time=time)
        self.stored: Any = None
        self.batches = 0

    def batch(self, tasks: list[list[Row]], flush: bool = False) -> list[int]:
        self.batches += 1
        call = SubtaskCall(self.spec, 0, self.stored, 0, self.batches)
        for rows in tasks:
            for packed in PackStage(self.spec, hashes=True)(iter([self._rows(rows), self._tick()])):
                for row in packed.to_pylist():
                    call.take(row["head"], row["body"])
        call.run()
        if flush:
            assert call._flush(self.batches)
        self.stored = call.sealed()
        self.keys = call.states[""].keyed.keys
        tables = [from_bytes(pa.py_buffer(b), nullable_schema(ROWS)) for kind, _, b in call.out if kind == DATA]
        return [n for table in tables for n in table.column("id").to_pylist()]

    def _rows(self, rows: list[Row]) -> pa.RecordBatch:
        times = [None if t is None else EPOCH + timedelta(microseconds=t) for _, _, t in rows]
        columns = [[n for n, _, _ in rows], [k for _, k, _ in rows], times]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, ROWS, strict=True)]
        tags = pa.repeat(pa.scalar(make_tag(1) | 1, pa.int64()), len(rows))
        return pa.record_batch([*arrays, tags, pa.nulls(len(rows), pa.binary())], names=[*ROWS.names, TAG, CTL])

    def _tick(self) -> pa.RecordBatch:
        control = pa.array([ev.encode(ev.Watermark(ev.NO_STREAM, 0, 1))], pa.binary())
        nulls = [pa.nulls(1, f.type) for f in ROWS]
        return pa.record_batch([*nulls, pa.nulls(1, pa.int64()), control], names=[*ROWS.names, TAG, CTL])


@contextmanager
def both(mode: str) -> Iterator[tuple[Subtask, Spark]]:
    with tempfile.TemporaryDirectory() as folder:
        yield Subtask(str(Path(folder) / "jobs"), mode), Spark(mode)


KEYS = st.sampled_from([None, 0.0, -0.0, float("nan"), 1.0, 2.0])
TIMES = st.none() | st.sampled_from([-1_000, -1, 0, 1, 999, 1_000, 1_001, 4_000]) | st.integers(0, 12_000)
HISTORY = st.lists(
    st.tuples(st.lists(st.lists(st.tuples(KEYS, TIMES), max_size=6), min_size=1, max_size=3), st.booleans()),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=some(20), deadline=None)
@given(HISTORY)
def test_rows_that_come_out_and_keys_that_stay_are_those_of_spark(mode: str, history: Any) -> None:
    with both(mode) as (ours, spark):
        number = 0
        for tasks, flush in history:
            numbered: list[list[Row]] = []
            for rows in tasks:
                numbered.append([(number + i, k, t) for i, (k, t) in enumerate(rows)])
                number += len(rows)
            assert ours.batch(numbered, flush) == spark.batch([row for task in numbered for row in task])
            assert ours.keys == len(spark.until)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_cannot_come_out_are_not_shuffled(mode: str) -> None:
    rows: list[Row] = [(i, float(i % 7), 5_000 + i % 3) for i in range(1000)]
    with both(mode) as (ours, spark):
        packed = pa.Table.from_batches(PackStage(ours.spec, hashes=True)(iter([ours._rows(rows)])))
        call = SubtaskCall(ours.spec, 0, None, 0)
        for row in packed.to_pylist():
            call.take(row["head"], row["body"])
        call._open_envelopes()
        sent = sum(b.num_rows for batches in call.rows.values() for b in batches)
        # Of seven keys with three times each, those that are later than all in front of them.
        assert sent <= (7 if mode == "no watermark" else 21)
        assert ours.batch([rows]) == spark.batch(rows)


def test_a_late_row_does_not_stand_in_front_of_one_that_is_not() -> None:
    with both("key without time") as (ours, spark):
        for rows in ([(0, 9.0, 8_000)], [(1, 9.0, 8_000)], [(2, 1.0, 5_000), (3, 1.0, 5_500), (4, 1.0, 7_000)] * 50):
            found = ours.batch([rows])
            assert found == spark.batch(rows)
        assert found == [4]


def test_zeros_keep_their_sign_and_rows_their_columns() -> None:
    with both("no watermark") as (ours, _):
        call = SubtaskCall(ours.spec, 0, None, 0)
        for packed in PackStage(ours.spec, hashes=True)(iter([ours._rows([(1, -0.0, None), (2, 0.0, 3)])])):
            for row in packed.to_pylist():
                call.take(row["head"], row["body"])
        call.run()
        (body,) = [b for kind, _, b in call.out if kind == DATA]
        assert repr(from_bytes(pa.py_buffer(body), nullable_schema(ROWS)).to_pylist()) == (
            "[{'id': 1, 'k': -0.0, 't': None}]"
        )
