"""Columns of intervals that Arrow has no type for, on their way through an operation in Python. Driver only."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan.carried_keys import carried, given_back
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.refused_types import has_type, refuse_unkept

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


def with_months_as_numbers(df: CkptDataFrame, make: Callable[[CkptDataFrame], CkptDataFrame]) -> CkptDataFrame:
    """What ``make`` makes of ``df`` in Python, with columns of intervals of months as they were."""
    kinds = {f.name: f.dataType for f in df.schema.fields if has_type(f.dataType, T.YearMonthIntervalType)}
    if not kinds:
        return make(df)
    made = make(df.withColumns({name: carried(F.col(quoted(name)), kind) for name, kind in kinds.items()}))
    return made.withColumns({name: given_back(F.col(quoted(name)), kind) for name, kind in kinds.items()})


def without_calendar_intervals(df: CkptDataFrame, read: Collection[str | None]) -> CkptDataFrame:
    """``df`` without those, such as gaps of sessions: they are no keys, and no state has them. Raises
    ``InvalidInputError`` for one that is ``read``."""
    found = [f for f in df.schema.fields if has_type(f.dataType, T.CalendarIntervalType)]
    refuse_unkept(f for f in found if f.name in read)
    names = {f.name for f in found}
    return df._columns([c for c in df.columns if c not in names]) if found else df
