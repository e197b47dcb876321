"""Spark's short forms of readers, ``parquet(path)`` and such, and Spark's names of their options. Driver."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

FILE_FORMATS = ("csv", "json", "orc", "parquet", "text")
"""Of Spark's formats, those that source ``files`` reads."""


class FileReaders:
    """What :class:`spark_ckpt.api.session.CkptDataStreamReader` has of them."""

    def load(
        self,
        path: str | None = None,
        format: str | None = None,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> CkptDataFrame:
        raise NotImplementedError

    def parquet(self, path: str, *more: Any, **options: Any) -> CkptDataFrame:
        """As PySpark's: Parquet files below ``path``, by source ``files``; ``options`` by Spark's names or its own.

        ``more``: what PySpark takes by position, too, in its order. Raises as :meth:`load`.
        """
        return self.load(path, "parquet", **_by_name("parquet", path, more), **options)

    def orc(self, path: str, *more: Any, **options: Any) -> CkptDataFrame:
        """As PySpark's: ORC files below ``path``, by source ``files``; ``options`` and ``more`` as of :meth:`parquet`.

        Timestamps are read as those of a clock in UTC. Raises as :meth:`load`, and ``ConfigError`` if the schema has
        timestamps and the machine's zone is another.
        """
        return self.load(path, "orc", **_by_name("orc", path, more), **options)

    def json(self, path: str, schema: StructType | str | None = None, *more: Any, **options: Any) -> CkptDataFrame:
        """As PySpark's: one JSON object a line, in files below ``path``, by source ``files``; a ``schema`` is needed.

        ``options`` and ``more`` as of :meth:`parquet`. Raises as :meth:`load`.
        """
        return self.load(path, "json", schema, **_by_name("json", path, (schema, *more)), **options)

    def csv(self, path: str, schema: StructType | str | None = None, *more: Any, **options: Any) -> CkptDataFrame:
        """As PySpark's: CSV files below ``path``, by source ``files``; a ``schema`` is needed.

        ``options`` and ``more`` as of :meth:`parquet`: ``csv(path, "id long", header=True, sep=";")``. Raises as
        :meth:`load`.
        """
        return self.load(path, "csv", schema, **_by_name("csv", path, (schema, *more)), **options)

    def text(self, path: str, *more: Any, **options: Any) -> CkptDataFrame:
        """As PySpark's: files below ``path`` as rows ``value string``, one a line, by source ``files``.

        Lines end with ``\\n`` or ``\\r\\n``. ``options`` and ``more`` as of :meth:`parquet`. Raises as :meth:`load`.
        """
        return self.load(path, "text", **_by_name("text", path, more), **options)


def _by_name(method: str, path: str, given: tuple[Any, ...]) -> dict[str, Any]:
    """Options that were given by their place among the parameters of PySpark's ``method``. Raises ``TypeError``."""
    found = signature(getattr(DataStreamReader, method)).bind(None, path, *given).arguments
    return {name: value for name, value in found.items() if name not in ("self", "path", "schema")}
