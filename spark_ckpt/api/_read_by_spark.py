"""What no source here reads and Spark's own do: they read it, with barriers beside their rows. Driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.chain import StreamRows
from spark_ckpt.execution.spark_stream_rows import SparkStreamMaker, spark_stream_rows
from spark_ckpt.sources.base import KNOWN_SOURCES
from spark_ckpt.sources.spark_file_options import FILE_FORMATS, OURS_ALONE

_log = logging.getLogger("spark_ckpt")


def may_be_sparks(kind: Any) -> bool:
    """Whether ``kind`` is no source of spark_ckpt, by name, class or import path."""
    return isinstance(kind, str) and ":" not in kind and kind.lower() not in {*KNOWN_SOURCES, *FILE_FORMATS}


@dataclass(frozen=True)
class Asked:
    """Of the reader: ``kind`` is the format, ``options`` are those of the source, ``uid`` is its name."""

    session: Any
    kind: str
    schema: StructType | None
    options: Mapping[str, str]
    uid: str | None


def read_by_spark(asked: Asked, why: str, *more: str) -> Any:
    """The stream of :func:`rows_by_spark` as a DataFrame, None if there is none."""
    made = rows_by_spark(asked, why, *more)
    return made and asked.session._frame(made.recipe, made.lineage, made.schema)


def rows_by_spark(asked: Asked, why: str, *more: str) -> StreamRows | None:
    """The stream as ``spark.readStream`` reads it, with columns ``more`` that it hides; None if Spark knows no such
    source, either.

    Raises as Spark does, ``ConfigError`` for options that only sources of spark_ckpt have.
    """
    own = [name for name in asked.options if name.lower() in OURS_ALONE or name.lower().startswith("storage.")]
    if own:
        raise ConfigError(
            f"reader option {own[0]}: only sources of spark_ckpt have it, and Spark's own has to read this "
            f"{asked.kind}: {why}"
        )
    reader = asked.session.spark.readStream.format(asked.kind).options(**asked.options)
    try:
        rows = (reader if asked.schema is None else reader.schema(asked.schema)).load()
        made = spark_stream_rows(asked.session.spark, rows.select("*", *more) if more else rows, asked.uid)
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" in str(error):  # classic Spark raises what Java does
            return None
        raise
    _log.info("Spark's own source reads %s, with barriers beside it: %s", asked.kind, why)
    return made


def spark_stream(session: Any, stream: SparkStreamMaker | Any, uid: str | None) -> Any:
    """See :meth:`spark_ckpt.api.read.CkptDataStreamReader.spark`."""
    made = spark_stream_rows(session.spark, stream, uid)
    return session._frame(made.recipe, made.lineage, made.schema)
