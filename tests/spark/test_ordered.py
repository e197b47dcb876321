"""``orderBy`` and ``limit``, beside Spark's own streams over the same files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input, Job, last_result

NewInput = Callable[[str, str], Input]
BASE = datetime(2024, 3, 10, 12, tzinfo=timezone.utc)
SCHEMA = "t timestamp, k string, v double"
NAN = float("nan")


def _told(rows: Any) -> list[tuple[Any, ...]]:
    return [tuple("NaN" if v != v else v for v in row) for row in rows]


def _sums(df: Any) -> Any:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def _first_of_sums(df: Any) -> Any:
    """By two columns, one of which a projection leaves out; what follows works on each row."""
    ordered = _sums(df).select("k", "s").orderBy(F.desc_nulls_first("s"), F.length("k"))
    return ordered.limit(4).where("k is null or k <> 'b'").withColumn("twice", F.col("s") * 2)


def _by_number(df: Any) -> Any:
    return _sums(df).select("k", "s").sort("n", 1, ascending=[0, 1])


def _add(made: Input) -> None:
    made.add(*((BASE, key, value) for key, value in (("a", 1.0), ("bb", 5.0), ("b", 5.0), ("c", NAN), ("d", None))))
    made.add(*((BASE, key, 2.0) for key in ("a", "a", "e", None, "f", "e", "e")))


@pytest.mark.parametrize("query", [_first_of_sums, pytest.param(_by_number, marks=pytest.mark.soak)])
def test_a_whole_result_comes_in_the_order_that_spark_gives_it(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    made, delivered, delta = new_input("in", SCHEMA), [], f"{tmp_path}/delta"
    _add(made)
    writer = query(made.stream(ckpt)).writeStream.outputMode("complete").queryName("job")
    writer = writer.format("memory").option("path", job.sink).alsoTo("delta", path=delta)
    writer = writer.alsoTo(lambda df, _: delivered.append(_told(df.collect())))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    theirs = _told(last_result(query(made.spark_stream(spark)), tmp_path / "plain"))
    assert len(theirs) > 2
    assert _told(row.values() for row in memory.read(job.sink).to_pylist()) == theirs
    assert delivered[-1] == theirs
    assert _told(row.values() for row in pa.table(DeltaTable(delta).to_pyarrow_table()).to_pylist()) == theirs


def test_a_limit_counts_over_restarts_and_restores(ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path) -> None:
    """Which rows come is open in Spark, how many is not; the filter behind sees those only."""
    made = new_input("in", SCHEMA)

    def run(n: int, **options: str) -> list[tuple[Any, ...]]:
        made.add(*((BASE, f"{made._files}-{i}", float(made._files)) for i in range(4)))
        limited = made.stream(ckpt, maxFilesPerTrigger=2).limit(n).uid("some").where("v <> 2")
        job.run(limited.select("k", (F.col("v") + 1).alias("w")), **options)
        assert len(set(job.rows())) == len(job.rows())
        return job.rows()

    made.add(*((BASE, f"first-{i}", 1.0) for i in range(4)))
    first = run(7)
    assert len(first) == 7
    assert run(9, checkpointLocation=str(tmp_path / "elsewhere")) == first, "two more came, which the filter left out"
    assert len(set(run(12, checkpointLocation=str(tmp_path / "third"))) - set(first)) == 3


def test_behind_windows_a_limit_counts_those_that_end_and_in_mode_complete_those_of_each_result(
    ckpt: Any, job: Job, new_input: NewInput
) -> None:
    made = new_input("in", SCHEMA)
    made.add(*((BASE + timedelta(minutes=minute), "a", 1.0) for minute in range(0, 60, 10)))
    counted = made.stream(ckpt).withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes"))
    three = counted.agg(F.count("*").alias("n")).uid("w").limit(3).uid("three").select("n")
    job.run(three)
    assert job.rows() == [(1,)] * 3
    delivered: list[int] = []
    writer = three.writeStream.queryName("whole").outputMode("complete")
    writer = writer.foreachBatch(lambda df, _: delivered.append(df.count()))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    assert delivered == [3]


def test_what_has_no_order_is_refused_in_the_words_of_spark(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    sums = _sums(rows).uid("s")
    sorting = "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated"
    limits = "Limits are not supported on streaming DataFrames/Datasets in Update output mode"
    for df in (rows, rows.dropDuplicates(["k"]).uid("d"), sums.dropDuplicates(["n"]).uid("d")):
        for method in ("orderBy", "sort", "sortWithinPartitions"):
            with pytest.raises(InvalidInputError, match=sorting):
                ckpt.check(getattr(df, method)("k"), "append")
    for df, mode, said in (
        (sums.orderBy("k"), "update", sorting),
        (sums.orderBy("k"), "append", sorting),
        (rows.limit(2), "update", limits),
        (sums.limit(2), "update", limits),
        (rows.limit(2), "complete", "no streaming aggregations"),
        (sums.orderBy("k").dropDuplicates(["n"]).uid("d"), "complete", "'d' is none"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            df.writeStream.outputMode(mode)
    for df, said in ((sums.orderBy("k"), sorting), (sums.limit(2), limits)):
        with pytest.raises(InvalidInputError, match=said):
            df.writeStream.format("memory").option("name", "x").queryName("job").start()
    for wrong in (lambda: sums.orderBy("zz"), lambda: sums.orderBy(9), lambda: rows.limit(-1)):
        with pytest.raises((AnalysisException, InvalidInputError, IndexError)):
            wrong()
