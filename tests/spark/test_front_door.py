"""Plain PySpark and SQL over a stream of ours, by Spark's analysed plan: rows are those of Spark's batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.plan.analysed._leaves import source_stream, stream_frame
from spark_ckpt.plan.analysed._uids import with_uid
from spark_ckpt.plan.analysed.ledger import LEDGER, How
from spark_ckpt.plan.analysed.translate import HANDLERS, translated
from spark_ckpt.plan.lineage import SourceNode
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input, ordered

pytestmark = pytest.mark.smoke  # every kind of node of Spark's plans
SCHEMA = "id bigint, k string, v double, at timestamp, xs array<bigint>"
Made = Callable[[DataFrame], DataFrame]


def names_of(o: DataFrame) -> DataFrame:
    return o.sparkSession.table("names")


def one_more(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(v=frame["v"] + 1)


PROGRAMS: dict[str, Made | str] = {
    "filters and columns": lambda o: o.where("v > 3").withColumn("w", F.col("v") * 2).select("k", F.col("w")),
    "names twice": lambda o: o.select("k", F.col("v").alias("k")).toDF("k", "v").where("v < 9"),
    "aliases": lambda o: o.alias("a").select("a.k", F.col("a.v").alias("k")).drop("nothing").toDF("x", "y"),
    "aggregates": lambda o: o.groupBy("k").agg(F.sum(F.col("v") * F.col("id")) / F.count("*")),
    "having": lambda o: o.groupBy(F.upper("k").alias("u")).agg(F.avg("v").alias("m"), F.max("id").alias("x"))
    .where("x > 3").select("u", "m"),
    "generators": lambda o: o.select("k", F.explode("xs").alias("x")).groupBy("k").agg(F.sum("x")),
    "distinct": lambda o: o.select("k", F.col("id") % 2).distinct(),
    "duplicates of columns": lambda o: o.withWatermark("at", "1 minute").dropDuplicates(["k", "at"]).select("k", "v"),
    "functions in Python": lambda o: o.select("k", F.udf(lambda x: x + 1.0, "double")("v").alias("y")).where("y > 2"),
    "union": lambda o: o.select("k", "v").union(o.where("v > 5").select("k", F.col("id").cast("double"))),
    "with": "WITH big AS (SELECT * FROM {o} WHERE v > 3), two AS (SELECT k, sum(v) AS s FROM big GROUP BY k) "
    "SELECT k, s FROM two WHERE s > 1",
    "pipes": "FROM {o} |> WHERE v > 3 |> AGGREGATE sum(v) AS s GROUP BY k |> WHERE s > 10",
    "lateral view": "SELECT k, x FROM {o} LATERAL VIEW explode(xs) t AS x WHERE x > 4",
    "correlated": "SELECT k, v FROM {o} o WHERE EXISTS (SELECT 1 FROM names n WHERE n.k = o.k AND n.name <> 'one')",
    "left join with a table": lambda o: o.join(names_of(o), "k", "left").select("name", "v"),
    "inner join with a table": lambda o: names_of(o).alias("n").join(o.alias("o"), F.expr("o.k = n.k AND o.id > 3"))
    .select("n.name", "o.v"),
    "right join of a table": lambda o: names_of(o).join(o, "k", "right").select("name", "v"),
    "semi join": "SELECT {o}.k, v FROM {o} LEFT SEMI JOIN names ON {o}.k = names.k",
    "anti join": "SELECT {o}.k, v FROM {o} LEFT ANTI JOIN names ON {o}.k = names.k",
    "cross join": "SELECT name, v FROM {o} CROSS JOIN names",
    "unpivot": "SELECT name, val FROM (SELECT v, v * 2 AS w FROM {o}) UNPIVOT (val FOR name IN (v, w)) WHERE val < 9",
    "grouping sets": "SELECT concat(k, id % 2), sum(v) FROM {o} GROUP BY GROUPING SETS ((k), (id % 2), ())",
    "rollup": lambda o: o.rollup("k", F.col("id") % 2).agg(F.sum("v").alias("s"), F.grouping_id().alias("g"))
    .select("s", "g"),
    "windows": lambda o: o.groupBy(F.window("at", "2 minutes").alias("w"), "k").agg(F.sum("v").alias("s"))
    .select("w.start", "s"),
    "windows that overlap": lambda o: o.groupBy(F.window("at", "3 minutes", "1 minute", "10 seconds"))
    .agg(F.count("*").alias("n")).select("window", "n"),
    "windows of windows": lambda o: o.groupBy(F.window("at", "1 minute"), "k").agg(F.sum("v").alias("s"))
    .select(F.window(F.window_time("window"), "3 minutes").alias("w"), "s"),
    "a window in a column": lambda o: o.select(F.window("at", "1 minute").alias("w"), "v").where("v > 4")
    .select("w.end", "v"),
    "functions of batches": lambda o: o.select("k", "v").mapInPandas(one_more, "k string, v double"),
    "sub-query": "SELECT k, v FROM {o} WHERE k IN (SELECT k FROM names)",
}  # fmt: skip


class Orders:
    def __init__(self, spark: SparkSession, ckpt: Any, data: Input) -> None:
        self.spark, self.ckpt = spark, ckpt
        schema = spark.read.schema(SCHEMA).parquet(str(data.folder)).schema
        source = SourceNode("files", {"path": str(data.folder), "fileFormat": "parquet"}, schema, None)
        self.stream = stream_frame(source_stream(ckpt, source, schema))
        self.table = spark.read.schema(SCHEMA).parquet(str(data.folder))
        self.stream.createOrReplaceTempView("orders")
        self.table.createOrReplaceTempView("orders_table")
        spark.createDataFrame([("a", "one"), ("b", "two")], "k string, name string").createOrReplaceTempView("names")

    def of_stream(self, program: Made | str) -> DataFrame:
        return self.spark.sql(program.format(o="orders")) if isinstance(program, str) else program(self.stream)

    def of_table(self, program: Made | str) -> DataFrame:
        return self.spark.sql(program.format(o="orders_table")) if isinstance(program, str) else program(self.table)

    def run(self, df: DataFrame, folder: Path, mode: str, **options: str) -> list[tuple[Any, ...]]:
        writer = self.ckpt.writeStream(df).format("memory").option("path", str(folder))
        writer = writer.outputMode(mode).queryName(folder.name).options(**options)
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
        return ordered([tuple(row.values()) for row in memory.read(str(folder)).to_pylist()])


@pytest.fixture
def orders(spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]) -> Orders:
    from datetime import datetime, timedelta, timezone

    data, start = new_input("orders", SCHEMA), datetime(2026, 1, 1, tzinfo=timezone.utc)
    rows = [(i, "abc"[i % 3], i * 1.5, start + timedelta(seconds=30 * i), [i, i + 1]) for i in range(12)]
    data.add(*rows)
    return Orders(spark, ckpt, data)


def as_texts(df: DataFrame, name: str) -> DataFrame:
    first, second = df.toDF("one", "two").columns
    return df.toDF("one", "two").select(F.lit(name), F.col(first).cast("string"), F.col(second).cast("string"))


def together(made: dict[str, DataFrame]) -> DataFrame:
    first, *others = (as_texts(df, name) for name, df in made.items())
    for other in others:
        first = first.union(other)
    return first


def test_rows_of_every_kind_of_node_are_those_of_spark(orders: Orders, tmp_path: Path) -> None:
    """All in one query: a start of each would take minutes."""
    streams = together({name: orders.of_stream(program) for name, program in PROGRAMS.items()})
    tables = together({name: orders.of_table(program) for name, program in PROGRAMS.items()})
    assert orders.run(streams, tmp_path / "together", "update") == ordered([tuple(row) for row in tables.collect()])


def counted(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    n = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


class Counted(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n = sum(map(len, rows)) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def close(self) -> None: ...


def test_functions_and_processors_keep_their_state_by_key(orders: Orders, tmp_path: Path) -> None:
    grouped = orders.stream.groupBy("k")
    one = grouped.applyInPandasWithState(counted, "key string, n long", "n long", "update", "NoTimeout")
    other = grouped.transformWithStateInPandas(Counted(), "key string, n long", "update", "None")
    both = with_uid(one, "one").union(with_uid(other, "other"))
    assert [o.uid for o in translated(orders.ckpt, both)._lineage.operators] == ["one", "other"]
    assert orders.run(both, tmp_path / "functions", "update") == [(k, 4) for k in "aabbcc"]


def test_a_uid_names_the_state_of_the_operator_wherever_its_rows_go(orders: Orders, tmp_path: Path) -> None:
    totals = with_uid(orders.stream.groupBy("k").agg(F.sum("v").alias("s")), "totals")
    totals.createOrReplaceTempView("totals")
    again = orders.spark.sql("SELECT k, s FROM totals WHERE s > 1")
    assert [o.uid for o in translated(orders.ckpt, again)._lineage.operators] == ["totals"]
    both = again.union(totals.select("k", "s"))
    assert [o.uid for o in translated(orders.ckpt, both)._lineage.operators] == ["totals", "totals-2"]


def test_a_stream_that_spark_reads_rides_under_barriers(orders: Orders, new_input: Any, tmp_path: Path) -> None:
    more = new_input("more", SCHEMA)
    more.add((100, "a", 7.0, None, None), (101, "d", 1.0, None, None))
    both = orders.stream.select("k", "v").union(more.spark_stream(orders.spark).select("k", "v").where("v > 2"))
    totals = orders.run(both.groupBy("k").agg(F.sum("v")), tmp_path / "both", "update")
    assert dict(totals)["a"] == 27.0 + 7.0
    assert {k for k, _ in totals} == {"a", "b", "c"}


def test_results_come_in_order_and_a_limit_counts(orders: Orders, tmp_path: Path) -> None:
    totals = orders.stream.groupBy("k").agg(F.sum("v").alias("s"))
    best = totals.orderBy(F.desc("s"), "k").limit(2)
    assert orders.run(best, tmp_path / "best", "complete") == [("b", 33.0), ("c", 39.0)]
    few = with_uid(orders.stream.select("id").limit(5), "few")
    assert len(orders.run(few, tmp_path / "few", "append")) == 5


def test_observed_metrics_are_of_data_rows(orders: Orders, tmp_path: Path) -> None:
    counted = orders.stream.observe("seen", F.count(F.lit(1)).alias("n"), F.sum("v").alias("s")).where("v > 3")
    writer = orders.ckpt.writeStream(counted).format("memory").option("path", str(tmp_path / "o"))
    query = writer.queryName("observed").trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    found = [p.observedMetrics["seen"] for p in query.recentProgress if "seen" in p.observedMetrics]
    assert sum(row["n"] for row in found) == 12
    assert sum(row["s"] or 0 for row in found) == 99.0


def test_two_operators_of_one_uid_are_refused(orders: Orders) -> None:
    one, two = (with_uid(orders.stream.groupBy("k").agg(F.sum(c).alias("s")), "totals") for c in ("v", "id"))
    with pytest.raises(TopologyError, match="totals"):
        translated(orders.ckpt, one.union(two))


def test_a_uid_stands_behind_an_operator(orders: Orders) -> None:
    with pytest.raises(InvalidInputError, match="expected a DataFrame that ends with an operator that keeps state"):
        with_uid(orders.stream.where("v > 1"), "totals")


def test_what_the_ledger_refuses_is_told_with_a_way(orders: Orders) -> None:
    with pytest.raises(InvalidInputError, match=r"Offset: .* row_number\(\) and a filter"):
        translated(orders.ckpt, orders.stream.offset(3))


def test_every_handler_that_the_ledger_names_is_there() -> None:
    here = {How.ROW_BY_ROW, How.NAMES, How.OPERATOR, How.SOURCE}
    assert {entry.by for entry in LEDGER if entry.how in here} == set(HANDLERS)
