"""Iceberg tables for tests: an SQL catalogue in a file, its warehouse beside it, or a REST catalogue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from spark_ckpt.testing.sink_harness import SinkTarget
from tests.iceberg_server import shared_iceberg

SECRET = "s3cret"
CATALOGUES = ["sql", pytest.param("rest", marks=pytest.mark.soak)]
"""For fixtures' ``params`` (:func:`use`)."""

_used = ["sql"]


@contextlib.contextmanager
def use(kind: str) -> Iterator[None]:
    """:func:`catalog_options` are of a catalogue of this kind meanwhile."""
    before, _used[0] = _used[0], kind
    try:
        yield
    finally:
        _used[0] = before


def catalog_options(folder: Path) -> dict[str, str]:
    """Options of a new catalogue with namespace ``db``: below ``folder``, or of the one server, emptied for it."""
    options = _on_server(folder) if _used[0] == "rest" else _in_file(folder)
    catalog_of(options).create_namespace_if_not_exists("db")
    return {**options, "catalog.s3.secret-access-key": SECRET}


def _in_file(folder: Path) -> dict[str, str]:
    place = {"catalog.uri": f"sqlite:///{folder}/catalog.db", "catalog.warehouse": f"{folder}/w"}
    return {"catalog.type": "sql", **place}


def _on_server(folder: Path) -> dict[str, str]:
    server = shared_iceberg()
    server.emptied_for(folder)
    return {f"catalog.{name}": value for name, value in server.properties.items()}


def catalog_of(options: dict[str, str]) -> Catalog:
    prefix = "catalog."
    return load_catalog(
        options.get("catalog", "default"), **{k[len(prefix) :]: v for k, v in options.items() if k.startswith(prefix)}
    )


class IcebergTarget(SinkTarget):
    secrets = (SECRET,)

    def table(self) -> Table:
        return catalog_of(self.options).load_table(self.options["table"])

    def read(self, schema: pa.Schema) -> pa.Table:
        found = self.table().scan().to_arrow().select(schema.names)
        found = pa.table([c.cast(f.type) for c, f in zip(found.columns, schema, strict=True)], schema=schema)
        flat = [column for column in found.columns if not pa.types.is_nested(column.type)]
        return found.take(pc.sort_indices(flat[0])) if flat else found

    def leftovers(self) -> list[str]:
        table = self.table()
        named = {Path(f).name for f in table.inspect.all_files()["file_path"].to_pylist()}
        folder = Path(table.location().removeprefix("file://"))
        return sorted(p.name for p in folder.rglob("*ckpt*.parquet") if p.name not in named)
