"""Random jobs that change: what goes on is right key by key, or is refused with a line that makes it right."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.how_many import some
from tests.spark.changing_cells import Cell, covering, tried


@pytest.mark.more
@pytest.mark.parametrize("cell", covering(some(1)), ids=lambda cell: str(cell.seed))
def test_a_job_that_changes_goes_on_with_the_right_values_or_says_what_to_write(
    spark: SparkSession, tmp_path: Path, cell: Cell
) -> None:
    """In other places, with other numbers of partitions."""
    wrong, refusals = tried(spark, tmp_path / "cell", cell)
    assert not wrong, (cell, refusals)
