"""The version of a Delta table that a checkpoint makes of its staged files: appended, in place of all, or merged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.types as pt
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties
from deltalake.transaction import AddAction

from spark_ckpt.arrow_types import delta_schema
from spark_ckpt.change_rows import REMOVALS
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._parquet import shared_paths
from spark_ckpt.sinks.delta._indexed import indexed
from spark_ckpt.sinks.delta._stats import Path, file_stats, has, log_text

_PLAIN = WriterProperties(
    compression="SNAPPY", default_column_properties=ColumnProperties(dictionary_enabled=False)
)  # SNAPPY: as delta-rs writes where nothing is said
"""Without dictionaries: see :func:`shared_paths`."""


def add(
    table: DeltaTable,
    files: pafs.FileSystem,
    staged: Sequence[Mapping[str, Any]],
    mode: Literal["append", "overwrite"],
    properties: CommitProperties,
) -> None:
    partitions, schema = table.metadata().partition_columns, delta_schema(pa.schema(table.schema()))
    wanted = indexed(schema, partitions, table.metadata().configuration)
    adds = [
        AddAction(
            s["file"], s["size"], s.get("partition", {}), s["written_ms"], True,
            log_text(_stats(s, wanted, files), schema, wanted),
        )
        for s in staged
    ]  # fmt: skip
    table.create_write_transaction(adds, mode, table.schema(), partitions, commit_properties=properties)


def _stats(staged: Mapping[str, Any], wanted: Collection[Path] | None, files: pafs.FileSystem) -> Mapping[str, Any]:
    """Of columns that a task does not know to be wanted, which a property of the table asks for, the file tells."""
    told: Mapping[str, Any] = staged["stats"]
    there = staged.get("columns", {})
    if wanted is None or all(has(told["nullCount"], path) for path in wanted if has(there, path)):
        return told
    with files.open_input_file(staged["file"]) as stream:
        footer = pq.read_metadata(stream)
    nans = None if "nans" not in staged else [tuple(path) for path in staged["nans"]]
    return file_stats(footer, footer.schema.to_arrow_schema(), wanted, nans, {})


def merge(
    table: DeltaTable,
    files: pafs.FileSystem,
    staged: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    change: str | None,
    properties: CommitProperties,
) -> None:
    """The last row of each key replaces the one in the table, or removes it if its column ``change`` says so."""
    rows = pa.concat_tables(
        [pq.read_table(s["file"], filesystem=files, partitioning=None) for s in staged], promote_options="default"
    )
    stored = delta_schema(pa.schema(table.schema()))
    rows = _widened(rows, stored)
    extra = [f.name for f in table.schema().fields if f.name not in rows.column_names]
    same = " AND ".join(f"(t.{_quoted(k)} IS NOT DISTINCT FROM s.{_quoted(k)})" for k in keys)
    merger = table.merge(
        staging.last_by_key(rows, keys), same, source_alias="s", target_alias="t", commit_properties=properties,
        writer_properties=_PLAIN if shared_paths(stored) else None,
    )  # fmt: skip
    there, before = None, table.version()
    if change is not None:
        # Null where rows were staged by a query that had no such column: they are there.
        gone = f"COALESCE(s.{_quoted(change)}, '') IN ({', '.join(map(repr, REMOVALS))})"
        there, extra = f"NOT ({gone})", [*extra, change]
        merger = merger.when_matched_delete(gone)
    merger = merger.when_matched_update_all(there, except_cols=extra)
    merger.when_not_matched_insert_all(there, except_cols=extra).execute()
    if table.version() == before:
        # Only removals, of what is not there: delta-rs writes no version, and so nothing that says it is done.
        # A crash here: the files are staged as before, the next commit starts over.
        add(table, files, [], "append", properties)


def _widened(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """With the fields of structs that came to the table behind ``rows``, which delta-rs does not fill in."""
    kinds = {f.name: f.type for f in stored}
    fields = [f.with_type(kinds.get(f.name, f.type)) if pt.is_nested(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
