"""A user's Python function as it is when it is given to a method. Driver only."""

from __future__ import annotations

from typing import Any, TypeVar

from pyspark.serializers import CloudPickleSerializer

Given = TypeVar("Given")


def as_called(given: Given, spark: Any) -> Given:
    """A copy of ``given``, a function or an object with methods. What it looks at, such as the variable of a loop that
    it was made in, stays what it is now: classic Spark pickles it here, Spark Connect with the query that starts."""
    return copied(given) if hasattr(spark, "_jsparkSession") else given


def copied(given: Given) -> Given:
    """As executors get it. Raises as PySpark does for what cannot be pickled."""
    pickled = CloudPickleSerializer()
    made: Given = pickled.loads(pickled.dumps(given))
    return made
