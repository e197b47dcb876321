"""What Spark's ``writeStream`` refuses when it starts, of its conditions. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_ckpt.api._writers import FILES, Request
from spark_ckpt.plan.batch_functions import BatchFunction
from spark_ckpt.plan.columns import is_case_sensitive
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.spark_errors import ConfigRefusedAsInSparkError, IllegalAsInSparkError, RefusedAsInSparkError

_PARTITIONS = "partitionby"


def as_spark_takes(df: Any, spark: Any, sinks: Sequence[Request], mode: str, named: bool) -> list[Request]:
    """``sinks``, with columns of ``partitionBy`` as they are written in ``df``. ``named``: the query or its job is.

    Raises what Spark's writer does at a start, in its order, for those that it has: ``ConfigRefusedAsInSparkError`` and
    ``IllegalAsInSparkError``, which are ``ConfigError``, and ``RefusedAsInSparkError``.
    """
    return [(sink, _checked(df, spark, sink, own, mode, named)) for sink, own in sinks]


def _checked(df: Any, spark: Any, sink: Any, own: dict[str, Any], mode: str, named: bool) -> dict[str, Any]:
    name = sink.strip().lower() if isinstance(sink, str) else getattr(sink, "method", None)
    options = {key.lower() for key in own}
    if name in FILES:
        own = _with_partitions(df, spark, own)
        if "path" not in options:
            raise IllegalAsInSparkError(
                f"'path' is not specified: {name} files go to a folder, start(path) or option path",
                "_LEGACY_ERROR_TEMP_2047",
                {},
            )
        if mode != "append":
            raise _no_mode(name, mode)
    elif (name == "memory" or isinstance(sink, BatchFunction)) and _PARTITIONS in options:
        raise ConfigRefusedAsInSparkError(
            f"{name!r} does not support partitioning: partitionBy is there for files and Delta tables",
            "_LEGACY_ERROR_TEMP_1197",
            {"operation": str(name)},
        )
    elif name == "memory" and not (named or options & {"path", "name"}):
        raise ConfigRefusedAsInSparkError(
            "queryName must be specified for memory sink: the table of its rows is called so. Option path, a folder, "
            "goes without",
            "_LEGACY_ERROR_TEMP_1194",
            {},
        )
    return own


def _with_partitions(df: Any, spark: Any, own: dict[str, Any]) -> dict[str, Any]:
    sensitive, columns = is_case_sensitive(spark), df.columns
    return {k: _found(columns, v, sensitive) if k.lower() == _PARTITIONS else v for k, v in own.items()}


def _found(columns: list[str], given: str, sensitive: bool) -> str:
    found = []
    for name in (part.strip() for part in given.split(",")):
        column = column_named(columns, name, sensitive)
        if column is None:
            shown = ", ".join(columns)
            raise ConfigRefusedAsInSparkError(
                f"Partition column {name} not found in existing columns ({shown}).",
                "_LEGACY_ERROR_TEMP_1196",
                {"columnType": "Partition", "columnName": name, "validColumnNames": shown},
            )
        found.append(column)
    return ",".join(found)


def _no_mode(name: str, mode: str) -> RefusedAsInSparkError:
    way = "delta, sql, memory or foreachBatch"
    if mode == "update":
        way = (
            "delta, iceberg or sql with option mergeKeys, or foreachBatch; format('files') appends each change as a row"
        )
    return RefusedAsInSparkError(
        f"Invalid streaming output mode: {mode}. This output mode is not supported in Data Source {name}, whose rows "
        f"are never changed: use {way}",
        "STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE",
        {"outputMode": mode, "className": name},
    )
