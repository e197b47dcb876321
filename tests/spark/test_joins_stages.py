"""Joins of two streams where no Spark is needed: pack stage and subtask against Spark's rules in plain Python.

Any cut of the rows into tasks and batches, with flushes in between, gives what a loop over the rows gives.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from spark_ckpt.runtime.join_side import TIME, JoinSide
from spark_ckpt.runtime.operator._subtask_call import DATA, SubtaskCall
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec, WatermarkSpec
from spark_ckpt.state.ipc import from_bytes, nullable_schema
from spark_ckpt.state.joins import _pairs as pairs
from spark_ckpt.state.joins.function import MAY_MATCH, RIGHT, Output, StreamJoin
from spark_ckpt.state.joins.predicate import Both, Compared
from spark_ckpt.state.joins.sides import Expiry, Side
from spark_ckpt.types import CTL, EVENT_TIME, KEY_HASH, TAG, make_tag
from tests.how_many import some

US = pa.timestamp("us", "UTC")
ROWS = pa.schema(
    [("id", pa.int64()), ("k", pa.float64()), ("t", US), ("earlier", US), ("later", US), ("ok", pa.bool_())]
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DELAY_US = 1_000
NAN = float("nan")
BEFORE_US, AFTER_US = 2_500, 3_000
"""Right rows match left ones from so much before them to so much after."""
KINDS = ("inner", "left", "right", "full", "left_semi")
MODES = ("no watermark", "range", "time key")


@dataclass
class Row:
    """``ok``: what its side's own condition says of it."""

    number: int
    right: bool
    k: float | None
    t: int | None
    ok: bool
    matched: bool = False

    @property
    def key(self) -> Any:
        return "NaN" if self.k is not None and self.k != self.k else self.k


@dataclass
class Spark:
    """What ``StreamingSymmetricHashJoinExec`` does, batch by batch."""

    how: str
    mode: str
    null_safe: bool = False
    state: list[Row] = field(default_factory=list)
    highest: dict[bool, int] = field(default_factory=dict)
    watermark: int = 0
    late: int = 0

    def outer(self, right: bool) -> bool:
        return self.how in (("right", "full") if right else ("left", "full"))

    def batch(self, rows: list[Row]) -> Counter[Any]:
        out: list[Any] = []
        rows = [row for row in rows if self.outer(row.right) or self.known(row)]
        for row in sorted((r for r in rows if not self.is_late(r)), key=lambda r: r.right):
            if not row.ok:
                out += [self.alone(row)] if self.outer(row.right) else []
                continue
            for other in self.state:
                if other.right != row.right and self.match(*((other, row) if row.right else (row, other))):
                    left, right = (other, row) if row.right else (row, other)
                    if self.how != "left_semi":
                        out.append((left.number, right.number))
                    elif not left.matched:
                        out.append((left.number, None))
                    row.matched = other.matched = True
            self.state.append(row)
        if self.mode != "no watermark":
            for row in [r for r in self.state if self.over(r)]:
                self.state.remove(row)
                out += [self.alone(row)] if self.outer(row.right) and not row.matched else []
            self.advance(rows)
        if self.how == "left_semi":
            self.state = [r for r in self.state if r.right or not r.matched]
        return Counter(out)

    def alone(self, row: Row) -> Any:
        return (None, row.number) if row.right else (row.number, None)

    def known(self, row: Row) -> bool:
        return self.null_safe or (row.k is not None and (self.mode != "time key" or row.t is not None))

    def is_late(self, row: Row) -> bool:
        return self.mode != "no watermark" and row.t is not None and row.t <= self.late

    def match(self, left: Row, right: Row) -> bool:
        if left.key != right.key or not (self.known(left) and self.known(right)):
            return False
        if self.mode != "range":
            return self.mode == "no watermark" or left.t == right.t
        return None not in (left.t, right.t) and left.t - BEFORE_US <= right.t <= left.t + AFTER_US  # type: ignore

    def over(self, row: Row) -> bool:
        shift = {"time key": 0, "range": -(BEFORE_US // 1000 + 2) if row.right else -(AFTER_US // 1000 + 1)}[self.mode]
        return row.t is not None and row.t <= self.watermark + shift * 1000

    def advance(self, rows: list[Row]) -> None:
        self.late = self.watermark
        for row in rows:
            if row.t is not None:
                self.highest[row.right] = max(self.highest.get(row.right, row.t), row.t)
        if len(self.highest) == 2:
            self.watermark = max(0, min(h // 1000 * 1000 - DELAY_US for h in self.highest.values()) // 1000 * 1000)


def function(how: str, mode: str, null_safe: bool) -> StreamJoin:
    names = ["k", "t"] if mode == "time key" else ["k"]
    keys = pa.schema([ROWS.field(n) for n in names])
    kept = pa.schema([ROWS.field(n) for n in ("id", *(() if "t" in names else ("t",)), "earlier", "later")])
    shifts = {"range": (-(AFTER_US // 1000 + 1), -(BEFORE_US // 1000 + 2)), "time key": (0, 0)}.get(mode)
    sides = tuple(
        Side(kept, tuple(f"_{n}" for n in kept.names), how in outer, shifts and Expiry("t", shifts[i]))
        for i, outer in enumerate((("left", "full"), ("right", "full")))
    )
    output = (Output(pa.field("l", pa.int64()), "id"), Output(pa.field("r", pa.int64()), None, "id"))
    time = "t"
    condition = Both(Compared("<=", "earlier", time), Compared(">=", "later", time)) if mode == "range" else None
    safe = tuple(null_safe for _ in names)
    return StreamJoin(how, keys, sides, output, condition, safe, mode != "no watermark")  # type: ignore[arg-type]


class Subtask:
    """One subtask of the operator, called batch by batch as Spark would."""

    def __init__(self, folder: str, how: str, mode: str, null_safe: bool) -> None:
        config = JobConfig.from_options({"dir": folder, "interval": "1h", "cache.dir": f"{folder}/cache"})
        self.function = f = function(how, mode, null_safe)
        tables = {"op": {}, "op.left": {}, "op.right": {}}
        run = RunSpec("job", config, 1, 1, 1, None, None, Topology(1, 1, ("in",), tables, ("out",)), 1)  # type: ignore
        kept = f.sides[0].columns
        flags = [pa.field(RIGHT, pa.bool_()), pa.field(MAY_MATCH, pa.bool_())]
        rows = pa.schema([*f.key_schema, *flags, *(pa.field(f"_{c.name}", c.type) for c in kept)])
        late = [pa.field(EVENT_TIME, pa.int64())] if mode != "no watermark" else []
        marks = tuple(WatermarkSpec(n, f"t#{n}", TIME, DELAY_US) for n in (1, 2)) if late else ()
        names = tuple(m.name for m in marks)
        schema, time = pa.schema([*rows, (KEY_HASH, pa.int64()), *late]), TIME if late else None
        self.spec = OperatorSpec(run, "op", 1, f, schema, names, marks, event_time=time)
        full = pa.schema([*rows, (TIME, US), (TAG, pa.int64()), (CTL, pa.binary())])
        columns = {**{n: n for n in f.key_schema.names}, **{f"_{n}": n for n in kept.names}, MAY_MATCH: "ok", TIME: "t"}
        columns |= {TAG: TAG, CTL: CTL}
        needed = () if null_safe else tuple(f.key_schema.names)
        self.sides = [JoinSide(full, i == 1, columns, () if s.outer else needed) for i, s in enumerate(f.sides)]
        self.stored: Any = None
        self.batches = 0

    def batch(self, tasks: list[list[Row]], flush: bool = False) -> Counter[Any]:
        self.batches += 1
        call = SubtaskCall(self.spec, 0, self.stored, 0, self.batches)
        for task in tasks:
            for right in (False, True):
                rows = [self._rows([r for r in task if r.right == right], right), self._tick()]
                for packed in PackStage(self.spec, hashes=True)(self.sides[right](iter(rows))):
                    for row in packed.to_pylist():
                        call.take(row["head"], row["body"])
        call.run()
        if flush:
            assert call._flush(self.batches)
        self.stored = call.sealed()
        self.keys = call.states[""].keyed.keys
        self.waiting = [call.states[family].keyed.keys for family in ("left", "right")]
        schema = nullable_schema(self.function.output_schema)
        tables = [from_bytes(pa.py_buffer(b), schema) for kind, _, b in call.out if kind == DATA]
        return Counter((row["l"], row["r"]) for table in tables for row in table.to_pylist())

    def _rows(self, rows: list[Row], right: bool) -> pa.RecordBatch:
        def time(t: int | None, by: int = 0) -> Any:
            return None if t is None else EPOCH + timedelta(microseconds=t + by)

        columns = [
            [r.number for r in rows], [r.k for r in rows], [time(r.t) for r in rows],
            [time(r.t, -BEFORE_US) for r in rows], [time(r.t, AFTER_US) for r in rows], [r.ok for r in rows],
        ]  # fmt: skip
        arrays = [pa.array(c, f.type) for c, f in zip(columns, ROWS, strict=True)]
        tags = pa.repeat(pa.scalar(make_tag(1) | (1 + right), pa.int64()), len(rows))
        return pa.record_batch([*arrays, tags, pa.nulls(len(rows), pa.binary())], names=[*ROWS.names, TAG, CTL])

    def _tick(self) -> pa.RecordBatch:
        control = pa.array([ev.encode(ev.Watermark(ev.NO_STREAM, 0, 1))], pa.binary())
        nulls = [pa.nulls(1, f.type) for f in ROWS]
        return pa.record_batch([*nulls, pa.nulls(1, pa.int64()), control], names=[*ROWS.names, TAG, CTL])


@contextmanager
def both(how: str, mode: str, null_safe: bool = False) -> Iterator[tuple[Subtask, Spark]]:
    with tempfile.TemporaryDirectory() as folder:
        yield Subtask(str(Path(folder) / "jobs"), how, mode, null_safe), Spark(how, mode, null_safe)


KEYS = st.sampled_from([None, 0.0, -0.0, NAN, 1.0])
TIMES = st.none() | st.sampled_from([-1_000, 0, 1, 999, 1_000, 1_001, 4_000]) | st.integers(0, 12_000)
ROW = st.tuples(st.booleans(), KEYS, TIMES, st.sampled_from([True, True, True, False]))
HISTORY = st.lists(
    st.tuples(st.lists(st.lists(ROW, max_size=7), min_size=1, max_size=2), st.booleans()), min_size=1, max_size=7
)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("null_safe", [False, True])
def test_pairs_rows_alone_and_rows_that_wait_are_those_of_spark(how: str, mode: str, null_safe: bool) -> None:
    chance = random.Random(f"{how} {mode}")
    history = [(_rows(chance, batch), chance.random() < 0.3) for batch in range(10)]
    play(how, mode, history, null_safe, chance.choice([1, 5, 1000]))


def _rows(chance: random.Random, batch: int) -> list[list[tuple[Any, ...]]]:
    """Of two tasks; the time goes on by some milliseconds a batch."""
    times = [None, *(2_000 * batch + by for by in (-9_000, -3_000, -2_500, -1_999, -1_000, 0, 0, 1, 999, 1_000))]
    return [
        [
            (
                chance.random() < 0.5,
                chance.choice([None, 0.0, -0.0, NAN, 1.0]),
                chance.choice(times),
                chance.random() < 0.8,
            )
            for _ in range(chance.choice([0, 3, 9]))
        ]
        for _ in range(2)
    ]


@pytest.mark.soak
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=some(75), deadline=None)
@given(HISTORY, st.booleans(), st.sampled_from([1, 3, 1000]))
def test_many_histories(how: str, mode: str, history: Any, null_safe: bool, piece: int) -> None:
    play(how, mode, history, null_safe, piece)


def play(how: str, mode: str, history: Any, null_safe: bool, piece: int) -> None:
    """``piece``: so many candidate pairs at a time."""
    with both(how, mode, null_safe) as (ours, spark), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "PIECE", piece)
        number = 0
        for tasks, flush in history:
            numbered = [[Row(number + 10 * n + i, *row) for i, row in enumerate(rows)] for n, rows in enumerate(tasks)]
            number += 100
            assert ours.batch(numbered, flush) == spark.batch([row for task in numbered for row in task])
            waiting = [[r for r in spark.state if r.right == right] for right in (False, True)]
            assert ours.waiting == [len(rows) for rows in waiting]
            keys = {(r.key, r.t if mode == "time key" else None) for rows in waiting for r in rows}
            assert ours.keys == len(keys), "a key is forgotten with its last row"
