"""Databases and shorthands for tests of the ``sql`` sink."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.testing.sink_harness import SCHEMA
from tests.mariadb_server import shared_mariadb
from tests.postgres_server import shared_server

DATABASES = ("sqlite", "postgresql", "mariadb")


def new_database(kind: str, tmp_path: Path) -> str:
    """The URL of an empty database of one of ``DATABASES``."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/x.db"
    return shared_server().new_database() if kind == "postgresql" else shared_mariadb().new_database()


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    with sa.create_engine(url, poolclass=sa.pool.NullPool).begin() as connection:
        results = [connection.execute(sa.text(s)) for s in statements]
        return [tuple(r) for r in results[-1]] if results[-1].returns_rows else []


def make(url: str, table: str = "t", schema: pa.Schema = SCHEMA, **options: str) -> SqlSink:
    sink = SqlSink({"url": url, "table": table, **options})
    sink.validate(schema)
    return sink


def said(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
