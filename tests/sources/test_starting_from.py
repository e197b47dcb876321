"""Where a source begins that ``startingFrom`` sends elsewhere: what the words mean, and what is no offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError
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
