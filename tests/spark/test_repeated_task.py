"""What an operator's task says and writes when Spark runs it again, or twice at once. Without a Spark session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

from spark_ckpt import agg
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import Topology
from spark_ckpt.runtime.operator._subtask_call import SubtaskCall
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.snapshot import SnapshotStage
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.types import CTL, KEY_HASH, TAG, make_tag

INPUT = pa.schema([("k", pa.int64()), ("v", pa.float64())])
TASKS, GROUPS, EPOCH, NOW = 3, 12, 1, 1_000
Envelope = tuple[bytes, bytes | None]


@pytest.fixture
def spec(tmp_path: Path) -> OperatorSpec:
    run = RunSpec(
        "job", JobConfig.from_options({"dir": str(tmp_path), "cache.dir": str(tmp_path / "cache")}), 4, 1, EPOCH, None,
        None, Topology(GROUPS, GROUPS, ("in",), {"sums": {}}, ("out",)), 1,
    )  # fmt: skip
    function = AggregateFunction(INPUT.remove(1), INPUT, {"s": agg.sum("v"), "n": agg.count()}, emit="rows")
    return OperatorSpec(run, "sums", 1, function, INPUT.append(pa.field(KEY_HASH, pa.int64())), (), ())


@pytest.fixture
def task() -> Iterator[Any]:
    """Spark's context of the task that this process is in."""
    context = TaskContext._getOrCreate()
    yield context
    TaskContext._setTaskContext(None)


def envelopes(spec: OperatorSpec, task: Any, batch: int) -> list[Envelope]:
    """What the tasks in front of the shuffle send: rows whose sums depend on their order, and barrier ``EPOCH``."""
    found = []
    for number in range(TASKS):
        task._partitionId = number
        rng = np.random.default_rng([batch, number])
        rows = [rng.integers(0, 5, 20), rng.normal(size=20) * 10.0 ** rng.integers(-8, 9, 20)]
        data = [*map(pa.array, rows), pa.repeat(pa.scalar(make_tag(EPOCH), pa.int64()), 20), pa.nulls(20, pa.binary())]
        barrier = ev.encode(ev.Barrier(EPOCH, GROUPS // TASKS, 5))
        control = [pa.array([None], c.type) for c in data[:3]] + [pa.array([barrier])]
        batches = [pa.RecordBatch.from_arrays(c, names=["k", "v", TAG, CTL]) for c in (data, control)]
        for packed in PackStage(spec, True)(iter(batches[: 1 + batch])):
            found += [(row["head"], row["body"]) for row in packed.to_pylist()]
    return found


def run(spec: OperatorSpec, stored: Any, sent: Any, batch: int) -> SubtaskCall:
    call = SubtaskCall(spec, 0, stored, NOW, batch)
    for head, body in sent:
        call.take(head, body)
    call.run()
    return call


def shuffled(spec: OperatorSpec, task: Any, call: SubtaskCall) -> list[dict[str, Any]]:
    """What the operator's task sends to the next operator's, through a shuffle whose checksum Spark compares."""
    task._partitionId = 0
    kinds, epochs, bodies = zip(*call.out, strict=True)
    columns = [pa.array(kinds, pa.int32()), pa.array(epochs), pa.array(bodies, pa.binary())]
    batch = pa.RecordBatch.from_arrays(columns, names=["kind", "epoch", "body"])
    function = AggregateFunction(INPUT.remove(1), spec.function.output_schema, {"rows": agg.count()}, emit="rows")
    rows = spec.function.output_schema.append(pa.field(KEY_HASH, pa.int64()))
    behind = PackStage(OperatorSpec(spec.run, "next", 1, function, rows, (), ()), True)
    return [row for packed in behind(SnapshotStage(spec)(iter([batch]))) for row in packed.to_pylist()]


def files(spec: OperatorSpec) -> list[str]:
    return sorted(path.name for path in Path(spec.table_url).glob("*.parquet"))


def test_a_repeated_task_says_and_writes_the_same_in_whatever_order_the_shuffle_brings_its_input(
    spec: OperatorSpec, task: Any
) -> None:
    first = run(spec, None, envelopes(spec, task, 0), 0)
    stored, sent = first.sealed(), envelopes(spec, task, 1)
    said, left = [], []
    for order in itertools.permutations(sent):
        call = run(spec, stored, order, 1)
        said.append(shuffled(spec, task, call))
        left.append(call.sealed())
    assert len(said) == 6
    assert all(s == said[0] for s in said)
    assert all(s == left[0] for s in left)
    assert len(files(spec)) == 1
    assert files(spec)[0].encode() in left[0][0]


def test_attempts_that_compute_something_else_write_files_of_their_own(spec: OperatorSpec, task: Any) -> None:
    sent = envelopes(spec, task, 1)
    run(spec, None, sent, 1)
    call = run(spec, None, [*sent[1:], (sent[0][0], sent[1][1])], 1)
    assert len(files(spec)) == 2
    assert sum(name.encode() in call.sealed()[0] for name in files(spec)) == 1


def test_equal_content_of_another_batch_or_start_is_another_file(spec: OperatorSpec, task: Any) -> None:
    sent = envelopes(spec, task, 1)
    run(spec, None, sent, 1)
    run(spec, None, sent, 2)
    run(replace(spec, run=replace(spec.run, generation=5)), None, sent, 1)
    assert len(files(spec)) == 3
