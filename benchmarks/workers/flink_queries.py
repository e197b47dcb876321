"""The queries of ``workers/queries.py`` as Flink SQL. One process runs one request after the other in one JVM.

A request is a line of JSON on standard input: ``{"query": ..., "keys": ..., "rows": ..., "window_rows": ...,
"mini_batch": ...}``, with ``"answer": true`` for the rows themselves. Rows and keys are those of ``loads.Load``, made
on the JVM; the two readers take every other row each, so that both are at the same event time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

from benchmarks.answers import say
from benchmarks.loads import PRIME, START_S
from benchmarks.workers.flink_conf import configuration
from benchmarks.workers.flink_sql import mini_batches

_WINDOWS = "SELECT CAST(window_start AS TIMESTAMP(3)) AS s, k, COUNT(*) AS n, SUM(v) AS total FROM TABLE({}) GROUP BY "
_WINDOWS += "k, window_start, window_end"
_PLACED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS place FROM numbers)"
_ROUND = "(SELECT * FROM numbers WHERE MOD((v - MOD(v, {{keys}})) / {{keys}}, 2) = {})"
SECONDS = "INTERVAL '{}' SECOND"

SQL = {
    "agg": "SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS l FROM numbers GROUP BY k",
    "windows, tumbling": _WINDOWS.format(f"TUMBLE(TABLE numbers, DESCRIPTOR(ts), {SECONDS.format(10)})"),
    "windows, sliding": _WINDOWS.format(
        f"HOP(TABLE numbers, DESCRIPTOR(ts), {SECONDS.format(5)}, {SECONDS.format(10)})"
    ),
    "session_window": _WINDOWS.format(f"SESSION(TABLE numbers PARTITION BY k, DESCRIPTOR(ts), {SECONDS.format(5)})"),
    # The first row of each is kept; state ends by a time-to-live, which is processing time: Flink has no other there.
    "dropDuplicates": f"SELECT k, CAST(ts AS TIMESTAMP(3)) AS t FROM {_PLACED.format('k, ts', 'proc')} WHERE place = 1",
    "dropDuplicatesWithinWatermark": f"SELECT k FROM {_PLACED.format('k', 'proc')} WHERE place = 1",
    # What does not change is a versioned table, joined as of each row's time: state ends with the watermark.
    "join, static": "SELECT n.k, n.v, p.price FROM numbers n JOIN prices FOR SYSTEM_TIME AS OF n.ts p ON n.k = p.k",
    "join, two streams": "SELECT a.k, CAST(a.ts AS TIMESTAMP(3)) AS t, a.v, b.v AS w "
    f"FROM {_ROUND.format(0)} a JOIN {_ROUND.format(1)} b ON a.k = b.k AND a.ts = b.ts",
    "top-N": f"SELECT k, place, price, v FROM {_PLACED.format('k', 'price DESC, v')} WHERE place <= 3",
}
TTL = {"dropDuplicates": "1 min", "dropDuplicatesWithinWatermark": "10 s"}


def tables(request: Mapping[str, Any], conf: Mapping[str, str]) -> StreamTableEnvironment:
    """``numbers`` with the columns ``k, v, price, ts, proc``, and ``prices`` where they are joined."""
    rows, keys, window_rows = request["rows"], request["keys"], request["window_rows"]
    env = StreamExecutionEnvironment.get_execution_environment(configuration(conf))
    table_env = StreamTableEnvironment.create(env)
    table_env.get_config().set_local_timezone("UTC")
    half = (rows + 1) // 2
    number = f"(CASE WHEN f0 < {half} THEN 2 * f0 ELSE 2 * (f0 - {half}) + 1 END)"
    moment = f"({number} - MOD({number}, {window_rows})) / {window_rows}"
    columns = {
        "v": number,
        "k": f"CAST(MOD({number} * {PRIME}, {keys}) AS BIGINT)",
        "price": f"CAST(MOD({number} * 7919, 1000003) AS BIGINT)",
        "ts": f"TO_TIMESTAMP_LTZ({moment} * 10000 + {START_S * 1000}, 3)",
        "proc": "PROCTIME()",
    }
    _sequence(env, table_env, "numbers", rows, columns, "ts", 10)
    if request["query"] == "join, static":
        _sequence(env, table_env, "price_rows", keys, {"since": "TO_TIMESTAMP_LTZ(0, 3)"}, "since", 1)
        table_env.execute_sql(
            "CREATE TEMPORARY VIEW prices AS SELECT k, price, since FROM (SELECT 2 * f0 AS k, f0 AS price, since, "
            "ROW_NUMBER() OVER (PARTITION BY 2 * f0 ORDER BY since DESC) AS place FROM price_rows) WHERE place = 1"
        )
    return table_env


def _sequence(
    env: Any, table_env: Any, name: str, rows: int, columns: Mapping[str, str], time_column: str, delay_s: int
) -> None:
    """The numbers from 0 on as ``f0``, with computed ``columns`` and a watermark."""
    source = NumberSequenceSource(0, rows - 1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), name, Types.LONG())
    schema = Schema.new_builder().column("f0", DataTypes.BIGINT())
    for column, expression in columns.items():
        schema = schema.column_by_expression(column, expression)
    schema = schema.watermark(time_column, f"{time_column} - {SECONDS.format(delay_s)}")
    table_env.create_temporary_view(name, stream, schema.build())


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of one job, or its rows with their kinds of change."""
    query = request["query"]
    with tempfile.TemporaryDirectory(prefix="bench-flink-", ignore_cleanup_errors=True) as folder:
        conf = {
            **mini_batches(request.get("mini_batch", 0)),
            "state.backend.type": "hashmap",
            "execution.checkpointing.dir": f"file://{folder}",
            "table.exec.state.ttl": TTL.get(query, "0 s"),
        }
        table_env = tables(request, conf)
        selected = table_env.sql_query(SQL[query].format(keys=request["keys"]))
        if request.get("answer"):
            with selected.execute().collect() as found:
                return {"changes": [[str(row.get_row_kind()), [*map(_plain, row)]] for row in found]}
        columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(_kinds(selected)))
        table_env.execute_sql(f"CREATE TEMPORARY TABLE discarded ({columns}) WITH ('connector' = 'blackhole')")
        began = time.perf_counter()
        selected.execute_insert("discarded").wait()
        return {"seconds": time.perf_counter() - began}


def _kinds(table: Any) -> list[str]:
    names = {"BigIntType": "BIGINT", "TimestampType": "TIMESTAMP(3)"}
    return [names[type(kind).__name__] for kind in table.get_schema().get_field_data_types()]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def main() -> None:
    for line in sys.stdin:
        try:
            say(run(json.loads(line)))
        except Exception as e:  # noqa: BLE001 - the answer of a process boundary
            say({"error": f"{type(e).__name__}: {str(e)[:2000]}"})


if __name__ == "__main__":
    main()
