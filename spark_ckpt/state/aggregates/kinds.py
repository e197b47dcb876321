"""From an ``AggSpec`` to its accumulator, after checking that the column exists and its type is supported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates._accumulators import Accumulator, Collect, Count, Edge, Extreme, Mean, Sum
from spark_ckpt.state.aggregates._distinct import CountDistinct
from spark_ckpt.state.aggregates._hll import ApproxDistinct
from spark_ckpt.state.aggregates._lenient import NullableMean, NullableSum, WrappingSum
from spark_ckpt.state.aggregates._moments import Stddev


@dataclass(frozen=True)
class Rules:
    """Spark's settings that change what aggregates give: ``spark.sql.ansi.enabled``, and whether the deviation of a
    single value is NaN (``spark.sql.legacy.statisticalAggregate``)."""

    ansi: bool = True
    nan_for_one: bool = False


RUNNING_KINDS = ("count", "sum", "mean", "min", "max", "stddev")


def _numeric(t: pa.DataType) -> bool:
    return pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal128(t)


def is_ordered(t: pa.DataType) -> bool:
    """Whether values of the type can be compared here: for min, max, distinct counts and ``order_by``."""
    dated = pa.types.is_date32(t) or pa.types.is_timestamp(t) or pa.types.is_duration(t)
    return _numeric(t) or dated or pa.types.is_boolean(t) or _bytes(t)


def _bytes(t: pa.DataType) -> bool:
    return pa.types.is_string(t) or pa.types.is_binary(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t)


def _any(t: pa.DataType) -> bool:
    return not pa.types.is_null(t)


NUMBERS = "integers, float, double and decimals up to 38 digits"
FLAT = NUMBERS + ", string, binary, boolean, date, timestamps and day-time intervals"

_SUPPORTED: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "count": (lambda _: True, "every type"),
    "sum": (_numeric, NUMBERS),
    "mean": (_numeric, NUMBERS),
    "stddev": (_numeric, NUMBERS),
    "min": (is_ordered, FLAT),
    "max": (is_ordered, FLAT),
    "count_distinct": (is_ordered, FLAT),
    "approx_count_distinct": (is_ordered, FLAT),
    "first": (_any, "every type but void"),
    "last": (_any, "every type but void"),
    "collect_list": (_any, "every type but void"),
}


def make_accumulator(name: str, spec: AggSpec, input_schema: pa.Schema, rules: Rules = Rules()) -> Accumulator:
    """Raises ``InvalidInputError`` naming column, type and what is supported."""
    type_ = _checked_type(name, spec, input_schema)
    column, options = spec.column, spec.options
    if spec.kind in ("min", "max"):
        return Extreme(name, column, type_, spec.kind == "max")
    if spec.kind in ("first", "last"):
        return Edge(name, column, type_, spec.kind == "last", options.get("ignore_nulls", False))
    if spec.kind == "collect_list":
        return Collect(name, column, type_, options["max_items"])
    if spec.kind == "count_distinct":
        return CountDistinct(name, column, type_)
    if spec.kind == "approx_count_distinct":
        return ApproxDistinct(name, column, type_, options["rsd"])
    if spec.kind == "stddev":
        return Stddev(name, column, type_, rules.nan_for_one)
    return _plain(spec.kind, type_, rules)(name, column, type_)


def _plain(kind: str, type_: pa.DataType | None, rules: Rules) -> type[Accumulator]:
    if kind == "count":
        return Count
    if rules.ansi:
        return Sum if kind == "sum" else Mean
    if pa.types.is_decimal(type_):
        return NullableSum if kind == "sum" else NullableMean
    return WrappingSum if kind == "sum" else Mean


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
    supports, what = _SUPPORTED[spec.kind]
    if not supports(type_):
        raise InvalidInputError(
            f"aggregate {name!r}: {spec.kind} does not support column {spec.column!r} of type {type_}. "
            f"Supported: {what}. Cast the column first."
        )
    return type_
