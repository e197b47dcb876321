"""SQL texts that read DataFrames in place of some of their tables. Driver; classic and Connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_ckpt.plan.sql_names import alias_behind, is_table
from spark_ckpt.plan.sql_query import Span
from spark_ckpt.plan.sql_sub_queries import named_inside

SparkDF = Any
Given = Mapping[str, SparkDF]
"""By the names that stand between zeros in a text."""


def place(name: str) -> str:
    """What stands in a text for a DataFrame that is given as ``name``."""
    return f"\0{name}\0"


def placed(span: Span, key: Callable[[str], str | None]) -> str:
    """The text of ``span``, where DataFrames are read in place of the tables that have a ``key``."""
    found, written, own = "", span.start, named_inside(span)
    for at, token in enumerate(span.tokens):
        name = key(token.name) if is_table(span.tokens, at) and token.name.lower() not in own else None
        if name is None:
            continue
        found += span.text[written - span.start : token.start - span.start]
        found += place(name) + alias_behind(span.tokens, at)
        written = token.end
    return found + span.text[written - span.start :]


def in_spark(spark: Any, text: str, given: Given) -> SparkDF:
    """What Spark makes of ``text``. Raises as ``spark.sql`` does."""
    if not given:
        return spark.sql(text)
    parts = text.replace("{", "{{").replace("}", "}}").split("\0")
    return spark.sql("".join(f"{{{part}}}" if i % 2 else part for i, part in enumerate(parts)), **given)
