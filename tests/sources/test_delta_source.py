"""What the Delta source makes of a table: its values, its versions, and what it refuses."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, InvalidInputError
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sources.base import InnerReader, Offset, open_source
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from spark_ckpt.testing.source_harness import batches, read
from tests.sources.delta_tables import ID_V, HandMade, field, id_v


def opened(path: Path, **options: str) -> InnerReader:
    source = open_source("delta", {"path": str(path), **options}, None, str(path / "none"))
    return source.reader(source.schema())


def rows(reader: InnerReader, start: Offset | None = None) -> list[tuple[Any, ...]]:
    return [row for r in batches(reader, start or reader.initial()) for row in of(reader, *r)]


def of(reader: InnerReader, start: Offset, end: Offset) -> list[tuple[Any, ...]]:
    return [row for split in reader.splits(start, end) for row in read(reader, split)]


def end_of(reader: InnerReader) -> Offset:
    return batches(reader, reader.initial())[-1][1]


def ids(found: list[tuple[Any, ...]]) -> list[int]:
    return sorted(row[0] for row in found)


# -- where it begins ---------------------------------------------------------------------------------------------------


def test_all_rows_come_first_and_then_what_is_appended(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", id_v([1, 2]))
    write_deltalake(tmp_path / "t", id_v([3]), mode="overwrite")
    reader = opened(tmp_path / "t")
    assert ids(rows(reader)) == [3]
    end = end_of(reader)
    write_deltalake(tmp_path / "t", id_v([4]), mode="append")
    assert ids(rows(reader, end)) == [4]


def test_a_stream_that_begins_with_the_latest_gets_what_comes_behind_its_first_look(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", id_v([1]))
    reader = opened(tmp_path / "t", startingVersion="latest")
    first = reader.latest(reader.initial(), False)
    assert reader.splits(reader.initial(), first) == []
    write_deltalake(tmp_path / "t", id_v([2]), mode="append")
    assert reader.latest(reader.initial(), False)["start"] == 1, "asked again, it is where it was"
    assert ids(rows(reader, first)) == [2]
    assert ids(rows(opened(tmp_path / "t", startingVersion="latest"), first)) == [2], "a restart begins where it was"


def test_a_version_and_a_time_to_begin_with(tmp_path: Path) -> None:
    for n in range(4):
        write_deltalake(tmp_path / "t", id_v([n]), mode="append")
        log = tmp_path / "t" / "_delta_log" / f"{n:020d}.json"
        os.utime(log, (1_700_000_000 + n, 1_700_000_000 + n))
    assert ids(rows(opened(tmp_path / "t", startingVersion="2"))) == [2, 3]
    # 1_700_000_000 is 2023-11-14T22:13:20Z.
    for text, found in (
        ("2023-11-14T22:13:21Z", [1, 2, 3]),
        ("2023-11-14 22:13:21.001", [2, 3]),
        ("2023-11-14T23:13:22+01:00", [2, 3]),
        ("2023-11-14", [0, 1, 2, 3]),
        ("2023-11-14T22:13:23Z", [3]),
    ):
        assert ids(rows(opened(tmp_path / "t", startingTimestamp=text))) == found, text
    # Times of versions do not go back, though those of their files may.
    os.utime(tmp_path / "t" / "_delta_log" / f"{2:020d}.json", (1_600_000_000, 1_600_000_000))
    assert ids(rows(opened(tmp_path / "t", startingTimestamp="2023-11-14T22:13:21.001Z"))) == [2, 3]
    with pytest.raises(ConfigError, match=r"up to 2023-11-14T22:13:23.000\+00:00.*startingVersion=latest"):
        opened(tmp_path / "t", startingTimestamp="2023-11-14T22:13:24Z")


def test_a_time_without_a_zone_is_of_the_session_and_a_path_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = open_source("delta", {"path": "t", "startingTimestamp": "2026-07-01 12:00:00"}, None, "none")
    session = {
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    }
    given = {"Path": "t", "startingTimestamp": "2026-07-01 12:00:00"}
    kept = source.settled_options(given, session.__getitem__)
    assert kept == {
        "Path": str(tmp_path / "t"),
        "startingTimestamp": "2026-07-01T12:00:00+02:00",
        "datetimeRebaseMode": "LEGACY",
        "int96RebaseMode": "CORRECTED",
    }


def test_times_that_a_table_notes_itself_are_those_it_goes_by(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", enableInCommitTimestamps="true", enableChangeDataFeed="true")
    info = {"inCommitTimestamp": 1_700_000_000_000}
    table.commit(table.add(id_v([1])), **info)
    # The table's first version has no time of its own here, only that of its file, long after.
    os.utime(table.log(0), (1_600_000_000, 1_600_000_000))
    found = rows(opened(tmp_path / "t", startingTimestamp="2023-11-14T22:13:20Z", readChangeFeed="true"))
    assert [row[-1] for row in found] == [dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=ZoneInfo("UTC"))]


def test_an_empty_table_begins_and_its_first_rows_come(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    reader = opened(tmp_path / "t")
    first = reader.latest(reader.initial(), False)
    assert of(reader, reader.initial(), first) == []
    table.commit(table.add(id_v([1])))
    assert ids(rows(reader, first)) == [1]


def test_what_is_restored_in_the_middle_of_a_version_goes_on_there(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.commit(*(table.add(id_v([n])) for n in range(5)))
    reader = opened(tmp_path / "t", startingVersion="0", maxFilesPerTrigger="2")
    middle = reader.latest(reader.initial(), False)
    assert (middle["version"], middle["index"]) == (1, 2)
    table.commit(table.add(id_v([9])))
    assert rows(opened(tmp_path / "t", startingVersion="0"), middle) == [(n, f"text {n}") for n in (2, 3, 4, 9)]
    by_snapshot = opened(tmp_path / "t", maxFilesPerTrigger="2")
    middle = by_snapshot.latest(by_snapshot.initial(), False)
    table.commit(table.add(id_v([10])))
    assert ids(rows(opened(tmp_path / "t"), middle)) == [2, 3, 4, 9, 10]


# -- values ------------------------------------------------------------------------------------------------------------


def test_columns_have_names_ids_and_types_of_their_own_in_files(tmp_path: Path) -> None:
    mapped = (
        field("id", "long", **{"delta.columnMapping.physicalName": "c1", "delta.columnMapping.id": 1}),
        field("c1", "string", **{"delta.columnMapping.physicalName": "c2", "delta.columnMapping.id": 2}),
        field("s", {"type": "struct", "fields": [
            field("new", "long", **{"delta.columnMapping.physicalName": "x", "delta.columnMapping.id": 4}),
            field("later", "string", **{"delta.columnMapping.physicalName": "y", "delta.columnMapping.id": 5}),
        ]}, **{"delta.columnMapping.physicalName": "c3", "delta.columnMapping.id": 3}),
        field("l", {"type": "array", "containsNull": True, "elementType": {"type": "struct", "fields": [
            field("q", "double", **{"delta.columnMapping.physicalName": "z", "delta.columnMapping.id": 7}),
        ]}}, **{"delta.columnMapping.physicalName": "c4", "delta.columnMapping.id": 6}),
    )  # fmt: skip
    table = HandMade(tmp_path / "t", *mapped, columnMapping_mode="name")
    found = pa.table({
        "c2": ["a", None], "c1": pa.array([1, 2], pa.int32()),
        "c3": pa.array([{"x": 7}, None], pa.struct([("x", pa.int32())])),
        "c4": pa.array([[{"z": 1.5}, None], None], pa.list_(pa.struct([("z", pa.float32())]))),
    })  # fmt: skip
    table.commit(table.add(found))
    assert rows(opened(tmp_path / "t")) == [
        (1, "a", {"new": 7, "later": None}, [{"q": 1.5}, None]),
        (2, None, None, None),
    ]


def test_columns_are_found_by_id_where_the_table_says_so(tmp_path: Path) -> None:
    fields = tuple(
        field(name, "long", **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number})
        for name, physical, number in (("a", "p", 1), ("b", "q", 2))
    )
    table = HandMade(tmp_path / "t", *fields, columnMapping_mode="id")
    by_id = [pa.field(n, pa.int64(), metadata={"PARQUET:field_id": i}) for n, i in (("x", "2"), ("p", "1"))]
    table.commit(table.add(pa.table([[20], [10]], schema=pa.schema(by_id))))
    assert rows(opened(tmp_path / "t")) == [(10, 20)]


def test_partition_values_have_the_tables_types(tmp_path: Path) -> None:
    kinds = {
        "s": ("string", "ä b/c"), "i": ("integer", "-7"), "t": ("timestamp", "2024-02-29T01:02:03.000004Z"),
        "u": ("timestamp", "2024-02-29 01:02:03"), "n": ("timestamp_ntz", "0001-01-01 00:00:00"),
        "d": ("date", "1899-12-31"), "b": ("boolean", "true"), "f": ("double", "Infinity"),
        "c": ("decimal(10,2)", "-1.50"), "x": ("binary", "\1é"), "e": ("string", ""), "z": ("date", None),
    }  # fmt: skip
    fields = [field("id", "long"), *(field(name, kind) for name, (kind, _) in kinds.items())]
    table = HandMade(tmp_path / "t", *fields, partition_by=list(kinds))
    table.commit(table.add(pa.table({"id": [1]}), **{name: text for name, (_, text) in kinds.items()}))
    utc = ZoneInfo("UTC")
    assert rows(opened(tmp_path / "t")) == [(
        1, "ä b/c", -7, dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=utc), dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=utc),
        dt.datetime(1, 1, 1), dt.date(1899, 12, 31), True, float("inf"), Decimal("-1.50"), "\1é".encode(), None, None,
    )]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        ("date", "+10000-01-01", 2_932_897),
        ("date", "-0001-12-31", -719_529),
        ("timestamp", "+294247-01-10 04:00:54.775807", 2**63 - 1),
        ("timestamp_ntz", "-290308-12-21 19:59:05.224192", -(2**63)),
    ],
)
def test_partition_values_of_any_year_are_read(tmp_path: Path, kind: str, text: str, number: int) -> None:
    table = HandMade(tmp_path / "t", field("id", "long"), field("p", kind), partition_by=["p"])
    table.commit(table.add(pa.table({"id": [1]}), p=text))
    reader = opened(tmp_path / "t")
    end = reader.latest(reader.initial(), False)
    (batch,) = [b for split in reader.splits(reader.initial(), end) for b in reader.read(split)]
    plain = pa.int32() if kind == "date" else pa.int64()
    assert batch.column("p").cast(plain).to_pylist() == [number]


@pytest.mark.parametrize("inline", [False, True])
def test_dead_rows_do_not_come_wherever_a_file_is_cut(tmp_path: Path, inline: bool) -> None:
    table = HandMade(tmp_path / "t")
    dead = [0, 3, 4, 17, 18, 19]
    table.commit(table.with_vector(table.add(id_v(range(20))), dead, inline=inline))
    for size in ("200", "300", "1g"):
        assert ids(rows(opened(tmp_path / "t", maxSplitBytes=size))) == [n for n in range(20) if n not in dead]


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.commit(table.add(id_v([1])))
    table.commit(table.metadata(*ID_V, field("w", "integer")))
    table.commit(table.add(id_v([2]).append_column("w", pa.array([7], pa.int32()))))
    assert rows(opened(tmp_path / "t", startingVersion="0")) == [(1, "text 1", None), (2, "text 2", 7)]


def test_names_in_the_log_are_quoted_and_files_lie_in_folders(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "p": ["a b/ü%", "x=y:z"]})
    write_deltalake(tmp_path / "t", table, partition_by=["p"])
    assert sorted(rows(opened(tmp_path / "t"))) == [(1, "a b/ü%"), (2, "x=y:z")]


def test_names_of_columns_mean_nothing_to_arrow(tmp_path: Path) -> None:
    inner = pa.struct([("b", pa.int64()), ("c d", pa.int64())])
    schema = pa.schema([("a.b", pa.int64()), ("a", inner), ("`x`", pa.string()), ("Äß", pa.string()), ("a.b.c", inner)])
    row = {"a.b": 1, "a": {"b": 2, "c d": 3}, "`x`": "y", "Äß": "z", "a.b.c": {"b": 4, "c d": 5}}
    write_deltalake(tmp_path / "t", pa.Table.from_pylist([row], schema=schema))
    assert rows(opened(tmp_path / "t")) == [tuple(row.values())]


def test_columns_without_a_type_are_left_out_as_in_spark(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", *ID_V, field("nothing", "void"))
    table.commit(table.add(id_v([1])))
    assert rows(opened(table.path)) == [(1, "text 1")]


def test_what_the_delta_sink_writes_is_what_the_source_reads(tmp_path: Path) -> None:
    schema = id_v([0]).schema
    sink = DeltaSink({"path": str(tmp_path / "t")})
    sink.validate(schema)
    reader = opened(tmp_path / "t")
    end = reader.latest(reader.initial(), False)
    for checkpoint in (1, 2):
        staged = stage_table(sink, context(checkpoint, checkpoint, schema=schema), id_v([checkpoint, checkpoint + 10]))
        sink.commit(permit(checkpoint), staged)
        sink.commit(permit(checkpoint), staged)
    assert ids(rows(reader, end)) == [1, 2, 11, 12]


# -- changes -----------------------------------------------------------------------------------------------------------


def changes_of(table: HandMade, **options: str) -> list[tuple[Any, ...]]:
    found = rows(opened(table.path, readChangeFeed="true", startingVersion="0", **options))
    return sorted((row[-2], row[-3], row[0]) for row in found)


def test_changes_without_files_of_their_own_are_those_of_the_data_files(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
    one, two = table.add(id_v([1, 2, 3])), table.add(id_v([4]))
    table.commit(one, two)
    dead = table.with_vector(one, [0, 1])
    table.commit(table.remove(one), dead)
    less = table.with_vector(one, [1])
    table.commit(table.remove(dead), less, operation="RESTORE")
    table.commit(table.remove(two), table.remove(less))
    assert changes_of(table) == [
        (1, "insert", 1), (1, "insert", 2), (1, "insert", 3), (1, "insert", 4),
        (2, "delete", 1), (2, "delete", 2),
        (3, "insert", 1),
        (4, "delete", 1), (4, "delete", 3), (4, "delete", 4),
    ]  # fmt: skip


def test_rows_that_are_gone_come_ahead_of_those_that_are_there(tmp_path: Path) -> None:
    """A key may be in both, and the last row of a key is what a merging sink keeps."""
    table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
    one, two = table.add(id_v([1, 2])), table.add(id_v([3]))
    table.commit(one, two)
    table.commit(table.add(id_v([1, 3], "new")), table.remove(one), table.remove(two))
    kinds = [("update_postimage", 1, "c"), ("update_preimage", 1, "b"), ("insert", 2, "c"), ("delete", 3, "b")]
    files = [[{"_change_type": kind, "id": n, "v": v} for kind, n, v in part] for part in (kinds[:3], kinds[3:])]
    table.commit(*(table.change(pa.Table.from_pylist(part)) for part in files))
    reader = opened(table.path, readChangeFeed="true", startingVersion="2", maxSplitBytes="100")
    assert [(row[2], row[0]) for row in rows(reader)] == [
        ("delete", 1), ("delete", 2), ("delete", 3), ("insert", 1), ("insert", 3),
        ("update_preimage", 1), ("delete", 3), ("update_postimage", 1), ("insert", 2),
    ]  # fmt: skip


def test_what_changes_no_row_is_no_change(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
    one = table.add(id_v([1]))
    table.commit(one)
    two = table.add(id_v([1]), data_change=False)
    table.commit(table.remove(one, data_change=False), two, operation="OPTIMIZE")
    metrics = {f"numTargetRows{what}": "0" for what in ("Inserted", "Updated", "Deleted")}
    table.commit(table.remove(two), table.add(id_v([1])), operation="MERGE", operationMetrics=metrics)
    assert changes_of(table) == [(1, "insert", 1)]


def test_files_that_are_excluded_are_left_out_of_the_first_rows_and_of_changes(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
    table.commit(table.add(id_v([1])), table.add(id_v([2])), table.add(id_v([3])))
    told = [id_v([n]).append_column("_change_type", [["update_postimage"]]) for n in (4, 5)]
    table.commit(table.change(told[0]), table.change(told[1]), table.add(id_v([4, 5, 6])), operation="UPDATE")
    excluded = {"excludeRegex": "part-0000[05]|cdc-00003", "maxFilesPerTrigger": "1"}
    assert ids(rows(opened(table.path, **excluded))) == [2, 3]
    assert [number for _, _, number in changes_of(table, **excluded)] == [2, 3, 5]
    assert ids(rows(opened(table.path, startingVersion="0", **excluded))) == [2, 3]


def test_a_version_of_changes_is_in_one_batch_and_the_first_rows_are_not(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
    table.commit(*(table.add(id_v([n])) for n in range(3)))
    reader = opened(table.path, readChangeFeed="true", maxFilesPerTrigger="2")
    first = reader.latest(reader.initial(), False)
    table.commit(*(table.add(id_v([n])) for n in range(10, 13)))
    table.commit(table.add(id_v([20])))
    ranges = [(reader.initial(), first), *batches(reader, first)]
    assert [len(of(reader, *r)) for r in ranges] == [2, 4, 1], "one is left of the first rows, and a version is whole"
    by_version = opened(table.path, readChangeFeed="true", maxFilesPerTrigger="2", startingVersion="2")
    assert [len(of(by_version, *r)) for r in batches(by_version, by_version.initial())] == [3, 1]


def test_changes_that_were_not_recorded_are_refused(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"DELTA_MISSING_CHANGE_DATA.*delta\.enableChangeDataFeed=true"):
        opened(table.path, readChangeFeed="true")
    table.commit(table.metadata(*ID_V, enableChangeDataFeed="true"))
    reader = opened(table.path, readChangeFeed="true", startingVersion="0")
    with pytest.raises(InvalidInputError, match="at version 0 records no change data"):
        reader.latest(reader.initial(), False)
    reader = opened(table.path, readChangeFeed="true", startingVersion="1")
    first = reader.latest(reader.initial(), False)
    table.commit(table.add(id_v([1])))
    table.commit(table.metadata(*ID_V))
    end = reader.latest(first, False)
    assert ids(of(reader, first, end)) == [1]
    with pytest.raises(InvalidInputError, match="at version 3 records no change data"):
        reader.latest(end, False)


# -- rows that are not only appended -----------------------------------------------------------------------------------


def edited(tmp_path: Path) -> HandMade:
    """Version 1 adds 1 to 3, 2 deletes a file, 3 kills a row by a vector, 4 overwrites, 5 is OPTIMIZE, 6 appends."""
    table = HandMade(tmp_path / "t")
    one, two = table.add(id_v([1, 2])), table.add(id_v([3]))
    table.commit(one, two)
    table.commit(table.remove(two))
    dead = table.with_vector(one, [0])
    table.commit(table.remove(one), dead)
    new = table.add(id_v([5]))
    table.commit(table.remove(dead), new)
    table.commit(table.remove(new, data_change=False), table.add(id_v([5]), data_change=False), operation="OPTIMIZE")
    table.commit(table.add(id_v([6])))
    return table


@pytest.mark.parametrize(
    ("options", "found", "error"),
    [
        ({}, [1, 2, 3], r"DELTA_SOURCE_IGNORE_DELETE\].*version 2 deletes.*ignoreDeletes=true"),
        ({"ignoreDeletes": "true"}, [1, 2, 3], r"TABLE_IGNORE_CHANGES\].*version 3 updates.*skipChangeCommits=true"),
        ({"ignoreChanges": "true"}, [1, 2, 2, 3, 5, 6], None),
        ({"skipChangeCommits": "true"}, [1, 2, 3, 6], None),
        ({"skipChangeCommits": "true", "excludeRegex": "part-00000"}, [3, 6], None),
    ],
)
def test_deletes_and_updates_are_what_the_options_say(
    tmp_path: Path, options: dict[str, str], found: list[int], error: str | None
) -> None:
    reader = opened(edited(tmp_path).path, startingVersion="0", **options)
    if error is None:
        assert ids(rows(reader)) == found
        return
    end = reader.latest(reader.initial(), False)
    assert ids(of(reader, reader.initial(), end)) == found, "what is ahead of it comes"
    for one in (reader, opened(tmp_path / "t", startingVersion="0", **options)):
        with pytest.raises(InvalidInputError, match=error):
            one.latest(end, False)
    with_way_out = opened(tmp_path / "t", startingVersion="0", skipChangeCommits="true")
    assert ids(rows(with_way_out, end)) == [6], "and with the option the stream goes on"


# -- what happens to a table -------------------------------------------------------------------------------------------


def test_new_columns_end_a_stream_where_they_come_and_a_restart_goes_on_with_them(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.commit(table.add(id_v([1])))
    reader = opened(table.path)
    first = reader.latest(reader.initial(), False)
    table.commit(table.add(id_v([2])))
    table.commit(table.metadata(*ID_V, field("w", "integer")))
    table.commit(table.add(id_v([3]).append_column("w", pa.array([7], pa.int32()))))
    end = reader.latest(first, False)
    assert ids(of(reader, reader.initial(), end)) == [1, 2]
    with pytest.raises(InvalidInputError, match=r"version 3 changes the table's columns: column w is new.*again"):
        reader.latest(end, False)
    again = opened(table.path)
    assert rows(again, end) == [(3, "text 3", 7)]
    assert of(again, again.initial(), end)[0] == (1, "text 1", None)


def test_notes_about_columns_that_change_no_row_end_nothing(tmp_path: Path) -> None:
    reader = opened(HandMade(tmp_path / "t").path)
    first = reader.latest(reader.initial(), False)
    table = HandMade.__new__(HandMade)
    table.path, table.version, table.files = tmp_path / "t", 0, 0
    table.id = first["table"]
    marked = field("id", "long", **{"delta.identity.highWaterMark": 5, "comment": "a number"})
    table.commit(table.metadata({**marked, "nullable": False}, ID_V[1], appendOnly="true"), table.add(id_v([1])))
    assert ids(rows(reader, first)) == [1]


def test_a_dataframe_that_is_older_than_the_tables_columns_has_to_be_made_anew(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    reader = opened(table.path)
    table.commit(table.metadata(*ID_V, field("w", "integer")))
    with pytest.raises(InvalidInputError, match=r"has changed since the DataFrame was made.*w:int.*load\(\)"):
        reader.latest(reader.initial(), False)


def test_files_of_columns_that_were_replaced_are_refused(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    old = table.add(id_v([1]))
    table.commit(old)
    table.commit(table.metadata(field("id", "long"), field("v", "integer")), table.remove(old))
    reader = opened(table.path, startingVersion="0", ignoreDeletes="true")
    with pytest.raises(InvalidInputError, match=r"part-00000.parquet, column v: expected int32, .* found string"):
        rows(reader)


def test_a_log_that_was_cleaned_up_is_told_or_passed_over(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    for n in range(1, 6):
        table.commit(table.add(id_v([n])))
    reader = opened(table.path, startingVersion="1", maxFilesPerTrigger="1")
    end = reader.latest(reader.initial(), False)
    DeltaTable(table.path, version=4).create_checkpoint()
    for version in range(4):
        table.log(version).unlink()
    with pytest.raises(CorruptStorageError, match=r"go on with version 2, found 4.*failOnDataLoss=false"):
        opened(table.path, startingVersion="1").latest(end, False)
    assert ids(rows(opened(table.path, startingVersion="1", failOnDataLoss="false"), end)) == [4, 5]
    late = opened(table.path, startingVersion="2")
    with pytest.raises(InvalidInputError, match="expected to begin with version 2, found 4"):
        late.latest(late.initial(), False)
    assert ids(rows(opened(table.path))) == [1, 2, 3, 4, 5], "all rows are there by the checkpoint"


def test_first_rows_whose_version_cannot_be_rebuilt_are_told(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.commit(table.add(id_v([1])), table.add(id_v([2])))
    reader = opened(table.path, maxFilesPerTrigger="1")
    end = reader.latest(reader.initial(), False)
    table.commit(table.add(id_v([3])))
    DeltaTable(table.path).create_checkpoint()
    table.log(0).unlink()
    with pytest.raises(CorruptStorageError, match=r"cannot be rebuilt at version 1.*found none of version 0"):
        opened(table.path).latest(end, False)


def test_a_vacuumed_file_is_told(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", id_v([1]))
    write_deltalake(tmp_path / "t", id_v([2]), mode="overwrite")
    reader = opened(tmp_path / "t", startingVersion="0", ignoreChanges="true")
    DeltaTable(tmp_path / "t").vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(CorruptStorageError, match=r"part-.*is gone.*VACUUM"):
        rows(reader)


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.commit(table.add(id_v([1])))
    running = opened(table.path)
    end = end_of(running)
    (tmp_path / "t").rename(tmp_path / "old")
    other = HandMade(tmp_path / "t")
    for one in (running, opened(other.path)):
        with pytest.raises(InvalidInputError, match=f"{table.id}, found {other.id}"):
            one.latest(end, False)


def test_an_older_copy_of_the_table_is_told(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    for n in range(3):
        table.commit(table.add(id_v([n])))
    end = end_of(opened(table.path))
    for version in (2, 3):
        table.log(version).unlink()
    with pytest.raises(InvalidInputError, match="ends with version 1, and the stream has read up to 3"):
        opened(table.path).latest(end, False)


def test_a_table_that_is_gone_is_told(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.commit(table.add(id_v([1])))
    reader = opened(table.path)
    end = end_of(reader)
    (tmp_path / "t").rename(tmp_path / "old")
    with pytest.raises(InvalidInputError, match="is no Delta table"):
        reader.latest(end, False)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "found both"),
        ({"startingVersion": "-1"}, "expected a version, or latest, found '-1'"),
        ({"startingVersion": "7"}, "expected startingVersion up to 0, the newest"),
        ({"startingTimestamp": "yesterday"}, "expected a time such as 2026-01-31"),
        ({"excludeRegex": "("}, "expected a regular expression"),
        ({"versionAsOf": "1"}, "begin at one with startingVersion"),
        ({"schemaTrackingLocation": "x"}, "need none here"),
        ({"withEventTimeOrder": "true"}, "come file by file"),
        ({"readChangeData": "true"}, "valid options: .*readChangeFeed"),
        ({"maxFilesPerTrigger": "0"}, "a whole number of at least 1"),
    ],
)
def test_options_are_looked_at_when_the_dataframe_is_made(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(HandMade(tmp_path / "t").path, **options)


def test_what_a_table_needs_and_nobody_can_is_refused_by_name(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    running = opened(table.path)
    first = running.latest(running.initial(), False)
    table.commit(table.protocol("deletionVectors", "variantType"))
    for make in (lambda: opened(table.path), lambda: running.latest(first, False)):
        with pytest.raises(InvalidInputError, match=r"needs table feature\(s\) variantType, which"):
            make()
    newer = HandMade(tmp_path / "u")
    newer.commit(newer.protocol(reader_version=4))
    with pytest.raises(InvalidInputError, match="needs reader version 4"):
        opened(newer.path)


def test_a_shallow_clone_and_a_table_of_a_catalog_are_refused(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    added = table.add(id_v([1]))
    added["add"]["path"] = "file:///elsewhere/part-00000.parquet"
    table.commit(added)
    with pytest.raises(InvalidInputError, match="shallow clone"):
        opened(table.path)
    with pytest.raises(InvalidInputError, match="known to a catalog"):
        opened(HandMade(tmp_path / "u", coordinatedCommits_commitCoordinator="x").path)


def test_no_table_and_a_schema_of_ones_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is no Delta table"):
        opened(tmp_path / "none")
    table = HandMade(tmp_path / "t")
    with pytest.raises(ConfigError, match=r"knows its columns.*leave .schema\(...\) out"):
        open_source("delta", {"path": str(table.path)}, StructType(), "none").schema()
    with pytest.raises(ConfigError, match="expected option 'path'"):
        open_source("delta", {}, None, "none")
    fields = (*ID_V, field("_change_type", "string"))
    other = HandMade(tmp_path / "u", *fields, enableChangeDataFeed="true")
    with pytest.raises(InvalidInputError, match=r"has column\(s\) _change_type"):
        opened(other.path, readChangeFeed="true")


def test_columns_keep_their_comments_and_nothing_else_that_is_noted_of_them(tmp_path: Path) -> None:
    noted = {"comment": "when", "spark.watermarkDelayMs": 5, "delta.generationExpression": "now()"}
    inner = {"type": "struct", "fields": [field("x", "long", comment="inside")]}
    table = HandMade(tmp_path / "t", field("t", "timestamp", **noted), field("s", inner), field("v", "long"))
    schema = open_source("delta", {"path": str(table.path)}, None, "none").schema()
    assert [f.metadata for f in schema] == [{"comment": "when"}, {}, {}]
    assert schema["s"].dataType["x"].metadata == {"comment": "inside"}


def test_an_offset_of_rows_is_none_of_changes(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", enableChangeDataFeed="true")
    end = end_of(opened(table.path))
    with pytest.raises(InvalidInputError, match="began with readChangeFeed=false"):
        opened(table.path, readChangeFeed="true").latest(end, False)


def test_damage_is_told_and_not_guessed_at(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    added = table.add(id_v([1, 2]))
    table.commit(table.with_vector(added, [0]))
    reader = opened(table.path)
    ranges = batches(reader, reader.initial())
    vector = next(table.path.glob("deletion_vector_*"))
    vector.write_bytes(vector.read_bytes()[:-6])
    with pytest.raises(CorruptStorageError, match="deletion vector is damaged"):
        of(reader, *ranges[0])
    (table.path / added["add"]["path"]).write_bytes(b"no Parquet")
    vector.unlink()
    with pytest.raises(CkptError, match=r"part-00000\.parquet"):
        of(reader, *ranges[0])
    table.log(1).write_text("{")
    with pytest.raises(CorruptStorageError, match=r"00001\.json is damaged"):
        opened(table.path)
