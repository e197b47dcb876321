"""Lets Spark find ``format("ckpt")`` without registration: it looks for ``DefaultSource`` in modules ``pyspark_*``."""

from __future__ import annotations

from spark_ckpt.plain.plugin import PlainDataSource


class DefaultSource(PlainDataSource):
    """``spark.readStream.format("ckpt")`` and ``df.writeStream.format("ckpt")``."""


__all__ = ["DefaultSource"]
