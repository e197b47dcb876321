"""That a state table which is hashed anew for other key groups has the rows that it had. Driver."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.execution._job_descriptions import described
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.state_writing import Written, columns_of, write_state_table
from spark_ckpt.faults import reach
from spark_ckpt.jobs.state import StateFiles
from spark_ckpt.runtime.datasource import state_class_of
from spark_ckpt.runtime.state_writing import WrittenTable
from spark_ckpt.state.lsm.stored_form import StoredForm

_OLD, _NEW = 0, 1


def rehash_state_table(rows: Any, table: WrittenTable) -> Written:
    """As :func:`write_state_table`, of ``rows`` that are all rows of such a table already, under other key groups.

    Then ``rows`` and the new files, as any reader sees them, are read once more and compared: their number, and two
    sums over a hash of each row, which do not depend on the order. Raises ``ProtocolBugError`` if they differ.
    """
    written = write_state_table(rows, table)
    reach("state hashed anew")
    files = StateFiles(table.url, table.storage, StoredForm(table.form.layout), written.content)
    now = files_frame(rows.sparkSession, files, columns_of(table.form))
    names = table.form.given.names
    with described(rows.sparkSession, f"{table.uid}: state of checkpoint {table.epoch} is compared with the old rows"):
        old, new = _summed(_hashed(rows, names, _OLD).union(_hashed(now, names, _NEW)))
    if old != new or old[0] != sum(group.keys for group in written.groups.values()):
        raise ProtocolBugError(
            f"the state of {table.uid!r} was hashed anew for {table.form.key_groups} key groups: expected the rows "
            f"that it had, {_told(old)}, found {_told(new)}. Nothing was made of it, and the old state is what it was: "
            "go on with the old spark.ckpt.maxParallelism, without ckpt.rescale(), and report this"
        )
    return written


def files_frame(spark: Any, files: StateFiles, schema: T.StructType) -> Any:
    """All rows of state files as a batch DataFrame; they are read when it is used."""
    name = f"ckpt_state_{uuid.uuid4().hex}"
    spark.dataSource.register(state_class_of(name, files))
    return spark.read.format(name).schema(schema).load()


def _hashed(rows: Any, names: list[str], side: int) -> Any:
    """A hash of 64 bits of each row. Spark's leaves nulls out, so which columns are null is hashed, too."""
    columns = [_hashable(F.col(quoted(name)), rows.schema[name].dataType) for name in names]
    return rows.select(F.lit(side).alias("side"), F.xxhash64(*columns, *(c.isNull() for c in columns)).alias("hash"))


def _summed(hashes: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Number of rows, exclusive or and sum of the hashes, of both sides, in one pass."""
    total = F.sum(F.col("hash").cast("decimal(20,0)"))
    found = hashes.groupBy("side").agg(F.count("*"), F.bit_xor("hash"), total).collect()
    sums = {row[0]: tuple(row)[1:] for row in found}
    return sums.get(_OLD, (0, None, None)), sums.get(_NEW, (0, None, None))


def _hashable(column: Any, kind: T.DataType) -> Any:
    """Spark hashes no maps."""
    return column.cast("string") if _has_map(kind) else column


def _has_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, T.MapType)


def _told(sums: tuple[Any, ...]) -> str:
    return f"{sums[0]} rows, hashes {sums[1]} and {sums[2]}"
