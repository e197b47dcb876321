"""The job that is killed at scale: ``chaos_job.py '{"dir": ..., ...}'``. Start the same command whatever happened.

Two sources, two keyed operators, four sinks. It runs until it is killed; with ``end`` until all input is committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd

import spark_ckpt
from spark_ckpt import agg
from tests.kill.killed_job import session
from tests.soak.chaos_data import RESET, RESULT, SCHEMA, SOURCES

JOB = "killed"
TOTALS, NUMBERED = "totals", "numbered"


def number_rows(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The state of a group is fed by both sources; what a row gets depends on its own source's part."""
    parts = list(state.get) if state.exists else [0, 0, 0, 0]
    rows = pd.concat(list(frames)).sort_values("id")
    seqs, totals = [], []
    for src, s in zip(rows["src"], rows["s"]):
        at = 2 * int(src)
        if parts[at] == RESET:
            parts[at : at + 2] = [0, 0]
        parts[at : at + 2] = [parts[at] + 1, parts[at + 1] + int(s)]
        seqs.append(parts[at])
        totals.append(parts[at + 1])
    if all(parts[at] in (0, RESET) for at in (0, 2)):
        state.remove()
    else:
        state.update(tuple(parts))
    yield rows.assign(seq=seqs, total=totals)


def start(ckpt: Any, plan: dict[str, Any]) -> Any:
    a, b = (_stream(ckpt, plan, source) for source in SOURCES)
    totals = a.union(b).groupBy("k").aggregate(emit="rows", orderBy="id", n=agg.count(), s=agg.sum("v")).uid(TOTALS)
    result = (
        totals.select(*(column.split()[0] for column in RESULT.split(", ")[:-2]))
        .groupBy("g")
        .applyInPandasWithState(
            number_rows, RESULT, "seq0 long, total0 long, seq1 long, total1 long", "append", "NoTimeout"
        )
        .uid(NUMBERED)
    )
    (kind, own), *others = plan["sinks"]
    writer = result.writeStream.format(kind).options(**own).option("checkpointLocation", plan["location"])
    for kind, options in others:
        writer = writer.alsoTo(kind, **options)
    trigger = {"availableNow": True} if plan["end"] else {"processingTime": "0 seconds"}
    return writer.queryName(JOB).trigger(**trigger).start()


def _stream(ckpt: Any, plan: dict[str, Any], source: str) -> Any:
    reader = ckpt.readStream.format("files").option("fileFormat", "parquet" if source == "a" else "json")
    reader = reader.schema(SCHEMA).option("maxFilesPerTrigger", 2).option("discoveryInterval", "200ms")
    return reader.option("uid", source).load(f"{plan['input']}/{source}")


def main() -> None:
    plan = json.loads(sys.argv[1])
    spark = session(plan)
    spark.sparkContext.setLogLevel("ERROR")
    query = start(spark_ckpt.enable(spark), plan)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
