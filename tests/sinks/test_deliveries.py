"""Rows for functions of the user's process: committed like any sink's, delivered in order, again after a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.errors import CkptError
from spark_ckpt.sinks.deliveries import SPARK_SCHEMA, Deliveries, DeliverySink, read_rows
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.testing.sink_conformance import SinkConformance, SinkTarget
from spark_ckpt.testing.sink_harness import JOB, SINK, SimulatedCrash, context, permit, stage, stage_table, table_of
from spark_ckpt.types import CheckpointId


class DeliveryTarget(SinkTarget):
    def read(self, schema: pa.Schema) -> pa.Table:
        folder = Folder(self.options["path"])
        records = [json.loads((Path(self.options["path"]) / "ready" / n).read_text()) for n in folder.names("ready")]
        files = [name for record in records for name, _, _ in record["body"]["files"]]
        batches = [b for name in files for b in read_rows(folder, f"rows/{name}")]
        return pa.Table.from_batches([b.replace_schema_metadata(None) for b in batches], schema)

    def leftovers(self) -> list[str]:
        root, sink = Path(self.options["path"]), DeliverySink(self.options)
        ready = sink._ready_files()
        return [p.name for p in (root / "rows").glob("*") if p.name not in ready]


class TestDeliverySink(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return DeliveryTarget("foreachBatch", {"path": f"{tmp_path}/d", "schema": "{}"})


@pytest.fixture
def sink(tmp_path: Path) -> DeliverySink:
    made = DeliverySink({"path": f"{tmp_path}/d", "schema": '{"a": 1}'})
    made.validate(table_of([]).schema)
    return made


def deliveries(sink: DeliverySink) -> Deliveries:
    """As another start of the job makes it."""
    return Deliveries(sink.options["path"], {}, JOB, SINK)


def rows(found: Deliveries, checkpoint: int) -> list[Any]:
    folder = Folder(found.url)
    return [r for f in found.files(checkpoint) for b in read_rows(folder, f.path) for r in b.to_pylist()]


def commit(sink: DeliverySink, checkpoint: int, oldest: int | None = None) -> None:
    sink.commit(permit(checkpoint, oldest=oldest), stage(sink, [(checkpoint, "v")], checkpoint, checkpoint))


def files_of(sink: DeliverySink, folder: str = "rows") -> list[str]:
    return Folder(sink.options["path"]).names(folder)


def test_committed_checkpoints_wait_in_order_with_their_rows_and_sparks_schema(sink: DeliverySink) -> None:
    for k in (2, 10, 11):
        commit(sink, k)
    found = deliveries(sink)
    assert found.waiting() == [2, 10, 11]
    assert rows(found, 10) == [{"k": 10, "v": "v"}]
    assert found.schema(found.files(2)[0]).metadata == {SPARK_SCHEMA: b'{"a": 1}'}


def test_what_is_staged_waits_for_nobody_until_it_is_committed(sink: DeliverySink) -> None:
    stage(sink, [(1, "a")])
    assert deliveries(sink).waiting() == []


def test_what_was_delivered_is_not_delivered_again_and_its_rows_are_gone(sink: DeliverySink) -> None:
    for k in (1, 2):
        commit(sink, k)
    found = deliveries(sink)
    found.delivered(1)
    assert found.waiting() == deliveries(sink).waiting() == [2]
    assert len(files_of(sink)) == 1


@pytest.mark.parametrize(("place", "again"), [("before delivered", [1, 2]), ("before rows are removed", [2])])
def test_a_crash_around_the_record_of_a_delivery(sink: DeliverySink, place: str, again: list[int]) -> None:
    for k in (1, 2):
        commit(sink, k)
    found = deliveries(sink)

    def stop(step: str) -> None:
        if step == place:
            raise SimulatedCrash

    found.on_step = stop
    found.waiting()
    with pytest.raises(SimulatedCrash):
        found.delivered(1)
    after = deliveries(sink)
    assert after.waiting() == again
    assert [rows(after, k) for k in again] == [[{"k": k, "v": "v"}] for k in again]
    assert len(files_of(sink)) == len(again)  # the start removed what a crash left


def test_a_commit_that_is_done_again_after_the_delivery_changes_nothing(sink: DeliverySink) -> None:
    staged = stage(sink, [(1, "a")])
    sink.commit(permit(1), staged)
    deliveries(sink).delivered(1)
    sink.commit(permit(1), staged)
    assert deliveries(sink).waiting() == []
    with pytest.raises(CkptError, match="other contents"):
        sink.commit(permit(1), stage(sink, [(2, "b")]))


def test_what_is_remembered_of_deliveries_is_bounded_and_a_halted_driver_delivers_nothing_twice(
    sink: DeliverySink,
) -> None:
    found, staged = deliveries(sink), {}
    for k in range(1, 30):
        staged[k] = stage(sink, [(k, "v")], k, k)
        sink.commit(permit(k, oldest=max(1, k - 3)), staged[k])
        assert found.waiting() == [k]
        found.delivered(k)
    assert len(files_of(sink, "ready")) == len(files_of(sink, "delivered")) == 4
    with pytest.raises(CkptError, match="missing"):
        sink.commit(permit(2, oldest=1), staged[2])
    assert deliveries(sink).waiting() == []


def test_gc_keeps_what_waits_and_forgets_only_what_was_delivered(sink: DeliverySink) -> None:
    for k in (1, 2, 3):
        commit(sink, k)
    deliveries(sink).delivered(1)
    stage(sink, [(9, "nobody commits it")], 9, 9)
    assert len(sink.gc(JOB, [])) == 1
    assert len(sink.forget(JOB, CheckpointId(3))) == 1
    assert deliveries(sink).waiting() == [2, 3]


def test_functions_of_one_job_and_jobs_of_one_folder_have_their_own(sink: DeliverySink) -> None:
    for name, value in ((SINK, 1), ("other", 2)):
        staged = stage_table(sink, context(1, 1, sink=name), table_of([(value, name)]))
        sink.commit(permit(1), staged)
    other = Deliveries(sink.options["path"], {}, JOB, "other")
    other.delivered(1)
    assert deliveries(sink).waiting() == [1]
    assert rows(deliveries(sink), 1) == [{"k": 1, "v": SINK}]
    assert Deliveries(sink.options["path"], {}, "another job", SINK).waiting() == []


def test_columns_of_every_kind_are_kept_as_they_are(sink: DeliverySink) -> None:
    schema = pa.schema(
        [
            pa.field("d", pa.duration("us")),
            pa.field("n", pa.null()),
            pa.field("ntz", pa.timestamp("us")),
            pa.field("tz", pa.timestamp("us", "UTC")),
            pa.field("m", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.decimal128(38, 18))])))),
            pa.field("b", pa.binary(), metadata={"variant": "true"}),
        ]
    )
    some = {"d": 5, "n": None, "ntz": 1, "tz": -1, "m": [("a", [{"x": 1}, None])], "b": b"\0"}
    table = pa.Table.from_pylist([some, dict.fromkeys(schema.names)], schema=schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=schema), table))
    found = deliveries(sink)
    (file,) = found.files(1)
    assert found.schema(file).equals(schema.with_metadata({SPARK_SCHEMA: b'{"a": 1}'}), check_metadata=True)
    assert rows(found, 1) == table.to_pylist()
