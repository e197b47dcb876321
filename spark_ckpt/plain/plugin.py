"""The plugin without the wrapper: ``readStream.format("ckpt")`` and ``writeStream.format("ckpt")``.

One ckpt source, the user's own stateless operations, one or several two-phase sinks. The control columns are visible
and must be kept: no ``select`` may drop them and no filter may drop rows whose ``__ckpt_ctl`` is not null. Reader and
writer see their own options and the conf that Spark was started with, so both need ``job``.

Spark asks neither at ``start()``. The options of a reader are checked by ``load()``, those of a writer before the first
batch of each start, before a row is read: its process makes the writer behind the reader's first offset.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError, ControlColumnsError
from spark_ckpt.jobs.spec import job_url, with_job_storage
from spark_ckpt.plain._options import job_of, sinks_of, source_of
from spark_ckpt.plain._streams import PlainReader, PlainWriter, RefusedReader
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.sources.base import InnerSource, open_source
from spark_ckpt.spark_versions import spark_version
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.types import CONTROL_COLUMNS


class PlainDataSource(DataSource):
    """What Spark finds under the name ``ckpt``. Made from options only, by ``load()`` and for each batch written."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        if spark_version() < (4, 2):
            raise ConfigError(
                "readStream.format('ckpt') needs Spark 4.2 or later: before, Spark tells a source neither where a "
                "batch begins nor that the trigger is availableNow, and a final checkpoint would be missing. Use "
                "spark_ckpt.enable(spark).readStream, which ends such queries itself"
            )
        if "source" in options and not {"sink", "sinks"} & set(options):  # options may be shared by both
            self._opened(None)

    @classmethod
    def name(cls) -> str:
        return "ckpt"

    def schema(self) -> StructType:
        schema = self._opened(None).schema()
        _refuse_control(schema)
        return with_control(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            _require_control(schema)
            inner = StructType([f for f in schema.fields if f.name not in CONTROL_COLUMNS])
            return PlainReader(*job_of(self.options), source_of(self.options, inner))
        except Exception as e:  # noqa: BLE001 - what a source of the user's own raises, too
            return RefusedReader(e)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        config, location = job_of(self.options)
        sinks = tuple(with_job_storage(sink, config) for sink in sinks_of(self.options))
        return PlainWriter(config, location, sinks, schema)

    def reader(self, schema: StructType) -> Any:
        raise ConfigError("format('ckpt') is a stream: read it by spark.readStream, in SQL by a view of such a stream")

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise ConfigError("format('ckpt') writes streams: df.writeStream; a batch is written by Spark's own formats")

    def _opened(self, schema: StructType | None) -> InnerSource:
        config, _ = job_of(self.options)
        spec = source_of(self.options, schema)
        url = JobPaths(job_url(config, str(config.job))).source(spec.id)
        return open_source(spec.inner, spec.options, schema, url, config.storage_options())


def _require_control(schema: StructType) -> None:
    missing = [c for c in CONTROL_COLUMNS if c not in schema.fieldNames()]
    if missing:
        raise ControlColumnsError(
            f"readStream.format('ckpt').schema(...) has no column(s) {missing}; expected the source's columns and "
            f"__ckpt_tag long, __ckpt_ctl binary behind them, found {schema.fieldNames()}. Add them, or leave "
            ".schema(...) out"
        )


def _refuse_control(schema: StructType) -> None:
    taken = [c for c in CONTROL_COLUMNS if c in schema.fieldNames()]
    if taken:
        raise ControlColumnsError(f"the source has column(s) {taken}, which are reserved for the barriers; rename them")
