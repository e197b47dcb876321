"""Expressions that fail on a row whose columns are all null, as control rows are: ``map(k, v)``, whose keys may not be
null, or ``raise_error`` where a value is none of those expected. They are computed for data rows alone. Driver."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column

from spark_ckpt.plan._plan_text import Node

SparkDF = Any

_MAY_FAIL = re.compile(
    r"\b(?:(?:create_)?map|map_from_arrays|map_from_entries|map_concat|transform_keys|raise_error|assert_true)\s*\("
    # Or they make a value of null, on which something else may fail.
    r"|\b(?:coalesce|nvl2?|ifnull|if|isnull|isnotnull|concat_ws|format_string|printf)\s*\(|\bCASE\b|\bIS\s|<=>",
    re.IGNORECASE,
)


def may_fail(column: Column, nodes: Iterable[Node] = ()) -> bool:
    """By its text, or because it may see values in control rows, of a plan with these ``nodes``."""
    texts = (str(column), *(node.text for node in nodes))
    return any(_MAY_FAIL.search(text) for text in texts)
