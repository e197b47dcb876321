"""A user's job under crashes, without Spark: see docs/testing-a-job.md and docs/design/testing-jobs.md."""

from __future__ import annotations

from spark_ckpt.testing.jobs._comparing import ScheduleError, latest_by
from spark_ckpt.testing.jobs._frames import Frame
from spark_ckpt.testing.jobs._job import JobUnderTest, Run
from spark_ckpt.testing.jobs._rows import CollectSink, Rows

__all__ = ["CollectSink", "Frame", "JobUnderTest", "Rows", "Run", "ScheduleError", "latest_by"]
