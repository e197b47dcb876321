"""Keyed count and sum as a PyFlink ``KeyedProcessFunction`` with value state.

    python -m benchmarks.workers.flink_process '{"keys": ..., "rows": [...], "backend": ..., "mode": ...}'

Rows and their keys are made on the JVM; only the keyed function is Python, as in a job that reads from a connector.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction
from pyflink.datastream.connectors import Sink
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

from benchmarks.loads import PRIME
from benchmarks.workers.flink_conf import answer
from benchmarks.workers.flink_sql import tables


class CountAndSum(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.state = context.get_state(ValueStateDescriptor("totals", Types.TUPLE([Types.LONG(), Types.LONG()])))

    def process_element(self, value: Any, context: Any) -> Iterator[Row]:
        n, total = self.state.value() or (0, 0)
        n, total = n + 1, total + value[1]
        self.state.update((n, total))
        yield Row(value[0], n, total)


def run(mode: str, keys: int, rows: int, backend: str, folder: str) -> float:
    """Seconds of one job."""
    conf = {
        "state.backend.type": backend,
        "execution.checkpointing.dir": folder,
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": "100000",
        "python.fn-execution.bundle.time": "1000",
        "python.fn-execution.arrow.batch.size": "10000",
        # All keys of a task fit, so that state is asked for once a key and not once a row.
        "python.state.cache-size": str(keys),
    }
    env, table_env = tables(rows, conf)
    query = f"SELECT MOD(f0 * {PRIME}, {keys}) AS k, f0 AS v FROM numbers"
    stream = table_env.to_data_stream(table_env.sql_query(query))
    out = stream.key_by(lambda row: row[0], key_type=Types.LONG()).process(
        CountAndSum(), Types.ROW([Types.LONG(), Types.LONG(), Types.LONG()])
    )
    jvm = get_gateway().jvm
    out.sink_to(Sink(jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))
    began = time.perf_counter()
    env.execute()
    return time.perf_counter() - began


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    answer(partial(run, asked["mode"]), asked)
