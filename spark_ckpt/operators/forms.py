"""What is kept of an aggregate's arguments where that is not their values, and what is shown of it. Driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.operators._carried_keys import carried

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


VALUE = "value"


@dataclass(frozen=True)
class Order:
    """One expression of WITHIN GROUP (ORDER BY ...): the field ``name`` of what is kept; all of it without a name."""

    name: str = ""
    ascending: bool = True
    nulls_first: bool = True


@dataclass(frozen=True)
class Listing:
    """How a list becomes one text, or one binary."""

    delimiter: Column
    is_binary: bool = False
    orders: Sequence[Order] = field(default_factory=tuple)

    @property
    def form(self) -> Form:
        """Values are kept with others where these say their order."""
        if self._has_own_order:
            return Form("ordered", lambda columns: with_orders(columns[0], columns[1:]), self._shown)
        return Form(shown=self._shown)

    @property
    def _has_own_order(self) -> bool:
        return any(order.name for order in self.orders)

    def _shown(self, kept: Column) -> Column:
        values = F.array_sort(kept, self._compared) if self.orders else kept
        values = F.transform(values, lambda v: v[VALUE]) if self._has_own_order else values
        return F.when(F.size(kept) > 0, self._joined(values))

    def _joined(self, values: Column) -> Column:
        if not self.is_binary:
            return F.call_function("array_join", values, self.delimiter)
        behind = F.slice(values, 2, F.size(values))
        return F.aggregate(behind, F.get(values, F.lit(0)), lambda all_, v: F.concat(all_, self.delimiter, v))

    def _compared(self, one: Column, other: Column) -> Column:
        compared = F.lit(0)
        for order in reversed(self.orders):
            pair = (one[order.name], other[order.name]) if order.name else (one, other)
            compared = _compared(*pair, order, compared)
        return compared


def with_orders(value: Column, orders: Sequence[Column]) -> Column:
    """What is kept of each value that is not null, under the names of :func:`names`."""
    named = [column.alias(name) for column, name in zip(orders, names(len(orders)), strict=True)]
    return F.when(value.isNotNull(), F.struct(value.alias(VALUE), *named))


def names(orders: int) -> list[str]:
    """Of what values are ordered by."""
    return [f"order_{i + 1}" for i in range(orders)]


def _compared(one: Column, other: Column, order: Order, equal: Column) -> Column:
    """-1, 0 or 1, as ``array_sort`` asks for; ``equal`` where this order does not tell them apart."""
    first, last = (F.lit(-1), F.lit(1)) if order.nulls_first else (F.lit(1), F.lit(-1))
    less, more = (F.lit(-1), F.lit(1)) if order.ascending else (F.lit(1), F.lit(-1))
    return (
        F.when(one.eqNullSafe(other), equal)
        .when(one.isNull(), first)
        .when(other.isNull(), last)
        .when(one < other, less)
        .otherwise(more)
    )
