"""One reader of a source that several branches of a query read, over Spark Connect.

Its client sends the read once with each branch, and the server makes of each what it has no plan of yet. Since 4.1 it
keeps the plans of all reads (``spark.connect.session.planCache.alwaysCacheDataSourceReadsEnabled``). In 4.0 it keeps
those of DataFrames whose schema it was asked for, and of another one each branch would get a reader of its own, with
barriers of its own.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.spark_versions import spark_version


def with_one_reader(read: Any) -> Any:
    """``read`` itself, what ``load()`` gave."""
    if spark_version() < (4, 1) and not hasattr(read, "_jdf"):
        _ = read.schema
    return read
