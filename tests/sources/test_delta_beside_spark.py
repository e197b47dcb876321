"""Beside Delta in Spark: its tables as streams, with the same batches and endings; tables that both write."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.errors import CkptError
from spark_ckpt.plan.analysed._nodes import analysed
from spark_ckpt.plan.analysed.leaves import streams_of
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sources.base import open_source
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from spark_ckpt.testing.source_harness import batches, read
from tests.sinks import delta_stats
from tests.storage.delta_jars import delta_session

pytestmark = pytest.mark.soak  # a JVM of its own, with delta-spark

DEADLINE_S = 300
SCRIPT = """
create table dv (id long, name string, day date) using delta partitioned by (day)
    tblproperties ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true');
insert into dv select /*+ coalesce(1) */ id, concat('n', id), date'2024-01-01' from range(20);
insert into dv select /*+ coalesce(1) */ id, concat('n', id), date'2024-01-02' from range(20);
delete from dv where id in (3, 5) and day = date'2024-01-01';
update dv set name = 'new' where id = 7;
merge into dv t using (select 9L id, 'merged' name, date'2024-01-03' day union all select 99L, 'came', null) s
    on t.id = s.id when matched and t.day = date'2024-01-01' then delete when matched then update set *
    when not matched then insert *;
delete from dv where day = date'2024-01-01';
restore table dv to version as of 4;
optimize dv;
create table cow (id long, v double) using delta
    tblproperties ('delta.enableDeletionVectors' = 'false', 'delta.enableChangeDataFeed' = 'true');
insert into cow select /*+ coalesce(1) */ id, id / 2 from range(10);
update cow set v = -1 where id % 4 = 0;
delete from cow where id = 5;
merge into cow t using (select 6L id, 0.5D v union all select 60L, 1D) s on t.id = s.id
    when matched then update set * when not matched then insert *;
insert overwrite cow values (1000, 1), (1001, double('NaN'));
create table mapped (id long, `a b` string, st struct<x: int, y: string>, arr array<struct<q: int>>) using delta
    tblproperties ('delta.columnMapping.mode' = 'name');
insert into mapped values (1, 'one', named_struct('x', 1, 'y', 'z'), array(named_struct('q', 1), null));
alter table mapped rename column `a b` to ab;
alter table mapped rename column st.x to xx;
alter table mapped add columns (later int);
insert into mapped values (2, 'two', named_struct('xx', 2, 'y', 'w'), array(named_struct('q', 2)), 5);
alter table mapped drop column ab;
create table types (b boolean, i1 tinyint, i2 smallint, i4 int, i8 long, f float, d double, dc decimal(20, 3), s string,
    bin binary, dt date, ts timestamp, tn timestamp_ntz, m map<string, struct<a: int>>, l array<timestamp>) using delta
    partitioned by (dt, ts, s, f, dc, b);
insert into types select true, 1, 2, 3, 4, float(1.5), 2.5, 123.456, 'a b/c%=ü', X'0102', date'1900-01-01',
    timestamp'2024-05-06 07:08:09.123456Z', timestamp_ntz'2024-01-01 00:00:00', map('k', named_struct('a', 1)),
    array(timestamp'0001-01-01 00:00:00Z', null);
insert into types (i8) values (5);
create table widened (id int, k tinyint) using delta tblproperties ('delta.enableTypeWidening' = 'true');
insert into widened values (1, 1);
alter table widened alter column id type long;
alter table widened alter column k type int;
insert into widened values (5000000000, 100000);
create table restored (id long, v string) using delta
    tblproperties ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true');
insert into restored select /*+ coalesce(1) */ id, 'a' from range(10);
insert into restored select /*+ coalesce(1) */ id, 'b' from range(10, 20);
delete from restored where id in (3, 15);
optimize restored;
update restored set v = 'c' where id = 4;
restore table restored to version as of 3;
delete from restored where id = 7;
restore table restored to version as of 4;
insert into restored values (30, 'd');
create table emptied (id long) using delta;
insert into emptied values (1), (2);
delete from emptied;
create table overwritten (id long) using delta;
insert into overwritten values (1), (2);
insert overwrite overwritten values (3);
create table v2 (id long) using delta
    tblproperties ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '3',
    'delta.enableInCommitTimestamps' = 'true');
insert into v2 values (0); insert into v2 values (1); insert into v2 values (2);
insert into v2 values (3); insert into v2 values (4);
"""


NAMES = "dv|cow|mapped|types|widened|v2|restored|emptied|overwritten"
_CONF = "spark.databricks.delta"
CLEANED = {
    "classic": ({}, {}),
    "parts": ({}, {f"{_CONF}.checkpoint.partSize": "3"}),
    "parquet": (
        {"delta.checkpointPolicy": "v2"},
        {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"},
    ),
    "json": ({"delta.checkpointPolicy": "v2"}, {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"}),
}
"""Kinds of log checkpoints: properties of the table and settings of the session."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with delta_session() as session:
        session.sparkContext.setLogLevel("OFF")
        folder = tmp_path_factory.mktemp("tables")
        for statement in SCRIPT.split(";")[:-1]:
            session.sql(re.sub(rf"\b({NAMES})\b", f"delta.`{folder}/\\1`", statement, count=1))
        session.conf.set("tables", str(folder))
        yield session


def theirs(spark: SparkSession, table: str, tmp_path: Path, options: dict[str, str]) -> list[list[Any]]:
    """The rows of each batch that has some. Raises what Spark raises."""
    found: list[list[Any]] = []
    stream = spark.readStream.format("delta").options(**options).load(f"{spark.conf.get('tables')}/{table}")
    writer = stream.writeStream.foreachBatch(lambda rows, _: found.append(plain(rows.toArrow())))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    return [batch for batch in found if batch]


def ours(spark: SparkSession, table: str, options: dict[str, str]) -> list[list[Any]]:
    given = {"path": f"{spark.conf.get('tables')}/{table}", **options}
    source = open_source("delta", given, None, "none")
    reader, found = source.reader(source.schema()), []
    for start, end in batches(reader, reader.initial()):
        rows = [row for split in reader.splits(start, end) for row in read(reader, split)]
        found.append(sorted(repr(same(row)) for row in rows))
    return [batch for batch in found if batch]


def plain(table: Any) -> list[Any]:
    return sorted(repr(same(tuple(row.values()))) for row in table.to_pylist())


def same(value: Any) -> Any:
    """Whatever the zone's object is, and of maps as pairs."""
    if isinstance(value, (list, tuple)):
        return tuple(same(v) for v in value)
    if isinstance(value, dict):
        return {k: same(v) for k, v in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else value


CASES: list[tuple[str, dict[str, str]]] = [
    *((table, {}) for table in NAMES.split("|")),
    ("restored", {"maxFilesPerTrigger": "1"}),
    ("restored", {"startingVersion": "4", "ignoreChanges": "true"}),
    ("restored", {"startingVersion": "0", "readChangeFeed": "true"}),
    ("dv", {"readChangeFeed": "true", "startingVersion": "0"}),
    ("dv", {"readChangeFeed": "true", "startingVersion": "3", "maxFilesPerTrigger": "1"}),
    ("dv", {"readChangeFeed": "true"}),
    ("dv", {"startingVersion": "0", "skipChangeCommits": "true"}),
    ("dv", {"startingVersion": "0", "ignoreChanges": "true", "maxFilesPerTrigger": "1"}),
    ("cow", {"readChangeFeed": "true", "startingVersion": "0"}),
    ("cow", {"startingVersion": "0", "ignoreChanges": "true"}),
    ("v2", {"startingVersion": "0", "maxFilesPerTrigger": "3"}),
    ("v2", {"startingVersion": "0", "maxBytesPerTrigger": "500"}),
    ("v2", {"maxFilesPerTrigger": "2"}),
    ("v2", {"startingVersion": "2", "excludeRegex": "part-00000-[0-7]"}),
    ("cow", {"excludeRegex": "-0000.-[0-7]"}),
    ("cow", {"readChangeFeed": "true", "startingVersion": "0", "excludeRegex": "-0000.-[0-7]"}),
]


@pytest.mark.parametrize("kind", CLEANED)
def test_a_stream_of_a_table_whose_log_was_cleaned_up_begins_as_deltas_own(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    properties, settings = CLEANED[kind]
    table = f"{spark.conf.get('tables')}/cleaned-{kind}"
    told = {"delta.checkpointInterval": "4", "delta.enableDeletionVectors": "true", **properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in told.items())
    spark.sql(f"create table delta.`{table}` (id long) using delta tblproperties ({listed})")
    for name, value in settings.items():
        spark.conf.set(name, value)
    for n in range(8):
        spark.sql(f"insert into delta.`{table}` select /*+ coalesce(1) */ id from range({n * 10}, {n * 10 + 10})")
    spark.sql(f"delete from delta.`{table}` where id in (5, 77)")
    for name in settings:
        spark.conf.unset(name)
    log = Path(table) / "_delta_log"
    for file in log.iterdir():
        if (number := file.name.lstrip(".")[:20]).isdigit() and int(number) < 8:
            file.unlink()
    for version in (8, 9):
        os.utime(log / f"{version:020d}.json", (1_700_000_000 + 100 * version,) * 2)
    name = f"cleaned-{kind}"
    for number, options in enumerate(
        (
            {},
            {"startingVersion": "8"},
            {"startingVersion": "9", "ignoreDeletes": "true", "ignoreChanges": "true"},
            {"startingTimestamp": "2020-01-01"},
            {"startingTimestamp": "2023-11-14T22:26:41Z", "skipChangeCommits": "true"},
        )
    ):
        expected = endings(lambda: theirs(spark, name, tmp_path / str(number), options))  # noqa: B023
        assert endings(lambda: ours(spark, name, options)) == expected, options  # noqa: B023


def endings(read: Callable[[], Any]) -> Any:
    """The rows, or Delta's name for what ended the stream."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - some when the DataFrame is made, some in the query
        return re.findall(r"DELTA_[A-Z_]+", str(error))[0]


def test_statistics_on_record_are_those_of_this_spark(spark: SparkSession, tmp_path: Path) -> None:
    assert delta_stats.recorded(spark, tmp_path) == json.loads(delta_stats.FILE.read_text())


def test_spark_finds_each_row_of_our_sink_by_each_value(spark: SparkSession, tmp_path: Path) -> None:
    path, schema = f"{tmp_path}/t", delta_stats.SCHEMA
    sink = DeltaSink({"path": path})
    sink.validate(schema)
    for n in range(3):
        rows = delta_stats.rows().slice(n, 1)
        sink.commit(permit(n + 1), stage_table(sink, context(n + 1, 1, schema=schema), rows))
    stored = spark.read.format("delta").load(path)
    names = [f"`{f.name}`" for f in schema if not pa.types.is_nested(f.type)] + [
        "host.name",
        "host.port",
        "host.deep.a",
    ]
    for name in names:
        for n in (1, 2, 3):
            # As a literal, which files are skipped by.
            value = stored.where(F.col("id") == n).select(name).collect()[0][0]
            found = stored.where(F.col(name).eqNullSafe(F.lit(value))).collect()
            assert n in [row.id for row in found], (name, value)


@pytest.mark.parametrize(("table", "options"), CASES)
def test_batches_are_those_of_deltas_own_source(
    spark: SparkSession, tmp_path: Path, table: str, options: dict[str, str]
) -> None:
    expected = theirs(spark, table, tmp_path, options)
    found = ours(spark, table, options)
    assert found == expected


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ("cow", {"startingVersion": "0"}),
        ("dv", {"startingVersion": "0", "ignoreDeletes": "true"}),
        ("mapped", {"readChangeFeed": "true"}),
        ("cow", {"startingVersion": "99"}),
        ("cow", {"startingTimestamp": "2100-01-01"}),
        ("cow", {"startingVersion": "0", "startingTimestamp": "2020-01-01"}),
    ],
)
def test_what_ends_deltas_own_source_ends_this_one_with_its_name_for_it(
    spark: SparkSession, tmp_path: Path, table: str, options: dict[str, str]
) -> None:
    with pytest.raises(Exception) as told:  # noqa: PT011 - some when the DataFrame is made, some in the query
        theirs(spark, table, tmp_path, options)
    with pytest.raises(CkptError) as found:
        ours(spark, table, options)
    names = re.findall(r"DELTA_[A-Z_]+", str(told.value))
    assert any(f"[{name}]" in str(found.value) for name in names), (names, str(found.value))


def test_spark_and_the_sink_write_one_table_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "both"
    spark.sql(
        f"create table delta.`{path}` (k long, v string) using delta tblproperties ('delta.checkpointInterval' = '3', "
        "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])

    def ours() -> None:
        for checkpoint in range(1, 13):
            sink = DeltaSink({"path": str(path), **({"mergeKeys": "k"} if checkpoint % 2 else {})})
            rows = pa.table([[checkpoint, checkpoint + 100], ["ours", "ours"]], schema=schema)
            sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=schema), rows))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(ours)
        for n in range(1001, 1007):
            spark.sql(f"insert into delta.`{path}` values ({n}, 'theirs')")
        done.result(DEADLINE_S)
    spark.sql(f"delete from delta.`{path}` where k in (1, 1001)")
    sink = DeltaSink({"path": str(path), "mergeKeys": "k"})
    rows = pa.table([[2, 1002, 1001], ["new", "new", "back"]], schema=schema)
    sink.commit(permit(13), stage_table(sink, context(13, 13, schema=schema), rows))
    expected = {k: "ours" for n in range(1, 13) for k in (n, n + 100)} | dict.fromkeys(range(1003, 1007), "theirs")
    expected = {k: v for k, v in expected.items() if k != 1} | {2: "new", 1002: "new", 1001: "back"}
    table = spark.read.format("delta").load(str(path))
    assert sorted(map(tuple, table.collect())) == sorted(expected.items())
    feed = spark.read.format("delta").options(readChangeFeed="true", startingVersion="0").load(str(path))
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    net = Counter[tuple[int, str]]()
    for row in feed.collect():
        net[row.k, row.v] += signs[row._change_type]
    assert {row for row, n in net.items() if n} == set(expected.items())
    assert set(net.values()) <= {0, 1}


def test_a_table_of_the_catalog_is_a_stream_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.ckpt.dir", str(tmp_path / "jobs"))
    spark.sql(
        "create table by_name (id long comment 'whose', day date) using delta partitioned by (day) "
        f"location '{tmp_path}/a b'"
    )
    reader = spark_ckpt.enable(spark).readStream
    found = reader.option("startingVersion", 0).table("by_name")
    ((_, stream),) = streams_of(analysed(found))
    (source,) = stream.lineage.sources
    assert (source.inner, source.options["path"]) == ("delta", f"{tmp_path}/a b")
    assert found.schema.simpleString() == "struct<id:bigint,day:date>"
    assert found.schema == spark.readStream.table("by_name").schema
    assert found.schema["id"].metadata == {"comment": "whose"}
