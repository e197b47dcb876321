"""Output mode complete, beside Spark's own streams over the same files: a checkpoint replaces what the sinks have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import ConfigError, InvalidInputError
from tests.spark.conftest import DEADLINE_S, Input, Job, last_result, named, ordered

NewInput = Callable[[str, str], Input]
BASE = datetime(2024, 3, 10, 12, tzinfo=timezone.utc)
SCHEMA = "t timestamp, k string, v int"


def _few(df: Any) -> Any:
    """Keys that have little: as rows arrive, they leave it again."""
    return named(df.groupBy("k").agg(F.count("*").alias("n"), F.collect_set("v").alias("vs")), "few").where("n < 3")


def _windows(df: Any) -> Any:
    window = F.window("t", "10 minutes")
    counted = named(df.withWatermark("t", "1 minute").groupBy(window, "k").agg(F.sum("v").alias("s")), "windows")
    return counted.select(F.col("window.start").cast("long").alias("start"), "k", "s")


def _sessions(df: Any) -> Any:
    """By a column, as no watermark says when they end."""
    rows = df.withColumn("s", F.session_window("t", "5 minutes")).where("v <> 25")
    made = named(rows.groupBy("s", "k").agg(F.sum("v").alias("v"), F.collect_set("v").alias("vs")), "sessions").orderBy(
        "s", "k"
    )
    return made.select(
        F.col("s.start").cast("long").alias("start"), F.col("s.end").cast("long").alias("end"), "v", "vs"
    )


def _side_by_side(df: Any, **_: str) -> Any:
    """Two results, one of which is there twice."""
    counts = df.groupBy("k").agg(F.count("*").alias("n"))
    values = df.where("v > 1").groupBy((F.col("v") % 3).cast("string").alias("k")).agg(F.sum("v").alias("n"))
    return counts.union(values).union(counts.where("n > 4"))


def _sets(rows: Any) -> list[tuple[Any, ...]]:
    return ordered(tuple(sorted(v) if isinstance(v, list) else v for v in row) for row in rows)


def test_each_checkpoint_replaces_the_rows_of_every_sink_and_may_leave_none(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    made, delivered = new_input("in", SCHEMA), []
    url, delta = f"sqlite:///{tmp_path}/x.db", f"{tmp_path}/delta"

    def run(**options: str) -> None:
        rows = _few(made.stream(ckpt)).selectExpr("k", "n", "size(vs) AS vs")
        writer = rows.writeStream.format("memory").option("path", job.sink).queryName("job").outputMode("complete")
        writer = writer.alsoTo("sql", url=url, table="few").alsoTo("delta", path=delta, where="k = 'a'")
        writer = writer.alsoTo(lambda df, k: delivered.append(ordered(map(tuple, df.collect()))))
        for key, value in options.items():
            writer = writer.option(key.replace("__", "."), value)
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)

    def everywhere(expected: list[tuple[Any, ...]]) -> None:
        assert job.rows() == expected
        assert delivered[-1] == expected
        with sa.create_engine(url).connect() as connection:
            assert ordered(map(tuple, connection.execute(sa.text("select k, n, vs from few")))) == expected
        found = pa.table(QueryBuilder().register("t", DeltaTable(delta)).execute("select k, n, vs from t").read_all())
        assert [tuple(r.values()) for r in found.to_pylist()] == [row for row in expected if row[0] == "a"]

    made.add((BASE, "a", 1), (BASE, "b", 1), (BASE, "b", 2))
    made.add((BASE, "b", 3), (BASE, None, 7))
    run()
    everywhere([("a", 1, 1), (None, 1, 1)])
    made.add((BASE, "a", 1), (BASE, "c", None))
    run()
    everywhere([("a", 2, 1), ("c", 1, 0), (None, 1, 1)])
    made.add(*((BASE, key, 1) for key in ("a", "c", "c", None, None)))
    run(checkpointLocation=str(tmp_path / "elsewhere"))
    everywhere([])
    assert last_result(_few(made.spark_stream(spark)), tmp_path / "plain") == []


@pytest.mark.parametrize(
    "query", [_windows, *(pytest.param(q, marks=pytest.mark.soak) for q in (_few, _sessions, _side_by_side))]
)
def test_the_result_is_that_of_spark_and_no_row_is_late(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    made = new_input("in", SCHEMA)
    for minute in (0, 25, 1, 60, 3):  # every other one is behind the watermark
        time = BASE + timedelta(minutes=minute)
        made.add((time, "a", minute), (time, None, 1), (time, f"k{minute // 2}", 1))
    theirs = ordered(last_result(query(made.spark_stream(spark)), tmp_path / "plain"))
    assert theirs
    job.run(query(made.stream(ckpt)), mode="complete")
    assert _sets(job.rows()) == _sets(theirs)


def test_a_query_of_windows_that_have_ended_keeps_those_it_has(
    ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    """From mode update to complete: its windows have time-outs that pass now."""
    made = new_input("in", SCHEMA)
    made.add((BASE, "a", 1))
    made.add((BASE + timedelta(minutes=9), "a", 2))
    job.run(_windows(made.stream(ckpt)), mode="update", keys="start,k")
    made.add((BASE + timedelta(hours=1), "a", 3))
    made.add((BASE + timedelta(hours=2), "a", 4))
    made.add((BASE + timedelta(minutes=1), "a", 5))
    job.run(_windows(made.stream(ckpt)), mode="complete", checkpointLocation=str(tmp_path / "elsewhere"))
    assert sorted(s for _, _, s in job.rows()) == [3, 4, 8]


def _everything(df: Any) -> Any:
    kept = (
        "count(*)",
        "count(v)",
        "sum(v)",
        "avg(v)",
        "max(k)",
        "stddev(v)",
        "last(v)",
        "first(v, true)",
        "bool_or(v > 1)",
    )
    in_families = ("collect_list(v)", "count(distinct v)", "percentile(v, 0.5)", "mode(v)")
    made = [F.expr(text).alias(f"a{i}") for i, text in enumerate((*kept, *in_families))]
    return named(df.where("v > 10").agg(*made), "everything")


@pytest.mark.parametrize("mode", ["complete", pytest.param("update", marks=pytest.mark.soak)])
def test_an_aggregate_over_everything_has_a_row_before_any_row_came(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, mode: str
) -> None:
    """As in Spark; in mode update once, where Spark repeats it in each batch."""
    made = new_input("in", SCHEMA)
    shown: list[tuple[Any, ...]] = []
    for where, value in (("one", 1), ("one", 2), ("another", 30)):
        made.add((BASE, "a", value))
        job.run(_everything(made.stream(ckpt)), mode=mode, checkpointLocation=str(tmp_path / where))
        (result,) = ordered(map(tuple, _everything(made.table(spark)).collect()))
        if mode == "complete":
            shown = [result]
        elif result not in shown:
            shown.append(result)
        assert job.rows() == ordered(shown)


def test_what_has_no_whole_result_is_refused(ckpt: Any, new_input: NewInput, tmp_path: Path) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    counted = rows.groupBy("k").agg(F.count("*").alias("n")).uid("n")
    running = rows.groupBy("k").aggregate(emit="rows", n=agg.count()).uid("r")
    for df, said in (
        (rows, "there is none"),
        (rows.dropDuplicates(["k"]).uid("d"), "'d' is none"),
        (running, "'r' is none"),
        (counted.groupBy("n").agg(F.count("*")).uid("nn"), "'n' puts out is aggregated further"),
        (counted.select("k").union(rows.select("k")), "a union brings rows"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            df.writeStream.outputMode("complete")
    writer = counted.writeStream.queryName("job").outputMode("complete")
    with pytest.raises(ConfigError, match="mergeKeys: in outputMode complete"):
        writer.format("memory").option("path", str(tmp_path / "m")).option("mergeKeys", "k").start()
    with pytest.raises(InvalidInputError, match=r"mode: complete\. .* not supported in Data Source parquet"):
        counted.writeStream.queryName("job").outputMode("complete").format("parquet").start(str(tmp_path / "f"))
