"""A filter's condition over the rows in front of an operation that hands some of their columns on. Driver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan.attributes import Attributes, root_of
from spark_ckpt.plan.columns import is_case_sensitive, quoted, unquoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, parts_of, replaced
from spark_ckpt.plan.key_columns import column_named, written
from spark_ckpt.plan.plan_check import plan_nodes
from spark_ckpt.plan.plan_text import calls_python
from spark_ckpt.plan.trying import unlogged

SparkDF = Any
_SUB_QUERY = re.compile(r"\b(list|exists|scalar-subquery|lateral-subquery)#\d+")


class ConditionBehind:
    """``condition`` over columns ``names`` whose ``attributes`` are known; ``alias`` may stand in front of them."""

    def __init__(
        self, condition: Column, preview: SparkDF, names: Sequence[str], attributes: Attributes, alias: str | None
    ) -> None:
        self._condition, self._preview, self._alias = condition, preview, alias
        self._columns, self._attributes = list(names), attributes
        self._names = None if self._asks_tables() else names_in(condition)

    def _asks_tables(self) -> bool:
        """Whether there is a sub-query in it, which hides the names in front of ``IN``."""
        try:
            with unlogged():
                return _SUB_QUERY.search(plan_nodes(self._preview.where(self._condition))[0].text) is not None
        except PySparkException:  # it has columns of the rows in front, by what they are called there
            return False

    def places(self) -> set[int] | None:
        """Of the columns that it is of; None if that is not known, as of a text on Spark Connect."""
        found = None if self._names is None else [self._place(name) for name in self._names]
        return None if found is None or None in found else {at for at in found if at is not None}

    def over(self, columns: Mapping[int, Column]) -> Column | None:
        """The same with ``columns`` for those at these places; None if it is of others, or of none."""
        if self._names is None:
            return self._text_over(columns)
        places = self.places()
        if not places or not places <= columns.keys():
            return None
        return replaced(self._condition, lambda name: _field(columns[self._place(name) or 0], self._fields(name)))

    def _text_over(self, columns: Mapping[int, Column]) -> Column | None:
        """What is Spark's to read, such as a SQL text on Spark Connect: as it is, if all it may name is called so
        there."""
        same = [self._columns[at] for at, column in columns.items() if _is_called(column, self._columns[at])]
        try:
            with unlogged():
                filtered = self._preview.select(*map(quoted, same)).where(self._condition)
                return self._condition if plan_nodes(filtered)[0].name == "Filter" else None
        except PySparkException:  # of another column
            return None

    def _place(self, name: Name) -> int | None:
        if name.of_stream:
            return self._attributes.place(name)
        parts = self._parts(name)
        found = column_named(self._columns, parts[0], is_case_sensitive(self._preview.sparkSession))
        return None if found is None else self._columns.index(found)

    def _fields(self, name: Name) -> list[str]:
        return [unquoted(part) for part in (parts_of(name.text) if name.of_stream else self._parts(name))[1:]]

    def _parts(self, name: Name) -> list[str]:
        parts = parts_of(name.text)
        of_alias = len(parts) > 1 and self._alias == root_of(name.text) and self._alias not in self._columns
        return parts[1:] if of_alias else parts


def _field(column: Column, fields: Sequence[str]) -> Column:
    return reduce(lambda struct, field: struct[field], fields, column)


def _is_called(column: Column, name: str) -> bool:
    return bare_name(column) and unquoted(written(column)) == name


def handed_on(before: Attributes, after: Attributes) -> dict[int, Column]:
    """The columns of ``after`` that are some of ``before``, by their places, as those.

    Names that come twice are left out."""
    low = [name.lower() for name in before.names]
    pairs = zip(before.all, before.names, strict=True)
    old = {attribute: name for attribute, name in pairs if low.count(name.lower()) == 1}
    return {at: F.col(quoted(old[one])) for at, one in enumerate(after.all) if one in old}


def rejects_nulls(preview: SparkDF, condition: Column) -> bool:
    """Whether it holds for no row whose columns are all null."""
    return _of_nulls(preview, F.coalesce(condition, F.lit(False))) is False


def null_without(preview: SparkDF, column: Column) -> list[Column]:
    """Columns without which ``column`` is null; of an expression, only if it is of one."""
    if bare_name(column):
        return [column]
    names = {name.text for name in names_in(column) or ()}
    of_one = len(names) == 1 and _of_nulls(preview, column.isNull()) is True
    return [F.col(name) for name in names] if of_one else []


def _of_nulls(preview: SparkDF, column: Column) -> Any:
    """What ``column`` is in a row whose columns are all null; None if it fails there, or would call Python."""
    nulls = [F.lit(None).cast(f.dataType).alias(f.name) for f in preview.schema.fields]
    try:
        with unlogged():
            asked = preview.sparkSession.sql("SELECT 1").select(*nulls).select(column.alias("asked"))
            return None if calls_python(plan_nodes(asked)[0]) else asked.collect()[0][0]
    except PySparkException:
        return None
