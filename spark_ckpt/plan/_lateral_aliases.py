"""Names of keys and earlier results in ``agg``: ``groupBy(F.upper("k").alias("u")).agg(F.concat("u", "u"))``. Driver.

Spark takes a name that is no column for what was given it earlier in the list (lateral column alias), and plans a
projection behind the aggregate. Here what it stands for is put in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column

from spark_ckpt.plan._condition import Name, parts_of, replaced
from spark_ckpt.plan.columns import is_case_sensitive, unaliased, unquoted
from spark_ckpt.plan.key_columns import column_named, is_column

SparkDF = Any


def put_in_place(df: SparkDF, keys: Sequence[Column], exprs: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """``exprs`` of ``df`` without names of what is ahead of them; ``names`` are Spark's, of keys and results."""
    sensitive = is_case_sensitive(df.sparkSession)
    earlier = {name: unaliased(key) for name, key in zip(names, keys, strict=False)}

    def meant(name: Name) -> Column | None:
        if is_column(df, name.text):
            return None
        first, *fields = parts_of(name.text)
        found = column_named(list(earlier), first, sensitive)
        return None if found is None else reduce(Column.getField, map(unquoted, fields), earlier[found])

    made = []
    for expr, name in zip(exprs, names[len(names) - len(exprs) :], strict=True):
        new = replaced(expr, meant)
        made.append(new if new is expr or str(new) == str(expr) else unaliased(new).alias(name))
        earlier.setdefault(name, unaliased(new))
    return made
