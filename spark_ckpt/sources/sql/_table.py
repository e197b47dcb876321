"""The table that the ``sql`` source reads: its columns as they are at start, and the queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql.types import DateType, StringType, StructField, StructType
from sqlalchemy.dialects import mysql

from spark_ckpt.errors import BadRecordError, ConfigError, InvalidInputError
from spark_ckpt.sources.sql._types import arrow_column, is_bits, is_text, spark_type
from spark_ckpt.sources.sql._values import is_over, kind_of, normal, within
from spark_ckpt.storage.sql.mariadb import DIALECTS

_ROWS_AT_ONCE = 8192


@contextmanager
def _fits_python(what: str, way: str) -> Iterator[None]:
    """Raises ``BadRecordError``, without the value, for one that a driver has no object for."""
    try:
        yield
    except sa.exc.DataError as error:
        if getattr(error.orig, "sqlstate", None) is not None:
            raise  # said by the server
        raise BadRecordError(
            f"{what} has a time in some row that Python has not: infinity, before the year 1 or behind 9999. {way}"
        ) from None


@dataclass(frozen=True)
class TableFacts:
    """What the driver learnt of a table. Goes to executors; holds no secret."""

    name: str
    schema: str | None
    growing: str
    """The offset column, as the table spells it."""
    kind: str
    """How it grows: one of ``_values``."""
    order: tuple[str, ...]
    """Columns that order rows in the same way each time."""
    as_text: tuple[str, ...] = ()
    """Columns that the database makes texts of."""
    as_number: tuple[str, ...] = ()
    """Columns that the database makes numbers of."""
    by_day: bool = False
    """Whether the offset column has days, to which rows come as long as they last."""

    def table(self, names: Sequence[str]) -> sa.TableClause:
        return sa.table(self.name, *(sa.column(n) for n in names), schema=self.schema)

    def largest(self, connection: sa.Connection, now_ms: int) -> Any:
        """The largest value to which no more rows come, but of transactions that have not ended.

        Of days, the newest one counts when a later one is there, or when it is over in all zones of the world.
        """
        column = self.table([self.growing]).c[self.growing]
        with _fits_python(
            f"option 'offsetColumn' names {self.growing}, which", "Read a view that leaves such rows out"
        ):
            newest = normal(self.kind, connection.execute(sa.select(sa.func.max(column))).scalar())
        if not self.by_day or newest is None or is_over(newest, now_ms):
            return newest
        return normal(self.kind, connection.execute(sa.select(sa.func.max(column)).where(column < newest)).scalar())

    def smallest(self, connection: sa.Connection, start: tuple[str, Any], end: Any) -> Any:
        column = self.table([self.growing]).c[self.growing]
        query = sa.select(sa.func.min(column)).where(*within(column, start, end))
        return normal(self.kind, connection.execute(query).scalar())

    def value_at(self, connection: sa.Connection, start: tuple[str, Any], end: Any, rows: int) -> Any:
        """The value of the row that is the ``rows``-th behind ``start``; None if there are fewer."""
        column = self.table([self.growing]).c[self.growing]
        query = sa.select(column).where(*within(column, start, end)).order_by(column).limit(1).offset(rows - 1)
        return normal(self.kind, connection.execute(query).scalar())

    def rows(
        self, connection: sa.Connection, target: pa.Schema, start: tuple[str, Any], end: Any
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a range in order, as they come from the server."""
        table = self.table(list(dict.fromkeys([*target.names, self.growing, *self.order])))
        query = sa.select(*(self._shown(table.c[n]) for n in target.names)).where(
            *within(table.c[self.growing], start, end)
        )
        query = query.order_by(table.c[self.growing], *(table.c[n] for n in self.order))
        for part in self._parts(connection, query, target):
            values = list(zip(*part, strict=True))
            arrays = [arrow_column(f.name, v, f.type) for f, v in zip(target, values, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=target)

    def _parts(
        self, connection: sa.Connection, query: sa.Select[Any], target: pa.Schema
    ) -> Iterator[Sequence[sa.Row[Any]]]:
        times = " or ".join(f.name for f in target if pa.types.is_temporal(f.type))
        with _fits_python(f"column {times}", "Read the column as the database's text: as a string in .schema(...)"):
            yield from connection.execution_options(stream_results=True).execute(query).partitions(_ROWS_AT_ONCE)

    def _shown(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        if column.key in self.as_number:
            return sa.cast(column, mysql.INTEGER(unsigned=True))
        return sa.cast(column, sa.Text) if column.key in self.as_text else column


class FoundTable:
    """A table as the database describes it. Raises ``InvalidInputError`` if it is not there."""

    def __init__(self, connection: sa.Connection, name: str, schema: str | None) -> None:
        self._name, self._schema = name, schema
        self._dialect = connection.dialect.name
        inspector = sa.inspect(connection)
        try:
            found = inspector.get_columns(name, schema=schema)
        except sa.exc.NoSuchTableError:
            found = []
        if not found:
            raise InvalidInputError(f"table {self.shown} does not exist, or this user may not see it")
        quoted = self._dialect in DIALECTS  # SQLAlchemy reads MariaDB's names as they are quoted
        self._columns = {c["name"].replace("``", "`") if quoted else c["name"]: c for c in found}
        self._keys = tuple(inspector.get_pk_constraint(name, schema=schema).get("constrained_columns") or ())

    @property
    def shown(self) -> str:
        return f"{self._schema}.{self._name}" if self._schema else self._name

    def spark_schema(self) -> StructType:
        """Raises ``ConfigError`` naming a column whose type Spark does not have."""
        fields = []
        for name, column in self._columns.items():
            found = spark_type(self._dialect, column["type"])
            if found is None:
                shown = "" if isinstance(column["type"], sa.types.NullType) else f" {column['type']}"
                raise ConfigError(
                    f"column '{name}' of table {self.shown} has a type{shown}, which Spark does not have; give "
                    ".schema(...) without the column, or with it as a string"
                )
            fields.append(StructField(name, found))
        return StructType(fields)

    def facts(self, connection: sa.Connection, schema: StructType, growing: str) -> TableFacts:
        """Raises ``InvalidInputError`` for columns that are not there, or an offset column that cannot be one."""
        missing = [f.name for f in schema if f.name not in self._columns]
        if missing:
            raise InvalidInputError(
                f"table {self.shown} has no column {', '.join(missing)}; its columns are {', '.join(self._columns)}"
            )
        growing = self._growing(growing)
        grows_as = spark_type(self._dialect, self._columns[growing]["type"])
        kind = kind_of(self._dialect, grows_as)
        if kind is None:
            raise InvalidInputError(
                f"option 'offsetColumn' names {growing}, whose type is {self._columns[growing]['type']}; it is a whole "
                "number, a date or a timestamp that grows from row to row"
            )
        texts = [f.name for f in schema if isinstance(f.dataType, StringType)]
        numbers = tuple(f.name for f in schema if is_bits(self._columns[f.name]["type"]))
        made = tuple(n for n in texts if n not in numbers and not is_text(self._columns[n]["type"]))
        order = tuple(k for k in self._keys if k != growing)
        by_day = isinstance(grows_as, DateType)
        facts = TableFacts(self._name, self._schema, growing, kind, order, made, numbers, by_day)
        self._refuse_nulls(connection, facts)
        return facts

    def _growing(self, name: str) -> str:
        found = [n for n in self._columns if n == name] or [n for n in self._columns if n.lower() == name.lower()]
        if len(found) != 1:
            raise InvalidInputError(
                f"option 'offsetColumn' names {name}; the columns of table {self.shown} are {', '.join(self._columns)}"
            )
        return found[0]

    def _refuse_nulls(self, connection: sa.Connection, facts: TableFacts) -> None:
        if not self._columns[facts.growing]["nullable"]:
            return
        table = facts.table([facts.growing])
        nulls = sa.select(sa.literal(1)).select_from(table).where(table.c[facts.growing].is_(None))
        if connection.execute(nulls.limit(1)).first():
            raise InvalidInputError(
                f"option 'offsetColumn' names {facts.growing}, which is null in rows of table {self.shown}: they would "
                "never be read; fill it, or choose another"
            )
