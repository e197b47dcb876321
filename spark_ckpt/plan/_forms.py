"""What is kept of an aggregate's arguments where that is not their values, and what is shown of it. Driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

_VALUE = "value"


@dataclass(frozen=True)
class Form:
    """``kept`` is computed in front of the operator, of the arguments; ``shown`` behind it, of its result. None: as is.

    Aggregates that keep the same of the same arguments share a column: ``what`` tells one way from others. ``kind`` is
    what computes them where it is not that of the function's name.
    """

    what: str = "value"
    kept: Callable[[list[Column]], Column] | None = None
    shown: Callable[[Column], Column] | None = None
    kind: str | None = None


def within_structs() -> Form:
    """Of a value that may be null, so that it differs from a row that FILTER leaves out."""
    return Form("row", lambda columns: F.struct(columns[0].alias(_VALUE)), lambda kept: kept[_VALUE])


def weighed() -> Form:
    """Of ``percentile`` with how often each value counts."""

    def kept(columns: list[Column]) -> Column:
        value, often = columns
        return F.when(value.isNotNull() & (often != 0), F.struct(value.alias("x"), often.alias("y")))

    return Form("weighed", kept, kind="weighed_percentile")
