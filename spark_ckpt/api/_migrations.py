"""What users write beside a query whose state changes: ``ckpt.migrate("totals").rename("n", "count")``. Driver."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.protocol.migration import Add, BeginEmpty, Cast, Constant, Migration, Rename
from spark_ckpt.protocol.source_starts import Moved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Migrations:
    """Those of one session, in the order in which they were written, each once."""

    def __init__(self) -> None:
        self._steps: list[Migration] = []

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


def _name(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"migrate: {argument} is a text, found {value!r}")
    return value


def moved(migrations: Migrations, old: str, new: str) -> None:
    migrations.add(Moved(_name("old", old), _name("new", new)))
