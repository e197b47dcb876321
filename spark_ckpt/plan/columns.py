"""Columns by name: quoting, the order a user sees, names that occur twice. Driver only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any
OWN = "__ckpt_"
"""What names and aliases begin with that columns have here, and their user does not see."""


def unquoted(name: str) -> str:
    """A name as Spark's parser reads it, without its backticks."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def quoted(name: str) -> str:
    """``name`` as Spark's parser reads it: one column, dots and backticks included."""
    return "`" + name.replace("`", "``") + "`"


def free(name: str, taken: Iterable[str]) -> str:
    """``name``, with a number behind it if it is taken."""
    low, number, found = {t.lower() for t in taken}, 1, name
    while found.lower() in low:
        number += 1
        found = f"{name}_{number}"
    return found


def listed(cols: Sequence[Any]) -> list[Any]:
    """The arguments of a method that takes columns one by one, or all as one list or tuple."""
    return list(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else list(cols)


def is_case_sensitive(spark: Any) -> bool:
    """Whether the session tells names apart by their case."""
    return bool(spark.conf.get("spark.sql.caseSensitive") == "true")


def user_columns(columns: Iterable[str]) -> list[str]:
    return [c for c in columns if c not in CONTROL_COLUMNS]


def in_order(columns: Sequence[str]) -> bool:
    return tuple(columns[-2:]) == CONTROL_COLUMNS


def ordered(df: SparkDF, columns: Sequence[str]) -> SparkDF:
    """``df``, whose columns are ``columns``, with the user's columns first, as they are, and the control columns last.

    Spark appends a new column behind all others, the control columns included.
    """
    if in_order(columns):
        return df
    if len(set(map(str.lower, columns))) < len(columns):  # behind a join
        return control_last(df)
    return df.select(*[quoted(c) for c in (*user_columns(columns), *CONTROL_COLUMNS)])


def control_last(df: SparkDF) -> SparkDF:
    """``df`` with the control columns last; names may come twice, and keep what they are qualified by."""
    return df.select(everything(), *CONTROL_COLUMNS)


def everything() -> Column:
    """All columns but the control columns, whatever they are called."""
    return F.expr(f"* EXCEPT ({', '.join(CONTROL_COLUMNS)})")


def require_control(columns: Sequence[str]) -> None:
    """Raises ``ControlColumnsError`` unless each control column is there once."""
    wrong = [c for c in CONTROL_COLUMNS if list(columns).count(c) != 1]
    if wrong:
        raise ControlColumnsError(
            f"the control columns {wrong} are gone or doubled after a plain DataFrame operation; expected each of "
            f"{list(CONTROL_COLUMNS)} once, found {list(columns)}. Keep them in every select and leave "
            "their values alone."
        )


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
