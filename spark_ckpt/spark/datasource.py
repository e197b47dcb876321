"""The DataSource classes Spark sees. One class is made for each start of a job and carries that run's facts."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_ckpt.spark.reader import CkptStreamReader
from spark_ckpt.spark.spec import RunSpec, SinkSpec, SourceSpec
from spark_ckpt.spark.writer import CkptStreamWriter


class RunDataSource(DataSource):
    """Readers and writer of one run. Subclassed for each start and pickled by value, so nothing is looked up."""

    run: RunSpec
    sources: dict[str, SourceSpec]
    sinks: tuple[SinkSpec, ...]

    def schema(self) -> StructType:
        from spark_ckpt.spark.stateless import with_control

        return with_control(self._source().schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CkptStreamReader(self.run, self._source())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return CkptStreamWriter(self.run, self.sinks, schema)

    def _source(self) -> SourceSpec:
        return self.sources[self.options["source"]]


def data_source_for(
    format_name: str, run: RunSpec, sources: dict[str, SourceSpec], sinks: tuple[SinkSpec, ...]
) -> type[RunDataSource]:
    """A DataSource class for ``spark.dataSource.register``; registering is by ``format_name``."""

    def name(_cls: type[Any]) -> str:
        return format_name

    body = {"name": classmethod(name), "run": run, "sources": sources, "sinks": sinks}
    made: type[RunDataSource] = type("CkptRun", (RunDataSource,), body)
    # Not importable under any name, so that it is pickled by value and carries its attributes along.
    made.__module__ = "__main__"
    return made
