"""Iceberg tables for tests: an SQL catalogue in a file, its warehouse beside it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from spark_ckpt.testing.sink_harness import SinkTarget

SECRET = "s3cret"


def catalog_options(folder: Path) -> dict[str, str]:
    """Options of a new catalogue with namespace ``db``, below ``folder``."""
    place = {"catalog.uri": f"sqlite:///{folder}/catalog.db", "catalog.warehouse": f"{folder}/w"}
    options = {"catalog.type": "sql", **place}
    catalog_of(options).create_namespace_if_not_exists("db")
    return {**options, "catalog.s3.secret-access-key": SECRET}


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
