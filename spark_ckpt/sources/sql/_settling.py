"""Up to which value of a growing column no row can appear any more.

A database gives out the next number, or the time, when a row is written; the row is seen when its transaction commits.
So a row with a lower value may appear behind one with a higher value that was read, and would be lost. A value is
*settled* when it was first seen some time ago (``settleDelay``) and, on PostgreSQL, every transaction that could have
taken a lower one by then has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

_log = logging.getLogger("spark_ckpt")
_LONG_S = 60.0


@dataclass
class _Seen:
    value: Any
    at_s: float
    waits_for: set[str]
    told: bool = False


class Settling:
    """What was seen of the growing column's largest value, and when. Driver; starts anew with the process."""

    def __init__(self, delay_s: float, clock: Callable[[], float]) -> None:
        self._delay_s, self._clock = delay_s, clock
        self._seen: list[_Seen] = []
        self._largest: Any = None
        self.settled: Any = None
        """The largest settled value; None if there is none yet."""

    def look(self, largest: Any, writers: Collection[str]) -> None:
        """``largest`` is seen; behind that look, ``writers`` were transactions that may hold lower ones."""
        now, running = self._clock(), set(writers)
        for one in self._seen:
            one.waits_for &= running
            self._tell(one, now)
        if largest is not None and largest != self._largest:
            self._seen.append(_Seen(largest, now, running))
            self._largest = largest
        while self._seen and not self._seen[0].waits_for and now - self._seen[0].at_s >= self._delay_s:
            self.settled = self._seen.pop(0).value

    def _tell(self, one: _Seen, now: float) -> None:
        if one.waits_for and now - one.at_s > _LONG_S and not one.told:
            one.told = True
            _log.warning(
                "source sql: rows up to %s wait for %d transaction(s) that may still commit lower values; one that is "
                "idle holds the query back: select pid, state from pg_stat_activity where xact_start is not null",
                one.value, len(one.waits_for),
            )  # fmt: skip


_WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_catalog.pg_locks
WHERE locktype = 'relation' AND pid IS DISTINCT FROM pg_backend_pid()
AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
AND relation IN (
  SELECT relid FROM pg_partition_tree(CAST(:table AS regclass))
  UNION SELECT objid FROM pg_catalog.pg_depend WHERE classid = 'pg_class'::regclass
    AND refobjid = CAST(:table AS regclass) AND deptype IN ('a', 'i'))
"""
_ALL = """
SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a USING (pid)
WHERE l.locktype = 'virtualxid' AND l.pid <> pg_backend_pid() AND a.datname = current_database()
AND coalesce(a.backend_type, 'client backend') = 'client backend'
"""
_IS_TABLE = "SELECT relkind IN ('r', 'p') FROM pg_catalog.pg_class WHERE oid = CAST(:table AS regclass)"


def writers(connection: sa.Connection, table: str, counted: bool) -> list[str]:
    """Transactions that may still commit a value below the largest one; none where the database does not tell.

    An ``INSERT`` locks its table before it takes a number (``counted``) and until it ends, so whoever may have a lower
    one holds such a lock. The time of ``now()`` is that of the transaction's begin: then it may be any transaction.
    ``table``: quoted, as PostgreSQL reads names.
    """
    if connection.dialect.name != "postgresql":
        return []
    is_table = connection.execute(sa.text(_IS_TABLE), {"table": table}).scalar()
    if counted and is_table:
        return [str(v) for v in connection.execute(sa.text(_WRITERS), {"table": table}).scalars()]
    return [str(v) for v in connection.execute(sa.text(_ALL)).scalars()]
