"""What SQLite does to values by the type that a column was declared with (its affinity)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as pt
import sqlalchemy as sa

from spark_ckpt.sinks.sql.types import SQLITE_EXACT_DIGITS

_AFFINITIES = (("INT", "INTEGER"), ("CHAR", "TEXT"), ("CLOB", "TEXT"), ("TEXT", "TEXT"), ("BLOB", "BLOB"),
               ("REAL", "REAL"), ("FLOA", "REAL"), ("DOUB", "REAL"))  # fmt: skip


def affinity(declared: str) -> str:
    """Of a column declared as ``declared``: SQLite's five rules, in their order."""
    found = next((a for part, a in _AFFINITIES if part in declared.upper()), "NUMERIC")
    return found if declared else "BLOB"


def value_problems(connection: sa.Connection, table: str, schema: str | None, rows: pa.Schema) -> Iterator[str]:
    """Columns that would keep other values than the query writes: SQLite makes numbers of texts that look like one,
    and doubles of long numbers, without a word."""
    columns = sa.text("SELECT name, type FROM pragma_table_info(:t, :s)")
    for name, declared in connection.execute(columns, {"t": table, "s": schema or "main"}):
        if name not in rows.names or affinity(declared) in ("TEXT", "BLOB"):
            continue
        kind = rows.field(name).type
        if pt.is_decimal(kind) and kind.precision > SQLITE_EXACT_DIGITS:
            yield (
                f"column '{name}' is {declared}, in which SQLite keeps {SQLITE_EXACT_DIGITS} digits of a number, and "
                f"the query writes {kind}; declare it TEXT, or cast to decimal({SQLITE_EXACT_DIGITS},{kind.scale})"
            )
        elif pt.is_string(kind) or pt.is_large_string(kind):
            yield (
                f"column '{name}' is {declared}, in which SQLite makes numbers of texts such as 007 and 1.10, and the "
                "query writes texts; declare it TEXT"
            )
