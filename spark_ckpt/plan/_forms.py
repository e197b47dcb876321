"""What is kept of an aggregate's arguments where that is not their values, and what is shown of it. Driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan.carried_keys import carried

LIST_WITH_NULLS = "list with nulls"
_VALUE = "value"
_Change = Callable[[Column], Column]


@dataclass(frozen=True)
class Form:
    """``kept`` is computed in front of the operator, of the arguments; ``shown`` behind it, of its result. None: as is.

    Aggregates that keep the same of the same arguments share a column: ``what`` tells one way from others. ``kind`` is
    what computes them where it is not that of the function's name. ``carried`` are the types of arguments that no state
    table has, which are carried as others.
    """

    what: str = "value"
    kept: Callable[[list[Column]], Column] | None = None
    shown: Callable[[Column], Column] | None = None
    kind: str | None = None
    carried: tuple[T.DataType | None, ...] = ()

    def computed(self, arguments: list[Column]) -> list[Column]:
        """The arguments, those that are ``carried`` as what the operator has of their types."""
        kinds = itertools.chain(self.carried, itertools.repeat(None))
        return [c if kind is None else carried(c, kind) for c, kind in zip(arguments, kinds, strict=False)]

    @property
    def is_computed(self) -> bool:
        """Whether what is kept is something else than the arguments."""
        return self.kept is not None or any(kind is not None for kind in self.carried)


def one_after_another(first: _Change | None, then: _Change | None) -> _Change | None:
    if first is None or then is None:
        return first or then
    return lambda kept: then(first(kept))


def within_structs() -> Form:
    """Of a value that may be null, so that it differs from a row that FILTER leaves out."""
    return Form("row", lambda columns: F.struct(columns[0].alias(_VALUE)), lambda kept: kept[_VALUE])


def each_within_structs() -> Form:
    """Of a list with nulls, RESPECT NULLS, whose values are kept so."""
    return Form(LIST_WITH_NULLS, within_structs().kept, lambda kept: F.transform(kept, lambda row: row[_VALUE]))


def weighed() -> Form:
    """Of ``percentile`` with how often each value counts."""

    def kept(columns: list[Column]) -> Column:
        value, often = columns
        return F.when(value.isNotNull() & (often != 0), F.struct(value.alias("x"), often.alias("y")))

    return Form("weighed", kept, kind="weighed_percentile")
