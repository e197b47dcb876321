"""A source of one's own: an HTTP feed of measurements, as a Python DataSource. Each row counts once, whatever dies.

    python -m examples.own_source

starts a small HTTP server, reads it as a stream, stops the query with rows behind its last checkpoint, and starts it
again. One sees that the feed is told to forget only what a checkpoint covers, and that nothing is lost or doubled.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.request import Request, urlopen

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.sinks import memory


class Feed(BaseHTTPRequestHandler):
    """GET / tells how many rows there were so far, GET /3/9 gives some of them, DELETE /9 forgets those before."""

    rows: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        asked = [int(n) for n in self.path.split("/") if n]
        self.answer(self.rows[slice(*asked)] if asked else len(self.rows))

    def do_DELETE(self) -> None:
        n = int(self.path[1:])
        self.rows[:n] = [None] * n
        self.answer("forgotten")

    def answer(self, value: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: Any) -> None: ...


def call(url: str, method: str = "GET") -> Any:
    with urlopen(Request(url, method=method)) as answer:
        return json.load(answer)


class HttpReader(DataSourceStreamReader):
    """All but ``read`` is called on the driver. An offset is how many rows were there."""

    def __init__(self, url: str) -> None:
        self.url = url

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # the form without limits
        return {"rows": call(self.url)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        middle = (start["rows"] + end["rows"]) // 2
        return [InputPartition((start["rows"], middle)), InputPartition((middle, end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        first, end = partition.value
        yield from map(tuple, call(f"{self.url}/{first}/{end}"))

    def commit(self, end: dict[str, int]) -> None:
        # Plain Spark says this after each batch. Here it means that a checkpoint covers the rows before `end`.
        call(f"{self.url}/{end['rows']}", "DELETE")


class HttpSource(DataSource):
    def schema(self) -> str:
        return "sensor string, value long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return HttpReader(self.options["url"])


def main() -> None:
    server, folder = ThreadingHTTPServer(("127.0.0.1", 0), Feed), tempfile.mkdtemp(prefix="own-source-")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    measurements = [["abc"[i % 3], i] for i in range(6_000)]
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.ckpt.dir", f"{folder}/checkpoints")
    spark.conf.set("spark.ckpt.initialDelay", "1h")  # checkpoints where this example asks for them, and at the end
    spark.conf.set("spark.ckpt.interval", "1h")
    source = spark_ckpt.enable(spark).readStream.format(HttpSource)
    rows = source.option("url", f"http://127.0.0.1:{server.server_port}").load()
    means = rows.groupBy("sensor").aggregate(n=agg.count(), mean=agg.mean("value")).uid("means")
    writer = means.writeStream.format("memory").options(path=f"{folder}/means", mergeKeys="sensor").queryName("means")

    query = writer.start()
    for end in (3_000, 3_500, 4_000):
        Feed.rows += measurements[len(Feed.rows) : end]
        while sum(progress.numInputRows for progress in query.recentProgress) < end:
            time.sleep(0.1)
        if end == 3_000:
            print(f"checkpoint {query.checkpoint()} covers {end:,} rows")
    query.stop()
    kept = sum(row is not None for row in Feed.rows)
    print(f"stopped: {len(Feed.rows):,} rows were read, and the feed keeps {kept:,}, which no checkpoint covers")

    Feed.rows += measurements[4_000:]
    writer.trigger(availableNow=True).start().awaitTermination()
    found = memory.read(f"{folder}/means").sort_by("sensor").to_pylist()
    for row in found:
        print(f"  sensor {row['sensor']}: {row['n']:,} rows, mean {row['mean']:,}")
    once = [{"sensor": s, "n": 2_000, "mean": sum(range(i, 6_000, 3)) / 2_000} for i, s in enumerate("abc")]
    print("exactly once" if found == once else f"expected {once}")


if __name__ == "__main__":
    main()
