"""Jobs whose savepoints are kept: one of every kind of state, under uids that were given and that were derived.

    PYTHONPATH=. python -m tests.savepoints.programs tests/savepoints/VERSION

runs each to ``END_OF_SAVEPOINT`` and leaves its savepoint in that folder. This is done once for each release, with
its code; 0.1.0 is of the code before streams became PySpark's own DataFrames.
``test_savepoints_of_versions.py`` restores them all.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor

from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

END_OF_SAVEPOINT, END = 60, 100
SCHEMA = "id long, k string, v long, at timestamp"
OUT = "operator string, key string, n long, value string"


def row(number: int) -> tuple[Any, ...]:
    at = datetime(2024, 3, 1, tzinfo=timezone.utc) + timedelta(seconds=30 * number)
    return number, "abcde"[number % 5], number * 37 % 101, at


class NumbersReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Ten rows a batch, up to option ``end``. An offset is a number of rows."""

    def __init__(self, end: int) -> None:
        self.end = end

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(10)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        least = self.end if isinstance(limit, ReadAllAvailable) else start["rows"] + 10
        return {"rows": min(self.end, least)}

    def prepareForTriggerAvailableNow(self) -> None: ...

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["rows"], end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield from map(row, range(*partition.value))


class Numbers(DataSource):
    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return NumbersReader(int(self.options["end"]))


class Seen(StatefulProcessor):
    """A variable of each kind, all of which come out."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long, total long")
        self.last = handle.getListState("last", "v long")
        self.odd = handle.getMapState("odd", "odd boolean", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        values = [int(v) for part in rows for v in part["v"]]
        n, total = self.total.get() or (0, 0)
        self.total.update((n + len(values), total + sum(values)))
        kept = [*(int(v) for (v,) in self.last.get()), *values][-3:]
        self.last.put([(v,) for v in kept])
        for v in values:
            found = self.odd.getValue((v % 2 == 1,)) if self.odd.containsKey((v % 2 == 1,)) else (0,)
            self.odd.updateValue((v % 2 == 1,), (found[0] + 1,))
        odd = sorted((bool(k[0]), int(self.odd.getValue(k)[0])) for k in list(self.odd.keys()))
        text = f"{total + sum(values)} {kept} {odd}"
        yield pd.DataFrame({"operator": ["seen"], "key": [key[0]], "n": [n + len(values)], "value": [text]})

    def close(self) -> None: ...


def sessions(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    n, least = state.get if state.exists else (0, 1000)
    for frame in frames:
        n, least = n + len(frame), min(least, int(frame["v"].min()))
    state.update((n, least))
    yield pd.DataFrame({"operator": ["sessions"], "key": [key[0]], "n": [n], "value": [str(least)]})


def _told(df: Any, operator: str, key: Any, n: Any, value: Any) -> Any:
    columns = F.lit(operator).alias("operator"), key.alias("key"), n.alias("n"), value.cast("string").alias("value")
    return df.select(*columns)


def updated(rows: Any) -> Any:
    """Output mode update: each row that comes out has the count of its key, so the last one can be told."""
    totals = rows.where("v % 7 <> 0").groupBy("k")
    values = F.sum("v"), F.avg("v"), F.max("at"), F.count_distinct("v"), F.array_sort(F.collect_set(F.col("v") % 4))
    named = [c.alias(f"c{i}") for i, c in enumerate(values)]
    totals = totals.agg(F.count("*").alias("n"), *named).uid("totals")
    text = F.concat_ws(" ", *(F.col(f"c{i}").cast("string") for i in range(len(values))))
    distinct = rows.selectExpr("k", "v % 10 AS digit").dropDuplicates(["k", "digit"])
    of_digits = F.count("*").alias("n"), F.sum(F.ascii("k")).alias("s")
    digits = distinct.groupBy("digit").agg(*of_digits).uid("digits")
    grouped = rows.groupBy("k")
    return (
        _told(totals, "totals", F.col("k"), F.col("n"), text)
        .union(_told(digits, "digits", F.col("digit").cast("string"), F.col("n"), F.col("s")))
        .union(grouped.applyInPandasWithState(sessions, OUT, "n long, least long", "update", "NoTimeout"))
        .union(grouped.transformWithStateInPandas(Seen(), OUT, "update", "None").uid("seen"))
    )


def appended(rows: Any) -> Any:
    """Output mode append: windows, and a join of the stream with itself."""
    timed = rows.withWatermark("at", "5 minutes")
    windows = timed.groupBy(F.window("at", "10 minutes").alias("w"), "k").agg(
        F.count("*").alias("n"), F.sum("v").alias("s")
    )
    left, right = timed.alias("a"), timed.alias("b")
    near = "a.k = b.k AND b.at > a.at AND b.at <= a.at + INTERVAL 4 MINUTES"
    joined = left.join(right, F.expr(near)).select(F.col("a.id").alias("one"), F.col("b.id").alias("two"))
    key = F.concat_ws(" ", F.date_format("w.start", "HH:mm"), "k")
    return _told(windows, "windows", key, F.col("n"), F.col("s")).union(
        _told(joined, "joined", F.col("one").cast("string"), F.lit(1).cast("long"), F.col("two"))
    )


def top(rows: Any) -> Any:
    return rows.groupBy("k").topN(2, F.desc("v"), rank="r").uid("top")


MODES = {"updated": "update", "appended": "append", "top": "append"}
PROGRAMS: dict[str, Callable[[Any], Any]] = {"updated": updated, "appended": appended, "top": top}


def started(ckpt: Any, program: str, end: int, sink: str, **options: str) -> Any:
    rows = ckpt.readStream.format(Numbers).option("end", end).load()
    return written(PROGRAMS[program](rows).writeStream, program, sink, **options)


def written(writer: Any, program: str, sink: str, **options: str) -> Any:
    writer = writer.format("memory").option("path", sink).queryName(program)
    if program == "top":
        writer = writer.option("mergeKeys", "k,r").option("changeColumn", "op")
    return writer.outputMode(MODES[program]).options(**options)


def main(folder: str) -> None:
    import spark_ckpt

    work = tempfile.mkdtemp(prefix="savepoints-")
    confs = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    confs |= {"spark.ckpt.dir": f"{work}/jobs", "spark.ckpt.maxParallelism": "4", "spark.ckpt.interval": "1h"}
    spark = SparkSession.builder.master("local[2]").config(map=confs).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for program in PROGRAMS:
        query = started(spark_ckpt.enable(spark), program, END_OF_SAVEPOINT, f"{work}/sink-{program}").start()
        query.processAllAvailable()
        query.stop(savepoint=f"{folder}/{program}")
    spark.stop()


if __name__ == "__main__":
    from tests.savepoints import programs  # so that the source's class is found by its module's name

    programs.main(sys.argv[1])
