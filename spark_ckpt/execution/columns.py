"""Columns by name: quoting, the order a user sees, names that occur twice. Driver only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from spark_ckpt.types import CONTROL_COLUMNS

OWN = "__ckpt_"
"""What names and aliases begin with that columns have here, and their user does not see."""


def unquoted(name: str) -> str:
    """A name as Spark's parser reads it, without its backticks."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def quoted(name: str) -> str:
    """``name`` as Spark's parser reads it: one column, dots and backticks included."""
    return "`" + name.replace("`", "``") + "`"


def listed(cols: Sequence[Any]) -> list[Any]:
    """The arguments of a method that takes columns one by one, or all as one list or tuple."""
    return list(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else list(cols)


def is_case_sensitive(spark: Any) -> bool:
    """Whether the session tells names apart by their case."""
    return bool(spark.conf.get("spark.sql.caseSensitive") == "true")


def everything() -> Column:
    """All columns but the control columns, whatever they are called."""
    return F.expr(f"* EXCEPT ({', '.join(CONTROL_COLUMNS)})")


def refuse_reserved(names: Iterable[str], what: str) -> None:
    """``what`` comes into a query with these columns. Raises ``ControlColumnsError``."""
    taken = [n for n in names if n.lower().startswith(OWN)]
    if taken:
        raise ControlColumnsError(
            f"{what} has column(s) {taken}, and names that begin with {OWN} are reserved for the barriers and for "
            "columns that the library adds to a query; rename them"
        )


def is_repeated(columns: Iterable[str], spark: Any) -> bool:
    """Whether a name occurs twice, as the session tells names apart."""
    return bool(_repeated(list(columns), spark))


def refuse_repeated(columns: Iterable[str], spark: Any) -> None:
    """Raises ``InvalidInputError`` if a name occurs twice: nothing behind could tell the two columns apart."""
    names = list(columns)
    twice = _repeated(names, spark)
    if twice:
        raise InvalidInputError(
            f"column names occur more than once: {twice} among {names}; give each a name of its own, "
            "with toDF(...), alias(...) or withColumnRenamed(...)"
        )


def _repeated(names: list[str], spark: Any) -> list[str]:
    same: Callable[[str], str] = str.lower
    if len({n.lower() for n in names}) < len(names) and is_case_sensitive(spark):
        same = str
    counted = Counter(map(same, names))
    return [n for n in names if counted[same(n)] > 1]


def normalised(column: Column, kind: T.DataType) -> Column:
    """Spark's groupBy takes -0.0 and 0.0 for one key, and all NaNs; so must the hash."""
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return column
    nan = F.lit(float("nan")).cast(kind)
    return F.when(F.isnan(column), nan).otherwise(column + F.lit(0.0).cast(kind))
