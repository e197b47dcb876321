"""The pack stage by itself: what it makes of a task's batches, without a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt import agg
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol.records import Topology
from spark_ckpt.runtime.operator import pack
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.envelope import unpack
from spark_ckpt.types import CTL, KEY_HASH, TAG, make_tag

KEYS, EPOCHS = 7, (3, 4)
INPUT = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def stage(tmp_path: Path) -> PackStage:
    run = RunSpec(
        "job", JobConfig.from_options({"dir": str(tmp_path)}), 1, 1, 1, None, None,
        Topology(128, 128, ("in",), {"sums": {}}, ("out",)), 2,
    )  # fmt: skip
    function = AggregateFunction(INPUT.remove(1), INPUT, {"n": agg.count(), "total": agg.sum("v")})
    return PackStage(OperatorSpec(run, "sums", 1, function, INPUT.append(pa.field(KEY_HASH, pa.int64())), (), ()), True)


def batches() -> Iterator[pa.RecordBatch]:
    """Rows of both epochs, the first one's in front."""
    for epoch in EPOCHS:
        for start in range(0, 500, 100):
            v = pa.array(np.arange(start, start + 100) + epoch)
            k = pa.array(v.to_numpy() % KEYS)
            tags = pa.repeat(pa.scalar(make_tag(epoch), pa.int64()), 100)
            yield pa.RecordBatch.from_arrays([k, v, tags, pa.nulls(100, pa.binary())], names=["k", "v", TAG, CTL])


def envelopes(stage: PackStage) -> list[tuple[int, int, dict[int, tuple[int, int]]]]:
    """(subtask, epoch, key -> count and sum) of each segment that leaves the stage."""
    found = []
    for packed in stage(batches()):
        for row in packed.to_pylist():
            for epoch, rows in unpack(row["head"], row["body"], stage.spec.packed_schema).segments:
                values = {r["k"]: (r["n"], r["total"]) for r in rows.to_pylist()}
                assert len(values) == rows.num_rows, "a key came twice in one segment"
                found.append((stage.spec.run.subtasks.subtask_of_route[row["route"]], epoch, values))
    return found


@pytest.mark.parametrize("combine_bytes", [pack._COMBINE_BYTES, 5000, 1])
def test_a_task_combined_in_portions_sends_each_key_once_an_epoch(
    stage: PackStage, monkeypatch: pytest.MonkeyPatch, combine_bytes: int
) -> None:
    monkeypatch.setattr(pack, "_COMBINE_BYTES", combine_bytes)
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for _, epoch, values in envelopes(stage):
        for key, value in values.items():
            assert (epoch, key) not in sums, "a key came in two subtasks or segments of its epoch"
            sums[epoch, key] = value
    for epoch in EPOCHS:
        rows = np.arange(500) + epoch
        assert {k: v for (e, k), v in sums.items() if e == epoch} == {
            k: (int((rows % KEYS == k).sum()), int(rows[rows % KEYS == k].sum())) for k in range(KEYS)
        }


def test_a_task_with_more_than_fits_sends_several_envelopes(stage: PackStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_COMBINE_BYTES", 1)
    monkeypatch.setattr(pack, "_FLUSH_BYTES", 1)
    found = envelopes(stage)
    assert len({subtask for subtask, _, _ in found}) == 2
    assert len(found) > 4
    assert sum(n for _, _, values in found for n, _ in values.values()) == 500 * len(EPOCHS)
    order = [epoch for subtask, epoch, _ in found if subtask == 0]
    assert order == sorted(order), "an earlier epoch's rows came behind a later one's"
