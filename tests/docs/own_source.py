"""A source of one's own: rows of a SQLite table that only grows. docs/writing-a-source.md shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow


class EventsSource(DataSource):
    """Options: ``database``, a file with a table ``events(id INTEGER PRIMARY KEY, text TEXT)``; ``rows`` of a batch."""

    @classmethod
    def name(cls) -> str:
        return "events"

    def schema(self) -> str:
        return "id long, text string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EventsReader(self.options["database"], int(self.options.get("rows", "1000")))


class EventsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset: ``{"id": n}``, the id of the last row before it."""

    def __init__(self, database: str, rows: int) -> None:
        self.database, self.rows = database, rows
        self.last: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"id": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself where nothing is new."""
        most = -1 if isinstance(limit, ReadAllAvailable) else self.rows
        inner = "SELECT id FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        ((end,),) = self.ask(f"SELECT max(id) FROM ({inner})", start["id"], self.end(), most)
        return start if end is None else {"id": end}

    def prepareForTriggerAvailableNow(self) -> None:
        self.last = self.end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        middle = (start["id"] + end["id"]) // 2
        return [InputPartition((start["id"], middle)), InputPartition((middle, end["id"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Executor. The same rows whenever the range is read."""
        yield from self.ask("SELECT id, text FROM events WHERE id > ? AND id <= ? ORDER BY id", *partition.value)

    def end(self) -> int:
        """What is there now, or was when the trigger ``availableNow`` began."""
        return self.last if self.last is not None else self.ask("SELECT coalesce(max(id), 0) FROM events")[0][0]

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(sql, values).fetchall()
