"""What Spark's UI says of jobs that are started here. Spark itself describes the batches of a query. Driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DESCRIPTION = "spark.job.description"


@contextmanager
def described(spark: Any, text: str) -> Iterator[None]:
    """Jobs that this thread starts meanwhile are described by ``text``, which names operator or sink, and checkpoint.
    Nothing over Spark Connect, which has no descriptions."""
    if "_jsc" not in vars(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)
