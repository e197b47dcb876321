"""The executor's half: a task's rows of one epoch, in one transaction that stays open, and in a file beside it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_ckpt.formats.base import Encoder
from spark_ckpt.sinks import staging
from spark_ckpt.sinks.base import SinkWriter, WriterContext
from spark_ckpt.sinks.kafka._copies import CopyWriter
from spark_ckpt.sinks.kafka._ledger import MARKERS, encoded, marker_key
from spark_ckpt.sinks.kafka._producing import OpenTransaction
from spark_ckpt.sinks.kafka._rows import message_rows, message_schema, refuse_topic
from spark_ckpt.sinks.kafka._settings import KIND, KafkaSettings
from spark_ckpt.storage.filesystem import Folder


def transaction_of(ctx: WriterContext) -> str:
    """A transactional id that no other attempt ever has."""
    return f"{staging.staged_name(ctx)}-g{ctx.generation}"


def generation_of(transaction: str) -> int:
    """0 for one that no task made."""
    ending = transaction.rpartition("-g")[2]
    return int(ending) if ending.isdigit() else 0


class KafkaWriter(SinkWriter):
    """``copies``: where the second copy goes, if there is one."""

    def __init__(self, settings: KafkaSettings, ctx: WriterContext, copies: Folder | None) -> None:
        self._settings, self._ctx = settings, ctx
        self._name, self._schema = transaction_of(ctx), message_schema(ctx.schema)
        self._copy = None if copies is None else CopyWriter(copies, ctx, self._schema, self._name)
        self._open: OpenTransaction | None = None
        self._encoder: Encoder | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._encoder is None:
            self._encoder = self._settings.encoder(self._ctx.schema)
        rows = message_rows(batch, self._schema, self._encoder)
        if self._settings.topic is None:
            refuse_topic(rows, self._settings.ledger)
        if self._open is None:
            topic = self._settings.topic or "of column topic"
            doing = f"staging rows of epoch {self._ctx.epoch} for topic {topic}"
            self._open = OpenTransaction(self._settings, self._name, doing)
        self._open.send(rows, self._settings.topic)
        if self._copy is not None:
            self._copy.write(rows)
        self._rows += rows.num_rows

    def prepare_commit(self) -> Sequence[bytes]:
        if self._open is None:
            return []
        if self._copy is not None:
            self._copy.prepare_commit()
        # Stopped here: a file and an open transaction that nobody names; the next start ends it, gc removes both.
        self._open.record(self._settings.ledger, MARKERS, marker_key(self._name), encoded({"rows": self._rows}))
        self._open.flush()
        self._open.leave()
        self._open = None
        return [staging.encode(KIND, transaction=self._name, rows=self._rows, copy=self._copy is not None)]

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()
        if self._open is not None:  # the task failed
            self._open.abort()
