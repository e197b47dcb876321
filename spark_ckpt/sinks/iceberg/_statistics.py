"""What Iceberg wants to know of a Parquet file's columns, of days and moments that Python has no objects for, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

_COUNTS = MetricsMode(MetricModeTypes.COUNTS)
_NO_BOUNDS = (MetricModeTypes.NONE, MetricModeTypes.COUNTS)


def file_statistics(footer: Any, schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """Sizes, counts and bounds by field id, bounds as bytes. ``footer``: the file's, of columns of ``schema``."""
    plan = compute_statistics_plan(schema, dict(properties))
    ids = parquet_path_to_id_mapping(schema)
    far = {i: plan[i] for i in set(_out_of_python(footer, ids)) if plan[i].mode.type not in _NO_BOUNDS}
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns={**plan, **{i: replace(told, mode=_COUNTS) for i, told in far.items()}},
        parquet_column_mapping=ids,
    ).to_serialized_dict()
    for i, told in far.items():
        numbers = [s for path, s in _columns(footer) if ids[path] == i and s is not None and s.has_min_max]
        found["lower_bounds"][i] = _bound(told, min(s.min_raw for s in numbers))
        found["upper_bounds"][i] = _bound(told, max(s.max_raw for s in numbers))
    return found


def _out_of_python(footer: Any, ids: Mapping[str, int]) -> Iterator[int]:
    for path, statistics in _columns(footer):
        try:
            _ = statistics and (statistics.min, statistics.max)
        except OverflowError:
            yield ids[path]
        except NotImplementedError:
            pass  # of a type whose bounds pyarrow does not read: pyiceberg leaves them out


def _columns(footer: Any) -> Iterator[tuple[str, Any]]:
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for n in range(footer.num_columns):
            column = row_group.column(n)
            yield column.path_in_schema, column.statistics


def _bound(told: StatisticsCollector, number: int) -> bytes:
    return to_bytes(told.iceberg_type, number)
