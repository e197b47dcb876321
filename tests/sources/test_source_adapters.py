"""Any Python streaming data source works as an inner source."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from spark_ckpt.errors import BadRecordError, ConfigError, InvalidInputError
from spark_ckpt.sources.base import InnerReader, UsesMetadata, finds_within_s, open_source
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

AVAILABLE = 10


class Numbers(DataSource):
    """Ten numbers; the option ``max`` bounds a batch."""

    def schema(self) -> str:
        return "n int, name string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NumbersReader(int(self.options.get("MAX", "4")))


class NumbersReader(DataSourceStreamReader):
    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.committed: list[dict[str, Any]] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(self.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return {"n": AVAILABLE}
        return {"n": min(AVAILABLE, start["n"] + limit.max_rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for n in range(*partition.value):
            yield (n, f"number {n}")

    def commit(self, end: dict[str, Any]) -> None:
        self.committed.append(end)

    def finished(self, offset: dict[str, Any]) -> bool:
        return offset["n"] == AVAILABLE

    def savepoint_files(self, offset: dict[str, Any]) -> list[str]:
        return [f"upto-{offset['n']}"]


class OldNumbers(Numbers):
    """The signature before Spark 4.2."""

    available = AVAILABLE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        class Reader(NumbersReader):
            def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
                return {"n": OldNumbers.available}

        return Reader(1)


class GrowingNumbers(Numbers):
    """Twice as much is there at every look."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        class Reader(NumbersReader):
            available = 2

            def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
                Reader.available *= 2
                return {"n": Reader.available}

        return Reader(1)


class Simple(DataSource):
    def schema(self) -> StructType:
        return StructType([StructField("n", LongType())])

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleReader()


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self) -> None:
        self.reads = 0
        self.again: list[tuple[int, int]] = []
        self.committed: list[dict[str, Any]] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[int]], dict[str, Any]]:
        self.reads += 1
        end = min(start["n"] + 3, AVAILABLE)
        return iter([(n,) for n in range(start["n"], end)]), {"n": end}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[int]]:
        self.again.append((start["n"], end["n"]))
        return iter([(n,) for n in range(start["n"], end["n"])])

    def commit(self, end: dict[str, Any]) -> None:
        self.committed.append(end)


class Stuck(Simple):
    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        class Reader(SimpleReader):
            def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[int]], dict[str, Any]]:
                return iter([(1,)]), start

        return Reader()


class Yields(DataSource):
    """Yields whatever it is given."""

    records: list[Any] = []  # noqa: RUF012

    def schema(self) -> StructType:
        return StructType([StructField("a", IntegerType()), StructField("t", TimestampType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        class Reader(NumbersReader):
            def read(self, partition: InputPartition) -> Iterator[Any]:
                return iter(Yields.records)

        return Reader(1)


def reader_of(source: Any, **options: str) -> InnerReader:
    opened = open_source(source, options, None, "")
    return opened.reader(opened.schema())


def on_executor(reader: InnerReader) -> InnerReader:
    copy: InnerReader = pickle.loads(cloudpickle.dumps(reader))
    return copy


def rows_of(reader: InnerReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    executor = on_executor(reader)
    splits = [pickle.loads(cloudpickle.dumps(split)) for split in reader.splits(start, end)]
    return [row for split in splits for batch in executor.read(split) for row in batch.to_pylist()]


def run(reader: InnerReader) -> list[list[int]]:
    at, batches = reader.initial(), []
    while (end := reader.latest(at, False)) != at:
        batches.append([row["n"] for row in rows_of(reader, at, end)])
        at = end
    return batches


def test_a_reader_with_a_read_limit_is_read_in_batches_of_that_limit() -> None:
    assert run(reader_of(Numbers)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert run(reader_of(Numbers, max="7")) == [list(range(7)), [7, 8, 9]]


def test_read_all_available_ignores_the_sources_own_limit() -> None:
    reader = reader_of(Numbers)
    assert reader.latest({"n": 2}, limit_all=True) == {"n": AVAILABLE}


def test_a_class_can_be_named_by_its_import_path() -> None:
    opened = open_source("pyspark.sql.datasource:DataSource", {}, None, "")
    with pytest.raises(ConfigError, match="no schema of its own"):
        opened.schema()


def test_rows_keep_sparks_types_and_names() -> None:
    reader = reader_of(Numbers)
    assert rows_of(reader, {"n": 1}, {"n": 2}) == [{"n": 1, "name": "number 1"}]
    assert reader.arrow_schema.types == [pa.int32(), pa.string()]


def test_latest_offset_without_arguments_still_works() -> None:
    assert run(reader_of(OldNumbers)) == [list(range(AVAILABLE))]


def test_available_now_pins_the_end_of_a_reader_that_does_not_support_it() -> None:
    reader = reader_of(GrowingNumbers)
    reader.prepare_available_now()
    assert run(reader) == [[0, 1, 2, 3]]


def test_available_now_pins_the_end_of_an_old_reader_when_it_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(OldNumbers)
    reader.prepare_available_now()
    monkeypatch.setattr(OldNumbers, "available", 99)
    assert run(reader) == [list(range(AVAILABLE))]


def test_available_now_is_passed_on_to_a_reader_that_supports_it() -> None:
    prepared = []

    class Source(Numbers):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            class Reader(NumbersReader, SupportsTriggerAvailableNow):
                def prepareForTriggerAvailableNow(self) -> None:
                    prepared.append(True)

            return Reader(6)

    reader = reader_of(Source)
    reader.prepare_available_now()
    assert prepared == [True]
    assert [len(batch) for batch in run(reader)] == [6, 4]


def test_an_offset_that_does_not_move_or_is_none_means_nothing_new() -> None:
    class Source(Numbers):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            class Reader(NumbersReader):
                def latestOffset(self, start: dict[str, Any], limit: Any) -> Any:
                    return None

            return Reader(6)

    start = {"n": 3}
    assert reader_of(Source).latest(start, False) == start
    assert reader_of(Numbers).latest({"n": AVAILABLE}, False) == {"n": AVAILABLE}
    assert reader_of(Numbers).splits(start, start) == []


def test_offsets_are_what_they_are_after_a_trip_through_json() -> None:
    class Source(Numbers):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            class Reader(NumbersReader):
                def initialOffset(self) -> Any:
                    return {0: (1, 2)}

            return Reader(6)

    assert reader_of(Source).initial() == {"0": [1, 2]}


def test_an_offset_that_is_not_a_dict_is_refused() -> None:
    class Source(Numbers):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            class Reader(NumbersReader):
                def initialOffset(self) -> Any:
                    return 7

            return Reader(6)

    with pytest.raises(InvalidInputError, match="expected initialOffset to return a dict"):
        reader_of(Source).initial()


def test_partitions_of_another_type_are_refused() -> None:
    class Source(Numbers):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            class Reader(NumbersReader):
                def partitions(self, start: Any, end: Any) -> Any:
                    return [(1, 2)]

            return Reader(6)

    with pytest.raises(InvalidInputError, match="InputPartition objects, found tuple"):
        reader_of(Source).splits({"n": 0}, {"n": 1})


def test_optional_methods_of_the_reader_are_found_and_default_to_nothing() -> None:
    numbers, simple = reader_of(Numbers), reader_of(Simple)
    assert numbers.finished({"n": AVAILABLE})
    assert not numbers.finished({"n": 1})
    assert numbers.savepoint_files({"n": 4}) == ["upto-4"]
    assert not simple.finished({"n": AVAILABLE})
    assert simple.savepoint_files({"n": 4}) == []


def test_commit_and_stop_reach_the_users_reader() -> None:
    for source in (Numbers, Simple):
        reader = reader_of(source)
        reader.commit({"n": 4})
        reader.stop()
        assert reader._user_reader.committed == [{"n": 4}]


def test_a_simple_reader_is_read_once_and_its_rows_travel_in_the_split() -> None:
    reader = reader_of(Simple)
    assert run(reader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert reader._user_reader.reads == 5
    assert reader._user_reader.again == []


def test_a_replayed_batch_of_a_simple_reader_is_read_between_its_offsets() -> None:
    reader = reader_of(Simple)
    (split,) = reader.splits({"n": 2}, {"n": 6})
    assert split.data is None
    assert [b.to_pydict() for b in reader.read(split)] == [{"n": [2, 3, 4, 5]}]
    assert reader._user_reader.again == [(2, 6)]


def test_a_simple_reader_that_was_asked_twice_gives_both_reads_as_one_batch() -> None:
    reader = reader_of(Simple)
    end = reader.latest(reader.latest({"n": 0}, False), False)
    (split,) = reader.splits({"n": 0}, end)
    assert split.data is not None
    assert [row["n"] for batch in reader.read(split) for row in batch.to_pylist()] == list(range(6))


def test_a_simple_readers_batch_can_be_planned_again_and_older_ones_are_forgotten() -> None:
    reader = reader_of(Simple)
    first = reader.latest({"n": 0}, False)
    second = reader.latest(first, False)
    for _ in range(2):
        assert reader.splits(first, second)[0].data is not None
    assert reader.splits({"n": 0}, first)[0].data is None


def test_a_simple_reader_that_yields_rows_without_moving_on_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="did not move on"):
        reader_of(Stuck).latest({"n": 0}, False)


T = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "record",
    [
        (1, T),
        [1, T],
        Row(t=T, a=1),
        pa.RecordBatch.from_pydict({"t": pa.array([T], pa.timestamp("ns")), "a": pa.array([1], pa.int64()), "x": [0]}),
    ],
    ids=["tuple", "list", "named row", "record batch"],
)
def test_tuples_lists_rows_and_arrow_batches_become_the_expected_columns(record: Any) -> None:
    Yields.records = [record]
    reader = reader_of(Yields)
    (batch,) = reader.read(InputPartition(None))
    assert batch.schema == reader.arrow_schema
    assert batch.to_pylist() == [{"a": 1, "t": T}]


def test_an_arrow_batch_without_an_expected_column_is_refused() -> None:
    Yields.records = [pa.RecordBatch.from_pydict({"a": [1]})]
    with pytest.raises(BadRecordError, match="expected a column 't'"):
        list(reader_of(Yields).read(InputPartition(None)))


def test_large_arrow_batches_are_cut() -> None:
    Yields.records = [pa.RecordBatch.from_pydict({"a": range(100_000), "t": pa.nulls(100_000)})]
    sizes = [batch.num_rows for batch in reader_of(Yields).read(InputPartition(None))]
    assert sizes == [65_536, 34_464]


def test_an_unknown_source_names_the_known_ones() -> None:
    expected = "expected one of delta, .*rate, rate-micro-batch, sql, or a Python DataSource class"
    with pytest.raises(ConfigError, match=expected):
        open_source("pulsar", {}, None, "")


@pytest.mark.parametrize("path", ["no_such_module_here:Source", "spark_ckpt.sources.base:NoSuchClass"])
def test_a_class_that_cannot_be_loaded_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot load the source '{path}'"):
        open_source(path, {}, None, "")


def test_what_is_no_data_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a class derived from"):
        open_source("builtins:dict", {}, None, "")


def test_a_source_without_a_stream_reader_is_refused() -> None:
    class Batch(DataSource):
        def schema(self) -> str:
            return "a int"

    with pytest.raises(ConfigError, match="cannot be read as a stream"):
        reader_of(Batch)


def test_a_source_that_keeps_files_is_told_where() -> None:
    class Keeper(Numbers, UsesMetadata):
        pass

    opened = open_source(Keeper, {}, None, "memory://jobs/sources/1", {"token": "x"})
    assert opened._source.metadata_url == "memory://jobs/sources/1"
    assert opened._source.storage_options == {"token": "x"}


def test_how_long_a_source_takes_to_find_what_is_there() -> None:
    assert finds_within_s("FILES", {}) == 1
    assert finds_within_s("files", {"DISCOVERYINTERVAL": "3s"}) == 3
    assert finds_within_s("sql", {}) == 1 + 5 + 1, "a look, the time until what it saw counts, the look behind that"
    assert finds_within_s("sql", {"settleDelay": "0s", "discoveryInterval": "500ms"}) == 0.5
    assert finds_within_s("kafka", {}) == finds_within_s("module:Class", {}) == finds_within_s(object, {}) == 0
