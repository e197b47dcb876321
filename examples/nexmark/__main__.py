"""Run one of Nexmark's queries, and compare what its sink holds with batch SQL over the same events.

    python -m examples.nexmark q5 --events 100000

Killed, it goes on if it is started again with the same ``--folder``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import spark_ckpt
from examples.nexmark import job
from examples.nexmark.queries import QUERIES


def session(folder: Path, interval: str = "5s") -> SparkSession:
    confs = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ckpt.dir": str(folder / "checkpoints"),
        "spark.ckpt.interval": interval,
        "spark.ckpt.maxParallelism": "16",
    }
    spark = SparkSession.builder.master("local[2]").appName("nexmark").config(map=confs).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description=__doc__)
    parser.add_argument("query", choices=QUERIES, metavar="query", help=", ".join(QUERIES))
    parser.add_argument("--events", default="100000", help="how many, of people, auctions and bids together")
    parser.add_argument("--folder", type=Path, help="for checkpoints and results; a new one if not given")
    parser.add_argument("--interval", default="5s", help="how often to take a checkpoint")
    parser.add_argument("--option", action="append", default=[], help="name=value, of the source; may be repeated")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="nexmark-"))).resolve()
    options = {"events": given.events, **dict(text.split("=", 1) for text in given.option)}
    spark = session(folder, given.interval)
    began = time.monotonic()
    job.start(spark_ckpt.enable(spark), given.query, folder, options).awaitTermination()
    seconds = time.monotonic() - began
    rows, wrong = job.check(spark, given.query, folder, options)
    rows.orderBy(*rows.columns).show(truncate=30)
    print(f"{given.query}: {int(given.events):,} events in {seconds:.0f} s; results are in {folder}")
    print(f"WRONG: {wrong}" if wrong else f"{rows.count():,} rows, equal to batch SQL over the same events")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
