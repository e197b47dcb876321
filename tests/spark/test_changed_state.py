"""State that changes its shape, in jobs: what the query of before wrote, the query of now goes on from, or is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import TopologyError
from spark_ckpt.execution.build import name_operators, name_sources, query_topology
from spark_ckpt.operators.aggregate_kinds import KINDS
from spark_ckpt.plan.front_door import translated
from spark_ckpt.protocol.topology import Refuse, fit_topology
from tests.spark.conftest import Job

SCHEMA = "k string, t timestamp, amount long, cents long"


@pytest.fixture
def rows(new_input) -> Any:  # type: ignore[no-untyped-def]
    made = new_input("in", SCHEMA)
    made.add(("a", None, 100, 1), ("b", None, 10, 2))
    return made


def _grouped(rows: Any, ckpt: Any, **aggregates: Any) -> Any:
    return rows.stream(ckpt).groupBy("k").aggregate(**aggregates).uid("u")


def _agg(rows: Any, ckpt: Any, *results: Any, of: str = "amount") -> Any:
    return rows.stream(ckpt).withColumn("x", F.expr(of)).groupBy("k").agg(*results).uid("u")


QUESTIONS = {
    "another column": (
        lambda r, c: _agg(r, c, F.sum("amount").alias("total"), F.count("*").alias("n")),
        lambda r, c: _agg(r, c, F.sum("cents").alias("total"), F.count("*").alias("n")),
        "sum(cents)",
    ),
    "nothing else": (
        lambda r, c: _agg(r, c, F.sum("amount").alias("total")),
        lambda r, c: _agg(r, c, F.sum("cents").alias("total")),
        "sum(cents)",
    ),
    "by name": (
        lambda r, c: _grouped(r, c, total=agg.sum("amount")),
        lambda r, c: _grouped(r, c, total=agg.sum("cents")),
        "sum(cents)",
    ),
    "an expression in a column": (
        lambda r, c: _agg(r, c, F.sum(F.col("amount") + F.col("cents")).alias("total")),
        lambda r, c: _agg(r, c, F.sum("x").alias("total"), of="amount + cents"),
        "sum(x)",
    ),
    "kept values": (
        lambda r, c: _agg(r, c, F.countDistinct("amount").alias("total")),
        lambda r, c: _agg(r, c, F.countDistinct("cents").alias("total")),
        "count_distinct(cents)",
    ),
}  # fmt: skip


ANSWERS = {
    "another column": (5, 105),
    "nothing else": (5, 105),
    "by name": (5, 105),
    "an expression in a column": (1005, 1106),
    "kept values": (1, 2),
}
"""Of key a behind a row more: what began empty, and what went on."""
SHORT = ("kept values",)


def _lines(asked: Any) -> list[str]:
    """What the message says to write."""
    return re.findall(r"`(ckpt\.[^`]*)`", str(asked.value))


@pytest.mark.parametrize("question", [q if q in SHORT else pytest.param(q, marks=pytest.mark.soak) for q in QUESTIONS])
def test_whether_a_result_is_the_same_under_another_name_is_asked_and_both_answers_hold(
    ckpt: Any, job: Any, rows: Any, tmp_path: Path, question: str
) -> None:
    before, now, name = QUESTIONS[question]
    job.run(before(rows, ckpt), "k")
    with pytest.raises(TopologyError, match=re.escape(name)) as asked:
        job.start(now(rows, ckpt), "k", checkpointLocation=str(tmp_path / "elsewhere"))
    rows.add(("a", None, 1000, 5))
    lines = _lines(asked)
    assert [re.findall(r"rename|begin_empty", line) for line in lines] == [["rename"], ["begin_empty"]]
    for line in lines:
        told = spark_ckpt.enable(ckpt.spark)
        exec(line, {"ckpt": told})
        place = Job(tmp_path / line[:30].replace("/", "_"))
        query = place.start(now(rows, told), "k", checkpointLocation=f"{place.sink}-location", restore="1")
        query.awaitTermination(240)
        assert place.rows()[0][:2] == ("a", ANSWERS[question]["rename" in line]), line


TWO = ("corr", "covar_pop", "covar_samp", "max_by", "min_by")
OTHERS = {
    "approx_percentile": "approx_percentile({c}, 0.5)",
    "percentile": "percentile({c}, 0.5)",
    "percentile_approx": "percentile_approx({c}, 0.5)",
    "percentile_cont": "percentile_cont(0.5) WITHIN GROUP (ORDER BY {c})",
    "percentile_disc": "percentile_disc(0.5) WITHIN GROUP (ORDER BY {c})",
    "listagg": "listagg(string({c}))",
    "string_agg": "string_agg(string({c}))",
    **{name: f"{name}({{c}} > 0)" for name in ("any", "bool_and", "bool_or", "count_if", "every", "some")},
    **{name: f"{name}(cast(string({{c}}) as binary))" for name in ("bitmap_and_agg", "bitmap_or_agg")},
}


def _every(column: str) -> list[Any]:
    """Every aggregate function that there is, of this column."""
    two = {name: f"{name}({{c}}, {{c}} + 1)" for name in KINDS if name in TWO or name.startswith("regr_")}
    texts = {**{name: f"{name}({{c}})" for name in KINDS}, **two, **OTHERS}
    del texts["product"]  # which SQL has not
    made = {name: F.expr(text.format(c=column)) for name, text in texts.items()}
    return [column.alias(f"of_{name}") for name, column in {**made, "product": F.product(column)}.items()]


def _topology(ckpt: Any, df: Any) -> Any:
    """As a start records it, without one."""
    lineage = translated(ckpt, df)._lineage
    sources = name_sources(lineage)
    return query_topology(lineage, sources, (), 4, name_operators(lineage, sources))


def _asked(ckpt: Any, before: Any, now: Any) -> str:
    found = fit_topology(_topology(ckpt, before), _topology(ckpt, now), False)
    return found.reason if isinstance(found, Refuse) else ""


def test_every_aggregate_function_is_asked_about_in_keys_windows_sessions_and_pivots(ckpt: Any, rows: Any) -> None:
    stream = rows.stream(ckpt).withWatermark("t", "1 minute")
    keyed, cents = (stream.groupBy("k").agg(*_every(c)).uid("u") for c in ("amount", "cents"))
    asked = _asked(ckpt, keyed, cents)
    assert {name for name in KINDS if f"'of_{name}'" not in asked} == set()
    few = [[F.sum(c).alias("total"), F.count_distinct(c).alias("n")] for c in ("amount", "cents")]
    hour = F.window("t", "1 hour")
    for groups in (hour, F.session_window("t", "1 hour")):
        before, now = (stream.groupBy("k", groups).agg(*made).uid("u") for made in few)
        assert all(f"both for '{name}'" in _asked(ckpt, before, now) for name in ("total", "n"))
    before, now = (stream.groupBy(hour).pivot("k", ["a", "b"]).agg(made[0]).uid("u") for made in few)
    assert "`ckpt.migrate('u-values').rename('sum(amount)', 'sum(cents)')`" in _asked(ckpt, before, now)
    # What the user gave another name is another aggregate; what has no name of the user's is asked about.
    sums = [F.sum("amount"), F.sum("cents")]
    n = F.count("*").alias("n")
    for one, other, is_asked in ((sums[0].alias("a"), sums[1].alias("b"), False), (*sums, True)):
        before, now = (stream.groupBy("k").agg(n, total).uid("u") for total in (one, other))
        assert bool(_asked(ckpt, before, now)) is is_asked


KEYED = {
    "agg": lambda df, key: df.groupBy(key).agg(F.count("*").alias("n")),
    "agg of windows": lambda df, key: df.groupBy(F.window("t", "1 hour"), key).agg(F.count("*").alias("n")),
    "agg of sessions": lambda df, key: df.groupBy(F.session_window("t", "1 hour"), key).agg(F.count("*").alias("n")),
    "pivot": lambda df, key: df.groupBy(key, F.window("t", "1 hour")).pivot("k", ["a"]).agg(F.sum("amount").alias("n")),
    "aggregate": lambda df, key: df.groupBy(key).aggregate(n=agg.count()),
    "topN": lambda df, key: df.groupBy(key).topN(2, "amount"),
    "applyInArrowWithState": lambda df, key: df.groupBy(key).applyInArrowWithState(lambda *_: None, "n long", "n long"),
}
"""Every way of grouping by an expression."""


def keys_asked_about(ckpt: Any, stream: Any) -> None:
    """Also over Spark Connect."""
    keys = [F.lower("k").alias("key"), F.upper("k").alias("key"), (F.col("amount") + 1).cast("string").alias("key")]
    for way, grouped in KEYED.items():
        lower, upper, number = (grouped(stream, key).uid("u") for key in keys)
        asked = _asked(ckpt, lower, upper)
        assert "rename('lower(k)', 'upper(k)')" in asked, (way, asked)
        assert "rename('lower(k)', 'CAST((amount + 1) AS STRING)')" in _asked(ckpt, lower, number), way
        assert _asked(ckpt, lower, grouped(stream.where("amount > 0"), keys[0]).uid("u")) == "", way
        column = grouped(stream.withColumn("key", F.lower("k")), "key").uid("u")
        assert "rename('key', 'lower(k)')" in _asked(ckpt, column, lower), way
    sets = (stream.rollup(key).agg(F.count("*").alias("n")).uid("u") for key in keys[:2])
    assert re.search(r"rename\('(lower.k.)', '(upper.k.)'\)", _asked(ckpt, *sets))
    times = (stream.withColumn("at", F.col("t") + F.expr("interval 1 hour")), stream)
    hours = [df.groupBy(F.window(t, "1 hour")).agg(F.count("*")).uid("u") for df, t in zip(times, ("at", "t"))]
    assert "rename('at', 't')" in _asked(ckpt, *hours)
    sessions = [df.groupBy(F.session_window(t, "1 hour"), "k").count().uid("u") for df, t in zip(times, ("at", "t"))]
    assert "rename('at', 't')" in _asked(ckpt, *sessions)


def test_a_key_that_groupby_computes_otherwise_is_asked_about_in_every_way_of_grouping(ckpt: Any, rows: Any) -> None:
    stream = rows.stream(ckpt).withWatermark("t", "1 minute")
    keys_asked_about(ckpt, stream)
    ways = [f"SELECT {f}(k) AS key, count(*) AS n FROM keyed GROUP BY 1" for f in ("lower", "upper")]
    stream.createOrReplaceTempView("keyed")
    assert "rename('lower(k)', 'upper(k)')" in _asked(ckpt, *(ckpt.spark.sql(way).uid("u") for way in ways))


@pytest.mark.soak  # asked about: the test before; both answers: test_whether_a_result_is_the_same
def test_a_key_that_is_said_to_be_the_same_goes_on_and_another_begins_empty(
    ckpt: Any, job: Any, rows: Any, tmp_path: Path
) -> None:
    def counted(of: Any, key: Any) -> Any:
        return rows.stream(of).groupBy(key("k").alias("k")).agg(F.count("*").alias("n")).uid("u")

    job.run(counted(ckpt, F.lower), "k")
    with pytest.raises(TopologyError, match="was lower") as asked:
        job.start(counted(ckpt, F.trim), "k")
    rows.add(("a", None, 1, 1))
    keep, begin = _lines(asked)
    exec(keep, {"ckpt": ckpt})
    job.run(counted(ckpt, F.trim), "k")
    assert job.rows() == [("a", 2), ("b", 1)]
    exec(begin, {"ckpt": (told := spark_ckpt.enable(ckpt.spark))})
    elsewhere = Job(tmp_path / "elsewhere")
    query = elsewhere.start(counted(told, F.trim), "k", checkpointLocation=f"{elsewhere.sink}-at", restore="1")
    query.awaitTermination(240)
    assert elsewhere.rows() == [("a", 1)]


def test_state_moves_to_another_uid_under_another_key_and_stays_whole(
    ckpt: Any, job: Any, rows: Any, tmp_path: Path
) -> None:
    counted = (F.count("*").alias("n"), F.countDistinct("amount").alias("amounts"))
    job.run(rows.stream(ckpt).groupBy("k").agg(*counted), "k")
    rows.add(("a", None, 100, 0), ("a", None, 7, 0))

    def now() -> Any:
        made = rows.stream(ckpt).withColumnRenamed("k", "client").groupBy("client").agg(*counted).uid("totals")
        return made.withColumnRenamed("client", "k")

    elsewhere = str(tmp_path / "elsewhere")
    with pytest.raises(TopologyError, match=r"uid\('aggregate-0'\)"):
        job.start(now(), "k", checkpointLocation=elsewhere)
    ckpt.moved("aggregate-0", "totals")
    with pytest.raises(TopologyError, match=r"`ckpt.migrate\('totals'\).rename\('k', 'client'\)`"):
        job.start(now(), "k", checkpointLocation=elsewhere)
    ckpt.migrate("totals").rename("k", "client")
    job.run(now(), "k", checkpointLocation=elsewhere)
    assert job.rows() == [("a", 3, 2), ("b", 1, 1)]
    folder = spark_ckpt.job(str(tmp_path / "jobs"), "job")
    assert sorted(folder.completed()[-1].tables) == ["totals", "totals.count_distinct_amount"]
    folder.gc()
    assert folder.verify() == []
    rows.add(("b", None, 10, 0), ("a", None, 8, 0))
    for place, wanted in (("elsewhere", [("a", 4, 3), ("b", 2, 1)]), ("third", [("a", 5, 3), ("b", 2, 1)])):
        job.run(now(), "k", checkpointLocation=str(tmp_path / place))
        assert job.rows() == wanted
        rows.add(("a", None, 8, 0))


def test_a_function_goes_on_from_state_of_another_shape_and_a_savepoint_has_it(
    ckpt: Any, job: Any, rows: Any, tmp_path: Path
) -> None:
    def kept(state: str, new: dict[str, Any]) -> Any:
        names = T.StructType.fromDDL(state).names

        def func(found: Any, before: Any, _: Any) -> Any:
            shown = before.select(["k"]).append_column("state", [[str(r) for r in before.select(names).to_pylist()]])
            known = before.select(names).to_pylist()
            merged = [{n: new.get(n) if new.get(n) is not None else row[n] for n in names} for row in known]
            return shown, pa.Table.from_pylist(merged, schema=before.select(names).schema)

        made = rows.stream(ckpt).groupBy("k")
        return made.applyInArrowWithState(func, "k string, state string", state).uid("u")

    job.run(kept("n int, text string, p struct<x:int>, old string", {"n": 1, "text": "12", "p": {"x": 3}}), "k")
    rows.add(("a", None, 0, 0))
    ckpt.migrate("u").cast("text", "bigint").add("currency", F.lit("EUR")).begin_empty("note")
    changed = kept("currency string, p struct<y:double,x:bigint>, n bigint, text bigint, note string", {"note": "!"})
    query = job.start(changed, "k", now=False, checkpointLocation=str(tmp_path / "elsewhere"))
    first = {"currency": "EUR", "p": {"y": None, "x": 3}, "n": 1, "text": 12, "note": None}
    query.stop(savepoint=str(tmp_path / "savepoint"))
    assert job.rows()[0] == ("a", str(first))
    rows.add(("b", None, 0, 0), ("a", None, 0, 0))
    forked = Job(tmp_path / "forked")
    forked.run(changed, "k", restore=str(tmp_path / "savepoint"), job="forked")
    assert forked.rows() == [("a", str({**first, "note": "!"})), ("b", str(first))]
