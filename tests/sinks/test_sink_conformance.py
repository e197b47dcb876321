"""Every built-in sink keeps every contract of the shipped suite."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.sinks import memory
from spark_ckpt.testing.sink_conformance import (
    ChangeConformance,
    MergeConformance,
    ReplaceConformance,
    SinkConformance,
    SinkTarget,
    typed_rows,
)
from tests.mariadb_server import shared_mariadb
from tests.postgres_server import PASSWORD, shared_server


class MemoryTarget(SinkTarget):
    def read(self, schema: pa.Schema) -> pa.Table:
        return memory.read(self.options["path"]).select(schema.names)

    def leftovers(self) -> list[str]:
        root = Path(self.options["path"])
        committed = {f for r in (root / "committed").iterdir() for f in json.loads(r.read_text())["files"]}
        return [p.name for p in (root / "staged").iterdir() if p.name not in committed]


class TestMemorySink(SinkConformance, MergeConformance, ChangeConformance, ReplaceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return MemoryTarget("memory", {"path": f"{tmp_path}/m"})

    @pytest.fixture
    def merge_target(self, tmp_path: Path) -> SinkTarget:
        return MemoryTarget("memory", {"path": f"{tmp_path}/m", "mergeKeys": "k"})

    @pytest.fixture
    def change_target(self, tmp_path: Path) -> SinkTarget:
        return MemoryTarget("memory", {"path": f"{tmp_path}/m", "mergeKeys": "k", "changeColumn": "op"})


class DeltaTarget(SinkTarget):
    secrets = ("s3cret",)

    def read(self, schema: pa.Schema) -> pa.Table:
        table = DeltaTable(self.options["path"])
        found = pa.table(QueryBuilder().register("t", table).execute("select * from t").read_all())
        found = found.select(schema.names).cast(schema)
        flat = [column for column in found.columns if not pa.types.is_nested(column.type)]
        return found.take(pc.sort_indices(flat[0])) if flat else found

    def leftovers(self) -> list[str]:
        root = Path(self.options["path"])
        newest = DeltaTable(root).version()
        named = {Path(u).name for v in range(newest + 1) for u in DeltaTable(root, version=v).file_uris()}
        staged = (p.relative_to(root) for p in root.rglob("*ckpt*") if "_delta_log" not in p.parts)
        return [str(p) for p in staged if p.name not in named]


class TestDeltaSink(SinkConformance, MergeConformance, ChangeConformance, ReplaceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return DeltaTarget("delta", {"path": f"{tmp_path}/a table", "storage.aws_secret_access_key": "s3cret"})

    @pytest.fixture
    def merge_target(self, tmp_path: Path) -> SinkTarget:
        return DeltaTarget("delta", {"path": f"{tmp_path}/t", "mode": "merge", "mergeKeys": "k"})

    @pytest.fixture
    def change_target(self, tmp_path: Path) -> SinkTarget:
        return DeltaTarget("delta", {"path": f"{tmp_path}/t", "mode": "merge", "mergeKeys": "k", "changeColumn": "op"})


class SqlTarget(SinkTarget):
    secrets = (PASSWORD, "s3cret%2Fpass%3Aword")

    def _engine(self) -> sa.Engine:
        return sa.create_engine(self.options["url"], poolclass=sa.pool.NullPool)

    def read(self, schema: pa.Schema) -> pa.Table:
        with self._engine().connect() as connection:
            name = self.options["table"]
            # What MariaDB's driver gives is right; SQLAlchemy would round doubles to ten digits.
            table = (
                sa.table(name, *map(sa.column, schema.names))
                if connection.dialect.name == "mariadb"
                else sa.Table(name, sa.MetaData(), autoload_with=connection)
            )
            rows = connection.execute(sa.select(*(table.c[n] for n in schema.names)).order_by(*list(table.c)[:1])).all()
        columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
        return pa.table([_array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    def remembered(self) -> int | None:
        with self._engine().connect() as connection:
            return connection.execute(sa.text("SELECT count(*) FROM spark_ckpt_ledger")).scalar()

    def leftovers(self) -> list[str]:
        found = []
        with self._engine().connect() as connection:
            for name in sa.inspect(connection).get_table_names():
                if "__ckpt_" in name or name == "spark_ckpt_stages":
                    everything = sa.select(sa.text("*")).select_from(sa.table(name))
                    found += [f"{name}: {tuple(r)}" for r in connection.execute(everything)]
        return found


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """SQLite gives texts for long decimals and local times for instants, MariaDB other numbers."""
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else str(v) for v in values], pa.string()).cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz:
        zoned = any(v is not None and v.tzinfo for v in values)
        return pa.array(values, None if zoned else pa.timestamp("us")).cast(kind)
    return pa.array(values, kind)


class _SqlConformance(SinkConformance, MergeConformance, ChangeConformance, ReplaceConformance):
    def typed_rows(self) -> pa.Table:
        return typed_rows(nested=False)


class TestSqlSinkOnSqlite(_SqlConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return SqlTarget("sql", {"url": f"sqlite:///{tmp_path}/x.db", "table": "my table"})

    @pytest.fixture
    def merge_target(self, tmp_path: Path) -> SinkTarget:
        return SqlTarget("sql", {"url": f"sqlite:///{tmp_path}/x.db", "table": "Totals", "mergeKeys": "k"})

    @pytest.fixture
    def change_target(self, tmp_path: Path) -> SinkTarget:
        return SqlTarget(
            "sql", {"url": f"sqlite:///{tmp_path}/x.db", "table": "Totals", "mergeKeys": "k", "changeColumn": "op"}
        )


class TestSqlSinkWithCheckpointColumn(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        options = {"url": f"sqlite:///{tmp_path}/x.db", "table": "my table", "checkpointColumn": "came with"}
        return SqlTarget("sql", options)

    def typed_rows(self) -> pa.Table:
        return typed_rows(nested=False)


class TestSqlSinkOnPostgres(_SqlConformance):
    @pytest.fixture
    def target(self) -> SinkTarget:
        return SqlTarget("sql", {"url": shared_server().new_database(), "table": "my table"})

    @pytest.fixture
    def merge_target(self) -> SinkTarget:
        return SqlTarget("sql", {"url": shared_server().new_database(), "table": "Totals", "mergeKeys": "k"})

    @pytest.fixture
    def change_target(self) -> SinkTarget:
        return SqlTarget(
            "sql", {"url": shared_server().new_database(), "table": "Totals", "mergeKeys": "k", "changeColumn": "op"}
        )


class TestSqlSinkOnMariaDb(_SqlConformance):
    @pytest.fixture
    def target(self) -> SinkTarget:
        return SqlTarget("sql", {"url": shared_mariadb().new_database(), "table": "my table"})

    @pytest.fixture
    def merge_target(self) -> SinkTarget:
        return SqlTarget("sql", {"url": shared_mariadb().new_database(), "table": "Totals", "mergeKeys": "k"})

    @pytest.fixture
    def change_target(self) -> SinkTarget:
        return SqlTarget(
            "sql", {"url": shared_mariadb().new_database(), "table": "Totals", "mergeKeys": "k", "changeColumn": "op"}
        )


class FilesTarget(SinkTarget):
    def __init__(self, path: str, file_format: str) -> None:
        super().__init__("files", {"path": path, "fileFormat": file_format})

    def read(self, schema: pa.Schema) -> pa.Table:
        files, root = fsspec.core.url_to_fs(self.options["path"])
        names = sorted(n for n in files.ls(root, detail=False) if n.rsplit("/", 1)[-1][0] not in "._")
        tables = [self._read(files.cat_file(n), schema) for n in names]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def _read(self, data: bytes, schema: pa.Schema) -> pa.Table:
        source = pa.BufferReader(data)
        if self.options["fileFormat"] == "parquet":
            return pq.read_table(source, schema=schema)
        if self.options["fileFormat"] == "csv":
            convert = pacsv.ConvertOptions(
                column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            )
            return pacsv.read_csv(source, pacsv.ReadOptions(), pacsv.ParseOptions(newlines_in_values=True), convert)
        lines = [json.loads(line, parse_float=str) for line in data.splitlines()]
        return pa.table([[_from_json(r[f.name], f.type) for r in lines] for f in schema], schema=schema)

    def leftovers(self) -> list[str]:
        files, root = fsspec.core.url_to_fs(self.options["path"])
        return [str(n) for n in files.ls(f"{root}/.staging", detail=False)]


def _from_json(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: _from_json(value[f.name], f.type) for f in kind}
    if pa.types.is_map(kind):
        return [(k, _from_json(v, kind.item_type)) for k, v in value.items()]
    if pa.types.is_list(kind):
        return [_from_json(v, kind.value_type) for v in value]
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(str(value))
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value


class TestParquetFilesSink(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return FilesTarget(f"file://{tmp_path}/out", "parquet")


class TestCsvFilesSink(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return FilesTarget(f"{tmp_path}/out", "csv")

    def typed_rows(self) -> pa.Table:
        return typed_rows(nested=False, without=["bytes"])


class TestJsonFilesSink(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return FilesTarget(f"{tmp_path}/out", "json")
