"""The sink and the source that the documentation shows keep the shipped suites."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.testing.sink_conformance import SinkConformance, SinkTarget
from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget
from tests.docs.own_sink import ArrowFilesSink
from tests.docs.own_source import EventsSource


# --- SINK
class ArrowTarget(SinkTarget):
    def read(self, schema: pa.Schema) -> pa.Table:
        files = sorted(Path(self.options["path"]).glob("*.arrow"))
        found = [pa.ipc.open_file(pa.OSFile(str(file))).read_all() for file in files]
        return pa.concat_tables(found) if found else schema.empty_table()

    def leftovers(self) -> list[str]:
        return [file.name for file in (Path(self.options["path"]) / "_staged").iterdir()]


class TestArrowFilesSink(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return ArrowTarget(ArrowFilesSink, {"path": str(tmp_path / "out")})


# --- SOURCE
class EventsTarget(SourceTarget):
    rows_a_batch = 4

    def __init__(self, tmp_path: Path) -> None:
        self.database = str(tmp_path / "events.db")
        self.ask("CREATE TABLE events (id INTEGER PRIMARY KEY, text TEXT)")
        self.add()
        super().__init__(EventsSource, {"database": self.database, "rows": "4"}, str(tmp_path))

    def expected(self) -> list[tuple[Any, ...]]:
        return self.ask("SELECT id, text FROM events")

    def add(self) -> bool:
        for n in range(10):
            self.ask("INSERT INTO events (text) VALUES (?)", f"text {n}")
        return True

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(sql, values).fetchall()


class TestEventsSource(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return EventsTarget(tmp_path)


# ---
