"""``listagg`` and ``string_agg``: what is computed of the list that is kept for each key. Driver.

The state is that of ``collect_list``, or of ``collect_set`` with DISTINCT. Values come in order of arrival, which Spark
leaves open, or in that of WITHIN GROUP, for which each is kept with what it is ordered by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan._forms import Form

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
