"""Savepoints of large state, one step behind the other in one session, beside what raw Parquet costs for the same rows.

    python -m benchmarks.workers.savepoints '{"keys": 10000000, "imported": 1000000}'

Answers one line of :mod:`benchmarks.answers` with seconds by step.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from benchmarks.answers import say, say_error
from benchmarks.loads import Load, Phase
from benchmarks.workers import ours, plain
from benchmarks.workers.discard import DiscardSink
from benchmarks.workers.source import LoadSource
from benchmarks.workers.spark_session import PROVIDERS, follow, make_session
from spark_ckpt import agg

CORES = 2
UID = "totals"
BATCH = 100_000
"""Rows, and keys, of each batch behind the filling."""
_LATER = 10
_REPEATS, _TURNS = 3, 2
_ROWS_OF_HISTORY = 4
"""For each key."""


def measure(spark: SparkSession, keys: int, imported: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        found = {"keys": keys, **_of_a_job(spark, keys, folder)}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        found["bootstrap"] = _of_history(spark, imported, folder)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        return {**found, "import": _of_plain_spark(spark, imported, folder)}


def _of_a_job(spark: SparkSession, keys: int, folder: str) -> dict[str, Any]:
    load = _filled(keys)
    savepoint = f"{folder}/savepoint"
    query = ours.start(spark, "count", load, folder, {})
    try:
        follow(query, load, _to_the_end)
        idle_s = min(_seconds(query.checkpoint) for _ in range(_REPEATS))
        targets = [savepoint, *(f"{folder}/again-{turn}" for turn in range(1, _REPEATS))]
        written_s = min(_seconds(lambda path=path: query.savepoint(path)) for path in targets)
    finally:
        query.stop()
    files = sorted(Path(f"{savepoint}/state/{UID}").glob("*.parquet"))
    raw, rewritten = _raw(files, folder)
    starts = _starts(spark, keys, folder, savepoint)
    read_s = min(_seconds(lambda: spark_ckpt.savepoint(savepoint).state(UID).arrow()) for _ in range(_REPEATS))
    return {
        "bytes": sum(f.stat().st_size for f in files),
        "files": len(files),
        "checkpoint_s": idle_s,
        "savepoint_s": written_s,
        "read_s": read_s,
        "raw": {**raw, "rewrite_s": _raw_rewrite(spark, rewritten, folder)},
        "starts": starts,
        "get": _look_up(savepoint, keys),
    }


def _filled(keys: int) -> Load:
    rows = min(2_000_000, keys)
    return Load(keys, (Phase(rows, keys // rows), Phase(min(BATCH, keys), _LATER)))


def _to_the_end(_: Any) -> bool:
    return False


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


# -- raw Parquet -----------------------------------------------------------------------------------------------------


def _raw(files: list[Path], folder: str) -> tuple[dict[str, float], list[str]]:
    """pyarrow's defaults, as many files at a time as there are cores, for the rows of the savepoint: seconds, the best
    of a few."""
    tables = [pq.read_table(file, partitioning=None) for file in files]
    targets = [f"{folder}/raw/{number}.parquet" for number in range(len(tables))]
    Path(f"{folder}/raw").mkdir()
    with ThreadPoolExecutor(CORES) as tasks:

        def written() -> None:
            list(tasks.map(pq.write_table, tables, targets))

        write_s = min(_seconds(written) for _ in range(_REPEATS))
    read_s = min(_seconds(lambda: pq.read_table(f"{folder}/raw")) for _ in range(_REPEATS))
    return {"write_s": write_s, "read_s": read_s}, targets


def _raw_rewrite(spark: SparkSession, files: list[str], folder: str) -> float:
    """Spark reads the same rows, applies the same function and writes them."""

    def rewritten() -> None:
        rows = migrated(spark.read.parquet(*files))
        rows.write.mode("overwrite").parquet(f"{folder}/rewritten")

    return min(_seconds(rewritten) for _ in range(_REPEATS))


def migrated(old: DataFrame) -> DataFrame:
    """A migration with a function over all rows."""
    return old.withColumn("total", F.col("total") * 100)


# -- starts from the savepoint -----------------------------------------------------------------------------------------


def _same(stream: Any, _: Any) -> Any:
    return stream.groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid(UID)


def _with_field(stream: Any, ckpt: Any) -> Any:
    """A field comes and one has another name: nothing is rewritten."""
    ckpt.migrate(UID).rename("total", "cents")
    return stream.groupBy("k").aggregate(n=agg.count(), cents=agg.sum("v"), most=agg.max("v")).uid(UID)


def _by_function(stream: Any, ckpt: Any) -> Any:
    ckpt.migrate(UID).by(migrated)
    return _same(stream, ckpt)


_STARTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "fresh": _same,
    "restored": _same,
    "fields": _with_field,
    "function": _by_function,
}


def _starts(spark: SparkSession, keys: int, folder: str, savepoint: str) -> dict[str, dict[str, float]]:
    """Each start in turn, twice: the quicker one, by each figure."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in _STARTS}
    for turn in range(_TURNS):
        for name, make in _STARTS.items():
            with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as own:
                found[name].append(_started(spark, keys, own, savepoint if name != "fresh" else "none", make))
            print(f"    {name}, turn {turn + 1}: {found[name][-1]}", file=sys.stderr, flush=True)
    return {name: {k: min(t[k] for t in turns) for k in turns[0]} for name, turns in found.items()}


def _started(
    spark: SparkSession, keys: int, own: str, restore: str, make: Callable[[Any, Any], Any]
) -> dict[str, float]:
    """A start of the query as another job: until ``start()`` returns, and until the first batch is through."""
    settings = {"spark.ckpt.dir": f"{own}/ckpt", "spark.ckpt.initialDelay": "0s", "spark.ckpt.cache.dir": f"{own}/c"}
    ours.configure(spark, {**settings, "spark.ckpt.restore": restore})
    ckpt = spark_ckpt.enable(spark)
    before = () if restore == "none" else _filled(keys).phases
    load = Load(keys, (*before, Phase(min(BATCH, keys), 1)))
    stream = ckpt.readStream.format(LoadSource).option("load", json.dumps(load.to_json())).load()
    writer = make(stream, ckpt).writeStream.format(DiscardSink).queryName("bench")
    began = time.time()
    query = writer.trigger(processingTime="0 seconds").start()
    started = time.time()
    try:
        first = follow(query, load, bool)[0]
    finally:
        query.stop()
    return {"started_s": started - began, "first_batch_s": first["began"] + first["ms"] / 1000 - began}


# -- a look-up ---------------------------------------------------------------------------------------------------------


_READ: Counter[str] = Counter()
"""Bytes that were read, by file."""


class CountingFiles(LocalFileSystem):
    """Local files as an object store has them: what is read of each is counted."""

    protocol = "counted"

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        file = super()._open(path, mode, **more)
        return file if "w" in mode else _Counted(file, path)


class _Counted:
    def __init__(self, file: Any, path: str) -> None:
        self._file, self._path = file, path

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read(size))
        _READ[self._path] += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _look_up(savepoint: str, keys: int) -> dict[str, Any]:
    """One key of all: which files are read, and how many bytes of them."""
    fsspec.register_implementation("counted", CountingFiles, clobber=True)
    state = spark_ckpt.savepoint(f"counted://{savepoint}").state(UID)
    _READ.clear()
    key = keys // 3
    took_s = _seconds(lambda: _one_row(state.get(key)))
    read = dict(_READ)
    parquet = {path: size for path, size in read.items() if path.endswith(".parquet")}
    return {
        "s": took_s,
        "state_files": len(parquet),
        "state_bytes": sum(parquet.values()),
        "other_bytes": sum(read.values()) - sum(parquet.values()),
    }


def _one_row(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 1, rows


# -- bootstrap -------------------------------------------------------------------------------------------------------


def _of_history(spark: SparkSession, keys: int, folder: str) -> dict[str, Any]:
    """The state of a stream over rows that a batch has, some for each key; raw is the same aggregation as Spark's batch
    query, written as Parquet."""
    rows = keys * _ROWS_OF_HISTORY
    past = spark.range(rows).select((F.col("id") % keys).alias("k"), (F.col("id") % 1000).alias("v"))

    def aggregated() -> None:
        counted = past.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        counted.write.mode("overwrite").parquet(f"{folder}/raw")

    raw_s = min(_seconds(aggregated) for _ in range(_REPEATS))
    ours.configure(spark, {"spark.ckpt.dir": f"{folder}/ckpt"})
    ckpt = spark_ckpt.enable(spark)
    totals = _counted(ckpt, Load(keys, (Phase(keys, 1),)))

    def bootstrapped() -> None:
        ckpt.savepoint_writer(totals, outputMode="update").bootstrap(UID, past).write(f"{folder}/bootstrapped")

    took_s = _seconds(bootstrapped)
    made = spark_ckpt.savepoint(f"{folder}/bootstrapped").describe()["operators"][UID]
    assert made["keys"] == keys, made
    return {"keys": keys, "rows": rows, "s": took_s, "raw_s": raw_s}


def _counted(ckpt: Any, load: Load) -> DataFrame:
    stream = ckpt.readStream.format(LoadSource).option("load", json.dumps(load.to_json())).option("uid", "rows").load()
    counted: DataFrame = stream.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total")).uid(UID)
    return counted


# -- import ------------------------------------------------------------------------------------------------------------


def _of_plain_spark(spark: SparkSession, keys: int, folder: str) -> dict[str, Any]:
    """The checkpoint of the same query on plain Spark; raw is what Spark's own reader of state needs."""
    load = Load(keys, (Phase(keys, 1),))
    query = plain.start(spark, "jvm", "count", load, folder)
    try:
        follow(query, load, _to_the_end)
    finally:
        query.stop()
    where = f"{folder}/spark"

    def read() -> None:
        spark.read.format("statestore").load(where).write.mode("overwrite").parquet(f"{folder}/raw")

    raw_s = min(_seconds(read) for _ in range(_REPEATS))
    ours.configure(spark, {"spark.ckpt.dir": f"{folder}/ckpt"})
    ckpt = spark_ckpt.enable(spark)
    totals = _counted(ckpt, load)
    offsets = {"rows": {"offset": {"row": keys}}}
    took_s = _seconds(lambda: ckpt.import_spark(where, totals, f"{folder}/imported", offsets, outputMode="update"))
    made = spark_ckpt.savepoint(f"{folder}/imported").describe()["operators"][UID]
    assert made["keys"] == keys, made
    return {"keys": keys, "s": took_s, "raw_s": raw_s}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    conf = {"spark.sql.streaming.stateStore.providerClass": PROVIDERS["rocksdb"]}
    spark = make_session(f"local[{CORES}]", CORES, conf)
    try:
        say(measure(spark, **wanted))
    except Exception as e:  # noqa: BLE001 - the answer of a process boundary
        say_error(e)
    spark.stop()


if __name__ == "__main__":
    # As a module of its own name, so that executors find the classes by import and not in __main__.
    from benchmarks.workers.savepoints import main as imported_main

    imported_main()
