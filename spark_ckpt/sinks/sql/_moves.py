"""How staged rows get into the target: appended, upserted by key, or removed by it. In a commit's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from spark_ckpt.change_rows import REMOVALS
from spark_ckpt.sinks.sql import _dialects as dialects
from spark_ckpt.sinks.sql import _mariadb as mariadb

_RANK = "_ckpt_rank"


@dataclass(frozen=True)
class Staged:
    """Rows of the staging table ``source``: those of ``joined`` that are ``ours``, ``in_order`` of the commit."""

    source: sa.TableClause
    joined: sa.FromClause
    ours: sa.ColumnElement[bool]
    in_order: tuple[sa.ColumnElement[Any], ...]

    def select(self, columns: Sequence[str]) -> sa.Select[Any]:
        return sa.select(*(self.source.c[c] for c in columns)).select_from(self.joined).where(self.ours)

    def last_by_key(self, columns: Sequence[str], keys: Sequence[str]) -> sa.Subquery:
        """The last row of each key has ``_RANK`` 1."""
        newest = sa.func.row_number().over(
            partition_by=[self.source.c[k] for k in keys], order_by=[c.desc() for c in self.in_order]
        )
        return self.select(columns).add_columns(newest.label(_RANK)).subquery()


def into(
    connection: sa.Connection,
    target: sa.TableClause,
    rows: Staged,
    columns: Sequence[str],
    keys: Sequence[str],
    change: str | None,
) -> None:
    """``rows`` into ``target``: all of them, or with ``keys`` the last of each. ``change`` names the column that says
    whether that row is there or not any more."""
    if not keys:
        connection.execute(sa.insert(target).from_select(list(columns), rows.select(columns)))
    elif change is not None:
        _make_changes(connection, target, rows, columns, keys, change)
    elif connection.dialect.name in mariadb.DIALECTS:
        in_order = rows.select(columns).order_by(*rows.in_order)
        connection.execute(mariadb.upsert(target, columns, keys, in_order))
    else:
        _upsert(connection, target, columns, keys, _last(rows.last_by_key(columns, keys), columns))


def _make_changes(
    connection: sa.Connection,
    target: sa.TableClause,
    rows: Staged,
    columns: Sequence[str],
    keys: Sequence[str],
    change: str,
) -> None:
    last = rows.last_by_key([*columns, change], keys)
    gone = last.c[change].in_(REMOVALS)
    _delete(connection, target, keys, _last(last, keys).where(gone))
    _upsert(connection, target, columns, keys, _last(last, columns).where(sa.not_(gone)))


def _last(ranked: sa.Subquery, columns: Sequence[str]) -> sa.Select[Any]:
    return sa.select(*(ranked.c[c] for c in columns)).where(ranked.c[_RANK] == 1)


def _upsert(
    connection: sa.Connection, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> None:
    if connection.dialect.name in mariadb.DIALECTS:
        connection.execute(mariadb.upsert(target, columns, keys, rows))
    else:
        connection.execute(dialects.upsert(connection.dialect.name, target, columns, keys, rows))


def _delete(connection: sa.Connection, target: sa.TableClause, keys: Sequence[str], gone: sa.Select[Any]) -> None:
    if connection.dialect.name in mariadb.DIALECTS:
        # As a join: MariaDB would look at the whole target, row by row, for a condition with IN.
        wanted = gone.subquery()
        same = sa.and_(*(target.c[k] == wanted.c[k] for k in keys))
        connection.execute(sa.delete(target).where(same))
    elif len(keys) == 1:
        connection.execute(sa.delete(target).where(target.c[keys[0]].in_(gone)))
    else:
        connection.execute(sa.delete(target).where(sa.tuple_(*(target.c[k] for k in keys)).in_(gone)))
