"""Whose rows a database refused, and by which rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from spark_ckpt.sinks.base import PartError
from spark_ckpt.sinks.sql._committing import Move

_DEFINITION = """
SELECT pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint
WHERE conname = :name AND conrelid = (SELECT c.oid FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = :table AND n.nspname = :schema)
UNION ALL
SELECT pg_catalog.pg_get_indexdef(c.oid) FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('i', 'I') AND c.relname = :name AND n.nspname = :schema
LIMIT 1
"""


class Turn:
    """Whose turn it is in a transaction of several tables."""

    def __init__(self) -> None:
        self._move: Move | None = None

    def of(self, move: Move) -> None:
        self._move = move

    def doing(self, moves: Sequence[Move], what: str) -> Callable[[], str]:
        return lambda: f"{(self._move or moves[0]).target.shown}: {what}"

    @contextmanager
    def telling(self, moves: Sequence[Move]) -> Iterator[None]:
        """What is raised says which of several parts it is about."""
        try:
            yield
        except Exception as error:
            if len(moves) == 1:
                raise
            sink = (self._move or moves[0]).sink
            raise PartError(next(i for i, m in enumerate(moves) if m.sink == sink), error) from error


def definition(connection: sa.Connection, error: BaseException) -> str | None:
    """The constraint or unique index that PostgreSQL names, as it was declared: it tells columns, and no row's values.
    The others tell the columns, or the condition, in their messages."""
    found: Any = getattr(error, "diag", None)
    if connection.dialect.name != "postgresql" or found is None or not found.constraint_name:
        return None
    named = {"name": found.constraint_name, "table": found.table_name, "schema": found.schema_name}
    text = connection.execute(sa.text(_DEFINITION), named).scalar()
    return None if text is None else str(text)
