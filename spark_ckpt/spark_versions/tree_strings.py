"""A plan of Spark's JVM as text. Its method has one argument more since Spark 4.1."""

from __future__ import annotations

from typing import Any

from spark_ckpt.spark_versions import spark_version

_SINCE_4_1 = (False,) if spark_version() >= (4, 1) else ()


def tree_string(plan: Any) -> str:
    """With all columns of each node, where a user's plan would say "... 30 more fields"."""
    return str(plan.treeString(True, False, 1_000_000, False, *_SINCE_4_1))
