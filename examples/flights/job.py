"""The streaming job of the demo, as one would write it: run again by the same command, it goes on.

    python -m examples.flights.job FOLDER [URL]

reads FOLDER/input, and writes a Delta table FOLDER/flights and a SQLite database FOLDER/aircraft.db. With URL, such as
s3://bucket/demo, input, checkpoints and Delta table are there; credentials come from the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg

SHORT_MIN = 40

FLIGHT = """id LONG, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, scheduled TIMESTAMP,
    departed TIMESTAMP, arrived TIMESTAMP, air_time INT, dep_delay INT, arr_delay INT"""
ROUTE = f"{FLIGHT}, flights LONG, mean_delay DOUBLE, max_delay INT"
TURNAROUND = f"{ROUTE}, turnaround_min LONG, short BOOLEAN, trips LONG, short_trips LONG"
STATE = "home_min LONG, dest STRING, trips LONG, short_trips LONG"


def turnarounds(key: tuple[str], batches: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Flag flights of an aircraft that left New York less than 40 minutes after it can have been back.

    An ordinary function for PySpark's ``applyInPandasWithState``. The data hold only the flights out of New York:
    the aircraft is home again after the arrival and a flight back as long as the flight out.
    """
    flights = pd.concat(list(batches)).sort_values("id", ignore_index=True)
    home, _, trips, short_trips = state.get if state.exists else (None, None, 0, 0)
    departed = flights["departed"].to_numpy("datetime64[m]").astype("int64").tolist()
    arrived = flights["arrived"].to_numpy("datetime64[m]").astype("int64").tolist()
    waits, shorts, counts, short_counts = [], [], [], []
    for left, landed, air_time in zip(departed, arrived, flights["air_time"].tolist()):
        waited = None if home is None else left - home
        short = waited is not None and 0 <= waited < SHORT_MIN
        trips, short_trips = trips + 1, short_trips + short
        waits.append(waited)
        shorts.append(short)
        counts.append(trips)
        short_counts.append(short_trips)
        home = None if pd.isna(air_time) else landed + int(air_time)
    state.update((home, flights["dest"].iat[-1], trips, short_trips))
    yield flights.assign(turnaround_min=pd.array(waits, "Int64"), short=shorts, trips=counts, short_trips=short_counts)


def start(spark: SparkSession, place: str, database: str) -> Any:
    """``place``: a folder or URL. ``database``: a SQLAlchemy URL."""
    ckpt = spark_ckpt.enable(spark)
    flights = (
        ckpt.readStream.format("files")
        .option("fileFormat", "parquet")
        .option("maxFilesPerTrigger", 4)
        .schema(FLIGHT)
        .load(f"{place}/input")
    )
    routes = (
        flights.where("departed is not null")
        .groupBy("carrier", "origin", "dest")
        .aggregate(
            emit="rows",
            orderBy="id",
            flights=agg.count(),
            mean_delay=agg.mean("dep_delay"),
            max_delay=agg.max("dep_delay"),
        )
        .uid("routes")
    )
    flagged = (
        routes.groupBy("tailnum")
        .applyInPandasWithState(turnarounds, TURNAROUND, STATE, "append", "NoTimeout")
        .uid("turnarounds")
    )
    return (
        flagged.writeStream.format("delta")
        .option("path", f"{place}/flights")
        .alsoTo(
            "sql",
            url=database,
            table="aircraft",
            mergeKeys="tailnum",
            columns="tailnum,id,carrier,dest,trips,short_trips",
        )
        .queryName("flights")
        .trigger(availableNow=True)
        .start()
    )


def settings(folder: Path, place: str) -> dict[str, str]:
    """Spark's own part of the job is in ``folder``."""
    return {
        "spark.app.name": "flights",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ckpt.dir": f"{place}/checkpoints",
        "spark.ckpt.sparkDir": str(folder / "spark"),
        "spark.ckpt.interval": "4s",
        "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.retain": "3",
        "spark.ckpt.maxParallelism": "16",
    }


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    place = sys.argv[2] if len(sys.argv) > 2 else str(folder)
    spark = SparkSession.builder.master("local[2]").config(map=settings(folder, place)).getOrCreate()
    start(spark, place, f"sqlite:///{folder}/aircraft.db").awaitTermination()


if __name__ == "__main__":
    main()
