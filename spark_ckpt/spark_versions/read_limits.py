"""How much a streaming source may read at once (``ReadLimit``), and what ends with what is there now.

Spark has both in ``pyspark.sql.streaming.datasource`` since 4.2. Before, it asks ``latestOffset()`` of a Python source
without a start and a limit, and has no ``prepareForTriggerAvailableNow``: the classes here stand for its own, with the
same names and fields, so that sources are written once.
"""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:
    from spark_ckpt.spark_versions._read_limits_before_4_2 import (  # type: ignore[assignment]
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
