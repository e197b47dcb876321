"""An operator's task that cannot write its state: the checkpoint is declined, and the state goes on. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from spark_ckpt import agg
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import Topology
from spark_ckpt.runtime.operator._subtask_call import DATA, EVENT, SubtaskCall
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.ipc import from_bytes, nullable_schema
from spark_ckpt.storage import filesystem
from spark_ckpt.types import CTL, KEY_HASH, TAG, make_tag

INPUT = pa.schema([("k", pa.int64()), ("v", pa.int64())])
GROUPS = 4


class Operator:
    """One subtask of a sum by key, batch after batch."""

    def __init__(self, folder: Path, **settings: str) -> None:
        options = {"dir": str(folder), "cache.dir": str(folder / "cache"), "retry.timeout": "0", **settings}
        run = RunSpec(
            "job", JobConfig.from_options(options), 4, 1, 1, None,
            None, Topology(GROUPS, GROUPS, ("in",), {"sums": {}}, ("out",)), 1,
        )  # fmt: skip
        function = AggregateFunction(INPUT.remove(1), INPUT, {"s": agg.sum("v")}, emit="rows")
        schema = INPUT.append(pa.field(KEY_HASH, pa.int64()))
        self.spec = OperatorSpec(run, "sums", 1, function, schema, (), ())
        self.stored: Any = None
        self.epoch, self.batch = 1, 0
        self.declines: list[ev.Decline] = []
        self.acks = 0

    def send(self, *keys: int, barrier: bool = False, adopt: ev.Restore | None = None) -> SubtaskCall:
        """A batch with a row of 1 for each key, and perhaps a barrier behind them."""
        events = [ev.encode(ev.Barrier(self.epoch, GROUPS, 5))] if barrier else []
        events += [ev.encode(adopt)] if adopt else []
        batches = [_batch(list(keys), self.epoch, None)]
        batches += [_batch([None], self.epoch, event) for event in events]
        call = SubtaskCall(self.spec, 0, self.stored, 1_000, self.batch)
        for packed in PackStage(self.spec, True)(iter(batches)):
            for row in packed.to_pylist():
                call.take(row["head"], row["body"])
        call.run()
        self.stored = call.sealed()
        self.batch += 1
        self.epoch += barrier
        self.said = [ev.decode(body) for kind, _, body in call.out if kind == EVENT]
        self.declines += [e for e in self.said if isinstance(e, ev.Decline)]
        self.acks += len(self.acknowledged())
        return call

    def acknowledged(self) -> list[ev.OperatorAck]:
        return [e for e in self.said if isinstance(e, ev.OperatorAck)]

    def block(self) -> Path:
        """Nothing can be written into the state table's folder any more, not even by root."""
        folder = Path(self.spec.table_url)
        folder.mkdir(parents=True, exist_ok=True)
        blocked = folder / ".tmp"
        if blocked.is_dir():
            blocked.rmdir()
        blocked.touch()
        return blocked


def _batch(keys: list[Any], epoch: int, event: bytes | None) -> pa.RecordBatch:
    n = len(keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int64()),
            pa.array([None if k is None else 1 for k in keys], pa.int64()),
            pa.array([make_tag(epoch)] * n, pa.int64()),
            pa.array([event] * n, pa.binary()),
        ],
        names=["k", "v", TAG, CTL],
    )


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    TaskContext._getOrCreate()._partitionId = 0
    yield
    TaskContext._setTaskContext(None)


def emitted(call: SubtaskCall) -> list[tuple[int, int]]:
    schema = nullable_schema(call.spec.function.output_schema)
    rows = [from_bytes(body, schema).to_pylist() for kind, _, body in call.out if kind == DATA]
    return [(row["k"], row["s"]) for batch in rows for row in batch]


def test_a_checkpoint_whose_state_cannot_be_written_is_declined_and_the_next_one_has_it_all(tmp_path: Path) -> None:
    good, bad = Operator(tmp_path / "good"), Operator(tmp_path / "bad")
    for operator in (good, bad):
        operator.send(1, 2, 2, barrier=True)
    blocked = bad.block()
    for operator in (good, bad):
        operator.send(2, 3, barrier=True)
    (decline,) = bad.declines
    assert decline.failed
    assert decline.checkpoint == 2
    assert re.search("key groups 0 to 3 were not written: Cannot write .*NotADirectoryError", decline.reason)
    assert ev.Cancel(2) in bad.said, "whoever waits for its barriers stops waiting"
    assert (bad.acks, good.acks) == (1, 2)
    assert not any(isinstance(e, ev.Flushed) for e in bad.said), "nothing is announced that is not durable"
    blocked.unlink()
    out = [emitted(operator.send(1, 2, 3, 4, barrier=True)) for operator in (good, bad)]
    assert out[0] == out[1]
    assert bad.acks == 2
    flushed = [e for e in bad.said if isinstance(e, ev.Flushed)]
    assert {e.epoch for e in flushed} == {3}


def test_state_goes_on_in_the_memtable_while_nothing_can_be_written(tmp_path: Path) -> None:
    good, bad = (
        Operator(tmp_path / "good", **{"memtable.maxBytes": "1"}),
        Operator(tmp_path / "bad", **{"memtable.maxBytes": "1"}),
    )
    bad.block()
    for keys in ([1, 1, 2], [2, 3], [1, 3]):
        out = [emitted(operator.send(*keys)) for operator in (good, bad)]
        assert out[0] == out[1]
    assert not bad.declines, "no checkpoint is concerned"
    assert list(Path(bad.spec.table_url).glob("*.parquet")) == []
    assert len(list(Path(good.spec.table_url).glob("*.parquet"))) == 3


def test_what_may_pass_is_tried_again_before_a_checkpoint_is_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = filesystem.sync_file, [0]

    def third_fails(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] <= 2:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(filesystem, "sync_file", third_fails)
    operator = Operator(tmp_path, **{"retry.timeout": "10s", "retry.firstPause": "1ms"})
    operator.send(1, barrier=True)
    assert (operator.acks, operator.declines) == (1, [])
    assert calls[0] == 3


def test_a_replay_that_adopts_needs_no_write(tmp_path: Path) -> None:
    """Its checkpoint is complete: it must not be declined, whatever storage says."""
    operator = Operator(tmp_path)
    operator.send(1)
    before = operator.stored, operator.batch, operator.epoch
    operator.send(2, barrier=True)
    (ack,) = operator.acknowledged()
    operator.stored, operator.batch, operator.epoch = before
    operator.block()
    operator.send(2, barrier=True, adopt=ev.Restore("sums", 1, ack.groups, adopt=True))
    assert not operator.declines
    assert [again.groups for again in operator.acknowledged()] == [ack.groups]
    assert sorted(emitted(operator.send(1, 2, 3))) == [(1, 2), (2, 2), (3, 1)]


def test_damage_is_not_taken_for_storage_that_fails(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.send(1, barrier=True)
    for file in Path(operator.spec.table_url).glob("*.parquet"):
        file.write_bytes(b"damaged")
    operator = replace_cache(operator, tmp_path)
    with pytest.raises(CorruptStorageError):
        operator.send(1, barrier=True)


def replace_cache(operator: Operator, tmp_path: Path) -> Operator:
    run = operator.spec.run
    config = replace(run.config, cache_dir=str(tmp_path / "elsewhere"))
    operator.spec = replace(operator.spec, run=replace(run, config=config))
    return operator
