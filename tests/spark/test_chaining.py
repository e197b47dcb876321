"""Python operations that share a worker do what they do apart, and leave the same state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.runtime.operations import Disclose, Enclose
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from tests.spark.conftest import Input, Job

NewInput = Callable[[str, str], Input]


def _doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(v=frame["v"] * 2)


def _totals(source: Input, ckpt: Any) -> Any:
    """Everything that can be chained: source, projection, Python step, watermark, two operators, a step, the sink."""
    stream = source.stream(ckpt).select("k", "v", "t").mapInPandas(_doubled, "k string, v long, t timestamp")
    stream = stream.withWatermark("t", "1 hour")
    rows = stream.groupBy("k").aggregate(emit="rows", n=agg.count()).uid("rolling")
    return rows.groupBy("k", "n").aggregate(total=agg.sum("v")).uid("totals").select("total", "k", "n")


@pytest.fixture
def source(new_input: NewInput) -> Input:
    made = new_input("input", "k string, v long, t timestamp")
    made.add(*[(f"k{i % 5}", i, i * 1_000_000) for i in range(40)])
    made.add(
        *[(None if i % 9 == 0 else "Grüße aus einer langen Zeichenkette, länger als 32 Bytes", i, 0) for i in range(20)]
    )
    return made


@pytest.mark.parametrize(
    "first",  # joins and de-duplication are chained first in the test command
    [pytest.param(True, marks=pytest.mark.soak), False],
    ids=["chained first", "chained last"],
)
def test_a_job_may_be_chained_in_one_run_and_not_in_the_next(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, first: bool
) -> None:
    """Keys hashed in Python are found again by the JVM's hash, and the other way round."""
    job.run(_totals(source, ckpt), "k,n", chaining=first)
    source.add(*[(f"k{i % 7}", 1, 0) for i in range(30)], (None, 5, 0))
    query = job.run(_totals(source, ckpt), "k,n", chaining=not first, checkpointLocation=str(tmp_path / "elsewhere"))
    expected = source.table(ckpt.spark).toPandas().sort_index(kind="stable")
    expected["n"] = expected.groupby("k", dropna=False).cumcount() + 1
    rows = {(2 * int(r.v), None if r.k != r.k or r.k is None else r.k, int(r.n)) for r in expected.itertuples()}
    assert set(job.rows()) == rows
    assert query.job.verify() == []


def test_rows_of_a_source_without_operators_reach_the_sink_as_they_are(ckpt: Any, source: Input, job: Job) -> None:
    job.run(source.stream(ckpt))
    expected = [tuple(row) for row in source.table(ckpt.spark).select("k", "v").collect()]
    assert sorted((row[:2] for row in job.rows()), key=repr) == sorted(expected, key=repr)


def test_enclosed_batches_come_out_as_they_went_in() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3], "b": ["x", None, "zz"]})
    assert list(Disclose(batch.schema)(Enclose()(iter([batch, batch.slice(1, 1)])))) == [batch, batch.slice(1, 1)]


def test_keys_hash_in_python_as_in_the_jvm(spark: SparkSession) -> None:
    rng = random.Random(7)
    rows = 500
    columns = {
        "i": pa.array([rng.randint(-(2**31), 2**31 - 1) for _ in range(rows)], pa.int32()),
        "l": pa.array([rng.choice([None, rng.randint(-(2**63), 2**63 - 1)]) for _ in range(rows)], pa.int64()),
        "d": pa.array([rng.choice([None, 0.0, rng.gauss(0, 1e9)]) for _ in range(rows)]),
        "big": pa.array(
            [Decimal(rng.randint(-(10 ** rng.randint(1, 30)), 10**30)) for _ in range(rows)], pa.decimal128(38, 0)
        ),
        "s": pa.array(["".join(rng.choice("abü漢") for _ in range(rng.randint(0, 99))) for _ in range(rows)]),
        "b": pa.array([rng.choice([None, rng.randbytes(rng.randint(0, 200))]) for _ in range(rows)], pa.binary()),
    }
    names = list(columns)
    df = spark.createDataFrame(pa.table(columns)).coalesce(1)
    expected = df.select(*[F.xxhash64(n).alias(n) for n in names], F.xxhash64(*names).alias("all")).toArrow()
    for name in names:
        assert np.array_equal(xxhash64([normalised(columns[name])]), expected.column(name).to_numpy()), name
    assert np.array_equal(xxhash64(list(columns.values())), expected.column("all").to_numpy())
