"""Whether ``collect_list`` and ``collect_set`` take nulls, too. Since Spark 4.2 a query can ask for them."""

from __future__ import annotations

from typing import Any

from spark_ckpt.spark_versions import spark_version


def collects_nulls(function: Any) -> bool:
    """Of a ``CollectList`` or ``CollectSet`` of the JVM."""
    return spark_version() >= (4, 2) and not function.ignoreNulls()
