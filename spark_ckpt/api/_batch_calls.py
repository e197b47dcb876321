"""Methods of PySpark's DataFrame that need all rows: a stream has Spark's own errors for them. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from spark_ckpt.api._other_ways import WAYS
from spark_ckpt.plan.spark_errors import UNSUPPORTED, analysis_error, not_expected

_MUST_START = (
    UNSUPPORTED,
    "Queries with streaming sources must be executed with writeStream.start(), or from a streaming table or flow "
    "definition within a Spark Declarative Pipeline.",
)
_NOT_ON_STREAMS = "CALL_ON_STREAMING_DATASET_UNSUPPORTED"
_NO_PIVOT = ("_LEGACY_ERROR_TEMP_3063", "pivot is not supported on a streaming DataFrames/Datasets")
_INTERSECT = (UNSUPPORTED, "Intersect of streaming DataFrames/Datasets is not supported")
_CONDITIONS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("collect", "count", "first", "head", "isEmpty", "show", "tail", "take"), _MUST_START),
    **dict.fromkeys(("toArrow", "toLocalIterator", "toPandas", "toJSON", "transpose", "inputFiles"), _MUST_START),
    **dict.fromkeys(("foreach", "foreachPartition", "approxQuantile", "corr", "cov"), _MUST_START),
    **dict.fromkeys(("cache", "checkpoint", "localCheckpoint", "persist"), _MUST_START),
    "crosstab": _NO_PIVOT,
    **dict.fromkeys(("intersect", "intersectAll"), _INTERSECT),
    "offset": (UNSUPPORTED, "Offset is not supported on streaming DataFrames/Datasets"),
    **{
        name: (_NOT_ON_STREAMS, f"The method `{name}` can not be called on streaming Dataset/DataFrame.")
        for name in ("mergeInto", "writeTo")
    },
}
"""Method -> Spark's condition and text."""

_PROPERTIES = {
    "rdd": _MUST_START,
    "write": (_NOT_ON_STREAMS, "The method `write` can not be called on streaming Dataset/DataFrame."),
}
"""Those that Spark refuses without a call."""


def batch_call(name: str) -> Any:
    """What there is of a stream under that name: a method that raises as Spark's does when it is called, with what to
    do instead; None if Spark has none that it refuses there. Raises at once for a property."""
    if name in _PROPERTIES:
        _refuse(name, *_PROPERTIES[name])
    if name == "pandas_api":
        return _no_pandas
    if name not in _CONDITIONS:
        return None

    def refused(*_: Any, **__: Any) -> NoReturn:
        _refuse(name, *_CONDITIONS[name])

    refused.__name__ = name
    return refused


def _no_pandas(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError(f"pandas-on-Spark does not support Structured Streaming. pandas_api: {WAYS['pandas_api']}")


def _refuse(name: str, condition: str, text: str) -> NoReturn:
    said = f"{text.rstrip('.')}. `{name}` is not for streams: {WAYS[name]}"
    raise analysis_error(condition, said, methodName=name)


class BatchCalls:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of those that Spark's streams have."""

    @property
    def sparkSession(self: Any) -> Any:
        """As PySpark's: the session, Spark's own; ``ckpt`` is what begins checkpointed streams in it."""
        return self._session.spark

    @property
    def storageLevel(self) -> StorageLevel:
        """As PySpark's: none, as a stream is not kept."""
        return StorageLevel.NONE

    def unpersist(self: Any, blocking: bool = False) -> Any:
        """As PySpark's of what is not kept: this stream, and nothing is done."""
        return self

    def sameSemantics(self: Any, other: Any) -> bool:
        """As PySpark's: whether ``other`` is made of the same streams in the same way.

        Of the same ``load()``, that is: streams of two calls are two, and so are two calls of a keyed operator. Raises
        Spark's ``PySparkTypeError`` for what is no DataFrame.
        """
        if isinstance(other, BatchCalls):
            theirs: Any = other
            return bool(_parts(self) == _parts(theirs) and self._preview.sameSemantics(theirs._preview))
        if isinstance(other, DataFrame) or hasattr(other, "sameSemantics"):
            return False
        raise not_expected("other", "DataFrame", other)

    def semanticHash(self: Any) -> int:
        """As PySpark's: equal for streams with :meth:`sameSemantics`, in this process."""
        return hash((self._preview.semanticHash(), _parts(self))) % 2**32 - 2**31


def _parts(df: Any) -> tuple[Any, ...]:
    """Of which a stream is made, and what its plan does not show."""
    found = df._lineage
    return found.sources, found.spark_streams, found.operators, found.watermarks, found.plain_operations
