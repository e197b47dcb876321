"""History that is bootstrapped, and then live rows: what comes out is what plain Spark puts out that has read both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Input, Job
from tests.spark_checkpoints.kept import VERSIONS, as_texts, expected
from tests.spark_checkpoints.make import CASES
from tests.spark_checkpoints.plain_queries import BEFORE, BEHIND, SCHEMA, rows

NewInput = Callable[[str, str], Input]
BY_BATCHES = ("3", "4")
"""The branches of ``kinds`` that give another result if the same rows come in other batches, in plain Spark too:
duplicates within the watermark, whose state ends with a batch, and the function, which looks at the watermark."""
OF_ROWS = {"aggregates-hdfs": "v", "collected-snapshots": "v"}
"""Those that depend on the order of the rows, and by what they are ordered."""
IN_SHORT = ("joins-hdfs",)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, marks=[] if c in IN_SHORT else pytest.mark.soak)
        for c in ("aggregates-hdfs", "collected-snapshots", "kinds-hdfs", "joins-hdfs", "semi-hdfs")
    ],
)
def test_bootstrapped_history_and_live_rows_give_what_plain_spark_gives_of_all_rows(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, case: str
) -> None:
    query, mode, keys, _ = CASES[case]
    past, live = new_input("past", SCHEMA), new_input("live", SCHEMA)
    for source, begins in ((past, BEFORE), (live, BEHIND)):
        for at in begins:
            source.add(*rows(at))
    df = query(live.stream(ckpt))
    writer = ckpt.savepoint_writer(df, outputMode=mode)
    for uid in writer.query.nodes:
        writer.bootstrap(uid, past.table(spark), OF_ROWS.get(case, ()))
    made = writer.write(str(tmp_path / "made"))
    job.run(df, keys, mode=mode, spark__ckpt__restore=made.path)
    found, wanted = as_texts(job.rows()), expected(VERSIONS[-1], case)
    if case.startswith("kinds"):
        found, wanted = (_of_rows(texts) for texts in (found, wanted))
    assert found == wanted
    assert found


def _of_rows(texts: list[str]) -> list[str]:
    ends = tuple(f"'{branch}')" for branch in BY_BATCHES)
    return [text for text in texts if not text.endswith(ends)]
