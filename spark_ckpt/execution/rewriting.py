"""State that is written anew of its old rows, at a start: Spark reads them, a function makes the new ones. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.same_rows import files_frame, rehash_state_table
from spark_ckpt.execution.state_writing import write_state_table
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.rewriting import NewRows
from spark_ckpt.jobs.state import State
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.rewriting import Rewriting
from spark_ckpt.runtime.state_writing import WrittenTable
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.storage.manifest import read_manifest

StateFunctions = Mapping[tuple[str, str], Callable[..., Any]]
"""(state table, name of the function) -> it: DataFrames of the old rows, the new rows."""


def state_frame(spark: Any, state: State) -> Any:
    """All rows of ``state`` as a batch DataFrame; they are read when it is used."""
    return files_frame(spark, state.files(), StructType.fromJson(state.spark_schema()))


def write_rows(
    spark: Any,
    forms: Mapping[str, WrittenRows],
    functions: StateFunctions,
    records: JobRecords,
    at: CompletionRecord,
    checkpoint: int,
    step: Rewriting,
) -> NewRows:
    """Raises what the functions raise, ``InvalidInputError`` for rows that are none of the table's, and
    ``ProtocolBugError`` if rows that are to stay as they are did not."""
    frames = [state_frame(spark, State(records.store, at, table)) for table in step.of]
    for name in step.names:
        frames = [_rows_of(functions[step.table, name](*frames), step.table, name)]
    store, form = records.store, forms[step.table]
    folder = records.paths.state(step.table)
    table = WrittenTable(step.table, folder, form, checkpoint, store.storage_options, store.folder.retry)
    written = (write_state_table if step.names else rehash_state_table)(frames[0], table)
    seen = _watermarks(records, at, step)
    groups = {number: GroupManifest(g.runs, g.keys, seen) for number, g in written.groups.items()}
    return NewRows(form.layout.table_schema, written.content, groups)


def _rows_of(found: Any, table: str, name: str) -> Any:
    if not hasattr(found, "isStreaming") or found.isStreaming:
        raise InvalidInputError(
            f"migrate({table!r}).by({name}): expected the function to return a batch DataFrame of the new rows, found "
            f"{'a streaming one' if hasattr(found, 'isStreaming') else type(found).__name__}"
        )
    return found


def _watermarks(records: JobRecords, at: CompletionRecord, step: Rewriting) -> dict[str, int]:
    """The event time that all of the old rows have seen, as a restore takes it."""
    manifests = [read_manifest(records.store, at.tables[table].manifest) for table in step.of]
    return merged_watermarks([group.watermarks_us for manifest in manifests for group in manifest.groups.values()])


def merged_watermarks(seen: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Of each stream the earliest, as a restore takes it; of streams that only some have seen none."""
    if not seen:
        return {}
    shared = set(seen[0]).intersection(*seen[1:])
    return {stream: min(w[stream] for w in seen) for stream in sorted(shared)}
