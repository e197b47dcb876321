"""Values of types that no state table has, and how aggregates keep them: intervals, and maps where they are compared.

They are carried as keys of such types are (:mod:`spark_ckpt.operators._carried_keys`). Day-time intervals that an
aggregate chooses among reach the operator as they are, which knows them; it gives back days to seconds. Driver.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.operators._carried_keys import carried_type, given_back, is_carried
from spark_ckpt.operators.aggregate_kinds import KINDS, LISTED, OF_ONE_OF_TWO, PAIRED
from spark_ckpt.operators.forms import LIST_WITH_NULLS, Form, one_after_another, within_structs

_SUMS = {
    "sum": "interval_sum",
    "mean": "interval_mean",
    "try_sum": "try_interval_sum",
    "try_mean": "try_interval_mean",
}
_PERCENTILES = ("percentile", "percentile_disc", "percentile_approx")
_CHOSEN = ("min", "max", "first", "last", "mode", "min_by", "max_by")
_LISTS = ("collect_list", "collect_set")
_COMPARED = ("mode", "count", "approx_count_distinct", "collect_set")
"""Kinds that tell values apart, or count them."""
_INTERVALS = (T.DayTimeIntervalType, T.YearMonthIntervalType)
_Change = Callable[[Column], Column]
_DAYS_TO_SECONDS = T.DayTimeIntervalType()


def in_form(kind: str, options: Mapping[str, Any], types: Sequence[T.DataType], form: Form | None) -> Form | None:
    """The form of an aggregate of values of ``types``: ``form``, where these are kept as they are."""
    value = types[0]
    if kind == "bitmap_construct_agg" and not isinstance(value, T.IntegralType):
        return Form("position", lambda columns: columns[0].cast("long"))
    if isinstance(value, _INTERVALS) and kind in _SUMS:
        shown = _given_back_as(_widest(value) if kind.endswith("mean") else value)
        return Form(kind=_SUMS[kind], carried=(value,), shown=shown)
    if isinstance(value, _INTERVALS) and kind in _PERCENTILES:
        return _percentile(kind, options, value, form or Form())
    return _chosen(kind, options, types, form) if kind in (*_CHOSEN, *_LISTS, *_COMPARED) else form


def _chosen(kind: str, options: Mapping[str, Any], types: Sequence[T.DataType], form: Form | None) -> Form | None:
    """Of an aggregate whose result is one of the values, or several, or how many there are."""
    native = form is None and "k" not in options
    value, told = types[0], tuple(t if _needs(t, kind, native) else None for t in types)
    with_nulls = "k" in options or (form is not None and form.what == LIST_WITH_NULLS)
    lists = LIST_WITH_NULLS if with_nulls else "list" if kind in _LISTS else None
    shown = None if kind in ("count", "approx_count_distinct") else _shown(value, told[0] is not None, lists)
    if shown is None and not any(told):
        return form
    base = form or Form()
    return replace(base, carried=told, shown=one_after_another(base.shown, shown))


def _needs(value: T.DataType, kind: str, native: bool) -> bool:
    """Whether the operator cannot have it as it is."""
    if isinstance(value, T.DayTimeIntervalType):
        return not native
    return is_carried(value) and (kind in _COMPARED or _has_interval(value))


def _has_interval(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_has_interval(f.dataType) for f in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has_interval(kind.elementType)
    if isinstance(kind, T.MapType):
        return _has_interval(kind.keyType) or _has_interval(kind.valueType)
    return isinstance(kind, _INTERVALS)


def _shown(value: T.DataType, is_told: bool, lists: str | None) -> _Change | None:
    """What makes a value of the operator's one of type ``value`` again, or each one of a list; None: it is one."""
    if is_told:
        return _given_back_as(value) if lists is None else _each(value, nulls=lists == LIST_WITH_NULLS)
    if not isinstance(value, T.DayTimeIntervalType) or value == _DAYS_TO_SECONDS:
        return None
    return lambda kept: kept.cast(value if lists is None else T.ArrayType(value, lists == LIST_WITH_NULLS))


def _given_back_as(value: T.DataType) -> _Change:
    return lambda kept: given_back(kept, value)


def _each(value: T.DataType, change: _Change | None = None, nulls: bool = False) -> _Change:
    """Of a list; one without ``nulls`` has none behind it either, to Spark's eyes too."""
    one = change or _given_back_as(value)
    if nulls:
        return lambda kept: F.transform(kept, one)
    none = F.lit(dt.timedelta(0)) if isinstance(value, T.DayTimeIntervalType) else F.lit(0).cast("interval month")

    def sure(kept: Column) -> Column:
        if isinstance(value, T.StructType):
            return F.struct(*[given_back(kept.getField(f.name), f.dataType).alias(f.name) for f in value.fields])
        return F.coalesce(one(kept), none.cast(value)) if isinstance(value, _INTERVALS) else one(kept)

    return lambda kept: F.transform(kept, sure)


def _widest(value: T.DataType) -> T.DataType:
    """What Spark computes of intervals, whatever their fields are."""
    return _DAYS_TO_SECONDS if isinstance(value, T.DayTimeIntervalType) else T.YearMonthIntervalType()


def _percentile(kind: str, options: Mapping[str, Any], value: T.DataType, form: Form) -> Form:
    """Those that may lie between two values are doubles in the operator."""
    whole = carried_type(value)

    def one(kept: Column) -> Column:
        if kind == "percentile_approx":
            return given_back(kept, value)
        return given_back(_truncated(kept, whole), _widest(value))

    shown = _each(_widest(value) if kind != "percentile_approx" else value, one)
    return replace(form, carried=(value,), shown=shown if isinstance(options["percentage"], list) else one)


def _truncated(number: Column, whole: T.DataType) -> Column:
    """As Scala's ``toLong`` and ``toInt``: what is out of range is the last number within it."""
    least, most = (-(2**63), 2**63 - 1) if isinstance(whole, T.LongType) else (-(2**31), 2**31 - 1)
    inside = F.when(number >= float(most), F.lit(most)).when(number <= float(least), F.lit(least))
    return inside.otherwise(number.cast("long"))


Tree = Any


@dataclass(frozen=True)
class Call:
    """An aggregate function in an expression. ``arguments`` are trees; ``only`` is the condition of its FILTER.

    ``form`` says what is kept of the arguments and shown of that, where these are not the values themselves."""

    function: str
    arguments: Sequence[Tree]
    options: dict[str, Any] = field(default_factory=dict)
    distinct: bool = False
    only: Tree | None = None
    form: Form | None = None

    @property
    def kind(self) -> str | None:
        """What computes it; None: nothing here."""
        return self.form.kind if self.form is not None and self.form.kind else KINDS.get(self.function)

    @property
    def shown(self) -> Callable[[Column], Column] | None:
        return None if self.form is None else self.form.shown

    @property
    def is_computed(self) -> bool:
        """Whether what is kept is surely no column of the DataFrame."""
        return self.function == "count_if" or (self.form is not None and self.form.is_computed)

    @property
    def is_carried(self) -> bool:
        return self.form is not None and any(kind is not None for kind in self.form.carried)

    def expected(self, kind: str) -> int:
        """How many arguments there have to be."""
        if kind in PAIRED or self.function in OF_ONE_OF_TWO:
            return 2
        own = self.form is not None and self.form.kept is not None
        return len(self.arguments) if KINDS[self.function] == "count" or own else 1


def formed(call: Call, type_of: Callable[[Tree], T.DataType]) -> Call:
    """A first value that may be null differs from a row that FILTER left out: it is kept within a struct."""
    kind = KINDS.get(call.function)
    if call.only is not None and kind in ("first", "last") and not call.options.get("ignore_nulls"):
        call = replace(call, options={"ignore_nulls": True}, form=within_structs())
    if kind is None or not call.arguments or call.function in LISTED:
        return call
    return replace(call, form=in_form(kind, call.options, list(map(type_of, call.arguments)), call.form))
