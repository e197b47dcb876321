"""The kit for users' jobs, in real Spark. That it finds a mistake there: test_kit_plugin.py."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.testing.jobs import JobUnderTest, Rows
from spark_ckpt.testing.jobs._spark import PLACES, SparkSchedule
from tests.testing.test_jobs_under_test import BY_MERCHANT, PAYMENTS, totals


def test_schedules_are_always_the_same_and_the_first_ones_die_at_each_place() -> None:
    schedules = [SparkSchedule.of(n) for n in range(100)]
    assert schedules == [SparkSchedule.of(n) for n in range(100)]
    assert {s.kills[0][0] for s in schedules[: len(PLACES)]} == set(PLACES)
    assert {len(s.kills) for s in schedules} == {1, 2}
    assert {s.moves[0] for s in schedules} == {True, False}


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_job_without_mistakes_passes_in_spark_whatever_dies() -> None:
    job = JobUnderTest(totals, {"payments": PAYMENTS}, compare=BY_MERCHANT, output_mode="update")
    job.check_with_spark(len(PLACES))


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_what_the_jvm_computes_is_tried_there_and_no_rows_or_an_error_are_told() -> None:
    def dear(payments: Any) -> Any:
        return payments.where("cents > 3").groupBy("merchant").agg(F.sum("cents").alias("cents")).uid("dear")

    JobUnderTest(dear, {"payments": PAYMENTS}, compare=BY_MERCHANT, output_mode="update").check_with_spark(1)
    none = Rows("merchant string, cents long")
    with pytest.raises(InvalidInputError, match="expected the job to come to 'after CreateCompletion' 2 times"):
        JobUnderTest(dear, {"payments": none}, compare=BY_MERCHANT, output_mode="update").check_with_spark(1)
    with pytest.raises(CkptError, match=r"(?s)^start 1 ended with code 1:.*use outputMode\('update'\)"):
        JobUnderTest(dear, {"payments": PAYMENTS}).check_with_spark(1)
