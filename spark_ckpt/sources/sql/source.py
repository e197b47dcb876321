"""The ``sql`` source: a table that rows are added to, read by a column that grows with them.

An offset is a value of that column, so a batch is replayed from its two offsets alone, as long as rows stay as they
were written. Rows that become visible late are waited for (:mod:`spark_ckpt.sources.sql._settling`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt import clock
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources._options import duration_s, parse_options, positive, text
from spark_ckpt.sources.sql._settling import Settling, writers
from spark_ckpt.sources.sql._table import FoundTable, TableFacts
from spark_ckpt.sources.sql._values import INTEGER, from_json, ranges, to_json
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from spark_ckpt.storage.sql.connections import absolute_url, parse_url
from spark_ckpt.storage.sql.database import Database

_log = logging.getLogger("spark_ckpt")
_WHAT = "source 'sql'"
_LOCK_TIMEOUT_MS = 60_000
_ALL_ROWS = 2**63 - 1
_PAUSE_S = 0.05
_PATIENCE_S = 30.0
"""How long the database may be away from a query that runs."""

OPTIONS = {
    "url": text(expects="a SQLAlchemy URL").means("The database: SQLite, PostgreSQL or MariaDB.", required=True),
    "user": text().means("In place of one in the URL."),
    "password": text().means("In place of one in the URL. Never shown."),
    "table": text().means("The table, or a view.", required=True),
    "schema": text().means("The database schema of the table."),
    "offsetColumn": text(expects="a column").means(
        "A column that grows with the rows: a whole number, a date or a timestamp. An index should begin with it.",
        required=True,
    ),
    "startingOffset": text(expects="a value of the column").means("The first value to read; without it all rows."),
    "maxRowsPerTrigger": positive().means("Rows of a batch at most; all that have its last value belong to it."),
    "numSplits": positive(4).means("Ranges of the column that a batch is read in, side by side."),
    "settleDelay": duration_s(5.0).means("How long a value must have been seen before rows up to it are read."),
    "discoveryInterval": duration_s(1.0).means("How often the database is asked for new rows at most."),
}


class SqlSource(DataSource):
    """Options: those of ``OPTIONS``. Its schema is the table's, unless one is given, whose columns are then read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.parsed = parse_options("sql", OPTIONS, options)
        for name, option in OPTIONS.items():
            if option.required and self.parsed[name] is None:
                raise ConfigError(f"{_WHAT}: expected option '{name}' ({option.expects}), found none")
        parse_url(_WHAT, self.parsed["url"], None, None)
        self.parsed["url"] = absolute_url(self.parsed["url"])

    @classmethod
    def name(cls) -> str:
        return "sql"

    def schema(self) -> StructType:
        """Of the table, every column nullable. Connects. Raises ``InvalidInputError`` if that or the table fails."""
        return self._ask(lambda connection: self._found(connection).spark_schema())

    def streamReader(self, schema: StructType) -> SqlReader:
        """Connects, and refuses columns that are not there."""
        column = self.parsed["offsetColumn"]
        return SqlReader(self, self._ask(lambda c: self._found(c).facts(c, schema, column)), schema)

    def database(self) -> Database:
        o = self.parsed
        return Database(_WHAT, parse_url(_WHAT, o["url"], o["user"], o["password"]), _LOCK_TIMEOUT_MS, reading=True)

    def _found(self, connection: sa.Connection) -> FoundTable:
        return FoundTable(connection, self.parsed["table"], self.parsed["schema"])

    def _ask(self, question: Callable[[sa.Connection], Any]) -> Any:
        database = self.database()
        with database.errors(f"{_WHAT}: opening table {self.parsed['table']} of {database}", InvalidInputError):
            database.check()
            return database.transaction(question)


class SqlSplit(InputPartition):
    """The rows of a range; ends as an offset has them."""

    def __init__(self, start: dict[str, Any], end: Any) -> None:
        self.start = start
        self.end = end


class SqlReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset: ``{"after": value}``, the last value that was read, or ``{"from": value}``, the first to read; null is
    none."""

    def __init__(self, source: SqlSource, facts: TableFacts, schema: StructType) -> None:
        self._source, self._facts = source, facts
        self._target = arrow_schema(schema)
        self._starting = self._parse_starting(source.parsed["startingOffset"])
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k in ("_source", "_facts", "_target", "_starting")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._database: Database | None = None
        self._settling: Settling | None = None
        self._pinned: Any = None
        self._is_pinned = False
        self._next_look = 0.0
        self._read_up_to: Any = None
        self._lower: Any = None
        self._told_lower = False

    # --- driver -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return {"after": None} if self._starting is None else {"from": to_json(self._starting)}

    def starting_from(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        if asked == "earliest":
            return {"after": None}
        if asked == "latest":
            self.prepareForTriggerAvailableNow()
            return {"after": to_json(self._pinned)}
        if isinstance(asked, dict) and asked.keys() not in ({"after"}, {"from"}):
            raise ValueError(asked)
        return None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._source.parsed["maxRowsPerTrigger"] or _ALL_ROWS)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        low = self._bound(start)
        self._read_up_to = low[1] if low[0] == "after" else None
        end = self._pinned if self._is_pinned else self._settled()
        if end is None or (low[1] is not None and (end < low[1] if low[0] == "from" else end <= low[1])):
            return start
        rows = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", None)
        if rows is not None and rows != _ALL_ROWS:
            found = self._ask("planning a batch", lambda c: self._facts.value_at(c, low, end, rows))
            end = end if found is None else found
        return {"after": to_json(end)}

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        if isinstance(asked, str):
            return None
        kind = self._facts.kind
        return {"after": to_json(from_json(kind, asked["after"]))}

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        (_, low), last = self._bound(start), from_json(self._facts.kind, end["after"])
        if "after" in start and low is not None and low > last:
            return None
        (_, high) = self._bound(found)
        return found if found == start or high <= last else end

    def behind(self, offset: dict[str, Any]) -> int | None:
        """Of a column of whole numbers: how many may be settled and not read, more than there are where some lack."""
        end, (rule, low) = self._settler.settled, self._bound(offset)
        if self._facts.kind != INTEGER or end is None or low is None:
            return None
        return int(end) - int(low) + (rule == "from")

    def there_now(self) -> Callable[[], dict[str, Any]]:
        """Up to the largest value that is seen now; the job reads it once it is settled."""
        largest = self._look()
        there = self.initialOffset() if largest is None else {"after": to_json(largest)}
        return lambda: there

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now, and what commits late behind it: waits until that is settled."""
        wanted = self._look()
        while wanted is not None and (self._settler.settled is None or self._settler.settled < wanted):
            time.sleep(_PAUSE_S)
            self._look()
        self._pinned, self._is_pinned = self._settler.settled, True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        low, high = self._bound(start), from_json(self._facts.kind, end["after"])
        if low[1] is None:
            low = ("from", self._ask("planning a batch", lambda c: self._facts.smallest(c, low, high)))
        first, *rest = ranges(self._facts.kind, low[1], high, self._source.parsed["numSplits"])
        splits = [SqlSplit({low[0]: to_json(first[0])}, to_json(first[1]))]
        return [*splits, *(SqlSplit({"after": to_json(a)}, to_json(b)) for a, b in rest)]

    # --- executor ---------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SqlSplit)
        start, end = self._bound(partition.start), from_json(self._facts.kind, partition.end)
        database = self._source.database()
        with (
            database.errors(f"{_WHAT}: reading table {self._facts.name} of {database}"),
            # Where it goes away later, rows may have been given already: the task fails, and reads its range again.
            database.patiently(database.engine.connect, _PATIENCE_S) as connection,
            connection.begin(),
        ):
            yield from self._facts.rows(connection, self._target, start, end)

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def _settler(self) -> Settling:
        if self._settling is None:
            self._settling = Settling(self._source.parsed["settleDelay"], time.monotonic)
        return self._settling

    def _settled(self) -> Any:
        now = time.monotonic()
        if now >= self._next_look:
            self._look()
            self._next_look = now + self._source.parsed["discoveryInterval"]
        return self._settler.settled

    def _look(self) -> Any:
        def ask(connection: sa.Connection) -> Any:
            largest = self._facts.largest(connection, clock.now_ms())
            name = connection.dialect.identifier_preparer.format_table(self._facts.table([]))
            # Behind the look at the rows: who is not among these has committed, and is seen when they are read.
            return largest, writers(connection, name.replace("%%", "%"), self._facts.kind == INTEGER)

        largest, running = self._ask("looking for new rows", ask)
        self._settler.look(largest, running)
        self._tell_lower(largest)
        return largest

    def _tell_lower(self, largest: Any) -> None:
        """Rows that come below what was read are never read: the numbers of an emptied table may begin anew."""
        is_lower = largest is not None and self._read_up_to is not None and largest < self._read_up_to
        if is_lower and self._lower is not None and largest > self._lower and not self._told_lower:
            self._told_lower = True
            _log.warning(
                "source sql: table %s was read up to %s = %s, and has new rows up to %s, which are not read: was it "
                "emptied, and do its numbers begin anew? Start anew to read them, with an empty job folder",
                self._facts.name, self._facts.growing, self._read_up_to, largest,
            )  # fmt: skip
        self._lower = largest if is_lower else None

    def _bound(self, offset: Mapping[str, Any]) -> tuple[str, Any]:
        rule = "from" if "from" in offset else "after"
        return rule, from_json(self._facts.kind, offset.get(rule))

    def _ask(self, doing: str, question: Callable[[sa.Connection], Any]) -> Any:
        if self._database is None:
            self._database = self._source.database()
        with self._database.errors(f"{_WHAT}: {doing} in table {self._facts.name} of {self._database}"):
            database = self._database
            return database.patiently(lambda: database.transaction(question), _PATIENCE_S)

    def _parse_starting(self, value: str | None) -> Any:
        try:
            return from_json(self._facts.kind, value)
        except ValueError:
            raise ConfigError(
                f"option 'startingOffset' of {_WHAT}: expected a value of column {self._facts.growing}, such as 42 or "
                f"2026-01-31T12:00:00+00:00, found '{value}'"
            ) from None
