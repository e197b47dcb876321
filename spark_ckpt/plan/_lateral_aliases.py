"""Names of keys and earlier results in ``agg``. Driver; Spark Connect.

Of ``groupBy(F.upper("k").alias("u")).agg(F.concat("u", "u"))``, Spark takes a name that is no column for what was given
it earlier in the list (lateral column alias), and plans a projection behind the aggregate. Here what it stands for is
put in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column

from spark_ckpt.plan._condition import Name, parts_of, replaced
from spark_ckpt.plan._trying import unlogged
from spark_ckpt.plan.columns import is_case_sensitive, unquoted
from spark_ckpt.plan.key_columns import column_named

SparkDF = Any


def put_in_place(df: SparkDF, keys: Sequence[Column], exprs: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """``exprs`` of ``df`` without names of what is ahead of them; ``names`` are Spark's, of keys and results."""
    sensitive = is_case_sensitive(df.sparkSession)
    earlier = {name: _unaliased(key) for name, key in zip(names, keys, strict=False)}

    def meant(name: Name) -> Column | None:
        if _is_column(df, name.text):
            return None
        first, *fields = parts_of(name.text)
        found = column_named(list(earlier), first, sensitive)
        return None if found is None else reduce(Column.getField, map(unquoted, fields), earlier[found])

    made = []
    for expr, name in zip(exprs, names[len(names) - len(exprs) :], strict=True):
        new = replaced(expr, meant)
        made.append(new if new is expr or str(new) == str(expr) else _unaliased(new).alias(name))
        earlier.setdefault(name, _unaliased(new))
    return made


def _unaliased(column: Column) -> Column:
    """``column`` without a name of its own."""
    from pyspark.sql.connect.column import Column as ConnectColumn
    from pyspark.sql.connect.expressions import ColumnAlias

    return ConnectColumn(column._expr._child) if isinstance(column._expr, ColumnAlias) else column


def _is_column(df: SparkDF, name: str) -> bool:
    """Whether Spark finds one of this name, in another case or inside of a struct, too."""
    try:
        with unlogged():
            return bool(df.select(name).columns)
    except PySparkException:
        return False
