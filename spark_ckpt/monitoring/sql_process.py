"""One SQL query over a job's state tables, in a process of its own: it can be killed, and its memory has an end.

``python -m spark_ckpt.monitoring.sql_process`` reads the question as JSON from its standard input, where no other user
sees it, and answers with JSON. The engine is DuckDB, in memory, with files, network, extensions and Python's variables
locked away. State tables that the query names are read as Arrow, as the checkpoint has them.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.state import State

_LOCKED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "2",
}
_ENGINES = 2
"""The process may take so many times what the engine may: Arrow's batches and Python stand beside it."""


def main() -> None:
    asked = json.load(sys.stdin)
    most_bytes = _ENGINES * asked["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    job = Job(JobConfig.from_options(asked["settings"]), asked["job"])
    json.dump(answer(job, asked), sys.stdout)


def answer(job: Job, asked: dict[str, Any]) -> dict[str, Any]:
    """``columns``, ``rows`` as texts, and whether there are ``more``; or why it is ``refused``."""
    import duckdb

    try:
        return _found(job, asked)
    except (MemoryError, duckdb.OutOfMemoryException):  # the engine's own text names settings, which are locked
        return {"refused": f"it needs more memory than the {asked['memory_bytes'] >> 20} MiB that a query may take"}
    except (CkptError, duckdb.Error) as error:
        return {"refused": str(error)}


def _found(job: Job, asked: dict[str, Any]) -> dict[str, Any]:
    import duckdb

    with duckdb.connect(":memory:", config={**_LOCKED, "memory_limit": f"{asked['memory_bytes'] >> 20}MiB"}) as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.execute("SET lock_configuration = true")
        _require_select(engine, asked["sql"])
        for uid in _named(engine, asked["sql"], job.show(asked["checkpoint"]).tables):
            _load(engine, job.state(uid, asked["checkpoint"]))
        found = engine.execute(asked["sql"])
        rows = found.fetchmany(asked["rows"] + 1)
        columns = [str(column[0]) for column in found.description or ()]
    texts = [[None if value is None else str(value) for value in row] for row in rows[: asked["rows"]]]
    return {"columns": columns, "rows": texts, "more": len(rows) > asked["rows"]}


def _require_select(engine: Any, sql: str) -> None:
    kinds = [statement.type.name for statement in engine.extract_statements(sql)]
    if kinds != ["SELECT"]:
        raise InvalidInputError(f"expected one SELECT, found {' and '.join(kinds) or 'nothing'}")


def _named(engine: Any, sql: str, tables: Any) -> list[str]:
    """The state tables that the query reads; SQL's names have no upper case of their own."""
    names = {name.casefold() for name in engine.get_table_names(sql)}
    return [uid for uid in tables if uid.casefold() in names]


def _load(engine: Any, state: State) -> None:
    files = state.files()
    columns = state.schema.names

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files.content:
            for batch in files.rows(file):
                yield batch.select(columns)

    reader = pa.RecordBatchReader.from_batches(state.schema, batches())
    engine.register("_read", reader)
    table = state.uid.replace('"', '""')
    engine.execute(f'CREATE TABLE "{table}" AS SELECT * FROM _read')
    engine.unregister("_read")


if __name__ == "__main__":
    main()
