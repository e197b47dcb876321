"""Where a source begins that ``startingFrom`` sends elsewhere, and where it ends that ``endingAt`` stops."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources.base import InnerReader, Offset, open_source
from spark_ckpt.testing.source_harness import batches, read
from tests.sinks.sql_harness import run


class Files:
    """Each source has rows with an ``id``; ``add`` makes it longer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.job = folder / "data", str(folder / "job")
        self.folder.mkdir()

    def add(self, number: int) -> None:
        pq.write_table(pa.table({"id": [number]}), self.folder / f"{number}.parquet")

    def opened(self) -> InnerReader:
        options = {"fileFormat": "parquet", "path": str(self.folder)}
        return open_source("files", options, StructType().add("id", "long"), self.job).reader(
            StructType().add("id", "long")
        )


class Delta(Files):
    def add(self, number: int) -> None:
        write_deltalake(self.folder / "t", pa.table({"id": [number]}), mode="append")

    def opened(self) -> InnerReader:
        made = open_source("delta", {"path": str(self.folder / "t"), "startingVersion": "1"}, None, self.job)
        return made.reader(made.schema())


class Table(Files):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = f"sqlite:///{folder}/t.db"
        run(self.url, "CREATE TABLE t (id INTEGER PRIMARY KEY)")

    def add(self, number: int) -> None:
        run(self.url, f"INSERT INTO t (id) VALUES ({number})")

    def opened(self) -> InnerReader:
        options = {"url": self.url, "table": "t", "offsetColumn": "id", "settleDelay": "0s", "startingOffset": "2"}
        made = open_source("sql", options, None, self.job)
        return made.reader(made.schema())


class Numbers(Files):
    """Twelve numbers, four a batch; a batch takes a second of event time."""

    def add(self, number: int) -> None:
        pass

    def opened(self) -> InnerReader:
        made = open_source("rate-micro-batch", {"numRows": "12", "rowsPerBatch": "4"}, None, self.job)
        return made.reader(made.schema())


class Own(Files):
    """A user's source, which knows nothing of this."""

    def add(self, number: int) -> None:
        OwnReader.rows.append(number)

    def opened(self) -> InnerReader:
        return open_source(OwnSource, {}, StructType().add("id", "long"), self.job).reader(
            StructType().add("id", "long")
        )


class OwnReader(SimpleDataSourceStreamReader):
    rows: ClassVar[list[int]] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def read(self, start: dict[str, Any]) -> Any:
        return iter([(n,) for n in self.rows[start["at"] :]]), {"at": len(self.rows)}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        return iter([(n,) for n in self.rows[start["at"] : end["at"]]])


class OwnSource(DataSource):
    def simpleStreamReader(self, schema: StructType) -> OwnReader:
        return OwnReader()


def ids(reader: InnerReader, start: Offset) -> list[int]:
    ranges = [(start, end) for start, end in batches(reader, start)]
    return sorted(row[0] for a, b in ranges for split in reader.splits(a, b) for row in read(reader, split))


@pytest.mark.parametrize("kind", [Files, Delta, Table, Own])
def test_the_words_and_an_offset_mean_the_same_of_every_source(kind: Callable[[Path], Files], tmp_path: Path) -> None:
    OwnReader.rows.clear()
    source = kind(tmp_path)
    for number in (1, 2):
        source.add(number)
    as_options_say = {Delta: [2, 3], Table: [2, 3]}.get(kind, [1, 2, 3])  # type: ignore[call-overload]
    found = {word: source.opened().starting_from(word) for word in ("earliest", "latest", "none")}
    source.add(3)
    assert ids(source.opened(), found["earliest"]) == [1, 2, 3]
    assert ids(source.opened(), found["latest"]) == [3]
    assert ids(source.opened(), found["none"]) == as_options_say
    assert source.opened().starting_from(found["latest"]) == found["latest"]
    with pytest.raises(ConfigError, match=r"startingFrom: expected an offset of source '.*found \{.nothing.: 1\}"):
        source.opened().starting_from({"nothing": 1})


def values(reader: InnerReader, start: Offset) -> list[Any]:
    ranges = [(start, end) for start, end in batches(reader, start)]
    return sorted(row[-1] for a, b in ranges for split in reader.splits(a, b) for row in read(reader, split))


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("kind", [Files, Delta, Table, Numbers])
def test_a_source_reads_up_to_its_end_and_no_further_and_goes_on_from_there(
    kind: Callable[[Path], Files], tmp_path: Path, everything: bool
) -> None:
    source = kind(tmp_path)
    source.add(0)
    source.add(1)
    begin = source.opened().starting_from("earliest")
    wanted = {"value": 6} if kind is Numbers else source.opened().latest(begin, True)
    end = source.opened().ending_at(wanted)
    for number in (2, 3, 4):
        source.add(number)
    bounded = source.opened()
    bounded.end_at(end)
    if everything:
        bounded.prepare_available_now()
        there = bounded.latest(begin, True)
    else:
        there = begin
        while (found := bounded.latest(there, False)) != there:
            there = found
    assert {**there, **end} == there, "it stands exactly at its end"
    first, second = values_between(source.opened(), begin, there), values(source.opened(), there)
    assert first == list(range(6 if kind is Numbers else 2))
    assert second == list(range(6, 12)) if kind is Numbers else second == [2, 3, 4]
    beyond = source.opened()
    beyond.end_at(end)
    far = source.opened().latest(there, True)
    with pytest.raises(InvalidInputError, match=r"has read up to .* beyond .* where spark\.ckpt\.endingAt says"):
        beyond.latest(far, True)


def values_between(reader: InnerReader, start: Offset, end: Offset) -> list[Any]:
    return sorted(row[-1] for split in reader.splits(start, end) for row in read(reader, split))


@pytest.mark.parametrize("kind", [Files, Delta, Table, Numbers])
def test_what_is_no_end_is_refused_by_name(kind: Callable[[Path], Files], tmp_path: Path) -> None:
    source = kind(tmp_path)
    source.add(0)
    source.add(1)
    with pytest.raises(ConfigError, match=r"endingAt: expected an offset of source '.*found \{.nothing.: 1\}"):
        source.opened().ending_at({"nothing": 1})
    with pytest.raises(ConfigError, match="expected a time that is over"):
        source.opened().ending_at("2999-01-01T00:00:00Z")


def test_a_time_is_the_place_in_front_of_the_first_rows_of_that_time_or_later(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir()
    numbers = Numbers(tmp_path / "n")
    for time, value in (("01.000Z", 4), ("01.001Z", 8), ("00Z", 0), ("00.5+00:00", 4)):
        assert numbers.opened().ending_at(f"1970-01-01T00:00:{time}") == {"value": value}
    (tmp_path / "d").mkdir()
    table = Delta(tmp_path / "d")
    for number in (0, 1):
        table.add(number)
    assert table.opened().ending_at("2001-01-01T00:00:00Z") == {"version": 0, "index": 0}
    assert table.opened().ending_at(datetime.now(timezone.utc).isoformat(timespec="milliseconds")) == {
        "version": 2,
        "index": 0,
    }
    (tmp_path / "f").mkdir()
    with pytest.raises(ConfigError, match=r"source 'files'.* or a time, if the source knows its records' times"):
        Files(tmp_path / "f").opened().ending_at("2001-01-01T00:00:00Z")


def test_a_source_that_cannot_stop_at_an_offset_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"its reader has no method clipped\(start, found, end\)"):
        Own(tmp_path).opened().ending_at({"at": 1})
