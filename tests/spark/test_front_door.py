"""Plain PySpark and SQL over a stream of ours, by Spark's analysed plan: rows are those of Spark's batch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.execution.lineage import Leaves
from spark_ckpt.plan.analysed.ledger import LEDGER, How, entry_of
from spark_ckpt.plan.analysed.ledger_of_expressions import kind_of_expression
from spark_ckpt.plan.analysed.translate import HANDLERS, translated
from spark_ckpt.plan.analysed.uids import with_uid
from spark_ckpt.plan.grouped_methods import aggregate, applyInArrowWithState, topN
from spark_ckpt.sinks import memory
from spark_ckpt.spark_versions import spark_version
from tests.spark.conftest import DEADLINE_S, Input, ordered

pytestmark = pytest.mark.smoke  # every kind of node of Spark's plans
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "id bigint, k string, v double, at timestamp, xs array<bigint>"
Made = Callable[[DataFrame], DataFrame]


def is_sql(text: Any) -> bool:
    """Of this Spark: QUALIFY came with 4.2."""
    return "QUALIFY" not in str(text) or spark_version() >= (4, 2)


def names_of(o: DataFrame) -> DataFrame:
    return o.sparkSession.table("names")


def one_more(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(v=frame["v"] + 1)


def sizes(key: Any, rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [key[0]], "n": [100 * key[1] + len(rows)]})


def total(values: pd.Series) -> float:
    return float(values.sum())


class Spread:
    def eval(self, text: str) -> Iterator[tuple[str]]:
        yield (text,)


PROGRAMS: dict[str, Made | str] = {
    "filters and columns": lambda o: o.where("v > 3").withColumn("w", F.col("v") * 2).select("k", F.col("w")),
    "names twice": lambda o: o.select("k", F.col("v").alias("k")).toDF("k", "v").where("v < 9"),
    "aliases": lambda o: o.alias("a").select("a.k", F.col("a.v").alias("k")).drop("nothing").toDF("x", "y"),
    "aggregates": lambda o: o.groupBy("k").agg(F.sum(F.col("v") * F.col("id")) / F.count("*")),
    "a key beside a column of its name": "SELECT b.k, max(a.k) FROM {o} a JOIN (SELECT id + 1 AS id, k FROM {o}) b "
    "ON a.id = b.id GROUP BY b.k",
    "a key beside a column stored so": lambda o: o.select(F.col("k").alias("w 1"), F.col("id").alias("w_1"))
    .groupBy("w 1").agg(F.max("w_1")),
    "a window beside a column of its start's name": lambda o: o.withColumn("window_start", F.col("id"))
    .groupBy(F.upper("k"), F.window("at", "2 minutes")).agg(F.max("window_start").alias("m"))
    .select(F.concat("upper(k)", "window.start"), "m"),
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
    "join of streams": "SELECT a.k, b.v FROM {o} a JOIN {o} b ON a.id = b.id + 3 AND a.v > b.v AND b.v + a.v < 30",
    "join of streams by names": lambda o: o.select("id", "k").join(o.select("id", "v").where("v > 2"), "id")
    .select("k", "v"),
    "join of streams in WHERE": "SELECT a.k, c.v FROM {o} a, {o} b, {o} c WHERE a.id = b.id AND b.k = c.k AND c.v < 9",
    "lateral join with a table": "SELECT name, v FROM {o} o, "
    "LATERAL (SELECT name FROM names n WHERE n.k = o.k LIMIT 1)",
    "left lateral join": "SELECT name, v FROM {o} o LEFT JOIN "
    "LATERAL (SELECT * FROM VALUES ('a', 'one'), ('b', 'two') n(q, name) WHERE q = o.k) n ON n.name <> 'one'",
    "lateral generators": "SELECT k, x + y FROM {o} o, LATERAL explode(o.xs) t(x), "
    "LATERAL (SELECT x * 2 + id AS y) WHERE x + y > 9",
    "lateral method": lambda o: o.lateralJoin(o.sparkSession.tvf.explode(F.col("xs").outer()).toDF("x"), how="left")
    .select("k", "x"),
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
    "first rows": "SELECT concat(k, v), row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM {o} "
    "QUALIFY n <= 2",
    "latest row": "SELECT k, v FROM {o} QUALIFY 1 = row_number() OVER (PARTITION BY upper(k) ORDER BY -id)",
    "third row of all": lambda o: o.withColumn("n", F.row_number().over(Window.orderBy("id"))).where("n = 3 and n < 9")
    .select("n", "v"),
    "rank of sums": "SELECT k, n FROM (SELECT *, rank() OVER (PARTITION BY p ORDER BY s, k) AS n FROM (SELECT k, "
    "id % 2 AS p, sum(v) AS s FROM {o} GROUP BY k, p)) WHERE n BETWEEN 1 AND 2 AND p = 1",
    "groups": lambda o: o.groupBy("k", F.col("id") % 2).applyInPandas(sizes, "k string, n long"),
    "groups in arrow": lambda o: o.select("v", "k").groupBy(F.upper("k").alias("u"), "k").applyInArrow(
        lambda key, rows: pa.table({"u": [key[0].as_py()], "s": [pc.sum(rows["v"]).as_py()]}), "u string, s double"),
    "cogroups": lambda o: o.groupBy(F.upper("k")).cogroup(names_of(o).groupBy(F.upper("k"))).applyInPandas(
        lambda left, right: pd.DataFrame({"l": [len(left)], "r": [len(right)]}), "l long, r long"),
    "keys that are carried": "SELECT cast(m AS string) || i, count(*) FROM (SELECT map(k, id % 2) AS m, "
    "make_dt_interval(id % 2) AS i FROM {o}) GROUP BY m, i",
    "intersect": "SELECT k, 'here' FROM {o} INTERSECT SELECT k, 'here' FROM names",
    "except": lambda o: o.select("k", F.lit("a")).subtract(names_of(o).select("k", F.lit("a"))),
    "a sample of all": lambda o: o.sample(1.0).sampleBy("k", {"a": 1.0, "b": 0.0}).select("k", "v"),
    "a sample of none": "SELECT k, v FROM {o} TABLESAMPLE (0 PERCENT)",
    "not deterministic": "SELECT k, rand() < 1 AND uuid() > '' AND monotonically_increasing_id() >= 0 AND "
    "spark_partition_id() >= 0 AND now() > '2000-01-01' AND length(randstr(3)) = size(shuffle(array(1, 2, 3))) AND "
    "reflect('java.lang.Math', 'abs', -1) = '1' AND uniform(1, 3) < 3 FROM {o}",
    "pivot of lists": lambda o: o.groupBy("k").pivot("id", [1, 2]).agg(F.collect_list("v")).select("k", "`2`"),
}  # fmt: skip

ENDING: dict[str, Made | str] = {
    "sessions": lambda o: o.groupBy(F.session_window("at", "45 seconds").alias("w"), F.upper("k").alias("u"))
    .agg(F.sum("v").alias("s")).select(F.concat("w.start", "u", "w.end"), "s"),
    "sessions of all rows": lambda o: o.groupBy(F.session_window("at", "20 seconds")).count(),
    "sessions as long as rows say": lambda o: o.groupBy("k", F.session_window("at", F.expr(
        "CASE k WHEN 'a' THEN '100 seconds' WHEN 'b' THEN '0 seconds' ELSE '1 month' END")).alias("w")).count()
    .select("w", F.concat("k", "count")),
    "sessions in a column": lambda o: o.select("k", F.session_window("at", "95 seconds").alias("w")).where("k <> 'a'")
    .groupBy("w").count(),
    "sessions of windows": lambda o: o.groupBy(F.window("at", "1 minute"), "k").count()
    .groupBy(F.session_window("window", "2 minutes")).agg(F.sum("count")),
    "pivot": lambda o: o.groupBy(F.window("at", "3 minutes")).pivot("k", ["b", "a", "z"])
    .agg(F.sum("v").alias("s"), F.max("id").alias("m")).select("window", F.concat_ws(" ", "b_s", "b_m", "a_m", "z_s")),
    "pivot of structs": "SELECT at, first FROM (SELECT id, k, at, v FROM {o}) PIVOT (sum(v) FOR (id, k) IN ((4, 'b') "
    "AS first, (5, 'b')))",
}  # fmt: skip
"""What comes out of groups that have ended: all have at the end of the input."""


class Orders:
    def __init__(self, spark: SparkSession, ckpt: Any, data: Input) -> None:
        self.spark, self.ckpt = spark, ckpt
        self.stream = ckpt.readStream.schema(SCHEMA).parquet(str(data.folder))
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
    data = new_input("orders", SCHEMA)
    rows = [(i, "abc"[i % 3], i * 1.5, BEGIN + timedelta(seconds=30 * i), [i, i + 1]) for i in range(12)]
    data.add(*rows)
    return Orders(spark, ckpt, data)


def as_texts(df: DataFrame, name: str) -> DataFrame:
    first, second = df.toDF("one", "two").columns
    return df.toDF("one", "two").select(F.lit(name), F.col(first).cast("string"), F.col(second).cast("string"))


def together(made: dict[str, DataFrame]) -> DataFrame:
    first, *others = (as_texts(df, name) for name, df in made.items())
    for other in others:
        first = first.union(other)
    return first.coalesce(2)  # else each branch has tasks of its own, which all read the plan of all branches


TOGETHER = 18
"""Programs in one query: a start of each would take minutes, and Spark takes longer the longer a union is."""


def test_rows_of_every_kind_of_node_are_those_of_spark(orders: Orders, tmp_path: Path) -> None:
    programs = {name: program for name, program in PROGRAMS.items() if is_sql(program)}
    for begin in range(0, len(programs), TOGETHER):
        some = dict(itertools.islice(programs.items(), begin, begin + TOGETHER))
        streams = together({name: orders.of_stream(program) for name, program in some.items()})
        tables = together({name: orders.of_table(program) for name, program in some.items()})
        found = orders.run(streams, tmp_path / f"from {begin}", "update")
        assert found == ordered([tuple(row) for row in tables.collect()])


LEAVING: dict[str, frozenset[Leaves]] = {
    "first rows": frozenset({Leaves.FORM}),
    "keys that are carried": frozenset({Leaves.FORM, Leaves.FUNCTION}),
    **dict.fromkeys(
        (
            "a sample of all",
            "a sample of none",
            "correlated",
            "functions in Python",
            "not deterministic",
            "sub-query",
            "windows of windows",
        ),
        frozenset({Leaves.FUNCTION}),
    ),
    **dict.fromkeys(
        ("generators", "grouping sets", "lateral generators", "lateral method", "lateral view", "rollup", "unpivot"),
        frozenset({Leaves.OPERATION}),
    ),
    **dict.fromkeys(
        ("cross join", "except", "intersect", "lateral join with a table", "left lateral join"),
        frozenset({Leaves.TABLE}),
    ),
    **dict.fromkeys(
        ("groups", "groups in arrow"),
        frozenset({Leaves.WHOLE}),
    ),
}
"""Of ``PROGRAMS``: why some of their rows leave Arrow. Those of all others stay there."""


def test_rows_leave_arrow_for_reasons_of_the_ledger_alone(orders: Orders) -> None:
    some = {name: made for name, made in PROGRAMS.items() if is_sql(made)}
    found = {name: translated(orders.ckpt, orders.of_stream(made))._lineage.places for name, made in some.items()}
    left = {name: [place for place in places if place.leaves is not None] for name, places in found.items()}
    assert [p for places in left.values() for p in places if p.leaves not in entry_of(p.node).leaves] == []
    assert {name: {p.leaves for p in places} for name, places in left.items() if places} == {
        name: why for name, why in LEAVING.items() if name in some
    }


REFUSED_KINDS = {
    "lag(v) OVER (PARTITION BY k ORDER BY id)": "Lag",
    "sum(v) OVER (PARTITION BY k ORDER BY id)": "Lag",
    "count_min_sketch(id, 0.1d, 0.9d, 1)": "CountMinSketchAgg",
    "spread(k)": "PythonUDTF",
    "sql_keywords()": "SQLKeywords",
    "total(v)": "PythonUDAF",
}
"""What is written, and the row of the ledger that says what to write instead."""


@pytest.mark.parametrize("text", REFUSED_KINDS)
def test_expressions_that_the_ledger_refuses_are_told_with_its_way(orders: Orders, text: str) -> None:
    orders.spark.udtf.register("spread", F.udtf(Spread, returnType="x string"))
    orders.spark.udf.register("total", F.pandas_udf(total, "double"))
    in_from = text.startswith(("spread", "sql_keywords"))
    asked = f"SELECT k FROM orders, LATERAL {text}" if in_from else f"SELECT {text} FROM orders"
    with pytest.raises(InvalidInputError, match=re.escape(kind_of_expression(REFUSED_KINDS[text]).says)):
        translated(orders.ckpt, orders.spark.sql(asked))


def test_groups_that_have_ended_are_those_of_spark(orders: Orders, tmp_path: Path) -> None:
    orders.stream = orders.stream.withWatermark("at", "1 minute")
    orders.stream.createOrReplaceTempView("orders")
    timed = orders.stream.groupBy("k").transformWithStateInPandas(
        Passed(), "at timestamp", "append", "eventTime", eventTimeColumnName="at"
    )
    of_counts = {"of a processor": timed.groupBy(F.window("at", "1 minute")).agg(F.count("*"))}
    of_counts_expected = {"of a processor": orders.table.groupBy(F.window("at", "1 minute")).agg(F.count("*"))}
    streams = together({name: orders.of_stream(made) for name, made in ENDING.items()} | of_counts)
    tables = together({name: orders.of_table(made) for name, made in ENDING.items()} | of_counts_expected)
    found = orders.run(streams, tmp_path / "ending", "append", **{"spark.ckpt.endOfInput.closeWindows": "true"})
    assert found == ordered([tuple(row) for row in tables.collect()])


def counted(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    n = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


class Counted(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInitialState(self, key: Any, state: pd.DataFrame, timerValues: Any) -> None:
        self.count.update((int(state["n"].iloc[0]),))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n = sum(map(len, rows)) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def close(self) -> None: ...


class Passed(StatefulProcessor):
    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        yield from (frame[["at"]] for frame in rows)

    def close(self) -> None: ...


NEAR = "a.k = b.k AND b.at BETWEEN a.at - INTERVAL 1 MINUTE AND a.at + INTERVAL 90 SECONDS AND b.v % 4 + a.v < 20"
WAITING = {
    "LEFT": f"SELECT a.id, b.id FROM {{o}} a LEFT JOIN {{o}} b ON {NEAR} AND a.id <> 3",
    "RIGHT": f"SELECT a.id, b.id FROM {{o}} a RIGHT JOIN {{o}} b ON {NEAR} WHERE b.id > 1 OR a.id IS NULL",
    "FULL": f"SELECT a.id, b.id FROM {{o}} a FULL JOIN {{o}} b ON {NEAR} AND b.id % 2 = 0",
    "SEMI": f"SELECT a.id, a.v FROM {{o}} a LEFT SEMI JOIN {{o}} b ON {NEAR} AND a.id < b.id",
    "ON A FUNCTION": "SELECT a.id, b.id FROM {o} a LEFT JOIN {o} b "
    f"ON upper(a.k) = upper(b.k) AND a.v <> b.v AND {NEAR}",
}


def test_rows_of_two_streams_wait_for_each_other(
    orders: Orders, new_input: Callable[[str, str], Input], tmp_path: Path
) -> None:
    """When the watermark has passed all rows but the last, the rest is a join of tables."""
    data, hour = new_input("waiting", SCHEMA), timedelta(hours=1)
    rows = [(i, "abc"[i % 3] if i else None, i * 1.5, BEGIN + timedelta(seconds=30 * i), []) for i in range(12)]
    for part in (rows[:7], rows[7:], [(99, "z", 0.0, BEGIN + hour, [])]):
        data.add(*part)
    stream = orders.ckpt.readStream.option("maxFilesPerTrigger", 1).schema(SCHEMA).parquet(str(data.folder))
    stream.withWatermark("at", "1 minute").createOrReplaceTempView("ours")
    data.table(orders.spark).createOrReplaceTempView("theirs")
    ours, theirs = (
        together({kind: orders.spark.sql(text.format(o=name)) for kind, text in WAITING.items()})
        for name in ("ours", "theirs")
    )
    expected = [row for row in ordered(tuple(row) for row in theirs.collect()) if "99" not in row]
    assert [row for row in orders.run(ours, tmp_path / "out", "append") if "99" not in row] == expected
    assert {kind for kind, *_ in expected} == set(WAITING)


JoinOfTwo = Callable[[DataFrame, DataFrame], DataFrame]
REFUSED_JOINS: list[tuple[JoinOfTwo, str]] = [
    (lambda a, b: a.join(b, "k", "left"), "LeftOuter join between two streaming .* not supported without a watermark"),
    (lambda a, b: a.join(b, "k", "full"), "FullOuter join .* not supported without"),
    (lambda a, b: a.join(b, "k", "left_semi"), "LeftSemi join .* not supported without"),
    (lambda a, b: a.join(b, "k", "left_anti"), "LeftAnti joins with a streaming .*isNull"),
    (lambda a, b: a.join(b, F.col("v") > F.col("w")), "join without equality predicate is not supported"),
    (lambda a, b: a.crossJoin(b), "join without equality predicate is not supported"),
]


@pytest.mark.parametrize("join", range(len(REFUSED_JOINS)))
def test_joins_of_streams_that_spark_refuses_are_refused_with_its_condition(orders: Orders, join: int) -> None:
    made, said = REFUSED_JOINS[join]
    joined = made(orders.stream, orders.stream.select("k", F.col("v").alias("w")))
    with pytest.raises(InvalidInputError, match=f"(?s){said}") as refused:
        translated(orders.ckpt, joined)
    assert isinstance(refused.value, AnalysisException)


def test_a_sub_query_that_would_aggregate_the_stream_is_refused(orders: Orders) -> None:
    found = "(SELECT max(name) FROM names n WHERE n.k > o.k)"
    for text in (f"SELECT id, {found} FROM orders o", f"SELECT id FROM orders o, LATERAL {found} x"):
        with pytest.raises(InvalidInputError, match=r"a sub-query aggregates rows .* collect_list"):
            translated(orders.ckpt, orders.spark.sql(text))


def test_a_filter_behind_a_join_leaves_its_state_and_its_uid_as_they_are(orders: Orders) -> None:
    timed = orders.stream.withWatermark("at", "1 minute")
    one, other = timed.alias("a"), timed.selectExpr("k AS q", "v AS w", "at AS seen").alias("b")
    joined = with_uid(one.join(other, F.expr("k = q AND seen BETWEEN at AND at + INTERVAL 1 MINUTE"), "left"), "near")
    kept = joined.where("v > 1 AND w > 2 AND v < w + 7")
    plain, filtered_ = (translated(orders.ckpt, df)._lineage for df in (joined, kept))
    (before,), (after,) = plain.operators, filtered_.operators
    assert after.uid == "near"
    assert (after.layout, after.families, after.made_of) == (before.layout, before.families, before.made_of)


def test_functions_and_processors_keep_their_state_by_key(orders: Orders, tmp_path: Path) -> None:
    grouped = orders.stream.groupBy("k")
    one = grouped.applyInPandasWithState(counted, "key string, n long", "n long", "update", "NoTimeout")
    other = grouped.transformWithStateInPandas(Counted(), "key string, n long", "update", "None")
    before = orders.spark.createDataFrame([(100, "a"), (7, "z")], "n long, kept string").groupBy("kept")
    third = grouped.transformWithStateInPandas(Counted(), "key string, n long", "update", "None", initialState=before)
    all_three = with_uid(one, "one").union(with_uid(other, "other")).union(with_uid(third, "third"))
    assert [o.uid for o in translated(orders.ckpt, all_three)._lineage.operators] == ["one", "other", "third"]
    expected = ordered([(k, 4) for k in "aabbbccc"] + [("a", 104)])
    assert orders.run(all_three, tmp_path / "functions", "update") == expected


def kept(rows: pa.Table, state: pa.Table, _ctx: Any) -> tuple[pa.Table, pa.Table]:
    n = pc.add(pc.fill_null(state["n"], 0), pa.array(np.bincount(rows["_key"].to_numpy(), minlength=len(state))))
    return pa.table({"k": state["k"], "n": n}), pa.table({"n": n})


def test_groups_have_the_operators_that_pyspark_has_not(orders: Orders, tmp_path: Path) -> None:
    """Under their uids, and behind a view."""
    grouped = orders.stream.where("k <> 'c'").groupBy("k")
    topN(grouped, 2, F.col("v") * -1, rank="place").createOrReplaceTempView("best")
    best = orders.spark.sql("SELECT k, concat(v, op, place) AS x FROM best")
    running = aggregate(grouped, emit="rows", orderBy="id", total=agg.sum("id")).select("k", F.expr("string(total)"))
    whole = with_uid(applyInArrowWithState(grouped, kept, "k string, n long", "n long"), "whole")
    rows = best.union(running).union(whole.select("k", F.concat(F.lit("n "), "n")))
    assert "whole" in [o.uid for o in translated(orders.ckpt, rows)._lineage.operators]
    expected = [("a", "13.5+I1"), ("a", "9.0+I2"), ("b", "15.0+I1"), ("b", "10.5+I2"), ("a", "n 4"), ("b", "n 4")]
    expected += [(k, str(total)) for k, totals in (("a", (0, 3, 9, 18)), ("b", (1, 5, 12, 22))) for total in totals]
    assert orders.run(rows, tmp_path / "own", "append") == ordered(expected)
    with pytest.raises(InvalidInputError, match=r"topN: the rows of operator 'aggregate' are updates.*mergeKeys"):
        translated(orders.ckpt, topN(orders.stream.groupBy("k").count().groupBy(), 1, "count"))


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


RANKED = {
    "rows": "SELECT 'rows' AS q, k, id AS x, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM {o} "
    "QUALIFY n < 3",
    "sums": "SELECT 'sums' AS q, k, x, row_number() OVER (PARTITION BY k ORDER BY s DESC, x) AS n FROM (SELECT k, "
    "id % 4 AS x, sum(v) AS s FROM {o} GROUP BY k, id % 4) QUALIFY n < 3",
    "ranks": "SELECT 'ranks' AS q, 'all' AS k, x, dense_rank() OVER (ORDER BY s DESC, x) AS n FROM (SELECT id % 7 "
    "AS x, sum(v) AS s FROM {o} GROUP BY x) QUALIFY n <= 3",
}


@pytest.mark.soak  # the texts are in PROGRAMS, and test_topn.py has what rises and falls in several batches
def test_rows_take_the_place_of_those_that_had_their_number(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], tmp_path: Path
) -> None:
    """Of rows, and of sums that rise and fall, in several batches."""
    data = new_input("ranked", "id bigint, k string, v double")
    for batch in range(3):
        data.add(*((i, "ab"[i % 2], float(i * 37 % 101 - 40)) for i in range(batch * 9, batch * 9 + 9)))
    options = {"fileFormat": "parquet", "maxFilesPerTrigger": 1, "discoveryInterval": "1ms"}
    table = data.table(spark)
    stream = ckpt.readStream.format("files").options(**options).schema(table.schema).load(str(data.folder))
    made: dict[str, DataFrame] = {}
    for name, df in (("stream", stream), ("table", table)):
        df.createOrReplaceTempView(name)
        one, two, three = (spark.sql(text.format(o=name)) for text in RANKED.values())
        made[name] = one.union(two).union(three)
    writer = ckpt.writeStream(made["stream"]).format("memory").option("path", str(tmp_path / "o"))
    writer = writer.option("mergeKeys", "q,k,n").outputMode("update").queryName("ranks").trigger(availableNow=True)
    assert writer.start().awaitTermination(DEADLINE_S)
    found = ordered([tuple(row.values()) for row in memory.read(str(tmp_path / "o")).to_pylist()])
    assert found == ordered([tuple(row) for row in made["table"].collect()])


REFUSED = {
    "SELECT lag(v) OVER (PARTITION BY k ORDER BY at) FROM orders": r"lag\(v, 1, NULL\) .*transformWithState",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM orders": "WHERE n <= 3",
    "SELECT k, v FROM orders QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) <= 2": "Select it among the columns",
    "SELECT k, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM orders QUALIFY n <= 2": r"write row_number\(\)",
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM orders QUALIFY n < 3 AND v > 3": r"\(v > 3\)",
    "SELECT *, row_number() OVER (PARTITION BY s > 3 ORDER BY s) AS n FROM (SELECT k, sum(v) AS s FROM orders GROUP BY "
    "k) QUALIFY n = 1": r"PARTITION BY \(s > 3\): the rows are updates",
    "SELECT *, row_number() OVER (ORDER BY s) AS n FROM (SELECT k, sum(v) AS s FROM orders GROUP BY k HAVING s > 3) "
    "QUALIFY n = 1": r"\(s > 3\): of an update that it leaves out",
    "SELECT k FROM orders INTERSECT ALL SELECT k FROM names": "Intersect All: .* write INTERSECT",
    "SELECT k FROM names EXCEPT SELECT k FROM orders": "Except on a streaming DataFrame/Dataset on the right",
    "SELECT k COLLATE UNICODE_CI AS c, count(*) FROM orders GROUP BY c": "key 'c' has type string collate UNICODE_CI",
}


def test_what_cannot_be_exact_is_refused_by_its_name(orders: Orders) -> None:
    for text, said in ((text, said) for text, said in REFUSED.items() if is_sql(text)):
        with pytest.raises(InvalidInputError, match=said):
            translated(orders.ckpt, orders.spark.sql(text))


def test_two_operators_of_one_uid_are_refused(orders: Orders) -> None:
    one, two = (with_uid(orders.stream.groupBy("k").agg(F.sum(c).alias("s")), "totals") for c in ("v", "id"))
    with pytest.raises(TopologyError, match="totals"):
        translated(orders.ckpt, one.union(two))


def test_a_uid_stands_behind_an_operator(orders: Orders) -> None:
    with pytest.raises(InvalidInputError, match="expected a DataFrame that ends with an operator that keeps state"):
        with_uid(orders.stream.where("v > 1"), "totals")


def test_what_the_ledger_refuses_is_told_with_a_way(orders: Orders) -> None:
    with pytest.raises(InvalidInputError, match=r"Offset \(`offset`, .* row_number\(\) and a filter"):
        translated(orders.ckpt, orders.stream.offset(3))


def test_a_refusal_says_where_the_operation_stands_in_a_sql_text(orders: Orders) -> None:
    text = "SELECT k\nFROM (SELECT k FROM orders\n      LIMIT 5 OFFSET 3)"
    with pytest.raises(InvalidInputError, match=r"Offset .*In the SQL text it is in line 3: LIMIT 5 OFFSET 3$"):
        translated(orders.ckpt, orders.spark.sql(text))


def test_every_handler_that_the_ledger_names_is_there() -> None:
    here = {How.ROW_BY_ROW, How.NAMES, How.OPERATOR, How.SOURCE}
    assert {entry.by for entry in LEDGER if entry.how in here} == set(HANDLERS)
