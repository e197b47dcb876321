"""State tables at a start: each has its columns, and the files of what it goes on from. Driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.migration import Add, Migration, restored_table
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.recovery import RestoreFrom, StartFresh
from spark_ckpt.protocol.startup import Started
from spark_ckpt.state.lsm.stored_form import constant
from spark_ckpt.storage.manifest import read_manifest
from spark_ckpt.storage.state_table import StateTable


def check_constants(tables: Mapping[str, pa.Schema], migrations: Sequence[Migration]) -> None:
    """Driver, at start, ahead of everything. Raises ``InvalidInputError`` for one that its column cannot have."""
    for step in migrations:
        if not isinstance(step, Add):
            continue
        mine = [schema for table, schema in tables.items() if f"{table}.".startswith(f"{step.table}.")]
        for kind in (schema.field(step.column).type for schema in mine if step.column in schema.names):
            try:
                constant(step.value, kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InvalidInputError(
                    f"migrate({step.table!r}).add({step.column!r}, ...): expected a value of {kind}, found a "
                    f"{type(step.value).__name__} that is none; give one"
                ) from error


def ensure_tables(records: JobRecords, job: str, tables: Mapping[str, pa.Schema], started: Started) -> None:
    """Every operator's state table exists, with its schema, before the first checkpoint.

    What fits was decided by the topologies; of state that does not say what it is made of, the table's columns tell.

    Stopped in here: a table may have the columns of a query that never ran; the next start gives it its own."""
    decision, operators = started.decision, started.generation.topology.operators
    recorded = records.table_versions() if tables else {}
    fresh = set(tables) if isinstance(decision, StartFresh) else set()
    if isinstance(decision, RestoreFrom):
        fresh = {*decision.fresh_uids, *(uid for uid, facts in operators.items() if "from" in facts)}
    for uid, schema in tables.items():
        table = StateTable(records.paths.state(uid), uid, records.store.storage_options)
        about = f"keyed state of {uid}, job {job}"
        stored, may_change = operators[uid].get("stored", {}), uid not in getattr(decision, "uncompared", ())
        schema = pa.schema([f.with_name(stored.get(f.name, f.name)) for f in schema])
        version = recorded.get(uid, -1)
        table.create_if_absent(schema, about, reset=uid in fresh, recorded=version, keep=may_change)
        _bring_files(records, table, operators[uid], stands_at(decision))


def stands_at(decision: Any) -> CompletionRecord | None:
    """Where the job stands."""
    found: CompletionRecord | None
    found = decision.checkpoint if isinstance(decision, RestoreFrom) else getattr(decision, "newest", None)
    return found


def _bring_files(
    records: JobRecords, table: StateTable, facts: Mapping[str, Any], restored: CompletionRecord | None
) -> None:
    """State that was another table's until ``restored``. By names, where storage can; again until a checkpoint has it.

    Stopped in here, or ahead of the first checkpoint: files that nobody names; the next start brings them again."""
    source = facts.get("from", {}).get("table")
    ref = None if restored is None else restored_table(facts, table.uid, restored)
    if source and restored is not None and ref is not None and ref == restored.tables.get(source):
        manifest = read_manifest(records.store, ref.manifest)
        table.import_state(records.paths.state(source), manifest.content, manifest.groups)
