"""From an ``AggSpec`` to its accumulator, after checking that the column exists and its type is supported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates._accumulators import Accumulator, Collect, Count, Edge, Extreme
from spark_ckpt.state.aggregates._bitmaps import BitmapOf, Bitmaps
from spark_ckpt.state.aggregates._collected import CollectAll, CollectSet
from spark_ckpt.state.aggregates._distinct import Distinct
from spark_ckpt.state.aggregates._folds import BITWISE, Bitwise, Product
from spark_ckpt.state.aggregates._frequencies import (
    ApproxPercentile,
    DiscretePercentile,
    Mode,
    Percentile,
    WeighedPercentile,
)
from spark_ckpt.state.aggregates._hll import ApproxDistinct
from spark_ckpt.state.aggregates._intervals import IntervalMean, IntervalSum
from spark_ckpt.state.aggregates._lenient import NullableMean, NullableSum, WrappingSum
from spark_ckpt.state.aggregates._moments import Deviation, Shape, Stddev
from spark_ckpt.state.aggregates._paired import COMOMENTS as COMOMENTS
from spark_ckpt.state.aggregates._paired import Comoments, ExtremeBy
from spark_ckpt.state.aggregates._ranked import ExtremesBy
from spark_ckpt.state.aggregates._sums import Mean, Sum
from spark_ckpt.state.aggregates._trying import TrySum
from spark_ckpt.state.ipc import nullable_schema
from spark_ckpt.state.keys.keys import is_list


@dataclass(frozen=True)
class Rules:
    """Spark's settings that change what aggregates give: ``spark.sql.ansi.enabled``, and whether the deviation of a
    single value is NaN (``spark.sql.legacy.statisticalAggregate``)."""

    ansi: bool = True
    nan_for_one: bool = False


_IN_ANY_ORDER = frozenset({"count", "sum", "mean", "min", "max", *BITWISE})


def in_any_order(specs: Iterable[AggSpec]) -> bool:
    """Whether rows may be added up in another order than that of their arrival."""
    return all(spec.kind in _IN_ANY_ORDER for spec in specs)


RUNNING_KINDS = ("count", "sum", "mean", "min", "max", "stddev")


def _numeric(t: pa.DataType) -> bool:
    return pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal128(t)


def is_ordered(t: pa.DataType) -> bool:
    """Whether values of the type can be compared here: for min, max, distinct counts and ``order_by``."""
    dated = pa.types.is_date32(t) or pa.types.is_timestamp(t) or pa.types.is_duration(t)
    return _numeric(t) or dated or pa.types.is_boolean(t) or _bytes(t)


def _bytes(t: pa.DataType) -> bool:
    return pa.types.is_string(t) or pa.types.is_binary(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t)


def _is_binary(t: pa.DataType) -> bool:
    return bool(pa.types.is_binary(t) or pa.types.is_large_binary(t))


def _any(t: pa.DataType) -> bool:
    return not pa.types.is_null(t)


def _compared(t: pa.DataType) -> bool:
    if is_list(t):
        return _compared(t.value_type)
    return all(_compared(f.type) for f in t) if pa.types.is_struct(t) else is_ordered(t)


def _told_apart(t: pa.DataType) -> bool:
    """Whether values can be rows of a family. Intervals within others, which no state table has, cannot."""
    if pa.types.is_struct(t) or is_list(t):
        parts = [f.type for f in t] if pa.types.is_struct(t) else [t.value_type]
        return bool(parts) and all(_told_apart(part) and not pa.types.is_duration(part) for part in parts)
    return is_ordered(t)


def _pair(t: pa.DataType) -> bool:
    return pa.types.is_struct(t) and t.num_fields == 2


def _weighed(t: pa.DataType) -> bool:
    return _pair(t) and _numeric(t.field(0).type) and pa.types.is_integer(t.field(1).type)


NUMBERS = "integers, float, double and decimals up to 38 digits"
FLAT = NUMBERS + ", string, binary, boolean, date, timestamps and day-time intervals"

_NESTED = FLAT + ", and structs and arrays of those"
_DISTINCT = "_distinct"
_DEVIATIONS = ("variance", "var_pop", "stddev_pop")
_OF_INTERVALS = ("interval_sum", "interval_mean", "try_interval_sum", "try_interval_mean")
_SHAPES = ("skewness", "kurtosis")
_PERCENTILES = ("percentile", "percentile_disc", "percentile_approx")

_SUPPORTED: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "count": (lambda _: True, "every type"),
    "sum": (_numeric, NUMBERS),
    "mean": (_numeric, NUMBERS),
    "try_sum": (_numeric, NUMBERS),
    "try_mean": (_numeric, NUMBERS),
    **dict.fromkeys(_OF_INTERVALS, (pa.types.is_integer, "months and microseconds")),
    "stddev": (_numeric, NUMBERS),
    "min": (_compared, _NESTED),
    "max": (_compared, _NESTED),
    "count_distinct": (_told_apart, _NESTED),
    "approx_count_distinct": (_told_apart, _NESTED),
    "first": (_any, "every type but void"),
    "last": (_any, "every type but void"),
    "collect_list": (_any, "every type but void"),
    "collect_set": (_told_apart, _NESTED),
    "mode": (_told_apart, _NESTED),
    "product": (_numeric, NUMBERS),
    "min_by": (lambda t: _pair(t) and _compared(t.field(1).type), f"pairs of any type and one of {_NESTED}"),
    "max_by": (lambda t: _pair(t) and _compared(t.field(1).type), f"pairs of any type and one of {_NESTED}"),
    "bitmap_construct_agg": (pa.types.is_integer, "integers"),
    **dict.fromkeys(("bitmap_or_agg", "bitmap_and_agg"), (_is_binary, "binary")),
    **dict.fromkeys(BITWISE, (pa.types.is_integer, "integers")),
    **dict.fromkeys(COMOMENTS, (lambda t: _pair(t) and all(_numeric(f.type) for f in t), f"pairs of {NUMBERS}")),
    **dict.fromkeys((*_DEVIATIONS, *_SHAPES, *_PERCENTILES), (_numeric, NUMBERS)),
    "weighed_percentile": (_weighed, "pairs of numbers and integers"),
}


_Make = Callable[[str, AggSpec, pa.DataType, Rules], Accumulator]


def _made_by(cls: Callable[..., Accumulator], *options: Callable[[AggSpec, Rules], Any]) -> _Make:
    """Name, column and type, then what ``options`` read off the spec and the rules."""
    return lambda name, spec, type_, rules: cls(name, spec.column, type_, *(option(spec, rules) for option in options))


def _kind(spec: AggSpec, _rules: Rules) -> Any:
    return spec.kind


def _nan_for_one(_spec: AggSpec, rules: Rules) -> Any:
    return rules.nan_for_one


def _option(name: str, default: Any = None) -> Callable[[AggSpec, Rules], Any]:
    return lambda spec, _rules: spec.options.get(name, default)


def _options_of(spec: AggSpec, _rules: Rules) -> Any:
    return spec.options


def _is(kind: str) -> Callable[[AggSpec, Rules], Any]:
    return lambda spec, _rules: spec.kind == kind


def _collect(spec: AggSpec) -> _Make:
    """With a bound they are part of the key's row."""
    return _made_by(Collect, _option("max_items")) if "max_items" in spec.options else _made_by(CollectAll)


def _extreme_by(spec: AggSpec) -> _Make:
    """One value, or a list of so many."""
    largest = _is("max_by")
    return _made_by(ExtremesBy, largest, _option("k")) if "k" in spec.options else _made_by(ExtremeBy, largest)


_MAKE: dict[str, _Make] = {
    **dict.fromkeys(("min", "max"), _made_by(Extreme, _is("max"))),
    **dict.fromkeys(("first", "last"), _made_by(Edge, _is("last"), _option("ignore_nulls", False))),
    **dict.fromkeys(("min_by", "max_by"), lambda name, spec, type_, rules: _extreme_by(spec)(name, spec, type_, rules)),
    **dict.fromkeys(BITWISE, _made_by(Bitwise, _kind)),
    **dict.fromkeys(COMOMENTS, _made_by(Comoments, _kind, _nan_for_one)),
    **dict.fromkeys(_DEVIATIONS, _made_by(Deviation, _kind, _nan_for_one)),
    **dict.fromkeys(_SHAPES, _made_by(Shape, _kind, _nan_for_one)),
    **dict.fromkeys(("interval_sum", "try_interval_sum"), _made_by(IntervalSum, _is("try_interval_sum"))),
    **dict.fromkeys(("interval_mean", "try_interval_mean"), _made_by(IntervalMean, _is("try_interval_mean"))),
    "stddev": _made_by(Stddev, _nan_for_one),
    "product": _made_by(Product),
    "bitmap_construct_agg": _made_by(BitmapOf),
    **dict.fromkeys(("bitmap_or_agg", "bitmap_and_agg"), _made_by(Bitmaps, _is("bitmap_and_agg"))),
    "approx_count_distinct": _made_by(ApproxDistinct, _option("rsd")),
    "collect_list": lambda name, spec, type_, rules: _collect(spec)(name, spec, type_, rules),
    "collect_set": _made_by(CollectSet),
    "mode": _made_by(Mode, _options_of),
    "percentile": _made_by(Percentile, _options_of),
    "percentile_disc": _made_by(DiscretePercentile, _options_of),
    "weighed_percentile": _made_by(WeighedPercentile, _options_of),
    "percentile_approx": _made_by(ApproxPercentile, _options_of),
}


def make_accumulator(name: str, spec: AggSpec, input_schema: pa.Schema, rules: Rules = Rules()) -> Accumulator:
    """Raises ``InvalidInputError`` naming column, type and what is supported."""
    if spec.kind.endswith(_DISTINCT) and spec.kind != "approx_count_distinct":
        _checked_type(name, replace(spec, kind="count_distinct"), input_schema)
        kind = spec.kind.removesuffix(_DISTINCT)
        return Distinct(make_accumulator(name, replace(spec, kind=kind), input_schema, rules))
    type_ = _checked_type(name, spec, input_schema)
    if spec.kind in _MAKE:
        return _MAKE[spec.kind](name, spec, type_, rules)
    return _plain(spec.kind, type_, rules)(name, spec.column, type_)


def _plain(kind: str, type_: pa.DataType | None, rules: Rules) -> type[Accumulator]:
    if kind == "count":
        return Count
    if kind.startswith("try_"):
        return _trying(kind.removeprefix("try_"), type_)
    if rules.ansi:
        return Sum if kind == "sum" else Mean
    if pa.types.is_decimal(type_):
        return NullableSum if kind == "sum" else NullableMean
    return WrappingSum if kind == "sum" else Mean


def _trying(kind: str, type_: pa.DataType | None) -> type[Accumulator]:
    """What of sums and means can leave its range is null then; doubles cannot."""
    if pa.types.is_decimal(type_):
        return NullableSum if kind == "sum" else NullableMean
    if kind == "mean":
        return Mean
    return TrySum if pa.types.is_integer(type_) else Sum


def _checked_type(name: str, spec: AggSpec, input_schema: pa.Schema) -> pa.DataType:
    if spec.kind not in _SUPPORTED:
        raise InvalidInputError(f"aggregate {name!r}: unknown kind {spec.kind!r}; expected one of {list(_SUPPORTED)}.")
    if spec.column is None:
        return None
    if spec.column not in input_schema.names:
        raise InvalidInputError(
            f"aggregate {name!r}: no column {spec.column!r}; the DataFrame has {input_schema.names}."
        )
    type_ = input_schema.field(spec.column).type
    type_ = nullable_schema(pa.schema([pa.field("v", type_)])).field(0).type if pa.types.is_struct(type_) else type_
    supports, what = _SUPPORTED[spec.kind]
    if not supports(type_):
        raise InvalidInputError(
            f"aggregate {name!r}: {spec.kind} does not support column {spec.column!r} of type {type_}. "
            f"Supported: {what}. Cast the column first."
        )
    return type_
