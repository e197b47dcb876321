"""Formats of Spark's writers, conditions of single sinks, and what a start refuses of them. Driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.errors import PySparkAttributeError
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, FloatType, TimestampNTZType, TimestampType

from spark_ckpt.config_values import FLAG, count
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.execution.batch_functions import CALLED, BatchFunction, copied
from spark_ckpt.execution.columns import is_case_sensitive, is_repeated, quoted, refuse_repeated
from spark_ckpt.execution.spark_errors import (
    ConfigRefusedAsInSparkError,
    IllegalAsInSparkError,
    RefusedAsInSparkError,
)
from spark_ckpt.names import free
from spark_ckpt.operators.key_columns import column_named
from spark_ckpt.runtime.delivered import EachRow

Request = tuple[Any, dict[str, Any]]
WHERE = "where"
_HIDDEN = "__ckpt_where_"
FILES = ("parquet", "json", "csv", "text")
_AS_IT_IS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "parquet": {},
    "text": {"linesep": ("\n",)},
    "json": {"encoding": ("utf-8", "utf8"), "linesep": ("\n",), "ignorenullfields": ("false",)},
    "csv": {
        "encoding": ("utf-8", "utf8"), "linesep": ("\n",), "quote": ('"',), "nullvalue": ("",),
        "emptyvalue": ('""',), "quoteall": ("false",),
    },
}  # fmt: skip
"""Options of Spark's that sink ``files`` does not have -> the values that say what it does anyhow."""


def in_our_terms(sink: Any, options: dict[str, Any]) -> Request:
    """Spark's formats of files are sink ``files``, and ``console`` is a function. Raises ``ConfigError``."""
    name = sink.strip().lower() if isinstance(sink, str) else None
    if name == "console":
        return _console(options)
    return ("files", _files(name, options)) if name in FILES else (sink, options)


def _files(name: str, given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"fileFormat": name}
    if name == "csv":
        found |= {"header": "false", "escape": "\\"}  # Spark's defaults
    for option, value in given.items():
        key = option.lower()
        if key == "delimiter":
            found["sep"] = value
        elif key in ("header", "escape"):
            found[key] = value
        elif key == "compression" and name != "parquet":
            if value.lower() not in ("none", "uncompressed"):
                raise ConfigError(f"option compression of {name}: files are written as they are, found {value!r}")
        elif str(value).lower() not in _AS_IT_IS[name].get(key, ()):
            found[option] = value
    return found


def _console(options: dict[str, Any]) -> Request:
    """As Spark's: shows the rows of each checkpoint."""
    own = {k.lower(): v for k, v in options.items()}
    try:
        rows, truncate = int(count(0).parse(own.pop("numrows", "20"))), bool(FLAG.parse(own.pop("truncate", "true")))
    except ValueError as error:
        raise ConfigError(f"console takes numRows, a number, and truncate, true or false: expected {error}") from None
    rest = {k: v for k, v in options.items() if k.lower() in own}
    return BatchFunction(partial(_show, rows, truncate), "console"), rest


def _show(count_of_rows: int, truncate: bool, rows: Any, checkpoint: int) -> None:
    line = "-" * 43
    print(f"{line}\nCheckpoint: {checkpoint}\n{line}")  # noqa: T201 - it is what it is for
    rows.show(count_of_rows, truncate=truncate)


def with_conditions(df: Any, sinks: Sequence[Request]) -> tuple[Any, list[Request]]:
    """``df`` with a hidden column for each sink's ``where``, which Spark computes, and sinks that know theirs.

    Raises ``InvalidInputError`` for what is no condition.
    """
    wanted = [_condition(options) for _, options in sinks]
    if not any(w is not None for w in wanted):
        return df, list(sinks)
    places = {i: free(f"{_HIDDEN}{i}", df.columns) for i, w in enumerate(wanted) if w is not None}
    columns = {name: wanted[i] for i, name in places.items()}
    if any("," in name for name in df.columns):
        raise InvalidInputError(f"where of a sink: no column's name may have a comma; the columns are {df.columns}")
    wider = df.withColumns(columns)
    for name in columns:
        kind = wider.schema[name].dataType
        if not isinstance(kind, BooleanType):
            raise InvalidInputError(
                f"where of a sink needs a condition, found an expression of type {kind.simpleString()}"
            )
    # The others are not to see the hidden columns either.
    user = {"columns": ",".join(df.columns)}
    found = []
    for i, ((sink, options), condition) in enumerate(zip(sinks, wanted, strict=True)):
        own = {k: v for k, v in options.items() if k.lower() != WHERE}
        chosen = {} if any(k.lower() == "columns" for k in own) else user
        where = {} if condition is None else {WHERE: places[i]}
        found.append((sink, {**own, **chosen, **where}))
    return wider, found


def _condition(options: Mapping[str, Any]) -> Column | None:
    found = next((v for k, v in options.items() if k.lower() == WHERE), None)
    if found is None or isinstance(found, str):
        return None if found is None else F.expr(found)
    return found


def told_apart(df: Any, sinks: Sequence[Request], spark: Any) -> Any:
    """``df``, whose names then come once. Raises ``InvalidInputError`` if one comes twice and not all ``sinks`` are
    functions of all its columns."""
    if not is_repeated(df.columns, spark):
        return df
    if not all(isinstance(sink, BatchFunction) and not options for sink, options in sinks):
        refuse_repeated(df.columns, spark)
    fields = df.schema.fields
    names = [f"column_{number}" for number in range(len(fields))]
    noted = [
        F.col(quoted(name)).alias(name, metadata={**field.metadata, CALLED: field.name})
        for name, field in zip(names, fields, strict=True)
    ]
    return df.toDF(*names).select(*noted)


_BY_SPARK = (TimestampType, TimestampNTZType, DoubleType, FloatType)


def with_partition_texts(df: Any, sinks: Sequence[Request]) -> Any:
    """``df`` with such columns as texts, for files: their values are nowhere but in the folders' names. Beside other
    sinks, which would get them, too, they stay, and the sink refuses them."""
    if len(sinks) != 1 or sinks[0][0] != "files":
        return df
    names = [n for n in _partitions(sinks[0][1]) if n in df.columns and isinstance(df.schema[n].dataType, _BY_SPARK)]
    return df.withColumns({n: F.col(quoted(n)).cast("string") for n in names}) if names else df


def _partitions(options: Mapping[str, Any]) -> list[str]:
    found = next((v for k, v in options.items() if k.lower() == "partitionby"), "")
    return [name.strip() for name in str(found).split(",") if name.strip()]


def batch_function(method: str, func: Callable[[Any, int], Any]) -> BatchFunction:
    """Raises ``InvalidInputError`` for what cannot be called with a DataFrame and an id."""
    if not callable(func):
        raise InvalidInputError(f"{method} needs a function of a DataFrame and a checkpoint's id, found {func!r}")
    try:
        inspect.signature(func).bind(None, 0)
    except TypeError as error:
        raise InvalidInputError(
            f"{method} calls its function with a DataFrame and a checkpoint's id: {error}. Expected such as "
            "def write(rows, checkpoint): ..."
        ) from None
    except ValueError:  # one without a signature to look at
        pass
    return BatchFunction(func)


def each_row(f: Any) -> BatchFunction:
    """Raises PySpark's errors for what is neither a function nor has ``process``, and for what cannot be pickled."""
    if not callable(f):
        for name, missing in (("process", None), ("open", print), ("close", print)):
            if not callable(getattr(f, name, missing)):
                given = {"attr_name": name, "obj_name": "f"}
                raise PySparkAttributeError(errorClass="ATTRIBUTE_NOT_CALLABLE", messageParameters=given)
    return BatchFunction(partial(_each, copied(f)), "foreach")


def _each(f: Any, rows: Any, checkpoint: int) -> None:
    rows.foreachPartition(EachRow(f, checkpoint))


def as_sink(sink: Any) -> Any:
    """A function among the sinks is one of ``foreachBatch``."""
    if isinstance(sink, str):
        return sink_named(sink)
    return sink if isinstance(sink, type) else batch_function("alsoTo", sink)


def sink_named(sink: Any) -> Any:
    if isinstance(sink, str) and sink.strip().lower() in ("foreach", "foreachbatch"):
        raise ConfigError(f"{sink} is a method and no format: writeStream.foreachBatch(func), or alsoTo(func)")
    return sink


def check_sinks(mode: str, sinks: Sequence[tuple[Any, Mapping[str, Any]]], columns: Sequence[str]) -> None:
    """Raises ``ConfigError`` for options that contradict the mode, and ``InvalidInputError`` where there are no
    ``columns``: what sinks stage would be no rows, either."""
    if not columns:
        raise InvalidInputError("expected a column at least in what is written, found none: select(F.lit(1)), say")
    for _, options in sinks:
        if mode == "complete" and "mergekeys" in {name.lower() for name in options}:
            raise ConfigError(
                "mergeKeys: in outputMode complete each checkpoint replaces all rows of the sink, so nothing is "
                "merged; leave it out, or use outputMode('update')"
            )


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
