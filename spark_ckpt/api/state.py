"""``ckpt.state(uid)``: the state of an operator as a DataFrame, too. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.rewriting import state_frame
from spark_ckpt.jobs.rollback import AsOf
from spark_ckpt.jobs.state import State
from spark_ckpt.storage.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ckpt.config import JobConfig


class CkptState(State):
    """The state of an operator at a checkpoint, for the session that asked: all of :class:`spark_ckpt.State`, and
    DataFrames. Nothing is read until a method asks for it."""

    _spark: Any

    @classmethod
    def of(cls, state: State, spark: Any) -> CkptState:
        """``state``, with DataFrames of the session ``spark``."""
        found = cls(state._store, state._record, state.uid, state._at)
        found._spark = spark
        return found

    def df(self) -> DataFrame:
        """All rows as a batch DataFrame, by the operator's names and types: a partition a file, read by the executors.

        They are read when the DataFrame is used, so the checkpoint must be retained until then. Delta Lake is not
        needed::

            ckpt.state("totals", checkpoint=7).df().orderBy(F.desc("total")).show()
        """
        found: DataFrame = state_frame(self._spark, self)
        return found

    def diff_df(self, before: int | State, after: int | State | None = None) -> DataFrame:
        """:meth:`diff` of ``before`` and ``after`` as a DataFrame."""
        found: DataFrame = self._spark.createDataFrame(self.diff(before, after))
        return found

    def createOrReplaceTempView(self, name: str) -> None:
        """:meth:`df` as the temporary view ``name``, for SQL."""
        self.df().createOrReplaceTempView(name)


class CkptAsOf(AsOf):
    """A job as it was at a checkpoint, for the session that asked: all of :class:`spark_ckpt.AsOf`, and DataFrames."""

    _spark: Any

    @classmethod
    def of(cls, found: AsOf, spark: Any) -> CkptAsOf:
        """``found``, with DataFrames of the session ``spark``."""
        mine = cls(found.record, found._state, found._sinks, found._job, found._there)
        mine._spark = spark
        return mine

    def state(self, uid: str) -> CkptState:
        """As ``ckpt.state(uid)`` at this checkpoint."""
        return CkptState.of(self._state(uid), self._spark)

    def df(self, sink: str) -> DataFrame:
        """The rows that sink ``sink`` showed, as a batch DataFrame. Driver: it reads them into its memory. Of a large
        table, let Spark read the version that ``sink(...).at`` names. Raises as :meth:`sink`."""
        found: DataFrame = self._spark.createDataFrame(self.sink(sink).read().read_all())
        return found


def job_name(config: JobConfig, given: str | None) -> str:
    """``given``, or ``spark.ckpt.job``, or the only job there is. Raises ``ConfigError`` if there are others."""
    if given is not None or config.job is not None:
        return str(given or config.job)
    jobs = Folder(config.dir, config.storage_options()).folders()
    if len(jobs) != 1:
        raise ConfigError(f"expected job=..., one of {jobs}, whose state it is; found none")
    return jobs[0]
