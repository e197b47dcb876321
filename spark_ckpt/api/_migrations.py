"""What users write beside a query whose state changes: ``ckpt.migrate("totals").rename("n", "count")``. Driver."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.protocol.migration import Add, BeginEmpty, Cast, Constant, Migration, Rename
from spark_ckpt.protocol.rewriting import Rescale, Rewrite
from spark_ckpt.protocol.source_starts import Moved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Migrations:
    """Those of one session, in the order in which they were written, each once."""

    def __init__(self) -> None:
        self._steps: list[Migration] = []
        self.functions: dict[tuple[str, str], Callable[..., Any]] = {}

    def add(self, step: Migration) -> None:
        if step not in self._steps:
            self._steps.append(step)

    def steps(self) -> tuple[Migration, ...]:
        return tuple(self._steps)


class StateMigration:
    """How the state of one operator becomes that of the changed query. Every method returns it again.

    ``name``s are those of the state: a column, a key, a struct's field (``"pos.x"``), or an aggregate as messages show
    it (``"sum(amount)"``). Nothing happens before a start, and nothing where it was done before: leave the lines beside
    the query. What does not fit is refused at the start, with ``TopologyError``.
    """

    def __init__(self, spark: SparkSession, migrations: Migrations, table: str) -> None:
        self._spark, self._migrations, self._table = spark, migrations, table

    def rename(self, old: str, new: str) -> StateMigration:
        """What was called ``old`` is ``new`` in the query, with the values that it has."""
        return self._with(Rename(self._table, _name("old", old), _name("new", new)))

    def cast(self, name: str, type: str) -> StateMigration:
        """The column ``name`` has another type in the query, ``"decimal(20,2)"``. Values are cast as they are read; one
        that cannot be exactly the same fails the query then: see :meth:`try_cast`."""
        return self._with(Cast(self._table, _name("name", name), _name("type", type)))

    def try_cast(self, name: str, type: str) -> StateMigration:
        """As :meth:`cast`, or in place of it behind a failure: a value that does not fit is null."""
        return self._with(Cast(self._table, _name("name", name), _name("type", type), lenient=True))

    def add(self, name: str, value: Any) -> StateMigration:
        """The column ``name``, which the query adds, has ``value`` in what is there, and not null: a constant, as
        ``"EUR"`` or ``F.lit("EUR")``."""
        return self._with(Add(self._table, _name("name", name), self._constant(value)))

    def by(
        self, func: Callable[..., DataFrame], of: str | Sequence[str] | None = None, name: str | None = None
    ) -> StateMigration:
        """The rows of the state are those that ``func`` makes of the old ones, in one pass at the start. Keys may have
        other names, types and columns, and there may be fewer or more of them.

        ``func(old: DataFrame) -> DataFrame`` gets the rows as ``ckpt.state(uid).df()`` shows them, and returns rows
        with the columns that the query's state has. It is called on the driver. ``of``: state that is read in place
        of the operator's own, one DataFrame each: of operators that are split, merged or replaced. It is done once in a
        job's life and known by ``name`` (default: the function's own): another function needs another name. Two rows
        for one key, and other columns, are refused at the start, which changes nothing then. Each table of an operator
        (``"sessions.visits"``) is one of its own::

            def by_country(old: DataFrame) -> DataFrame:
                return old.groupBy("country").agg(F.sum("n").alias("n"), F.sum("total").alias("total"))

            ckpt.migrate("totals").by(by_country)
        """
        called = str(name or getattr(func, "__name__", "<lambda>"))
        if called == "<lambda>":
            raise InvalidInputError(f"migrate({self._table!r}).by: expected a name=... for a function without one")
        self._migrations.functions[self._table, called] = func
        return self._with(Rewrite(self._table, called, (of,) if isinstance(of, str) else tuple(of or ())))

    def sql(self, text: str, of: str | Sequence[str] | None = None, name: str | None = None) -> StateMigration:
        """As :meth:`by`, by a query over ``state``, or over the tables ``of`` by their names (in backticks, with dots).

        It is known by ``name`` (default: its text)::

            ckpt.migrate("totals").sql("SELECT lower(k) AS k, sum(n) AS n FROM state GROUP BY 1")
        """
        names = ("state",) if of is None else (of,) if isinstance(of, str) else tuple(of)
        known = name or f"sql-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return self.by(partial(_by_sql, self._spark, text, names), of, known)

    def begin_empty(self, name: str | None = None) -> StateMigration:
        """``name``, which cannot go on or may not be what another one was, begins empty. Without a name, the whole
        state of the operator does, where it does not fit the query."""
        return self._with(BeginEmpty(self._table, "" if name is None else _name("name", name)))

    def _with(self, step: Migration) -> StateMigration:
        self._migrations.add(step)
        return self

    def _constant(self, value: Any) -> Constant:
        found = self._spark.range(1).select(value).first()[0] if isinstance(value, Column) else value
        if isinstance(found, datetime):
            return (found.astimezone(timezone.utc) if isinstance(value, Column) or found.tzinfo else found).isoformat()
        if isinstance(found, date | Decimal):
            return str(found)
        if found is None or isinstance(found, str | int | float | bool):
            return found
        raise InvalidInputError(
            f"migrate({self._table!r}).add: expected a number, text, date, time, true or false, found "
            f"{type(found).__name__}"
        )


def _by_sql(spark: SparkSession, text: str, names: Sequence[str], *old: DataFrame) -> DataFrame:
    views = [f"ckpt_old_{uuid.uuid4().hex}" for _ in old]
    for view, rows in zip(views, old, strict=True):
        rows.createOrReplaceTempView(view)
    try:
        read = ", ".join(f"{quoted(name)} AS (SELECT * FROM {view})" for name, view in zip(names, views, strict=True))
        rest = text.strip()
        return spark.sql(f"WITH {read}, {rest[4:]}" if rest[:5].lower() == "with " else f"WITH {read} {rest}")
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def _name(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"migrate: {argument} is a text, found {value!r}")
    return value


def moved(migrations: Migrations, old: str, new: str) -> None:
    migrations.add(Moved(_name("old", old), _name("new", new)))


def rescale(migrations: Migrations) -> None:
    migrations.add(Rescale())
