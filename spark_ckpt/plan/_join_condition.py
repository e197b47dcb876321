"""The condition of a join of two streams, taken apart: keys, what concerns one side, what compares both. Driver.

What stands on one side of a comparison is computed by Spark, in front of the operator; so the operator compares columns
of one type, and any function may be in the condition. Who takes it apart: ``analysed`` by ids, ``relations`` by what
the server says of names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.state.joins.predicate import Predicate

FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
ORDERED = (
    T.NumericType,
    T.BooleanType,
    T.DatetimeType,
    T.StringType,
    T.BinaryType,
    T.DayTimeIntervalType,
)


@dataclass(frozen=True)
class Key:
    """An equality of an expression of each side. ``names``: the sides' columns, where it is just a column.

    ``ends``: it is the end of a window that rows are late by, which is an event time, too.
    """

    columns: tuple[Column, Column]
    kind: T.DataType
    null_safe: bool
    names: tuple[str | None, str | None]
    ends: bool = False


@dataclass(frozen=True)
class Bound:
    """Rows of ``side``, by a time in ``column``, match no row of the other later than its watermark column's, plus
    ``shift_ms``."""

    side: int
    column: str
    other_column: str
    shift_ms: int


@dataclass
class Parts:
    """``alone``: of each side, what its rows have to satisfy by themselves. ``computed``: columns that the condition
    compares, by side. ``behind``: what only Spark can tell, of pairs."""

    keys: list[Key] = field(default_factory=list)
    alone: tuple[list[Column], list[Column]] = field(default_factory=lambda: ([], []))
    computed: tuple[dict[str, Column], dict[str, Column]] = field(default_factory=lambda: ({}, {}))
    condition: Predicate | None = None
    behind: list[Column] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)

    def times(self, side: int) -> set[str]:
        """The columns of a side that tell until when rows match: keys, and what is compared with times of the other."""
        keys = {key.names[side] for key in self.keys}
        return {name for name in keys if name} | {b.column if b.side == side else b.other_column for b in self.bounds}
