"""Keys, event-time columns and delays are named as in Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.event_time import event_times
from spark_ckpt.plan.analysed.translate import translated
from tests.spark.conftest import Input, Job, named, ordered, rows_of_spark

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]
ROWS = "k string, t timestamp, `order id` long, s struct<x: int>"


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import spark_ckpt

    folder = tmp_path_factory.mktemp("names")
    spark.conf.set("spark.ckpt.dir", str(folder / "jobs"))
    data = Input(folder / "in", ROWS)
    noon = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
    data.add(("a", noon, 1, {"x": 5}), ("b", noon, 2, {"x": 5}), ("a", noon, 1, {"x": 6}))
    return data.stream(spark_ckpt.enable(spark)), data


def test_an_event_time_goes_where_its_column_goes(ckpt: Any, stream: Any) -> None:
    df, data = stream
    theirs = data.spark_stream(df.sparkSession).withWatermark("t", "1 hour")
    for change in EVENT_TIMES:
        assert event_times(change(df.withWatermark("t", "1 hour")).schema) == event_times(change(theirs).schema), change
    # A function of one's own may keep it, too.
    timed = df.withWatermark("t", "1 hour")
    assert event_times(translated(ckpt, timed.mapInArrow(lambda b: b, "k string, t timestamp")).schema)
    for gone in (timed.select("k"), timed.withColumn("t", F.lit("text")), timed.withColumn("t", F.current_timestamp())):
        ckpt.check(gone.groupBy("k").agg(F.count("*")), "update")
        with pytest.raises(InvalidInputError, match=r"(?s)Watermark must be specified.*up to groupBy.*behind the oper"):
            ckpt.check(
                gone.groupBy("k").applyInPandasWithState(_sees, "k string", "n long", "append", "EventTimeTimeout")
            )


EVENT_TIMES: list[Callable[[Any], Any]] = [
    lambda df: df,
    lambda df: df.select("k", F.col("t").alias("u"), F.col("T").cast("date")),
    lambda df: df.withColumns({"u": F.col("t"), "t": F.lit("text")}),
    lambda df: df.withColumn("t", F.col("t") + F.expr("interval 0 seconds")),
    lambda df: df.selectExpr("named_struct('u', t) as s").select("s.u"),
    lambda df: df.toDF("a", "b", "c", "d").drop("c"),
    lambda df: df.alias("x").where("x.k > ''").select("x.t").withWatermark("t", "2 minutes"),
    lambda df: df.withColumn("u", F.col("t")).withWatermark("u", "2 minutes"),
    lambda df: df.select("t", "k").unionByName(df.select("k", F.lit(None).cast("timestamp").alias("t"))),
    lambda df: df.drop("t"),
]


@pytest.mark.parametrize("method", ["agg", "aggregate", "topN"])
def test_keys_are_called_as_their_columns_however_they_are_written(ckpt: Any, stream: Any, method: str) -> None:
    df, _ = stream
    by_name = [["k"], ["K"], ["`K`"], [1], [F.col("K")], [F.col("`k`")], [df["k"]]]
    for cols, keys in [*((cols, ["k"]) for cols in by_name), (["s.x"], ["x"])]:
        grouped = df.groupBy(*cols)
        made = {
            "agg": lambda grouped=grouped: grouped.agg(F.count("*")),
            "aggregate": lambda grouped=grouped: grouped.aggregate(n=agg.count()),
            "topN": lambda grouped=grouped: grouped.topN(1, "t"),
        }[method]()
        (node,) = translated(ckpt, made)._lineage.operators
        assert node.layout.key_schema.names == keys, cols


def test_watermarks_name_columns_as_spark_finds_them(ckpt: Any, stream: Any) -> None:
    for name in ("t", "T", "`T`"):
        lineage = translated(ckpt, stream[0].withWatermark(name, "1 second"))._lineage
        assert [w.column for w in lineage.watermarks] == ["t"]


@pytest.mark.soak
def test_keys_whose_names_differ_in_case_alone_are_two(
    spark: SparkSession, tmp_path: Path, new_input: NewInput
) -> None:
    import spark_ckpt

    spark.conf.set("spark.ckpt.dir", str(tmp_path / "jobs"))
    data = new_input("cased", "k string, K int, t timestamp, T int, v int")
    noon = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        data.add(("a", 1, noon, 5, 7), ("a", 2, noon, 5, 8), (None, 2, noon, 6, 9))
        for place, query, mode in (
            ("keys", lambda df: df.groupBy("K", "k").agg(F.sum("v").alias("n"), F.max("v").alias("N")), "update"),
            ("a later name", lambda df: df.groupBy("K", "k").count().where(df["k"] == "a").select(df["K"]), "update"),
            ("distinct", lambda df: df.withWatermark("t", "1 hour").dropDuplicates(["T"]).select("T"), "append"),
        ):
            plain, ours = query(data.spark_stream(spark)), query(data.stream(spark_ckpt.enable(spark)))
            assert ours.dtypes == plain.dtypes
            found = ordered(map(tuple, rows_of_spark(ours, tmp_path / f"{place} ours", mode)))
            assert found == ordered(map(tuple, rows_of_spark(plain, tmp_path / place, mode))) != []
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def _sees(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    for frame in frames:
        state.update((len(frame), "x"))
        seen = str(frame.drop(columns="t").to_dict("list"))
        yield pd.DataFrame({"k": [str(tuple(map(str, key)))], "seen": [seen], "more": [sum(state.get[:1])]})


def test_keys_that_are_called_like_something_else_take_nobodys_place(
    spark: SparkSession, stream: Any, tmp_path: Path
) -> None:
    """A key with a state field's name, a name that Delta does not take."""
    df, _ = stream
    df, keys = df.withColumn("k", F.upper("k")).withColumn("N", F.col("s.x")), ["k", "order id", "N"]
    out, state = "k string, seen string, more long", "n long, `order id` string"
    job = Job(tmp_path)
    job.run(df.groupBy(*keys).applyInPandasWithState(_sees, out, state, "append", "NoTimeout").uid("u"))
    rows = [("a", 1, 5), ("b", 2, 5), ("a", 1, 6)]
    seen = [str({"k": [k.upper()], "order id": [i], "s": [{"x": x}], "N": [x]}) for k, i, x in rows]
    names = [str((k.upper(), str(i), str(x))) for k, i, x in rows]
    assert job.rows() == ordered([(name, saw, 1) for name, saw in zip(names, seen, strict=True)])
    table = DeltaTable(next(Path(spark.conf.get("spark.ckpt.dir")).glob("*/state/u")))
    assert [f.name for f in table.schema().fields][:5] == ["k", "order_id_key", "N_key", "n", "order_id"]


def _by(df: Any) -> Any:
    keys = ["K", "`order id`", 2]
    return named(
        df.groupBy(*keys).applyInPandasWithState(
            _sees, "k string, seen string, more long", "k long, t string", "append", "NoTimeout"
        ),
        "by",
    )


def test_a_query_with_such_names_is_that_of_spark(spark: SparkSession, stream: Any, tmp_path: Path) -> None:
    df, data = stream
    seen = rows_of_spark(_by(data.spark_stream(spark).withWatermark("T", "interval 1 hour")), tmp_path / "plain")
    job = Job(tmp_path)
    job.run(_by(df.withWatermark("T", "interval 1 hour")), job="names")
    assert job.rows() == ordered(seen)
    assert len(seen) == 2
