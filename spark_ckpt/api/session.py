"""``spark_ckpt.enable(spark)``: the entry point. Driver only; classic Spark and Spark Connect alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pyspark.errors import PySparkValueError
from pyspark.sql.types import StructType

from spark_ckpt.api._migrations import Migrations, StateMigration, moved, rescale
from spark_ckpt.api._on_dataframes import add_methods
from spark_ckpt.api._read_by_spark import Asked, may_be_sparks, read_by_spark, rows_by_spark, spark_stream
from spark_ckpt.api._readers import FileReaders, as_spark_reads, refuse_unread_types
from spark_ckpt.api._savepoint_writer import NEW, SavepointWriter
from spark_ckpt.api._spark_import import import_spark
from spark_ckpt.api._streams import CkptStreams
from spark_ckpt.api.state import CkptAsOf, CkptState, job_name
from spark_ckpt.api.write import CkptDataStreamWriter
from spark_ckpt.config import JobConfig
from spark_ckpt.config_values import count, set_option
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.catalog_tables import table_source
from spark_ckpt.execution.chain import Chain, Recipe
from spark_ckpt.execution.columns import refuse_repeated, refuse_reserved
from spark_ckpt.execution.lineage import Lineage, SourceNode
from spark_ckpt.execution.output_modes import check_mode, check_updates
from spark_ckpt.execution.refused_types import refuse_unread
from spark_ckpt.execution.session_confs import all_confs
from spark_ckpt.execution.spark_errors import check_path, not_expected, path_not_found
from spark_ckpt.execution.spark_stream_rows import SparkStreamMaker
from spark_ckpt.execution.start import plan_restore
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.plan.analysed.leaves import Stream
from spark_ckpt.plan.front_door import front_door, translated
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.spark_file_options import FILE_FORMATS, OnlySparkReadsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession
    from pyspark.sql.datasource import DataSource

    from spark_ckpt.protocol.restore_plan import RestorePlan

PREFIX = "spark.ckpt."


def enable(spark: SparkSession | ConnectSession) -> CkptSession:
    """Checkpoints for the streams of ``spark``, a classic session or one of Spark Connect; nothing else changes in it.

    Driver. Call it as often as you like. PySpark's class of DataFrames gets ``uid``, its grouped data ``topN``,
    ``aggregate`` and ``applyInArrowWithState``, and ``writeStream`` of a DataFrame that reads a source of
    ``ckpt.readStream`` writes under checkpoints. Of such a DataFrame, a column that is called ``uid`` is ``df["uid"]``.

    Reads and checks ``spark.ckpt.*`` of the session's conf, of which ``spark.ckpt.dir`` must be set: the folder or URL
    that holds the jobs' folders. Raises ``ConfigError`` for unknown keys and bad values::

        spark.conf.set("spark.ckpt.dir", "/data/checkpoints")
        ckpt = spark_ckpt.enable(spark)
    """
    return CkptSession(spark)


class CkptSession(Hinting):
    """Where checkpointed streams begin. Cheap; make as many as you like.

    What is not about streams is the session's own: ``ckpt.spark.read``, ``ckpt.spark.catalog``.
    """

    _ways: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("catalog", "conf", "createDataFrame", "range", "read", "sparkContext", "udf", "version"),
        "it is Spark's own: call it on the session itself, ckpt.spark",
    )

    def __init__(self, spark: SparkSession | ConnectSession, given: Mapping[str, str] | None = None) -> None:
        self.spark: SparkSession = spark  # that of Connect has the same methods
        self._given = dict(given or {})
        self._streams: CkptStreams | None = None
        self.migrations = Migrations()
        add_methods(spark)
        self.config()

    def _frame(self, recipe: Recipe, lineage: Lineage, schema: StructType, **more: Any) -> Any:
        """The DataFrame of what begins here."""
        return front_door(self.spark).stream_frame(Stream(self, recipe, lineage, schema, **more))

    @property
    def readStream(self) -> CkptDataStreamReader:
        """Begins a stream, as ``spark.readStream``: ``.format("files").schema(...).load("s3://lake/orders")``."""
        return CkptDataStreamReader(self)

    @property
    def streams(self) -> CkptStreams:
        """``spark.streams``; listeners that are added here are told how many rows were read."""
        if self._streams is None:
            self._streams = CkptStreams(self.spark.streams)
        return self._streams

    def writeStream(self, df: Any) -> CkptDataStreamWriter:
        """``df.writeStream`` with checkpoints, of any streaming DataFrame of this session: where all its streams are
        Spark's own, too, whose ``writeStream`` is Spark's."""
        return CkptDataStreamWriter(df, self)

    def explain(self, df: Any) -> None:
        """Print the job that ``df``, a streaming DataFrame, becomes, from its rows to its sources: segments of single
        rows, whether they run in Arrow or in Spark and why, keyed operators with uid, state and time-outs.

        Raises what ``start`` would raise of the plan. ``query.explain()`` has Spark's own plan of a running query.
        """
        print(translated(self, df).graph())  # noqa: T201

    def check(self, df: Any, outputMode: str = "append", foreachBatch: bool = False) -> None:
        """Raise what ``df.writeStream.outputMode(outputMode)...start()`` would refuse of the plan of ``df``, without a
        start: what is not translated, names of state or columns that come twice, the output mode, types that no sink
        takes. ``foreachBatch``: the rows go to functions alone, which take columns of one name. ``start`` looks at
        options of sinks and at the checkpoints to go on from, too.
        """
        job = translated(self, df)
        job.graph()  # names what has a name
        job._arrow_schema()
        check_mode(job._lineage, outputMode)
        check_updates(job._lineage, outputMode, self.spark)
        if not foreachBatch:
            refuse_repeated(df.columns, self.spark)

    def plan_restore(
        self,
        df: Any,
        job: str,
        from_: int | str | None = None,
        outputMode: str = "append",
        samples: int = 0,
        **options: Any,
    ) -> RestorePlan:
        """What becomes of the sources and the state of ``job`` if ``df`` goes on with it; nothing is started or
        written. Driver.

        ``outputMode`` is the query's. ``from_`` is a checkpoint's id or the path of a savepoint (None: as
        ``spark.ckpt.restore`` says); ``options`` are those of the writer that matter at a start, such as
        ``checkpointLocation``. ``samples``: show so many rows, keys and values, of each state table of which something
        is migrated or lost. Sinks are left out: ``writeStream...start(dryRun=True)`` has them. Raises what a start
        raises ahead of its claim::

            print(ckpt.plan_restore(orders, "orders", samples=3))
        """
        writer = self.writeStream(df).format("noop").outputMode(outputMode).queryName(job).options(**options)
        if from_ is not None:
            writer.option(f"{PREFIX}restore", str(from_))
        return plan_restore(writer._request(None), with_sinks=False, samples=samples)

    def migrate(self, uid: str) -> StateMigration:
        """What becomes of the state under ``uid`` where the query asks for another one. Driver, ahead of a start.

        ``uid`` is an operator's, or one of its state tables, ``"sessions.visits"``, as of a variable of a processor or
        a side of a join (``"joined.left"``). The lines stay beside the query: what was done before is not done again::

            ckpt.migrate("totals").rename("n", "count").cast("amount", "decimal(20,2)").add("currency", F.lit("EUR"))
        """
        return StateMigration(self.spark, self.migrations, uid)

    def moved(self, old: str, new: str) -> None:
        """The state that was under the uid ``old``, also a derived one, is that of ``new``: of an operator, or where a
        source stood. Driver, ahead of a start; leave the line beside the query. Of a variable of a processor:
        ``moved("sessions.visits", "sessions.views")``.
        """
        moved(self.migrations, old, new)

    def rescale(self) -> None:
        """If ``spark.ckpt.maxParallelism`` is another one than the checkpoint's, all state is read and written once, at
        the start, into so many key groups. Driver, ahead of a start; leave the line beside the query. Columns of state
        that change are another start's.
        """
        rescale(self.migrations)

    def state(
        self, uid: str, checkpoint: int | None = None, job: str | None = None, savepoint: str | None = None
    ) -> CkptState:
        """The state of operator ``uid`` at ``checkpoint``, an id (default: the newest), while the job runs or not.

        ``job``: the job's name; if not given, ``spark.ckpt.job``, or the only job of ``spark.ckpt.dir``. With
        ``savepoint``, a folder, it is the state in that. Raises ``InvalidInputError`` if there is no such checkpoint,
        savepoint or operator, ``ConfigError`` if the job is not clear::

            ckpt.state("totals").createOrReplaceTempView("totals")
            ckpt.state("totals").get("alice")
        """
        config = self.config()
        if savepoint is not None:
            return CkptState.of(Savepoint(savepoint, config).state(uid), self.spark)
        return CkptState.of(Job(config, job_name(config, job)).state(uid, checkpoint), self.spark)

    def savepoint_writer(
        self, df: Any, from_: Savepoint | str | None = None, outputMode: str | None = None, **options: Any
    ) -> SavepointWriter:
        """Begins a savepoint that is made of DataFrames, for the query ``df`` to be restored from. Driver.

        ``df``, a streaming DataFrame or its writer, says which operators there are and what their state looks like;
        ``outputMode`` and ``options`` (``spark.ckpt.*``) are those of its writer. ``from_``: a savepoint, or its path,
        whose state and offsets the new one has where nothing else is said. Nothing is started, and ``from_`` is never
        changed::

            totals = orders.groupBy("customer").count()
            writer = ckpt.savepoint_writer(totals).with_operator("totals", spark.read.parquet("/lake/totals"))
            writer.with_offsets("orders", startingOffsets='{"orders": {"0": 42}}').write("/savepoints/backfilled")
        """
        writer = df._of_same_rows() if isinstance(df, CkptDataStreamWriter) else self.writeStream(df)
        writer.format("noop").queryName(NEW).options(**options)
        if outputMode is not None:
            writer.outputMode(outputMode)
        source = Savepoint(from_, self.config()) if isinstance(from_, str) else from_
        return SavepointWriter(self.spark, writer._request(None), source)

    def as_of(self, checkpoint: int, job: str | None = None) -> CkptAsOf:
        """A job as it was at ``checkpoint``, a retained one: state of operators, offsets of sources, rows of sinks.

        ``job`` is as with :meth:`state`. Sinks are those of the job's newest start, as its folder records them,
        without secrets (``SPARK_CKPT_SINK_<ID>_<OPTION>`` in the environment has them). Raises ``InvalidInputError`` if
        there is no such checkpoint::

            then = ckpt.as_of(7)
            then.state("totals").df().show()
            then.df("delta").show()
        """
        config = self.config()
        return CkptAsOf.of(Job(config, job_name(config, job)).as_of(checkpoint), self.spark)

    def import_spark(
        self,
        checkpointLocation: str,
        df: Any,
        path: str,
        offsets: Mapping[str, Mapping[str, Any]] | None = None,
        outputMode: str | None = None,
        **options: Any,
    ) -> Savepoint:
        """The checkpoint of a plain Spark query becomes a savepoint, in the empty folder ``path``, of the same query
        here. Driver; nothing is changed at ``checkpointLocation``, and no query may run there.

        ``df`` is the query as it is written with ``ckpt.readStream``: the same operators with state, in the same order,
        and the same sources. ``outputMode`` and ``options`` are those of its writer. State is read by Spark's
        ``statestore`` reader at the newest committed batch. ``offsets``: options that say where a source goes on, by
        uid, for sources other than files, Kafka and Delta (``{"readings": {"startingOffset": 42}}``). Raises
        ``InvalidInputError`` for what cannot be imported, by name::

            totals = orders.groupBy("customer").count()
            ckpt.import_spark("/data/old/checkpoint", totals, "/data/savepoints/imported", outputMode="update")
        """
        writer = self.savepoint_writer(df, outputMode=outputMode, **options)
        return import_spark(writer, checkpointLocation, path, offsets or {})

    def config(self, overrides: dict[str, str] | None = None) -> JobConfig:
        """The configuration as it is now; ``overrides`` (reader or writer options, key -> text) win.

        Raises ``ConfigError`` for unknown keys and bad values.
        """
        found = {k: v for k, v in all_confs(self.spark.conf).items() if k.startswith(PREFIX)}
        return JobConfig.from_options({**found, **self._given}, overrides or {})


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
