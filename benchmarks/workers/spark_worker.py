"""A process with one Spark session that runs one request after the other.

    python -m benchmarks.workers.spark_worker '{"role": "ours" | "jvm" | "pandas", "master": "local[2]", ...}'

A request is a line of JSON on standard input, its answer one of :mod:`benchmarks.answers`. The
session stays, so that Spark's start and the JVM's warm-up are paid once; state and folders do not.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.answers import say, say_error
from benchmarks.loads import Load, behind_warm_up
from benchmarks.workers.spark_session import PROVIDERS, follow, make_session


def run(spark: Any, role: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run one workload for the time asked for."""
    load = Load.from_json(request["load"])
    spark.conf.set("spark.sql.shuffle.partitions", str(request["partitions"]))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[request["provider"]])
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        query = _start(spark, role, request, load, folder)
        try:
            batches = follow(query, load, lambda b: _enough(b, load, request))
            answer: dict[str, Any] = {"batches": batches}
            if request.get("answer"):
                answer["changes"] = _changes(spark, role, query, request["workload"], folder)
            elif role == "ours":
                query, more = _ours_only(spark, query, request, load, folder)
                answer.update(more)
        finally:
            query.stop()
        answer["disk_bytes"] = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
    return answer


def _start(spark: Any, role: str, request: Mapping[str, Any], load: Load, folder: str) -> Any:
    kept = bool(request.get("answer"))
    if role == "ours":
        from benchmarks.workers import ours

        return ours.start(spark, request["workload"], load, folder, request["conf"], kept=kept)
    from benchmarks.workers import plain

    return plain.start(spark, role, request["workload"], load, folder, kept)


def _changes(spark: Any, role: str, query: Any, workload: str, folder: str) -> list[Any]:
    """All rows that came out with the kinds of their changes, as the Flink worker tells them."""
    if role == "ours":
        from benchmarks.workers import ours

        table = ours.rows(query, folder)
    else:
        from benchmarks.workers import plain

        table = plain.rows(spark, query)
    from benchmarks.workers.queries import QUERIES

    kinds = table["op"].to_pylist() if "op" in table.column_names else ["+I"] * table.num_rows
    columns = [_numbers(table[name]) for name in QUERIES[workload].columns]
    return [[kind, list(row)] for kind, row in zip(kinds, zip(*columns), strict=True)]


def _numbers(column: Any) -> list[int]:
    """A window is its start, a time its microseconds."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        column = pa.chunked_array([chunk.field("start") for chunk in column.chunks])
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    numbers: list[int] = column.to_pylist()
    return numbers


def _enough(batches: list[dict[str, Any]], load: Load, request: Mapping[str, Any]) -> bool:
    """Whether the last phase has been measured long enough, or has taken too long."""
    last = [b for b in batches if b["phase"] == len(load.phases) - 1]
    measured = behind_warm_up(last, request["warm_up"], request["warm_up_s"])
    if load.total is not None or not measured:
        return False
    wall = measured[-1]["began"] + measured[-1]["ms"] / 1000 - measured[0]["began"]
    return (wall >= request["seconds"] and len(measured) >= request["min_batches"]) or wall >= request["max_seconds"]


def _ours_only(
    spark: Any, query: Any, request: Mapping[str, Any], load: Load, folder: str
) -> tuple[Any, dict[str, Any]]:
    """The checkpoints; with ``snapshot``, its raw counterpart; with ``restore``, the time of a restart."""
    from benchmarks.workers import ours

    more: dict[str, Any] = {}
    if request.get("snapshot"):
        from benchmarks.workers.snapshot import raw_writes

        query.checkpoint()
        more["snapshot"] = raw_writes(query, folder)
    more["checkpoints"] = ours.checkpoints(query)
    if request.get("restore"):

        def again(conf: Mapping[str, str]) -> Any:
            return ours.start(spark, request["workload"], load, folder, {**request["conf"], **conf}, attempt="2")

        query, began = ours.restart(query, again)
        started = time.time()
        first = follow(query, load, bool)[0]
        more["restore"] = {"started_s": started - began, "first_batch_s": first["began"] + first["ms"] / 1e3 - began}
    return query, more


def main() -> None:
    setup = json.loads(sys.argv[1])
    spark = make_session(setup["master"], setup["cores"], setup["conf"])
    say({"ready": True})
    for line in sys.stdin:
        try:
            say(run(spark, setup["role"], json.loads(line)))
        except Exception as e:  # noqa: BLE001 - the answer of a process boundary
            say_error(e)
    spark.stop()


if __name__ == "__main__":
    # As a module of its own name, so that executors find the classes by import and not in __main__.
    from benchmarks.workers.spark_worker import main as imported_main

    imported_main()
