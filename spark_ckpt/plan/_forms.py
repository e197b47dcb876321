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

    Aggregates that keep the same of the same arguments share a column: ``what`` tells one way from others.
    """

    what: str = "value"
    kept: Callable[[list[Column]], Column] | None = None
    shown: Callable[[Column], Column] | None = None


def within_structs() -> Form:
    """Of a value that may be null, so that it differs from a row that FILTER leaves out."""
    return Form("row", lambda columns: F.struct(columns[0].alias(_VALUE)), lambda kept: kept[_VALUE])
