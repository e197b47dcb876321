"""How staged rows get into the target: appended, upserted by key, or removed by it. In a commit's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from spark_ckpt.change_rows import REMOVALS
from spark_ckpt.sinks.sql import _dialects as dialects
from spark_ckpt.sinks.sql import _mariadb as mariadb
from spark_ckpt.sinks.sql._dialects import SEQ, STAGE
from spark_ckpt.sinks.sql._rules import can_be_null_meanwhile, can_replace_rows
from spark_ckpt.storage.sql.bad_rows import is_about_row, is_collision


@dataclass(frozen=True)
class Staged:
    """Rows of the staging table ``source``: those of ``joined`` that are ``ours``, ``in_order`` of the commit."""

    source: sa.TableClause
    joined: sa.FromClause
    ours: sa.ColumnElement[bool]
    in_order: tuple[sa.ColumnElement[Any], ...]
    are_last: bool = False
    """There is one row of each key."""

    def select(self, columns: Sequence[str]) -> sa.Select[Any]:
        return sa.select(*(self.source.c[c] for c in columns)).select_from(self.joined).where(self.ours)

    def last_by_key(self, columns: Sequence[str], keys: Sequence[str]) -> sa.Subquery:
        """The last row of each key has 1 in the last column, :meth:`rank`."""
        newest = sa.literal_column("1") if self.are_last else self.newest(keys)
        return self.select(columns).add_columns(newest.label(_rank(columns))).subquery()

    def newest(self, keys: Sequence[str]) -> sa.ColumnElement[Any]:
        """1 for the last row of each key, 2 for the one before it, and so on."""
        of_key = [self.source.c[k] for k in keys]
        return sa.func.row_number().over(partition_by=of_key, order_by=[c.desc() for c in self.in_order])


def _rank(columns: Sequence[str]) -> str:
    """A column's name that none of ``columns`` has, in any case of letters."""
    taken, name = {c.casefold() for c in columns}, "_ckpt_rank"
    while name in taken:
        name += "_"
    return name


def keep_last(connection: sa.Connection, rows: Staged, keys: Sequence[str]) -> None:
    """Only the last row of each key is left in the staging table."""
    place = [STAGE, SEQ]
    last = rows.last_by_key(place, keys)
    delete(connection, rows.source, place, sa.select(*(last.c[c] for c in place)).where(last.c[_rank(place)] > 1))


def let_go(
    connection: sa.Connection, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> bool:
    """Delete the target's rows of the keys of ``rows``, which are about to be written; false if that may be noticed."""
    may = can_replace_rows(connection, target, columns)
    if may:
        delete(connection, target, keys, _keys_of(rows, keys))
    return may


def empty_unique(
    connection: sa.Connection, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> bool:
    """Set the unique values of these rows to null; false if they cannot be, or if that may be noticed."""
    there = can_be_null_meanwhile(connection, target, [c for c in columns if c not in keys])
    if there:
        same = _among(connection, target, keys, _keys_of(rows, keys))
        connection.execute(sa.update(target).where(same).values(dict.fromkeys(there)))
    return bool(there)


def _keys_of(rows: sa.Select[Any], keys: Sequence[str]) -> sa.Select[Any]:
    coming = rows.subquery()
    return sa.select(*(coming.c[k] for k in keys))


WAYS = let_go, empty_unique
"""How rows that are about to be written do not stand in each other's way."""


def remove(
    connection: sa.Connection, target: sa.TableClause, rows: Staged, keys: Sequence[str], change: str | None
) -> None:
    """Of the keys of ``rows``, those whose last row says in column ``change`` that it is not there any more."""
    if change is not None:
        last, named = rows.last_by_key([*keys, change], keys), [*keys, change]
        delete(connection, target, keys, _last(last, keys, named).where(last.c[change].in_(REMOVALS)))


def put(
    connection: sa.Connection,
    target: sa.TableClause,
    rows: Staged,
    columns: Sequence[str],
    keys: Sequence[str],
    change: str | None,
    checkpoint: tuple[str, int] | None = None,
) -> None:
    """``rows`` into ``target``: all of them, or with ``keys`` the last of each, if it is there by column ``change``.

    ``checkpoint``: the column that says which one a row came with, and that one; without ``keys`` only."""
    in_mariadb = connection.dialect.name in mariadb.DIALECTS
    if not keys:
        found = rows.select(columns)
        if checkpoint is not None:
            columns = [*columns, checkpoint[0]]
            found = found.add_columns(sa.literal(checkpoint[1], sa.BigInteger).label(checkpoint[0]))
        connection.execute(sa.insert(target).from_select(list(columns), found))
    elif change is not None:
        named = [*columns, change]
        last = rows.last_by_key(named, keys)
        there = sa.not_(last.c[change].in_(REMOVALS))
        _upsert(connection, target, columns, keys, _last(last, columns, named).where(there))
    elif in_mariadb and mariadb.keys_decide(connection, target, columns, keys):
        try:
            with connection.begin_nested():
                in_order = rows.select(columns).order_by(*rows.in_order)
                connection.execute(mariadb.upsert(target, columns, keys, in_order))
        except sa.exc.DBAPIError as error:
            # What is refused may be a row that does not count, as a later one has its key.
            if rows.are_last or not is_about_row(error.orig):
                raise
            connection.execute(mariadb.upsert(target, columns, keys, _last_in_order(rows, columns, keys)))
    else:
        _upsert(connection, target, columns, keys, _last(rows.last_by_key(columns, keys), columns, columns))


def _last(ranked: sa.Subquery, columns: Sequence[str], ranked_columns: Sequence[str]) -> sa.Select[Any]:
    return sa.select(*(ranked.c[c] for c in columns)).where(ranked.c[_rank(ranked_columns)] == 1)


def _last_in_order(rows: Staged, columns: Sequence[str], keys: Sequence[str]) -> sa.Select[Any]:
    """The last row of each key, in the order of the commit."""
    ranked = _rank(columns)
    place = _rank([*columns, ranked])
    number = sa.func.row_number().over(order_by=rows.in_order)
    found = rows.select(columns).add_columns(rows.newest(keys).label(ranked), number.label(place)).subquery()
    return sa.select(*(found.c[c] for c in columns)).where(found.c[ranked] == 1).order_by(found.c[place])


def _upsert(
    connection: sa.Connection, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> None:
    def merge() -> None:
        if connection.dialect.name not in mariadb.DIALECTS:
            connection.execute(dialects.upsert(connection.dialect.name, target, columns, keys, rows))
        elif mariadb.keys_decide(connection, target, columns, keys):
            connection.execute(mariadb.upsert(target, columns, keys, rows))
        else:
            mariadb.update_and_insert(connection, target, columns, keys, rows)

    try:
        with connection.begin_nested():
            merge()
    except sa.exc.IntegrityError as error:
        # Unique values that move among rows collide on the way, though the end may be right.
        if not is_collision(error.orig):
            raise
        for way in WAYS:
            with suppress(sa.exc.IntegrityError), connection.begin_nested():
                if way(connection, target, columns, keys, rows):
                    merge()
                    return
        raise


def delete(connection: sa.Connection, target: sa.TableClause, keys: Sequence[str], gone: sa.Select[Any]) -> None:
    connection.execute(sa.delete(target).where(_among(connection, target, keys, gone)))


def _among(
    connection: sa.Connection, target: sa.TableClause, keys: Sequence[str], wanted: sa.Select[Any]
) -> sa.ColumnElement[bool]:
    """Whether a row of ``target``, which is changed, has one of the ``wanted`` keys."""
    if connection.dialect.name in mariadb.DIALECTS:
        # As a join: MariaDB would look at the whole target, row by row, for a condition with IN.
        found = mariadb.beside(target, wanted)
        return sa.and_(*(target.c[k] == found.c[k] for k in keys))
    return (target.c[keys[0]] if len(keys) == 1 else sa.tuple_(*(target.c[k] for k in keys))).in_(wanted)
