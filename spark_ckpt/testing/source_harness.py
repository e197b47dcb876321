"""What the source conformance suite reads from; of use for tests of one source, too."""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_ckpt.sources.base import InnerReader, Offset, open_source

Rows = list[tuple[Any, ...]]

MOST_BATCHES = 1000


class SourceTarget(ABC):
    """A source (name or class) with its options, and what is to be found in it. New and filled for each test."""

    rows_a_batch: int | None = None
    """The most rows that the options allow in a batch; None: they set no limit."""

    is_ordered = True
    """Whether the same range always comes in the same order."""

    offset_bytes = 2048
    """The most bytes that an offset may have as JSON."""

    def __init__(
        self,
        source: str | type[DataSource],
        options: Mapping[str, str],
        metadata_url: str,
        schema: StructType | None = None,
    ) -> None:
        self.source, self.options, self.schema, self.metadata_url = source, dict(options), schema, metadata_url

    @abstractmethod
    def expected(self) -> Rows:
        """All rows that are there now, in any order; enough for two batches, no two alike."""

    def add(self) -> bool:
        """Let more rows appear; False if this source is as long as it will ever be."""
        return False

    def make(self) -> InnerReader:
        """A new reader, as a restarted driver makes it: nothing remembered but what the source itself stored."""
        opened = open_source(self.source, self.options, self.schema, self.metadata_url)
        return opened.reader(opened.schema())

    def rows(self, reader: InnerReader, start: Offset, end: Offset) -> Rows:
        """The rows of a range as Spark reads them: splits and reader pickled, on another process in effect."""
        start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
        found = [row for split in reader.splits(start, end) for row in read(reader, split)]
        return found if self.is_ordered else sorted(found, key=repr)


def read(reader: InnerReader, split: Any) -> Iterator[tuple[Any, ...]]:
    """What an executor does with one split."""
    there = pickle.loads(cloudpickle.dumps(reader))  # noqa: S301 - made one line above
    for batch in there.read(pickle.loads(cloudpickle.dumps(split))):  # noqa: S301 - made here, too
        if not batch.schema.equals(reader.arrow_schema):
            raise AssertionError(f"expected batches of\n{reader.arrow_schema}\nfound\n{batch.schema}")
        yield from zip(*batch.to_pydict().values(), strict=True)


def batches(reader: InnerReader, start: Offset, *, limit_all: bool = False) -> list[tuple[Offset, Offset]]:
    """The ranges of all batches from ``start`` on, until nothing is new."""
    found: list[tuple[Offset, Offset]] = []
    while len(found) < MOST_BATCHES:
        end = reader.latest(start, limit_all)
        if end == start:
            return found
        found.append((start, end))
        start = end
    raise AssertionError(f"the source has not come to an end after {MOST_BATCHES} batches; it is at {start}")
