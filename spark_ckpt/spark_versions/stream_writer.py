"""A stream writer that gets record batches. Spark 4.1 has a class for it.

Spark 4.0 gives record batches to every ``DataSourceArrowWriter``, also in a stream (``write_into_data_source.py``), and
has ``DataSourceStreamWriter`` for the commit of a batch: one class that is both is what 4.1 has under a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

        class DataSourceStreamArrowWriter(DataSourceArrowWriter, DataSourceStreamWriter):
            """As in Spark 4.1."""


__all__ = ["DataSourceStreamArrowWriter"]
