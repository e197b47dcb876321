"""What ``groupBy(...).aggregate(name=agg.sum("amount"))`` accepts: descriptions of running aggregates.

Pure values, built on the driver and pickled to the executors; nothing here starts or imports Spark. Columns are
names of the DataFrame's columns: compute expressions before with ``withColumn``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import InvalidInputError

__all__ = [
    "AggSpec",
    "approx_count_distinct",
    "avg",
    "collect_list",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "stddev",
    "sum",
]

MIN_RSD, MAX_RSD = 0.0025, 0.39
"""Of ``approx_count_distinct``: from 256 Ki registers a key down to 16."""


@dataclass(frozen=True)
class AggSpec:
    """One aggregate: its ``kind``, the ``column`` it reads (None: whole rows) and options of that kind."""

    kind: str
    column: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


def _spec(kind: str, column: object, **options: Any) -> AggSpec:
    if not isinstance(column, str) or not column:
        raise InvalidInputError(
            f"agg.{kind} expects the name of a column as a string, found {type(column).__name__}. "
            "Compute expressions first with withColumn and name the new column here."
        )
    return AggSpec(kind, column, options)


def count(column: str | None = None) -> AggSpec:
    """Rows of the key, or its non-null values of ``column``. Result: long."""
    return AggSpec("count") if column is None or column == "*" else _spec("count", column)


def sum(column: str) -> AggSpec:
    """Sum of the non-null values of ``column``, null while there are none.

    Integers: long, raising on overflow. Decimals: decimal of 10 digits more. Others: double.
    """
    return _spec("sum", column)


def mean(column: str) -> AggSpec:
    """Mean of the non-null values of ``column``, null while there are none. Result: double, or decimal for decimals."""
    return _spec("mean", column)


avg = mean


def min(column: str) -> AggSpec:
    """Smallest non-null value of ``column``, NaN counting as the largest number. Result: of the column's type."""
    return _spec("min", column)


def max(column: str) -> AggSpec:
    """Largest non-null value of ``column``, NaN counting as the largest number. Result: of the column's type."""
    return _spec("max", column)


def first(column: str, ignore_nulls: bool = False) -> AggSpec:
    """Value of ``column`` in the row that arrived first; with ``ignore_nulls`` the first that is not null."""
    return _spec("first", column, ignore_nulls=bool(ignore_nulls))


def last(column: str, ignore_nulls: bool = False) -> AggSpec:
    """Value of ``column`` in the row that arrived last; with ``ignore_nulls`` the last that is not null."""
    return _spec("last", column, ignore_nulls=bool(ignore_nulls))


def stddev(column: str) -> AggSpec:
    """Sample standard deviation of the non-null values of ``column``, null for fewer than two. Result: double."""
    return _spec("stddev", column)


def count_distinct(column: str) -> AggSpec:
    """Number of distinct non-null values of ``column``, exactly. Result: long.

    NaN is one value, and 0.0 and -0.0 are one, as in Spark. State grows with the distinct values of each key: they are
    a table of their own, ``<uid>.<name>``. A value is looked up wherever it comes, and costs storage where it is new.
    """
    return _spec("count_distinct", column)


def approx_count_distinct(column: str, rsd: float = 0.05) -> AggSpec:
    """Estimated number of distinct non-null values of ``column``. Result: long.

    ``rsd`` is the relative standard deviation of the estimate; halving it makes each key's state four times as large.
    Raises ``InvalidInputError`` unless it is from 0.0025 to 0.39.
    """
    if isinstance(rsd, bool) or not isinstance(rsd, (int, float)) or not MIN_RSD <= rsd <= MAX_RSD:
        raise InvalidInputError(
            f"agg.approx_count_distinct expects rsd between {MIN_RSD} and {MAX_RSD}, found {rsd!r}. "
            "Halving it makes the state of each key four times as large."
        )
    return _spec("approx_count_distinct", column, rsd=float(rsd))


def collect_list(column: str, max_items: int) -> AggSpec:
    """The first ``max_items`` non-null values of ``column`` in order of arrival. Result: a list.

    Later ones are dropped so that state is bounded. Raises ``InvalidInputError`` unless ``max_items`` is 1 or more.
    """
    if isinstance(max_items, bool) or not isinstance(max_items, int) or max_items < 1:
        raise InvalidInputError(
            f"agg.collect_list expects max_items to be a positive integer, found {max_items!r}. "
            "It bounds the state of each key."
        )
    return _spec("collect_list", column, max_items=max_items)
