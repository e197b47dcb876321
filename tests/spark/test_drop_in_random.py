"""Random functions over random rows do here what they do in plain Spark, on the same files, batch by batch.

Many programs run in one pair of queries: a key is a program. A row says what the function does when it comes, and every
call puts out what it saw, the watermark among it, so that a time-out or a late row that is one batch off shows.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState

from tests.spark.conftest import Input, Job, named, ordered, rows_of_spark

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]
ROWS = "k string, t timestamp, does string, ms long"
STATE = "n long, last string"
OUT = "k string, saw string"
DOES = ("update", "update", "renew", "renew", "renew", "keep", "remove", "remove and wait", "wait")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _program(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    now, before = state.getCurrentWatermarkMs(), state.getOption
    if state.hasTimedOut:
        n = (before or (0, ""))[0]
        if n % 3:
            state.remove()
        else:
            state.update((n + 1, "timed out"))
            if n % 2:
                state.setTimeoutTimestamp(now + 700)
        yield pd.DataFrame({"k": [key[0]], "saw": [f"timed out at {now}: {before}"]})
        return
    rows = pd.concat(list(frames)).sort_values(["t", "ms", "does"], kind="stable")
    for row in rows.itertuples():
        n = (state.getOption or (0, ""))[0]
        if row.does in ("update", "renew"):
            state.update((n + 1, row.does))
        elif row.does in ("remove", "remove and wait"):
            state.remove()
        if row.does in ("renew", "remove and wait", "wait"):
            state.setTimeoutTimestamp(now + row.ms)
    done = [f"{row.t} {row.does}" for row in rows.itertuples()]
    yield pd.DataFrame({"k": [key[0]], "saw": [f"{done} at {now}: {before}"]})


def _batches(chance: random.Random, base: datetime, keys: int, batches: int) -> list[list[tuple[Any, ...]]]:
    """The newest event time goes on by about a second a batch; rows are up to four seconds older."""
    found = []
    for number in range(batches):
        newest = base + timedelta(milliseconds=1000 * number + chance.choice([0, 0, 300]))
        rows: list[tuple[Any, ...]] = []
        for _ in range(keys):
            back = timedelta(microseconds=chance.choice([0, 1, 999, 1000, 500_500, chance.randrange(4_000_000)]))
            time = None if chance.random() < 0.03 else newest - back
            ms = chance.choice([1, 200, 900, 1000, 1001, 3000])
            rows.append((f"p{chance.randrange(keys)}", time, chance.choice(DOES), ms))
        if chance.random() < 0.15:
            rows = [(k, None, does, ms) for k, _, does, ms in rows[: keys // 4]]  # does not move the watermark
        found.append(rows)
    return found


def _query(df: Any, delay: str) -> Any:
    grouped = df.withWatermark("t", delay).groupBy("k")
    return named(grouped.applyInPandasWithState(_program, OUT, STATE, "append", "EventTimeTimeout"), "query")


def _plain(df: Any, folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows_of_spark(df, folder)]


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_see_what_they_see_in_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, seed: int
) -> None:
    """In two lives: the second goes on from a checkpoint at an empty location here, and where it stood in Spark."""
    chance = random.Random(seed)
    base = EPOCH + timedelta(milliseconds=-1500) if seed % 2 else datetime(2023, 11, 14, tzinfo=timezone.utc)
    delay, batches = chance.choice(["0 seconds", "1 second", "2500 milliseconds"]), _batches(chance, base, 60, 8)
    data = new_input("in", ROWS)
    expected: list[tuple[Any, ...]] = []
    for life, part in enumerate((batches[:4], batches[4:])):
        for rows in part:
            data.add(*rows)
        expected += _plain(_query(data.spark_stream(spark), delay), tmp_path / "plain")
        options = {"interval": "1ms", "initialDelay": "0s", "checkpointLocation": str(tmp_path / f"location-{life}")}
        job.run(_query(data.stream(ckpt), delay), **options)
    assert sum("timed out at" in row[1] for row in expected) > 10
    assert job.rows() == ordered(expected)
