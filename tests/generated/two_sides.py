"""A query as texts of Python, on Spark's own stream and a checkpointed one over the same files, and what differs."""

from __future__ import annotations

import collections
import datetime as dt
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.spark_errors import RefusedAsInSparkError
from tests.generated import query_rows
from tests.generated.expressions import quoted
from tests.generated.query_functions import NAMES

DEADLINE_S = 300.0
_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
WORDS = [("a", "one", 1), ("b", "two", 2), ("b", "again", 7), ("z", None, 0), (None, "nothing", None)]

FOLDERS = ("in", "other", "third")

Rows = collections.Counter[str]
Batches = list[list[Any]]


@dataclass(frozen=True)
class Query:
    """``steps``: texts of Python, each of which makes the next ``df`` of ``df``. ``once``: how often a row comes is
    left open, as for an aggregate without keys, which Spark repeats with each batch."""

    steps: tuple[str, ...]
    mode: str = "append"
    once: bool = False

    def __repr__(self) -> str:
        return "\n".join([f"  # output mode {self.mode}", *[f"  df = {step}" for step in self.steps]])


class Side:
    """One of the two: ``reader`` is what ``spark`` is in a query."""

    def __init__(self, reader: Any, spark: Any, folder: Path) -> None:
        self.reader, self.spark, self.folder = reader, spark, folder
        self.static = spark.createDataFrame(WORDS, "pk string, word string, w int")
        self.static.createOrReplaceTempView("words")

    def stream(self, name: str, columns: dict[str, str]) -> Any:
        reader = self.reader.readStream.schema(query_rows.ddl(columns)).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))

    def start(self) -> Any:
        return self.stream("in", query_rows.COLUMNS)

    def other(self) -> Any:
        return self.stream("other", query_rows.OTHER)

    def third(self) -> Any:
        return self.stream("third", query_rows.THIRD)

    def sql(self, df: Any, text: str, **more: Any) -> Any:
        """``text`` over the view ``v``, which is ``df``, and ``more`` views."""
        views = {"v": df, **more}
        for name, frame in views.items():
            frame.createOrReplaceTempView(name)
        try:
            return self.spark.sql(text)
        finally:
            for name in views:
                self.spark.catalog.dropTempView(name)

    def step(self, df: Any, text: str) -> Any:
        names = {"df": df, "F": F, "spark": self.spark, "static": self.static, "sql": self.sql}
        names |= {"other": self.other, "third": self.third}
        return eval(text, {**names, **NAMES})  # noqa: S307 - our own

    def built(self, steps: Sequence[str]) -> Any:
        df = self.start()
        for text in steps:
            df = self.step(df, text)
        return df

    def run(self, df: Any, mode: str, location: str) -> Batches:
        seen: Batches = []
        writer = df.writeStream.outputMode(mode).option("checkpointLocation", str(self.folder / location))
        writer = writer.queryName("job").foreachBatch(lambda batch, _: seen.append(batch.collect()))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"
        return seen


class TwoSides:
    """Both sides over one input in batches, which come in ``lives`` parts: in front of each query starts anew, the
    checkpointed one at an empty location and with other partitions."""

    def __init__(
        self, spark: Any, folder: Path, tables: Sequence[list[pa.Table]], lives: int, side: type[Side] = Side
    ) -> None:
        self.spark, self.folder, self.tables, self.lives = spark, folder, tables, lives
        spark.conf.set("spark.ckpt.dir", str(folder / "jobs"))
        for name in FOLDERS:
            (folder / name).mkdir(parents=True)  # Spark looks whether it is there
        self.plain: Any = side(spark, spark, folder)
        self.ours: Any = side(spark_ckpt.enable(spark), spark, folder)

    def difference(self, queries: Sequence[Query]) -> str | None:
        """Of all queries at once; those of several are shown as texts, in one union."""
        mode, once = queries[0].mode, any(q.once for q in queries)
        plain = self._outcome(self.plain, queries, mode)
        ours = self._outcome(self.ours, queries, mode)
        if isinstance(ours, Exception) and not isinstance(plain, Exception):
            plain = self._without_broadcasts(queries, mode)
        return differing(plain, ours, mode, once)

    def _without_broadcasts(self, queries: Sequence[Query], mode: str) -> Any:
        """Spark broadcasts a stream of small files. Where a filter leaves none of its rows, nothing of a table that it
        is joined with is computed then, and so no cast of ANSI's fails, as it does in Spark's other joins."""
        self.spark.conf.set(_BROADCAST, "-1")
        try:
            return self._outcome(self.plain, queries, mode)
        finally:
            self.spark.conf.unset(_BROADCAST)

    def _outcome(self, side: Side, queries: Sequence[Query], mode: str) -> Any:
        for path in (*FOLDERS, "plain", "jobs", *(f"location-{n}" for n in range(self.lives))):
            shutil.rmtree(self.folder / path, ignore_errors=True)
        partitions = self.spark.conf.get("spark.sql.shuffle.partitions")
        try:
            return self._lives(side, queries, mode)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side is to say the same
            return error
        finally:
            self.spark.conf.set("spark.sql.shuffle.partitions", partitions)

    def _lives(self, side: Side, queries: Sequence[Query], mode: str) -> tuple[Any, list[Batches]]:
        made: list[Batches] = []
        schema = None
        for life in range(self.lives):
            for name, tables in zip(FOLDERS, self.tables, strict=False):
                first, end = (len(tables) * at // self.lives for at in (life, life + 1))
                query_rows.write(self.folder / name, tables[first:end], first)
            df = together([side.built(q.steps) for q in queries])
            schema = [(f.name, f.dataType.simpleString()) for f in df.schema]
            location = "plain" if side is self.plain else f"location-{life}"
            made.append(side.run(df, mode, location))
            self.spark.conf.set("spark.sql.shuffle.partitions", "3")
        return schema, made


def together(frames: list[Any]) -> Any:
    if len(frames) == 1:
        return frames[0]
    whole = None
    for number, df in enumerate(frames):
        row = F.to_json(F.struct(*[F.col(quoted(c)) for c in df.columns]), {"ignoreNullFields": "false"})
        kinds = str([(f.name, f.dataType.simpleString()) for f in df.schema])
        made = df.select(F.lit(number).alias("query"), F.lit(kinds).alias("kinds"), row.alias("row"))
        whole = made if whole is None else whole.union(made)
    return whole


# -- comparing -------------------------------------------------------------------------------------------------------


def differing(plain: Any, ours: Any, mode: str, once: bool) -> str | None:
    if isinstance(plain, Exception) or isinstance(ours, Exception):
        return differing_errors(plain, ours)
    if plain[0] != ours[0]:
        return f"columns of Spark: {plain[0]}\n  here: {ours[0]}"
    found = []
    lives = [plain[1], ours[1]]
    if once and mode != "complete":  # Spark repeats a row over everything after a restart, too
        lives = [[[batch for life in side for batch in life]] for side in lives]
    for life, (a, b) in enumerate(zip(*lives, strict=True)):
        left, right = counted(a, mode, once), counted(b, mode, once)
        if left != right:
            lost, more = list((left - right).elements())[:4], list((right - left).elements())[:4]
            found.append(f"life {life}, in Spark alone: {lost}\n  here alone: {more}")
    return "\n".join(found) or None


def differing_errors(plain: Any, ours: Any) -> str | None:
    if not isinstance(ours, Exception):
        return None  # what Spark does not have may be here
    if not isinstance(plain, Exception):
        return f"Spark runs it, here: {said(ours)}"
    conditions = [set(re.findall(r"\[([A-Z][A-Z_.]{4,})", str(e))) for e in (plain, ours)]
    refused = type(ours) in (InvalidInputError, RefusedAsInSparkError)
    named = conditions[0] & conditions[1] or not conditions[0] or refused
    return None if named else f"Spark says: {said(plain)}\n  here: {said(ours)}"


def said(error: Exception) -> str:
    causes = re.findall(r"^Caused by: (.*)$", getattr(error, "_stackTrace", None) or "", re.MULTILINE)
    return "\n  caused by ".join([f"{type(error).__name__}: {str(error)[:700]}", *(cause[:300] for cause in causes)])


def counted(batches: Batches, mode: str, once: bool) -> Rows:
    rows = (batches[-1] if batches else []) if mode == "complete" else [row for batch in batches for row in batch]
    made = Rows(repr([plain_value(v) for v in row]) for row in rows)
    return Rows(dict.fromkeys(made, 1)) if once else made


def plain_value(value: Any) -> Any:
    """To compare: NaNs equal each other, and sums of doubles up to the order of rows."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value:.12g}")
    if isinstance(value, Row):
        return {k: plain_value(v) for k, v in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return {k: plain_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(v) for v in value]
    return value.timestamp() if isinstance(value, dt.datetime) and value.tzinfo else value
