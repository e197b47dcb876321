"""What a Delta log keeps about a Parquet file's columns."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

_STATS_COLUMNS = 32
_STATS_TEXT = 64


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
            with suppress(OverflowError):  # a day or a moment that Python has no object for: a column without bounds
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
