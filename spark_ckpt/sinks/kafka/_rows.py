"""Rows as Kafka's messages: the columns of Spark's Kafka sink, checked with its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.formats.base import Encoder

TOPIC, KEY, VALUE, HEADERS, PARTITION = "topic", "key", "value", "headers", "partition"
ANY = -1
"""The partition that the message's key goes to."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: dict[str, tuple[pa.DataType, str]] = {
    TOPIC: (pa.string(), "a STRING"),
    KEY: (pa.binary(), "a STRING or BINARY"),
    VALUE: (pa.binary(), "a STRING or BINARY"),
    HEADERS: (_HEADERS, "an ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    PARTITION: (pa.int32(), "an INT"),
}
"""What each column is staged as, and what it may be in Spark's words."""


def check_columns(schema: pa.Schema, topic: str | None, formatted: bool = False) -> None:
    """Raises ``InvalidInputError`` unless Spark's Kafka sink would take rows of ``schema``. Others are ignored.

    ``formatted``: what column ``value`` may be is for option ``valueFormat`` to say."""
    if VALUE not in schema.names:
        raise InvalidInputError(
            f"Required attribute 'value' not found; the columns are {', '.join(schema.names)}. Name one value, or make "
            'it: select(F.struct("id", "name").alias("value")) and option valueFormat'
        )
    if topic is None and TOPIC not in schema.names:
        raise InvalidInputError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name in message_schema(schema).names:
        kind = schema.field(name).type
        if not _fits(name, kind) and not (formatted and name == VALUE):
            raise InvalidInputError(f"{name} attribute unsupported type {kind}. {name} must be {_TYPES[name][1]}")


def message_schema(schema: pa.Schema) -> pa.Schema:
    """Those columns of ``schema`` that make a message, as they are staged."""
    return pa.schema([(name, kind) for name, (kind, _) in _TYPES.items() if name in schema.names])


def message_rows(batch: pa.RecordBatch, schema: pa.Schema, encoder: Encoder | None = None) -> pa.RecordBatch:
    """``batch`` as :func:`message_schema` says, with values made bytes by ``encoder``."""
    columns = {f.name: batch.column(batch.schema.get_field_index(f.name)) for f in schema}
    if encoder is not None:
        columns[VALUE] = encoder.encode(columns[VALUE])
    return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def refuse_topic(batch: pa.RecordBatch, ledger: str) -> None:
    """Raises ``InvalidInputError`` for rows that column ``topic`` sends to the sink's own topic."""
    if pc.any(pc.equal(batch.column(TOPIC), ledger)).as_py():
        raise InvalidInputError(
            f"column topic has {ledger!r}, where the sink remembers what was committed; send such rows to another "
            "topic, or name another by option 'ledgerTopic'"
        )


def messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """(topic, partition, messages) of ``batch``, in order for each, as ``Producer.produce_batch`` takes them; some may
    have ``headers``. Partition :data:`ANY`: as the key says."""
    for name, rows in [(topic, batch)] if topic is not None else _by_topic(batch):
        for partition, part in _by_partition(rows):
            yield name, partition, _dicts(part)


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    topics = batch.column(TOPIC)
    if topics.null_count:
        raise InvalidInputError("null topic present in the data. Use the topic option for setting a topic.")
    for name in pc.unique(topics).to_pylist():
        yield name, batch.filter(pc.equal(topics, name))


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    if PARTITION not in batch.schema.names:
        yield ANY, batch
        return
    partitions = batch.column(PARTITION)
    if pc.min(partitions).as_py() is not None and pc.min(partitions).as_py() < 0:
        raise InvalidInputError(f"column partition has {pc.min(partitions)}, expected 0 or more, or null")
    partitions = partitions.fill_null(ANY)
    for partition in pc.unique(partitions).to_pylist():
        yield partition, batch.filter(pc.equal(partitions, partition))


def _dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    names = [n for n in (KEY, VALUE) if n in batch.schema.names]
    found = [dict(zip(names, row)) for row in zip(*(batch.column(n).to_pylist() for n in names))]
    if HEADERS in batch.schema.names:
        for message, headers in zip(found, batch.column(HEADERS).to_pylist()):
            if headers:
                message[HEADERS] = [(h["key"], h["value"]) for h in headers]
    return found


def _fits(name: str, kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if name == TOPIC:
        return text
    if name in (KEY, VALUE):
        return text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if name == PARTITION:
        return pa.types.is_int32(kind)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    fields = list(kind.value_type)
    return (
        [f.name for f in fields] == ["key", "value"]
        and _fits(TOPIC, fields[0].type)
        and (pa.types.is_binary(fields[1].type) or pa.types.is_large_binary(fields[1].type))
    )
