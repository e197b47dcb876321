"""A query as a job: from the generator into a Delta table, a database or files, and what is found there at its end."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from examples.nexmark.oracle import expected
from examples.nexmark.queries import QUERIES
from examples.nexmark.source import NexmarkSource

KINDS = ("person", "auction", "bid")


def views(events: Any) -> list[Any]:
    """The streams, or tables, of people, auctions and bids."""
    return [events.where(f"event_type = {number}").select(f"{kind}.*") for number, kind in enumerate(KINDS)]


def start(ckpt: Any, name: str, folder: Path, options: Mapping[str, Any]) -> Any:
    """Start the query ``name``; ``folder`` is where its results go. It ends behind the last event."""
    query = QUERIES[name]
    events = ckpt.readStream.format(NexmarkSource).options(**options).load()
    writer = query.build(*views(events)).writeStream.queryName(name).format(query.sink)
    if query.keys is not None:
        writer = writer.option("mergeKeys", query.keys)
    if query.changes is not None:
        writer = writer.option("changeColumn", query.changes)
    if query.sink == "sql":
        writer = writer.option("url", f"sqlite:///{folder}/{name}.db").option("table", name)
    else:
        writer = writer.option("path", str(folder / name))
    if query.sink == "csv":
        writer = writer.partitionBy("dt", "hm")
    # The windows that are open at the last event come out, too, as they do in a batch.
    return writer.option("spark.ckpt.endOfInput.closeWindows", "true").trigger(availableNow=True).start()


def table(spark: SparkSession, options: Mapping[str, Any]) -> DataFrame:
    """The same events as a table."""
    spark.dataSource.register(NexmarkSource)
    return spark.read.format("nexmark").options(**options).load()


def results(spark: SparkSession, name: str, folder: Path, schema: T.StructType) -> DataFrame:
    """What the sink of query ``name`` holds."""
    query = QUERIES[name]
    if query.sink == "csv":
        return spark.read.schema(schema).csv(str(folder / name))
    if query.sink == "sql":
        return _from_database(spark, folder / f"{name}.db", name, schema)
    return spark.createDataFrame(DeltaTable(str(folder / name)).to_pyarrow_table())


def _from_database(spark: SparkSession, path: Path, name: str, schema: T.StructType) -> DataFrame:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(f"SELECT {', '.join(schema.names)} FROM {name}").fetchall()
    return spark.createDataFrame(rows, schema)


def check(spark: SparkSession, name: str, folder: Path, options: Mapping[str, Any]) -> tuple[DataFrame, str]:
    """What the query found, and how that differs from the batch oracle: nothing, if all is well."""
    wanted = expected(table(spark, options), name)
    rows = results(spark, name, folder, wanted.schema)
    compared = rows if name != "q12" else rows.groupBy("bidder").agg(F.sum("bid_count").alias("bid_count"))
    return rows, differences(compared.select(wanted.columns).collect(), wanted.collect())


def differences(here: Iterable[Any], there: Iterable[Any]) -> str:
    """Rows that are too many or missing; empty if there are none, in whatever order they are."""
    found, wanted = Counter(map(tuple, here)), Counter(map(tuple, there))
    many, missing = found - wanted, wanted - found
    said = [
        f"{sum(rows.values()):,} rows {what}, such as {next(iter(rows))}"
        for what, rows in (("too many", many), ("missing", missing))
        if rows
    ]
    return "; ".join(said)
