"""``spark_ckpt.enable(spark)``: the entry point. Driver only; classic Spark and Spark Connect alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.types import StructType

from spark_ckpt import shown
from spark_ckpt.api._migrations import Migrations, StateMigration, moved, rescale
from spark_ckpt.api._on_dataframes import add_methods
from spark_ckpt.api._savepoint_writer import NEW, SavepointWriter
from spark_ckpt.api._spark_import import import_spark
from spark_ckpt.api._streams import CkptStreams
from spark_ckpt.api.read import CkptDataStreamReader
from spark_ckpt.api.state import CkptAsOf, CkptState, job_name
from spark_ckpt.api.write import CkptDataStreamWriter
from spark_ckpt.config import JobConfig
from spark_ckpt.execution.chain import Recipe
from spark_ckpt.execution.columns import refuse_repeated
from spark_ckpt.execution.lineage import Lineage
from spark_ckpt.execution.output_modes import check_mode, check_updates
from spark_ckpt.execution.session_confs import all_confs
from spark_ckpt.execution.start import plan_restore
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.plan.analysed.leaves import Stream
from spark_ckpt.plan.front_door import front_door, translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

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

    def _repr_html_(self) -> str | None:
        return shown.html("jobs", self.config())

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
        shown.show(translated(self, df).graph())

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
        return import_spark(writer, df, checkpointLocation, path, offsets or {})

    def config(self, overrides: dict[str, str] | None = None) -> JobConfig:
        """The configuration as it is now; ``overrides`` (reader or writer options, key -> text) win.

        Raises ``ConfigError`` for unknown keys and bad values.
        """
        found = {k: v for k, v in all_confs(self.spark.conf).items() if k.startswith(PREFIX)}
        return JobConfig.from_options({**found, **self._given}, overrides or {})
