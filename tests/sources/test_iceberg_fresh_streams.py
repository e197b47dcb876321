"""Where a stream of an Iceberg table begins, whatever the oldest snapshot that is left did."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import Record

from spark_ckpt.errors import InvalidInputError
from tests.sources.test_source_iceberg import ONE_FILE, IcebergSourceTarget, expire


class _Rewrite(_OverwriteFiles):
    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - as in pyiceberg
        return Summary(operation=self._operation)  # pyiceberg itself makes none of a compaction


def rewritten(table: Table, rows: pa.Table, operation: Operation) -> None:
    """A snapshot that has all rows of the table in files of its own."""
    with table.transaction() as change, _Rewrite(operation=operation, transaction=change, io=table.io) as files:
        for task in table.scan().plan_files():
            files.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            files.append_data_file(file)


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDeletes(_FastAppendFiles):
    """What pyiceberg does not write: a snapshot with files of positions."""

    files: list[DataFile]

    def _manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        output = self.new_manifest_output()
        with _DeleteManifest(metadata.spec(), metadata.schema(), output, self._snapshot_id, self._compression) as out:
            for file in self.files:
                entry: dict[str, Any] = {"sequence_number": None, "file_sequence_number": None, "data_file": file}
                out.add(
                    ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, **entry)
                )
        return [*self._existing_manifests(), out.to_manifest_file()]


def delete_first_rows(table: Table) -> None:
    """The first row of each file, merge on read."""
    tasks = list(table.scan().plan_files())
    where = f"{table.location()}/data/deletes.parquet".removeprefix("file://")
    path = pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"})
    pos = pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"})
    found = sorted(t.file.file_path for t in tasks)
    pq.write_table(pa.table([found, [0] * len(found)], schema=pa.schema([path, pos])), where)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=where, file_format=FileFormat.PARQUET, partition=Record(),
        record_count=len(found), file_size_in_bytes=Path(where).stat().st_size,
    )  # fmt: skip
    file.spec_id = 0
    with table.transaction() as change:
        snapshot = _RowDeletes(operation=Operation.DELETE, transaction=change, io=table.io)
        snapshot.files = [file]
        with snapshot:
            pass


def known(table: Table) -> list[Any]:
    return sorted(table.metadata.snapshots, key=lambda s: s.timestamp_ms)


@pytest.mark.parametrize("what", [Operation.REPLACE, Operation.OVERWRITE])
@pytest.mark.parametrize("left", ["alone", "with appends behind it"])
def test_all_rows_of_the_oldest_snapshot_left_are_read_whatever_it_did(
    tmp_path: Path, what: Operation, left: str
) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2, 3, **ONE_FILE)
    rewritten(target.table(), target.table().scan().to_arrow(), what)
    if left != "alone":
        target.add()
        target.add()
    expire(target.table(), 3)
    assert known(target.table())[0].summary.operation == what
    assert sorted(target.keys()) == sorted(target.table().scan().to_arrow()["k"].to_pylist())


def test_rows_that_delete_files_take_away_are_not_read(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2, 3, **ONE_FILE)
    delete_first_rows(target.table())
    expire(target.table(), 3)
    assert sorted(target.table().scan().to_arrow()["k"].to_pylist()) == [1, 3, 5]
    target.add()
    assert sorted(target.keys()) == [1, 3, 5, 6, 7]


def test_a_table_of_which_all_is_deleted_has_no_rows_and_goes_on(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2)
    target.table().delete("k >= 0")
    expire(target.table(), 2)
    assert target.keys() == []
    target.add()
    assert target.keys() == [4, 5]


def test_a_table_that_was_empty_and_has_only_a_compacted_snapshot_by_now_is_read_whole(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path)
    start = target.make().initial()
    for _ in range(3):
        target.add()
    rewritten(target.table(), target.table().scan().to_arrow(), Operation.REPLACE)
    expire(target.table(), 3)
    assert sorted(target.keys(start)) == [0, 1, 2, 3, 4, 5]


def test_a_batch_that_was_planned_is_never_read_with_other_rows_when_snapshots_expired_since(tmp_path: Path) -> None:
    for expired in (1, 2, 3):
        folder = tmp_path / str(expired)
        folder.mkdir()
        target = IcebergSourceTarget(folder)
        reader = target.make()
        start = reader.initial()
        target.add()
        target.add()
        end = reader.latest(start, True)
        target.add()
        target.add()
        expire(target.table(), expired)
        if expired == 1:  # the second one is read as a whole now: other files, in another order
            with pytest.raises(InvalidInputError, match="not in its history any more, or others in front of it"):
                target.make().splits(start, end)
        else:
            with pytest.raises(InvalidInputError, match="not in its history any more"):
                target.make().splits(start, end)


def test_a_start_by_time_ahead_of_all_that_is_left_is_refused_and_the_ways_that_it_names_work(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2, 3, 4)
    first, third = known(target.table())[0], known(target.table())[2]
    expire(target.table(), 2)
    plain = dict(target.options)
    target.options["stream-from-timestamp"] = str(first.timestamp_ms)
    at = dt.datetime.fromtimestamp(third.timestamp_ms / 1000, dt.timezone.utc).isoformat(timespec="milliseconds")
    with pytest.raises(InvalidInputError, match=rf"the oldest that is left.*Leave the start out.*begin at {at[:-6]}"):
        target.keys()
    target.options = {**plain, "startingTimestamp": at}
    assert target.keys() == [4, 5, 6, 7]
    target.options = plain
    assert sorted(target.keys()) == list(range(8))


def test_a_start_by_time_ahead_of_the_tables_first_snapshot_reads_all(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2, **{"stream-from-timestamp": "0"})
    assert target.keys() == [0, 1, 2, 3]


def test_a_stream_goes_on_when_the_snapshot_that_it_began_with_has_expired(tmp_path: Path) -> None:
    target = IcebergSourceTarget(tmp_path, 1, 2)
    target.options["startingSnapshotId"] = str(known(target.table())[0].snapshot_id)
    reader = target.make()
    end = reader.latest(reader.initial(), True)
    expire(target.table(), 1)
    target.add()
    assert target.keys(end) == [4, 5]
    with pytest.raises(InvalidInputError, match="which is not in the table's history"):
        target.keys()
