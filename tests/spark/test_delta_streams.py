"""A Delta table as a stream of a job: its state, a restart, what ends it. No jars of Delta are in the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import ConfigError
from spark_ckpt.plan.analysed.translate import translated
from tests.spark.conftest import DEADLINE_S, Job


def append(path: Path, ids: range) -> None:
    rows = {"id": list(ids), "k": [f"k{n % 3}" for n in ids], "day": [f"d {n % 2}" for n in ids]}
    write_deltalake(path, pa.table(rows), mode="append", partition_by=["day"])


def test_a_job_over_a_delta_table_goes_on_where_it_was(
    spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    columns = [Field("id", "long", metadata={"comment": "whose"}), Field("k", "string"), Field("day", "string")]
    DeltaTable.create(path, Schema(columns), partition_by=["day"])
    append(path, range(10))
    append(path, range(10, 15))

    def totals(**options: Any) -> Any:
        rows = ckpt.readStream.options(maxFilesPerTrigger=2, **options).table(f"delta.`{path}`")
        assert {f.name: f.metadata for f in rows.schema} == {"id": {"comment": "whose"}, "k": {}, "day": {}}
        keyed = rows.where("id <> 4").groupBy("k", "day")
        return keyed.agg(F.count("*").alias("n"), F.sum("id").alias("s")).uid("totals")

    def expected() -> list[tuple[Any, ...]]:
        batch = spark.read.parquet(str(path))
        grouped = batch.where("id <> 4").groupBy("k", "day").agg(F.count("*"), F.sum("id"))
        return sorted(map(tuple, grouped.collect()))

    for more in (range(15, 20), range(20, 31)):
        job.run(totals(), keys="k,day")
        assert sorted(job.rows()) == expected()
        append(path, more)
    DeltaTable(path).optimize.compact()
    job.run(totals(), keys="k,day")
    assert sum(row[2] for row in job.rows()) == 30, "rows that were only laid out anew do not count again"
    DeltaTable(path).delete("id = 30")
    query = job.start(totals(), keys="k,day")
    with pytest.raises(StreamingQueryException, match=r"DELTA_SOURCE_TABLE_IGNORE_CHANGES.*skipChangeCommits=true"):
        query.awaitTermination(DEADLINE_S)
    append(path, range(31, 33))
    job.run(totals(skipChangeCommits=True), keys="k,day")
    assert sum(row[2] for row in job.rows()) == 32


def test_a_change_data_feed_makes_a_copy_of_the_table(ckpt: Any, job: Job, tmp_path: Path) -> None:
    path, kinds = tmp_path / "t", {"insert": "+I", "update_preimage": "-U", "update_postimage": "+U", "delete": "-D"}
    write_deltalake(path, pa.table({"k": [1, 2, 3], "day": ["a", "a", "b"]}), partition_by=["day"],
                    configuration={"delta.enableChangeDataFeed": "true"})  # fmt: skip

    def merge(rows: dict[str, list[Any]]) -> None:
        merger = DeltaTable(path).merge(pa.table(rows), "t.k = s.k", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def copied() -> list[tuple[Any, ...]]:
        feed = ckpt.readStream.format("delta").options(readChangeFeed=True, startingVersion=0).load(str(path))
        told = feed.replace(kinds, subset=["_change_type"]).withColumnRenamed("_change_type", "op")
        job.run(told.drop("_commit_version", "_commit_timestamp"), keys="k", changeColumn="op")
        return sorted(job.rows())

    merge({"k": [1, 4], "day": ["b", "c"]})  # 1 moves to another file, which another task reads
    DeltaTable(path).delete("k = 2")
    merge({"k": [1, 2], "day": ["a", "c"]})
    assert copied() == [(1, "a"), (2, "c"), (3, "b"), (4, "c")]
    write_deltalake(path, pa.table({"k": [1, 5], "day": ["z", "z"]}), partition_by=["day"], mode="overwrite")
    assert copied() == [(1, "z"), (5, "z")]


def test_what_a_delta_stream_cannot_do_is_told_when_it_is_built(ckpt: Any, tmp_path: Path) -> None:
    append(tmp_path / "t", range(3))
    reader = ckpt.readStream.format("delta")
    with pytest.raises(ConfigError, match=r"knows its columns.*id:int.*leave .schema\(...\) out"):
        reader.schema("id int").load(str(tmp_path / "t"))
    with pytest.raises(ConfigError, match="expected a time such as"):
        ckpt.readStream.format("delta").option("startingTimestamp", "soon").load(str(tmp_path / "t"))
    later = ckpt.readStream.format("delta").option("startingTimestamp", "2000-01-01 00:00:00").load(str(tmp_path / "t"))
    (source,) = translated(ckpt, later)._lineage.sources
    assert source.options["startingTimestamp"] == "2000-01-01T00:00:00-05:00", "the session is in New York"
