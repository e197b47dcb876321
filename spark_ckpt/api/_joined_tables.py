"""A table that is joined behind a join of streams: its columns beside those that have names of their own. Driver.

Spark finds the table's columns, by its alias or as ``table["k"]``, as behind any join with a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import column_ids
from spark_ckpt.plan.columns import OWN, free, quoted, unquoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, parts_of, replaced
from spark_ckpt.plan.key_columns import is_column
from spark_ckpt.plan.qualifiers import qualifiers
from spark_ckpt.plan.spark_errors import analysis_error
from spark_ckpt.plan.stars import Star
from spark_ckpt.plan.trying import unlogged

if TYPE_CHECKING:
    from spark_ckpt.api._joined_names import JoinedNames
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any
_AMBIGUOUS = ("_LEGACY_ERROR_TEMP_1182", "AMBIGUOUS_COLUMN_REFERENCE")
"""Conditions of Spark's errors, the second on Spark Connect."""
_WITH_PARTS = (T.StructType, T.MapType, T.ArrayType)


def with_table(joined: JoinedNames, table: SparkDF, on: list[str] | Column | None, how: str | None) -> CkptDataFrame:
    """``joined`` with what ``table`` has, by names or a condition, whose names raise as in Spark where several
    columns have them."""
    using = on if isinstance(on, list) else []
    _refuse_same_alias(joined, table)
    joined = _without_shared(joined.by(using), table)
    others = [c for c in table.columns if c.lower() not in [name.lower() for name in using]]
    if any(_has_of(one, others) for one in joined.tables):  # whose columns get names of their own
        joined = knowing_tables(joined)
    rows = _apart_from(joined, others)
    condition: Any = on
    if isinstance(on, Column):
        _refuse_ambiguous(joined, table, on)
        _refuse_twice((*joined.tables, table), on)
        condition = rows.column(on)
    made = rows.unique.join(table, condition, how)
    names = dict(zip(rows.unique.columns, (*rows.shown, *rows.behind), strict=True))
    hidden = set(rows.unique.columns[len(rows.shown) :])
    columns = sorted(made.columns, key=lambda column: column in hidden)
    moved = {at: columns.index(name) for at, name in enumerate(rows.unique.columns)}
    called = tuple(names.get(column, column) for column in columns)
    visible = len(columns) - len(hidden)
    found = replace(
        rows,
        unique=made if columns == made.columns else made._columns(columns),
        shown=called[:visible],
        behind=called[visible:],
        tables=(*rows.tables, table) if len(made.columns) > len(rows.unique.columns) else rows.tables,
        lost=(*rows.lost, *(one for one in rows.tables if _has_of(one, others))),
    )
    return found._moved(moved).frame()


def _without_shared(joined: JoinedNames, table: SparkDF) -> JoinedNames:
    """``joined``, which raises as Spark does for columns of ``table`` that it has itself, from a join further in front:
    which of the two is meant, nobody can tell."""
    ids = column_ids(table) if hasattr(table, "_jdf") else []
    shared = {one for one in ids if joined.place(Name("", table=one)) is not None}

    def place(name: Name) -> int | None:
        if name.table in shared:
            text = f"Column {name.text} is ambiguous: the table is joined twice. Give it an alias each time"
            raise analysis_error(_AMBIGUOUS[0], text, ambiguousAttrs=name.text, config="failAmbiguousSelfJoin")
        return joined.place(name)

    return replace(joined, place=place) if shared else joined


def knowing_tables(joined: JoinedNames) -> JoinedNames:
    """``joined``, which knows by itself what classic Spark knows of tables further in front: for what makes new rows of
    these, or new columns."""
    rows = joined.unique._preview
    if not (joined.tables and hasattr(rows, "_jdf")):
        return joined
    found, known = qualifiers(rows), {alias.lower() for alias in joined.aliases}

    def place(name: Name) -> int | None:
        at = joined.place(name)
        return joined.unique._attributes.place(name) if at is None and name.table is not None else at

    aliases = {alias: columns for alias, columns in found.aliases.items() if alias.lower() not in known}
    return replace(joined, place=place, aliases={**joined.aliases, **aliases}, hiding=joined.hiding | found.hiding)


def _has_of(table: SparkDF, columns: list[str]) -> bool:
    return bool({c.lower() for c in table.columns} & {c.lower() for c in columns})


def _apart_from(joined: JoinedNames, columns: list[str]) -> JoinedNames:
    """``joined``, none of whose columns is called as one of the table's."""
    low, names = {column.lower() for column in columns}, list(joined.unique.columns)
    for at, name in enumerate(names):
        if name.lower() in low:
            names[at] = free(f"{OWN}{name}", [*names, *columns])
    return joined if names == joined.unique.columns else replace(joined, unique=joined._renamed(names))


def _refuse_ambiguous(joined: JoinedNames, table: SparkDF, on: Column) -> None:
    low = {column.lower() for column in table.columns}
    for name in names_in(on) or []:
        parts = [unquoted(part) for part in parts_of(name.text)]
        qualified = len(parts) > 1 and (joined._of_alias(parts[0]) is not None or _has_alias(table, name))
        if not (name.of_stream or qualified) and parts[0].lower() in low & {n.lower() for n in joined.shown}:
            joined._ambiguous(name, parts[0])


def _refuse_same_alias(joined: JoinedNames, table: SparkDF) -> None:
    for alias in joined.aliases:
        if table.columns and _has_alias(table, Name(f"{quoted(alias)}.{quoted(table.columns[0])}")):
            raise InvalidInputError(
                f"join: the table has the alias {alias!r}, as a stream of the join in front of it has: give it another"
            )


def _has_alias(table: SparkDF, name: Name) -> bool:
    """Whether ``name`` is a column of ``table`` with its alias in front."""
    first = unquoted(parts_of(name.text)[0]).lower()
    own = [f.dataType for f in table.schema.fields if f.name.lower() == first]
    return not any(isinstance(kind, _WITH_PARTS) for kind in own) and is_column(table, name.text)


def of_table(tables: tuple[SparkDF, ...], name: Name) -> bool:
    """Whether it is one of theirs by its alias."""
    return any(_has_alias(table, name) for table in tables)


def refuse_lost(lost: tuple[SparkDF, ...], star: Star) -> None:
    """Raises ``InvalidInputError`` for the alias of a table some columns of which a later one hides."""
    for table in lost:
        if star.target and _has_alias(table, Name(f"{star.target}.{quoted(table.columns[0])}")):
            raise InvalidInputError(
                f"{star.target}.*: a table that was joined behind it has columns of the same names. Rename those in "
                'front of the join, or take columns by names that come once, as in select("w")'
            )


def _refuse_twice(tables: Sequence[SparkDF], column: Column) -> None:
    """Raises as Spark does for a column of one of ``tables``, ``table["k"]``, that another of them has, too."""
    if len(tables) < 2 or bare_name(column):
        return
    both = reduce(lambda one, other: one.crossJoin(other), (table.where(F.lit(False)) for table in tables))
    without = replaced(column, lambda _: F.lit(None))
    try:
        with unlogged():
            _ = both.select(without).columns
    except AnalysisException as error:
        if error.getCondition() in _AMBIGUOUS:
            raise


def refuse_ambiguous_texts(shown: Sequence[str], column: Column) -> None:
    """Raises ``InvalidInputError`` for SQL texts on Spark Connect with names that come twice: to Spark, which reads
    them, the table's has that name alone."""
    low = [name.lower() for name in shown]
    for name in {name for name in low if low.count(name) > 1}:
        if re.search(rf"(?<![\w.`])`?{re.escape(name)}`?(?!\w)", str(column), re.IGNORECASE):
            raise InvalidInputError(
                f"[AMBIGUOUS_REFERENCE] Reference {name} may be ambiguous in {column}, a SQL text: several sides of "
                "the joins have such a column. Write it with pyspark.sql.functions, or rename it in front of the join"
            )
