"""What PostgreSQL's catalogue says of a target, and SQLAlchemy does not: what domains are made of, and which unique
indexes an upsert goes by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


def quoted(connection: sa.Connection, table: str, schema: str | None) -> str:
    shown = connection.dialect.identifier_preparer.format_table(sa.table(table, schema=schema))
    # SQLAlchemy doubles percent signs of names for drivers that format; this one is a value.
    return shown.replace("%%", "%") if connection.dialect.paramstyle in ("format", "pyformat") else shown


_DOMAINS = """
WITH RECURSIVE base AS (
  SELECT a.attname, t.typbasetype, t.typtypmod FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE a.attrelid = CAST(:name AS regclass) AND t.typtype = 'd'
  UNION ALL SELECT attname, t.typbasetype, greatest(t.typtypmod, base.typtypmod) FROM base
  JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype WHERE t.typtype = 'd')
SELECT attname, format_type(typbasetype, typtypmod) FROM base
WHERE typbasetype IN (SELECT oid FROM pg_catalog.pg_type WHERE typtype <> 'd')
"""
_LIMITED: Sequence[tuple[str, Any]] = (
    (r"numeric\((\d+),(-?\d+)\)", sa.Numeric),
    (r"character varying\((\d+)\)", sa.String),
    (r"timestamp\((\d)\) with", lambda digits: postgresql.TIMESTAMP(precision=digits)),
)


def tell_domains(connection: sa.Connection, shown: str, found: Mapping[str, Any]) -> None:
    """Gives the domains among the types of columns their digits and lengths. ``shown``: the table, quoted."""
    domains = {n: c["type"] for n, c in found.items() if isinstance(c["type"], postgresql.DOMAIN)}
    if not domains:
        return
    for name, base in connection.execute(sa.text(_DOMAINS), {"name": shown}):
        for pattern, made in _LIMITED:
            limits = re.match(pattern, base)
            if limits and name in domains:
                domains[name].data_type = made(*map(int, limits.groups()))


_UNIQUE = """
SELECT array_agg(a.attname::text), i.indimmediate, min(c.relname) FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = CAST(:name AS regclass) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
AND i.indexprs IS NULL GROUP BY i.indexrelid, i.indimmediate
"""


def index_problems(connection: sa.Connection, shown: str, keys: Sequence[str], none: str) -> list[str]:
    """Of indexes on ``keys``: ``none`` if there is none that an upsert goes by (not one that CREATE INDEX CONCURRENTLY
    left half made), and each that is deferrable, which keeps upserts from the others, too."""
    unique = [r for r in connection.execute(sa.text(_UNIQUE), {"name": shown}) if set(r[0]) == set(keys)]
    late = [
        f"constraint {name} on the mergeKeys is deferrable, and upserts go by none that is; run: ALTER TABLE {shown} "
        f'DROP CONSTRAINT "{name}", ADD UNIQUE ({", ".join(keys)})'
        for _, immediate, name in unique
        if not immediate
    ]
    return late or ([] if unique else [none])
