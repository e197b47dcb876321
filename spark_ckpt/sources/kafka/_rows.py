"""Messages as rows with the columns of Spark's Kafka source. Executor."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_ckpt.sources.kafka._positions import Partition

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def schema_of(value: DataType, headers: bool) -> StructType:
    """Spark's columns; ``value`` is the type of the column of that name."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", value),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    return StructType(fields + ([StructField("headers", ArrayType(header))] if headers else []))


def rows(
    found: Sequence[Message], partition: Partition, headers: bool, values: pa.Array | None = None
) -> pa.RecordBatch:
    """One row a message; key and value as bytes, null where the message has none. ``values`` are there if decoded."""
    n = len(found)
    times = [m.timestamp() for m in found]
    columns = {
        "key": pa.array([m.key() for m in found], pa.binary()),
        "value": pa.array([m.value() for m in found], pa.binary()) if values is None else values,
        "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), n),
        "partition": pa.repeat(pa.scalar(partition.number, pa.int32()), n),
        "offset": pa.array([m.offset() for m in found], pa.int64()),
        "timestamp": pa.array([at for _, at in times], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        # Java's client counts from -1, which is no time at all.
        "timestampType": pa.array([kind - 1 for kind, _ in times], pa.int32()),
    }
    if headers:
        columns["headers"] = pa.array([_headers(m) for m in found], pa.list_(_HEADER))
    return pa.RecordBatch.from_pydict(columns)


def _headers(message: Message) -> list[dict[str, str | bytes | None]] | None:
    """Null without headers, as in Spark."""
    found = message.headers()
    return [{"key": key, "value": value} for key, value in found] if found else None
