"""``writeStream`` of a checkpointed stream: sinks, job name, start. Driver only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from spark_ckpt.api._watching import Watch
from spark_ckpt.api.query import CkptQuery
from spark_ckpt.api.writers import (
    WHERE,
    as_sink,
    as_spark_takes,
    batch_function,
    check_sinks,
    each_row,
    in_our_terms,
    sink_named,
    told_apart,
    with_conditions,
    with_partition_texts,
)
from spark_ckpt.config import is_job_option
from spark_ckpt.config_values import option_text, set_option
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.execution.catalog_tables import table_sink
from spark_ckpt.execution.output_modes import check_mode, check_order, check_updates
from spark_ckpt.execution.spark_errors import IllegalAsInSparkError, check_path, check_writer, unsupported
from spark_ckpt.execution.start import StartRequest, plan_restore, start_query
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.front_door import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from spark_ckpt.protocol.restore_plan import RestorePlan
    from spark_ckpt.sinks.base import TwoPhaseSink

    Sink = str | type[TwoPhaseSink] | Callable[[DataFrame, int], None]


_BATCHES = "barriers travel in micro-batches: use trigger(processingTime=...) or availableNow=True"


class CkptDataStreamWriter(Hinting):
    """``df.writeStream``. Options that are ``spark.ckpt.*`` keys configure the job, all others the sink.

    Every method but :meth:`start` returns the writer itself.
    """

    _ways: ClassVar[Mapping[str, str]] = {
        "clusterBy": "no sink clusters by columns; partitionBy(...) is there",
    }

    def __init__(self, df: Any, session: Any = None) -> None:
        self._df = df
        self._session = df._session if session is None else session
        self._format: Any = None
        self._options: dict[str, str] = {}
        self._more: list[tuple[Any, dict[str, Any]]] = []
        self._query_name: str | None = None
        self._trigger: dict[str, Any] = {}
        self._mode = "append"

    def format(self, source: str | type[TwoPhaseSink]) -> CkptDataStreamWriter:
        """``source``, as Spark calls the sink: ``"delta"``, ``"iceberg"``, ``"files"``, ``"kafka"``, ``"sql"``,
        ``"memory"``, or one of yours, by registered name or class.

        ``"parquet"``, ``"json"``, ``"csv"`` and ``"text"`` are ``"files"`` of that kind, with Spark's names, and
        ``"console"`` shows the rows of each checkpoint (``numRows``, ``truncate``).

        A class of yours derives from :class:`spark_ckpt.TwoPhaseSink`. :meth:`start` raises for an unknown one.
        """
        self._format = sink_named(source)
        return self

    def option(self, key: str, value: Any) -> CkptDataStreamWriter:
        """One option of the sink, ``checkpointLocation``, or a setting of the job (``spark.ckpt.*``).

        ``key`` in any case; ``value`` becomes text as in Spark: ``True`` is ``"true"``, None is none, durations are
        written ``"10s"``. :meth:`start` raises for unknown ones.
        """
        set_option(self._options, key, value)
        return self

    def options(self, **options: Any) -> CkptDataStreamWriter:
        """Several options, name by name: ``options(path="/lake/totals", mergeKeys="customer")``.

        Those whose names have dots go to :meth:`option`.
        """
        for key, value in options.items():
            self.option(key, value)
        return self

    def alsoTo(self, sink: Sink, **options: Any) -> CkptDataStreamWriter:
        """A further ``sink`` with its own ``options`` for the same rows, under the same checkpoints: all sinks or none.

        A function is called as that of :meth:`foreachBatch`. Three options are for every sink: ``columns="a,b"`` gives
        it some of the columns, ``where`` (SQL text or an expression) some of the rows, ``uid`` names it (default: the
        format and its number). :meth:`start` raises for unknown ones::

            rows.writeStream.format("delta").option("path", "/lake/orders").alsoTo(
                "sql", url="sqlite:////data/totals.db", table="totals", mergeKeys="customer", columns="customer,total"
            )
        """
        given = {k: v if k == WHERE else option_text(v) for k, v in options.items() if v is not None}
        self._more.append((as_sink(sink), given))
        return self

    def partitionBy(self, *cols: str | list[str]) -> CkptDataStreamWriter:
        """As PySpark's, for files and Delta tables: ``cols`` are strings, whole numbers, decimals, booleans or dates.
        Files without ``alsoTo`` take times, doubles and floats, too.

        The sink's option ``partitionBy``: ``alsoTo("delta", path=..., partitionBy="day")``. :meth:`start` raises for
        others, and for a sink that has no partitions; ``InvalidInputError`` here for a name with a comma.
        """
        names = [name for c in cols for name in ([c] if isinstance(c, str) else c)]
        if any("," in name for name in names):
            raise InvalidInputError(f"partitionBy: a column's name must not have a comma, found {names}")
        self._options.pop("partitionBy", None)
        if names:
            self._options["partitionBy"] = ",".join(names)
        return self

    def outputMode(self, outputMode: str) -> CkptDataStreamWriter:
        """``outputMode``: ``append``, ``update`` or ``complete``; need not be given but for ``complete``.

        Windows come out once in mode append, which is the default, and with every change in mode update. In mode
        complete, for small results, each checkpoint replaces all rows of the sinks by the whole result of one
        aggregation, or of a union of several: ``delta``, ``sql``, ``memory``, ``console`` and ``foreachBatch`` can. No
        row is late then, and no window ends. Raises ``InvalidInputError`` if it is not what the query's operators put
        out, as Spark does.
        """
        mode = outputMode.lower() if isinstance(outputMode, str) else outputMode
        if mode not in ("append", "update", "complete"):
            check_writer(self._session.spark, outputMode=outputMode)
            raise InvalidInputError(f"outputMode must be append, update or complete, found {outputMode!r}")
        lineage = self._job(self._df)._lineage
        check_mode(lineage, mode)
        check_updates(lineage, mode, self._session.spark)
        self._mode = mode
        return self

    def queryName(self, queryName: str) -> CkptDataStreamWriter:
        """``queryName`` of the query, and of the job: a start goes on from the checkpoints of the same name.

        At most 200 bytes, without ``/`` and such (docs/configuration.md, "Names"); :meth:`start` raises for others.
        Raises Spark's ``PySparkValueError`` for a blank one.
        """
        if not isinstance(queryName, str) or not queryName.strip():
            check_writer(self._session.spark, queryName=queryName)
        self._query_name = queryName
        return self

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,
        realTime: str | None = None,
    ) -> CkptDataStreamWriter:
        """One of ``processingTime="10 seconds"``, a batch every so often, and ``availableNow=True``, all there is now.

        Without a trigger, batches follow each other. ``availableNow`` ends with a final checkpoint, in several batches:
        its barrier comes behind the last row. ``once``, which Spark deprecated, is ``availableNow`` here. Raises
        ``InvalidInputError`` for ``continuous`` and ``realTime``, where no barrier can travel, and as Spark does for
        none, several and what is no interval.
        """
        if continuous is not None:
            raise unsupported(f"Continuous processing is not supported: {_BATCHES}")
        if realTime is not None:
            raise IllegalAsInSparkError(
                f"Streaming real-time mode is not supported: {_BATCHES}",
                "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",
                {"className": "ckpt"},
            )
        given = {"processingTime": processingTime, "once": once, "availableNow": availableNow}
        found = {name: value for name, value in given.items() if value is not None}
        check_writer(self._session.spark, trigger=found)
        self._trigger = found if processingTime is not None else {"availableNow": True}
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> CkptDataStreamWriter:
        """As PySpark's: ``func`` gets each committed checkpoint's rows as a DataFrame of the session, and its id.

        In order, in this process, when all other sinks have committed the checkpoint; one without rows is passed over.
        After a crash ``func`` is called again for checkpoints it was not done with, with the same id and the same
        rows. What it raises ends the query, and the next start calls it again. Beside other sinks: ``alsoTo``::

            def write(rows: Any, checkpoint: int) -> None:
                rows.write.mode("overwrite").parquet(f"/lake/orders/{checkpoint}")  # the same, if it is done again

            query = orders.writeStream.foreachBatch(write).queryName("orders").start()
        """
        self._format = batch_function("foreachBatch", func)
        return self

    def foreach(self, f: Callable[[Row], None] | object) -> CkptDataStreamWriter:
        """As PySpark's: ``f`` is called with each row of each committed checkpoint, on executors.

        Or ``f`` is an object with ``process(row)``, and perhaps ``open(partition_id, epoch_id)`` and ``close(error)``.
        ``epoch_id`` is the checkpoint's id. Rows may come again, after a failure, in the same partition and epoch:
        who remembers those in ``open`` processes each row once.
        """
        self._format = each_row(f)
        return self

    @overload
    def start(self, path: str | None = None, *, dryRun: Literal[True], **options: Any) -> RestorePlan: ...
    @overload
    def start(
        self,
        path: str | None = None,
        format: str | type[TwoPhaseSink] | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> CkptQuery: ...
    def start(
        self,
        path: str | None = None,
        format: str | type[TwoPhaseSink] | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        dryRun: bool = False,
        **options: Any,
    ) -> CkptQuery | RestorePlan:
        """Validate everything, decide where to go on from, and start the query; ``path`` is the sink's option. Returns
        a :class:`spark_ckpt.CkptQuery`.

        ``dryRun``: start nothing and write nothing, and return a :class:`spark_ckpt.RestorePlan`, which says of each
        source, operator and sink of the job whether it goes on, begins empty or is dropped, or why the start would be
        refused; ``print`` shows it as a table.

        ``format``, ``outputMode``, ``partitionBy``, ``queryName`` and ``options`` are the methods of these names. Among
        them, ``startingFrom`` sends sources, by uid, to another position: ``startingFrom={"orders": "latest"}``; see
        ``spark.ckpt.startingFrom``.

        It goes on from the Spark location, else from the newest checkpoint of the job's name, else it begins; see
        ``spark.ckpt.restore``. What an earlier start completed and did not commit is committed first. Raises
        ``ConfigError`` for settings and options, ``InvalidInputError`` if a sink cannot take the rows,
        ``TopologyError`` if the query does not fit its checkpoints, ``StorageNotWritableError`` if the job's folder
        cannot be written or is another job's, ``CorruptStorageError`` if what it needs of the checkpoints is damaged;
        each says what to do::

            query = rows.writeStream.format("delta").option("path", "/lake/orders").queryName("orders").start()
        """
        if format is not None:
            self.format(format)
        if path is not None:
            check_path("start", path, {**self._options, **options}, self._session.spark)
        if self._format is None and (path or any(name.lower() == "path" for name in self._options)):
            self._format = self._session.spark.conf.get("spark.sql.sources.default")
        self._given(outputMode, partitionBy, queryName, options)
        request = self._request(path)
        if dryRun:
            return plan_restore(request)
        watch = Watch(self._session.config(request.job_options))
        try:
            running = start_query(request)
        except BaseException:
            watch.abandon()
            raise
        watch.begin(running)
        return CkptQuery(running)

    def _request(self, path: str | None) -> StartRequest:
        """All that was said, checked; ``path`` is the sink's option."""
        options = dict(self._options)
        if path is not None:
            set_option(options, "path", path)
        if self._format is None:
            needed = "'path' is not specified: writeStream needs format(...), the name of a sink, or foreachBatch(func)"
            raise IllegalAsInSparkError(needed, "_LEGACY_ERROR_TEMP_2047", {})
        location = next((options.pop(k) for k in list(options) if k.lower() == "checkpointlocation"), None)
        job_options = {k: options.pop(k) for k in list(options) if is_job_option(k)}
        named = [in_our_terms(sink, own) for sink, own in self._as_spark_takes(options, job_options)]
        spark, lineage = self._session.spark, self._job(self._df)._lineage
        check_sinks(self._mode, named, self._df.columns)
        check_order(lineage, self._mode)
        check_updates(lineage, self._mode, spark)
        rows = with_partition_texts(self._df, named)
        rows, sinks = with_conditions(told_apart(rows, named, spark), named)
        return StartRequest(self._job(rows), sinks, job_options, self._query_name, location, self._trigger, self._mode)

    def _of_same_rows(self) -> CkptDataStreamWriter:
        """Another writer of the rows, with the output mode and the job's settings, and without the sinks."""
        made = CkptDataStreamWriter(self._df, self._session)
        made._mode, made._own_job = self._mode, self._own_job
        made._options = {k: v for k, v in self._options.items() if is_job_option(k)}
        return made

    def _job(self, rows: Any) -> Any:
        """``rows`` as a job: the DataFrame, or what sinks need of it beside its own columns."""
        return self._own_job if rows is self._df else translated(self._session, rows)

    @cached_property
    def _own_job(self) -> Any:
        """Translated once: :meth:`outputMode` looks at it before :meth:`start` does."""
        return translated(self._session, self._df)

    def _as_spark_takes(self, options: dict[str, Any], job_options: dict[str, str]) -> list[tuple[Any, dict[str, Any]]]:
        """All sinks; the first with ``options``."""
        named = bool(self._query_name or self._session.config(job_options).job)
        return as_spark_takes(self._df, self._session.spark, [(self._format, options), *self._more], self._mode, named)

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> CkptQuery:
        """As PySpark's: start, and append to the table ``tableName`` of the session's catalog; made if there is none.

        Where the table is, its sink writes: ``delta`` for a Delta table, ``files`` for one of format parquet (what a
        new one is, unless ``format`` says another) or json. A session that has read a table of files sees new ones
        after ``REFRESH TABLE``. ``outputMode``, ``queryName`` and ``options`` are the methods of these names;
        ``partitionBy`` is refused, as a new table has no partitions. Raises as :meth:`start`, ``ConfigError`` for a
        view, a partitioned table of files and other formats, ``InvalidInputError`` if the table's columns are others.
        """
        self._given(outputMode, partitionBy, queryName, options)
        if self._format is not None and not isinstance(self._format, str):
            raise ConfigError(f"toTable({tableName!r}) writes a table, and format(...) or foreachBatch(...) another")
        if "partitionBy" in self._options:
            raise ConfigError("toTable makes tables without partitions; partitionBy is there with start(path)")
        kind, path = table_sink(self._session.spark, tableName, format or self._format, self._df.schema)
        return self.format(kind).start(path)

    def _given(
        self, outputMode: str | None, partitionBy: str | list[str] | None, queryName: str | None, options: Any
    ) -> None:
        """What :meth:`start` and :meth:`toTable` take of what other methods set."""
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)
