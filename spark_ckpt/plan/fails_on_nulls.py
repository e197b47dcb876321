"""Expressions that fail on a row whose columns are all null, as control rows are: ``map(k, v)``, whose keys may not be
null, or ``raise_error`` where a value is none of those expected. They are computed for data rows alone. Driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan.plan_check import plan_nodes
from spark_ckpt.plan.plan_text import Node, calls_python
from spark_ckpt.plan.trying import unlogged
from spark_ckpt.types import CTL

SparkDF = Any

_MAY_FAIL = re.compile(
    r"\b(?:(?:create_)?map|map_from_arrays|map_from_entries|map_concat|transform_keys|raise_error|assert_true)\s*\("
    # Or they make a value of null, on which something else may fail.
    r"|\b(?:coalesce|nvl2?|ifnull|if|isnull|isnotnull|concat_ws|format_string|printf)\s*\(|\bCASE\b|\bIS\s|<=>",
    re.IGNORECASE,
)
_GENERATOR = re.compile(r"Column<'(?:explode|posexplode|inline)(?:_outer)?\(|Column<'stack\(", re.IGNORECASE)
"""What is around nothing; it has elements of its own for control rows (:mod:`spark_ckpt.plan.generators`)."""


def for_data_rows_only(preview: SparkDF, nodes: Iterable[Node], in_spark: SparkDF, columns: Sequence[Any]) -> list[Any]:
    """``columns`` over ``preview``, which has a control row; ``in_spark`` is that without the control columns, and
    ``nodes`` are those of its plan.

    Those that fail there come back as such that do not, called as they were.
    """
    return [
        data_rows_only(c).alias(in_spark.select(c).columns[0]) if fails else c
        for c, fails in zip(columns, failing(preview, nodes, columns), strict=True)
    ]


def of_data_rows(preview: SparkDF, nodes: Iterable[Node], columns: Mapping[str, Column]) -> dict[str, Column]:
    """Those of ``columns`` that fail there, as such that do not."""
    fails = failing(preview, nodes, list(columns.values()))
    return {name: data_rows_only(c) for (name, c), wrong in zip(columns.items(), fails, strict=True) if wrong}


def failing(preview: SparkDF, nodes: Iterable[Node], columns: Sequence[Any]) -> list[bool]:
    """Which of them fail there. Most are known by their text not to, and are not tried, unless some column may have a
    value in control rows already, as behind ``fillna``."""
    filled = any(_MAY_FAIL.search(node.text) for node in nodes)
    asked = [isinstance(c, Column) and (filled or may_fail(c)) and not _GENERATOR.match(str(c)) for c in columns]
    if not any(asked) or not _fails(preview, [c for c, may in zip(columns, asked, strict=True) if may]):
        return [False] * len(asked)
    return [may and _fails(preview, [c]) for c, may in zip(columns, asked, strict=True)]


def may_fail(column: Column, nodes: Iterable[Node] = ()) -> bool:
    """By its text, or because it may see values in control rows, of a plan with these ``nodes``."""
    texts = (str(column), *(node.text for node in nodes))
    return any(_MAY_FAIL.search(text) for text in texts)


def data_rows_only(column: Column) -> Column:
    """``column``, and null in control rows."""
    return F.when(F.col(CTL).isNull(), column)


def with_values_in_control_rows(preview: SparkDF, names: Sequence[str]) -> list[str]:
    """Those of its columns that have a value there, or for which that is not known, as where Python computes them. Of
    several that are called so it is the first."""
    columns = preview.columns
    there = [F.col(f"c{columns.index(name)}").isNotNull().alias(name) for name in names]
    numbered = preview.toDF(*(f"c{i}" for i in range(len(columns))))
    asked = numbered.where(F.col(f"c{columns.index(CTL)}").isNotNull()).select(*there)
    try:
        if any(map(calls_python, plan_nodes(asked))):
            return list(names)
        found = asked.collect()
    except PySparkException:
        return list(names)
    return [name for i, name in enumerate(names) if any(row[i] for row in found)]


def _fails(preview: SparkDF, columns: list[Column]) -> bool:
    try:
        with unlogged():
            # By names that look like no call of a Python function, which would be called here.
            tried = preview.select(*[c.alias(f"c{i}") for i, c in enumerate(columns)])
            if calls_python(plan_nodes(tried)[0]):
                return any(map(may_fail, columns))
            tried.collect()
    except AnalysisException:
        return False  # who uses them says what is wrong with them
    except PySparkException:
        return True
    return False
