"""A start does not go on where a newer Spark has been. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.jobs import _spark_locations
from tests.storage.whole_job import WholeJob


def spark_is(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spark_locations, "spark_version", lambda: version)


def test_a_newer_spark_goes_on_at_the_location_and_an_older_one_from_the_newest_checkpoint_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = WholeJob(tmp_path)
    spark_is((4, 1), monkeypatch)
    job.start()
    job.step(True)
    spark_is((4, 2), monkeypatch)
    newer = WholeJob(tmp_path)
    newer.start()
    newer.step(True)
    spark_is((4, 1), monkeypatch)
    with pytest.raises(ConfigError, match=r"location .*/spark: expected batches of Spark 4\.1 or older.*Spark 4\.2"):
        WholeJob(tmp_path).start()
    older = WholeJob(tmp_path)
    older.start(location="empty")
    assert older.run.restored_from == 2
    older.step(True)
    WholeJob(tmp_path).start(location="empty")
