"""The ``iceberg`` source: the shipped suite, and what it makes of a table's history."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import LongType
from pyspark.sql.types import StringType, StructType

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.testing.sink_harness import SCHEMA, context, permit, stage, stage_table, typed_rows
from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget
from spark_ckpt.testing.source_harness import Rows, batches
from tests.sinks.iceberg_harness import CATALOGUES, SECRET, IcebergTarget, catalog_of, catalog_options, use

ONE_FILE = {"streaming-max-files-per-micro-batch": "1"}
NO_OVERWRITES = {"streaming-skip-overwrite-snapshots": "true"}


class IcebergSourceTarget(SourceTarget):
    """A table of two columns; each :meth:`add` is a snapshot of one file with two rows."""

    def __init__(self, folder: Path, *snapshots: int, **options: str) -> None:
        self.own = catalog_options(folder)
        super().__init__("iceberg", {"table": "db.t", "discoveryInterval": "0s", **self.own, **options}, "")
        catalog_of(self.own).create_table("db.t", SCHEMA)
        self.count = 0
        for _ in snapshots:
            self.add()

    def table(self) -> Table:
        return catalog_of(self.own).load_table("db.t")

    def add(self) -> bool:
        rows = [(self.count, f"v{self.count}"), (self.count + 1, None)]
        self.table().append(pa.table([list(c) for c in zip(*rows, strict=True)], schema=SCHEMA))
        self.count += 2
        return True

    def expected(self) -> Rows:
        return [(n, None if n % 2 else f"v{n}") for n in range(self.count)]

    def keys(self, start: Any = None) -> list[int]:
        """What a new reader finds, from its own start on or another."""
        reader = self.make()
        found = batches(reader, reader.initial() if start is None else start)
        return [row[0] for r in found for row in self.rows(reader, *r)]


@pytest.fixture(autouse=True, params=CATALOGUES)
def catalogue(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything here is so with an SQL catalogue and with a REST catalogue."""
    with use(request.param):
        yield


class TestIceberg(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        target = IcebergSourceTarget(tmp_path, 1, 2, 3, **ONE_FILE)
        target.rows_a_batch = 2
        return target


@pytest.mark.soak
class TestIcebergAfterExpiry(SourceConformance):
    """Its first snapshots have expired: what they added is read as it is in the oldest that is left."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        target = IcebergSourceTarget(tmp_path, 1, 2, 3, 4, **{"streaming-max-rows-per-micro-batch": "3"})
        target.rows_a_batch = 3
        expire(target.table(), 2)
        return target


def expire(table: Table, count: int) -> None:
    ids = [s.snapshot_id for s in sorted(table.metadata.snapshots, key=lambda s: s.timestamp_ms)]
    table.maintenance.expire_snapshots().by_ids(ids[:count]).commit()


def test_what_expired_snapshots_added_is_read_as_it_is_in_the_oldest_that_is_left(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2, 3, 4, **ONE_FILE)
    expire(target.table(), 2)
    assert sorted(target.keys()) == list(range(8))


def test_a_row_limit_takes_whole_files_and_one_at_least(tmp_path: Path) -> None:
    for most, sizes in (("1", [2, 2, 2]), ("2", [2, 2, 2]), ("5", [4, 2]), ("6", [6])):
        (tmp_path / most).mkdir()
        target = IcebergSourceTarget(tmp_path / most, 1, 2, 3, **{"streaming-max-rows-per-micro-batch": most})
        reader = target.make()
        assert [len(target.rows(reader, *r)) for r in batches(reader, reader.initial())] == sizes


def test_a_run_ends_behind_a_file_of_a_snapshot_and_the_next_goes_on_from_there(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2)
    start = target.make().initial()
    end = target.make().ending_at(first := target.make().latest(start, True))
    target.add()
    for options in ({}, {"streaming-max-files-per-micro-batch": 1}):
        target.options.update({k: str(v) for k, v in options.items()})
        reader = target.make()
        reader.end_at(end)
        there = batches(reader, start)[-1][1]
        assert there == first
        assert reader.latest(there, True) == there
    assert target.keys(there) == [4, 5]
    beyond = target.make()
    beyond.end_at(end)
    with pytest.raises(InvalidInputError, match="beyond"):
        beyond.latest(target.make().latest(start, True), True)
    waits = target.make()
    waits.end_at({"snapshot": 1, "files": 1})
    assert target.rows(waits, start, waits.latest(start, True)) == target.expected(), "it may still come"


def test_an_empty_table_is_read_when_it_grows(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path)
    reader = target.make()
    start = reader.initial()
    assert reader.latest(start, False) == start
    target.add()
    assert target.rows(reader, start, reader.latest(start, False)) == target.expected()


def test_starts(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2, 3)
    snapshots = sorted(target.table().metadata.snapshots, key=lambda s: s.timestamp_ms)
    second = snapshots[1]
    at = dt.datetime.fromtimestamp(second.timestamp_ms / 1000, dt.timezone.utc)
    for options in (
        {"startingSnapshotId": str(second.snapshot_id)},
        {"startingTimestamp": at.isoformat()},
        {"startingTimestamp": at.isoformat().replace("+00:00", "Z")},
        {"stream-from-timestamp": str(second.timestamp_ms)},
        {"STREAM-FROM-TIMESTAMP": str(snapshots[0].timestamp_ms + 1)},
    ):
        target.options = {"table": "db.t", "discoveryInterval": "0s", **target.own, **options}
        assert target.keys() == [2, 3, 4, 5], options
    later = {"startingTimestamp": "2100-01-01T00:00:00Z"}
    target.options = {"table": "db.t", "discoveryInterval": "0s", **target.own, **later}
    assert target.keys() == []


def test_snapshots_that_take_rows_away_end_the_query_and_can_be_passed_over(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1)
    reader = target.make()
    end = reader.latest(reader.initial(), False)
    target.table().delete(EqualTo("k", 0))
    target.add()
    with pytest.raises(InvalidInputError, match=r"cannot process overwrite snapshot .* set streaming-skip-overwr"):
        reader.latest(end, False)
    target.options |= NO_OVERWRITES
    assert target.keys(end) == [2, 3]
    target.table().delete(EqualTo("k", 2))
    target.table().delete("k = 3")  # the last row of its file: nothing is written, so this one only deletes
    target.add()
    with pytest.raises(InvalidInputError, match=r"cannot process delete snapshot .* set streaming-skip-delete-snap"):
        target.keys(end)
    target.options |= {"streaming-skip-delete-snapshots": "true"}
    assert target.keys(end) == [2, 3, 4, 5]


def test_what_the_sink_appends_comes_checkpoint_by_checkpoint_and_its_upserts_are_refused(tmp_path: Path) -> None:
    own = catalog_options(tmp_path)
    for keys in ("", "k"):
        sink_target = IcebergTarget("iceberg", {"table": f"db.x{keys}", "mergeKeys": keys, **own})
        sink = sink_target.validated()
        for k in (1, 2, 3):
            sink.commit(permit(k), stage(sink, [(k, "a")], k, 2 * k) + stage(sink, [(10, f"{k}")], k, 2 * k, 1))
    target = IcebergSourceTarget(tmp_path, table="db.x")
    assert sorted(target.keys()) == [1, 2, 3, 10, 10, 10]
    target.options["table"] = "db.xk"
    with pytest.raises(InvalidInputError, match="overwrite snapshot"):
        target.keys()


def test_merged_manifests_give_each_file_once(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path)
    with target.table().transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    for _ in range(4):
        target.add()
    assert target.keys() == list(range(8))


def test_types_are_those_of_the_table(tmp_path: Path) -> None:
    own, rows = catalog_options(tmp_path), typed_rows()
    sink = IcebergTarget("iceberg", {"table": "db.typed", **own}).validated(rows.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=rows.schema), rows))
    target = IcebergSourceTarget(tmp_path, table="db.typed")
    reader = target.make()
    found = target.rows(reader, reader.initial(), reader.latest(reader.initial(), True))
    assert sorted(found) == [tuple(r.values()) for r in rows.to_pylist()]
    changed = {f.name for f, g in zip(rows.schema, reader.arrow_schema, strict=True) if f.type != g.type}
    assert changed <= {"byte", "short", "large text", "list", "struct", "map"}


def test_the_schema_of_the_start_holds_while_the_table_changes(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1)
    target.schema = StructType().add("v", StringType())
    reader = target.make()
    start = reader.initial()
    with target.table().update_schema() as update:
        update.add_column("more", LongType())
        update.rename_column("v", "w")
    target.table().append(pa.table({"k": [2], "w": ["new"], "more": [7]}))
    assert target.rows(reader, start, reader.latest(start, False)) == [("v0",), (None,), ("new",)]
    target.schema = StructType().add("w", StringType()).add("more", StringType())
    assert sorted(target.rows(target.make(), start, reader.latest(start, False)), key=str) == [
        ("new", "7"), ("v0", None), (None, None),
    ]  # fmt: skip


ALTERED: dict[str, tuple[Callable[[IcebergSourceTarget], None], str, list[Any]]] = {
    # what somebody does, what the running query says, and what (k, v) of the old and the new row are for the next start
    "gone": (lambda t: change(t, lambda u: u.delete_column("v")), r"column 'v' \(string\) is gone", []),
    "gone and back": (
        lambda t: change(t, lambda u: u.delete_column("v"), lambda u: u.add_column("v", iceberg.StringType())),
        r"column 'v' \(string\) is gone",
        [(1, None), (2, "b")],
    ),
    "wider": (lambda t: change(t, lambda u: u.update_column("k", LongType())), "'k' was int and is long",
              [(1, "a"), (2, "b")]),
    "made anew": (lambda t: made_anew(t), "was dropped and made anew while the query read it", []),
}  # fmt: skip


def change(target: IcebergSourceTarget, *steps: Callable[[Any], Any]) -> None:
    for step in steps:
        with target.table().update_schema(allow_incompatible_changes=True) as update:
            step(update)


def made_anew(target: IcebergSourceTarget) -> None:
    catalog_of(target.own).drop_table("db.t")
    catalog_of(target.own).create_table("db.t", pa.schema([("v", pa.string()), ("k", pa.int64())]))


@pytest.mark.parametrize("case", ALTERED)
def test_a_column_that_is_read_and_altered_ends_the_query_and_is_not_null_from_then_on(
    tmp_path: Path, case: str
) -> None:
    """pyiceberg gives nulls for a column that a file has under another id."""
    alter, said, later = ALTERED[case]
    target = IcebergSourceTarget(tmp_path)
    catalog_of(target.own).drop_table("db.t")
    catalog_of(target.own).create_table("db.t", pa.schema([("k", pa.int32()), ("v", pa.string())]))
    rows = {"k": pa.array([1], pa.int32()), "v": ["a"]}
    if case != "made anew":  # an empty one has no history that could tell
        target.table().append(pa.table(rows))
    reader = target.make()
    start = reader.initial()
    end = reader.latest(start, False)
    alter(target)
    names = [f.name for f in target.table().schema().fields]
    target.table().append(pa.table({"k": pa.array([2], target.make().arrow_schema.field("k").type), "v": ["b"]})
                          .select(names))  # fmt: skip
    with pytest.raises(InvalidInputError, match=said):
        reader.latest(end, False)
    if later:
        again = target.make()
        assert sorted(target.rows(again, start, again.latest(start, False))) == later


def test_an_offset_whose_snapshot_expired_or_was_rolled_back_is_refused(tmp_path: Path) -> None:
    for name in ("expired", "rolled back"):
        (tmp_path / name).mkdir()
        target = IcebergSourceTarget(tmp_path / name, 1)
        reader = target.make()
        target.add()
        end = reader.latest(reader.initial(), False)
        if name == "expired":
            target.add()
            expire(target.table(), 2)
        else:
            first = min(target.table().metadata.snapshots, key=lambda s: s.timestamp_ms)
            target.table().manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
            target.add()
        with pytest.raises(InvalidInputError, match=r"not in its history any more.*The history has"):
            target.keys(end)


REFUSED = {
    "no table": ({"table": "db.nope"}, "db.nope is not there"),
    "name": ({"table": "t"}, "namespace.table"),
    "two starts": ({"startingSnapshotId": "7", "stream-from-timestamp": "1"}, "expected one start"),
    "time": ({"startingTimestamp": "monday"}, "startingTimestamp.*milliseconds since 1970"),
    "catalogue": ({"catalog.uri": "sqlite:////no/such/folder/x.db"}, "opening it failed"),
    "option": ({"maxFilesPerTrigger": "1"}, "streaming-max-files-per-micro-batch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_when_the_dataframe_is_built(tmp_path: Path, case: str) -> None:
    options, said = REFUSED[case]
    target = IcebergSourceTarget(tmp_path, 1)
    target.options |= options
    with pytest.raises((InvalidInputError, ConfigError), match=said) as refused:
        target.make()
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_columns_that_are_not_there_are_refused(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1)
    target.schema = StructType().add("nope", StringType())
    with pytest.raises(InvalidInputError, match="no column nope; its columns are k, v"):
        target.make()
