"""The sources ``rate`` and ``rate-micro-batch`` give the same rows every time, and those of Spark's."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources import rate as rate_source
from spark_ckpt.sources.base import InnerReader, open_source


def source(name: str, **options: Any) -> InnerReader:
    opened = open_source(name, {k: str(v) for k, v in options.items()}, None, "")
    return opened.reader(opened.schema())


def micro_batch(**options: Any) -> InnerReader:
    return source("rate-micro-batch", **options)


def rows(reader: InnerReader, start: Any, end: Any) -> list[tuple[float, int]]:
    """Milliseconds since 1970, and the value."""
    found = [row for split in reader.splits(start, end) for batch in reader.read(split) for row in batch.to_pylist()]
    return [(row["timestamp"].timestamp() * 1000, row["value"]) for row in found]


def values(reader: InnerReader, start: int, end: int) -> list[int]:
    return [value for _, value in rows(reader, {"value": start}, {"value": end})]


def second(number: int) -> dict[str, int]:
    return {"startTime": 10_722, "second": number}


# -- rate-micro-batch ------------------------------------------------------------------------------------------------


def test_a_bounded_stream_ends_with_its_last_row() -> None:
    reader, at, seen = micro_batch(rowsPerBatch=4, numRows=10), {"value": 0}, []
    while not reader.finished(at):
        end = reader.latest(at, False)
        seen.append(values(reader, at["value"], end["value"]))
        at = end
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert reader.latest(at, False) == at


def test_a_stream_without_rows_is_finished_at_once() -> None:
    reader = micro_batch(numRows=0)
    assert reader.finished(reader.initial())
    assert reader.latest(reader.initial(), True) == reader.initial()


def test_timestamps_are_those_of_the_batch() -> None:
    reader = micro_batch(startTimestamp=60_000, rowsPerBatch=2, advanceMillisPerBatch=250)
    found = rows(reader, {"value": 0}, {"value": 5})
    assert found == [(60_000, 0), (60_000, 1), (60_250, 2), (60_250, 3), (60_500, 4)]
    assert rows(reader, {"value": 3}, {"value": 5}) == found[3:5]


def test_splits_cover_the_range_once_whatever_their_number() -> None:
    for splits in (1, 3, 7):
        reader = micro_batch(numPartitions=splits)
        assert values(reader, 5, 25) == list(range(5, 25))
        assert len(reader.splits({"value": 5}, {"value": 25})) == splits
    assert len(micro_batch(numPartitions=7).splits({"value": 0}, {"value": 3})) == 3


def test_read_all_available_takes_everything_of_a_bounded_and_one_batch_of_an_endless_stream() -> None:
    assert micro_batch(numRows=5000).latest({"value": 7}, True) == {"value": 5000}
    assert micro_batch(rowsPerBatch=10).latest({"value": 7}, True) == {"value": 17}


def test_available_now_reads_a_bounded_stream_to_its_end_in_its_own_batches() -> None:
    reader = micro_batch(numRows=25, rowsPerBatch=10)
    reader.prepare_available_now()
    assert [reader.latest({"value": n}, False)["value"] for n in (0, 10, 20, 25)] == [10, 20, 25, 25]


def test_available_now_reads_one_batch_of_an_endless_stream() -> None:
    reader = micro_batch(rowsPerBatch=10)
    reader.prepare_available_now()
    assert reader.latest({"value": 40}, False) == {"value": 50}
    assert reader.latest({"value": 50}, False) == {"value": 50}


def test_batches_are_bounded() -> None:
    reader = micro_batch(numPartitions=1)
    (split,) = reader.splits({"value": 0}, {"value": 150_000})
    assert [batch.num_rows for batch in reader.read(split)] == [65_536, 65_536, 18_928]


# -- rate ------------------------------------------------------------------------------------------------------------


def test_a_second_is_there_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [10_722]
    monkeypatch.setattr(rate_source, "now_ms", lambda: clock[0])
    reader = source("rate")
    at = reader.initial()
    found = []
    for clock[0] in (10_722, 11_721, 11_722, 15_000, 9_000):
        at = reader.latest(at, False)
        found.append(at["second"])
    assert found == [0, 0, 1, 4, 4], "a clock that is set back takes nothing back"
    clock[0] = 20_722
    now = source("rate")
    now.prepare_available_now()
    clock[0] = 99_999
    assert now.latest(at, False) == second(10)


def test_rows_of_a_second_are_spread_over_it() -> None:
    reader = source("rate", rowsPerSecond=7)
    within = [0, 143, 286, 429, 571, 714, 857]
    expected = [(10_722 + 1000 * (n // 7) + within[n % 7], n) for n in range(21)]
    assert rows(reader, second(0), second(3)) == expected
    assert rows(reader, second(1), second(2)) == expected[7:14], "in another batch, too"
    assert rows(source("rate", rowsPerSecond=7, numPartitions=1), second(0), second(3)) == expected
    assert rows(source("rate"), second(5), second(6)) == [(15_722, 5)]


def test_the_first_batch_is_the_same_when_its_start_is_made_anew() -> None:
    reader = source("rate")
    anew = {"startTime": 99_999, "second": 0}
    assert rows(reader, anew, second(2)) == rows(reader, second(0), second(2)) == [(10_722, 0), (11_722, 1)]
    assert rows(reader, anew, second(0)) == []


def test_a_rate_grows_as_that_of_spark() -> None:
    """Looked at in Spark 4.2, a batch a second."""
    reader = source("rate", rowsPerSecond=7, rampUpTime="3s")
    seconds = [rows(reader, second(n), second(n + 1)) for n in range(6)]
    assert [[value for _, value in found] for found in seconds] == [
        [0], [1, 2], [3, 4, 5], [6, 7, 8, 9, 10, 11, 12], list(range(13, 20)), list(range(20, 27)),
    ]  # fmt: skip
    assert [at for at, _ in seconds[2]] == [12_722, 13_055, 13_389]
    assert rows(reader, second(0), second(6)) == [row for found in seconds for row in found]
    slow = source("rate", rowsPerSecond=2, rampUpTime="4")
    assert rows(slow, second(0), second(5)) == [(14_722, 0), (15_222, 1)], "no rows until then"


def test_an_offset_of_the_source_that_had_this_name_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"startTime and second, found \{'value': 4\}.*rate-micro-batch"):
        source("rate").latest({"value": 4}, False)


# -- both ------------------------------------------------------------------------------------------------------------


def test_an_unknown_option_lists_the_valid_ones() -> None:
    expected = "valid options: advanceMillisPerBatch, numPartitions, numRows, rowsPerBatch, startTimestamp"
    with pytest.raises(ConfigError, match=f"no option 'rampuptime'; {expected}"):
        micro_batch(rampUpTime=5)


@pytest.mark.parametrize(("option", "value"), [("rowsPerBatch", "0"), ("numRows", "-1"), ("numPartitions", "many")])
def test_a_malformed_option_says_what_is_expected(option: str, value: str) -> None:
    expected = f"option '{option}' of source 'rate-micro-batch': expected a whole number.*'{value}'"
    with pytest.raises(ConfigError, match=expected):
        micro_batch(**{option: value})


@pytest.mark.parametrize("option", [{"rampUpTime": "x"}, {"rampUpTime": "-1s"}, {"rowsPerSecond": "0"}])
def test_what_spark_refuses_of_a_rate_is_refused(option: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="of source 'rate': expected"):
        source("rate", **option)


def test_option_names_ignore_case() -> None:
    assert micro_batch(ROWSPERBATCH=3).latest({"value": 0}, False) == {"value": 3}


@pytest.mark.parametrize("name", ["rate", "rate-micro-batch"])
def test_another_schema_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="fixed schema"):
        open_source(name, {}, None, "").reader(StructType().add("v", "long"))
