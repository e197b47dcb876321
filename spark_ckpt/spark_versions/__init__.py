"""The version of Spark that this process has, for what differs between versions. Any process; imports no Spark."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("pyspark", "pyspark-client")


@lru_cache(maxsize=1)
def spark_version() -> tuple[int, int]:
    """``(4, 3)``: of the PySpark that is installed here, which is the server's where Spark's workers run. The oldest
    that is supported if none is."""
    for package in _PACKAGES:
        try:
            found = re.match(r"(\d+)\.(\d+)", version(package))
        except PackageNotFoundError:
            continue
        if found:
            return int(found[1]), int(found[2])
    return 4, 2
