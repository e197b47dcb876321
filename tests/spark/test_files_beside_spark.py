"""What source ``files`` reads of files that Spark wrote, or that are odd, is what Spark reads of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.files import FilesSource


def ours(path: Path, schema: Any, kind: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(path, schema, kind, **options).to_pylist()
    return rows


def table(path: Path, schema: Any, kind: str, **options: Any) -> pa.Table:
    source = FilesSource({"path": str(path), "fileFormat": kind, **options})
    source.metadata_url = str(path.with_name(f"job-{path.name}"))
    reader = InnerReader(source, schema)
    end = reader.latest(reader.initial(), True)
    batches = [batch for split in reader.splits(reader.initial(), end) for batch in reader.read(split)]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "deflate", "lz4", "snappy"])
def test_text_that_spark_compressed_is_read_whatever_the_codec(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    """A line that is longer than Hadoop's buffer is a block of several chunks."""
    rows = spark.range(3000).select(
        F.expr("if(id = 7, repeat(sha2(string(id), 256), 9999), sha2(string(id), 256)) as value")
    )
    rows.coalesce(1).write.option("compression", codec).text(str(tmp_path / "in"))
    expected = [row[0] for row in rows.collect()]
    assert [row["value"] for row in ours(tmp_path / "in", rows.schema, "text")] == expected


ODD_TEXT = [
    b"a\rb\r\nc\n\rd\r",
    b"\r\n\r\r\n",
    b"a\n\r\nb\r\r",
    b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n\xef\xbb\xbf",
    b'\xef\xbb\xbf{"value":"b"}\r\xef\xbb\xbf{"value":"c"}\n{"value":"d"}',
]


@pytest.mark.parametrize("kind", ["text", "csv", "json"])
def test_lines_and_byte_order_marks_are_those_of_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    for n, content in enumerate(ODD_TEXT):
        (tmp_path / "in" / f"{n}.txt").write_bytes(content)
    theirs = spark.read.schema("value string").format(kind).load(str(tmp_path / "in"))
    mode = {} if kind == "text" else {"mode": "PERMISSIVE"}
    found = ours(tmp_path / "in", theirs.schema, kind, **mode)
    assert sorted(map(repr, found)) == sorted(repr(row.asDict()) for row in theirs.collect())


def test_the_output_of_sparks_file_sink_is_what_spark_reads_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """Compacted and not, with what failed attempts leave behind, and while Spark goes on."""
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 3)
    rows, out = spark.range(4), tmp_path / "out"
    rows.write.parquet(str(tmp_path / "in"))
    source = FilesSource({"path": str(out), "fileFormat": "parquet", "discoveryInterval": "0s"})
    source.metadata_url = str(tmp_path / "job")
    out.mkdir()
    reader = InnerReader(source, rows.schema)
    at, found = reader.initial(), []
    for _ in range(5):
        stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
        query = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "location"))
        query.start(str(out), "parquet").awaitTermination()
        rows.write.mode("append").parquet(str(tmp_path / "in"))
        left = next(out.glob("part-*"))
        shutil.copy(left, left.with_name(f"left-{left.name}"))
        end = reader.latest(at, True)
        found += [n for s in reader.splits(at, end) for batch in reader.read(s) for n in batch["id"].to_pylist()]
        at = end
        assert sorted(found) == sorted(row.id for row in spark.read.parquet(str(out)).collect())
    assert len(found) == 20
    assert list((out / "_spark_metadata").glob("*.compact"))


OLD = """select id, d, t, array(d) a, named_struct('d', d, 't', t) s, map(d, t) m, cast(t as timestamp_ntz) n
    from values
    (1, date'1001-01-01', timestamp'1001-01-01 00:00:00Z'), (2, date'1582-10-04', timestamp'1582-10-04 23:59:59Z'),
    (3, date'1582-10-15', timestamp'1582-10-15 10:00:00Z'), (4, date'0001-01-01', timestamp'0001-01-01 00:00:00Z'),
    (5, date'1899-12-31', timestamp'1899-12-31 23:59:59.123456Z'),
    (6, date'1500-02-28', timestamp'1500-03-01 00:00:00Z')
    as v(id, d, t)"""


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_old_days_and_times_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Written by Spark in the old calendar, in a zone whose clock was off; and without a word of who wrote them."""
    settings = {"outputTimestampType": kind, "datetimeRebaseModeInWrite": "LEGACY", "int96RebaseModeInWrite": "LEGACY"}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.parquet.{name}", value)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Amsterdam")
    rows = spark.sql(OLD).coalesce(1)
    rows.write.parquet(str(tmp_path / "told"))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    (tmp_path / "plain").mkdir()
    (file,) = (tmp_path / "told").glob("*.parquet")
    with pq.ParquetFile(file) as told, pq.ParquetWriter(
        tmp_path / "plain" / "a.parquet", told.schema_arrow.remove_metadata(), store_schema=False,
        use_deprecated_int96_timestamps=kind == "INT96",
    ) as plain:  # fmt: skip
        plain.write_table(told.read())  # column n, too, is INT96 then
    for folder, modes in (("told", ["CORRECTED", "EXCEPTION"]), ("plain", ["CORRECTED", "LEGACY"])):
        for mode in modes:
            options = {"datetimeRebaseMode": mode, "int96RebaseMode": mode}
            theirs = spark.read.schema(rows.schema).options(**options).parquet(str(tmp_path / folder))
            expected, found = theirs.toArrow(), table(tmp_path / folder, rows.schema, "parquet", **options)
            assert found.num_rows == 6
            for field in arrow_schema(rows.schema):
                if field.name == "n" and kind == "INT96" and folder == "plain":
                    continue
                one, other = (t[field.name].cast(field.type).combine_chunks() for t in (found, expected))
                assert one.equals(other), (folder, mode, field.name)
