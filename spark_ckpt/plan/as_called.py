"""A user's Python function as it is when it is given to a method. Driver only."""

from __future__ import annotations

from typing import TypeVar

from pyspark.serializers import CloudPickleSerializer

Given = TypeVar("Given")


def copied(given: Given) -> Given:
    """As executors get it. Raises as PySpark does for what cannot be pickled."""
    pickled = CloudPickleSerializer()
    made: Given = pickled.loads(pickled.dumps(given))
    return made
