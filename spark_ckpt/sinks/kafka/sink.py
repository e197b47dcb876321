"""The ``kafka`` sink: each task's rows of an epoch wait in an open Kafka transaction, and a commit ends them.

Kafka cannot commit several transactions at once: readers with ``isolation.level=read_committed`` may see one task's
rows of a checkpoint a moment before another's. Nothing is seen before the checkpoint is complete, and nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import SinkOption, option_names
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.kafka._clients import KeptClients
from spark_ckpt.sinks.kafka._committing import Commit, abort, staged_of
from spark_ckpt.sinks.kafka._copies import file_of, transaction_in
from spark_ckpt.sinks.kafka._errors import Heard, patiently
from spark_ckpt.sinks.kafka._ledger import Ledger
from spark_ckpt.sinks.kafka._producing import OpenTransaction
from spark_ckpt.sinks.kafka._rows import VALUE, check_columns
from spark_ckpt.sinks.kafka._settings import DECLARED, KafkaSettings, read_settings, with_absolute_staging
from spark_ckpt.sinks.kafka._transactions import Transactions
from spark_ckpt.sinks.kafka._writer import KafkaWriter, generation_of
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_log = logging.getLogger("spark_ckpt")
_ANSWER_S = 10


class KafkaSink(TwoPhaseSink):
    """Options: ``kafka.*`` (``kafka.bootstrap.servers`` at least), ``topic``, ``staging``, ``stagingPath``,
    ``storage.*``, ``ledgerTopic``, ``failOnDataLoss``, ``valueFormat`` and what belongs to it.

    Columns are those of Spark's Kafka sink: ``value``, and if there are any ``key``, ``headers``, ``topic``,
    ``partition``. Rows of one task, epoch and partition stay in order.
    """

    DECLARED: ClassVar[tuple[SinkOption, ...]] = DECLARED
    OPTIONS = option_names(DECLARED)
    SIDE_BY_SIDE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._given = read_settings(options)

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return with_absolute_staging(options)

    def __repr__(self) -> str:
        return f"KafkaSink({self._given.servers}, {self._given.topic or 'topics by column'})"

    @cached_property
    def _settings(self) -> KafkaSettings:
        if self.place is None:
            return self._given
        return replace(self._given, patience_s=self.place.config.retry_timeout_ms / 1000)

    @cached_property
    def _copies(self) -> Folder | None:
        given = self._settings
        if not given.durable:
            return None
        if given.staging_url is not None:
            return Folder(given.staging_url, given.storage)
        if self.place is None:
            raise ConfigError("sink 'kafka': staging=durable needs option 'stagingPath' where no job runs the sink")
        return Folder(self.place.url, self.place.config.storage_options())

    @cached_property
    def _clients(self) -> KeptClients:
        return KeptClients(self._settings)

    def validate(self, schema: pa.Schema) -> None:
        """Asks the broker for the topic and the right to write to it, makes the ledger topic, and begins and ends an
        empty transaction, so that what cannot work is refused before the first row."""
        check_columns(schema, self._settings.topic, self._settings.value is not None)
        encoder = self._settings.encoder(schema)
        if encoder is not None:
            encoder.encode(pa.array([], schema.field(VALUE).type))  # a schema registry hears of it here
        self._check_times()
        heard = Heard()
        admin = AdminClient({**self._settings.admin(), "error_cb": heard})

        def prepare() -> None:
            try:
                admin.list_topics(timeout=self._settings.answer_s)
            except KafkaException as error:
                admin.poll(0)
                raise heard.reason(error) from None
            if self._settings.topic is not None:
                self._check_topic(admin, self._settings.topic)
            Ledger(self._settings).ensure(admin)

        patiently(f"{self!r}: preparing it", self._settings, prepare)
        OpenTransaction(self._settings, "ckpt-start", "beginning a transaction").abort()

    def _check_topic(self, admin: AdminClient, topic: str) -> None:
        asked = admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=_ANSWER_S
        )
        try:
            found = asked[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise InvalidInputError(
                    f"kafka {self._settings.servers}: topic {topic} does not exist; make it, with as many partitions "
                    "as its readers need"
                ) from None
            raise
        operations = found.authorized_operations
        if operations is not None and AclOperation.WRITE not in operations:
            raise InvalidInputError(
                f"kafka {self._settings.servers}: the user may not write to topic {topic}; grant it Write there"
            )

    def _check_times(self) -> None:
        if self.place is None:
            return
        config, given = self.place.config, self._settings
        longest = config.interval_ms + config.timeout_ms
        if given.transaction_ms >= longest:
            return
        told = (
            f"sink 'kafka': kafka.transaction.timeout.ms is {given.transaction_ms}, and a transaction may be open for "
            f"spark.ckpt.interval and spark.ckpt.timeout, {longest} ms; the broker aborts it earlier. Raise the one "
            "(and the brokers' transaction.max.timeout.ms), or lower spark.ckpt.timeout"
        )
        if not given.durable:
            raise InvalidInputError(f"{told}; or use staging=durable, which has a second copy of the rows")
        _log.warning("%s. Nothing gets lost: rows of aborted transactions are produced again, which takes longer", told)

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return KafkaWriter(self._settings, ctx, self._copies)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        with self._clients.taken() as clients:
            Commit(self._settings, clients, self._copies, permit, committables, self._step).run()
        self._step("copies removed")  # a crash here: the next commit finds everything done

    def newest_checkpoint(self, job: str, sink: str) -> int:
        """Reads the ledger topic."""
        ledger = Ledger(self._settings)
        try:
            return max((k for _, k in ledger.read(job, sink).entries), default=0)
        finally:
            ledger.close()

    def abort(self, committables: Sequence[Committable]) -> None:
        abort(self._settings, self._copies, staged_of(committables))

    def end_open(self, job: str, generation: int, keep: Sequence[Committable]) -> None:
        """An open transaction holds back all readers of its partitions until its time is over. Their copies go, too."""
        named, prefix = _named(keep), staging.staged_prefix(job)
        self._end(prefix, named, generation)
        self._remove_copies(prefix, {file_of(t) for t in named}, generation)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        named = _named(keep)
        ended = self._end(staging.staged_prefix(job), named)
        return ended + self._remove_copies(staging.staged_prefix(job), {file_of(t) for t in named})

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        ledger = Ledger(self._settings)
        memory = ledger.read(job)
        newest = dict(sorted(memory.entries))
        old = [(s, k) for s, k in memory.before(oldest) if newest.get(s) != k]
        ledger.forget(job, memory, old)
        return [f"ledger entry of checkpoint {k} of sink {s}" for s, k in old]

    def staged_by(self) -> dict[str, int]:
        with Transactions(self._settings) as transactions:
            return staging.count_stagers(transactions.open("ckpt-"))

    def discard(self, who: str) -> list[str]:
        return self._end(staging.prefix_of(who), set())

    def _end(self, prefix: str, keep: set[str], generation: int | None = None) -> list[str]:
        with Transactions(self._settings) as transactions:
            found = [t for t in transactions.open(prefix) if t not in keep]
            lost = [t for t in found if generation is None or generation_of(t) < generation]
            transactions.settle(lost, False, lambda _: None)
        return lost

    def _remove_copies(self, prefix: str, keep: set[str], generation: int | None = None) -> list[str]:
        if self._copies is None:
            return []
        found = [n for n in self._copies.names() if n.startswith(prefix) and n not in keep]
        lost = [n for n in found if generation is None or generation_of(transaction_in(n)) < generation]
        for name in lost:
            self._copies.remove(name)
        return lost


def _named(committables: Sequence[Committable]) -> set[str]:
    return {str(staging.decode_any(c).get("transaction")) for c in committables}
