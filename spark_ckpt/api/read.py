"""``ckpt.readStream``: a stream of any source, with checkpoints. Driver only; classic Spark and Spark Connect alike."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkValueError
from pyspark.sql.types import StructType

from spark_ckpt.api._read_by_spark import Asked, may_be_sparks, read_by_spark, rows_by_spark, spark_stream
from spark_ckpt.api._readers import FileReaders, as_spark_reads, refuse_unread_types
from spark_ckpt.config_values import count, set_option
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.catalog_tables import table_source
from spark_ckpt.execution.chain import Chain, Recipe
from spark_ckpt.execution.columns import refuse_repeated, refuse_reserved
from spark_ckpt.execution.lineage import Lineage, SourceNode
from spark_ckpt.execution.refused_types import refuse_unread
from spark_ckpt.execution.session_confs import refuse_named_sources
from spark_ckpt.execution.spark_errors import check_path, not_expected, path_not_found
from spark_ckpt.execution.spark_stream_rows import SparkStreamMaker
from spark_ckpt.hints import Hinting
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.spark_file_options import FILE_FORMATS, OnlySparkReadsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import DataSource

    from spark_ckpt.api.session import CkptSession


class CkptDataStreamReader(FileReaders, Hinting):
    """``spark.readStream``: sources by name, or any class that is a Python streaming DataSource.

    Every method but :meth:`load` and its short forms returns the reader itself.
    """

    def __init__(self, session: CkptSession) -> None:
        self._session = session
        self._format: Any = None
        self._options: dict[str, str] = {}
        self._schema: StructType | None = None

    def format(self, source: str | type[DataSource]) -> CkptDataStreamReader:
        """``source``: ``"files"``, ``"delta"``, ``"kafka"``, ``"iceberg"``, ``"sql"``, ``"rate"``,
        ``"rate-micro-batch"``, or a class, a Python streaming ``DataSource``.

        A class need not be registered.
        ``"parquet"``, ``"orc"``, ``"json"``, ``"csv"`` and ``"text"`` are ``"files"`` of that kind, with Spark's names
        of options. Of any other name, and of options that ``files`` does not have, it is Spark's own source, as by
        :meth:`spark`.
        A class may be given by its import path, too, ``"module:Class"``. What it must keep to is tested by
        :class:`spark_ckpt.testing.source_conformance.SourceConformance`. :meth:`load` raises for an unknown one.
        """
        self._format = source
        return self

    def schema(self, schema: StructType | str) -> CkptDataStreamReader:
        """The columns to read: ``schema`` is a ``StructType`` or DDL text, ``"id bigint, at timestamp"``.

        Source ``files`` needs it, but for Parquet and ORC; others know their own columns, and ``delta`` takes no other.
        """
        if not isinstance(schema, StructType | str):
            raise not_expected("schema", "str or struct type", schema)
        self._schema = StructType(list(schema)) if isinstance(schema, StructType) else StructType.fromDDL(schema)
        return self

    def name(self, source_name: str) -> CkptDataStreamReader:
        """As PySpark's: ``source_name`` is what the source is called in checkpoints, as by its option ``uid``.

        Raises PySpark's errors for what is no text of ASCII letters, digits and underscores.
        """
        if not isinstance(source_name, str):
            raise not_expected("source_name", "str", source_name)
        if not re.fullmatch("[a-zA-Z0-9_]+", source_name):
            given = {"source_name": source_name}
            raise PySparkValueError(errorClass="INVALID_STREAMING_SOURCE_NAME", messageParameters=given)
        return self.option("uid", source_name)

    def option(self, key: str, value: Any) -> CkptDataStreamReader:
        """One option of the source, ``key`` in any case; :meth:`load` raises for what the source does not know.

        ``value`` becomes text as in Spark: ``True`` is ``"true"``, None is none. Durations and sizes are written
        ``"10s"``, ``"64m"``.
        """
        set_option(self._options, key, value)
        return self

    def options(self, **options: Any) -> CkptDataStreamReader:
        """Several options of the source, name by name: ``options(fileFormat="json", maxFilesPerTrigger=4)``."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def load(
        self,
        path: str | None = None,
        format: str | type[DataSource] | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> DataFrame:
        """The stream; ``path`` is the option of that name. Checks the source's options now and reads nothing yet.

        ``format``, ``schema`` and ``options`` are those of the methods of these names, as in Spark.
        Two options are for every source: ``uid`` names it in checkpoints (default: the format and its number),
        ``lanes`` is its parallelism, a number of tasks (default: the cluster's cores). Without a format it
        is ``spark.sql.sources.default``, parquet. Raises ``ConfigError`` where there is no path either, for an unknown
        source, bad options and a schema that is missing, ``ControlColumnsError`` for reserved column names,
        ``InvalidInputError`` for names that come twice, Spark's ``AnalysisException`` (PATH_NOT_FOUND) if there is
        nothing at the path of files, and it is no glob::

            orders = ckpt.readStream.format("files").option("fileFormat", "json").schema(ddl).load("/data/orders")
        """
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        spark = self._session.spark
        if path is not None:
            check_path("load", path, {**self._options, **options}, spark)
        if self._format is None and path is None:
            raise ConfigError("readStream needs format(...): files, delta, rate, or a Python DataSource class")
        if self._format is None:
            self._format = spark.conf.get("spark.sql.sources.default")
        for key, value in options.items():
            if value is not None:
                self.option(key, value)
        # As in Spark, the reader keeps its format, schema and options for the next stream, and the path not.
        given = dict(self._options)
        if path is not None:
            set_option(given, "path", path)
        return self._loaded(given)

    def table(self, tableName: str) -> DataFrame:
        """As PySpark's: table ``tableName`` of the session's catalog, a Delta table, or one of parquet or json files
        without partitions.

        A Delta table is read by source ``delta``, with the options that were given, and so is one named by its path,
        ``delta.`/lake/orders```. Of other tables, files are read as source ``files`` reads them, each once, with the
        table's columns; what rewrites or removes files (``INSERT OVERWRITE``) is no change that they tell.
        Raises as :meth:`load`, ``ConfigError`` for other tables, Spark's ``AnalysisException`` if there is none.
        """
        kind, path, schema = table_source(self._session.spark, tableName)
        reader = copy(self)  # which keeps nothing of the table
        reader._options = dict(self._options)
        return reader.load(path, kind, schema)

    def spark(self, stream: SparkStreamMaker | Any, uid: str | None = None) -> DataFrame:
        """A stream that Spark itself reads, ``spark.readStream...load()``, with barriers: by the sources that Spark has
        for Delta, Kafka or files, and whatever other connectors there are for the JVM.

        ``stream`` is the DataFrame, or a function that makes it: ``stream(position)``. Stateless operations may stand
        in it; a watermark and what keeps state belong behind this call. It is called here, on the driver, with None,
        and at a start. Checkpoints remember the source's offset as Spark logs it, and a job that goes on at its Spark
        location needs nothing. Where one goes on from a checkpoint at an empty location, the function gets that offset,
        as parsed from JSON, and must begin right there; the DataFrame alone is refused then.

        Several such streams, and other sources, may stand in one query: in unions, joins, or apart.
        ``stop(drain=True)`` is refused, as Spark goes on reading. ``uid`` names it in checkpoints (else ``stream-0``,
        by its number in the query). Raises ``InvalidInputError`` for what is not one stream, or keeps state::

            ticks = ckpt.readStream.spark(spark.readStream.format("rate").load().where("value % 2 = 0"))

            def sold(position: Any) -> Any:
                options = spark_ckpt.starting_options(position)
                return spark.readStream.format("delta").options(**options).load("/lake/sold")

            ckpt.readStream.spark(sold, uid="sold")
        """
        return spark_stream(self._session, stream, uid)

    def _loaded(self, options: dict[str, str]) -> DataFrame:
        refuse_named_sources(self._session.spark.conf)
        uid, kind = options.pop("uid", None), self._format
        asked = Asked(self._session, str(kind), self._schema, dict(options), uid)
        lanes = lane_count(options.pop("lanes", None))
        if not (isinstance(kind, str) and kind.lower() in FILE_FORMATS):
            unknown = may_be_sparks(kind) and read_by_spark(asked, "no source of spark_ckpt is called so")
            return unknown or self._read_here(kind, options, self._schema, uid, lanes)
        try:
            options, given = as_spark_reads(self._session.spark, kind.lower(), options, self._schema)
            made = self._read_here("files", options, given, uid, lanes, asked)
            if given is None and "badrecords" not in {name.lower() for name in options}:
                refuse_unread_types(kind.lower(), made.schema)  # the schema that the files tell
        except OnlySparkReadsError as error:
            return cast("DataFrame", read_by_spark(asked, str(error)))
        return made

    def _read_here(
        self,
        kind: Any,
        options: dict[str, str],
        given: StructType | None,
        uid: str | None,
        lanes: int | None,
        of_files: Asked | None = None,
    ) -> Any:
        """By a source of spark_ckpt, or a class. ``of_files``: the reader of one of Spark's formats of files."""
        config = self._session.config()
        storage = config.storage_options()
        opened = open_source(kind, options, given, f"{config.dir}/_none", storage)
        missing = opened.missing_path(of_files is not None)
        if missing is not None:
            raise path_not_found(missing)
        options = opened.settled_options(options, self._session.spark.conf.get)
        schema = open_source(kind, options, given, f"{config.dir}/_none", storage).schema()
        refuse_unread(schema)
        refuse_reserved(schema.fieldNames(), "the source")
        refuse_repeated(schema.fieldNames(), self._session.spark)
        node = SourceNode(kind, options, schema, uid, lanes)
        full = with_control(schema)
        recipe = Recipe(lambda _ctx: Chain(node, full))
        if of_files is None or "badrecords" in {name.lower() for name in of_files.options}:
            return self._session._frame(recipe, Lineage(1, (node,)), schema)
        told = replace(of_files, schema=schema if given is None else given)
        files, by_spark = of_files.kind.lower(), partial(rows_by_spark, told)
        return self._session._frame(recipe, Lineage(1, (node,)), schema, files=files, by_spark=by_spark)


def lane_count(text: str | None) -> int | None:
    """The reader's option ``lanes``."""
    try:
        return None if text is None else int(count(1).parse(text))
    except ValueError as error:
        raise ConfigError(f"reader option lanes: expected {error}, found {text!r}") from None
