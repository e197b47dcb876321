"""One Spark session for the tests of this folder, input that comes in files of one batch each, and short starts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt.sinks import memory
from tests.shared_session import shared

HERE = Path(__file__).parent
DEADLINE_S = 240.0

# Python workers find the library, and modules that configuration names (hooks), by the path the JVM was started with.
for _folder in (str(HERE / "importable"), str(HERE.parents[1] / "python_datasource"), str(HERE.parents[1])):
    sys.path.insert(0, _folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_folder, os.environ.get("PYTHONPATH")]))


def _made_session(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Checkpoints only when a test asks for them, or at the end of the input; a time zone that is not UTC."""
    confs = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ckpt.interval": "1h",
        "spark.ckpt.initialDelay": "1h",
        "spark.ckpt.maxParallelism": "4",
        "spark.ckpt.lanes": "2",
        "spark.ckpt.retain": "20",
        "spark.ckpt.cache.dir": str(tmp_path_factory.mktemp("cache")),
    }
    # What a JVM is started with holds for all sessions that this process makes in it later.
    SparkContext._ensure_initialized()
    builder = SparkSession.builder.master("local[2]")
    for key, value in confs.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session, as it was at first for each file: starting one for each would take minutes in all."""
    session = shared(HERE, lambda: _made_session(tmp_path_factory))
    confs = dict(session.conf.getAll)
    yield session
    for query in session.streams.active:
        query.stop()
    for key in session.conf.getAll.keys() - confs:
        session.conf.unset(key)
    for key, value in confs.items():
        if session.conf.get(key) != value:
            session.conf.set(key, value)


@pytest.fixture
def ckpt(spark: SparkSession, tmp_path: Path) -> Any:
    """Checkpointed streams whose jobs live below ``tmp_path / "jobs"``."""
    spark.conf.set("spark.ckpt.dir", str(tmp_path / "jobs"))
    return spark_ckpt.enable(spark)


class Input:
    """A folder of Parquet files, one a batch, in the order they were added."""

    def __init__(self, folder: Path, schema: str) -> None:
        from pyspark.sql.types import StructType

        from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema

        self.folder, self.schema = folder, schema
        self._arrow = to_arrow_schema(StructType.fromDDL(schema))
        self._files = 0
        folder.mkdir(parents=True)

    def add(self, *rows: tuple[Any, ...]) -> None:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._arrow)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._arrow, strict=True)]
        path = self.folder / f"{self._files:03d}.parquet"
        hidden = self.folder / f".{path.name}"
        pq.write_table(pa.Table.from_arrays(arrays, schema=self._arrow), hidden)
        # Spark's own source orders files by time, in milliseconds.
        os.utime(hidden, (1_600_000_000 + self._files,) * 2)
        hidden.rename(path)
        self._files += 1

    def stream(self, ckpt: Any, **options: Any) -> Any:
        reader = ckpt.readStream.format("files").option("fileFormat", "parquet").schema(self.schema)
        reader = reader.option("maxFilesPerTrigger", 1).option("discoveryInterval", "1ms")
        return reader.options(**options).load(str(self.folder))

    def spark_stream(self, spark: SparkSession) -> Any:
        return spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))

    def table(self, spark: SparkSession) -> Any:
        """Everything, as a batch; from one file, so that it has an order."""
        together = self.folder.with_name(f"{self.folder.name}-together.parquet")
        files = sorted(self.folder.glob("*.parquet"))
        pq.write_table(pa.concat_tables([pq.read_table(path) for path in files]), together)
        return spark.read.schema(self.schema).parquet(str(together))


@pytest.fixture
def new_input(tmp_path: Path) -> Callable[[str, str], Input]:
    return lambda name, schema: Input(tmp_path / name, schema)


class Job:
    """Starts one query again and again: job ``job``, a memory sink below ``tmp_path``."""

    def __init__(self, tmp_path: Path) -> None:
        self.sink = str(tmp_path / "sink")

    def start(self, df: Any, keys: str | None = None, now: bool = True, mode: str | None = None, **options: Any) -> Any:
        """``now``: everything there is, then a final checkpoint; ``options`` with ``__`` for ``.``."""
        writer = df.writeStream.format("memory").option("path", self.sink).queryName("job")
        if mode is not None:
            writer = writer.outputMode(mode)
        if keys is not None:
            writer = writer.option("mergeKeys", keys)
        for key, value in options.items():
            writer = writer.option(key.replace("__", "."), value)
        return writer.trigger(**({"availableNow": True} if now else {"processingTime": "0 seconds"})).start()

    def run(self, df: Any, keys: str | None = None, **options: Any) -> Any:
        query = self.start(df, keys, **options)
        assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"
        return query

    def rows(self) -> list[tuple[Any, ...]]:
        """What is committed."""
        return ordered([tuple(row.values()) for row in memory.read(self.sink).to_pylist()])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    """Rows to compare: in one order, and with NaNs that equal each other."""
    same = (tuple("NaN" if value != value else value for value in row) for row in rows)
    return sorted(same, key=lambda row: tuple(repr(value) for value in row))


def named(df: Any, uid: str) -> Any:
    """``df.uid(uid)``, where it is of a stream of ours; others, as the batch that it is compared with, have no uids."""
    asked = getattr(df, "uid", None)  # a column to Spark Connect's client, where there is no stream of ours
    return asked(uid) if callable(asked) else df


def batches_of_spark(df: Any, folder: Path, mode: str = "append") -> list[list[Any]]:
    """What Spark's own stream ``df`` puts out with each batch of what is there, at checkpoint location ``folder``."""
    seen: list[list[Any]] = []
    writer = df.writeStream.outputMode(mode).option("checkpointLocation", str(folder))
    writer = writer.foreachBatch(lambda batch, _: seen.append(batch.collect()))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    return seen


def rows_of_spark(df: Any, folder: Path, mode: str = "append") -> list[Any]:
    """All of that, in one list."""
    return [row for batch in batches_of_spark(df, folder, mode) for row in batch]


def last_result(df: Any, folder: Path) -> list[Any]:
    """What Spark's own stream ``df`` has put out with its last batch, in output mode complete, in its order."""
    return batches_of_spark(df, folder, "complete")[-1]


def wait_until(condition: Callable[[], Any], query: Any = None) -> Any:
    """Poll until ``condition`` holds and return it; fail early when ``query`` has ended with an error."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        if query is not None and query.exception() is not None:
            raise AssertionError(f"the query failed: {query.exception()}")
        time.sleep(0.05)
    raise AssertionError("not in time")
