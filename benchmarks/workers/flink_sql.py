"""Keyed count and sum as Flink SQL. One process runs several jobs one after the other in one JVM.

    python -m benchmarks.workers.flink_sql '{"keys": ..., "rows": [...], "backend": "rocksdb" | "hashmap",
                                             "mini_batch": 200000}'

``mini_batch`` 0 switches mini-batches off.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import StreamTableEnvironment

from benchmarks.loads import PRIME
from benchmarks.workers.flink_conf import answer, configuration


def mini_batches(rows: int) -> dict[str, str]:
    """Local-global aggregation over mini-batches: what Flink's tuning guide advises."""
    if not rows:
        return {}
    return {
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": str(rows),
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    }


def tables(rows: int, conf: dict[str, str]) -> tuple[Any, StreamTableEnvironment]:
    """The environments, with the numbers ``0..rows-1`` as table ``numbers``, column ``f0``, made on the JVM."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(conf))
    table_env = StreamTableEnvironment.create(env)
    source = NumberSequenceSource(0, rows - 1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    table_env.create_temporary_view("numbers", stream)
    return env, table_env


def run(mini_batch: int, keys: int, rows: int, backend: str, folder: str) -> float:
    """Seconds of one job."""
    conf = {**mini_batches(mini_batch), "state.backend.type": backend, "execution.checkpointing.dir": folder}
    _, table_env = tables(rows, conf)
    table_env.execute_sql(
        "CREATE TEMPORARY TABLE discarded (k BIGINT, n BIGINT, total BIGINT) WITH ('connector' = 'blackhole')"
    )
    began = time.perf_counter()
    table_env.execute_sql(
        "INSERT INTO discarded SELECT k, COUNT(*), SUM(v) FROM "
        f"(SELECT MOD(f0 * {PRIME}, {keys}) AS k, f0 AS v FROM numbers) GROUP BY k"
    ).wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    answer(partial(run, asked["mini_batch"]), asked)
