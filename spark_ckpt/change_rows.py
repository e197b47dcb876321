"""Change rows: a column says what each row does to the one before it, by the short names of Flink's ``RowKind``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import BadRowError

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
KINDS = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
REMOVALS = (UPDATE_BEFORE, DELETE)


def check_kinds(name: str, column: pa.Array | pa.ChunkedArray) -> None:
    """Raises ``BadRowError`` for a value that is no kind of change, null too. Executor."""
    for found in pc.unique(column).to_pylist():
        if found not in KINDS:
            raise BadRowError(
                f"column '{name}' (changeColumn) has the value {found!r}; expected one of {', '.join(KINDS)}"
            )


def is_removal(column: pa.Array | pa.ChunkedArray) -> Any:
    """Whether each row says that it is not there any more."""
    return pc.is_in(column, pa.array(REMOVALS, column.type))
