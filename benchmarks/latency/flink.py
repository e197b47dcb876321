"""The job of the section as Flink SQL, with Kafka as its only sink. One process runs one job after the other.

    python -m benchmarks.latency.flink '{"jar": "/path/of/flink-sql-connector-kafka.jar"}'

Requests and answers are those of ``latency/ours.py``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from benchmarks.answers import say
from benchmarks.workers.flink_conf import configuration

_KAFKA = "'properties.bootstrap.servers' = '{brokers}', 'value.format' = 'json'"
_EVENTS = (
    "CREATE TEMPORARY TABLE events (k BIGINT, v BIGINT) WITH ('connector' = 'kafka', 'topic' = '{events}', "
    "'scan.startup.mode' = 'earliest-offset', " + _KAFKA + ")"
)
# Its rows are updates by key: that connector writes the newest of each, by the same transactions.
_TOTALS = (
    "CREATE TEMPORARY TABLE totals (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH "
    "('connector' = 'upsert-kafka', 'topic' = '{totals}', 'key.format' = 'json', "
    "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{totals}', "
    "'properties.transaction.timeout.ms' = '600000', " + _KAFKA + ")"
)
_QUERY = "INSERT INTO totals SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events GROUP BY k"


def start(jar: str, asked: Mapping[str, Any]) -> Any:
    """The client of the running job."""
    conf = {
        "pipeline.jars": f"file://{jar}",
        "state.backend.type": "hashmap",
        "execution.checkpointing.dir": f"file://{asked['folder']}",
        "execution.checkpointing.interval": asked["interval"],
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        **asked.get("conf", {}),
    }
    table_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(configuration(conf)))
    for table in (_EVENTS, _TOTALS):
        table_env.execute_sql(table.format(**asked["places"]))
    return table_env.execute_sql(_QUERY).get_job_client()


def main() -> None:
    setup = json.loads(sys.argv[1])
    job: Any = None
    say({"ready": True})
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            if "start" in asked:
                job = start(setup["jar"], asked["start"])
                say({"started": True})
            else:
                job.cancel().result()
                say({})
        except Exception as e:  # noqa: BLE001 - the answer of a process boundary
            say({"error": f"{type(e).__name__}: {str(e)[:2000]}"})


if __name__ == "__main__":
    main()
