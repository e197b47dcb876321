"""Spark's short forms of readers, ``parquet(path)`` and such, and Spark's names of their options. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import StructType, VariantType, YearMonthIntervalType

from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.refused_types import has_type, refuse_unread
from spark_ckpt.execution.spark_errors import no_schema
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.sources.file_text import check_schema
from spark_ckpt.sources.spark_file_options import OnlySparkReadsError, files_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BY_RULES = ("csv", "json")
_CORRUPT = "columnNameOfCorruptRecord"


class FileReaders:
    """What :class:`spark_ckpt.api.read.CkptDataStreamReader` has of them."""

    def load(
        self,
        path: str | None = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        raise NotImplementedError

    def parquet(self, path: str, *more: Any, **options: Any) -> DataFrame:
        """As PySpark's: Parquet files below ``path``, by source ``files``; ``options`` by Spark's names or its own.

        ``more``: what PySpark takes by position, too, in its order. Raises as :meth:`load`.
        """
        return self.load(path, "parquet", **_by_name("parquet", path, more), **options)

    def orc(self, path: str, *more: Any, **options: Any) -> DataFrame:
        """As PySpark's: ORC files below ``path``, by source ``files``; ``options`` and ``more`` as of :meth:`parquet`.

        Timestamps are read as those of a clock in UTC. Raises as :meth:`load`, and ``ConfigError`` if the schema has
        timestamps and the machine's zone is another.
        """
        return self.load(path, "orc", **_by_name("orc", path, more), **options)

    def json(self, path: str, schema: StructType | str | None = None, *more: Any, **options: Any) -> DataFrame:
        """As PySpark's: one JSON object a line, in files below ``path``, by source ``files``; a ``schema`` is needed,
        unless ``spark.sql.streaming.schemaInference`` is set.

        Mode PERMISSIVE, as in Spark: what does not fit is null. ``options`` and ``more`` as of :meth:`parquet`.
        Raises as :meth:`load`.
        """
        return self.load(path, "json", schema, **_by_name("json", path, (schema, *more)), **options)

    def csv(self, path: str, schema: StructType | str | None = None, *more: Any, **options: Any) -> DataFrame:
        """As PySpark's: CSV files below ``path``, by source ``files``; a ``schema`` is needed, as of :meth:`json`, and
        records are read in its mode.

        ``options`` and ``more`` as of :meth:`parquet`: ``csv(path, "id long", header=True, sep=";")``. Raises as
        :meth:`load`.
        """
        return self.load(path, "csv", schema, **_by_name("csv", path, (schema, *more)), **options)

    def text(self, path: str, *more: Any, **options: Any) -> DataFrame:
        """As PySpark's: files below ``path`` as rows ``value string``, one a line, by source ``files``.

        ``options`` and ``more`` as of :meth:`parquet`. Raises as :meth:`load`.
        """
        # PySpark's parameter wholetext has a default that wins over an option of that name.
        given = {"wholetext": False, **_by_name("text", path, more), **options}
        return self.load(path, "text", **given)

    def xml(
        self, path: str, rowTag: str | None = None, schema: StructType | str | None = None, *more: Any, **options: Any
    ) -> DataFrame:
        """As PySpark's: XML files below ``path``, which Spark's own source reads, as of
        :meth:`spark_ckpt.api.read.CkptDataStreamReader.spark`; ``rowTag`` is the element that is a row.

        ``options`` and ``more`` as of PySpark's. Raises as :meth:`load`.
        """
        return self.load(path, "xml", schema, **_by_name("xml", path, (rowTag, schema, *more)), **options)


def _by_name(method: str, path: str, given: tuple[Any, ...]) -> dict[str, Any]:
    """Options that were given by their place among the parameters of PySpark's ``method``. Raises ``TypeError``."""
    found = signature(getattr(DataStreamReader, method)).bind(None, path, *given).arguments
    return {name: value for name, value in found.items() if name not in ("self", "path", "schema")}


def as_spark_reads(
    spark: Any, kind: str, options: Mapping[str, str], schema: StructType | None
) -> tuple[dict[str, str], StructType | None]:
    """Options and schema of source ``files`` for a stream of Spark's format ``kind``: of json and csv in mode
    PERMISSIVE, and with columns that may be null, unless ``badRecords`` says that the source's own rules are asked for.

    Raises ``ConfigError`` for options, ``OnlySparkReadsError`` for what Spark's own source reads alone, Spark's
    ``IllegalArgumentException`` if no schema is given or to be found out.
    """
    named = {name.lower() for name in options}
    if schema is None and kind in _BY_RULES:
        if spark.conf.get("spark.sql.streaming.schemaInference") != "true" or "path" not in named:
            raise no_schema()
        schema = _inferred(spark, kind, options)
    mode = "PERMISSIVE" if kind in _BY_RULES else None
    found = files_options(kind, options, schema is not None, mode)
    if "badrecords" in named:
        return found, schema
    if schema is not None:
        refuse_unread_types(kind, schema)
    if kind in _BY_RULES and _CORRUPT.lower() not in named:
        found[_CORRUPT] = spark.conf.get("spark.sql.columnNameOfCorruptRecord")
    return found, None if schema is None else schema.toNullable()


def refuse_unread_types(kind: str, schema: StructType) -> None:
    """Raises ``OnlySparkReadsError`` for types that Arrow or the format, as Spark's streams read it, has not."""
    refuse_unread(schema)
    try:
        for field in schema.fields:
            if has_type(field.dataType, (YearMonthIntervalType, VariantType)):
                raise ConfigError(f"column {field.name} has type {field.dataType.simpleString()}")
        if kind != "text":
            check_schema(kind, arrow_schema(schema), kind in _BY_RULES)
    except ConfigError as error:
        raise OnlySparkReadsError(str(error)) from error


def _inferred(spark: Any, kind: str, options: Mapping[str, str]) -> StructType:
    """Of the files that are there, by Spark."""
    path = next(value for name, value in options.items() if name.lower() == "path")
    known = {n: v for n, v in options.items() if n.lower() != "path" and not n.lower().startswith("storage.")}
    found: StructType = spark.read.format(kind).options(**known).load(path).schema
    return found
