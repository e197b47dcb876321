"""The reader for Spark before 4.2, driven as that Spark drives it: it says no start. No Spark is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_ckpt.runtime.source.unasked import UnaskedReader
from tests.sources.test_source_reader import reader


def inner(offset: Any) -> Any:
    return offset["inner"]


def test_a_batch_begins_where_the_one_that_spark_planned_last_ended(tmp_path: Path) -> None:
    unasked = UnaskedReader(reader(tmp_path))
    start = unasked.initialOffset()
    first = unasked.latestOffset()
    assert inner(first) != inner(start)
    assert inner(unasked.latestOffset()) == inner(first), "Spark has not planned it: it may ask again"
    unasked.partitions(start, first)
    second = unasked.latestOffset()
    assert inner(second) not in (inner(start), inner(first))


def test_a_restart_goes_on_behind_the_empty_batch_that_spark_plans_at_the_end_of_its_log(tmp_path: Path) -> None:
    before = UnaskedReader(reader(tmp_path))
    start = before.initialOffset()
    first = before.latestOffset()
    before.partitions(start, first)
    second = before.latestOffset()
    after = UnaskedReader(reader(tmp_path, generation=2))
    after.partitions(first, first)
    assert inner(after.latestOffset()) == inner(second)


def test_a_run_of_what_is_there_stands_still_at_its_end(tmp_path: Path) -> None:
    there = reader(tmp_path)
    there.run = replace(there.run, bounded=True)
    unasked = UnaskedReader(there)
    start = unasked.initialOffset()
    first = unasked.latestOffset()
    unasked.partitions(start, first)
    last = unasked.latestOffset()
    unasked.partitions(first, last)
    assert inner(last) == inner(first) == {"value": 1000}
    assert inner(unasked.latestOffset()) == inner(last)
