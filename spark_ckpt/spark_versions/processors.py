"""The user's ``StatefulProcessor`` behind the function that PySpark makes of it.

Since Spark 4.1 the function is a method of an object that holds the processor, and a plan's node says whether it gets
DataFrames or rows. In 4.0 it is a function inside ``transformWithStateInPandas``, and there are DataFrames only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from spark_ckpt.spark_versions import spark_version


def processor_behind(function: Callable[..., Any]) -> Any:
    owner = getattr(function, "__self__", None)
    if owner is not None:
        return owner._stateful_processor
    return inspect.getclosurevars(function).nonlocals["statefulProcessor"]


def gets_frames(node: Any) -> bool:
    """Of the analysed plan's node for ``transformWithState`` or ``transformWithStateInPandas``."""
    return spark_version() < (4, 1) or str(node.userFacingDataType().toString()) == "pandas"
