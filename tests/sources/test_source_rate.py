"""The rate source gives the same rows every time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.base import InnerReader, open_source


def rate(**options: Any) -> InnerReader:
    opened = open_source("rate", {k: str(v) for k, v in options.items()}, None, "")
    return opened.reader(opened.schema())


def rows(reader: InnerReader, start: int, end: int) -> list[dict[str, Any]]:
    splits = reader.splits({"value": start}, {"value": end})
    return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


def test_a_bounded_stream_ends_with_its_last_row() -> None:
    reader, at, seen = rate(rowsPerBatch=4, numRows=10), {"value": 0}, []
    while not reader.finished(at):
        end = reader.latest(at, False)
        seen.append([row["value"] for row in rows(reader, at["value"], end["value"])])
        at = end
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert reader.latest(at, False) == at


def test_a_stream_without_rows_is_finished_at_once() -> None:
    reader = rate(numRows=0)
    assert reader.finished(reader.initial())
    assert reader.latest(reader.initial(), True) == reader.initial()


def test_timestamps_follow_from_the_value_alone() -> None:
    found = rows(rate(startTime=60_000, rowsPerSecond=4), 0, 5)
    assert [row["timestamp"].timestamp() for row in found] == [60, 60.25, 60.5, 60.75, 61]
    assert rows(rate(startTime=60_000, rowsPerSecond=4, numSplits=1), 3, 5) == found[3:5]


def test_splits_cover_the_range_once_whatever_their_number() -> None:
    for splits in (1, 3, 7):
        reader = rate(numSplits=splits)
        assert [row["value"] for row in rows(reader, 5, 25)] == list(range(5, 25))
        assert len(reader.splits({"value": 5}, {"value": 25})) == splits
    assert len(rate(numSplits=7).splits({"value": 0}, {"value": 3})) == 3


def test_read_all_available_takes_everything_of_a_bounded_and_one_batch_of_an_endless_stream() -> None:
    assert rate(numRows=5000).latest({"value": 7}, True) == {"value": 5000}
    assert rate(rowsPerBatch=10).latest({"value": 7}, True) == {"value": 17}


def test_available_now_reads_a_bounded_stream_to_its_end_in_its_own_batches() -> None:
    reader = rate(numRows=25, rowsPerBatch=10)
    reader.prepare_available_now()
    assert [reader.latest({"value": n}, False)["value"] for n in (0, 10, 20, 25)] == [10, 20, 25, 25]


def test_available_now_reads_one_batch_of_an_endless_stream() -> None:
    reader = rate(rowsPerBatch=10)
    reader.prepare_available_now()
    assert reader.latest({"value": 40}, False) == {"value": 50}
    assert reader.latest({"value": 50}, False) == {"value": 50}


def test_batches_are_bounded() -> None:
    reader = rate(numSplits=1)
    (split,) = reader.splits({"value": 0}, {"value": 150_000})
    assert [batch.num_rows for batch in reader.read(split)] == [65_536, 65_536, 18_928]


def test_an_unknown_option_lists_the_valid_ones() -> None:
    expected = "valid options: numRows, numSplits, rowsPerBatch, rowsPerSecond, startTime"
    with pytest.raises(ConfigError, match=f"no option 'rampuptime'; {expected}"):
        rate(rampUpTime=5)


@pytest.mark.parametrize(("option", "value"), [("rowsPerBatch", "0"), ("numRows", "-1"), ("numSplits", "many")])
def test_a_malformed_option_says_what_is_expected(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' of source 'rate': expected a whole number.*'{value}'"):
        rate(**{option: value})


def test_option_names_ignore_case() -> None:
    assert rate(ROWSPERBATCH=3).latest({"value": 0}, False) == {"value": 3}


def test_another_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="fixed schema"):
        open_source("rate", {}, None, "").reader(StructType().add("v", "long"))
