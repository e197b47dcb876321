"""Arrow types as Delta stores them, and what a Delta log keeps about a Parquet file's columns."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import InvalidInputError

_SAME = (
    pt.is_boolean, pt.is_int8, pt.is_int16, pt.is_int32, pt.is_int64, pt.is_float32, pt.is_float64, pt.is_decimal128,
    pt.is_string, pt.is_binary, pt.is_date32,
)  # fmt: skip
_STATS_COLUMNS = 32
_STATS_TEXT = 64


def delta_type(column: str, kind: pa.DataType) -> pa.DataType:
    """The type a Delta table stores ``kind`` as: microsecond timestamps, in UTC or without a zone.

    Raises ``InvalidInputError`` naming ``column`` if Delta has no such type.
    """
    if any(test(kind) for test in _SAME):
        return kind
    if pt.is_dictionary(kind):
        return delta_type(column, kind.value_type)
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_date64(kind):
        return pa.date32()
    if pt.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", delta_type(column, kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(delta_type(column, kind.key_type), delta_type(column, kind.item_type))
    if pt.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return pa.struct([pa.field(f.name, delta_type(column, f.type)) for f in fields])
    raise InvalidInputError(f"column '{column}' has type {kind}, which Delta cannot store; cast or drop it")


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` as stored; every column is nullable."""
    return pa.schema([pa.field(f.name, delta_type(f.name, f.type)) for f in schema])


def file_stats(metadata: Any, schema: pa.Schema) -> dict[str, Any]:
    """Delta's ``stats`` of one Parquet file, from its footer: rows, and bounds where they are exact.

    Floats have no bounds (a Parquet footer ignores NaN, Delta orders it last), nor do long texts.
    """
    bounds: dict[str, tuple[Any, Any]] = {}
    nulls: dict[str, int] = {}
    flat = [f for f in schema if not pt.is_nested(f.type)][:_STATS_COLUMNS]
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for field in flat:
        groups = [metadata.row_group(g).column(places[field.name]) for g in range(metadata.num_row_groups)]
        stats = [g.statistics for g in groups]
        if not all(s is not None and s.has_null_count for s in stats):
            continue
        nulls[field.name] = sum(s.null_count for s in stats)
        filled = [s for s, g in zip(stats, groups, strict=True) if s.null_count < g.num_values]
        if filled and _is_bounded(field.type) and all(s.has_min_max for s in filled):
            bounds[field.name] = (min(s.min for s in filled), max(s.max for s in filled))
    texts = {k: (_text(lo), _text(hi)) for k, (lo, hi) in bounds.items() if max(_size(lo), _size(hi)) <= _STATS_TEXT}
    return {
        "numRecords": metadata.num_rows,
        "minValues": {k: lo for k, (lo, _) in texts.items()},
        "maxValues": {k: hi for k, (_, hi) in texts.items()},
        "nullCount": nulls,
    }


def _is_bounded(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_string(kind) or pt.is_date(kind) or pt.is_timestamp(kind)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else 0


def _text(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
    return value.isoformat() if isinstance(value, datetime.date) else value
